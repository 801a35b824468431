"""The label-free veto: what it measures, against a slow textbook version, and what it cuts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from synthetic_machines import synthetic_machine

import daco
from daco.data.table import EmbeddingTable
from daco.errors import InputError, NotEnoughClipsError
from daco.method import viability
from daco.method.pseudo_anomalies import (
    EMBEDDED,
    INJECTED,
    PseudoAnomalies,
    injected,
    moved_normals,
)
from daco.method.viability import PseudoScores, pseudo_scores, viability_veto

GRID = ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K1", "ldn-diff-K16", "zscore-hard-k2"]


def machine(seed=0, n_source=60, n_target=10):
    made = synthetic_machine("m", seed, n_source, n_target, 40, 12)
    return made.X, np.asarray(made.domains)


def textbook(X, domains, made, config):
    """AUC and partial AUC of each domain, turn by turn, one bank and one call each."""
    turns = {}
    for domain in np.unique(made.domains):
        members = np.flatnonzero(made.domains == domain)
        turns |= {int(row): at for at, row in enumerate(members)}
    n_turns = 1
    for domain in np.unique(domains):
        gone = np.sum((made.domains == domain) & (made.rows >= 0))
        n_turns = max(n_turns, int(np.ceil(gone / (np.sum(domains == domain) // 2))))
    result = {}
    for domain in np.unique(domains):
        aucs, paucs = [], []
        for turn in range(n_turns):
            fold = [row for row, at in turns.items() if at % n_turns == turn]
            stays = [row for row in range(len(X)) if row not in made.rows[fold]]
            bank = daco.NormalBank(X[stays], domains[stays])
            clean = [row for row in fold if made.domains[row] == domain]
            faulted = [row for row in range(len(made)) if made.origin[row] in clean]
            low = bank.score(made.clean[clean], config)[:, 0]
            high = bank.score(made.vectors[faulted], config)[:, 0]
            own = bank.leave_one_out(config)[domains[stays] == domain, 0]
            marks = np.r_[np.zeros(len(low)), np.ones(len(high))]
            aucs.append(roc_auc_score(marks, np.r_[low, high]))
            all_marks = np.r_[np.zeros(len(own)), marks]
            paucs.append(roc_auc_score(all_marks, np.r_[own, low, high], max_fpr=0.1))
        result[domain] = np.mean(aucs), np.mean(paucs)
    return result


@pytest.mark.parametrize(("n_target", "per_domain"), [(10, 20), (30, 6)])
def test_agrees_with_the_textbook(n_target, per_domain):
    X, domains = machine(n_target=n_target)
    made = moved_normals(X, domains, per_domain=per_domain)
    found = pseudo_scores(X, domains, made, GRID)
    assert found.detectable == ("shuffled", "swapped")
    for at, config in enumerate(GRID):
        expected = textbook(X, domains, made, config)
        for code, domain in enumerate(found.domains):
            assert found.auc[at, code] == pytest.approx(expected[domain][0], abs=1e-12)
            assert found.pauc[at, code] == pytest.approx(expected[domain][1], abs=1e-12)
        values = [value for pair in expected.values() for value in pair]
        assert found.score[at] == pytest.approx(len(values) / np.sum(1 / np.array(values)))


def test_no_clip_is_judged_by_a_bank_that_holds_it_and_half_of_each_domain_stays(monkeypatch):
    X, domains = machine()
    made = moved_normals(X, domains, per_domain=50)
    judged = []

    class Watched(daco.NormalBank):
        def __init__(self, bank, codes, **options):
            super().__init__(bank, codes, **options)
            self.rows = {row.tobytes() for row in bank}
            assert (codes == 0).sum() >= 30
            assert (codes == 1).sum() >= 5

        def score(self, queries, grid, **options):
            held = [row for row in queries if row.tobytes() in {x.tobytes() for x in X}]
            assert not [row for row in held if row.tobytes() in self.rows]
            judged.extend(row.tobytes() for row in held)
            return super().score(queries, grid, **options)

    monkeypatch.setattr(viability, "NormalBank", Watched)
    pseudo_scores(X, domains, made, ["raw-k1"])
    assert sorted(judged) == sorted(row.tobytes() for row in made.clean)


def test_a_clip_that_is_not_in_the_bank_costs_the_bank_nothing():
    X, domains = machine()
    made = moved_normals(X, domains, per_domain=5)
    elsewhere = replace(made, rows=np.full(len(made.rows), -1))
    kept = np.setdiff1d(np.arange(len(X)), made.rows)
    outside = pseudo_scores(X[kept], domains[kept], elsewhere, GRID)
    inside = pseudo_scores(X, domains, made, GRID)
    assert np.allclose(outside.auc, inside.auc)
    assert np.allclose(outside.pauc, inside.pauc)


def faults_of(X, rows, paths):
    """A table of faults: each of some normals, clean and disturbed."""
    vectors = np.repeat(X[rows], 2, axis=0)
    vectors[1::2] += np.random.default_rng(0).normal(0, 1, vectors[1::2].shape)
    names = [path for path in paths for _ in range(2)]
    return EmbeddingTable.from_arrays(
        vectors, path=names, fault=["", "rub"] * len(rows), domain="source"
    )


def test_renaming_the_recordings_does_not_leave_their_copies_in_the_bank():
    X, domains = machine()
    names, rows = [f"{row}.wav" for row in range(len(X))], [0, 5, 9, 61, 65]
    found = []
    # Their own names, names of nobody, and names of others.
    for paths in ([names[row] for row in rows], list("abcde"), [names[row + 1] for row in rows]):
        made = injected(faults_of(X, rows, paths), names, domains, X=X)
        found.append(pseudo_scores(X, domains, made, GRID))
    for each in found[1:]:
        assert np.array_equal(each.auc, found[0].auc)
        assert each.clips == {"source": 3, "target": 2}
    assert viability_veto(found).notes == ()


def test_recordings_that_are_not_among_the_normals_are_counted():
    X, domains = machine()
    made = moved_normals(X, domains, per_domain=5)
    some = np.where(np.arange(10) < 3, -1, made.rows)
    found = pseudo_scores(X, domains, replace(made, rows=some), GRID)
    assert found.unmatched == 3
    (note,) = viability_veto([found, pseudo_scores(X, domains, made, GRID)]).notes
    assert note.startswith("3 of 20 recordings are not among the normals of the study")


def test_kinds_that_the_embedding_does_not_hold_are_left_out():
    X, domains = machine()
    made = moved_normals(X, domains)
    copies = np.tile(made.clean, (3, 1))  # a fault that changes nothing
    both = PseudoAnomalies(
        INJECTED,
        made.clean,
        made.rows,
        made.domains,
        np.vstack([made.vectors, copies]),
        np.concatenate([made.origin, np.tile(np.arange(len(made.clean)), 3)]),
        np.concatenate([made.kinds, ["inaudible"] * len(copies)]),
    )
    found, without = pseudo_scores(X, domains, both, GRID), pseudo_scores(X, domains, made, GRID)
    assert found.detectable == ("shuffled", "swapped")
    np.testing.assert_allclose(found.score, without.score)
    # A clip and its copy tie but for the rounding of a product: n of n * n pairs are half an AUC.
    tie = 0.5 / len(made.clean)
    assert found.by_kind[:, found.kinds.index("inaudible")] == pytest.approx(0.5, abs=tie)
    assert found.anomalies == len(both)


def test_plain_neighbours_are_measured_where_the_grid_has_none():
    X, domains = machine()
    made = moved_normals(X, domains)
    without = pseudo_scores(X, domains, made, GRID[1:])
    with_them = pseudo_scores(X, domains, made, GRID)
    assert without.configs == tuple(GRID[1:])
    assert np.array_equal(without.plain, with_them.plain)
    assert np.array_equal(without.auc, with_them.auc[1:])


def test_a_domain_with_too_few_normals_is_left_out_and_said():
    X, domains = machine(n_target=3)
    found = pseudo_scores(X, domains, moved_normals(X, domains), GRID)
    assert found.domains == ("source",)
    veto = viability_veto(found)
    assert veto.notes == ("Domains with fewer than 4 normals or none held out: target.",)
    few = np.flatnonzero(domains == "target")
    with pytest.raises(NotEnoughClipsError, match="4 normal clips"):
        pseudo_scores(X[few], domains[few], moved_normals(X[few], domains[few]), ["raw-k1"])


def test_bands_reach_the_bank():
    X, domains = machine()
    made = moved_normals(X, domains)
    grid = ["raw-k1", "beam"]
    flat, banded = (pseudo_scores(X, domains, made, grid, bands=b) for b in (1, 4))
    assert np.array_equal(flat.auc[0], banded.auc[0])
    assert not np.array_equal(flat.auc[1], banded.auc[1])


def scores(values, plain=0.8, basis=INJECTED, **options):
    auc = np.array(values, float)[:, None]
    given = {
        "configs": tuple(f"c{at}" for at in range(len(values))),
        "basis": basis,
        "domains": ("all",),
        "auc": auc,
        "pauc": auc,
        "kinds": (),
        "by_kind": np.empty((len(values), 0)),
        "detectable": (),
        "plain": np.array([plain, plain]),
        "clips": {"all": 20},
        "anomalies": 360,
    }
    return PseudoScores(**(given | options))


def test_what_falls_short_of_four_fifths_of_the_median_advantage_is_cut():
    veto = viability_veto(scores([0.80, 0.80, 0.80, 0.741, 0.739]))
    assert veto.limit == pytest.approx(0.74)
    assert veto.kept.tolist() == [True] * 4 + [False]
    assert veto.excluded == ("c4",)
    assert "73.9, below the limit of 74.0" in veto.reasons["c4"]
    assert veto.basis in veto.reasons["c4"]


def test_a_grid_of_sharp_scorers_does_not_cut_what_hears_like_plain_neighbours():
    values = [0.95, 0.95, 0.95, 0.80, 0.70]
    assert viability_veto(scores(values, plain=0.95)).excluded == ("c3", "c4")
    assert viability_veto(scores(values, plain=0.80)).excluded == ("c4",)


def test_less_is_asked_in_the_embedding_space():
    values = [0.80, 0.80, 0.80, 0.71, 0.69]
    assert viability_veto(scores(values)).excluded == ("c3", "c4")
    assert viability_veto(scores(values, basis=EMBEDDED)).excluded == ("c4",)
    assert viability_veto(scores(values, basis=EMBEDDED)).basis == EMBEDDED


def test_where_nothing_is_heard_nothing_is_cut():
    veto = viability_veto(scores([0.54, 0.54, 0.50, 0.46], plain=0.54))
    assert veto.kept.all()
    assert np.isnan(veto.limit)
    assert veto.abstains
    assert "abstains" in veto.notes[0]


def test_machines_are_averaged_as_the_official_score_is():
    veto = viability_veto([scores([0.8, 0.9]), scores([0.6, 0.7])])
    assert veto.score == pytest.approx([2 / (1 / 0.8 + 1 / 0.6), 2 / (1 / 0.9 + 1 / 0.7)])


@pytest.mark.parametrize(
    "machines",
    [
        [],
        [scores([0.8, 0.8]), scores([0.8, 0.8], basis=EMBEDDED)],
        [scores([0.8, 0.8]), scores([0.8])],
    ],
)
def test_only_scores_of_one_grid_and_one_basis_are_put_together(machines):
    with pytest.raises(InputError):
        viability_veto(machines)


def test_a_share_beyond_one_and_a_configuration_that_reads_domains_are_refused():
    with pytest.raises(InputError, match="share"):
        viability_veto(scores([0.8]), share=1.2)
    X, domains = machine()
    with pytest.raises(InputError, match="true domains"):
        pseudo_scores(X, domains, moved_normals(X, domains), ["conf-oracle-m0-k1"])
    made = moved_normals(X, domains)
    with pytest.raises(InputError, match="domain 'elsewhere'"):
        pseudo_scores(X, domains, replace(made, domains=np.full(len(made.rows), "elsewhere")), GRID)
