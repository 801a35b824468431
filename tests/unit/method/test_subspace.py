"""PCA residuals: the leave-one-out shortcut is the refit, also where banks are degenerate."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_scorers as textbook
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import shared

from daco.errors import NotEnoughClipsError
from daco.method import subspace
from daco.method.distances import unit_rows
from daco.method.kernels import use_kernels
from daco.method.secular import condensed, secular_roots
from daco.method.subspace import (
    principal_directions,
    require_components,
    residuals_against,
    residuals_of,
    residuals_within,
)

KINDS = ["random", "offset", "steep", "clustered", "low rank", "duplicated", "one apart", "silent"]


def bank_of(kind, rng, n, dim):
    X = rng.standard_normal((n, dim))
    if kind == "offset":  # all cosines near 1, as in real embeddings
        X += 6
    elif kind == "steep":  # variances over nine decades, beyond what squares resolve
        X *= 10.0 ** -np.linspace(0, 4.5, dim)
    elif kind == "clustered":
        X = X[rng.integers(0, 4, n)] + 0.01 * rng.standard_normal((n, dim))
    elif kind == "low rank":
        X = rng.standard_normal((n, 3)) @ rng.standard_normal((3, dim))
    elif kind == "duplicated":
        X = X[rng.integers(0, n // 2, n)]
    elif kind == "one apart":  # and all others in three dimensions
        X[1:] = rng.standard_normal((n - 1, 3)) @ rng.standard_normal((3, dim))
    elif kind == "silent":
        X[rng.integers(0, n, 3)] = 0
    return unit_rows(X)


def subsets(rng, n, smallest):
    halves = np.zeros((2, n), bool)
    for half in halves:
        half[rng.permutation(n)[: max(smallest, n // 2)]] = True
    return np.concatenate([np.ones((1, n), bool), halves])


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(KINDS),
    st.integers(16, 30),
    st.sampled_from([1, 2, 3, 9, 30, 90]),
)
def test_residuals_within_are_those_of_a_fit_without_the_clip(seed, kind, n, dim):
    rng = np.random.default_rng(seed)
    unit = bank_of(kind, rng, n, dim)
    components = [1, 2, 5, 12]
    members = subsets(rng, n, 14)
    found = residuals_within(unit, members, components)
    for d in components:
        for residuals, member in zip(found[d], members, strict=True):
            expected = textbook.pca_within(unit, member, d)
            # Which of two directions that vary alike is taken, rounding decides. That of the
            # rows themselves is 1e-13.
            clear = [
                textbook.gap_at_the_cut(unit[textbook.others(member, i)], d) > 3e-5
                for i in range(n)
            ]
            np.testing.assert_allclose(residuals[clear], expected[clear], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(40, 9), (20, 64)])
def test_residuals_against_are_the_textbook_ones(rng, kind, shape):
    unit, query = bank_of(kind, rng, *shape), unit_rows(rng.standard_normal((7, shape[1])))
    found = residuals_against(unit, query, [1, 4, 12])
    for d, residuals in found.items():
        expected = [textbook.pca_residual(unit, clip, d) for clip in query]
        np.testing.assert_allclose(residuals, expected, rtol=1e-9, atol=1e-13)


def test_a_clip_that_is_no_member_is_scored_as_a_new_clip(rng):
    unit = bank_of("offset", rng, 50, 20)
    member = np.arange(50) < 30
    within = residuals_within(unit, member[None], [3])[3][0]
    np.testing.assert_allclose(
        within[30:], residuals_against(unit[:30], unit[30:], [3])[3], rtol=1e-12
    )


def test_directions_are_fitted_once_for_many_clips(rng):
    unit, query = bank_of("random", rng, 40, 12), bank_of("random", rng, 9, 12)
    directions = principal_directions(unit, 5)
    np.testing.assert_allclose(directions.basis @ directions.basis.T, np.eye(5), atol=1e-12)
    for d, residuals in residuals_of(directions, query, [2, 5]).items():
        np.testing.assert_allclose(residuals, residuals_against(unit, query, [d])[d], rtol=1e-12)


def test_real_clips_left_out_of_a_real_bank():
    data = np.load(shared("real", "embeddings", "fan_mn04.npz"))
    train = np.array(["_train_" in str(name) for name in data["file_name"]])
    unit = unit_rows(data["embedding"][train].astype(np.float64))
    rng = np.random.default_rng(0)
    members = np.stack([np.ones(len(unit), bool), rng.random(len(unit)) < 0.5])
    found = residuals_within(unit, members, [16, 64])
    for s, member in enumerate(members):
        for i in rng.integers(0, len(unit), 4):
            others = member & (np.arange(len(unit)) != i)
            for d in (16, 64):
                expected = textbook.pca_residual(unit[others], unit[i], d)
                assert found[d][s, i] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["offset", "clustered"])
def test_squares_and_singular_values_agree(rng, monkeypatch, kind):
    unit = bank_of(kind, rng, 60, 40)
    members = subsets(rng, 60, 30)
    fast = residuals_within(unit, members, [2, 7])
    monkeypatch.setattr(subspace, "_by_eigenvalues", lambda *_: None)
    careful = residuals_within(unit, members, [2, 7])
    for d in fast:
        np.testing.assert_allclose(fast[d], careful[d], rtol=1e-9)


def test_a_bank_too_large_for_all_products_at_once(rng, monkeypatch):
    unit = bank_of("offset", rng, 60, 80)
    members = subsets(rng, 60, 30)
    kept = residuals_within(unit, members, [3])[3]
    monkeypatch.setattr(subspace, "MEMORY_BUDGET", 0)
    monkeypatch.setattr(subspace, "_ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(residuals_within(unit, members, [3])[3], kept, rtol=1e-12)


def test_single_precision_in_single_precision_out(rng):
    unit = bank_of("offset", rng, 40, 20)
    single = unit_rows(unit.astype(np.float32))
    members = np.ones((1, 40), bool)
    found = residuals_within(single, members, [4])[4]
    assert found.dtype == residuals_against(single, single, [4])[4].dtype == np.float32
    # float64 inside: only the rows themselves are rounded.
    exact = residuals_within(single.astype(np.float64), members, [4])[4]
    np.testing.assert_allclose(found, exact, rtol=1e-7)


def test_compiled_and_numpy_give_the_same_bits(rng):
    for kind in KINDS:
        unit = bank_of(kind, rng, 50, 24)
        members, found = subsets(rng, 50, 25), []
        for name in ("numba", "numpy"):
            with use_kernels(name):
                found.append(residuals_within(unit, members, [1, 6]))
        assert all((found[0][d] == found[1][d]).all() for d in (1, 6))


def test_clips_that_are_all_equal_leave_nothing_over():
    unit = unit_rows(np.repeat([[3.0, 4.0, 12.0]], 20, axis=0))
    assert (residuals_within(unit, np.ones((1, 20), bool), [1, 4])[4] == 0).all()
    assert residuals_against(unit, np.array([[1.0, 0, 0]]), [4])[4] == pytest.approx(
        np.linalg.norm(unit[0] - [1, 0, 0])
    )


def test_a_clip_alone_in_its_direction_is_measured_along_it():
    unit = np.zeros((20, 3))
    angles = np.linspace(-0.1, 0.1, 19)
    unit[:19, 0], unit[:19, 1], unit[19, 2] = np.cos(angles), np.sin(angles), 1
    residual = residuals_within(unit, np.ones((1, 20), bool), [2, 3, 9])
    for d in (2, 3, 9):
        # The others' plane is 1 away. The clip had 1e5 times the variance that is left without
        # it, and its removal costs as many ulp.
        assert residual[d][0, 19] == pytest.approx(1, rel=1e-10)
        assert (residual[d][0, :19] < (0.02 if d == 2 else 1e-13)).all()


def test_more_directions_than_clips_support_are_refused():
    require_components(3, 5)
    with pytest.raises(NotEnoughClipsError, match="4 principal directions need a bank of 6 clips"):
        require_components(4, 5)
    unit = np.eye(5)
    with pytest.raises(NotEnoughClipsError, match="this bank has 5"):
        residuals_against(unit, unit, [2, 4])
    members = np.array([[True] * 5, [True] * 4 + [False]])
    with pytest.raises(NotEnoughClipsError, match="this bank has 4"):
        residuals_within(unit, members, [3])


def test_rotating_the_features_changes_no_residual(rng):
    unit = bank_of("offset", rng, 40, 15)
    turn = np.linalg.qr(rng.standard_normal((15, 15)))[0]
    members = subsets(rng, 40, 20)
    np.testing.assert_allclose(
        residuals_within(unit @ turn, members, [4])[4],
        residuals_within(unit, members, [4])[4],
        rtol=1e-10,
    )


def test_more_directions_never_leave_more_over(rng):
    unit = bank_of("offset", rng, 40, 15)
    found = residuals_within(unit, subsets(rng, 40, 20), list(range(1, 16)))
    for d in range(1, 15):
        # A clip left out changes which directions are the first ones, but they are nested.
        assert (found[d + 1] <= found[d] + 1e-12).all()


def equations(rng, n, n_poles, kind):
    poles = np.sort(rng.exponential(size=n_poles))[::-1].copy()
    weights = rng.standard_normal((n, n_poles)) ** 2
    if kind == "equal poles":
        poles[2:5] = poles[2]
    elif kind == "no weight":
        weights[:, 1:4] = 0
    elif kind == "wide":
        poles = 10.0 ** -np.linspace(0, 12, n_poles)
        weights *= 10.0 ** rng.uniform(-20, 0, weights.shape)
    return poles, weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["random", "equal poles", "no weight", "wide"])
@pytest.mark.parametrize("name", ["numba", "numpy"])
def test_secular_roots_are_eigenvalues(rng, kind, name):
    """Of diag(poles) on the space that is orthogonal to the roots of the weights."""
    poles, weights = equations(rng, 12, 15, kind)
    with use_kernels(name):
        roots = secular_roots(poles, weights, 8)
    for i, weight in enumerate(weights):
        across = np.linalg.svd(np.sqrt(weight)[None])[2][1:]
        expected = np.linalg.eigvalsh(across * poles @ across.T)[::-1][:8]
        found = poles[roots.origin[i]] + roots.offset[i]
        np.testing.assert_allclose(found, expected, atol=1e-14)
        interlaced = (poles[1:9] <= found) & (found <= poles[:8])
        assert interlaced.all()


@pytest.mark.parametrize("d", [3, 10])
def test_condensed_poles_have_the_same_roots(rng, d):
    poles, weights = equations(rng, 30, 400, "random")
    kept, points, shares = condensed(poles, d)
    assert d < kept
    assert kept + len(points) < 100
    few = np.concatenate([weights[:, :kept], weights[:, kept:] @ shares], axis=1)
    whole = secular_roots(poles, weights, d)
    part = secular_roots(np.append(poles[:kept], points), few, d)
    assert (whole.origin == part.origin).all()
    np.testing.assert_allclose(part.offset, whole.offset, rtol=1e-10)
    np.testing.assert_allclose(part.slope, whole.slope, rtol=1e-10)


@pytest.fixture
def rng():
    return np.random.default_rng(7)
