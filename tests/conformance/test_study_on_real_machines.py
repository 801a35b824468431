"""A study of two real machines agrees with what the published method gives on them."""

from __future__ import annotations

import numpy as np
import pytest
from golden_machines import scaled_error
from real_tables import NO_NETWORK, real_table
from shared_data import shared
from tolerances import SPREAD

import daco
from daco.evaluation.metrics import QUANTITIES

MACHINES = {"fan": "dev", "bearing": "eval"}


@pytest.fixture(scope="module")
def result():
    return daco.study(
        real_table("fan"), real_table("bearing"), n_splits=10, baselines=True, workers=1
    )


@pytest.fixture(scope="module")
def expected():
    return {m: np.load(shared("real", "embeddings", f"{m}_mn04_expected.npz")) for m in MACHINES}


@pytest.mark.parametrize("machine", MACHINES)
def test_metrics_and_criterion_of_all_configurations(result, expected, machine):
    want, grid = expected[machine], result.grid()
    assert result.candidates == want["config_names"].tolist()
    metrics = result.metrics(result.candidates).query("machine == @machine")[list(QUANTITIES)]
    # Metrics are ratios of counts; a clip whose float32 score is a tie may fall either way:
    # one pair of 5,000 is 0.02 percent, half a pair 0.01.
    np.testing.assert_allclose(metrics, 100 * want["metrics"], atol=0.0101)
    # KS distances are equal as fractions; the mean over splits is rounded to twelve digits.
    criterion = grid[f"criterion_{MACHINES[machine]}"]
    np.testing.assert_allclose(criterion, want["balance_ks"], atol=1e-11)
    [facts] = [each for each in result.run["machines"] if each["machine"] == machine]
    assert facts["separability"] == pytest.approx(float(want["separability"]), abs=1e-12)
    official = grid[f"{MACHINES[machine]}_score"]
    np.testing.assert_allclose(official, 100 / np.mean(1 / want["metrics"], axis=1), atol=0.03)


@pytest.mark.parametrize("machine", MACHINES)
def test_scores_are_filed_by_clip(result, expected, machine):
    want = expected[machine]
    clips = result.test_clips.query("machine == @machine").set_index("clip")
    order = [name.rsplit("/", 1)[-1] for name in want["test_file_name"].tolist()]
    names = want["config_names"].tolist()
    got = clips.loc[order, names].to_numpy().T
    table = real_table(machine)
    train, test = (table.select(split=split) for split in ("train", "test"))
    bank = daco.NormalBank(train.matrix().astype(float), train.column("domain"))
    rows = [path.rsplit("/", 1)[-1] for path in test.columns["path"]]
    exact = bank.score(test.matrix().astype(float), names)[[rows.index(n) for n in order]].T
    tolerance = SPREAD * scaled_error(got, exact, names).max()
    assert tolerance < 0.02
    assert scaled_error(got, want["scores"], names).max() < tolerance


def test_known_results_of_the_two_machines(result):
    """Reported with one decimal."""
    scores = result.grid().set_index("configuration")[["dev_score", "eval_score"]]
    assert scores.loc["raw-k1"].tolist() == pytest.approx([61.3, 57.0], abs=0.05)
    assert scores.loc["conf-soft-m0-k1", "dev_score"] == pytest.approx(70.5, abs=0.05)
    assert scores.loc["ldn-diff-K1", "eval_score"] == pytest.approx(61.8, abs=0.05)
    others = result.metrics(["sel-maha", "gmm2", "conf-oracle-m30-k1", "blend"])
    assert others[list(QUANTITIES)].notna().all(axis=None)


@pytest.mark.parametrize(("views", "omega"), [(NO_NETWORK, 69.4), (f"{NO_NETWORK}+mn04", 70.5)])
def test_the_blend_of_several_views(views, omega):
    """Reported with one decimal, over both machines."""
    table = real_table(*MACHINES, embeddings=views)
    found = daco.study(table, grid=["raw-k1"], readout=views, n_splits=1, workers=1)
    scores = found.rules().set_index("rule")["dev_score"]
    assert scores["blend"] == pytest.approx(omega, abs=0.05)
