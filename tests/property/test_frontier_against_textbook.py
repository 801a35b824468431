"""The scorers published since the paper: the engine agrees with the textbook, and identities."""

from __future__ import annotations

import numpy as np
import pytest
import textbook
import textbook_frontier
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook_frontier import Clips

import daco
from daco.method.bases import Base
from daco.method.distances import unit_rows
from daco.method.geometry import Space, band_rows
from daco.method.kernels import use_kernels

NAMES = (
    "beam", "beam-k2", "ldn-mean-K1", "ldn-mean-K4", "ldn-log-K2", "varmin-K1", "varmin-K4",
    "varmin-log-K4", "beam-ldn-ratio-K1", "beam-ldn-diff-K2", "beam-ldn-mean-K4",
    "beam-varmin-K4", "beam-varmin-log-K2", "dldn-ratio-K16", "dldn-mean-K3",
    "beam-dldn-mean-K3", "genrep",
    "zmin-k1+ldnK1+beam-varmin-K4", "zmin-k2+genrep",
    "conf-soft-m0-beam", "conf-soft-m30-varmin-K4", "conf-hard-m0-beam-varmin-K4",
    "zscore-hard-varmin-K4", "zscore-soft-beam-ldn-mean-K4", "ratio-soft-beam",
    "ratio-hard-dldn-ratio-K2", "conf-soft-m0-beam-ldn-ratio-K1", "conf-soft-m0-ldn-diff-K1",
    "conf-soft-m10-genrep",
    "conf-hard-m30-zmin-k1+ldn-mean-K4",
)  # fmt: skip
GRID = [daco.ScoreConfig.parse(name) for name in NAMES]
KERNELS = ("numba", "numpy")


