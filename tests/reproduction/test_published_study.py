"""The functions that analyse a study, on the tables that the authors published.

Printed values carry half of their last digit; scores of metrics with two decimals carry half a
hundredth more. The ends of bootstrap intervals carry the Monte-Carlo error of 5,000 draws of an
unknown seed, four standard deviations: at the most 0.06.
"""

from __future__ import annotations

import json

import pandas as pd
import pytest

from daco.evaluation.official import score_difference
from daco.experiments.analysis import frontier_table, transfer_of
from daco.experiments.choice import per_machine_choice, pick, rules_of
from daco.method.config import blind_pool

RULES = ("fixed", "dev", "criterion", "paper", "per-machine", "oracle")
PRINTED = {  # setting: scores by RULES, rho of the dev score, rho of the criterion
    "beats": ((59.34, 55.83, 61.05, 61.05, 59.63, 61.05), -0.03, 0.81),
    "eat": ((58.87, 56.59, 45.26, 58.87, 60.38, 59.76), 0.11, 0.80),
    "panns": ((55.55, 56.83, 55.58, 55.58, 56.66, 56.83), 0.84, 0.67),
    "2023": ((63.68, 62.23, 47.60, 63.52, 63.38, 64.14), 0.18, 0.54),
    "2024": ((57.69, 57.64, 47.48, 56.29, 57.63, 60.11), 0.13, -0.10),
    "ch0": ((60.10, 57.76, None, 58.97, 60.38, 61.18), -0.12, 0.72),
    "mix": ((55.03, 53.44, None, 55.03, 55.76, 57.05), -0.54, 0.84),
}
FROZEN = {"ch0": "ratio-hard-k2", "mix": "conf-soft-m0-k1"}  # before the labels of 2026 were out
YEARLY = {"2023": "2023", "2024": "2024", "beats": "2025"}


def tables(published, setting):
    """Grid, metrics and criteria by machine as a study has them."""
    parts = {of: published.metrics(setting, of).assign(set=of) for of in ("dev", "eval")}
    machines = pd.concat(parts.values(), ignore_index=True).assign(section="00")
    grid = published.grid(setting).reset_index()
    return grid, machines.drop(columns="criterion"), machines


def records(published, name):
    return json.loads(published.files[f"results/{name}"])


@pytest.mark.parametrize("setting", PRINTED)
def test_what_every_rule_scores(published, setting):
    found = rules_of(*tables(published, setting)).set_index("rule")["eval_score"]
    for rule, printed in zip(RULES, PRINTED[setting][0], strict=True):
        if printed is not None:
            assert found[rule] == pytest.approx(printed, abs=0.01), rule


@pytest.mark.parametrize("setting", FROZEN)
def test_the_rules_pick_what_the_authors_froze(published, setting):
    choice = pick(tables(published, setting)[0], "guarded")
    assert choice.config == FROZEN[setting]
    assert len(choice.vetoed) == 6  # strict: the one on the floor falls too


@pytest.mark.parametrize("setting", PRINTED)
def test_what_predicts_the_evaluation_score(published, setting):
    table = transfer_of(*tables(published, setting), n_draws=200)
    rho = table[table["over"] == "families"].set_index("signal")["rho"]
    assert [round(rho[signal], 2) for signal in ("dev score", "criterion")] == list(
        PRINTED[setting][1:]
    )


@pytest.mark.parametrize("setting", YEARLY)
def test_intervals_and_permutations_of_the_years(published, setting):
    recorded = records(published, "stats_yearly.json")[YEARLY[setting]]
    table = transfer_of(*tables(published, setting), n_draws=5000)
    rows = table[table["over"] == "families"].set_index("signal")
    for signal, key in (("criterion", "criterion"), ("dev score", "dev_omega")):
        row, printed = rows.loc[signal], recorded[key]
        assert [row["low"], row["high"]] == pytest.approx(printed["family_block_CI95"], abs=0.06)
        p = printed["perm"]["p_two_sided"]
        # binomial, of 200,000 draws there and as many here
        assert row["p"] == pytest.approx(p, abs=4 * (2 * p * (1 - p) / 2e5) ** 0.5)
        assert row["n"] == 10


@pytest.mark.parametrize("setting", YEARLY)
def test_differences_of_the_years(published, setting):
    recorded = records(published, "stats_yearly.json")[YEARLY[setting]]
    grid, metrics, _ = tables(published, setting)
    metrics = metrics[metrics["set"] == "eval"]
    guarded, dev = (pick(grid, rule).config for rule in ("paper", "dev"))
    assert (guarded, dev) == (recorded["configs"]["guarded"], recorded["configs"]["dev_pick"])
    first, second = (metrics[metrics["configuration"] == name] for name in (guarded, dev))
    difference, printed = score_difference(first, second), recorded["delta_guarded_vs_devpick"]
    assert round(difference.value, 2) == printed["delta"]
    # the paper has 1.96 standard errors, an estimate more: Student's t of its machines
    assert difference.low < printed["ci95"][0]
    assert difference.high > printed["ci95"][1]


@pytest.mark.parametrize("setting", YEARLY)
def test_the_choice_of_every_machine(published, setting):
    recorded = records(published, "stats_yearly.json")[YEARLY[setting]]["per_machine_blind"]
    _, metrics, criteria = tables(published, setting)
    pool = [config.name for config in blind_pool()]
    chosen = per_machine_choice(metrics, criteria, pool)
    chosen = chosen[chosen["set"] == "eval"].set_index("machine")["configuration"]
    assert chosen.to_dict() == recorded["choices"]


def test_the_frontier(published):
    frontier = frontier_table(tables(published, "45")[1]).set_index(["set", "variant"])
    variants = ["raw", *(f"daco-m{m}" for m in (300, 100, 30, 10, 0)), "ratio-soft"]
    assert frontier.loc["dev"].index.tolist() == variants
    for variant, printed in records(published, "paper_stats.json")["gap_statistics"].items():
        row = frontier.loc[("dev", variant)]
        gaps = [printed[name] for name in ("signed_mean_gap", "mean_abs_gap", "median_gap")]
        assert row[["signed_gap", "absolute_gap", "median_gap"]].tolist() == pytest.approx(
            gaps, abs=0.01
        )
    assert frontier.loc[("dev", "raw"), "score"] == pytest.approx(58.73, abs=0.01)
    assert frontier.loc[("eval", "daco-m0"), "score"] == pytest.approx(59.34, abs=0.01)
