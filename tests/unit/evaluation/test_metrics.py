"""Metrics against scikit-learn and literal definitions, their invariants, and their errors."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, roc_auc_score

import daco.evaluation.metrics
from daco.errors import DacoError, InputError
from daco.evaluation.metrics import (
    EPSILON,
    NOMINAL_LEVELS,
    bounded_f1_ev,
    decision_metrics,
    f1_ev,
    false_positive_rates,
    fpr_coverage,
    grid_metrics,
    machine_metrics,
    official_score,
    quantities_of,
)


def literal_metrics(scores, labels, domains):
    """The definition, word for word: normals of a domain against all anomalies; pAUC on all."""
    result = {}
    for domain in sorted(set(domains[labels == 0])):
        used = (labels == 1) | (domains == domain)
        result[f"auc_{domain}"] = roc_auc_score(labels[used], scores[used])
    result["pauc"] = roc_auc_score(labels, scores, max_fpr=0.1)
    return result


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


def test_random_machines_agree_with_scikit_learn():
    # Ours rounds once (counted pairs over a product); scikit-learn sums up to 300 rounded
    # trapezoids, which is where the last bits differ.
    rng = np.random.default_rng(20260712)
    worst = 0.0
    for _ in range(300):
        clips = random_machine(rng)
        ours, theirs = machine_metrics(*clips), literal_metrics(*clips)
        assert list(ours) == list(theirs)
        worst = max(worst, *(abs(ours[key] - theirs[key]) for key in ours))
    assert worst <= 1e-15


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
    for _ in range(200):
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
    assert compared > 50


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


def test_a_hundred_thousand_clips_agree_with_scikit_learn():
    rng = np.random.default_rng(1)
    labels, domains = rng.integers(0, 2, 100_000), rng.choice(["source", "target"], 100_000)
    scores = np.round(rng.normal(size=100_000) + labels, 3)
    ours = machine_metrics(scores, labels, domains)
    theirs = literal_metrics(scores, labels, domains)
    # scikit-learn's 8,000 trapezoids carry the error
    assert max(abs(ours[key] - theirs[key]) for key in ours) < 1e-12


def test_input_kinds_and_memory_orders_do_not_matter(machine):
    scores, labels, domains = machine
    expected = machine_metrics(scores, labels, domains)
    as_lists = scores.tolist(), labels.astype(bool).tolist(), domains.tolist()
    as_objects = (array.astype(object) for array in machine)
    assert machine_metrics(*as_lists) == machine_metrics(*as_objects) == expected
    matrix = np.stack([scores, -scores], axis=1)
    fortran = grid_metrics(np.asfortranarray(matrix), labels.astype(float), domains)
    assert np.array_equal(fortran.values, grid_metrics(matrix, labels, domains).values)


@st.composite
def tied_clips(draw):
    """Integer scores in a small range, so that ties are common and transforms stay strict."""
    n = draw(st.integers(2, 40))
    labels = np.array([0, 1, *draw(st.lists(st.integers(0, 1), min_size=n - 2, max_size=n - 2))])
    scores = np.array(draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)))
    two = draw(st.lists(st.sampled_from("st"), min_size=n, max_size=n))
    normal_domains = {d for d, label in zip(two, labels, strict=True) if label == 0}
    domains = np.array([d if d in normal_domains else two[0] for d in two])
    return scores, labels, domains


@given(tied_clips(), st.lists(st.floats(0.01, 1e6), min_size=19, max_size=19))
def test_metrics_do_not_change_under_strictly_increasing_transforms(clips, gaps):
    scores, labels, domains = clips
    transformed = np.cumsum(gaps)[scores + 9]
    assert machine_metrics(transformed, labels, domains) == machine_metrics(*clips)


@given(tied_clips(), st.floats(-1e300, 1e300))
def test_constant_scores_are_chance(clips, value):
    _, labels, domains = clips
    metrics = machine_metrics(np.full(len(labels), value), labels, domains)
    assert set(metrics.values()) == {0.5}
    assert official_score([metrics]) == 0.5


def test_perfect_scores_are_one_and_inverted_ones_are_clamped():
    labels, domains = [0, 0, 1, 1], ["source", "target", "source", "target"]
    assert set(machine_metrics([1, 2, 3, 4], labels, domains).values()) == {1.0}
    inverted = machine_metrics([4, 3, 2, 1], labels, domains)
    assert inverted["auc_source"] == inverted["auc_target"] == 0
    assert inverted["pauc"] == pytest.approx(0.9 / 1.9, abs=1e-15)  # the worst there is
    # What the official evaluator answers: two zeros become epsilon, 3 / (2 / epsilon).
    assert official_score({"fan": inverted}) == pytest.approx(1.5 * EPSILON, rel=1e-12)
    assert official_score({"fan": inverted}) == pytest.approx(3.33e-16, rel=1e-3)


def test_the_official_score_weighs_all_quantities_alike():
    fan = {"auc_source": 0.5, "auc_target": 0.25, "pauc": 0.5}
    valve = {"auc_source": 1.0, "auc_target": 1.0, "pauc": 0.5}
    expected = 6 / (2 + 4 + 2 + 1 + 1 + 2)
    assert official_score({"fan": fan, "valve": valve}) == pytest.approx(expected, abs=1e-15)
    assert official_score([fan, valve]) == official_score({"a": valve, "b": fan})
    percent = [{key: 100 * value for key, value in m.items()} for m in (fan, valve)]
    assert official_score(percent) == pytest.approx(100 * expected, abs=1e-13)


def test_the_official_score_of_2021_has_four_quantities_of_a_section():
    fan = dict.fromkeys(quantities_of(2021, ["source", "target"]), 0.5)
    assert official_score([fan, {**fan, "pauc_target": 1.0}]) == pytest.approx(8 / 15)


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
    assert result["f1_b"] == 1


def literal_f1_ev(scores, labels, bounds=None):
    thresholds = np.unique(scores)
    if bounds is not None:
        low, high = bounds
        inside = thresholds[(thresholds > low) & (thresholds < high)]
        thresholds = np.array([low, *inside, high])
    total = 0.0
    for i in range(len(thresholds) - 1):
        f1 = f1_score(labels, scores > thresholds[i], zero_division=0)
        total += f1 * (thresholds[i + 1] - thresholds[i]) / (thresholds[-1] - thresholds[0])
    return total


def test_f1_ev_is_its_definition():
    rng = np.random.default_rng(3)
    for _ in range(4):
        scores, labels, _ = random_machine(rng)
        assert len(np.unique(scores)) > 2
        assert f1_ev(scores, labels) == pytest.approx(literal_f1_ev(scores, labels), abs=1e-12)


def test_bounded_f1_ev_is_its_definition():
    rng = np.random.default_rng(4)
    compared = 0
    while compared < 5:
        scores, labels, _ = random_machine(rng)
        candidates = np.unique(scores)
        f1 = [f1_score(labels, scores > u, zero_division=0) for u in candidates]
        margin = 0.2 * scores[labels == 0].std()
        low, high = scores[labels == 0].mean() - margin, candidates[np.argmax(f1)] + margin
        if high <= low:
            assert bounded_f1_ev(scores, labels) == 0
            continue
        expected = literal_f1_ev(scores, labels, (low, high))
        assert bounded_f1_ev(scores, labels) == pytest.approx(expected, abs=1e-12)
        compared += 1


def test_f1_ev_by_hand():
    # thresholds 0, 1, 2 with F1 0.8, 1, 2/3; bounded: [0.4, 1) at 0.8 and [1, 1.1) at 1.
    assert f1_ev([0, 1, 2, 3], [0, 0, 1, 1]) == pytest.approx((0.8 + 1 + 2 / 3) / 3)
    assert bounded_f1_ev([0, 1, 2, 3], [0, 0, 1, 1]) == pytest.approx((0.48 + 0.1) / 0.7)


@pytest.mark.parametrize("measure", [f1_ev, bounded_f1_ev])
def test_f1_ev_of_equal_scores_is_zero(measure):
    assert measure([2.5, 2.5, 2.5], [0, 1, 1]) == 0
    assert measure([0, 0], [0, 1]) == 0


@pytest.mark.parametrize("measure", [f1_ev, bounded_f1_ev])
@pytest.mark.parametrize("unit", [2.0**1021, 2.0**-1070])
def test_f1_ev_does_not_depend_on_the_unit(measure, unit):
    scores, labels = np.array([-4.0, 1, 2, 3]), [0, 0, 1, 1]
    assert measure(scores * unit, labels) == measure(scores, labels)


def test_a_false_positive_is_a_normal_clip_above_the_threshold():
    scores, labels = [1, 2, 3, 3, 9, 5], [0, 0, 0, 0, 1, 0]
    rates = false_positive_rates(scores, labels, ["a", "a", "a", "a", "a", "b"], [0.5, 2, 3])
    assert {domain: rate.tolist() for domain, rate in rates.items()} == {
        "a": [1, 0.5, 0],
        "b": [1, 1, 1],
    }


def test_coverage_reads_calibrated_scores_at_one_minus_the_level():
    scores = np.tile(np.arange(1, 101) / 101, 2)
    rows = fpr_coverage(scores, [0] * 200, ["a"] * 100 + ["b"] * 100)
    assert [row.level for row in rows] == list(NOMINAL_LEVELS)
    for row in rows:
        assert row.threshold == 1 - row.level
        assert row.rates["a"] == row.rates["b"] == pytest.approx(row.level, abs=0.01)
        assert row.imbalance == 0


def test_imbalance_of_three_domains_is_the_widest_gap():
    row = fpr_coverage([0.1, 0.9, 0.9, 0.1], [0] * 4, ["a", "a", "b", "c"])[-1]
    assert (row.threshold, row.rates, row.imbalance) == (0.5, {"a": 0.5, "b": 1, "c": 0}, 1)


GOOD = {"scores": [0.1, 0.2, 0.3, 0.4], "labels": [0, 0, 1, 1], "domains": ["s", "t", "s", "t"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.1, float("nan"), 0.3, float("inf")]}, r"'scores'.*nan at index 1\b"),
        ({"scores": [0.1, 0.2, 0.3, -float("inf")]}, r"'scores'.*-inf at index 3\b"),
        ({"scores": [0.1, 0.2, 0.3, None]}, r"'scores'.*nan at index 3\b"),
        ({"scores": np.array([0, 0, 0, "1e4000"], dtype=np.longdouble)}, "inf at index 3"),
        ({"scores": ["a", "b", "c", "d"]}, "'scores'.*numbers"),
        ({"scores": [0.1, 0.2, 0.3, 10**400]}, "'scores'.*numbers"),
        ({"scores": [1j, 0, 0, 0]}, "'scores'.*numbers"),
        ({"scores": [[0.1, 0.2], [0.3, 0.4]]}, r"'scores'.*1-D.*\(2, 2\)"),
        ({"scores": [[0.1], 0.2, 0.3, 0.4]}, "'scores'.*ragged"),
        ({"scores": [0.1, 0.2, 0.3]}, "'labels'.*3 entries, one per clip. Got 4"),
        ({"labels": [0, 0, 1]}, "'labels'.*4 entries, one per clip. Got 3"),
        ({"labels": [0, 0, 1, 2]}, "'labels'.*0 or 1. Got 2 at index 3. Write 1 for an anomaly"),
        ({"labels": [0, 0.5, 1, 1]}, "Got 0.5 at index 1"),
        ({"labels": [0, 0, float("nan"), 1]}, "Got nan at index 2"),
        ({"labels": ["normal", "normal", "anomaly", "anomaly"]}, "Got 'normal' at index 0"),
        ({"labels": np.array([0, None, 1, 1])}, "Got None at index 1"),
        ({"labels": [0, 0, 0, 0]}, "no anomaly"),
        ({"labels": [1, 1, 1, 1]}, "no normal clip"),
        ({"domains": ["s", "t", "s"]}, "domains.*4 clips. Got 3"),
        ({"domains": ["s", None, "s", "t"]}, r"domains\[1\] is None"),
        ({"domains": [["s", "t"]] * 4}, r"'domains'.*1-D"),
        ({"domains": ["s", "s", "s", "elsewhere"]}, "Domain 'elsewhere' has no normal clip"),
        ({"scores": [], "labels": [], "domains": []}, "no normal clip"),
    ],
)
def test_a_wrong_argument_is_named_with_its_place_and_the_remedy(change, message):
    with pytest.raises(InputError, match=message) as caught:
        machine_metrics(**(GOOD | change))
    assert isinstance(caught.value, DacoError)


def test_a_bad_entry_of_the_score_matrix_is_named_by_row_and_column():
    with pytest.raises(InputError, match=r"'score_matrix'.*nan at index \(2, 1\)"):
        grid_metrics([[1, 2], [3, 4], [5, np.nan], [6, 7]], GOOD["labels"], GOOD["domains"])


def test_an_empty_grid_has_columns_and_no_rows():
    values, columns = grid_metrics(np.empty((4, 0)), GOOD["labels"], GOOD["domains"])
    assert (values.shape, columns) == ((0, 3), ("auc_s", "auc_t", "pauc"))


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({}, "at least one machine"),
        ({"fan": {"auc_source": float("nan")}}, "auc_source = nan for machine 'fan'"),
        ([{"pauc": 0.5}, {"balance_ks": 0.4}], "balance_ks = 0.4 for machine 1"),
        ({"auc_source": 0.5, "pauc": 0.5}, "'auc_source' must be a mapping"),
    ],
)
def test_the_official_score_refuses_what_it_cannot_average(metrics, message):
    with pytest.raises(InputError, match=message):
        official_score(metrics)


def test_the_other_measures_check_their_arguments_too():
    labels, domains = GOOD["labels"], GOOD["domains"]
    with pytest.raises(InputError, match=r"'decisions'.*Got 2 at index 0. Write 1 for an alarm"):
        decision_metrics([2, 0, 0, 1], labels, domains)
    with pytest.raises(InputError, match="no anomaly"):
        f1_ev([1, 2], [0, 0])
    with pytest.raises(InputError, match=r"'thresholds'.*nan at index 1"):
        false_positive_rates(**GOOD, thresholds=[0, float("nan")])
    with pytest.raises(InputError, match="Domain 't' has no normal clip"):
        false_positive_rates([1, 2], [0, 1], ["s", "t"], 0.5)


def test_the_module_needs_numpy_only():
    tree = ast.parse(Path(daco.evaluation.metrics.__file__).read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {
        n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names
    }
    roots = {module.split(".")[0] for module in modules}
    assert roots - sys.stdlib_module_names == {"numpy", "daco"}