@st.composite
def banks(draw):
    """Embeddings of some bands in general position, grouped by domain, and test clips.

    In float64, and ties are left to the tests of the paper's grid: which of two equally near
    normals is the nearest decides on VarMin's alpha, and what is equal in exact arithmetic
    comes out in either order once it was averaged over bands.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from([(30, 4), (4, 30), (12, 12, 6), (40, 10), (35, 5)]))
    bands, dim = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([4, 9]))
    n, n_test = sum(shape), draw(st.integers(1, 9))
    X = rng.standard_normal((n + n_test, bands * dim)) + draw(st.sampled_from([0, 1, 3]))
    codes = np.repeat(np.arange(len(shape)), shape)
    return X[:n], codes, X[n:], bands


def clips(X, bands, codes=None):
    unit = unit_rows(X)
    return Clips(unit, band_rows(unit, bands) if bands > 1 else [unit], codes)


def wrong(grid, got, expected, *seen):
    """The configurations whose scores differ by more than rounding, and by how much.

    A distance is known to an ulp of 1; its logarithm, and what is divided by it, to that over
    the smallest distance there is.
    """
    smallest = min(
        textbook.left_out(textbook.distances(rows, rows)).min()
        for clips in seen
        for rows in (clips.whole, *clips.bands)
        if len(rows) > 1
    )
    scale = np.maximum(np.abs(expected).max(axis=0), 0.1)
    error = np.abs(got - expected).max(axis=0) / scale
    allowed = 1e3 * np.finfo(np.float64).eps / smallest
    return {c.name: worst for c, worst in zip(grid, error, strict=True) if not worst <= allowed}


def fitting(n_clips):
    return [c for c in GRID if max(p.neighbours for p in c.base.parts()) + 2 <= n_clips]


@settings(max_examples=20, deadline=None)
@given(given_bank=banks())
def test_scores(given_bank):
    X, codes, X_test, bands = given_bank
    bank, query = clips(X, bands, codes), clips(X_test, bands)
    expected = np.array([textbook_frontier.score(c, bank, query) for c in GRID]).T
    together = Clips(
        np.vstack([bank.whole, query.whole]),
        [np.vstack(pair) for pair in zip(bank.bands, query.bands, strict=True)],
    )
    for kernels in KERNELS:
        with use_kernels(kernels):
            got = daco.NormalBank(X, codes, bands=bands).score(X_test, GRID)
        assert not wrong(GRID, got, expected, together), kernels


@settings(max_examples=15, deadline=None)
@given(given_bank=banks())
def test_leave_one_out_base_scores(given_bank):
    X, codes, _, bands = given_bank
    grid = [c for c in GRID if c.calibration is None]
    bank = clips(X, bands, codes)
    expected = np.array(
        [textbook_frontier.base_scores(c.base, bank, bank)[0] for c in grid], np.float64
    ).T
    got = daco.NormalBank(X, codes, bands=bands).leave_one_out(grid)
    assert not wrong(grid, got, expected, bank)


@settings(max_examples=10, deadline=None)
@given(given_bank=banks(), seed=st.integers(0, 99))
def test_criterion(given_bank, seed):
    X, codes, _, bands = given_bank
    sizes = np.bincount(codes)
    grid = fitting(int((sizes - sizes // 2).sum()))
    bank = clips(X, bands, codes)
    expected = [
        [
            textbook.ks_between(textbook_frontier.score(c, bank[~held], bank[held]), codes[held])
            for held in textbook.held_out(codes, 2, seed)
        ]
        for c in grid
    ]
    for kernels in KERNELS:
        with use_kernels(kernels):
            got = daco.NormalBank(X, codes, bands=bands).balance_splits(grid, 2, seed)
        differ = np.abs(got - expected).max(axis=1) > 1e-12
        wrong = [c.name for c, differs in zip(grid, differ, strict=True) if differs]
        assert not wrong, kernels


def bank_of(rng, bands=1, sizes=(50, 10), dim=6):
    X = rng.normal(size=(sum(sizes), bands * dim)) + 1
    return X, daco.NormalBank(X, np.repeat(["s", "t"], sizes), bands=bands)


@pytest.fixture
def rng():
    return np.random.default_rng(6)


def test_beam_with_one_band_is_nearest_neighbours(rng):
    _, bank = bank_of(rng)
    query = rng.normal(size=(20, 6))
    pairs = [
        ("beam", "raw-k1"), ("beam-k2", "raw-k2"), ("beam-varmin-K4", "varmin-K4"),
        ("conf-soft-m0-beam", "conf-soft-m0-k1"), ("zscore-hard-beam-k2", "zscore-hard-k2"),
        ("beam-ldn-ratio-K1", "ldn-ratio-K1"), ("beam-dldn-mean-K3", "dldn-mean-K3"),
    ]  # fmt: skip
    for banded, whole in pairs:
        np.testing.assert_allclose(bank.score(query, banded), bank.score(query, whole), rtol=1e-9)
        np.testing.assert_allclose(bank.balance(banded), bank.balance(whole), rtol=1e-12)


def test_bands_change_nothing_for_scorers_of_whole_vectors(rng):
    X, bank = bank_of(rng, bands=3)
    query = rng.normal(size=(20, 18))
    plain = daco.NormalBank(X, np.repeat(["s", "t"], (50, 10)))
    grid = [c for c in [*daco.paper_grid(), *GRID] if not any(p.bandwise for p in c.base.parts())]
    np.testing.assert_allclose(bank.score(query, grid), plain.score(query, grid), atol=1e-9)


def test_beam_is_the_mean_over_bands_of_banks_of_one_band(rng):
    X, bank = bank_of(rng, bands=3)
    query = rng.normal(size=(20, 18))
    for name in ("raw-k1", "raw-k3", "ldn-ratio-K2", "ldn-mean-K4", "varmin-K4", "varmin-log-K4"):
        parts = [
            daco.NormalBank(X[:, part], np.repeat(["s", "t"], (50, 10))).score(query[:, part], name)
            for part in (slice(0, 6), slice(6, 12), slice(12, 18))
        ]
        base = daco.ScoreConfig.parse(name).base
        banded = Base(base.scorer, base.neighbours, bandwise=True).name
        np.testing.assert_allclose(bank.score(query, banded), np.mean(parts, axis=0), rtol=1e-12)


def test_varmin_without_correction_is_nearest_neighbours_and_with_all_of_it_ldn(rng, monkeypatch):
    X, bank = bank_of(rng)
    query = rng.normal(size=(20, 6))
    for alpha, same_as in (
        (0.0, bank.score(query, "raw-k1") / 2),
        (1.0, bank.score(query, "ldn-diff-K1")),
    ):
        monkeypatch.setattr(
            "daco.method.densities.Densities._slope", lambda self, *_, a=alpha: np.full(1, a)
        )
        got = daco.NormalBank(X).score(query, "varmin-K1")
        np.testing.assert_allclose(got, same_as, rtol=1e-12, atol=1e-15)


def test_varmin_chooses_the_alpha_of_least_variance(rng):
    """That is what it is named for: no other alpha spreads the normals' corrected scores less."""
    X, _ = bank_of(rng, sizes=(200, 10))
    d = textbook.left_out(textbook.distances(unit_rows(X), unit_rows(X)))
    density = np.sort(d, axis=1)[:, :4].mean(axis=1)
    space = Space(unit_rows(X), memory_budget=2**20)
    u, v = d.min(axis=1), density[d.argmin(axis=1)]
    alphas = np.linspace(-3, 3, 2001)
    best = alphas[np.argmin([(u - a * v).var() for a in alphas])]
    from daco.method.densities import whole_bank_densities

    starts, varmin = np.array([0, 200, 210]), Base("varmin", 4)
    slope = whole_bank_densities(space, starts, [], [varmin])[1][0, 0] / density
    np.testing.assert_allclose(slope, slope[0], rtol=1e-9)
    assert abs(slope[0] - best) <= 0.003


