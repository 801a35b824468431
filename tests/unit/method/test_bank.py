"""NormalBank: domains beyond the paper, and what it says to wrong input."""

from __future__ import annotations

import numpy as np
import pytest

import daco
from daco.errors import DacoError, InputError, NotEnoughClipsError

GRID = daco.paper_grid()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def make_bank(rng, *sizes, dim=6, **options):
    domains = [f"d{g}" for g, size in enumerate(sizes) for _ in range(size)]
    return daco.NormalBank(rng.normal(size=(sum(sizes), dim)) + 1, domains, **options)


def test_shapes_dtypes_and_repr(rng):
    bank = make_bank(rng, 30, 10)
    assert repr(bank) == "NormalBank(40 clips: 30 d0, 10 d1; 6-d float64)"
    assert bank.domain_sizes == {"d0": 30, "d1": 10}
    scores = bank.score(rng.normal(size=(7, 6)).astype(np.float32), GRID)
    assert scores.shape == (7, 51)
    assert scores.dtype == np.float64
    assert bank.balance("raw-k1").shape == (1,)
    assert bank.balance_splits(GRID, n_splits=3).shape == (51, 3)
    assert bank.leave_one_out(["raw-k1", "conf-soft-m0-k1"]).shape == (40, 2)


def test_no_domains_means_one_domain_and_the_pooled_map(rng):
    X, X_test = rng.normal(size=(40, 5)), rng.normal(size=(9, 5))
    pooled = daco.NormalBank(X).score(X_test, ["conf-soft-m0-k1", "conf-hard-m300-k1"])
    split = daco.NormalBank(X, ["a"] * 20 + ["b"] * 20)
    # The limit of infinite strength is the pooled map for any number of domains.
    limit = split.score(X_test, "conf-soft-m100000000000-k1")[:, 0]
    np.testing.assert_allclose(pooled[:, 0], limit, atol=1e-8)
    np.testing.assert_allclose(pooled[:, 0], pooled[:, 1], atol=1e-15)


def test_criterion_of_more_domains_is_the_mean_over_pairs(rng):
    """On raw scores, which do not depend on the other domains' labels."""
    X = rng.normal(size=(36, 4))
    domains = np.repeat(["a", "b", "c"], 12)
    bank = daco.NormalBank(X, domains)
    balance = bank.exact_balance("raw-k1", n_splits=5, seed=1)
    assert balance.counts.shape == (1, 5, 3)
    np.testing.assert_allclose(balance.values, balance.splits.mean(axis=1))
    np.testing.assert_allclose(
        balance.values, (balance.counts / balance.denominators).mean(axis=(1, 2))
    )


def test_one_clip_in_a_domain_is_enough_to_score(rng):
    bank = make_bank(rng, 30, 1)
    scores = bank.score(rng.normal(size=(50, 6)), GRID)
    assert np.isfinite(scores).all()
    with pytest.raises(NotEnoughClipsError, match=r"needs 2 clips in each. Domain 'd1' has 1"):
        bank.balance(GRID)


def test_domain_labels_may_be_any_hashables(rng):
    X = rng.normal(size=(30, 4))
    expected = daco.NormalBank(X, [0] * 20 + [1] * 10).balance("conf-soft-m0-k1")
    for labels in (["a"] * 20 + ["b"] * 10, [(1, 2)] * 20 + [(3, 4)] * 10, [0] * 20 + ["x"] * 10,
                   np.array([b"a"] * 20 + [b"b"] * 10), [False] * 20 + [True] * 10):  # fmt: skip
        assert daco.NormalBank(X, labels).balance("conf-soft-m0-k1") == expected


def test_results_are_deterministic_and_splits_nest(rng):
    X, domains = rng.normal(size=(50, 6)), ["s"] * 40 + ["t"] * 10
    first, second = (daco.NormalBank(X, domains) for _ in range(2))
    ten = first.balance_splits(GRID, 10)
    assert (ten == second.balance_splits(GRID, 10)).all()
    assert (ten[:, :5] == second.balance_splits(GRID, 5)).all()
    assert (first.balance(GRID, seed=0) != first.balance(GRID, seed=1)).any()


def test_many_splits_are_those_of_few_and_more():
    """So many splits are scored in several parts."""
    X = np.random.default_rng(0).normal(size=(400, 8)) + 1
    bank = daco.NormalBank(X, ["a"] * 380 + ["b"] * 20)
    many, few = bank.balance_splits(GRID, 200, seed=3), bank.balance_splits(GRID, 10, seed=3)
    assert (many[:, :10] == few).all()
    balance, uniformity = bank.balance_and_uniformity(GRID, 200, seed=3)
    assert (balance.splits == many).all()
    np.testing.assert_array_equal(uniformity, bank.uniformity(GRID, 200, seed=3))


