"""PCA residual: what the principal directions of a bank leave over of a clip.

The clips of a bank are scored as if the directions had been fitted without them, exactly. No
fit is repeated for that: taking one clip away changes the members' scatter by a matrix of rank
one, and the variances left are the roots of a secular equation between those there were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daco.errors import NotEnoughClipsError
from daco.method.distances import MEMORY_BUDGET
from daco.method.secular import condensed, secular_roots
from daco.validation import Floats

Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

_NOISE_ULPS = 32  # as for distances: what lies below is rounding of the rows
_LEAST_SHARE = 1e-4  # of a square; the difference of two that leaves less has lost its digits
_LEAST_LEFT = 1e-6  # of what makes some direction, once a clip has gone
_ROWS_AT_ONCE = 1024
_ELEMENTS = 2**18


class Directions(NamedTuple):
    """The mean of some clips and their principal directions, rows of length 1.

    There are fewer directions than were asked for where the clips span fewer.
    """

    mean: Doubles
    basis: Doubles


def require_components(components: int, n_clips: int) -> None:
    """A bank of n clips supports n - 2 directions: each clip is left out once.

    Examples
    --------
    >>> from daco.method.subspace import require_components
    >>> require_components(16, 18)
    """
    if components > n_clips - 2:
        raise NotEnoughClipsError(
            f"{components} principal direction{'s' * (components != 1)} need a bank of "
            f"{components + 2} clips, as each is left out once; this bank has {n_clips}. Add "
            "normal clips or choose fewer directions."
        )


def principal_directions(unit: Floats, components: int) -> Directions:
    """The mean of unit rows (N, D) and their first principal directions, in float64.

    Directions along which the clips differ by rounding alone are none. Where two variances
    are equal at the cut, rounding chooses between them.
    """
    require_components(components, len(unit))
    rounding = _rounding(unit)
    rows = unit.astype(np.float64)
    mean = rows.mean(axis=0)
    centred = rows - mean
    few = len(rows) <= rows.shape[1]
    values, vectors = _descending(centred @ centred.T if few else centred.T @ centred)
    if _too_flat(values, components, len(rows), rounding):
        return Directions(mean, _decomposed(rows, rounding)[3][:components])
    basis = vectors[:, :components]
    return Directions(mean, np.linalg.qr(centred.T @ basis)[0].T if few else basis.T)


def residuals_of(
    directions: Directions, query: Floats, components: Sequence[int]
) -> dict[int, Floats]:
    """What the first d directions leave over of unit rows (n, D): {d: (n,)}."""
    centred = query.astype(np.float64) - directions.mean
    return {d: _rounded(_length_outside(centred, directions.basis[:d]), query) for d in components}


def residuals_against(unit: Floats, query: Floats, components: Sequence[int]) -> dict[int, Floats]:
    """What d principal directions of a bank leave over of new clips.

    Parameters
    ----------
    unit, query : (N, D), (n, D)
        Unit rows of the bank and of the clips.
    components : sequence of int
        The numbers of directions.

    Returns
    -------
    {d: (n,)}
        Length of the part of a clip, less the bank's mean, that is outside the directions.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.subspace import residuals_against
    >>> bank = np.array([[1.0, 0, 0], [0.8, 0.6, 0], [0.8, -0.6, 0]])
    >>> residuals_against(bank, np.array([[0.0, 0, 1.0], [1.0, 0, 0]]), [1])[1].round(3)
    array([1.323, 0.133])
    """
    return residuals_of(principal_directions(unit, max(components)), query, components)


def residuals_within(unit: Floats, members: Bools, components: Sequence[int]) -> dict[int, Floats]:
    """The same for the bank's own clips against subsets of it, (S, N) bool: {d: (S, N)}.

    A clip outside a subset is measured against the subset's directions, a member of it
    against those of the other members.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.subspace import residuals_within
    >>> bank = np.array([[1.0, 0, 0], [0.8, 0.6, 0], [0.8, -0.6, 0], [0, 0, 1]])
    >>> residuals_within(bank, np.ones((1, 4), bool), [1])[1].round(3)
    array([[0.156, 0.867, 0.867, 1.323]])
    """
    orders = sorted(set(components))
    sizes = members.sum(axis=1)
    require_components(orders[-1], int(sizes.min()))
    rounding = _rounding(unit)
    rows = unit.astype(np.float64)
    rows -= rows.mean(axis=0)  # so that products lose no digits to a common mean
    wanted = sizes.min() <= rows.shape[1] and 8 * len(rows) ** 2 <= MEMORY_BUDGET
    products = rows @ rows.T if wanted else None
    out = {d: np.empty(members.shape, unit.dtype) for d in orders}
    for s, member in enumerate(members):
        found = _by_eigenvalues(rows, products, member, orders, rounding)
        if found is None:
            found = _by_singular_values(rows, member, orders, rounding)
        for d, lengths in zip(orders, found, strict=True):
            out[d][s] = _rounded(lengths, unit)
    return out


class _Scatter(NamedTuple):
    """The members' scatter, and what clips look like in its eigenvectors.

    ``weights(part)``, (part, K + 1), are the squares of some members' entries in the singular
    vectors of the K eigenvalues, and what they are short of 1 - 1/m: their weight at 0.
    """

    values: Doubles
    weights: Callable[[slice], Doubles]
    squares: Doubles
    outside_squares: Doubles
    outside_projected: Doubles


def _by_eigenvalues(
    rows: Doubles, products: Doubles | None, member: Bools, orders: list[int], rounding: float
) -> Doubles | None:
    """Residuals (len(orders), N) from the members' scatter; None where squares lose digits."""
    inside, outside = np.flatnonzero(member), np.flatnonzero(~member)
    m, d, columns = len(inside), orders[-1], np.array(orders) - 1
    if m <= rows.shape[1]:
        scatter = _between_clips(rows, products, inside, outside, d)
    else:
        scatter = _between_features(rows, inside, outside, d)
    if _too_flat(scatter.values, d, m, rounding):
        return None
    whole, left = np.empty(len(rows)), np.empty((len(orders), len(rows)))
    whole[outside] = scatter.outside_squares
    explained = np.cumsum(scatter.outside_projected**2, axis=1)
    left[:, outside] = scatter.outside_squares - explained[:, columns].T
    # Without the clip i its distance from the mean grows by m / (m - 1), and the part of it
    # along the j-th direction is 1 / sqrt(mu * slope) at the j-th root mu.
    whole[inside] = scatter.squares * (m / (m - 1)) ** 2
    poles = np.append(np.maximum(scatter.values, 0), 0)
    kept, points, shares = condensed(poles, d)
    poles = np.append(poles[:kept], points)
    dominant = False
    for start in range(0, m, _ROWS_AT_ONCE):
        part = slice(start, min(start + _ROWS_AT_ONCE, m))
        weights = scatter.weights(part)
        dominant |= bool(_dominant(weights, d, m).any())
        weights = np.concatenate([weights[:, :kept], weights[:, kept:] @ shares], axis=1)
        roots = secular_roots(poles, weights, d)
        explained = np.cumsum(1 / ((poles[roots.origin] + roots.offset) * roots.slope), axis=1)
        left[:, inside[part]] = whole[inside[part]] - explained[:, columns].T
    if dominant or (left <= _LEAST_SHARE * whole).any():
        return None
    return np.sqrt(left)


