"""The decision rule: conformal p-values against reference scores of normals.

Reference scores are the scores that new normals are expected to have. A clip is anomalous if its
p-value is at most the false-alarm rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.method.bank import Clips, NormalBank
from daco.method.config import ScoreConfig
from daco.method.siblings import likely_siblings, scores_of_normals
from daco.text import day_in_words, name_list, quantity
from daco.validation import Float64s, is_missing

PRIOR_CLIPS = 10
"""Weight, in clips, of the p-value of all domains together beside that of one domain."""

KINDS = TRAINING, SESSIONS, NEW = "training", "sessions", "new"
"""The origin of reference scores: clips of the bank with their likely siblings hidden, with their
recording session hidden, or clips that are not in the bank."""

_STEP = 1e-9
_FAR = 5
_LARGEST_QUANTILE = float(np.nextafter(1, 0))


@dataclass(frozen=True, eq=False)
class ReferenceScores:
    """Scores of normals that clips are judged against; higher is more anomalous.

    Parameters
    ----------
    scores : (n,)
    clip_domains : (n,) int
        The domain of each score, an index into `domains`. Every domain has a score.
    domains : tuple
        Names of the G domains.
    bounded : bool
        Whether scores are quantiles, as those of ``conf`` configurations.
    kinds : {domain: str}
        The origin of the scores: ``training``, ``sessions`` or ``new``.
    sessions : {domain: int}
        Number of recording sessions, if each clip was scored without its session.

    Examples
    --------
    >>> from daco.detector.reference import ReferenceScores
    >>> reference = ReferenceScores([1, 2, 3, 4], [0, 0, 0, 0], ("all",))
    >>> reference.p_values([3.5, 0.5, 6.5], [[1.0]] * 3).round(3)
    array([0.4  , 1.   , 0.043])
    >>> reference.thresholds([[1.0]], 0.4)
    array([3.])
    """

    scores: Float64s
    clip_domains: NDArray[np.int32]
    domains: tuple[Any, ...]
    bounded: bool = False
    kinds: Mapping[Any, str] = field(default_factory=dict)
    sessions: Mapping[Any, int] = field(default_factory=dict)

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
    def _parts(self) -> list[Float64s]:
        """Scores on the scale of the tails, in ascending order, of each domain and of all."""
        scores = self._scale(self.scores)
        codes = range(len(self.domains))
        return [*(np.sort(scores[self.clip_domains == code]) for code in codes), np.sort(scores)]

    def _scale(self, scores: Float64s) -> Float64s:
        """Quantiles as ``-log(1 - q)``: uniform ones are exponential then, as the tail is."""
        if not self.bounded:
            return scores
        scaled: Float64s = -np.log1p(-np.clip(scores, 0, _LARGEST_QUANTILE))
        return scaled

    @property
    def sizes(self) -> dict[Any, int]:
        """Number of reference scores in each domain."""
        return {name: len(part) for name, part in zip(self.domains, self._parts, strict=False)}

    def p_values(self, scores: ArrayLike, weights: ArrayLike) -> Float64s:
        """Compute p-values of clips: the mean over domains, weighted by how well each fits.

        The p-value of a domain is the conformal ``(1 + references as high) / (n + 1)``; above its
        largest reference score an exponential tail continues it. It is then drawn towards the
        p-value of all domains together, with the weight of `PRIOR_CLIPS` clips.

        Parameters
        ----------
        scores : (n,)
            Scores of the clips.
        weights : (n, G)
            How strongly each clip belongs to each domain; rows sum to 1.

        Returns
        -------
        (n,) float64
        """
        by_domain = self._by_domain(np.asarray(scores, np.float64))
        return _mixed(by_domain, np.asarray(weights, np.float64))

    def _by_domain(self, scores: Float64s) -> Float64s:
        """P-values (n, G) in each domain."""
        scaled = self._scale(scores)
        by_part = [_conformal(part, scaled) for part in self._parts]
        if len(self.domains) == 1:
            return by_part[0][..., None]
        sizes = np.array([len(part) for part in self._parts[:-1]])
        own = np.stack(by_part[:-1], axis=-1) * sizes + PRIOR_CLIPS * by_part[-1][..., None]
        shrunk: Float64s = own / (sizes + PRIOR_CLIPS)
        return shrunk

    @cached_property
    def _steps(self) -> tuple[Float64s, Float64s, Float64s]:
        """The different scores, and the p-values at each of them and just above."""
        scores = np.unique(self.scores)
        return scores, self._by_domain(scores), self._by_domain(np.nextafter(scores, np.inf))

    def thresholds(self, weights: ArrayLike, rate: float) -> Float64s:
        """Compute the score above which the p-value of each clip is at most `rate`.

        Parameters
        ----------
        weights : (n, G)
            How strongly each clip belongs to each domain; rows sum to 1.
        rate : float in (0, 1)
            The false-alarm rate.

        Returns
        -------
        (n,) float64
        """
        return np.array([self._threshold(row, rate) for row in np.asarray(weights, np.float64)])

    def _threshold(self, weights: Float64s, rate: float) -> float:
        scores, at, above = self._steps
        last = max(int((_mixed(at, weights) > rate).sum()) - 1, 0)  # the first has p-value 1
        low = float(scores[last])
        if _mixed(above[last], weights) <= rate:
            return low
        # Between two scores p-values fall only in a tail: halve until no number is left between.
        high, step = np.inf, max(float(np.ptp(scores)), _STEP * max(1.0, abs(low)))
        if last + 1 < len(scores):
            high = float(scores[last + 1])
        elif self.bounded:
            high = 1.0
        while low < (middle := low + min((high - low) / 2, step)) < high:
            if self.p_values(middle, weights) > rate:
                low, step = middle, 2 * step
            else:
                high = middle
        return low

    def domain_thresholds(self, rate: float) -> dict[Any, float]:
        """Compute the threshold of clips of one domain alone, by domain."""
        values = self.thresholds(np.eye(len(self.domains)), rate)
        return dict(zip(self.domains, values.tolist(), strict=True))

    def smallest_rates(self) -> dict[Any, float]:
        """Compute the smallest p-value of each domain that is not extrapolated."""
        sizes = np.array(list(self.sizes.values()))
        floors = 1 / (sizes + 1)
        if len(sizes) > 1:
            pooled = PRIOR_CLIPS / (sizes.sum() + 1)
            floors = (sizes * floors + pooled) / (sizes + PRIOR_CLIPS)
        return dict(zip(self.domains, floors.tolist(), strict=True))

    def cautions(self, rate: float) -> tuple[str, ...]:
        """Return a sentence for each domain that has too few scores for the rate."""
        needed = math.ceil(1 / rate - 1 - 1e-9)
        return tuple(
            f"A false-alarm rate of {rate:g} is below {smallest:.3g}, the smallest that "
            f"{quantity(self.sizes[name], 'clip')} of {name} can support: the threshold is "
            f"extrapolated. Calibrate with at least {needed} new normals of {name}."
            for name, smallest in self.smallest_rates().items()
            if rate < smallest * (1 - 1e-9)
        )

    def shifted(self, shifts: Mapping[Any, float]) -> ReferenceScores:
        """Move the scores of each domain up by a number of its standard deviations."""
        scores = self._scale(self.scores)
        for code, name in enumerate(self.domains):
            rows = self.clip_domains == code
            scores = np.where(rows, scores + shifts.get(name, 0.0) * scores[rows].std(), scores)
        if self.bounded:
            scores = -np.expm1(-np.maximum(scores, 0))
        return replace(self, scores=scores)


def _mixed(by_domain: Float64s, weights: Float64s) -> Float64s:
    mixed: Float64s = np.minimum((by_domain * weights).sum(axis=-1), 1.0)
    return mixed


def _conformal(ascending: Float64s, scores: Float64s) -> Float64s:
    """The p-value of each score among sorted ones.

    Above the largest it falls as the exponential does that is 1/2 at the median.
    """
    n, largest = len(ascending), float(ascending[-1])
    as_high = n - np.searchsorted(ascending, scores, side="left")
    median = float(ascending[(n - 1) // 2] + ascending[n // 2]) / 2
    tail = max(largest - median, _STEP * max(1.0, abs(largest)))
    beyond = np.maximum(scores - largest, 0) / tail
    p_values: Float64s = (1 + as_high) / (n + 1) * np.exp2(-beyond * max(np.log2((n + 1) / 2), 1))
    return p_values


def reference_for(
    bank: NormalBank,
    config: str | ScoreConfig,
    sessions: Sequence[str] = (),
    new: tuple[Clips, NDArray[np.int32]] | None = None,
) -> ReferenceScores:
    """Choose the best reference scores that each domain has.

    Parameters
    ----------
    bank : NormalBank
    config : str or ScoreConfig
    sessions : N texts, optional
        Recording session of each clip of the bank, ``""`` where it is not known.
    new : (clips, domain codes), optional
        Normals that are not in the bank.

    Returns
    -------
    ReferenceScores
        Of a domain's new clips; else, where two or more of its sessions are known, of the clips of
        these, each scored with its session hidden; else of all its clips, each scored with its
        likely siblings hidden.
    """
    parsed = ScoreConfig.parse(config)
    names = sessions_that_count(bank, sessions)
    scores: list[Float64s] = []
    codes: list[NDArray[np.int32]] = []
    kinds: dict[Any, str] = {}
    counts: dict[Any, int] = {}
    new_codes = np.zeros(0, np.int32) if new is None else new[1]
    fresh = np.zeros(0) if new is None else bank.score(new[0], parsed)[:, 0]
    own = np.zeros(len(bank))
    if set(range(len(bank.domains))) - set(new_codes.tolist()):
        own = scores_of_normals(bank, parsed, likely_siblings(bank), names)
    for code, name in enumerate(bank.domains):
        rows = bank.clip_domains == code
        known = rows & (names != "")
        if (new_codes == code).any():
            kinds[name], part = NEW, fresh[new_codes == code]
        elif known.any():
            kinds[name], part = SESSIONS, own[known]
            counts[name] = len(set(names[known].tolist()))
        else:
            kinds[name], part = TRAINING, own[rows]
        scores.append(part)
        codes.append(np.full(len(part), code, np.int32))
    joined = np.concatenate(scores), np.concatenate(codes)
    return ReferenceScores(*joined, bank.domains, parsed.calibration == "conf", kinds, counts)


def sessions_that_count(bank: NormalBank, sessions: Sequence[str]) -> NDArray[Any]:
    """The session of each clip, "" where it is not known or the only one of its domain."""
    names = np.array(sessions if len(sessions) else [""] * len(bank))
    domains = range(len(bank.domains))
    several = [len(set(names[bank.clip_domains == code].tolist()) - {""}) > 1 for code in domains]
    return np.where(np.array(several)[bank.clip_domains], names, "")


def expected_rates(
    bank: NormalBank, config: str | ScoreConfig, reference: ReferenceScores, rate: float
) -> dict[Any, tuple[float, float]]:
    """Estimate the range of false-alarm rates on new recordings, by domain.

    They are 90 % limits for the number of reference scores or sessions. For the bank's own clips
    the limits also hold the shares that are anomalous when only the clip is hidden from the bank,
    and when five times as many siblings are hidden as are likely.
    """
    from scipy.stats import beta

    parsed, thresholds = ScoreConfig.parse(config), reference.domain_thresholds(rate)
    own = []
    if TRAINING in reference.kinds.values():
        far = [_FAR * max(count, 1) for count in likely_siblings(bank)]
        own = [bank.leave_one_out(parsed)[:, 0], scores_of_normals(bank, parsed, far, share=0.5)]
    rates = {}
    for code, (name, size) in enumerate(reference.sizes.items()):
        size = reference.sessions.get(name, size)
        rank = max(1, int(rate * (size + 1) + 1e-9))
        low, high = (float(beta.ppf(end, rank, size + 1 - rank)) for end in (0.05, 0.95))
        if reference.kinds.get(name) == TRAINING:
            rows = bank.clip_domains == code
            shares = [float((scores[rows] > thresholds[name]).mean()) for scores in own]
            low, high = min(low, *shares), max(high, *shares)
        rates[name] = (low, high)
    return rates


def reference_fields(
    bank: NormalBank,
    config: str,
    sessions: Sequence[str],
    new: tuple[NDArray[np.float32], NDArray[np.int32]] | None = None,
    before: Mapping[str, Mapping[str, Any]] | None = None,
    when: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The fields of a model that follow from its bank and its new normals."""
    reference = reference_for(bank, config, sessions, new if new and len(new[0]) else None)
    basis: dict[str, dict[str, Any]] = {}
    for name, kind in reference.kinds.items():
        known = (before or {}).get(name, {})
        same = known.get("kind") == kind and reference.sizes[name] <= known["clips"]
        since = known["when"] if same else None
        since = (when or {}).get(name, since)
        basis[name] = {"kind": kind, "clips": reference.sizes[name], "when": since}
        if kind == SESSIONS and since is None:  # else the halves of one session
            basis[name]["sessions"] = reference.sessions[name]
    return {
        "domains": bank.domains,
        "clip_domains": bank.clip_domains.astype(np.int32),
        "reference_scores": reference.scores,
        "reference_domains": reference.clip_domains,
        "basis": basis,
    }


