"""The decision rule: weighted conformal p-values against reference scores of normals.

Reference scores are the scores that new normals are expected to have. A clip is anomalous if its
p-value is at most the false-alarm rate. Estimators, model files, verdicts, studies and submissions
all decide by this rule.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.text import quantity
from daco.validation import Bools, Float64s

FALSE_ALARM_RATE = 0.1
"""The default of every estimator, model, study and command."""

SMALLEST_RATE = 1e-9
"""Smaller rates would be lost in the rounding of 1 - rate."""

KINDS = TRAINING, INDEPENDENT, SESSIONS, NEW = "training", "independent", "sessions", "new"
"""The origin of reference scores: clips of the bank with their likely siblings hidden, clips of the
bank that were declared to be independent, with their recording session hidden, or clips that are
not in the bank."""

ROUNDING = 1e-9
"""A p-value that exceeds the rate by this share of it is equal to it."""

_STEP = 1e-9
_SHARE_OF_NEW, _SHARE_OF_OWN = 0.9, 0.7  # of the references that count as independent, simulated
_LITTLE = 0.05  # a domain with less than this share of the largest weight has no say in the tail
_LARGEST_QUANTILE = float(np.nextafter(1, 0))


@dataclass(frozen=True, eq=False)
class ReferenceScores:
    """Scores of normals that clips are judged against; higher is more anomalous.

    Parameters
    ----------
    scores, clip_domains : (n,)
        The scores, and the domain of each, an index into `domains`. Every domain has a score.
    domains : tuple
        Names of the G domains.
    bounded : bool
        Whether scores are quantiles, as those of ``conf`` configurations.
    kinds, sessions, support, siblings : {domain: value}
        The origin of the scores, one of `KINDS`; the number of recording sessions, if each clip was
        scored without its own; the effective number of references of a typical clip; and the mean
        number of likely siblings that were hidden from a clip.

    Examples
    --------
    >>> from daco.detector.decision import ReferenceScores
    >>> reference = ReferenceScores([1, 2, 3, 4], [0, 0, 0, 0], ("all",))
    >>> reference.p_values([3.5, 0.5, 6.5], [[1.0]] * 3).round(3)
    array([0.4  , 1.   , 0.043])
    >>> reference.threshold([1.0], 0.4)
    3.0
    """

    scores: Float64s
    clip_domains: NDArray[np.int32]
    domains: tuple[Any, ...]
    bounded: bool = False
    kinds: Mapping[Any, str] = field(default_factory=dict)
    sessions: Mapping[Any, int] = field(default_factory=dict)
    support: Mapping[Any, float] = field(default_factory=dict)
    siblings: Mapping[Any, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scores = np.asarray(self.scores, np.float64)
        codes = np.asarray(self.clip_domains, np.int32)
        complete = scores.size and scores.ndim == 1 and codes.shape == scores.shape
        if not complete or set(codes.tolist()) != set(range(len(self.domains))):
            raise InputError(
                "Reference scores need at least one score of each domain. "
                f"Got {scores.shape} scores of {len(self.domains)} domains."
            )
        if not np.isfinite(scores).all():
            raise InputError("Reference scores must be finite. Leave NaN and inf out.")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "clip_domains", codes)

    @cached_property
    def _ascending(self) -> list[Float64s]:
        """Scores of each domain in ascending order."""
        codes = range(len(self.domains))
        return [np.sort(self.scores[self.clip_domains == code]) for code in codes]

    @cached_property
    def _counts(self) -> Float64s:
        return np.array([len(part) for part in self._ascending], np.float64)

    @cached_property
    def _tails(self) -> tuple[Float64s, Float64s]:
        """The largest score of each domain, and how far beyond it a p-value is halved.

        The tail falls as the exponential does that is 1/2 at the median of the references.
        """
        parts = [self._scaled(part) for part in self._ascending]
        largest = np.array([part[-1] for part in parts])
        rise = largest - [np.median(part) for part in parts]
        rise = np.maximum(rise, _STEP * np.maximum(1, np.abs(largest)))
        return largest, rise / np.maximum(np.log2((self._counts + 1) / 2), 1)

    def _scaled(self, scores: Float64s) -> Float64s:
        """Quantiles as ``-log(1 - q)``: uniform ones are exponential then, as the tail is."""
        if not self.bounded:
            return scores
        return -np.log1p(-np.clip(scores, 0, _LARGEST_QUANTILE))

    @property
    def sizes(self) -> dict[Any, int]:
        """Number of reference scores in each domain."""
        return dict(zip(self.domains, map(len, self._ascending), strict=True))

    def p_values(self, scores: ArrayLike, weights: ArrayLike) -> Float64s:
        """Compute weighted conformal p-values (n,) of scores (n,) by domain weights (n, G).

        With F the share of a domain's references that are at least as high, w the weights of the
        domains and ``n = 1 / sum(w**2 / n_domain)`` the effective number of references, it is
        ``(1 + n * sum(w * F)) / (n + 1)``. Above the references of all domains that matter an
        exponential tail continues it, which is an extrapolation (`smallest`).
        """
        values, shares = np.asarray(scores, np.float64), np.asarray(weights, np.float64)
        as_high = np.empty((*values.shape, len(self.domains)))
        for code, part in enumerate(self._ascending):
            as_high[..., code] = (len(part) - part.searchsorted(values)) / len(part)
        n = 1 / (shares**2 / self._counts).sum(axis=-1)
        p_values = (self._tail(values, shares) + n * (shares * as_high).sum(axis=-1)) / (n + 1)
        return np.asarray(np.minimum(p_values, 1.0))

    def _tail(self, scores: Float64s, shares: Float64s) -> Float64s:
        """What replaces the 1 of a p-value above all references of the domains that matter."""
        largest, halving = self._tails
        beyond = np.maximum(self._scaled(scores)[..., None] - largest, 0) / halving
        counts = shares >= _LITTLE * shares.max(axis=-1, keepdims=True)
        tails: Float64s = np.where(counts, np.exp2(-beyond), 0).max(axis=-1)
        return tails

    def smallest(self, weights: ArrayLike) -> Float64s:
        """Compute the smallest p-value that is not extrapolated, 1 / (n + 1), for each clip."""
        n = 1 / (np.asarray(weights, np.float64) ** 2 / self._counts).sum(axis=-1)
        return np.asarray(1 / (n + 1))

    def extrapolated(self, p_values: ArrayLike, weights: ArrayLike) -> Bools:
        """Tell whether each p-value is below what the references support, (n,)."""
        return np.asarray(p_values) < self.smallest(weights) * (1 - ROUNDING)

    def threshold(self, weights: ArrayLike, rate: float) -> float:
        """Compute the score above which a clip with these weights (G,) has a p-value <= `rate`."""
        shares = np.asarray(weights, np.float64)
        n = float(1 / (shares**2 / self._counts).sum())
        # How large the tail may be just above each reference: p is (tail + n * above) / (n + 1).
        room = rate * (1 + ROUNDING) * (n + 1) - n * (self._share_above @ shares)
        enough = np.flatnonzero(self._tail(self._different, shares) <= room)
        first = int(enough[0]) if len(enough) else len(room)
        limits: list[float] = self._different[first : first + 1].tolist()
        if first and room[first - 1] > 0:  # the tail may fall so low before that reference
            limits.append(self._tail_reaches(float(room[first - 1]), shares))
        return min(limits)

    def _tail_reaches(self, value: float, shares: Float64s) -> float:
        """The score at which the tail has fallen to a value in (0, 1)."""
        largest, halving = self._tails
        counts = shares >= _LITTLE * shares.max()
        limit = float((largest - halving * math.log2(value))[counts].max())
        return min(-math.expm1(-limit), _LARGEST_QUANTILE) if self.bounded else limit

    @cached_property
    def _different(self) -> Float64s:
        """The different reference scores, in ascending order."""
        return np.unique(self.scores)

    @cached_property
    def _share_above(self) -> Float64s:
        """Share of each domain's references above each of the different scores, (n, G)."""
        shares = [
            1 - part.searchsorted(self._different, "right") / len(part) for part in self._ascending
        ]
        return np.stack(shares, axis=1)

    def domain_thresholds(self, rate: float) -> dict[Any, float]:
        """Compute the threshold of clips of one domain alone, by domain."""
        certain = np.eye(len(self.domains))
        return {
            name: self.threshold(row, rate) for name, row in zip(self.domains, certain, strict=True)
        }

    def warnings(self, rate: float) -> tuple[str, ...]:
        """Return a sentence for each domain that has too few scores for the rate."""
        needed = math.ceil(1 / rate - 1 - ROUNDING)
        return tuple(
            f"A false-alarm rate of {rate:g} is below {1 / (size + 1):.3g}, the smallest that "
            f"{quantity(size, 'clip')} of {name} can support: the threshold is extrapolated. "
            f"Calibrate with at least {needed} new normals of {name}."
            for name, size in self.sizes.items()
            if size < needed
        )

    def shifted(self, shifts: Mapping[Any, float]) -> ReferenceScores:
        """Move the scores of each domain up by a number of its standard deviations."""
        scores = self._scaled(self.scores)
        for code, name in enumerate(self.domains):
            rows = self.clip_domains == code
            scores = np.where(rows, scores + shifts.get(name, 0.0) * scores[rows].std(), scores)
        if self.bounded:
            scores = -np.expm1(-np.maximum(scores, 0))
        return replace(self, scores=scores)


