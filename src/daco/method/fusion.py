"""Z-MIN: several scores in one, each standardised by what normals score when left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from daco.validation import Floats

_SPREAD_FLOOR = 1e-12


def fused(
    own: Sequence[Floats], members: NDArray[np.bool_], scores: Sequence[Floats]
) -> NDArray[np.float64]:
    """The smallest of several standardised scores.

    A clip has to look odd to every scorer before it counts as odd.

    Parameters
    ----------
    own : one (S, N) per scorer
        Leave-one-out scores of the bank's clips; only those of members count.
    members : (S, N) bool
    scores : one (S, n) per scorer
        What is fused.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.fusion import fused
    >>> own = [np.array([[0.0, 2.0]]), np.array([[10.0, 30.0]])]
    >>> fused(own, np.ones((1, 2), bool), [np.array([[3.0]]), np.array([[25.0]])])
    array([[0.5]])
    """
    counts = members.sum(axis=1, keepdims=True)
    smallest = np.full(scores[0].shape, np.inf)
    for normal, score in zip(own, scores, strict=True):
        inside = np.where(members, normal, 0).astype(np.float64)
        mean = inside.sum(axis=1, keepdims=True) / counts
        deviation = np.where(members, inside - mean, 0)
        spread = np.sqrt((deviation**2).sum(axis=1, keepdims=True) / counts)
        np.minimum(smallest, (score - mean) / np.maximum(spread, _SPREAD_FLOOR), out=smallest)
    return smallest
