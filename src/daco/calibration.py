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
        if np.isnan(scores).any():
            raise InputError("NaN has no quantile. Leave it out or score the clip again.")
        endless = np.isposinf(scores)
        row = np.where(endless, self.support[-1], scores).reshape(1, -1)
        mapped = quantile_maps(self.support[None], row).reshape(scores.shape)
        return np.where(endless, 1.0, mapped)

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

    ``order`` sorts the rows of ``scores``: the map walks the support in that order.
    """
    n = support.shape[1]
    knots = np.empty((len(support), n + 1))
    knots[:, 1:] = support
    np.minimum(support[:, 0], 0.0, out=knots[:, 0])
    return kernels().map_quantiles(
        knots,
        np.arange(n + 1) / (n + 1),
        np.maximum(support[:, -1] - _median(support)[:, 0], _TAIL_FLOOR),
        scores,
        np.argsort(scores, axis=1) if order is None else order,
    )


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
    """Scores of every configuration, (C, S, n) float64."""
    shape = next(iter(given.scores.values())).shape
    out = np.empty((len(grid), *shape))
    hard = None
    if any(config.assignment == "hard" for config in grid):
        assert given.domain_distance is not None
        hard = hard_weights(given.domain_distance)
    calibrated: dict[tuple[str, int], _Calibrated] = {}
    for into, config in zip(out, grid, strict=True):
        if config.base not in calibrated:
            calibrated[config.base] = _Calibrated(config.base, given, hard)
        calibrated[config.base].write(config, into)
    return out


class _Calibrated:
    """The calibrations of one base score; each map and weight is computed once.

    Maps are (S, G, n): what domain g would make of each score.
    """

    def __init__(self, base: tuple[str, int], given: CalibrationInput, hard: Weights | None):
        self._given = given
        self._base = base
        self._hard = hard
        self._shrunk_maps: dict[float, Array] = {}
        self._scores = given.scores[base].astype(np.float64)

    def write(self, config: ScoreConfig, into: Array) -> None:
        if config.calibration is None:
            into[:] = self._scores
            return
        if config.calibration == "conf":
            maps = self._shrunk(config.prior_strength)
        else:
            maps = self._over_median if config.calibration == "ratio" else self._standardised
        np.einsum("sgn,sgn->sn", self._weights(config.assignment), maps, out=into)

    def _weights(self, assignment: str | None) -> Weights:
        if assignment == "soft":
            return self._soft
        weights = self._hard if assignment == "hard" else self._given.oracle
        assert weights is not None
        return weights

    @cached_property
    def _soft(self) -> Weights:
        # The temperature is the median of the configuration's own leave-one-out scores, as
        # published; on an LDN ratio that is about 1, which leaves the weights nearly uniform.
        assert self._given.domain_distance is not None
        return soft_weights(self._given.domain_distance, _median(self._pooled)[:, 0])

    def _shrunk(self, strength: float) -> Array:
        if strength not in self._shrunk_maps:
            sizes = np.diff(self._given.domain_starts)[:, None]
            maps = sizes * self._domain_maps
            if strength > 0:
                maps += strength * self._pooled_map[:, None]
                maps /= sizes + strength
            else:
                maps /= sizes
            self._shrunk_maps[strength] = maps
        return self._shrunk_maps[strength]

    @cached_property
    def _over_median(self) -> Array:
        medians = np.stack([_median(part) for part in self._domains], axis=1)
        return self._scores[:, None] / np.maximum(medians, _SPREAD_FLOOR)

    @cached_property
    def _standardised(self) -> Array:
        # One clip has no spread of its own: the pooled spread stands in for it.
        parts = [part if part.shape[1] > 1 else self._pooled for part in self._domains]
        spreads = np.stack([part.std(axis=1) for part in parts], axis=1) + _SPREAD_FLOOR
        means = np.stack([part.mean(axis=1) for part in self._domains], axis=1)
        return (self._scores[:, None] - means[:, :, None]) / spreads[:, :, None]

    @cached_property
    def _domain_maps(self) -> Array:
        maps = [quantile_maps(part, self._scores, self._order) for part in self._domains]
        return np.stack(maps, axis=1)

    @cached_property
    def _pooled_map(self) -> Array:
        if len(self._domains) == 1:
            return self._domain_maps[:, 0]
        return quantile_maps(self._pooled, self._scores, self._order)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self._scores, axis=1)

    @cached_property
    def _pooled(self) -> Array:
        """Sorted calibration scores of all domains."""
        return np.sort(self._given.calibration[self._base].astype(np.float64), axis=1)

    @cached_property
    def _domains(self) -> list[Array]:
        """Sorted calibration scores of each domain."""
        scores = self._given.calibration[self._base].astype(np.float64)
        return [np.sort(scores[:, a:b], axis=1) for a, b in pairwise(self._given.domain_starts)]


def _median(ascending: Array) -> Array:
    """(S, 1) medians of sorted rows."""
    n = ascending.shape[1]
    return (ascending[:, (n - 1) // 2, None] + ascending[:, n // 2, None]) / 2