def parse_sessions(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Sessions of clips; () where none is known."""
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"groups must name each of the {count} clips. Got {given!r:.40}.")
    names = tuple("" if is_missing(each) else str(each) for each in given)
    if names and len(names) != count:
        raise InputError(f"groups must name each of the {count} clips. Got {len(names)}.")
    return names if any(names) else ()


def basis_in_words(basis: Mapping[str, Mapping[str, Any]]) -> str:
    """The origin of the reference scores in words.

    >>> basis_in_words({"all": {"kind": "new", "clips": 25, "when": "2026-05-12T08:00:00Z"}})
    'from 25 new recordings of 12 May 2026'
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for name, each in basis.items():
        alike.setdefault((each["kind"], day_in_words(each["when"], "of")), []).append(name)
    sentences = []
    for (kind, day), names in alike.items():
        clips = sum(basis[name]["clips"] for name in names)
        sentence = {
            NEW: f"from {quantity(clips, 'new recording')}{day}",
            SESSIONS: f"from {quantity(clips, 'recording')}{day}, each judged without its "
            + ("half of them" if day else "session"),
            TRAINING: "from the training recordings only, so it may be far off",
        }[kind]
        sentences.append(sentence if len(alike) == 1 else f"for {name_list(names)} {sentence}")
    return "; ".join(sentences)
