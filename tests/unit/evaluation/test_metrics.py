"""Metrics against scikit-learn and literal definitions, their invariants, and their errors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import daco.evaluation.metrics
from daco.errors import InputError
from daco.evaluation.metrics import (
    EPSILON,
    NOMINAL_LEVELS,
    QUANTITIES,
    RULES,
    decision_metrics,
    grid_metrics,
    harmonic_mean,
    machine_metrics,
    official_score,
    quantities_of,
    rule_of,
)


def random_machine(rng):
    """Any sizes, one to three domains, scores from continuous to a handful of values."""
    names = np.array(["source", "target", "line-3"])[: rng.integers(1, 4)]
    n_normals, n_anomalies = rng.integers(len(names), 150), rng.integers(1, 150)
    normal_domains = np.concatenate([names, rng.choice(names, n_normals - len(names))])
    domains = np.concatenate([normal_domains, rng.choice(names, n_anomalies)])
    labels = np.repeat([0, 1], [n_normals, n_anomalies])
    scores = rng.normal(size=len(labels)) + rng.uniform(-1, 2) * labels
    if rng.random() < 0.7:
        scores = np.round(scores * rng.choice([0.5, 1, 3, 30]))
    order = rng.permutation(len(labels))
    return scores[order], labels[order], domains[order]


@pytest.fixture
def machine():
    return random_machine(np.random.default_rng(5))


def literal_metrics_of_2021(scores, labels, domains):
    """The definition, word for word: AUC and pAUC on the clips of each domain."""
    parts = {name: (labels[domains == name], scores[domains == name]) for name in set(domains)}
    return {
        **{f"auc_{name}": roc_auc_score(*parts[name]) for name in sorted(parts)},
        **{f"pauc_{name}": roc_auc_score(*parts[name], max_fpr=0.1) for name in sorted(parts)},
    }


def test_random_machines_of_2020_and_2021_agree_with_scikit_learn():
    rng = np.random.default_rng(2021)
    worst, compared = 0.0, 0
    for _ in range(100):
        scores, labels, domains = random_machine(rng)
        names = sorted(set(domains))
        expected = {"auc": roc_auc_score(labels, scores)}
        expected["pauc"] = roc_auc_score(labels, scores, max_fpr=0.1)
        of_year = {2020: expected}
        if len(names) > 1 and set(names) == set(domains[labels == 1]):
            of_year[2021] = literal_metrics_of_2021(scores, labels, domains)
            compared += 1
        for year, theirs in of_year.items():
            ours = machine_metrics(scores, labels, domains, quantities_of(year, names))
            assert list(ours) == list(theirs)
            worst = max(worst, *(abs(ours[key] - theirs[key]) for key in ours))
    assert worst <= 1e-15
    assert compared > 25


def test_quantities_come_in_the_order_asked_for(machine):
    scores, labels, domains = machine
    matrix = np.stack([scores, -scores], axis=1)
    columns = grid_metrics(matrix, labels, domains, ("pauc", "auc")).columns
    assert columns == ("pauc", "auc")
    names = sorted(set(domains))
    usual = grid_metrics(matrix, labels, domains)
    again = grid_metrics(matrix, labels, domains, quantities_of(2024, names))
    assert again.columns == usual.columns
    assert np.array_equal(again.values, usual.values)


def test_each_year_has_its_rule_and_other_years_the_latest_one():
    assert sorted(RULES) == list(range(2020, 2027))
    assert RULES[2022] == RULES[2026] == rule_of(None) == rule_of(2030)
    assert [year for year in RULES if RULES[year].mean == "arithmetic"] == [2020]
    assert quantities_of(None, ["target", "source"]) == QUANTITIES
    assert NOMINAL_LEVELS == (0.1, 0.15, 0.2, 0.3, 0.5)  # of the paper's coverage table


def test_a_quantity_of_no_domain_is_refused():
    with pytest.raises(InputError, match=r"of auc_s, auc_t, pauc here. Got 'auc_source'"):
        machine_metrics(**GOOD, quantities=("auc_source", "pauc"))
    with pytest.raises(InputError, match="Domain 't' has no anomaly"):
        machine_metrics([1, 2, 3], [0, 0, 1], ["s", "t", "s"], quantities_of(2021, "st"))


def test_blocks_of_configurations_do_not_change_the_result(machine, monkeypatch):
    scores, labels, domains = machine
    matrix = np.random.default_rng(0).integers(0, 9, (len(scores), 7))
    whole = grid_metrics(matrix, labels, domains).values
    monkeypatch.setattr(daco.evaluation.metrics, "_BLOCK", 2 * len(scores))
    assert np.array_equal(grid_metrics(matrix, labels, domains).values, whole)


def test_input_kinds_and_memory_orders_do_not_matter(machine):
    scores, labels, domains = machine
    expected = machine_metrics(scores, labels, domains)
    as_lists = scores.tolist(), labels.astype(bool).tolist(), domains.tolist()
    as_objects = (array.astype(object) for array in machine)
    assert machine_metrics(*as_lists) == machine_metrics(*as_objects) == expected
    matrix = np.stack([scores, -scores], axis=1)
    fortran = grid_metrics(np.asfortranarray(matrix), labels.astype(float), domains)
    assert np.array_equal(fortran.values, grid_metrics(matrix, labels, domains).values)


def test_perfect_scores_are_one_and_inverted_ones_are_clamped():
    labels, domains = [0, 0, 1, 1], ["source", "target", "source", "target"]
    assert set(machine_metrics([1, 2, 3, 4], labels, domains).values()) == {1.0}
    inverted = machine_metrics([4, 3, 2, 1], labels, domains)
    assert inverted["auc_source"] == inverted["auc_target"] == 0
    assert inverted["pauc"] == pytest.approx(0.9 / 1.9, abs=1e-15)  # the worst there is
    # What the official evaluator answers: two zeros become epsilon, 3 / (2 / epsilon).
    assert official_score({"fan": inverted}) == pytest.approx(1.5 * EPSILON, rel=1e-12)


@pytest.mark.parametrize("values", [(0.0, 60.0), (2.0, 100.0), (1.0, 0.5), (0.0, 1.0)])
def test_a_metric_may_be_the_least_and_the_largest_of_its_unit(values):
    score = official_score([dict(zip(("auc", "pauc"), values, strict=True))])
    assert score == pytest.approx(2 / sum(1 / max(value, EPSILON) for value in values))


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([{"auc": 1.5, "pauc": 0.5}], "mix units"),
        ([{"auc": 1.0, "pauc": 60.0}], "mix units"),
        ({"fan": {"pauc": 0.5}, "pump": {"pauc": 55}}, "mix units"),
        ({"auc_source": 0.5}, "'auc_source' must be a mapping"),
        ([{"pauc": 0.5}, {"balance_ks": 0.4}], "balance_ks = 0.4 for machine 1"),
        ([{"pauc": float("nan")}], "pauc = nan"),
        ([{"pauc": 101}], "from 0 to 100"),
        ([], "nothing to average"),
    ],
)
def test_what_is_no_official_score(metrics, message):
    with pytest.raises(InputError, match=message):
        official_score(metrics)
    with pytest.raises(InputError, match=r"'values'.*nan at index 1"):
        harmonic_mean([0.5, float("nan")])


def test_decisions_are_judged_on_each_domain_alone():
    domains = ["source"] * 5 + ["target"] * 4
    labels = [0, 0, 1, 1, 1, 0, 0, 1, 1]
    result = decision_metrics([1, 0, 1, 1, 0, True, False, 0.0, 0], labels, domains)
    measures = ("precision", "recall", "f1")
    assert result == {f"{each}_source": 2 / 3 for each in measures} | {
        f"{each}_target": 0 for each in measures
    }
    result = decision_metrics([1, 0, 1], [0, 0, 1], ["a", "b", "b"])  # a has no anomaly
    assert (result["precision_a"], result["recall_a"], result["f1_a"]) == (0, 0, 0)
    assert (result["precision_b"], result["recall_b"], result["f1_b"]) == (1, 1, 1)


GOOD = {"scores": [0.1, 0.2, 0.3, 0.4], "labels": [0, 0, 1, 1], "domains": ["s", "t", "s", "t"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.1, float("nan"), 0.3, float("inf")]}, r"'scores'.*nan at index 1\b"),
        ({"scores": ["a", "b", "c", "d"]}, "'scores'.*numbers"),
        ({"scores": [[0.1, 0.2], [0.3, 0.4]]}, r"'scores'.*1-D.*\(2, 2\)"),
        ({"labels": [0, 0, 1]}, "'labels'.*4 entries, one per clip. Got 3"),
        ({"labels": [0, 0, 1, 2]}, "'labels'.*0 or 1. Got 2 at index 3. Write 1 for an anomaly"),
        ({"labels": [0, 0, float("nan"), 1]}, "Got nan at index 2"),
        ({"labels": [0, 0, 0, 0]}, "no anomaly"),
        ({"labels": [1, 1, 1, 1]}, "no normal clip"),
        ({"domains": ["s", "t", "s"]}, "domains.*4 clips. Got 3"),
        ({"domains": ["s", None, "s", "t"]}, r"domains\[1\] is None"),
        ({"domains": [["s"], ["t"], ["s"], ["t"]]}, r"'domains'.*1-D"),
        ({"domains": ["s", "s", "s", "t"]}, "Domain 't' has no normal clip"),
        ({"scores": [], "labels": [], "domains": []}, "no normal clip"),
    ],
)
def test_a_wrong_argument_is_named_with_its_place_and_the_remedy(change, message):
    with pytest.raises(InputError, match=message):
        machine_metrics(**(GOOD | change))


def test_a_bad_score_of_a_matrix_and_a_bad_decision_are_named_by_their_place():
    labels, domains = GOOD["labels"], GOOD["domains"]
    with pytest.raises(InputError, match=r"'score_matrix'.*nan at index \(2, 1\)"):
        grid_metrics([[1, 2], [3, 4], [5, np.nan], [6, 7]], labels, domains)
    with pytest.raises(InputError, match=r"'decisions'.*Got 2 at index 0"):
        decision_metrics([2, 0, 0, 1], labels, domains)
