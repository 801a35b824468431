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
from daco.experiments.grid_table import pivot_machines

MACHINES = ("fan", "bearing")


@pytest.fixture(scope="module")
def result():
    return daco.study(real_table("fan"), real_table("bearing"), n_splits=10, workers=1)


@pytest.fixture(scope="module")
def expected():
    return {m: np.load(shared("real", "embeddings", f"{m}_mn04_expected.npz")) for m in MACHINES}


@pytest.mark.parametrize(("split", "machine"), [("dev", "fan"), ("eval", "bearing")])
def test_metrics_and_criterion_of_all_configurations(result, expected, split, machine):
    want = expected[machine]
    assert result.grid["config"].tolist() == want["config_names"].tolist()
    _, _, found = pivot_machines(result.per_machine, [*QUANTITIES, "balance_ks"], split=split)
    # Metrics are ratios of counts; a clip whose float32 score is a tie may fall either way:
    # one pair of 5,000 is 0.02 percent.
    np.testing.assert_allclose(found[0, :, :3], 100 * want["metrics"], atol=0.021)
    # KS distances are equal as fractions.
    np.testing.assert_allclose(found[0, :, 3], want["balance_ks"], atol=1e-12)
    separability = result.per_machine.query("machine == @machine")["separability"]
    assert separability.unique() == pytest.approx([float(want["separability"])], abs=1e-12)


@pytest.mark.parametrize("machine", MACHINES)
def test_scores_are_filed_by_clip(result, expected, machine):
    want = expected[machine]
    scores = next(m for m in result.machine_scores() if m.machine == machine)
    rows = {name.rsplit("/", 1)[-1]: row for row, name in enumerate(scores.names)}
    order = [rows[name.rsplit("/", 1)[-1]] for name in want["test_file_name"].tolist()]
    names = want["config_names"].tolist()
    got = np.stack([scores.of(name)[order] for name in names])  # the blend is there, too
    table = real_table(machine)
    train, test = (table.select(split=split).matrix() for split in ("train", "test"))
    bank = daco.NormalBank(train.astype(float), table.select(split="train").column("domain"))
    exact = bank.score(test.astype(float), names)[order].T
    tolerance = SPREAD * scaled_error(got, exact, names).max()
    assert tolerance < 0.02
    assert scaled_error(got, want["scores"], names).max() < tolerance


def test_the_grid_is_the_harmonic_mean_of_the_machines(result, expected):
    for split, machine in (("dev", "fan"), ("eval", "bearing")):
        want = 100 / np.mean(1 / expected[machine]["metrics"], axis=1)
        np.testing.assert_allclose(result.grid[f"{split}_omega"], want, atol=0.03)
        balance = expected[machine]["balance_ks"]
        np.testing.assert_allclose(result.grid[f"crit_{split}"], balance, atol=1e-12)


def test_known_results_of_the_two_machines(result):
    omega = result.grid.set_index("config")
    # reported with one decimal
    assert omega.loc["raw-k1", "dev_omega"] == pytest.approx(61.3, abs=0.05)
    assert omega.loc["conf-soft-m0-k1", "dev_omega"] == pytest.approx(70.5, abs=0.05)
    assert omega.loc["raw-k1", "eval_omega"] == pytest.approx(57.0, abs=0.05)
    assert omega.loc["ldn-diff-K1", "eval_omega"] == pytest.approx(61.8, abs=0.05)


def test_baselines_beside_the_method(result):
    table = result.baselines.set_index(["machine", "backend"])
    raw = result.per_machine.query("config == 'raw-k1'").set_index("machine")
    for machine in MACHINES:
        for quantity in QUANTITIES:
            assert table.loc[(machine, "knn1"), quantity] == raw.loc[machine, quantity]
    others = {"sel-maha", "gmm2", "conf-oracle-m30-k1", "blend"}
    assert set(result.baselines["backend"]) == others | {"knn1"}


@pytest.mark.parametrize(("views", "omega"), [(NO_NETWORK, 69.4), (f"{NO_NETWORK}+mn04", 70.5)])
def test_the_blend_of_several_views(views, omega):
    """Reported with one decimal, over both machines."""
    table = real_table(*MACHINES, embeddings=views)
    found = daco.study(table, grid=["raw-k1"], readout=views, n_splits=1, workers=1)
    rows = {row["rule"]: row["dev_omega"] for row in found.selection["rows"]}
    assert rows["blend"] == pytest.approx(omega, abs=0.05)
