"""The blend: the mean of four density-corrected scores over all views of a clip.

Each member turns its score into a normal score, by its rank among the leave-one-out scores that it
gives to the normals: 0 is their median, 1 a standard deviation. The blend is the mean over the
members of a view, then over views. It is a base score like any other, so that every calibration,
decision and criterion works on top of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from daco.method.calibration import Support, median
from daco.method.config import BLEND_MEMBERS, Base
from daco.method.scores import clips_needed
from daco.validation import Float64s, Floats

TAIL_LIMIT = 9.0
"""Limit of a member's tail, so that one member cannot outweigh the others."""


def blend_members(n_clips: int) -> tuple[Base, ...]:
    """List the members that a bank of `n_clips` supports.

    Examples
    --------
    >>> from daco.method.blend import blend_members
    >>> [base.name for base in blend_members(10)]
    ['ldn-ratio-K1', 'ldn-mean-K4', 'varmin-K4']
    """
    return tuple(base for base in BLEND_MEMBERS if clips_needed(base) <= n_clips)


def view_blend(scores: Sequence[Floats], supports: Sequence[Support]) -> Float64s:
    """Mean normal score (S, n) over the members of a view that have a scale, or over all."""
    ascending = [support.pooled for support in supports]
    normal = [normal_scores(row, each) for row, each in zip(ascending, scores, strict=True)]
    counts = np.array([row[:, -1] > median(row)[:, 0] for row in ascending])
    counts |= ~counts.any(axis=0)
    weighted = np.array(normal) * counts[:, :, None]
    return weighted.sum(axis=0) / counts.sum(axis=0)[:, None]


def normal_scores(ascending: Floats, scores: Floats) -> Float64s:
    """Scale scores (S, n) by those of the normals (S, N): 0 is the median, 1 a standard deviation.

    A score has the normal quantile of its mid-rank among the ascending scores of the normals. Above
    the largest it rises further, by up to `TAIL_LIMIT`. Scores of normals without a scale, whose
    median is the largest, give 0.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.blend import normal_scores
    >>> normal_scores(np.array([[1.0, 2.0, 3.0]]), np.array([[2.0, 2.5, 4.0]])).round(2)
    array([[0.  , 0.32, 2.05]])
    """
    quantiles = _quantiles(ascending.shape[1])
    result = np.empty(scores.shape)
    for row, values, into in zip(ascending, scores, result, strict=True):
        into[:] = quantiles[row.searchsorted(values) + row.searchsorted(values, "right")]
    largest = ascending[:, -1:].astype(np.float64)
    scale = largest - median(ascending)
    excess = np.maximum(scores - largest, 0)
    tail = excess / np.where(scale > 0, scale, 1)
    tail = TAIL_LIMIT * tail / (TAIL_LIMIT + tail)
    no_scale = np.where(excess > 0, TAIL_LIMIT, 0.0)
    return np.where(scale > 0, result + tail, no_scale)


@lru_cache(maxsize=8)
def _quantiles(n: int) -> Float64s:
    """The normal quantile of every mid-rank, 0 to n in steps of a half, among n scores."""
    from scipy.special import ndtri

    quantiles: Float64s = ndtri((np.arange(2 * n + 1) + 1) / (2 * n + 2))
    return quantiles
