"""Stage 2: making scores of different domains comparable.

Per-domain quantile maps shrunk toward the pooled map, median ratios and z-scores. The grid
functions work on a batch of banks at once, the splits of the criterion and many machines: leading
axis ``S``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.method.bases import Base
from daco.method.config import ScoreConfig
from daco.method.domains import hard_weights, soft_weights
from daco.method.kernels import Array, kernels
from daco.method.scorers import geometry_of
from daco.validation import Float64s, Indices

_TAIL_FLOOR = 1e-9
_SPREAD_FLOOR = 1e-12


@dataclass(frozen=True)
class QuantileMap:
    """The interpolated empirical distribution function of normal scores.

    The i-th of n sorted scores maps to i/(n+1), linearly in between. Below the smallest score the
    map falls to 0 at score 0; above the largest a rational tail keeps the order and approaches 1.
    For signed scores, a tail of the same kind below the smallest approaches 0.

    Parameters
    ----------
    support : (n,) float64
        The sorted scores; use `fit` for any order.
    signed : bool
        Whether scores may be negative.

    Examples
    --------
    >>> from daco.method.calibration import QuantileMap
    >>> to_quantile = QuantileMap.fit([1.0, 2.0, 3.0])
    >>> to_quantile([0.5, 1.0, 2.5, 3.0, 4.0])
    array([0.125, 0.25 , 0.625, 0.75 , 0.875])
    >>> to_quantile.inverse([0.25, 0.875])
    array([1., 4.])
    """

    support: Float64s
    signed: bool = False

    @classmethod
    def fit(cls, scores: ArrayLike, *, signed: bool = False) -> QuantileMap:
        """Fit the map to leave-one-out scores of normal clips, in any order."""
        support = np.sort(np.asarray(scores, np.float64).ravel())
        if not support.size or not np.isfinite(support).all():
            raise InputError(
                "A quantile map needs at least one finite score. "
                f"Got {support.size} scores, {int((~np.isfinite(support)).sum())} not finite."
            )
        return cls(support, signed)

    def __call__(self, scores: ArrayLike) -> Float64s:
        """Quantiles in [0, 1) of scores."""
        scores = np.asarray(scores, np.float64)
        if np.isnan(scores).any():
            raise InputError("NaN has no quantile. Leave it out or score the clip again.")
        endless = np.isposinf(scores)
        row = np.where(endless, self.support[-1], scores).reshape(1, -1)
        mapped = quantile_maps(self.support[None], row, signed=self.signed).reshape(scores.shape)
        return np.where(endless, 1.0, mapped)

    @property
    def resolution(self) -> float:
        """The smallest false-alarm rate that is not extrapolated, 1/(n+1)."""
        return 1 / (len(self.support) + 1)

    @cached_property
    def _tail(self) -> float:
        return float(max(self.support[-1] - np.median(self.support), _TAIL_FLOOR))

    @cached_property
    def _lower_tail(self) -> float:
        return float(max(np.median(self.support) - self.support[0], _TAIL_FLOOR))

    def inverse(self, quantiles: ArrayLike) -> Float64s:
        """Find the smallest score that has each of these quantiles."""
        q = np.asarray(quantiles, np.float64)
        if ((q < 0) | (q >= 1) | np.isnan(q)).any():
            raise InputError(f"Quantiles must lie in [0, 1). Got {quantiles!r} instead.")
        top = 1 - self.resolution
        inside = np.interp(q, np.arange(len(self.support) + 1) * self.resolution, self._knots)
        share = np.clip((q - top) / self.resolution, 0, None)
        beyond = self.support[-1] + self._tail * share / (1 - np.minimum(share, 1 - 1e-16))
        if self.signed:
            with np.errstate(divide="ignore"):  # quantile 0 is at minus infinity
                below = self.support[0] - self._lower_tail * (self.resolution / q - 1)
            inside = np.where(q < self.resolution, below, inside)
        return np.where(q > top, beyond, inside)

    @cached_property
    def _knots(self) -> Float64s:
        return np.concatenate([[min(0.0, self.support[0])], self.support])


def quantile_maps(
    support: Array, scores: Array, order: Array = None, *, signed: bool = False
) -> Array:
    """Map row b of ``scores`` by the quantile map of row b of the sorted ``support``.

    ``order`` sorts the rows of ``scores``: the map walks the support in that order.
    """
    K, n = kernels(support), support.shape[1]
    smallest, largest, median = support[:, :1], support[:, -1:], _median(support)
    mapped: Array = K.map_quantiles(
        K.xp.concatenate([smallest if signed else smallest.clip(max=0.0), support], 1),
        K.arange(n + 1, support) / (n + 1),
        (largest - median).clip(min=_TAIL_FLOOR),
        scores,
        K.sorting_order(scores) if order is None else order,
    )
    if signed:
        below = scores < smallest
        scale = (median - smallest).clip(min=_TAIL_FLOOR)
        scale, smallest = (K.xp.broadcast_to(x, scores.shape)[below] for x in (scale, smallest))
        mapped[below] = scale / (scale + smallest - scores[below]) / (n + 1)
    return mapped


@dataclass(frozen=True)
class CalibrationInput:
    """Base scores of a batch of S banks and of the clips to score with each.

    Attributes
    ----------
    calibration : {base: (S, N)}
        Leave-one-out scores of the bank's clips, grouped by domain; only for bases that
        some configuration calibrates, and those of `temperature_base`.
    scores : {base: (S, n)}
        Base scores of the clips.
    domain_starts : (G + 1,)
        Domain g is ``domain_starts[g]:domain_starts[g + 1]`` of the bank.
    domain_distance : {geometry: (S, G, n)}
        Distance of each clip to the nearest bank clip of each domain, in the geometries of the
        bases that are calibrated.
    oracle : (S, G, n) or None
        Weights of the true domain, for ``oracle`` configurations.
    supports : dict
        Of the same bank, where some are known.
    """

    calibration: Mapping[Base, Array]
    scores: Mapping[Base, Array]
    domain_starts: Indices
    domain_distance: Mapping[str, Array]
    oracle: Array | None = None
    supports: dict[Base, Support] = field(default_factory=dict)

    def support(self, base: Base) -> Support:
        """Sorted scores of the bank for the calibrations of a base, computed once."""
        if base not in self.supports:
            self.supports[base] = Support(self.calibration[base], self.domain_starts)
        return self.supports[base]


class Support:
    """Leave-one-out scores (S, N) of one base: sorted, and summarised by domain."""

    def __init__(self, scores: Array, domain_starts: Indices) -> None:
        K = kernels(scores)
        self.pooled = K.sort(K.double(scores))
        """Sorted scores of all domains."""
        self.domains = [K.sort(K.double(scores[:, a:b])) for a, b in pairwise(domain_starts)]
        """Sorted scores of each domain."""

    @cached_property
    def typical(self) -> Array:
        """The median of all scores, (S,)."""
        return _median(self.pooled)[:, 0]

    @cached_property
    def medians(self) -> Array:
        """The median of each domain, (S, G, 1)."""
        return kernels(self.pooled).xp.stack([_median(part) for part in self.domains], 1)

    @cached_property
    def means_and_spreads(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each domain, (S, G, 1)."""
        stack = kernels(self.pooled).xp.stack
        means = stack([part.mean(-1) for part in self.domains], 1)
        # One clip has no spread of its own: the pooled spread stands in for it.
        parts = [part if part.shape[1] > 1 else self.pooled for part in self.domains]
        spreads = stack([_spread(part) for part in parts], 1) + _SPREAD_FLOOR
        return means[..., None], spreads[..., None]