def is_anomalous(p_values: ArrayLike, rate: float) -> Any:
    """Whether p-values are at most the false-alarm rate."""
    return np.asarray(p_values) <= rate * (1 + ROUNDING)


def oddness(p_value: float, rate: float) -> float:
    """Compute ``log(p) / log(rate)``: at least 1 exactly where a clip is anomalous, and finite.

    >>> [round(oddness(p, 0.1), 3) for p in (1.0, 0.5, 0.1, 0.01)]
    [0.0, 0.301, 1.0, 2.0]
    """
    ratio = max(0.0, math.log(max(p_value, sys.float_info.min)) / math.log(rate))
    return max(ratio, 1.0) if is_anomalous(p_value, rate) else min(ratio, math.nextafter(1, 0))


def expected_rates(
    reference: ReferenceScores, rate: float
) -> dict[Any, tuple[float, float] | None]:
    """Compute the range of false-alarm rates on new recordings, by domain.

    It holds in 90 of 100 cases where the domains can be told apart: the share of new normals above
    the k-th largest of n independent references is beta distributed, somewhat wider because the
    references share the bank. Clips of one session count as one. None stands for a domain whose
    references are clips of the bank that may have siblings: its rate is unknown until new
    recordings calibrate it.

    >>> reference = ReferenceScores(range(25), [0] * 25, ("all",), kinds={"all": "new"})
    >>> [round(end, 3) for end in expected_rates(reference, 0.1)["all"]]
    [0.013, 0.182]
    """
    from scipy.stats import beta

    ranges: dict[Any, tuple[float, float] | None] = {}
    for name, size in reference.sizes.items():
        kind = reference.kinds.get(name)
        if kind == TRAINING:
            ranges[name] = None
            continue
        n = reference.sessions.get(name, reference.support.get(name, size))
        share = _SHARE_OF_NEW if kind == NEW else _SHARE_OF_OWN
        rank = max(0.5, math.floor(rate * (n + 1) * (1 + ROUNDING)))
        ends = (float(beta.ppf(end, share * rank, share * (n + 1 - rank))) for end in (0.05, 0.95))
        low, high = ends
        ranges[name] = low, high
    return ranges


def require_rate(rate: Any) -> None:
    """Raise `InputError` unless `rate` can be a false-alarm rate."""
    number = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
    if not number or not SMALLEST_RATE <= float(rate) < 1:
        raise InputError(
            f"The 'false_alarm_rate' parameter must be a number between 0 and 1, at least "
            f"{SMALLEST_RATE:g}. Got {rate!r} instead."
        )
