"""NormalBank: domains beyond the paper, and its answers to wrong input."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import daco
from daco.data.views import Views
from daco.errors import InputError, NotEnoughClipsError
from daco.method import paper
from daco.method.distances import BankDistances, cosine_distances, equal_views, unit_rows

GRID = [*daco.paper_grid(), *map(daco.ScoreConfig.parse, ("ldn-mean-K4", "varmin-K4", "blend"))]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def make_bank(rng, *sizes, dim=6):
    domains = [f"d{g}" for g, size in enumerate(sizes) for _ in range(size)]
    return daco.NormalBank(rng.normal(size=(sum(sizes), dim)) + 1, domains)


def test_shapes_and_repr(rng):
    bank = make_bank(rng, 30, 10)
    assert repr(bank) == "NormalBank(40 clips: 30 d0, 10 d1; 6-d float64)"
    assert (len(bank), bank.domains) == (40, ("d0", "d1"))
    assert bank.domain_sizes == {"d0": 30, "d1": 10}
    X = rng.normal(size=(7, 6)).astype(np.float32)
    assert bank.score(X, GRID).shape == (7, 54)
    assert bank.leave_one_out(["raw-k1", "blend"]).shape == (40, 2)
    assert bank.domain_weights(X).shape == (7, 2)
    assert make_bank(rng, 20).examine(X, "raw-k1").weights.tolist() == [[1]] * 7
    views = daco.NormalBank({"mod": X, "cep": X[:, :2]})
    assert repr(views) == "NormalBank(7 clips: 7 all; mod 6-d + cep 2-d float32)"


def test_domain_labels_may_be_any_hashables(rng):
    X = rng.normal(size=(30, 4))
    expected = daco.NormalBank(X, [0] * 20 + [1] * 10).balance("conf-soft-m0-k1")
    for a, b in (("a", "b"), ((1, 2), (3, 4)), (0, "x"), (b"a", b"b"), (False, True)):
        assert daco.NormalBank(X, [a] * 20 + [b] * 10).balance("conf-soft-m0-k1") == expected


def test_the_sign_is_that_of_anomalies(rng):
    X = (rng.normal(size=(60, 8)) * 0.1 + 1).astype(np.float32)
    bank = daco.NormalBank(X, ["s"] * 50 + ["t"] * 10)
    near, far = bank.score(np.vstack([X[0] + 0.01, -X[0]]), GRID)
    assert (far > near).all()


def test_the_nearest_normal_is_found_in_the_order_of_the_clips(rng):
    """Domains are interleaved, so that the bank's own order is another one."""
    X, query = rng.normal(size=(40, 6)), rng.normal(size=(25, 6))
    bank = daco.NormalBank(X, ["b", "a"] * 20)
    cosine = query @ X.T / np.outer(np.linalg.norm(query, axis=1), np.linalg.norm(X, axis=1))
    examined = bank.examine(query, "conf-soft-m0-k1")
    assert_array_equal(examined.nearest, cosine.argmax(axis=1))
    assert_allclose(examined.distance, 1 - cosine.max(axis=1), atol=1e-12)
    assert_array_equal(examined.scores, bank.score(query, "conf-soft-m0-k1")[:, 0])
    assert_array_equal(examined.take([3, 5]).nearest, examined.nearest[[3, 5]])
    grouped = daco.NormalBank(np.vstack([X[1::2], X[::2]]), ["a"] * 20 + ["b"] * 20)
    assert_array_equal(grouped.balance(GRID, 3), bank.balance(GRID, 3))  # of the same halves


def test_normals_are_scored_as_if_new_by_many_configurations_at_once(rng):
    bank, grid = make_bank(rng, 30, 10), ["raw-k2", "conf-soft-m0-k1", "blend"]
    for given in ({}, {"siblings": 2}, {"sessions": [f"{row // 4}" for row in range(40)]}):
        alone = [bank.examine_normals(name, **given).scores for name in grid]
        assert_array_equal(bank.score_normals(grid, **given), np.transpose(alone))


def test_a_larger_neighbourhood_after_a_smaller_one(rng):
    X, domains = rng.normal(size=(400, 6)), ["s"] * 390 + ["t"] * 10
    bank, names = daco.NormalBank(X, domains), ["raw-k1", "raw-k150", "ldn-ratio-K100"]
    bank.balance("raw-k1", 5)
    assert_array_equal(bank.leave_one_out(names), daco.NormalBank(X, domains).leave_one_out(names))
    assert_array_equal(bank.balance(names, 5), daco.NormalBank(X, domains).balance(names, 5))
    unit = unit_rows(X)
    nearest = np.sort(paper.without_self(paper.cosine_distances(unit, unit)), axis=1)[:, :150]
    assert_allclose(bank.leave_one_out("raw-k150")[:, 0], nearest.mean(axis=1), rtol=1e-9)
    again = pickle.loads(pickle.dumps(bank))
    assert_array_equal(again.leave_one_out(GRID), bank.leave_one_out(GRID))
    assert_array_equal(again.score(X[:5], names), bank.score(X[:5], names))


