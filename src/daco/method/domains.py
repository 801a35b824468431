"""Stage 1: which domain a clip belongs to.

The paper's soft and hard weights, oracle weights, and the weights of the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daco.validation import Float64s, Floats, Indices

TEMPERATURE_FLOOR = 1e-12
"""A bank of copies has a typical distance of 0; softmax needs a positive temperature."""

_PRIOR = 10  # clips: the weight of the common variance beside that of a domain
_VARIANCE_FLOOR = 1e-9


def soft_weights(domain_distance: ArrayLike, temperature: ArrayLike) -> Float64s:
    """Compute the softmax (..., G, n) of ``-distance / temperature`` over the domains.

    The distance (..., G, n) is that of each clip to its nearest normal in each of G domains; the
    temperature (...) is the typical distance, in the paper the median leave-one-out score.

    Examples
    --------
    >>> from daco.method.domains import soft_weights
    >>> soft_weights([[0.1, 0.4], [0.3, 0.4]], temperature=0.1).round(3)
    array([[0.881, 0.5  ],
           [0.119, 0.5  ]])
    """
    scale = np.maximum(np.asarray(temperature, np.float64), TEMPERATURE_FLOOR)
    distance = np.asarray(domain_distance, np.float64)
    farther = distance - distance.min(axis=-2, keepdims=True)  # exact where the scale is tiny
    return _softmax(farther / -scale[..., None, None])


def hard_weights(domain_distance: ArrayLike) -> Float64s:
    """Give weight 1 to the nearest domain, (..., G, n); a tie goes to the first in name order."""
    distance = np.asarray(domain_distance)
    return oracle_weights(distance.argmin(axis=-2), distance.shape[-2])


def oracle_weights(domain_codes: ArrayLike, n_domains: int) -> Float64s:
    """Give weight 1 to the true domain, (..., G, n), as a diagnostic: new clips have none known."""
    codes = np.asarray(domain_codes)
    return (codes[..., None, :] == np.arange(n_domains)[:, None]).astype(np.float64)


class DecisionWeights:
    """The weights of the decision, fitted to normals of domains `codes` in each view.

    A clip belongs to a domain in proportion to the paper's soft weight times how usual its
    distances to every domain are among that domain's own normals. The soft weight alone favours the
    domain with more clips, and takes clips of a wide domain for clips of a dense one. Distances
    (n, N) are to all normals, infinite to itself; domain g is columns ``starts[g]:starts[g + 1]``.
    """

    def __init__(self, distances: Sequence[Floats], codes: Indices, starts: Indices) -> None:
        self._starts = starts
        self._views = [_fit(*_domain_distances(each, starts), codes) for each in distances]

    def of(self, distances: Sequence[Floats]) -> Float64s:
        """The weights (n, G) of clips by their distances (n, N) in each view."""
        logits = []
        for view, each in zip(self._views, distances, strict=True):
            nearest, tenth = _domain_distances(each, self._starts)
            deviations = np.log(tenth) - view.means
            usual = -0.5 * (deviations**2 / view.variances + np.log(view.variances)).sum(axis=1)
            logits.append(usual - nearest / view.temperature)
        return _softmax(np.mean(logits, axis=0)).T


class _ViewWeights(NamedTuple):
    """The typical nearest distance, and the log distances (G, G, 1) of each domain's normals."""

    temperature: float
    means: Float64s
    variances: Float64s


def _fit(nearest: Float64s, tenth: Float64s, codes: Indices) -> _ViewWeights:
    members = [codes == g for g in range(len(nearest))]
    typical = [np.median(nearest[g, rows]) for g, rows in enumerate(members)]
    logs = np.log(tenth)
    means = np.array([logs[:, rows].mean(axis=1) for rows in members])
    squares = np.array([logs[:, rows].var(axis=1) * rows.sum() for rows in members])
    sizes = np.array([rows.sum() for rows in members])[:, None]
    common = squares.sum(axis=0) / sizes.sum()
    variances = (squares + _PRIOR * common) / (sizes + _PRIOR) + _VARIANCE_FLOOR
    temperature = max(float(np.mean(typical)), TEMPERATURE_FLOOR)
    return _ViewWeights(temperature, means[..., None], variances[..., None])


def _domain_distances(distances: Floats, starts: Indices) -> tuple[Float64s, Float64s]:
    """Distance (G, n) to the nearest normal of each domain, and the 10 % quantile of distances.

    Where all of a domain is hidden, the nearest normal stands in.
    """
    parts = [distances[:, a:b] for a, b in pairwise(starts)]
    nearest = np.array([part.min(axis=1) for part in parts], np.float64)
    tenth = np.array([_tenth(part) for part in parts], np.float64)
    stand_in = nearest.min(axis=0)
    nearest = np.where(np.isfinite(nearest), nearest, stand_in)
    tenth = np.where(np.isfinite(tenth), tenth, stand_in)
    return nearest, np.maximum(tenth, TEMPERATURE_FLOOR)


def _tenth(distances: Floats) -> Floats:
    """The 10 % quantile of the finite values of each row, interpolated."""
    finite = np.isfinite(distances).sum(axis=1)
    position = 0.1 * np.maximum(finite - 1, 0)
    low = position.astype(np.intp)
    count = min(int(low.max()) + 2, distances.shape[1])
    nearest = np.sort(np.partition(distances, count - 1, axis=1)[:, :count], axis=1)
    rows, high = np.arange(len(distances)), np.minimum(low + 1, count - 1)
    below, share = nearest[rows, low], position - low
    with np.errstate(invalid="ignore"):  # nothing is finite
        return np.where(share > 0, below + share * (nearest[rows, high] - below), below)


def _softmax(logits: Float64s) -> Float64s:
    """Shares of domains, (..., G, n), that are proportional to the exponential of these values."""
    shares = np.exp(logits - logits.max(axis=-2, keepdims=True))
    shares /= shares.sum(axis=-2, keepdims=True)
    return shares
