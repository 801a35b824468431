"""What the tables of a study say, and over what their intervals are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from random_studies import random_study

from daco.evaluation.metrics import harmonic_mean
from daco.experiments.analysis import frontier_table, transfer_of

QUANTITIES = ["auc_source", "auc_target", "pauc"]


@pytest.fixture(scope="module")
def study():
    return random_study(dev=4, eval=5)


# The frontier


def test_the_frontier_goes_from_raw_to_no_shrinkage():
    names = ["ratio-soft-k1", "conf-soft-m0-k1", "conf-soft-m30-k1", "raw-k1", "conf-soft-m0-k2"]
    rng = np.random.default_rng(0)
    keys = {"set": "dev", "section": "00", "machine": ["fan"] * 5 + ["saw"] * 5}
    metrics = pd.DataFrame(keys | {"configuration": names * 2})
    metrics[QUANTITIES] = rng.uniform(50, 90, (10, 3))
    table = frontier_table(metrics)
    assert table["variant"].tolist() == ["raw", "daco-m30", "daco-m0", "ratio-soft"]
    assert table["m"].tolist()[1:3] == [30, 0]
    raw = metrics[metrics["configuration"] == "raw-k1"][QUANTITIES].to_numpy()
    assert table["score"][0] == pytest.approx(harmonic_mean(raw))
    assert table["absolute_gap"][0] == pytest.approx(np.abs(raw[:, 0] - raw[:, 1]).mean())
    assert frontier_table(metrics.drop(columns="auc_target")).empty


# False alarms


def test_coverage_is_the_share_of_normals_at_most_a_level(study):
    table = study.coverage()
    p_values = table.query("decision == 'p-value'")
    assert set(p_values["configuration"]) == {"blend", "conf-soft-m0-k1", "ldn-ratio-K1"}
    p_values = p_values[p_values["configuration"] == "blend"]
    (row,) = p_values.query("machine == 'eval1' and domain == 'target' and level == 0.3").to_dict(
        "records"
    )
    clips = study.test_clips.query("machine == 'eval1' and domain == 'target' and label == 0")
    assert row["rate"] == (clips["p:blend"] <= 0.3).mean()
    assert row["n"] == len(clips) == 10


def test_a_p_value_equal_to_the_level_is_an_alarm_whatever_its_rounding(study):
    clips = study.clips.assign(**{"p:blend": 0.1 + 0.2})
    rates = replace(study, clips=clips).coverage()
    rates = rates.query("decision == 'p-value' and configuration == 'blend' and level == 0.3")
    assert (rates["rate"] == 1).all()


@pytest.mark.parametrize("config", ["raw-k1", "conf-soft-m0-k1"])
def test_the_papers_threshold_is_one_for_all_domains(study, config):
    paper = study.coverage().query('decision == "paper\'s threshold"')
    assert set(paper["configuration"]) == {"raw-k1", "conf-soft-m0-k1", "blend", "ldn-ratio-K1"}
    own = study.clips.query("machine == 'dev0' and split == 'train'")[config]
    limit = 0.8 if config != "raw-k1" else np.quantile(own, 0.8, method="weibull")
    clips = study.test_clips.query("machine == 'dev0' and label == 0")
    alarms = (clips[config] > limit).groupby(clips["domain"]).mean()
    rows = paper.query("configuration == @config and machine == 'dev0' and level == 0.2")
    assert rows.set_index("domain")["rate"].to_dict() == alarms.to_dict()


def test_unlabelled_clips_have_no_false_alarms():
    assert random_study(labelled=()).coverage().empty


# Transfer


def test_transfer_says_over_what_its_intervals_are(study):
    table = study.transfer()
    assert table["signal"].tolist() == ["dev score"] * 2 + ["criterion"] * 2
    assert table["over"].tolist() == ["families", "machines"] * 2
    assert table["n"].tolist() == [5, 4] * 2
    assert (table["low"] <= table["high"]).all()
    assert table["p"].notna().tolist() == [True, False] * 2
    grid = study.grid()
    ranks = grid[["criterion_dev", "eval_score"]].corr("spearman").iloc[0, 1]
    assert table["rho"][2] == pytest.approx(-ranks)
    sections = random_study(dev=3, eval=3, sections=2).transfer()
    assert sections["n"].tolist() == [5, 3] * 2  # drawn together with their machine


@pytest.mark.parametrize("known", [{}, {"dev_score": [50.0] * 3}, {"criterion_dev": [np.nan] * 3}])
def test_nothing_is_said_about_constant_or_unknown_signals(known):
    names = ["raw-k1", "raw-k2", "ldn-ratio-K1"]
    grid = pd.DataFrame({"configuration": names, "eval_score": [50.0, 51.0, 52.0]} | known)
    none = pd.DataFrame(columns=["set", "machine", "section", "configuration", "criterion"])
    assert transfer_of(grid, none, none).empty


# Differences


def test_differences_are_paired_over_machines_and_over_clips(study):
    table = study.differences()
    chosen = study.run["choice"]["config"]
    assert set(table["first"]) == {chosen}
    assert chosen not in set(table["second"])
    grid = study.rules().set_index("configuration")["eval_score"]
    for row in table.to_dict("records"):
        expected = grid[[chosen]].iloc[0] - grid[[row["second"]]].iloc[0]
        assert row["value"] == pytest.approx(expected, abs=1e-9)
        assert row["low"] <= row["value"] <= row["high"]
        assert row["n"] == {"machines": 5, "clips": 200}[row["over"]]
    assert set(study.differences(clips=False)["over"]) == {"machines"}
    assert random_study(labelled=("dev",)).differences().empty
