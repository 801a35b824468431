"""Evidence over clips: a CUSUM of the p-values, and the limit for a stated rate of false alarms.

Each clip adds the normal quantile of its p-value, less an allowance; the sum never falls below
zero. Small p-values one after another add up to an alarm, even where none is anomalous alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError, NotEnoughClipsError
from daco.validation import Float64s

ALLOWANCE = 0.5
"""Deviations a clip that leave the evidence as it is: half of the shift that is found fastest."""

LEAST_REFERENCES = 10
_SMALLEST, _LARGEST = 1e-4, 0.99  # p-values: one clip is never all of the evidence
_PATHS, _STEPS = 400, 4000  # simulated
_DOUBT = 0.5  # standard errors of the correlation that are taken for possible
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Evidence:
    """The evidence after some clips: the state of the rule, stored as JSON.

    Examples
    --------
    >>> evidence = Evidence()
    >>> for p in (0.5, 0.03, 0.02, 0.04):
    ...     evidence = advance(evidence, p)
    >>> print(f"{evidence.value:.2f} from {evidence.clips} clips")
    4.19 from 3 clips
    """

    value: float = 0.0
    clips: int = 0  #: since it was zero


def advance(evidence: Evidence, p_value: float) -> Evidence:
    """Return the evidence after one more clip. Start again with ``Evidence()`` after an alarm."""
    if not 0 <= p_value <= 1:
        raise InputError(f"A p-value is between 0 and 1. Got {p_value!r}.")
    quantile = -_NORMAL.inv_cdf(min(max(p_value, _SMALLEST), _LARGEST))
    value = evidence.value + quantile - ALLOWANCE
    return Evidence(value, evidence.clips + 1) if value > 0 else Evidence()


def quantiles(p_values: ArrayLike) -> Float64s:
    """Normal quantiles of 1 - p: what a clip adds before the allowance.

    >>> quantiles([0.5, 0.1, 0.01]).round(2).tolist()
    [-0.0, 1.28, 2.33]
    """
    from scipy.special import ndtri

    return -ndtri(np.clip(np.asarray(p_values, np.float64), _SMALLEST, _LARGEST))


def rank_p_values(scores: ArrayLike) -> Float64s:
    """Return p-values of scores among themselves, for `limit`; ties count as above.

    >>> rank_p_values([3.0, 1.0, 2.0, 2.0]).tolist()
    [0.25, 1.0, 0.75, 0.75]
    """
    values = np.asarray(scores, np.float64)
    at_least = len(values) - np.searchsorted(np.sort(values), values)
    return at_least / len(values)


def limit(
    reference_p_values: Sequence[float] | Float64s,
    clips_between_false_alarms: float,
    block: int | None = None,
) -> float:
    """Return the evidence at which to alarm, for a stated mean of clips between false alarms.

    Parameters
    ----------
    reference_p_values : sequence of float
        Of healthy recordings that are not in the bank, in the order of recording: p-values of
        each among the references (`rank_p_values`).
    clips_between_false_alarms : float
        One a month at 144 recordings a day: 4,320.
    block : int, optional
        Clips that are drawn together, so that successive ones stay alike; 1 for independent ones.
        By default longer the more the references are correlated.

    Notes
    -----
    Two kinds of sequences are simulated, and the higher limit counts: blocks of references, and,
    unless clips are independent, normal processes with the references' correlation. The mean (and
    the correlation) is drawn as uncertain as so many references leave it, so that the stated
    interval holds over many machines; on most, false alarms are rarer. The largest evidence of each
    cycle from zero to zero is counted; its tail is exponential.

    Examples
    --------
    >>> p = np.random.default_rng(0).permutation(200) / 200
    >>> [round(limit(p, clips, block=1)) for clips in (100, 1000, 10000)]
    [3, 6, 9]
    """
    steps = quantiles(reference_p_values)
    count = len(steps)
    if count < LEAST_REFERENCES:
        raise NotEnoughClipsError(
            f"The limit of the evidence needs at least {LEAST_REFERENCES} reference recordings. "
            f"Got {count}."
        )
    if not clips_between_false_alarms >= 10:
        raise InputError(
            "The number of clips between false alarms must be at least 10. Got "
            f"{clips_between_false_alarms!r}."
        )
    rng = np.random.default_rng(0)
    correlation = 0.0 if block == 1 else _correlation(steps)
    if block is None:
        block = min(count, round(6 * _memory(correlation)))
    drawn = [_drawn_blocks(steps, block, correlation, rng)]
    if block > 1:
        drawn.append(_drawn_processes(count, correlation, rng))
    times = _PATHS * _STEPS / clips_between_false_alarms
    return max(_exceeded(_cycle_peaks(paths - ALLOWANCE), times) for paths in drawn)


def _correlation(steps: Float64s) -> float:
    """Correlation of successive clips, without the bias of short sequences."""
    centred = steps - steps.mean()
    correlation = float(centred[1:] @ centred[:-1]) / max(float(centred @ centred), 1e-12)
    return min(max(correlation + (1 + 4 * correlation) / len(steps), 0.0), 0.95)


def _memory(correlation: Any) -> Any:
    """How many successive clips say as much as one: 1 if they are independent."""
    return (1 + correlation) / (1 - correlation)


def _mean_errors(count: int, correlation: Any, rng: np.random.Generator) -> Float64s:
    """Errors with which so many references know the mean of healthy clips, one a sequence."""
    return (rng.normal(size=_PATHS) * np.sqrt(_memory(correlation) / count))[:, None]


def _drawn_blocks(
    steps: Float64s, block: int, correlation: float, rng: np.random.Generator
) -> Float64s:
    """Sequences of blocks of references."""
    starts = rng.integers(len(steps), size=(_PATHS, -(-_STEPS // block)))
    rows = (starts[..., None] + np.arange(block)) % len(steps)
    paths = steps[rows.reshape(_PATHS, -1)[:, :_STEPS]]
    return paths + _mean_errors(len(steps), correlation, rng)


def _drawn_processes(count: int, correlation: float, rng: np.random.Generator) -> Float64s:
    """Sequences of normal quantiles, each with a correlation that so many references allow."""
    from scipy.signal import lfilter

    doubt = _DOUBT * (1 - correlation**2) / np.sqrt(count)
    drawn = np.clip(rng.normal(correlation, doubt, _PATHS), 0, 0.95)
    paths = rng.normal(size=(_PATHS, _STEPS))
    for path, own in zip(paths, drawn, strict=True):
        path[:] = lfilter([np.sqrt(1 - own**2)], [1, -own], path)
    return np.maximum(paths + _mean_errors(count, drawn, rng), quantiles(1.0))


def _cycle_peaks(steps: Float64s) -> Float64s:
    """The largest evidence of each cycle from zero to zero, over all sequences."""
    value = np.zeros(len(steps))
    peak = np.zeros(len(steps))
    peaks = []
    for column in steps.T:
        value = np.maximum(0, value + column)
        ended = (value == 0) & (peak > 0)
        peaks.append(peak[ended])
        peak = np.where(value == 0, 0, np.maximum(peak, value))
    return np.sort(np.concatenate([*peaks, peak[peak > 0]]))[::-1]


def _exceeded(peaks: Float64s, times: float) -> float:
    """The value that the peaks exceed this many times; below 50 times by their exponential tail."""
    most = min(len(peaks) - 1, 400)
    if times >= 50:
        return float(peaks[min(int(times), len(peaks) - 1)])
    slope = float(np.mean(peaks[:most] - peaks[most]))
    return float(peaks[most] + slope * np.log(most / times))