def _between_clips(
    rows: Doubles, products: Doubles | None, inside: Indices, outside: Indices, d: int
) -> _Scatter:
    """Through the products of the clips with each other: no more members than features."""
    m = len(inside)
    if products is None:
        among, across = rows[inside] @ rows[inside].T, rows[inside] @ rows[outside].T
        squares = np.einsum("nd,nd->n", rows[outside], rows[outside])
    else:
        chosen = products[inside]
        among, across = chosen.take(inside, axis=1), chosen.take(outside, axis=1)
        squares = products.diagonal()[outside]
    mean, with_mean = among.mean(axis=0), across.mean(axis=0)
    centre = mean.mean()
    among -= mean
    among -= (mean - centre)[:, None]
    across -= with_mean
    across -= (mean - centre)[:, None]
    values, vectors = _descending(among)
    lengths = np.sqrt(np.maximum(values[:d], np.finfo(float).tiny))

    def weights(part: slice) -> Doubles:
        # The vector of ones is an eigenvector too, but of no direction: its 1/m is taken back.
        return np.pad(vectors[part] ** 2, ((0, 0), (0, 1)), constant_values=-1 / m)

    return _Scatter(
        values,
        weights,
        among.diagonal(),
        squares - 2 * with_mean + centre,
        across.T @ vectors[:, :d] / lengths,
    )


