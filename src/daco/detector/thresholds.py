"""The threshold rule: one score that holds a false-alarm rate in every domain."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.method.calibration import QuantileMap
from daco.method.config import ScoreConfig

FALSE_ALARM_RATE = 0.1
"""The default of every estimator, model, study and command."""

SMALLEST_RATE = 1e-9
"""Smaller rates would be lost in the rounding of 1 - rate."""

_STEP = 1e-9


def threshold_for(
    config: str | ScoreConfig, own_scores: ArrayLike, clip_domains: ArrayLike, rate: float
) -> float:
    """The one score that holds a false-alarm rate in every domain.

    Of a domain's n normals it takes the ``ceil((n + 1)(1 - rate))``-th smallest score: a new
    normal of that domain, exchangeable with them, lies above with a probability of at most
    `rate`. The largest of these over domains holds the rate in all of them. Where n is too small
    (``rate < 1 / (n + 1)``) the tail of the domain's quantile map is extrapolated. The threshold
    lies above the smallest score of each domain, so that no input makes every clip an alarm.

    Parameters
    ----------
    config : str or ScoreConfig
        What the scores are. Those of ``conf`` configurations are quantiles in [0, 1), and the
        threshold stays below 1.
    own_scores : array-like of shape (n,)
        Leave-one-out scores of the normals.
    clip_domains : array-like of shape (n,)
        The domain of each, as a number or a name.
    rate : float in (0, 1)

    Returns
    -------
    float
        A score above it is an alarm.

    Examples
    --------
    >>> from daco.detector.thresholds import threshold_for
    >>> own, domains = [0.1, 0.2, 0.3, 0.4, 1.0, 3.0, 2.0], [0, 0, 0, 0, 1, 1, 1]
    >>> threshold_for("raw-k1", own, domains, 0.5), threshold_for("raw-k1", own, domains, 0.25)
    (2.0, 3.0)
    """
    require_rate(rate)
    scores, domains = np.asarray(own_scores, np.float64), np.asarray(clip_domains)
    if not scores.size or scores.ndim != 1 or domains.shape != scores.shape:
        raise InputError(
            "A threshold needs the scores of at least one normal clip and a domain for each. Got "
            f"shapes {scores.shape} and {domains.shape}."
        )
    if not np.isfinite(scores).all():
        raise InputError("A threshold needs finite scores of normal clips. Leave NaN and inf out.")
    bounded = ScoreConfig.parse(config).calibration == "conf"
    parts = [np.sort(scores[domains == name]) for name in np.unique(domains)]
    return max(_conformal(part, rate, bounded) for part in parts)


def _conformal(ascending: NDArray[np.float64], rate: float, bounded: bool) -> float:
    n = len(ascending)
    rank = math.ceil((n + 1) * (1 - rate) - 1e-9)  # a whole number stays one despite rounding
    if rank <= n:
        threshold = float(ascending[max(rank, 1) - 1])
    elif bounded:
        # The odds q / (1 - q) are linear in the score beneath a quantile map's tail, so that
        # the extrapolated quantile stays below 1, where alarms are possible.
        odds = QuantileMap.fit(ascending / np.maximum(1 - ascending, _STEP)).inverse(1 - rate)
        threshold = float(odds / (1 + odds))
    else:
        threshold = float(QuantileMap.fit(ascending).inverse(1 - rate))
    smallest = float(ascending[0])
    above = ascending[ascending > smallest]
    least = float(above[0]) if above.size else smallest + _STEP * max(1.0, abs(smallest))
    return max(threshold, least)


def paper_threshold(config: str | ScoreConfig, own_scores: ArrayLike, rate: float) -> float:
    """The threshold of the paper's coverage table; decisions use :func:`threshold_for`.

    The paper measures how far calibration alone equalises the domains, so that its threshold
    knows no domains: ``1 - rate`` for ``conf`` configurations, for others that quantile of all
    leave-one-out scores together.

    Examples
    --------
    >>> from daco.detector.thresholds import paper_threshold
    >>> paper_threshold("conf-soft-m0-k1", [], 0.1), paper_threshold("raw-k1", [1, 2, 3], 0.25)
    (0.9, 3.0)
    """
    require_rate(rate)
    if ScoreConfig.parse(config).calibration == "conf":
        return float(1 - rate)
    return float(QuantileMap.fit(own_scores).inverse(1 - rate))


def more_clips_for(rate: float, n: int) -> int:
    """How many more normals of a domain with `n` would support a rate.

    Examples
    --------
    >>> from daco.detector.thresholds import more_clips_for
    >>> more_clips_for(0.05, 10), more_clips_for(0.1, 10)
    (9, 0)
    """
    require_rate(rate)
    return max(0, math.ceil(1 / rate - 1 - 1e-9) - n)


def supported_rate(clip_domains: Iterable[Any]) -> float:
    """The smallest false-alarm rate that the smallest domain supports, 1 / (n + 1).

    Examples
    --------
    >>> from daco.detector.thresholds import supported_rate
    >>> supported_rate(["source"] * 90 + ["target"] * 9)
    0.1
    """
    _, sizes = np.unique(np.asarray(list(clip_domains), dtype=str), return_counts=True)
    if not len(sizes):
        raise InputError("No normal clip supports any false-alarm rate. Give at least one.")
    return 1 / (int(sizes.min()) + 1)


def require_rate(rate: Any) -> None:
    """Raise `InputError` unless `rate` can be a false-alarm rate."""
    number = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
    if not number or not SMALLEST_RATE <= float(rate) < 1:
        raise InputError(
            f"The 'false_alarm_rate' parameter must be a number between 0 and 1, both excluded, "
            f"and at least {SMALLEST_RATE:g}. Got {rate!r} instead."
        )