def temperature_base(base: Base) -> Base:
    """The base whose typical leave-one-out score is the temperature of soft weights.

    For k nearest normals and the LDN ratio it is the base itself, as in the paper. Other bases
    are not on the scale of a distance and use the nearest normal.
    """
    own = base.scorer == "knn" or (base.scorer == "ldn-ratio" and not base.bandwise)
    return base if own else Base("knn", 1, base.bandwise)


def assignment_weights(config: ScoreConfig, given: CalibrationInput) -> Array:
    """Domain weights (S, G, n) of a configuration with ``soft`` or ``hard`` assignment."""
    distance = given.domain_distance[geometry_of(config.base)]
    if config.assignment == "hard":
        return hard_weights(distance)
    # The temperature is a median of leave-one-out scores. The LDN ratio's is about 1, as
    # published, which leaves the weights nearly uniform.
    return soft_weights(distance, given.support(temperature_base(config.base)).typical)


def calibrate_grid(grid: Sequence[ScoreConfig], given: CalibrationInput) -> Array:
    """Scores of every configuration, (C, S, n) float64."""
    first = next(iter(given.scores.values()))
    out = _empty(len(grid), first)
    hard: dict[str, Array] = {}
    by_base: dict[Base, list[int]] = {}
    for row, config in enumerate(grid):
        by_base.setdefault(config.base, []).append(row)
    for base, rows in by_base.items():  # one at a time: a base's maps are large
        calibrated = _Calibrated(base, given, hard)
        for row in rows:
            calibrated.write(grid[row], out[row])
    return out


