"""Stage 2: making scores of different domains comparable.

Per-domain quantile maps shrunk toward the pooled map, median ratios and z-scores. Arrays have a
leading axis of S banks: one bank, or the halves of one in the splits of the criterion.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from daco.method.config import Base, ScoreConfig
from daco.validation import Float64s, Floats, Indices

_TAIL_FLOOR = 1e-9
_SPREAD_FLOOR = 1e-12


class Support:
    """Leave-one-out scores (S, N); domain g is columns ``starts[g]:starts[g + 1]``."""

    def __init__(self, scores: Floats, starts: Indices) -> None:
        self.scores = scores.astype(np.float64)
        self.starts = starts

    @cached_property
    def pooled(self) -> Float64s:
        """Sorted scores of all domains."""
        return np.sort(self.scores, axis=1)

    @cached_property
    def domains(self) -> list[Float64s]:
        """Sorted scores of each domain."""
        return [np.sort(self.scores[:, a:b], axis=1) for a, b in pairwise(self.starts)]

    @cached_property
    def typical(self) -> Float64s:
        """The median of all scores, (S,)."""
        return median(self.pooled)[:, 0]


class CalibratedScores:
    """The calibrations of scores (S, n), `signed` if these may be negative; maps are kept."""

    def __init__(self, scores: Floats, support: Support, signed: bool) -> None:
        self._scores = scores.astype(np.float64)
        self._support = support
        self._signed = signed

    def calibrate(self, config: ScoreConfig, weights: Float64s) -> Float64s:
        """Mix the maps of the domains by the weights (S, G, n) of the clips: (S, n)."""
        parts = self._support.domains
        if config.calibration == "conf":
            maps = self._shrunk(float(config.m))
        elif config.calibration == "ratio":
            medians = np.stack([median(part) for part in parts], axis=1)
            maps = self._scores[:, None] / np.maximum(medians, _SPREAD_FLOOR)
        else:
            # One clip has no spread of its own: the pooled spread stands in for it.
            wide = [part if part.shape[1] > 1 else self._support.pooled for part in parts]
            means = np.stack([part.mean(axis=1) for part in parts], axis=1)[..., None]
            spreads = np.stack([part.std(axis=1) for part in wide], axis=1)[..., None]
            maps = (self._scores[:, None] - means) / (spreads + _SPREAD_FLOOR)
        return np.einsum("sgn,sgn->sn", weights, maps)

    def _shrunk(self, m: float) -> Float64s:
        """Maps (S, G, n) of the domains, shrunk toward the pooled one by the weight of m clips."""
        if m == 0:
            return self._domain_maps
        sizes = np.diff(self._support.starts)[:, None].astype(np.float64)
        return (sizes * self._domain_maps + m * self._pooled_map) / (sizes + m)

    @cached_property
    def _domain_maps(self) -> Float64s:
        parts = self._support.domains
        return np.stack([quantile_maps(p, self._scores, self._signed) for p in parts], axis=1)

    @cached_property
    def _pooled_map(self) -> Float64s:
        """(S, 1, n)."""
        return quantile_maps(self._support.pooled, self._scores, self._signed)[:, None]


def quantile_maps(ascending: Float64s, scores: Float64s, signed: bool) -> Float64s:
    """Map row s of `scores` (S, n) by the quantile map of row s of the sorted scores (S, N).

    The i-th of n sorted scores maps to i/(n+1), linearly in between. Below the smallest the map
    falls to 0 at score 0; above the largest a rational tail keeps the order and approaches 1. For
    signed scores, a tail of the same kind below the smallest approaches 0.
    """
    n_subsets, n = ascending.shape
    smallest, largest, middle = ascending[:, :1], ascending[:, -1:], median(ascending)
    knots = np.empty((n_subsets, n + 1))
    knots[:, :1] = smallest if signed else np.minimum(smallest, 0.0)
    knots[:, 1:] = ascending
    levels = np.arange(n + 1) / (n + 1)
    mapped = np.empty(scores.shape)
    for row in range(n_subsets):
        mapped[row] = np.interp(scores[row], knots[row], levels)
    excess = np.maximum(scores - largest, 0)
    scale = np.maximum(largest - middle, _TAIL_FLOOR)
    mapped += (1 - levels[-1]) * (excess / (excess + scale))
    if signed:
        missing = np.maximum(smallest - scores, 0)
        scale = np.maximum(middle - smallest, _TAIL_FLOOR)
        mapped = np.where(missing > 0, scale / (scale + missing) / (n + 1), mapped)
    return mapped


def temperature_base(base: Base) -> Base:
    """The base score whose typical leave-one-out score is the temperature of soft weights.

    For k nearest normals and the LDN ratio it is the base itself, as in the paper. Others are not
    on the scale of a distance and use the nearest normal. The LDN ratio's is about 1, as
    published, which leaves the weights nearly uniform.
    """
    return base if base.scorer in ("knn", "ldn-ratio") else Base("knn", 1)


def median(ascending: Floats) -> Float64s:
    """(S, 1) medians of sorted rows."""
    n = ascending.shape[1]
    low, high = ascending[:, (n - 1) // 2, None], ascending[:, n // 2, None].astype(np.float64)
    return (low + high) / 2
