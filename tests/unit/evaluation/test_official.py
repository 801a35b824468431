"""Official scores of tables: one definition per year, intervals over machines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hmean, t

from daco.errors import InputError
from daco.evaluation.metrics import RULES, harmonic_mean, machine_metrics, official_score
from daco.evaluation.official import (
    metrics_table,
    official_scores,
    score_difference,
    score_differences,
    score_estimate,
    score_estimates,
)

QUANTITIES = ["auc_source", "auc_target", "pauc"]


def metrics_of(machines, seed=0, configuration="a"):
    """Random metrics in percent; `machines` names one for each section."""
    values = np.random.default_rng(seed).uniform(40, 90, (len(machines), 3))
    table = pd.DataFrame(values, columns=QUANTITIES)
    sections = [f"{machines[:i].count(name):02d}" for i, name in enumerate(machines)]
    return table.assign(machine=machines, section=sections, configuration=configuration)


@pytest.fixture
def clips():
    """Two machines in two sets, two configurations."""
    rng = np.random.default_rng(1)
    parts = []
    for name, machine in (("dev", "fan"), ("eval", "pump")):
        part = pd.DataFrame(
            {"set": name, "machine": machine, "section": "00", "split": "test"}, range(40)
        )
        part = part.assign(domain=np.tile(["source", "target"], 20), label=np.arange(40) // 20)
        parts.append(part.assign(a=rng.normal(size=40), b=rng.normal(size=40)))
    normal = parts[0][:1].assign(split="train", a=np.nan)
    return pd.concat([normal, *parts], ignore_index=True)


def test_a_table_has_the_metrics_of_each_machine_and_configuration(clips):
    table = metrics_table(clips, ["b", "a"])
    assert list(table) == ["set", "machine", "section", "configuration", *QUANTITIES]
    assert list(zip(table["set"], table["configuration"], strict=True)) == [
        *(("dev", "b"), ("dev", "a"), ("eval", "b"), ("eval", "a"))
    ]
    for row in table.to_dict("records"):
        own = clips[(clips["machine"] == row["machine"]) & (clips["split"] == "test")]
        wanted = machine_metrics(own[row["configuration"]], own["label"], own["domain"])
        assert [row[name] for name in QUANTITIES] == [100 * wanted[name] for name in QUANTITIES]


@pytest.mark.parametrize(
    ("column", "value"),
    [("label", -1), ("domain", ""), ("label", None), ("label", 0), ("b", np.nan)],
)
def test_a_machine_that_cannot_be_measured_is_nan_and_does_not_count(clips, column, value):
    clips.loc[clips["set"] == "eval", column] = value
    table = metrics_table(clips, ["b"])
    assert table[QUANTITIES].isna().all(axis=1).tolist() == [False, True]


@pytest.mark.parametrize("year", [None, 2020, 2021])
def test_scores_without_any_metric_are_nan(year):
    table = metrics_of(["fan", "pump"]).assign(**dict.fromkeys([*QUANTITIES, "auc"], np.nan))
    for metrics in (table, table[["machine", "section", "configuration"]]):
        assert np.isnan(official_scores(metrics, year)["a"])
        estimate = score_estimate(metrics, year)
        assert np.isnan(estimate.value)
        assert (estimate.low, estimate.high, estimate.n) == (None, None, 0)
        assert np.isnan(score_difference(metrics, metrics, year).value)
    assert score_estimate(table[:0], year).n == 0


@pytest.mark.parametrize("year", [None, *RULES])
def test_the_official_score_of_a_table_is_that_of_its_rows(year):
    table = metrics_of(["fan", "fan", "fan", "pump"])
    if year == 2020:
        table = table.drop(columns="auc_source").rename(columns={"auc_target": "auc"})
    if year == 2021:
        table = table.rename(columns={"pauc": "pauc_source"}).assign(pauc_target=50.0)
    quantities = [name for name in table if name.startswith(("auc", "pauc"))]
    rows = table.set_index(["machine", "section"])[quantities].to_dict("index")
    score = official_scores(table, year)["a"]
    assert score == pytest.approx(official_score(rows, year), rel=1e-12)
    values = table[quantities].to_numpy()
    if year == 2020:  # a machine counts once, however many sections it has
        assert score == pytest.approx((values[:3].mean() + values[3].mean()) / 2)
    else:
        assert score == pytest.approx(hmean(values, axis=None))


def test_a_score_is_of_one_set(clips):
    with pytest.raises(InputError, match="one set"):
        official_scores(metrics_table(clips, ["a"]))


def test_an_interval_leaves_out_whole_machines():
    table = metrics_of(["fan", "fan", "pump", "pump", "pump", "valve"])
    estimate = score_estimate(table)
    left_out = [
        harmonic_mean(table.loc[table["machine"] != name, QUANTITIES].to_numpy())
        for name in ("fan", "pump", "valve")
    ]
    reach = t.ppf(0.975, 2) * np.sqrt(2 * np.var(left_out))
    assert estimate.n == 3
    assert estimate.low == pytest.approx(max(0, estimate.value - reach))
    assert estimate.high == pytest.approx(min(100, estimate.value + reach))
    alone = score_estimate(table[table["machine"] == "fan"])
    assert (alone.n, alone.low, alone.high) == (1, None, None)


def test_a_difference_is_paired_over_machines():
    names = ["fan", "pump", "valve", "slider"]
    first, second = metrics_of(names, 0, "a"), metrics_of(names, 1, "b")
    delta = score_difference(first, second)
    one, two = first[QUANTITIES].to_numpy(), second[QUANTITIES].to_numpy()
    rest = [np.delete(np.arange(4), i) for i in range(4)]
    left_out = [harmonic_mean(one[rows]) - harmonic_mean(two[rows]) for rows in rest]
    value = harmonic_mean(one) - harmonic_mean(two)
    reach = t.ppf(0.975, 3) * np.sqrt(3 * np.var(left_out))
    expected = value, value - reach, value + reach
    assert (delta.value, delta.low, delta.high) == pytest.approx(expected, abs=1e-9)
    assert score_difference(first, second.iloc[::-1]) == delta
    fewer = score_difference(first, second[second["machine"] != "valve"])
    assert fewer == score_difference(
        *(each[each["machine"] != "valve"] for each in (first, second))
    )
    assert score_difference(first, second.assign(**dict.fromkeys(QUANTITIES, np.nan))).n == 0
    both = pd.concat([first, second, second[1:].assign(configuration="c")])
    assert score_differences(both, "a").index.tolist() == ["b"]  # c lacks a machine
    table = score_estimates(both)
    for name in "ab":
        assert table.loc[name, "low"] == score_estimate(both[both["configuration"] == name]).low
    with pytest.raises(InputError, match="one configuration"):
        score_estimate(both)


def test_2020_averages_as_in_the_evaluators_example():
    ids = {"05": (0.7480452830188679, 0.6356703078450845)}
    ids["06"] = (0.8309132075471697, 0.6985104270109235)
    ids["07"] = (0.8150188679245283, 0.645759682224429)
    rows = {
        ("ToyCar", key): dict(zip(("auc", "pauc"), row, strict=True)) for key, row in ids.items()
    }
    averages = 0.7979924528301886, 0.6599801390268123
    assert official_score(rows, 2020) == pytest.approx(np.mean(averages), rel=1e-14)


def test_2022_scores_as_in_the_evaluators_example():
    # of 7 machines with 3 sections: harmonic means of 42 AUC and of 21 pAUC, and the score
    of_all = dict.fromkeys(("auc_source", "auc_target"), 0.5301047626828244)
    of_all["pauc"] = 0.5280441052754629
    assert official_score([of_all]) == pytest.approx(0.5294160921841315, rel=1e-14)