def test_the_mean_over_one_neighbour_is_the_published_sum(rng):
    _, bank = bank_of(rng)
    query = rng.normal(size=(20, 6))
    np.testing.assert_allclose(
        bank.score(query, "ldn-mean-K1"), bank.score(query, "ldn-diff-K1"), rtol=1e-12
    )
    np.testing.assert_allclose(
        bank.score(query, "ldn-log-K1"), np.log(bank.score(query, "ldn-ratio-K1")), rtol=1e-12
    )


def test_density_within_a_domain_is_density_when_there_is_one_domain(rng):
    X = rng.normal(size=(40, 6)) + 1
    bank = daco.NormalBank(X)
    query = rng.normal(size=(20, 6))
    np.testing.assert_allclose(
        bank.score(query, "dldn-mean-K3"), bank.score(query, "ldn-mean-K3"), rtol=1e-12
    )


def test_fusing_standardises_by_what_normals_score_when_left_out(rng):
    _, bank = bank_of(rng)
    query = rng.normal(size=(20, 6))
    parts = ["raw-k1", "varmin-K4", "genrep"]
    own, scores = bank.leave_one_out(parts), bank.score(query, parts)
    expected = ((scores - own.mean(axis=0)) / own.std(axis=0)).min(axis=1)
    got = bank.score(query, "zmin-k1+varmin-K4+genrep")[:, 0]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_a_cube_of_bands_is_a_bank_of_bands(rng):
    X = rng.normal(size=(30, 3, 5))
    query = rng.normal(size=(4, 3, 5))
    bank = daco.NormalBank(X)
    assert bank.bands == 3
    flat = daco.NormalBank(X.reshape(30, 15), bands=3)
    np.testing.assert_array_equal(
        bank.score(query, GRID[:20]), flat.score(query.reshape(4, 15), GRID[:20])
    )
    for wrong in (0, 4, True, 2.0):
        with pytest.raises(daco.DacoError, match="bands"):
            daco.NormalBank(X.reshape(30, 15), bands=wrong)
    with pytest.raises(daco.DacoError, match="X has 3 bands"):
        daco.NormalBank(X, bands=5)


def test_copies_of_clips_do_not_decide_on_the_slope_of_logarithms(rng):
    """One pair of copies among sixty clips used to move alpha from 0.7 to 25."""
    X = rng.normal(size=(60, 24)) + 1
    query = rng.normal(size=(30, 24)) + 1
    copied = np.vstack([X, X[:8]])
    for kernels in KERNELS:
        with use_kernels(kernels):
            for name in ("varmin-log-K4", "varmin-log-K1"):
                before = daco.NormalBank(X.astype(np.float32)).score(query, name)[:, 0]
                after = daco.NormalBank(copied.astype(np.float32)).score(query, name)[:, 0]
                assert np.isfinite(after).all()
                assert np.corrcoef(before, after)[0, 1] > 0.9


def test_duplicates_and_silence_give_finite_scores(rng):
    X = rng.normal(size=(30, 8))
    X[5:12] = X[4]
    X[20] = 0
    bank = daco.NormalBank(X, ["s"] * 24 + ["t"] * 6, bands=2)
    query = np.vstack([X[4], np.zeros(8), X[25], rng.normal(size=8)])
    assert np.isfinite(bank.score(query, GRID)).all()
    assert np.isfinite(bank.leave_one_out(GRID)).all()
