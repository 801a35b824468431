"""Stage 2: making scores of different domains comparable.

Per-domain quantile maps shrunk toward the pooled map, median ratios and z-scores. Arrays have a
leading axis of S banks: one bank, or the halves of one in the splits of the criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from daco.method.config import Base, ScoreConfig
from daco.validation import Float64s, Floats, Indices

_TAIL_FLOOR = 1e-9
_SPREAD_FLOOR = 1e-12


def quantile_maps(ascending: Float64s, scores: Float64s, signed: bool) -> Float64s:
    """Map row s of `scores` (S, n) by the quantile map of row s of the sorted scores (S, N).

    The i-th of n sorted scores maps to i/(n+1), linearly in between. Below the smallest the map
    falls to 0 at score 0; above the largest a rational tail keeps the order and approaches 1. For
    signed scores, a tail of the same kind below the smallest approaches 0.
    """
    n_subsets, n = ascending.shape
    smallest, largest, median = ascending[:, :1], ascending[:, -1:], _median(ascending)
    knots = np.empty((n_subsets, n + 1))
    knots[:, :1] = smallest if signed else np.minimum(smallest, 0.0)
    knots[:, 1:] = ascending
    levels = np.arange(n + 1) / (n + 1)
    mapped = np.empty(scores.shape)
    for row in range(n_subsets):
        mapped[row] = np.interp(scores[row], knots[row], levels)
    top = levels[-1]
    excess = np.maximum(scores - largest, 0)
    mapped += (1 - top) * (excess / (excess + np.maximum(largest - median, _TAIL_FLOOR)))
    if signed:
        missing = np.maximum(smallest - scores, 0)
        scale = np.maximum(median - smallest, _TAIL_FLOOR)
        mapped = np.where(missing > 0, scale / (scale + missing) / (n + 1), mapped)
    return mapped


class Support:
    """Leave-one-out scores (S, N) of one base score: sorted, and summarised by domain.

    Parameters
    ----------
    scores : (S, N)
        Grouped by domain: domain g is columns ``starts[g]:starts[g + 1]``.
    starts : (G + 1,)
    """

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
    def sizes(self) -> Float64s:
        """Number of clips in each domain, (G, 1)."""
        return np.diff(self.starts)[:, None].astype(np.float64)

    @cached_property
    def typical(self) -> Float64s:
        """The median of all scores, (S,)."""
        return _median(self.pooled)[:, 0]

    @cached_property
    def medians(self) -> Float64s:
        """The median of each domain, (S, G, 1)."""
        return np.stack([_median(part) for part in self.domains], axis=1)

    @cached_property
    def means(self) -> Float64s:
        """The mean of each domain, (S, G, 1)."""
        return np.stack([part.mean(axis=1) for part in self.domains], axis=1)[..., None]

    @cached_property
    def spreads(self) -> Float64s:
        """The standard deviation of each domain, (S, G, 1)."""
        # One clip has no spread of its own: the pooled spread stands in for it.
        parts = [part if part.shape[1] > 1 else self.pooled for part in self.domains]
        return np.stack([part.std(axis=1) for part in parts], axis=1)[..., None] + _SPREAD_FLOOR


class CalibratedScores:
    """The calibrations of one base score of n clips; each map is computed once.

    Parameters
    ----------
    scores : (S, n)
        Scores of the clips.
    support : Support
        Scores of the normals.
    signed : bool
        Whether scores may be negative.
    """

    def __init__(self, scores: Floats, support: Support, signed: bool) -> None:
        self.scores = scores.astype(np.float64)
        self._support = support
        self._signed = signed

    def calibrate(self, config: ScoreConfig, weights: Float64s) -> Float64s:
        """Mix the maps of the domains by the weights (S, G, n) of the clips: (S, n)."""
        if config.calibration == "conf":
            maps = self._shrunk(config.m)
        elif config.calibration == "ratio":
            maps = self.scores[:, None] / np.maximum(self._support.medians, _SPREAD_FLOOR)
        else:
            maps = (self.scores[:, None] - self._support.means) / self._support.spreads
        return np.einsum("sgn,sgn->sn", weights, maps)

    def _shrunk(self, m: float) -> Float64s:
        """Maps (S, G, n) of the domains, shrunk toward the pooled one by the weight of m clips."""
        if m == 0:
            return self._domain_maps
        sizes = self._support.sizes
        return (sizes * self._domain_maps + float(m) * self._pooled_map) / (sizes + float(m))

    @cached_property
    def _domain_maps(self) -> Float64s:
        parts = self._support.domains
        return np.stack([quantile_maps(p, self.scores, self._signed) for p in parts], axis=1)

    @cached_property
    def _pooled_map(self) -> Float64s:
        """(S, 1, n)."""
        if len(self._support.domains) == 1:
            return self._domain_maps
        return quantile_maps(self._support.pooled, self.scores, self._signed)[:, None]


def temperature_base(base: Base) -> Base:
    """The base score whose typical leave-one-out score is the temperature of soft weights.

    For k nearest normals and the LDN ratio it is the base itself, as in the paper. Others are not
    on the scale of a distance and use the nearest normal. The LDN ratio's is about 1, as
    published, which leaves the weights nearly uniform.
    """
    return base if base.scorer in ("knn", "ldn-ratio") else Base("knn", 1)


def calibrate_grid(
    grid: Sequence[ScoreConfig],
    scores: Mapping[Base, Floats],
    supports: Mapping[Base, Support],
    weights_of: Callable[[ScoreConfig], Float64s],
) -> Float64s:
    """Scores of every configuration, (C, S, n).

    Parameters
    ----------
    grid : C configurations
    scores : {base: (S, n)}
    supports : {base: Support}
        Of the base scores that some configuration calibrates.
    weights_of : callable
        Returns the domain weights (S, G, n) of a configuration.
    """
    first = scores[grid[0].base]
    out = np.empty((len(grid), *first.shape))
    rows_of: dict[Base, list[int]] = {}
    for row, config in enumerate(grid):
        rows_of.setdefault(config.base, []).append(row)
    for base, rows in rows_of.items():  # one at a time: a base's maps are large
        calibrated = None
        for row in rows:
            if grid[row].calibration is None:
                out[row] = scores[base]
                continue
            if calibrated is None:
                calibrated = CalibratedScores(scores[base], supports[base], base.signed)
            out[row] = calibrated.calibrate(grid[row], weights_of(grid[row]))
    return out


def _median(ascending: Float64s) -> Float64s:
    """(S, 1) medians of sorted rows."""
    n = ascending.shape[1]
    return (ascending[:, (n - 1) // 2, None] + ascending[:, n // 2, None]) / 2
