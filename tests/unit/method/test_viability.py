"""Pseudo-anomalies of embeddings, how configurations detect them, and what the veto excludes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from synthetic_machines import synthetic_machine

import daco
from daco.data.views import Views
from daco.errors import InputError, NotEnoughClipsError
from daco.method.criterion import held_out_halves
from daco.method.viability import (
    EMBEDDED,
    INJECTED,
    PseudoScores,
    _turned,
    bank_pseudo_scores,
    moved_normals,
    pseudo_scores,
    viability_veto,
)

GRID = ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K1", "ldn-diff-K16", "zscore-hard-k2"]


def machine(seed=0, n_source=60, n_target=10):
    made = synthetic_machine("m", seed, n_source, n_target, 40, 12)
    return made.X.astype(np.float64), np.asarray(made.domains)


def cosine(a, b):
    return 1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


# Moved normals


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 3))
def test_every_pseudo_anomaly_is_as_far_as_its_strength_says(seed, strength):
    X, domains = machine(seed)
    made = moved_normals(X, domains, strengths=[strength], repeats=1, seed=seed)
    nearest = daco.NormalBank(X, domains).leave_one_out("raw-k1")[:, 0]
    for domain in ("source", "target"):
        inside = made.domains[made.origin] == domain
        expected = strength * np.median(nearest[domains == domain])
        distance = cosine(made.vectors[inside], made.clean[made.origin[inside]])
        assert distance == pytest.approx(expected, abs=1e-9)


def test_by_default_they_are_among_the_normals_at_their_edge_and_outside():
    X, _ = machine()
    made = moved_normals(X)
    usual = np.median(daco.NormalBank(X).leave_one_out("raw-k1"))
    distance = cosine(made.vectors, made.clean[made.origin]).reshape(-1, 3)
    assert len(distance) == 20 * 2 * 3  # of 20 clips, in both ways, three times
    assert distance / usual == pytest.approx(np.tile([0.5, 1, 2], (len(distance), 1)))


def test_a_pseudo_anomaly_keeps_most_features_of_its_clip():
    X, domains = machine()
    made = moved_normals(X, domains)
    ratio = made.vectors / made.clean[made.origin]  # of untouched features it is the same
    untouched = np.isclose(ratio, np.median(ratio, axis=1)[:, None], rtol=1e-6).mean(axis=1)
    assert untouched[made.kinds == "shuffled"].mean() > untouched[made.kinds == "swapped"].mean()
    assert 0.5 < untouched.mean() < 0.98


def test_a_clip_is_turned_towards_the_features_of_others():
    clip, others = np.array([2.0, 0.0]), np.array([2.0, 5.0])
    turned = _turned(clip, others, np.array([0.0, 0.5, 1.0, 9.0]))  # at most the other way round
    expected = [[2, 0], [1, np.sqrt(3)], [0, 2], [-2, 0]]
    np.testing.assert_allclose(turned, expected, atol=1e-12)


def test_the_seed_decides_and_is_independent_of_the_splits_of_the_same_seed():
    """The first draw of both is a permutation of the source clips."""
    X, domains = machine(n_source=200)
    first, again, other = (moved_normals(X, domains, seed=s) for s in (0, 0, 1))
    assert np.array_equal(first.vectors, again.vectors)
    assert not np.array_equal(first.rows, other.rows)
    assert first.domains.tolist() == ["source"] * 20 + ["target"] * 10
    assert np.array_equal(first.clean, X[first.rows])
    alike = 0
    for seed in range(50):
        made = moved_normals(X, domains, repeats=1, strengths=[1], seed=seed)
        (held,) = held_out_halves([200, 10], 1, seed)
        alike += held[made.rows[made.domains == "source"]].mean()
    assert alike / 50 == pytest.approx(0.5, abs=0.08)  # sd 0.016 of independent halves


def test_views_count_alike_whatever_their_lengths():
    X, domains = machine()
    one = moved_normals({"a": X, "b": X[:, :5]}, domains)
    other = moved_normals({"a": 100 * X, "b": X[:, :5]}, domains)
    assert np.allclose(other.vectors, one.vectors * ([100] * 12 + [1] * 5))


def test_odd_clips_make_no_nan_and_too_few_are_refused():
    X, domains = machine()
    X[3], X[5:9] = 0, X[4]
    assert np.isfinite(moved_normals(X, domains).vectors).all()
    assert np.isfinite(moved_normals(X[:3], ["a", "b", "b"]).vectors).all()
    with pytest.raises(NotEnoughClipsError):
        moved_normals(X[:1])


# Pseudo scores


def textbook(X, domains, made, kinds, config):
    """AUC and partial AUC of each domain: two turns, one bank and one call each."""
    result = {}
    for domain in np.unique(domains):
        aucs, paucs = [], []
        for turn in (0, 1):
            fold = [
                row
                for each in np.unique(domains)
                for row in np.flatnonzero(made.domains == each)[turn::2]
            ]
            stays = np.setdiff1d(np.arange(len(X)), made.rows[fold])
            bank = daco.NormalBank(X[stays], domains[stays])
            clean = [row for row in fold if made.domains[row] == domain]
            low = bank.score(made.clean[clean], config)[:, 0]
            moved = np.isin(made.origin, clean) & np.isin(made.kinds, kinds)
            high = bank.score(made.vectors[moved], config)[:, 0]
            own = bank.leave_one_out(config)[domains[stays] == domain, 0]
            marks = np.r_[np.zeros(len(low)), np.ones(len(high))]
            aucs.append(roc_auc_score(marks, np.r_[low, high]))
            marks = np.r_[np.zeros(len(own)), marks]
            paucs.append(roc_auc_score(marks, np.r_[own, low, high], max_fpr=0.1))
        result[domain] = np.mean(aucs), np.mean(paucs)
    return result


def test_agrees_with_the_textbook():
    X, domains = machine()
    made = moved_normals(X, domains)
    found = pseudo_scores(X, domains, made, GRID)
    for row, config in enumerate(GRID):
        expected = textbook(X, domains, made, found.detectable, config)
        for column, domain in enumerate(found.domains):
            values = found.auc[row, column], found.pauc[row, column]
            assert values == pytest.approx(expected[domain], abs=1e-12)
        values = np.array([value for pair in expected.values() for value in pair])
        assert found.score[row] == pytest.approx(len(values) / np.sum(1 / values))
    without = pseudo_scores(X, domains, made, GRID[1:])  # plain neighbours are measured anyway
    assert np.array_equal(without.plain, found.plain)
    assert np.array_equal(without.auc, found.auc[1:])


def test_recordings_that_are_not_among_the_normals_cost_the_bank_nothing_and_are_counted():
    X, domains = machine()
    made = moved_normals(X, domains)
    few = np.r_[0:4, 20:24]
    made = replace(made, clean=made.clean[few], rows=made.rows[few], domains=made.domains[few],
                   vectors=made.vectors[::5], origin=np.arange(len(made.vectors[::5])) % 8,
                   kinds=made.kinds[::5])  # fmt: skip
    kept = np.setdiff1d(np.arange(len(X)), made.rows)
    elsewhere = replace(made, rows=np.full(len(made.rows), -1))
    found = pseudo_scores(X[kept], domains[kept], elsewhere, GRID)
    assert found.warnings == ("8 recordings with faults are not among the normals.",)
    assert viability_veto([found, found]).warnings[:1] == found.warnings


def test_kinds_that_the_embedding_does_not_show_are_left_out():
    X, domains = machine()
    made = moved_normals(X, domains)
    n = len(made.clean)
    both = replace(
        made,
        vectors=np.vstack([made.vectors, made.clean]),  # a fault that changes nothing
        origin=np.r_[made.origin, np.arange(n)],
        kinds=np.r_[made.kinds, ["inaudible"] * n],
    )
    found, without = (pseudo_scores(X, domains, each, GRID) for each in (both, made))
    assert found.detectable == without.detectable
    np.testing.assert_allclose(found.score, without.score)


def test_a_blend_detects_with_all_views():
    X, domains = machine()
    views = Views(("a", "b"), (5, 7))
    made = moved_normals(X, domains, views=views)
    found = pseudo_scores(X, domains, made, ["raw-k1", "blend"], views=views)
    parts = [replace(made, clean=c, vectors=v) for c, v in zip(
        views.split(made.clean), views.split(made.vectors), strict=True)]  # fmt: skip
    first = pseudo_scores(X[:, :5], domains, parts[0], ["raw-k1", "blend"])
    assert found.auc[0] == pytest.approx(first.auc[0])
    assert (found.auc[1] != first.auc[1]).all()


def test_every_domain_needs_pseudo_anomalies_of_every_kind():
    X, domains = machine()
    made = moved_normals(X, domains)
    kinds = np.where(made.domains[made.origin] == "target", "shuffled", made.kinds)
    with pytest.raises(InputError, match="of every kind: shuffled, swapped"):
        pseudo_scores(X, domains, replace(made, kinds=kinds), ["raw-k1"])


def test_a_domain_with_too_few_normals_is_left_out_and_said():
    X, domains = machine(n_target=3)
    found = pseudo_scores(X, domains, moved_normals(X, domains), GRID)
    assert found.domains == ("source",)
    assert viability_veto(found).warnings == ("The label-free veto needs more normals of target.",)
    with pytest.raises(NotEnoughClipsError, match="4 normal clips"):
        pseudo_scores(X[-3:], None, moved_normals(X[-3:]), ["raw-k1"])
    with pytest.raises(InputError, match="true domain"):
        pseudo_scores(X, domains, moved_normals(X, domains), ["conf-oracle-m0-k1"])


@pytest.mark.parametrize(("held", "judged"), [(2, True), (1, False)])
def test_a_domain_is_judged_by_two_clips_that_are_held_out(held, judged):
    X, domains = machine()
    made = moved_normals(X, domains)
    kept = [*range(20), *range(20, 20 + held)]
    moved = np.isin(made.origin, kept)
    few = replace(made, clean=made.clean[kept], rows=made.rows[kept], domains=made.domains[kept],
                  vectors=made.vectors[moved], origin=made.origin[moved],
                  kinds=made.kinds[moved])  # fmt: skip
    found = pseudo_scores(X, domains, few, ["raw-k1"])
    assert found.domains == (("source", "target") if judged else ("source",))


def test_a_bank_has_the_pseudo_scores_of_its_normals_in_any_order_and_scale():
    X, domains = machine()
    X *= np.random.default_rng(0).uniform(0.5, 2, (len(X), 1))
    grid = [*GRID, "blend", "ext-forest"]
    forest = {"forest": IsolationForest(n_estimators=20, random_state=0)}
    expected = pseudo_scores(X, domains, moved_normals(X, domains, seed=3), grid, scorers=forest)
    bank = daco.NormalBank(X, domains, scorers={**forest, "table": np.zeros(len(X))})
    found = bank_pseudo_scores(bank, [*grid, "ext-table"], seed=3)
    assert found.configs == tuple(grid)  # a table cannot score pseudo-anomalies
    np.testing.assert_allclose(found.auc, expected.auc, atol=0.01)  # ties may fall otherwise
    assert bank_pseudo_scores(bank, ["ext-table"]) is None


# The veto


def scores(values, plain=0.8, basis=INJECTED):
    auc = np.array(values, float)[:, None]
    names = tuple(f"c{row}" for row in range(len(values)))
    return PseudoScores(names, basis, ("all",), auc, auc, (), np.array([plain, plain]))


@pytest.mark.parametrize(
    ("given", "excluded"),
    [
        (scores([0.80, 0.80, 0.80, 0.741, 0.739]), ("c4",)),  # four fifths of the median's 0.3
        (scores([0.80, 0.80, 0.80, 0.71, 0.69], basis=EMBEDDED), ("c4",)),  # two thirds
        (scores([0.95, 0.95, 0.95, 0.80, 0.70], plain=0.95), ("c3", "c4")),
        (scores([0.95, 0.95, 0.95, 0.80, 0.70], plain=0.80), ("c4",)),  # plain neighbours are less
        (scores([0.54, 0.54, 0.50, 0.46], plain=0.54), ()),  # hardly above chance
    ],
)
def test_what_falls_short_of_a_share_of_the_reference_is_excluded(given, excluded):
    veto = viability_veto(given)
    assert tuple(veto.reasons) == excluded
    assert all(given.basis in reason for reason in veto.reasons.values())
    abstains = given.plain[0] == 0.54
    assert np.isnan(veto.limit) == abstains == any("abstains" in each for each in veto.warnings)


def test_machines_are_averaged_as_the_official_score_is():
    veto = viability_veto([scores([0.8, 0.9]), scores([0.6, 0.7])])
    assert veto.score == pytest.approx([2 / (1 / 0.8 + 1 / 0.6), 2 / (1 / 0.9 + 1 / 0.7)])
    for machines in ([], [scores([0.8]), scores([0.8, 0.7])], [scores([1]), scores([1], 1, "x")]):
        with pytest.raises(InputError, match="one grid"):
            viability_veto(machines)
