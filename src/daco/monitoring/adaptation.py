"""Adaptation: the threshold of one machine follows its surroundings, as fast as a person allows.

A change of surroundings and a lasting fault look alike to a score, so that a person decides. While
somebody has declared the machine healthy, its clips become the reference that later ones are judged
against. Otherwise a quantile tracker per domain (adaptive conformal inference) moves the reference
slowly, within a bound, and not by clips of an open alarm or that somebody called faulty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import numpy as np

from daco.detector.decision import ReferenceScores, is_anomalous, oddness
from daco.detector.ranges import ANOMALOUS, NORMAL
from daco.detector.verdict import Verdict
from daco.errors import InputError
from daco.text import day_in_words, quantity

Answer = Literal["false alarm", "fault"]
"""What a person says of a clip or an alarm."""

JUDGED = (NORMAL, ANOMALOUS)
"""States of clips that their scores decide on."""

SLOW, FAST = 0.01, 0.05
"""Standard deviations of the reference scores per clip, times its anomaly less the rate: usually,
and while the machine is declared healthy, where it falls with the square root of the healthy clips.
At SLOW a drift of 0.1 of them in 1,000 clips costs 0.01 of the rate (0.1 / 1000 / SLOW), and a rate
that is right stays within 0.01 of itself."""

ANSWERED = 0.1
"""Standard deviations that one false alarm moves the reference by, where all recent clips were
anomalous."""

BOUND = 0.75
"""Standard deviations beyond which only a person moves the reference: a fault that lasts and is
farther out stays anomalous."""

FEWEST, MOST = 10, 500
"""Clips of a healthy machine that make a reference, and the last of them that are kept."""

_VERB = re.compile("^(comes|has) ")
_RECENT = 50  # clips over which the present share of anomalous ones is averaged
_NORMALS_AFTER_FAULT = 5  # in a row, after which a machine called faulty is adapted to again


class Calibration(NamedTuple):
    """What a model decides by: the scores of its normals, and its false-alarm rate."""

    reference: ReferenceScores
    rate: float


class HealthyClip(NamedTuple):
    """A clip of a machine that was declared healthy."""

    clip: int
    score: float
    domain: str


@dataclass(frozen=True)
class Adaptation:
    """What was learned about one machine and model since the model was put to use.

    Examples
    --------
    >>> from daco.detector.decision import ReferenceScores
    >>> reference = ReferenceScores(range(1, 100), [0] * 99, ("all",))
    >>> state = Adaptation("ab12", rate=0.1)
    >>> state.decide(reference, 95.0, {"all": 1.0})
    (0.06, 90.0)
    >>> for clip in range(50):
    ...     state = state.after_clip(clip, 95.0, {"all": 1.0}, anomalous=True)
    >>> state.sentence()
    'The alarm limit has moved up by 0.5 standard deviations of the normal scores, over 50 clips.'
    """

    model_sha256: str
    rate: float  #: the model's false-alarm rate
    shifts: Mapping[str, float] = field(default_factory=dict)  #: by domain, in standard deviations
    clips: int = 0  #: that moved them
    since: str | None = None  #: time of the first of these, ISO 8601
    healthy: tuple[HealthyClip, ...] = ()  #: the reference, where there are `FEWEST` of them
    left: int = 0  #: clips that are still to be taken as healthy
    declared_after: int = 0  #: the last clip before the machine was declared healthy
    declared_at: str | None = None
    declared_by: str = ""
    recent: float | None = None  #: share of anomalous clips lately
    normals_to_wait: int = 0  #: until clips count again after a fault
    last_fault: int = 0  #: the last clip that somebody called faulty
    #: what answers moved the reference by, by clip; JSON has no other keys than text
    moves: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Adaptation:
        """The adaptation that `to_dict` wrote."""
        return cls(**{**state, "healthy": tuple(HealthyClip(*each) for each in state["healthy"])})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)

    def reference(self, model: ReferenceScores) -> ReferenceScores:
        """The scores that clips are judged against, made from those of the model.

        A domain without a clip of the healthy machine keeps the model's.
        """
        if self.is_commissioned:
            code = {name: number for number, name in enumerate(model.domains)}
            codes = np.array([code[each.domain] for each in self.healthy], np.int32)
            kept = ~np.isin(model.clip_domains, codes)
            model = replace(
                model,
                scores=np.append(model.scores[kept], [each.score for each in self.healthy]),
                clip_domains=np.append(model.clip_domains[kept], codes),
            )
        return model.shifted(self.shifts)

    def decide(
        self, model: ReferenceScores, score: float, weights: Mapping[str, float]
    ) -> tuple[float, float]:
        """The p-value of a clip, anomalous where that is at most the rate, and its threshold."""
        reference = self.reference(model)
        row = [weights.get(name, 0.0) for name in reference.domains]
        p_value = float(reference.p_values([score], [row])[0])
        return p_value, reference.threshold(row, self.rate)

    def adapted(self, verdict: Verdict, model: ReferenceScores) -> Verdict:
        """A verdict of the model, decided against the adapted reference.

        Those on a machine that is off, out of range or not recorded well stay as they are.
        """
        if verdict.state not in JUDGED:
            return verdict
        weights = verdict.domain_weights
        p_value, threshold = self.decide(model, verdict.score, weights)
        anomalous = bool(is_anomalous(p_value, self.rate))
        reference = self.reference(model)
        smallest = float(reference.smallest([weights.get(name, 0.0) for name in reference.domains]))
        first = [] if self.is_commissioned or not verdict.basis else [verdict.basis]
        return replace(
            verdict,
            p_value=p_value,
            threshold=threshold,
            oddness=oddness(p_value, self.rate),
            anomalous=anomalous,
            state=ANOMALOUS if anomalous else NORMAL,
            basis="; ".join([*first, *(_VERB.sub("", part) for part in self._parts())]),
            extrapolated=p_value < smallest,
            supported_rate=smallest,
        )

    def after_clip(
        self,
        clip: int,
        score: float,
        weights: Mapping[str, float],
        *,
        anomalous: bool,
        alarm_is_open: bool = False,
        at: datetime | None = None,
    ) -> Adaptation:
        """The state after a clip that was judged, which nobody has called faulty.

        While an alarm is open, a person is asked, and only the share of anomalous clips is
        followed. That does not change the rate in the long run: whether an alarm is open follows
        from earlier clips alone.
        """
        if self.normals_to_wait:
            waiting = _NORMALS_AFTER_FAULT if anomalous else self.normals_to_wait - 1
            return replace(self, normals_to_wait=waiting)
        before = self.rate if self.recent is None else self.recent
        state = replace(self, recent=before + (anomalous - before) / _RECENT)
        if alarm_is_open and not self.left:
            return state
        fast = FAST * math.sqrt(FEWEST / max(FEWEST, len(self.healthy)))
        step = fast if self.left else SLOW
        state = state._moved(weights, step * (anomalous - self.rate), bounded=not self.left)
        since = self.since or (None if at is None else _iso(at))
        state = replace(state, clips=self.clips + 1, since=since)
        return state._collected(clip, score, weights) if self.left else state

    def _moved(self, weights: Mapping[str, float], step: float, *, bounded: bool) -> Adaptation:
        shifts = dict(self.shifts)
        for domain, weight in weights.items():
            before = shifts.get(domain, 0.0)
            bound = max(BOUND, abs(before)) if bounded else math.inf
            shifts[domain] = min(max(before + step * weight, -bound), bound)
        return replace(self, shifts=shifts)

    def _collected(self, clip: int, score: float, weights: Mapping[str, float]) -> Adaptation:
        """With one more clip of the healthy machine; enough of them replace those before."""
        domain = max(weights, key=lambda name: weights[name])
        healthy = (*self.healthy, HealthyClip(clip, score, domain))
        present = tuple(each for each in healthy if each.clip > self.declared_after)
        state = replace(self, left=self.left - 1, healthy=healthy)
        if len(present) == FEWEST:  # what was learned about the reference before is over
            state = replace(state, shifts={}, moves={}, clips=0, since=None)
        return replace(state, healthy=present[-MOST:]) if len(present) >= FEWEST else state

    def declared_healthy(self, clips: int, by: str, *, after: int, at: datetime) -> Adaptation:
        """The next clips are taken as healthy, as a person says who knows the machine."""
        if not FEWEST <= clips <= MOST:
            raise InputError(
                f"A machine is declared healthy for {FEWEST} to {MOST} clips. Got {clips!r}."
            )
        return replace(
            self,
            left=clips,
            healthy=self.healthy if self.is_commissioned else (),
            declared_after=after,
            declared_at=_iso(at),
            declared_by=by,
            normals_to_wait=0,
        )

    def after_answer(
        self, answer: str, clip: int, weights: Mapping[str, float], *, anomalous: bool
    ) -> Adaptation:
        """The state after a person answered for a clip that was adapted to.

        A false alarm moves the reference by what it and the normal clips between false alarms
        would together: by nothing where clips are as often anomalous as they should be. Answers
        are given for anomalous clips, and counting these alone would raise the threshold for ever.
        A fault is taken back, with the healthy clips after it. What an earlier answer has moved
        is taken back first. Clips from before the machine was declared healthy change nothing.
        """
        if clip <= self.declared_after:
            return self
        moves = dict(self.moves)
        state = self._moved(weights, -moves.pop(str(clip), 0.0), bounded=False)
        if answer == "fault":
            step = -SLOW * (1 - self.rate)
            healthy = tuple(each for each in self.healthy if each.clip < clip)
            waits, last = _NORMALS_AFTER_FAULT, max(clip, self.last_fault)
            state = replace(state, healthy=healthy, left=0, normals_to_wait=waits, last_fault=last)
        else:
            step = ANSWERED * (1 - self.rate / max(self.recent or 0.0, self.rate))
            if clip >= self.last_fault:
                state = replace(state, normals_to_wait=0)
        moves[str(clip)] = step * anomalous
        state = replace(state, moves=dict([*moves.items()][-MOST:]))
        return state._moved(weights, step * anomalous, bounded=answer == "fault")

    @property
    def is_commissioned(self) -> bool:
        """Clips of the machine declared healthy are the reference."""
        return len(self.healthy) >= FEWEST

    def sentence(self) -> str:
        """What decisions rest on, how far they were moved, and what comes next."""
        sentences = [f"The alarm limit {part}." for part in self._parts()]
        if self.left:
            sentences.append(f"The next {quantity(self.left, 'clip')} count as healthy.")
        enough = math.ceil(2 / self.rate - 1 - 1e-9)  # the second highest score decides then
        if 0 < self.left + len(self.healthy) < enough:
            sentences.append(self._odd_clip(enough))
        return " ".join(sentences) or "Nothing has been learned yet."

    def _odd_clip(self, enough: int) -> str:
        """A warning of fewer healthy clips than `enough`."""
        sentence = f"With fewer than {enough} clips, the highest of their scores sets the limit"
        if not self.is_commissioned:
            return f"{sentence}, so one odd clip can hide faults."
        highest = max(self.healthy, key=lambda each: each.score)
        return (
            f"{sentence}: {highest.score:.4g}, of clip {highest.clip}. If that clip is odd, faults "
            f"are missed. Then declare the machine healthy again, for {enough} clips or more."
        )

    def _parts(self) -> Iterator[str]:
        if self.is_commissioned:
            clips, day = quantity(self.healthy, "clip"), day_in_words(self.declared_at, "on")
            yield f"comes from {clips} of the machine, declared healthy by {self.declared_by}{day}"
        if self.clips:
            most = max(self.shifts.values(), key=abs, default=0.0)
            size = f"by {abs(most):.1f} standard deviations of the normal scores"
            moved = f"has moved {'down' if most < 0 else 'up'} {size}"
            moved = moved if abs(most) >= 0.05 else "has hardly moved"
            day = day_in_words(self.since, "since")
            yield f"{moved}{day}, over {quantity(self.clips, 'clip')}"
        if any(abs(shift) > 0.95 * BOUND for shift in self.shifts.values()):
            yield "moves no farther unless a person declares the machine healthy"


def for_model(state: Adaptation | None, model_sha256: str, rate: float) -> Adaptation:
    """The state of a model: what was learned about another one is forgotten."""
    known = state is not None and state.model_sha256 == model_sha256
    return state if state is not None and known else Adaptation(model_sha256, rate)


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
