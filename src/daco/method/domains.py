"""Stage 1: which domain a clip belongs to.

The paper's soft and hard weights, oracle weights, the weights of the decision, and separability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.validation import Float64s, Floats, Indices

TEMPERATURE_FLOOR = 1e-12
"""A bank of copies has a typical distance of 0; softmax needs a positive temperature."""

_PRIOR = 10  # clips: the weight of the common variance beside that of a domain
_VARIANCE_FLOOR = 1e-9


def soft_weights(domain_distance: ArrayLike, temperature: ArrayLike) -> Float64s:
    """Compute the softmax of ``-distance / temperature`` over the domains.

    Parameters
    ----------
    domain_distance : (..., G, n)
        Distance of each clip to its nearest normal in each of G domains.
    temperature : float or (...)
        The typical distance; the paper uses the median leave-one-out score.

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
    return softmax(farther / -scale[..., None, None])


def softmax(logits: Float64s) -> Float64s:
    """Shares of domains, (..., G, n), that are proportional to the exponential of these values."""
    shares = np.exp(logits - logits.max(axis=-2, keepdims=True))
    shares /= shares.sum(axis=-2, keepdims=True)
    return shares


def hard_weights(domain_distance: ArrayLike) -> Float64s:
    """Give weight 1 to the nearest domain, (..., G, n); a tie goes to the first in name order.

    Examples
    --------
    >>> from daco.method.domains import hard_weights
    >>> hard_weights([[0.1, 0.4], [0.3, 0.4]])
    array([[1., 1.],
           [0., 0.]])
    """
    distance = np.asarray(domain_distance)
    return oracle_weights(distance.argmin(axis=-2), distance.shape[-2])


def oracle_weights(domain_codes: ArrayLike, n_domains: int) -> Float64s:
    """Give weight 1 to the true domain, (..., G, n), as a diagnostic: new clips have none known.

    Examples
    --------
    >>> from daco.method.domains import oracle_weights
    >>> oracle_weights([0, 1, 1], 2)
    array([[1., 0., 0.],
           [0., 1., 1.]])
    """
    codes = np.asarray(domain_codes)
    return (codes[..., None, :] == np.arange(n_domains)[:, None]).astype(np.float64)


def separability(domain_distance: ArrayLike, domain_codes: ArrayLike) -> float:
    """Compute the share of clips whose nearest other clip is of their domain, mean over domains.

    0.5 means that two domains look the same, 1 that they never mix.

    Parameters
    ----------
    domain_distance : (G, n)
        Distance of each training clip to its nearest *other* clip in each domain; inf if a domain
        has no other clip.
    domain_codes : (n,)
        The true domain of each clip.

    Examples
    --------
    >>> from daco.method.domains import separability
    >>> separability([[0.1, 0.2, 0.9], [0.5, 0.1, 0.3]], [0, 0, 1])
    0.75
    """
    distance, codes = np.asarray(domain_distance), np.asarray(domain_codes)
    if distance.ndim != 2 or codes.shape != distance.shape[1:]:
        raise InputError(
            f"domain_distance must be (domains, clips) with one domain code per clip. Got shapes "
            f"{distance.shape} and {codes.shape} instead."
        )
    right = distance.argmin(axis=0) == codes
    return float(np.mean([right[codes == code].mean() for code in np.unique(codes)]))


@dataclass(frozen=True, eq=False)
class DomainDistances:
    """How far n clips are from G domains in one view.

    Attributes
    ----------
    nearest, tenth : (G, n)
        Distance to the nearest normal of each domain, and the 10 % quantile of the distances to
        its normals.
    """

    nearest: Float64s
    tenth: Float64s

    @classmethod
    def of(cls, distances: Floats, starts: Indices) -> DomainDistances:
        """Summarise the distances (n, N) of clips to the normals, infinite where one is hidden."""
        parts = [distances[:, a:b] for a, b in pairwise(starts)]
        nearest = np.array([part.min(axis=1) for part in parts], np.float64)
        tenth = np.array([tenth_distances(part) for part in parts], np.float64)
        # A clip that is alone in its domain: its nearest normal stands in.
        stand_in = nearest.min(axis=0)
        return cls(
            np.where(np.isfinite(nearest), nearest, stand_in),
            np.where(np.isfinite(tenth), tenth, stand_in),
        )


def tenth_distances(distances: Floats) -> Floats:
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


class DecisionWeights:
    """The weights of the decision, fitted to the normals of a bank in one view.

    A clip belongs to a domain in proportion to the paper's soft weight times how usual its
    distances to every domain are among that domain's own normals. The soft weight alone favours the
    domain with more clips, and takes clips of a wide domain for clips of a dense one.

    Parameters
    ----------
    normals : DomainDistances
        Of some normals, each left out.
    codes : (n,)
        The domains of these.
    """

    def __init__(self, normals: DomainDistances, codes: Indices) -> None:
        domains = range(len(normals.nearest))
        members = [codes == g for g in domains]
        typical = [np.median(normals.nearest[g, members[g]]) for g in domains]
        self._temperature = max(float(np.mean(typical)), TEMPERATURE_FLOOR)
        logs = _logs(normals.tenth)
        self._means = np.array([logs[:, rows].mean(axis=1) for rows in members])
        squares = np.array([logs[:, rows].var(axis=1) * rows.sum() for rows in members])
        sizes = np.array([rows.sum() for rows in members])[:, None]
        common = squares.sum(axis=0) / sizes.sum()
        self._variances = (squares + _PRIOR * common) / (sizes + _PRIOR) + _VARIANCE_FLOOR

    def logits(self, clips: DomainDistances) -> Float64s:
        """The logarithm of the weights of clips (G, n), up to a constant for each clip."""
        variances = self._variances[..., None]
        deviations = _logs(clips.tenth) - self._means[..., None]
        usual = -0.5 * (deviations**2 / variances + np.log(variances)).sum(axis=1)
        return usual - clips.nearest / self._temperature


def decision_weights(
    models: Sequence[DecisionWeights], clips: Sequence[DomainDistances]
) -> Float64s:
    """How strongly clips belong to the domains, (n, G), from the models and clips of all views."""
    logits = [model.logits(view) for model, view in zip(models, clips, strict=True)]
    return softmax(np.mean(logits, axis=0)).T


def _logs(distances: Float64s) -> Float64s:
    return np.log(np.maximum(distances, TEMPERATURE_FLOOR))
