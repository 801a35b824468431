"""Statistics and selections of the paper that `daco paper` and the studies do not recompute.

Exact quantities must match to the printed digits: the tolerance is half of the last one.
Bootstrap ends carry the Monte-Carlo error of the draws; their tolerance is four standard
deviations of that error.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from published_runs import read, results, statistics, tables
from shared_data import shared

from daco.evaluation.intervals import clip_bootstrap, machine_bootstrap
from daco.evaluation.metrics import QUANTITIES
from daco.evaluation.statistics import partial_spearman
from daco.experiments.choose import study_choice
from daco.method.config import ScoreConfig, blind_pool
from daco.method.grid_table import composed_score, pivot_machines
from daco.method.selection import (
    guarded_selection,
    oracle,
    per_machine_blind,
    random_expectation,
    select_by_criterion,
    select_by_dev_score,
    viable,
)

DEFAULT = "conf-soft-m0-k1"


def grid_of(setting):
    return tables(setting)[0]


def machines_of(setting):
    """The evaluation machines."""
    table = tables(setting)[1]
    return table[table["split"] == "eval"]


def families(grid):
    return [ScoreConfig.parse(name).family for name in grid["config"]]


def eval_omega(grid, config):
    return float(grid.loc[grid["config"] == config, "eval_omega"].iloc[0])


def test_the_machine_level_interval():
    table = read("e3_per_machine.csv")
    _, configs, criterion = pivot_machines(table, ["balance_ks"], split="dev")
    _, same, values = pivot_machines(table, QUANTITIES, split="eval")
    assert configs == same
    interval = machine_bootstrap(criterion[:, :, 0], values, n_draws=20_000)
    assert interval.estimate == pytest.approx(0.9082, abs=5e-5)
    low, high = statistics("paper_stats.json")["transfer_correlation"][
        "machine_level_bootstrap_CI95"
    ]
    # sd of an end at 5,000 draws: .009 below, .0007 above; the number drawn is not published
    assert interval.published_interval[0] == pytest.approx(low, abs=0.036)
    assert interval.published_interval[1] == pytest.approx(high, abs=0.003)
    assert interval.low < interval.published_interval[0]
    assert interval.high > interval.published_interval[1]


def test_partial_correlations_of_another_year():
    grid = grid_of("2023")
    strength = np.log1p([ScoreConfig.parse(name).prior_strength for name in grid["config"]])
    held = [strength, families(grid)]
    year = partial_spearman(-grid["crit_dev"], grid["eval_omega"], held)
    assert round(year.rho, 4) == statistics("stats_yearly.json")["partial_2023"]["spearman"][0]


def dev_clips(config):
    scores, labels, domains = {}, {}, {}
    folder = shared("published", "daco-experiments", "release", "scores", config, "dev")
    for path in sorted(folder.glob("anomaly_score_*.csv")):
        machine = path.name.removeprefix("anomaly_score_").removesuffix("_section_00_test.csv")
        table = pd.read_csv(path, header=None, names=["file", "score"])
        parts = table["file"].str.split("_")
        scores[machine] = table["score"].to_numpy()
        domains[machine] = parts.str[2].to_numpy()
        labels[machine] = (parts.str[4] == "anomaly").to_numpy().astype(int)
    assert len(scores) == 7
    return scores, labels, domains


def test_clip_bootstrap_on_the_released_dev_scores():
    scores, labels, domains = dev_clips(DEFAULT)
    raw, *_ = dev_clips("raw-k1")
    interval = clip_bootstrap(scores, raw, labels, domains, n_draws=1000)
    # released scores have ten decimals: the grid's four decimals of a percent come back
    grid = grid_of("45").set_index("config")["dev_omega"]
    assert interval.estimate == pytest.approx(grid[DEFAULT] - grid["raw-k1"], abs=1e-4)
    assert interval.estimate == pytest.approx(-2.44, abs=0.005)
    # nothing is published for dev; calibration costs there, and clearly so
    assert -5 < interval.low < interval.estimate < interval.high < 0


@pytest.mark.parametrize(
    ("policy", "config", "dev", "criterion"),
    [("ch0", "ratio-hard-k2", 54.78, 0.3997), ("mix", DEFAULT, 54.31, 0.4042)],
)
def test_the_frozen_2026_pick_from_a_table_without_evaluation_scores(
    policy, config, dev, criterion
):
    grid = read("prereg2026_grid.csv").query("policy == @policy").reset_index(drop=True)
    assert "eval_omega" not in grid
    assert guarded_selection(grid) == config
    row = grid.set_index("config").loc[config]
    assert row["dev_omega"] == pytest.approx(dev, abs=0.005)
    assert row["crit_dev"] == criterion


TABLES = {
    # raw kNN, fixed default, dev pick, criterion only, guarded, per-machine blind, oracle
    "beats": (55.83, 59.34, 55.83, 61.05, 61.05, 59.63, 61.05),
    "eat": (56.59, 58.87, 56.59, 45.26, 58.87, 60.38, 59.76),
    "panns": (54.23, 55.55, 56.83, 55.58, 55.58, 56.66, 56.83),
    "2023": (57.95, 63.68, 62.23, 47.60, 63.52, 63.38, 64.14),
    "2024": (57.64, 57.69, 57.64, 47.48, 56.29, 57.63, 60.11),
    "ch0": (None, 60.10, 57.76, None, 58.97, 60.38, 61.18),
    "mix": (None, 55.03, 53.44, None, 55.03, 55.76, 57.05),
}


@pytest.mark.parametrize("setting", TABLES)
def test_selection_tables(setting):
    grid = grid_of(setting)
    rows = study_choice(*tables(setting))["rows"]
    scores = {row["rule"]: row["eval_omega"] for row in rows}
    scores["raw-k1"] = eval_omega(grid, "raw-k1")
    rules = (
        *("raw-k1", "fixed", "dev score", "criterion"),
        *("guarded criterion", "per-machine blind", "oracle"),
    )
    for rule, printed in zip(rules, TABLES[setting], strict=True):
        if printed is not None:
            # composed scores come from metrics of two decimals: 0.005 more at the most
            slack = 0.005 if rule == "per-machine blind" else 1e-9
            assert scores[rule] == pytest.approx(printed, abs=0.005 + slack), rule


def test_the_transfer_studys_selections():
    grid = grid_of("45")
    names = grid["config"]
    assert select_by_dev_score(names, grid["dev_omega"]) == "raw-k1"
    assert select_by_criterion(names, grid["crit_dev"]) == DEFAULT
    assert select_by_criterion(names, grid["crit_eval"]) == "conf-soft-m0-k2"
    assert oracle(names, grid["eval_omega"]) == "conf-hard-m0-k2"
    printed = {"raw-k1": 55.83, DEFAULT: 59.34, "conf-soft-m0-k2": 59.27, "conf-hard-m0-k2": 59.55}
    for config, omega in printed.items():
        assert eval_omega(grid, config) == pytest.approx(omega, abs=0.005)


@pytest.mark.parametrize(
    ("setting", "mean", "sd"),
    [("beats", 57.83, 2.05), ("eat", 57.50, 2.06), ("panns", 54.82, 1.52)],
)
def test_a_random_configuration(setting, mean, sd):
    ours = random_expectation(grid_of(setting)["eval_omega"])
    assert (round(ours.mean, 2), round(ours.sd, 2)) == (mean, sd)


# Errata


def test_erratum_1_the_printed_blind_score_is_over_seven_configurations():
    """Ten published sets of choices, all among the seven; nine configurations give 59.63."""
    text = results("e3_seed_stability.txt").read_text()
    table = machines_of("45")
    pool = [config.name for config in blind_pool(7)]
    composed = []
    for omega, chosen in re.findall(r"^seed \d: omega=(\S+)\s+(.*)$", text, re.MULTILINE):
        choices = {}
        for pair in chosen.split():
            machine, short = pair.split(":")
            choices[machine] = f"conf-soft-{short}-k1" if short[0] == "m" else f"{short}-k1"
        assert set(choices.values()) <= set(pool)
        composed.append(composed_score(table, choices))
        assert composed[-1] == pytest.approx(float(omega), abs=0.01)  # metrics of two decimals
    assert len(composed) == 10
    assert np.mean(composed) == pytest.approx(59.14, abs=0.01)
    assert np.std(composed) == pytest.approx(0.12, abs=0.005)
    nine = per_machine_blind(machines_of("beats"), blind_pool(9))
    assert composed_score(machines_of("beats"), nine) == pytest.approx(59.63, abs=0.01)


def test_errata_2_and_3_the_strict_veto_drops_the_fixed_default():
    small, large = grid_of("45"), grid_of("beats")
    for grid, n_dropped in ((small, 5), (large, 6)):
        dropped = set(grid["config"][~viable(grid["dev_omega"])])
        assert len(dropped) == n_dropped
        assert DEFAULT in dropped
    floor = np.quantile(large["dev_omega"], 0.10)
    assert floor == large.set_index("config")["dev_omega"][DEFAULT]
    assert select_by_criterion(small["config"], small["crit_dev"]) != guarded_selection(small)


def test_erratum_4_a_tie_decides_the_blind_score_of_seed_0():
    table = machines_of("45")
    sealer = table[table["machine"] == "BandSealer"].set_index("config")["balance_ks"]
    assert sealer[DEFAULT] == sealer["ratio-soft-k1"] == 0.3980
    choices = per_machine_blind(table, blind_pool(7))
    assert choices["BandSealer"] == DEFAULT  # the first in the pool
    assert composed_score(table, choices) == pytest.approx(59.39, abs=0.01)
    logged = {**choices, "BandSealer": "ratio-soft-k1"}
    assert composed_score(table, logged) == pytest.approx(59.16, abs=0.01)


def test_erratum_5_the_spread_of_a_random_configuration():
    assert random_expectation(grid_of("beats")["eval_omega"]).sd == pytest.approx(2.045, abs=0.0005)


def test_erratum_13_equal_scores_of_2024_are_a_coincidence():
    grid = grid_of("2024")
    pick = select_by_dev_score(grid["config"], grid["dev_omega"])
    assert pick == "zscore-hard-k2"
    assert eval_omega(grid, pick) == 57.6415
    assert eval_omega(grid, "raw-k1") == 57.6402