def test_silence_and_copies_give_finite_scores():
    X = np.zeros((40, 5), np.float32)
    X[20:] = 1
    bank = daco.NormalBank(X, ["s"] * 30 + ["t"] * 10)
    clips = np.vstack([X[:2], X[-2:], -X[-1:], np.eye(5)[:1]])
    assert np.isfinite(bank.score(clips, GRID)).all()
    assert np.isfinite(bank.leave_one_out(GRID)).all()
    assert np.isfinite(bank.balance(GRID, 20)).all()
    for examined in (bank.examine(clips, "blend"), bank.examine_normals("blend")):
        assert np.isfinite(examined.scores).all()
        assert_allclose(examined.weights.sum(axis=1), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [16, 768, 6144])
def test_copies_at_another_volume_are_at_distance_zero(rng, dim, dtype):
    """Rounding left up to 10 ulp where it was measured; below 32 counts as equal."""
    X = (rng.normal(size=(80, dim)) + 4).astype(dtype)
    assert (daco.NormalBank(X).score(X * dtype(0.3), ["raw-k1", "ldn-ratio-K1"]) == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_below_32_ulp_are_zero(dtype):
    eps = np.finfo(dtype).eps
    rows = np.array([[1 - ulps * eps, 0] for ulps in (10, 31, 32, 40)], dtype)
    found = cosine_distances(rows, np.array([[1, 0]], dtype))
    assert (found[:, 0] / eps).tolist() == [0, 0, 32, 40]


@pytest.mark.parametrize(("budget", "n_blocks"), [(8 * 8 * 8, 1), (8 * 8 * 8 - 1, 4)])
def test_distances_beyond_the_budget_are_computed_in_blocks(rng, monkeypatch, budget, n_blocks):
    monkeypatch.setattr("daco.method.distances._BLOCK_BYTES", 2 * 8 * 8)
    blocks = list(BankDistances(unit_rows(rng.normal(size=(8, 3))), budget).blocks())
    assert [len(block) for _, block in blocks] == [8 // n_blocks] * n_blocks


def test_several_views_get_rows_of_length_one_and_a_single_view_stays(rng):
    X = rng.normal(size=(5, 6))
    assert equal_views(X, Views(("a",), (6,))) is X
    alike = equal_views(X, Views(("a", "b"), (4, 2)))
    for part, of_view in ((alike[:, :4], X[:, :4]), (alike[:, 4:], X[:, 4:])):
        assert_allclose(part, of_view / np.linalg.norm(of_view, axis=1, keepdims=True))


def test_banks_that_are_too_small_are_named(rng):
    query, one, few = rng.normal(size=(2, 6)), make_bank(rng, 1), make_bank(rng, 10, 6)
    assert one.score(query, "raw-k1").shape == (2, 1)
    with pytest.raises(NotEnoughClipsError, match="'conf-soft-m0-k1' needs a bank of 2 clips"):
        one.score(query, "conf-soft-m0-k1")
    with pytest.raises(NotEnoughClipsError, match="'ldn-ratio-K16' needs a bank of 17 clips"):
        few.score(query, "ldn-ratio-K16")
    for method in (one.leave_one_out, one.score_normals, one.examine_normals):
        with pytest.raises(NotEnoughClipsError, match="'raw-k1' needs a bank of 2 clips"):
            method("raw-k1")
    assert np.isfinite(make_bank(rng, 30, 1).score(query, GRID)).all()
    for size, config in ((5, "ldn-mean-K4"), (17, "blend")):  # no clip less would do
        assert np.isfinite(make_bank(rng, size).examine_normals(config).scores).all()


def test_what_does_not_belong_to_the_bank_is_named(rng):
    bank, X = make_bank(rng, 20, 10), rng.normal(size=(3, 6))
    two = daco.NormalBank({"mod": X, "cep": X})
    bad = {"row 1": X * [[1], [np.nan], [1]], "2-D": X[None], "0 sample": X[:0]}
    bad |= {"numeric": [["a"] * 6] * 3, "lengths": [[1.0, 2.0], [1.0]], "Complex": X + 1j}
    cases = [
        *((partial(daco.NormalBank, rows), message) for message, rows in bad.items()),
        *((partial(bank.score, rows, "raw-k1"), message) for message, rows in bad.items()),
        (lambda: bank.score(X[:, :5], "raw-k1"), "5 features"),
        (lambda: bank.score(X, "conf-oracle-m0-k1"), "domains="),
        (lambda: bank.score(X, "conf-oracle-m0-k1", domains=["d0", "mars", "d1"]), "'mars'"),
        (lambda: bank.examine(X, "conf-oracle-m0-k1"), "'conf-oracle-m0-k1'"),
        (lambda: bank.domain_weights(X, "raw-k1"), "assigns no domains"),
        (lambda: two.score({"mod": X}, "blend"), "mod, cep|mod and cep"),
        (lambda: two.score({"mod": X, "cep": X[:, :4]}, "blend"), "cep"),
        (lambda: two.score({"mod": X, "cep": X[:2]}, "blend"), "row for each clip"),
        (lambda: daco.NormalBank({}), "at least one view"),
        (lambda: daco.NormalBank(X, ["a"] * 2), "Got 2 labels"),
        (lambda: daco.NormalBank(X, "source"), "one string"),
        (lambda: daco.NormalBank(X, ["a", "a", None]), r"domains\[2\] is None"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message):
            call()