def _between_features(rows: Doubles, inside: Indices, outside: Indices, d: int) -> _Scatter:
    """Through the covariance of the features: more members than features."""
    centred = rows[inside]
    mean = centred.mean(axis=0)
    centred -= mean
    values, vectors = _descending(centred.T @ centred)
    away = rows[outside] - mean
    spanned = values > values[0] * len(values) * np.finfo(float).eps

    def weights(part: slice) -> Doubles:
        shares = (centred[part] @ vectors) ** 2
        shares /= np.where(spanned, values, np.inf)
        return np.column_stack([shares, 1 - 1 / len(inside) - shares.sum(axis=1)])

    return _Scatter(
        values,
        weights,
        np.einsum("nd,nd->n", centred, centred),
        np.einsum("nd,nd->n", away, away),
        away @ vectors[:, :d],
    )


def _by_singular_values(
    rows: Doubles, member: Bools, orders: list[int], rounding: float
) -> Doubles:
    """The same, slower, keeping the digits of clips that the directions nearly reach."""
    inside, outside = np.flatnonzero(member), np.flatnonzero(~member)
    m = len(inside)
    mean, left, lengths, basis = _decomposed(rows[inside], rounding)
    rank = len(basis)
    found = np.empty((len(orders), len(rows)))
    for row, d in enumerate(orders):
        found[row, outside] = _length_outside(rows[outside] - mean, basis[:d])
    squares = left**2
    poles = np.append(lengths**2, 0)
    weights = np.column_stack([squares, 1 - 1 / m - squares.sum(axis=1)])
    roots = secular_roots(poles, weights, max(0, min(orders[-1], rank - 1)))
    step = max(1, _ELEMENTS // roots.gaps.size)
    for start in range(0, m, step):
        part = slice(start, start + step)
        coordinates = left[part] * lengths
        inverse = 1 / roots.less_poles(part)[:, :, :-1]
        # Of the clip, (v . clip) v lies along a direction v: coordinates * inverse, scaled.
        shares = (m - 1) / m / np.einsum("nk,njk->nj", coordinates**2, inverse**2)
        for row, d in enumerate(orders):
            beyond = coordinates * (1 + np.einsum("nj,njk->nk", shares[:, :d], inverse[:, :d]))
            if d >= rank:
                beyond[:, :rank] = 0
            found[row, inside[part]] = np.linalg.norm(beyond, axis=1)
    found[:, inside] *= m / (m - 1)
    for i in inside[_dominant(squares, min(orders[-1], rank), m)]:
        mean, _, _, basis = _decomposed(rows[inside[inside != i]], rounding)
        for row, d in enumerate(orders):
            found[row, i] = _length_outside(rows[i] - mean, basis[:d])
    return found


def _dominant(squares: Doubles, d: int, m: int) -> Bools:
    """Clips that nearly alone make some of the first d directions.

    Taking one away leaves so little that its digits are lost in what it was taken from.
    """
    return 1 - 1 / m - squares[:, :d].sum(axis=1) < _LEAST_LEFT


def _decomposed(rows: Doubles, rounding: float) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Mean and singular value decomposition; fewer directions where clips span fewer.

    Directions along which the clips differ by rounding alone are none.
    """
    mean = rows.mean(axis=0)
    left, lengths, basis = np.linalg.svd(rows - mean, full_matrices=False)
    rank = int((lengths > rounding * np.sqrt(len(rows))).sum())
    return mean, left, lengths, basis[:rank]


def _descending(symmetric: Doubles) -> tuple[Doubles, Doubles]:
    values, vectors = np.linalg.eigh(symmetric)
    return values[::-1], vectors[:, ::-1]


def _too_flat(values: Doubles, d: int, m: int, rounding: float) -> bool:
    """Whether squares are too coarse for the direction after the first d."""
    return d >= len(values) or bool(values[d] <= max(_LEAST_SHARE * values[0], m * rounding**2))


def _length_outside(centred: Doubles, basis: Doubles) -> Doubles:
    return np.linalg.norm(centred - centred @ basis.T @ basis, axis=-1)


def _rounding(unit: Floats) -> float:
    return _NOISE_ULPS * float(np.finfo(unit.dtype).eps)


def _rounded(lengths: Doubles, unit: Floats) -> Floats:
    return np.where(lengths < _rounding(unit), 0, lengths).astype(unit.dtype)
