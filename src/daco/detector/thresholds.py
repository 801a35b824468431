"""False-alarm rates, and thresholds of score files, whose clips have no domain weights."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.detector.reference import ReferenceScores
from daco.errors import InputError
from daco.method.calibration import QuantileMap
from daco.method.config import ScoreConfig

FALSE_ALARM_RATE = 0.1
"""The default of every estimator, model, study and command."""

SMALLEST_RATE = 1e-9
"""Smaller rates would be lost in the rounding of 1 - rate."""


def threshold_for(
    config: str | ScoreConfig, own_scores: ArrayLike, clip_domains: ArrayLike, rate: float
) -> float:
    """Compute one threshold that is safe in every domain, for score files.

    It is the largest of the thresholds of the domains
    (:class:`daco.detector.reference.ReferenceScores`). A detector judges each clip by its own
    domain weights and detects more.

    Parameters
    ----------
    config : str or ScoreConfig
        The configuration of the scores.
    own_scores : array-like of shape (n,)
        Leave-one-out scores of the normals.
    clip_domains : array-like of shape (n,)
        The domain of each, as a number or a name.
    rate : float in (0, 1)
        The false-alarm rate.

    Returns
    -------
    float

    Examples
    --------
    >>> from daco.detector.thresholds import threshold_for
    >>> threshold_for("raw-k1", [1, 2, 3, 4], ["old"] * 4, 0.4)
    3.0
    """
    require_rate(rate)
    names, codes = np.unique(np.asarray(clip_domains), return_inverse=True)
    bounded = ScoreConfig.parse(config).calibration == "conf"
    reference = ReferenceScores(
        np.asarray(own_scores), codes.astype(np.int32), tuple(names.tolist()), bounded
    )
    return max(reference.domain_thresholds(rate).values())


def paper_threshold(config: str | ScoreConfig, own_scores: ArrayLike, rate: float) -> float:
    """Compute the threshold of the paper's coverage table, for comparison only.

    It is the same for all domains: ``1 - rate`` for ``conf`` configurations, and the quantile
    ``1 - rate`` of all leave-one-out scores for others.

    Parameters
    ----------
    config : str or ScoreConfig
        The configuration of the scores.
    own_scores : array-like of shape (N,)
        Leave-one-out scores of the normals.
    rate : float in (0, 1)
        The false-alarm rate.

    Returns
    -------
    float

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


def supported_rate(clip_domains: Iterable[Any]) -> float:
    """Compute the smallest false-alarm rate that the smallest domain supports, 1 / (n + 1).

    Parameters
    ----------
    clip_domains : sequence of N labels
        The domain of each normal.

    Returns
    -------
    float

    Examples
    --------
    >>> from daco.detector.thresholds import supported_rate
    >>> supported_rate(["source"] * 90 + ["target"] * 9)
    0.1
    """
    _, sizes = np.unique(np.asarray(list(clip_domains), dtype=str), return_counts=True)
    if not len(sizes):
        raise InputError("A false-alarm rate needs at least one normal clip.")
    return 1 / (int(sizes.min()) + 1)


def require_rate(rate: Any) -> None:
    """Raise `InputError` unless `rate` can be a false-alarm rate."""
    number = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
    if not number or not SMALLEST_RATE <= float(rate) < 1:
        raise InputError(
            f"The 'false_alarm_rate' parameter must be a number between 0 and 1, at least "
            f"{SMALLEST_RATE:g}. Got {rate!r} instead."
        )
