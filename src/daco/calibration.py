"""Stage 2: making scores of different domains comparable.

Per-domain quantile maps shrunk toward the pooled map, median ratios and z-scores. The grid
functions work on a batch of banks at once (the splits of the criterion): leading axis ``S``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.config import ScoreConfig
from daco.domains import Weights, hard_weights, soft_weights
from daco.errors import InputError
from daco.kernels import kernels

Array = NDArray[np.float64]

_TAIL_FLOOR = 1e-9
_SPREAD_FLOOR = 1e-12


@dataclass(frozen=True)
class QuantileMap:
    """The interpolated empirical distribution function of normal scores.

    The i-th of n sorted scores maps to i/(n+1), linearly in between; below the smallest the
    map falls to 0 at score 0; above the largest a rational tail keeps raw order and
    approaches 1.

    Examples
    --------
    >>> from daco.calibration import QuantileMap
    >>> to_quantile = QuantileMap.fit([1.0, 2.0, 3.0])
    >>> to_quantile([0.5, 1.0, 2.5, 3.0, 4.0])
    array([0.125, 0.25 , 0.625, 0.75 , 0.875])
    >>> to_quantile.inverse([0.25, 0.875])
    array([1., 4.])
    """

    support: Array

    @classmethod
    def fit(cls, scores: ArrayLike) -> QuantileMap:
        """The map of some normal clips' leave-one-out scores."""
        support = np.sort(np.asarray(scores, np.float64).ravel())
        if not support.size or not np.isfinite(support).all():
            raise InputError(
                "A quantile map needs at least one finite score. "
                f"Got {support.size} scores, {int((~np.isfinite(support)).sum())} not finite."
            )
        return cls(support)

    def __call__(self, scores: ArrayLike) -> Array:
        """Quantiles in [0, 1) of scores."""
        scores = np.asarray(scores, np.float64)
        return quantile_maps(self.support[None], scores.reshape(1, -1)).reshape(scores.shape)

    @property
    def resolution(self) -> float:
        """The smallest exceedance rate with data behind it, 1/(n+1)."""
        return 1 / (len(self.support) + 1)

    @cached_property
    def _tail(self) -> float:
        return float(max(self.support[-1] - np.median(self.support), _TAIL_FLOOR))

    def inverse(self, quantiles: ArrayLike) -> Array:
        """The smallest score with a given quantile."""
        q = np.asarray(quantiles, np.float64)
        if ((q < 0) | (q >= 1) | np.isnan(q)).any():
            raise InputError(f"Quantiles must lie in [0, 1). Got {quantiles!r} instead.")
        top = 1 - self.resolution
        inside = np.interp(q, np.arange(len(self.support) + 1) * self.resolution, self._knots)
        share = np.clip((q - top) / self.resolution, 0, None)
        beyond = self.support[-1] + self._tail * share / (1 - np.minimum(share, 1 - 1e-16))
        return np.where(q > top, beyond, inside)

    @cached_property
    def _knots(self) -> Array:
        return np.concatenate([[min(0.0, self.support[0])], self.support])