def test_the_memory_budget_changes_nothing(rng):
    """1,500 clips are two by two tiles, kept or computed anew in every pass."""
    X = rng.normal(size=(1500, 12)) + 1
    domains, X_test = ["s"] * 1480 + ["t"] * 20, rng.normal(size=(9, 12))
    kept, recomputed = (daco.NormalBank(X, domains, memory_budget=budget) for budget in (2**28, 0))
    np.testing.assert_allclose(
        kept.score(X_test, GRID), recomputed.score(X_test, GRID), rtol=1e-9, atol=1e-9
    )
    assert (kept.balance_splits(GRID) == recomputed.balance_splits(GRID)).all()


def test_queries_of_another_precision(rng):
    X = rng.normal(size=(50, 6)) + 1
    X_test = rng.normal(size=(9, 6))
    single = daco.NormalBank(X.astype(np.float32))
    np.testing.assert_allclose(
        single.score(X_test * 1e300, GRID), single.score(X_test.astype(np.float32), GRID), rtol=1e-3
    )
    double = daco.NormalBank(X).score(X_test.astype(np.float32), "raw-k1")
    np.testing.assert_allclose(double, daco.NormalBank(X).score(X_test, "raw-k1"), rtol=1e-4)


def test_a_larger_neighbourhood_after_a_smaller_one(rng):
    """Neighbour lists grow when a later grid looks further."""
    X, domains = rng.normal(size=(400, 6)), ["s"] * 390 + ["t"] * 10
    bank = daco.NormalBank(X, domains)
    bank.balance("raw-k1")
    later = bank.balance(["raw-k1", "raw-k150", "ldn-ratio-K100"])
    fresh = daco.NormalBank(X, domains).balance(["raw-k1", "raw-k150", "ldn-ratio-K100"])
    assert (later == fresh).all()


def test_rows_whose_neighbour_list_is_too_short_are_computed_in_full(rng, monkeypatch):
    X, domains = rng.normal(size=(300, 6)), ["s"] * 290 + ["t"] * 10
    expected = daco.NormalBank(X, domains).balance_splits(GRID)
    whole = daco.NormalBank(X, domains)
    monkeypatch.setattr("daco.method.neighbours.list_length", lambda reach: 2 * reach)
    for bank in (whole, daco.NormalBank(X, domains, memory_budget=0)):
        assert (bank.balance_splits(GRID) == expected).all()


@pytest.mark.parametrize("call", ["score", "balance", "leave_one_out"])
def test_neighbours_that_do_not_exist_are_named(rng, call):
    bank = make_bank(rng, 10, 6)
    arguments = (
        (rng.normal(size=(2, 6)), "ldn-ratio-K16") if call == "score" else ("ldn-ratio-K16",)
    )
    with pytest.raises(NotEnoughClipsError, match=r"'ldn-ratio-K16' needs a bank of 17 clips"):
        getattr(bank, call)(*arguments)


def test_half_banks_are_named_when_they_are_too_small(rng):
    bank = make_bank(rng, 16, 16)
    bank.score(rng.normal(size=(2, 6)), GRID)
    with pytest.raises(NotEnoughClipsError, match=r"This bank has 16 clips.*held out \(of 32\)"):
        bank.balance(GRID)


def test_raw_scoring_needs_only_the_neighbours_themselves(rng):
    bank = daco.NormalBank(rng.normal(size=(1, 3)))
    assert bank.score(rng.normal(size=(2, 3)), "raw-k1").shape == (2, 1)
    with pytest.raises(NotEnoughClipsError, match="'conf-soft-m0-k1' needs a bank of 2 clips"):
        bank.score(rng.normal(size=(2, 3)), "conf-soft-m0-k1")


