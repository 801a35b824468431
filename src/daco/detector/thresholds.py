"""The one threshold of a configuration, from a false-alarm rate and normal clips alone."""

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

SMALLEST_RATE = 1e-9
"""Below it, 1 - rate would not be told from 1 by all that follows."""

_STEP = 1e-9


def threshold_for(config: str | ScoreConfig, own_scores: ArrayLike, rate: float) -> float:
    """The score above which a clip is an alarm, for a false-alarm rate.

    Quantile-calibrated (``conf``) scores are rates themselves, so that it is ``1 - rate``; for
    others it is that quantile of the scores of the normal clips, each left out once.

    Parameters
    ----------
    config : str or ScoreConfig
    own_scores : array-like of shape (n,)
        Leave-one-out scores of the training normals; not read for ``conf``.
    rate : float in (0, 1)

    Examples
    --------
    >>> from daco.detector.thresholds import threshold_for
    >>> threshold_for("conf-soft-m0-k1", [], 0.1)
    0.9
    >>> threshold_for("raw-k1", [1, 2, 3], 0.25)
    3.0
    """
    require_rate(rate)
    if ScoreConfig.parse(config).calibration == "conf":
        return float(1 - rate)
    return float(QuantileMap.fit(own_scores).inverse(1 - rate))


def threshold_holding(
    own_scores: ArrayLike, clip_domains: ArrayLike, rate: float, *, bounded: bool = False
) -> float:
    """The one score that holds a false-alarm rate in every domain, for any configuration.

    Of a domain's n normals the ``ceil((n + 1)(1 - rate))``-th smallest score: a new normal of
    that domain, exchangeable with them, lies above with a probability of at most `rate`. Where
    n is too small for that (``rate < 1 / (n + 1)``) the tail of the domain's quantile map takes
    over, and no clip is behind the number. The largest over domains holds in all of them.

    Whatever the input, each domain's part lies above its smallest score: a threshold at the
    minimum would call every recording anomalous.

    Parameters
    ----------
    own_scores : array-like of shape (n,)
        Leave-one-out scores of the normals.
    clip_domains : array-like of shape (n,)
        The domain of each, as a number or a name.
    rate : float in (0, 1)
    bounded : bool
        The scores are quantiles in [0, 1), as those of ``conf`` are. Their tail is then
        extrapolated as odds q / (1 - q), which are linear in the score beneath a quantile map's
        tail: the threshold stays below 1, where alarms are possible.

    Examples
    --------
    >>> from daco.detector.thresholds import threshold_holding
    >>> own, domains = [0.1, 0.2, 0.3, 0.4, 1.0, 3.0, 2.0], [0, 0, 0, 0, 1, 1, 1]
    >>> threshold_holding(own, domains, 0.5), threshold_holding(own, domains, 0.25)
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
    parts = [np.sort(scores[domains == name]) for name in np.unique(domains)]
    return max(_conformal(part, rate, bounded) for part in parts)


def _conformal(ascending: NDArray[np.float64], rate: float, bounded: bool) -> float:
    n = len(ascending)
    rank = math.ceil((n + 1) * (1 - rate) - 1e-9)  # a whole number stays one despite rounding
    if rank > n:
        beyond = _odds(ascending) if bounded else ascending
        found = float(QuantileMap.fit(beyond).inverse(1 - rate))
        found = found / (1 + found) if bounded else found
    else:
        found = float(ascending[max(rank, 1) - 1])
    smallest = float(ascending[0])
    above = ascending[ascending > smallest]
    least = float(above[0]) if above.size else smallest + _STEP * max(1.0, abs(smallest))
    return max(found, least)


def _odds(quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    return quantiles / np.maximum(1 - quantiles, _STEP)


def more_clips_for(rate: float, n: int) -> int:
    """How many more normals of a domain with `n` would support a rate; 0 where they do.

    Examples
    --------
    >>> from daco.detector.thresholds import more_clips_for
    >>> more_clips_for(0.05, 10), more_clips_for(0.1, 10)
    (9, 0)
    """
    require_rate(rate)
    return max(0, math.ceil(1 / rate - 1 - 1e-9) - n)


def supported_rate(config: str | ScoreConfig, own_domains: Iterable[str]) -> float:
    """The smallest false-alarm rate with clips behind it; below, a threshold is extrapolated.

    One clip in ``n + 1``, of the smallest domain where each has its own quantiles (``conf``),
    of all clips together elsewhere.

    Examples
    --------
    >>> from daco.detector.thresholds import supported_rate
    >>> domains = ["source"] * 90 + ["target"] * 9
    >>> supported_rate("conf-soft-m0-k1", domains), supported_rate("raw-k1", domains)
    (0.1, 0.01)
    """
    _, sizes = np.unique(np.asarray(list(own_domains), dtype=str), return_counts=True)
    if not len(sizes):
        raise InputError("No normal clip supports any false-alarm rate. Give at least one.")
    per_domain = ScoreConfig.parse(config).calibration == "conf"
    return 1 / (int(sizes.min() if per_domain else sizes.sum()) + 1)


def require_rate(rate: Any) -> None:
    """An error unless `rate` can be a false-alarm rate."""
    number = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
    if not number or not SMALLEST_RATE <= float(rate) < 1:
        raise InputError(
            f"The 'false_alarm_rate' parameter must be a number between 0 and 1, both excluded, "
            f"and at least {SMALLEST_RATE:g}. Got {rate!r} instead."
        )