class _Calibrated:
    """The calibrations of one base score; each map and weight is computed once.

    Maps are (S, G, n): each score under the map of domain g.
    """

    def __init__(self, base: Base, given: CalibrationInput, hard: dict[str, Array]) -> None:
        self._given = given
        self._base = base
        self._kernels = kernels(given.scores[base])
        self._scores = self._kernels.double(given.scores[base])
        self._hard = hard  # by geometry, shared by all bases
        self._soft: Array | None = None
        self._shrunk_maps: dict[float, Array] = {}

    def write(self, config: ScoreConfig, into: Array) -> None:
        if config.calibration is None:
            into[:] = self._scores
            return
        if config.calibration == "conf":
            maps = self._shrunk(config.prior_strength)
        else:
            maps = self._over_median if config.calibration == "ratio" else self._standardised
        self._kernels.weighted_sum(self._weights(config), maps, into)

    def _weights(self, config: ScoreConfig) -> Array:
        if config.assignment == "oracle":
            return self._given.oracle
        if config.assignment == "soft":
            if self._soft is None:
                self._soft = assignment_weights(config, self._given)
            return self._soft
        geometry = geometry_of(self._base)
        if geometry not in self._hard:
            self._hard[geometry] = assignment_weights(config, self._given)
        return self._hard[geometry]

    def _shrunk(self, strength: float) -> Array:
        if strength not in self._shrunk_maps:
            K = self._kernels
            sizes = K.from_host(np.diff(self._given.domain_starts)[:, None], self._scores)
            maps = sizes * self._domain_maps
            if strength > 0:
                maps += float(strength) * self._pooled_map[:, None]
                maps /= sizes + float(strength)
            else:
                maps /= sizes
            self._shrunk_maps[strength] = maps
        return self._shrunk_maps[strength]

    @cached_property
    def _support(self) -> Support:
        return self._given.support(self._base)

    @cached_property
    def _over_median(self) -> Array:
        return self._scores[:, None] / self._support.medians.clip(min=_SPREAD_FLOOR)

    @cached_property
    def _standardised(self) -> Array:
        means, spreads = self._support.means_and_spreads
        return (self._scores[:, None] - means) / spreads

    @cached_property
    def _domain_maps(self) -> Array:
        maps = [self._map_of(part) for part in self._support.domains]
        return self._kernels.xp.stack(maps, 1)

    def _map_of(self, support: Array) -> Array:
        return quantile_maps(support, self._scores, self._order, signed=self._base.signed)

    @cached_property
    def _pooled_map(self) -> Array:
        if len(self._support.domains) == 1:
            return self._domain_maps[:, 0]
        return self._map_of(self._support.pooled)

    @cached_property
    def _order(self) -> Array:
        return self._kernels.sorting_order(self._scores)


def _empty(n_configs: int, scores: Array) -> Array:
    K = kernels(scores)
    return K.full((n_configs, *scores.shape), 0, K.double(scores[:0]))


def _median(ascending: Array) -> Array:
    """(S, 1) medians of sorted rows."""
    n = ascending.shape[1]
    return (ascending[:, (n - 1) // 2, None] + ascending[:, n // 2, None]) / 2


def _spread(values: Array) -> Array:
    """(S,) standard deviations."""
    return ((values - values.mean(-1)[:, None]) ** 2).mean(-1) ** 0.5