BAD = {
    "nan": (lambda X: np.where(np.arange(20)[:, None] == 7, np.nan, X), "first is row 7"),
    "inf": (lambda X: np.where(np.arange(20)[:, None] >= 18, np.inf, X), "2 of 20 rows"),
    "vector": (lambda X: X[0], "must be a 2-D array"),
    "cube": (lambda X: X[None, None], "must be a 2-D array"),
    "empty": (lambda X: X[:0], r"0 sample\(s\)"),
    "no features": (lambda X: X[:, :0], r"0 feature\(s\)"),
    "words": (lambda X: [["a", "b"]] * 20, "must be numeric"),
    "objects": (lambda X: [[{}, {}]] * 20, "must be numeric"),
    "ragged": (lambda X: [[1.0, 2.0], [1.0]], "different lengths"),
    "complex": (lambda X: X + 1j, "Complex data not supported"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_embeddings_are_named(rng, kind):
    spoil, message = BAD[kind]
    X = rng.normal(size=(20, 4))
    with pytest.raises(InputError, match=message):
        daco.NormalBank(spoil(X))
    with pytest.raises(InputError, match=message):
        daco.NormalBank(X).score(spoil(X), "raw-k1")


def test_bad_domains_and_mismatches_are_named(rng):
    X = rng.normal(size=(20, 4))
    cases = [
        (["a"] * 19, "one label per clip: there are 20 clips. Got 19 labels"),
        ("source", "Got one string"),
        (["a"] * 19 + [None], r"domains\[19\] is None"),
        (["a"] * 3 + [float("nan")] * 17, r"domains\[3\] is nan"),
        ([["a"]] * 20, r"domains\[0\] is \['a'\]"),
    ]
    for domains, message in cases:
        with pytest.raises(InputError, match=message):
            daco.NormalBank(X, domains)
    bank = daco.NormalBank(X, ["a"] * 10 + ["b"] * 10)
    with pytest.raises(InputError, match="X has 5 features, but the bank was built with 4"):
        bank.score(rng.normal(size=(2, 5)), "raw-k1")
    with pytest.raises(InputError, match=r"an int >= 1\. Got 0"):
        bank.balance("raw-k1", n_splits=0)
    with pytest.raises(NotEnoughClipsError, match="has only one"):
        daco.NormalBank(X).balance("raw-k1")
    for seed in (-1, 1.5, "a", None):
        with pytest.raises(InputError, match="'seed' parameter"):
            bank.balance("raw-k1", seed=seed)
    with pytest.raises(InputError, match="number of bytes"):
        daco.NormalBank(X, memory_budget="1G")
    with pytest.raises(InputError, match="one label per clip"):
        daco.NormalBank(X, 5)
    with pytest.raises(DacoError, match="A grid is a sequence"):
        bank.score(X, None)


def test_oracle_configurations_need_known_domains_and_stay_out_of_selection(rng):
    bank = make_bank(rng, 20, 10)
    X_test = rng.normal(size=(3, 6))
    with pytest.raises(InputError, match="Pass domains="):
        bank.score(X_test, "conf-oracle-m0-k1")
    with pytest.raises(InputError, match=r"domains\[1\] is 'mars', but the bank knows only"):
        bank.score(X_test, "conf-oracle-m0-k1", domains=["d0", "mars", "d1"])
    with pytest.raises(InputError, match="selection must not"):
        bank.balance("conf-oracle-m0-k1")
    with pytest.raises(InputError, match="assigns no domains"):
        bank.domain_weights(X_test, "raw-k1")


def test_every_error_is_a_daco_error():
    for kind in (InputError, NotEnoughClipsError):
        assert issubclass(kind, DacoError)
        assert issubclass(kind, ValueError)


def test_silence_and_repeats_give_finite_scores():
    """A bank of digital silence and copies is no reason for NaN or a warning."""
    X = np.zeros((40, 5), np.float32)
    X[20:] = 1
    bank = daco.NormalBank(X, ["s"] * 30 + ["t"] * 10)
    scores = bank.score(np.vstack([X[:2], X[-2:], -X[-1:], np.eye(5)[:1]]), GRID)
    assert np.isfinite(scores).all()
    assert np.isfinite(bank.balance(GRID)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [16, 384, 768, 6144])
def test_copies_at_another_volume_are_at_distance_zero(rng, dim, dtype):
    """Rounding left up to 10 ulp where it was measured; below 32 counts as equal."""
    X = (rng.normal(size=(80, dim)) + 4).astype(dtype)
    scores = daco.NormalBank(X).score(X * dtype(0.3), ["raw-k1", "ldn-ratio-K1"])
    assert (scores == 0).all()


def test_a_clip_farther_from_every_normal_scores_higher(rng):
    """The sign: higher is more anomalous, for every configuration."""
    X = (rng.normal(size=(60, 8)) * 0.1 + 1).astype(np.float32)
    bank = daco.NormalBank(X, ["s"] * 50 + ["t"] * 10)
    near, far = bank.score(np.vstack([X[0] + 0.01, -X[0]]), GRID)
    assert (far > near).all()


def test_the_nearest_normal_is_found_in_the_order_of_the_clips(rng):
    """Domains are interleaved, so that the bank's own order is another one."""
    X = rng.normal(size=(40, 6))
    bank = daco.NormalBank(X, ["b", "a"] * 20)
    query = rng.normal(size=(25, 6))
    index, distance = bank.nearest(query)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosine = query / np.linalg.norm(query, axis=1, keepdims=True) @ unit.T
    assert (index == cosine.argmax(axis=1)).all()
    np.testing.assert_allclose(distance, 1 - cosine.max(axis=1), atol=1e-12)
    np.testing.assert_allclose(distance, bank.score(query, "raw-k1")[:, 0])
    own, zero = bank.nearest(X * 3)
    assert (own == np.arange(40)).all()
    assert (zero == 0).all()
