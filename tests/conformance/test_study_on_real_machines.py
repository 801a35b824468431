"""A study of two real machines agrees with what the published method gives on them."""

from __future__ import annotations

import numpy as np
import pytest
from golden_machines import scaled_error
from real_tables import real_table
from shared_data import shared
from tolerances import SPREAD

import daco
from daco.evaluation.metrics import QUANTITIES
from daco.method.grid_table import pivot_machines

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
    got = np.stack([scores.of(name)[order] for name in names])  # the vote is there, too
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


def test_other_seeds_are_those_of_a_study_with_that_seed(result):
    seed = 3
    again = daco.study(
        real_table("fan"),
        grid=["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1"],
        seed=seed,
        n_splits=10,
        workers=1,
    )
    chosen = result.balances.query("machine == 'fan' and seed == @seed and n_splits == 10")
    found = chosen.set_index("config")["balance_ks"]
    for config, value in zip(again.grid["config"], again.grid["crit_dev"], strict=True):
        assert found[config] == pytest.approx(value, abs=1e-12)


def test_baselines_beside_the_method(result):
    table = result.baselines.set_index(["machine", "backend"])
    raw = result.per_machine.query("config == 'raw-k1'").set_index("machine")
    for machine in MACHINES:
        for quantity in QUANTITIES:
            assert table.loc[(machine, "knn1"), quantity] == raw.loc[machine, quantity]
    assert set(result.baselines["backend"]) == {
        "knn1",
        "sel-maha",
        "gmm2",
        "conf-oracle-m30-k1",
        "vote",
    }
