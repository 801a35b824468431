"""The paper's threshold, for comparison, and the smallest rate that normals support."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.detector.decision import require_rate
from daco.errors import InputError
from daco.method.calibration import quantile_maps
from daco.method.config import ScoreConfig
from daco.validation import Float64s

_TAIL_FLOOR = 1e-9


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
    >>> from daco.experiments.thresholds import QuantileMap
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
        mapped = quantile_maps(self.support[None], row, self.signed).reshape(scores.shape)
        return np.where(endless, 1.0, mapped)

    @property
    def resolution(self) -> float:
        """The smallest false-alarm rate that is not extrapolated, 1/(n+1)."""
        return 1 / (len(self.support) + 1)

    def inverse(self, quantiles: ArrayLike) -> Float64s:
        """Find the smallest score that has each of these quantiles."""
        q = np.asarray(quantiles, np.float64)
        if ((q < 0) | (q >= 1) | np.isnan(q)).any():
            raise InputError(f"Quantiles must lie in [0, 1). Got {quantiles!r} instead.")
        smallest, largest, median = self.support[0], self.support[-1], np.median(self.support)
        top = 1 - self.resolution
        knots = np.concatenate([[min(0.0, smallest)], self.support])
        inside = np.interp(q, np.arange(len(knots)) * self.resolution, knots)
        share = np.clip((q - top) / self.resolution, 0, 1 - 1e-16)
        beyond = largest + max(largest - median, _TAIL_FLOOR) * share / (1 - share)
        if self.signed:
            with np.errstate(divide="ignore"):  # quantile 0 is at minus infinity
                steps = self.resolution / q - 1
            below = smallest - max(median - smallest, _TAIL_FLOOR) * steps
            inside = np.where(q < self.resolution, below, inside)
        return np.where(q > top, beyond, inside)


def paper_threshold(config: str | ScoreConfig, loo_scores: ArrayLike, rate: float) -> float:
    """Compute the threshold of the paper's coverage table, for comparison only.

    It is the same for all domains: ``1 - rate`` for ``conf`` configurations, and the quantile
    ``1 - rate`` of all leave-one-out scores for others.

    Examples
    --------
    >>> from daco.experiments.thresholds import paper_threshold
    >>> paper_threshold("conf-soft-m0-k1", [], 0.1), paper_threshold("raw-k1", [1, 2, 3], 0.25)
    (0.9, 3.0)
    """
    require_rate(rate)
    if ScoreConfig.parse(config).calibration == "conf":
        return float(1 - rate)
    return float(QuantileMap.fit(loo_scores).inverse(1 - rate))


def supported_rate(clip_domains: Iterable[Any]) -> float:
    """Compute the smallest false-alarm rate that the smallest domain supports, 1 / (n + 1).

    Examples
    --------
    >>> from daco.experiments.thresholds import supported_rate
    >>> supported_rate(["source"] * 90 + ["target"] * 9)
    0.1
    """
    _, sizes = np.unique(np.asarray(list(clip_domains), dtype=str), return_counts=True)
    if not len(sizes):
        raise InputError("A false-alarm rate needs at least one normal clip.")
    return 1 / (int(sizes.min()) + 1)