def quantile_maps(support: Array, scores: Array, order: NDArray[np.intp] | None = None) -> Array:
    """Row b of ``scores`` through the map of row b of the sorted ``support``.

    ``order`` sorts the rows of ``scores``: interpolation walks the knots in that order.
    """
    n = support.shape[1]
    order = np.argsort(scores, axis=1) if order is None else order
    knots = np.empty((len(support), n + 1))
    knots[:, 1:] = support
    np.minimum(support[:, 0], 0.0, out=knots[:, 0])
    mapped = kernels().interpolate(knots, np.arange(n + 1) / (n + 1), scores, order)
    largest = support[:, -1:]
    middle = (support[:, (n - 1) // 2, None] + support[:, n // 2, None]) / 2
    row, column = np.nonzero(scores > largest)
    exceedance = scores[row, column] - largest[row, 0]
    scale = np.maximum(largest - middle, _TAIL_FLOOR)[row, 0]
    top = n / (n + 1)
    mapped[row, column] = top + (1 - top) * (exceedance / (exceedance + scale))
    return mapped


@dataclass(frozen=True)
class CalibrationInput:
    """Base scores of a batch of S banks and of the clips to score with each.

    Attributes
    ----------
    calibration : {base: (S, N)}
        Leave-one-out scores of the bank's clips, grouped by domain; only for bases that
        some configuration calibrates.
    scores : {base: (S, n)}
        Base scores of the clips.
    domain_starts : (G + 1,)
        Domain g is ``domain_starts[g]:domain_starts[g + 1]`` of the bank.
    domain_distance : (S, G, n) or None
        Distance of each clip to the nearest bank clip of each domain.
    oracle : (S, G, n) or None
        Weights of the true domain, for ``oracle`` configurations.
    """

    calibration: Mapping[tuple[str, int], NDArray[np.floating]]
    scores: Mapping[tuple[str, int], NDArray[np.floating]]
    domain_starts: NDArray[np.intp]
    domain_distance: NDArray[np.floating] | None = None
    oracle: Weights | None = None


def calibrate_grid(grid: Sequence[ScoreConfig], given: CalibrationInput) -> Array:
    """Scores of every configuration, (S, C, n) float64."""
    shape = next(iter(given.scores.values())).shape
    out = np.empty((shape[0], len(grid), shape[1]))
    by_base: dict[tuple[str, int], list[int]] = {}
    for column, config in enumerate(grid):
        by_base.setdefault(config.base, []).append(column)
    hard = None
    if any(config.assignment == "hard" for config in grid):
        assert given.domain_distance is not None
        hard = hard_weights(given.domain_distance)
    for base, columns in by_base.items():
        calibrator = _Calibrator(base, given, hard)
        for column in columns:
            out[:, column] = calibrator(grid[column])
    return out


class _Calibrator:
    """The calibrations of one base score; each map and weight is computed once."""

    def __init__(self, base: tuple[str, int], given: CalibrationInput, hard: Weights | None):
        self._given = given
        self._base = base
        self._hard = hard
        self._shrunk_maps: dict[float, Array] = {}
        self.scores = given.scores[base].astype(np.float64)

    def __call__(self, config: ScoreConfig) -> Array:
        if config.calibration is None:
            return self.scores
        weights = self._weights(config.assignment)
        if config.calibration == "conf":
            mapped = self._shrunk(config.prior_strength)
        else:
            mapped = self._over_median if config.calibration == "ratio" else self._standardised
        return np.einsum("sgn,sgn->sn", weights, mapped)

    def _weights(self, assignment: str | None) -> Weights:
        if assignment == "soft":
            return self._soft
        weights = self._hard if assignment == "hard" else self._given.oracle
        assert weights is not None
        return weights

    @cached_property
    def _calibration(self) -> Array:
        return self._given.calibration[self._base].astype(np.float64)

    @cached_property
    def _domains(self) -> list[Array]:
        return [self._calibration[:, a:b] for a, b in pairwise(self._given.domain_starts)]

    @cached_property
    def _soft(self) -> Weights:
        # The temperature is the median of the configuration's own leave-one-out scores, as
        # published; on an LDN ratio that is about 1, which leaves the weights nearly uniform.
        assert self._given.domain_distance is not None
        return soft_weights(self._given.domain_distance, np.median(self._calibration, axis=1))

    @cached_property
    def _domain_maps(self) -> Array:
        return np.stack([self._map_through(part) for part in self._domains], axis=1)

    @cached_property
    def _pooled_map(self) -> Array:
        if len(self._domains) == 1:
            return self._domain_maps[:, 0]
        return self._map_through(self._calibration)

    def _map_through(self, calibration: Array) -> Array:
        return quantile_maps(np.sort(calibration, axis=1), self.scores, self._order)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self.scores, axis=1)

    def _shrunk(self, strength: float) -> Array:
        if strength not in self._shrunk_maps:
            sizes = np.diff(self._given.domain_starts)[None, :, None]
            maps = sizes * self._domain_maps
            if strength > 0:
                maps += strength * self._pooled_map[:, None]
            self._shrunk_maps[strength] = maps / (sizes + strength)
        return self._shrunk_maps[strength]

    @cached_property
    def _over_median(self) -> Array:
        medians = np.stack([np.median(part, axis=1) for part in self._domains], axis=1)
        return self.scores[:, None] / np.maximum(medians, _SPREAD_FLOOR)[:, :, None]

    @cached_property
    def _standardised(self) -> Array:
        means = np.stack([part.mean(axis=1) for part in self._domains], axis=1)
        # One clip has no spread of its own: the pooled spread stands in for it.
        spreads = np.stack(
            [
                (part if part.shape[1] > 1 else self._calibration).std(axis=1)
                for part in self._domains
            ],
            axis=1,
        )
        centred = self.scores[:, None] - means[:, :, None]
        return centred / (spreads + _SPREAD_FLOOR)[:, :, None]
