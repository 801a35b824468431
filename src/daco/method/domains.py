"""Stage 1: which domain a clip belongs to. Soft, hard and oracle weights; separability."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.method.kernels import Array, as_array, kernels

TEMPERATURE_FLOOR = 1e-12
"""A bank of duplicates has a typical distance of 0; softmax needs a positive temperature."""


def soft_weights(domain_distance: Array, temperature: Array) -> Array:
    """Compute the softmax of ``-distance / temperature`` over the domains.

    Parameters
    ----------
    domain_distance : (..., G, n)
        Distance of each clip to its nearest normal in each of G domains.
    temperature : float or (...)
        The typical distance; the paper uses the median leave-one-out score.

    Returns
    -------
    (..., G, n)

    Examples
    --------
    >>> from daco.method.domains import soft_weights
    >>> soft_weights([[0.1, 0.4], [0.3, 0.4]], temperature=0.1).round(3)
    array([[0.881, 0.5  ],
           [0.119, 0.5  ]])
    """
    distance = as_array(domain_distance)
    K = kernels(distance)
    scale = K.double(as_array(temperature)).clip(min=TEMPERATURE_FLOOR)
    logits = K.double(distance) / -scale[..., None, None]
    logits -= K.xp.amax(logits, -2)[..., None, :]
    weights = K.xp.exp(logits, out=logits)
    weights /= weights.sum(-2)[..., None, :]
    return weights


def hard_weights(domain_distance: Array) -> Array:
    """Give weight 1 to the nearest domain; a tie goes to the first in name order.

    Parameters
    ----------
    domain_distance : array-like of shape (G, n)
        Distance of each clip to the nearest normal of each domain.

    Returns
    -------
    array of shape (G, n)

    Examples
    --------
    >>> from daco.method.domains import hard_weights
    >>> hard_weights([[0.1, 0.4], [0.3, 0.4]])
    array([[1., 1.],
           [0., 0.]])
    """
    distance = as_array(domain_distance)
    return _one_hot(distance.argmin(-2), distance.shape[-2])


def oracle_weights(domain_codes: ArrayLike, n_domains: int) -> Array:
    """Give weight 1 to the true domain, as a diagnostic: new clips have no known domain.

    Parameters
    ----------
    domain_codes : integer array of shape (n,)
        Index of the domain of each clip.
    n_domains : int

    Returns
    -------
    array of shape (G, n)

    Examples
    --------
    >>> from daco.method.domains import oracle_weights
    >>> oracle_weights([0, 1, 1], 2)
    array([[1., 0., 0.],
           [0., 1., 1.]])
    """
    return _one_hot(np.asarray(domain_codes), n_domains)


def separability(domain_distance: Array, domain_codes: ArrayLike) -> Any:
    """Compute the share of clips whose nearest other clip is of their domain, mean over domains.

    0.5 means that two domains look the same, 1 that they never mix.

    Parameters
    ----------
    domain_distance : (..., G, n)
        Distance of each training clip to its nearest *other* clip in each domain; inf if a domain
        has no other clip.
    domain_codes : (n,)
        The true domain of each clip.

    Returns
    -------
    (...) float

    Examples
    --------
    >>> from daco.method.domains import separability
    >>> float(separability([[0.1, 0.2, 0.9], [0.5, 0.1, 0.3]], [0, 0, 1]))
    0.75
    """
    distance, codes = as_array(domain_distance), np.asarray(domain_codes)
    if distance.ndim < 2 or codes.shape != tuple(distance.shape[-1:]):
        raise InputError(
            f"domain_distance must be (domains, clips) with one domain code per clip. Got shapes "
            f"{tuple(distance.shape)} and {codes.shape} instead."
        )
    K = kernels(distance)
    right = K.double(distance.argmin(-2) == K.from_host(codes, distance))
    shares = [right[..., np.flatnonzero(codes == g)].mean(-1) for g in np.unique(codes)]
    return sum(shares) / len(shares)


def _one_hot(codes: Array, n_domains: int) -> Array:
    K = kernels(codes)
    numbers = K.from_host(np.arange(n_domains)[:, None], codes)
    return K.double(codes[..., None, :] == numbers)
