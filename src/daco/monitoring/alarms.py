"""Alarms: raised when at least k of the last n clips are anomalous, cleared by normal clips.

A rule such as '1 a month' adds the evidence of clips up instead, for faults.

An alarm that has not cleared stays the one alarm of its machine and kind: further clips extend it.
Clips count in the order of arrival, never by a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from daco.detector.ranges import ANOMALOUS, NORMAL, OFF, OUT_OF_RANGE, RECORDER_FAULT
from daco.errors import InputError
from daco.monitoring.evidence import Evidence
from daco.monitoring.evidence import advance as advance_evidence

FAULT, NO_RECORDINGS, DACO, TREND = "fault", "no recordings", "daco", "trend"
KINDS = (FAULT, OUT_OF_RANGE, OFF, RECORDER_FAULT, NO_RECORDINGS, DACO, TREND)
"""Kinds of alarms; ``daco`` is about daco itself: a lost source, a full disk, a receiver."""

ACTIVE, ACKNOWLEDGED, SHELVED, CLEARED = "active", "acknowledged", "shelved", "cleared"
"""States of an alarm, as in ISA-18.2."""

MOST_CLIPS = 1000
"""The longest window of a rule."""

_RULE = re.compile(r"(\d{1,4}) ?(?:/|of) ?(\d{1,4})", re.ASCII)
_STATED = re.compile(r"([1-9]\d?) an? (day|week|month|year)", re.ASCII)
_DAYS = {"day": 1.0, "week": 7.0, "month": 365.25 / 12, "year": 365.25}


@dataclass(frozen=True)
class AlarmRule:
    """The rule that k anomalous clips of the last n raise an alarm, and normal clips clear it.

    Examples
    --------
    >>> rule = AlarmRule.parse("3 of 5")
    >>> rule.k, rule.n, rule.normals_to_clear, str(rule)
    (3, 5, 5, '3 of 5')
    >>> str(AlarmRule.parse("every")), str(AlarmRule.parse("off"))
    ('every', 'off')
    >>> rule = AlarmRule.parse("2 a week")
    >>> rule.adds_up, rule.interval.total_seconds() / 86400, str(rule)
    (True, 3.5, '2 a week')
    """

    k: int = 3  #: anomalous clips that raise an alarm
    n: int = 5  #: clips among which they are counted
    recovery: int | None = None  #: normal clips in a row that clear it; `n` by default
    never: bool = False  #: no clip raises an alarm
    stated: tuple[int, str] | None = None  #: false alarms in a time, for evidence that adds up

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n <= MOST_CLIPS:
            raise InputError(
                f"An alarm rule 'k of n' needs 1 <= k <= n <= {MOST_CLIPS}. "
                f"Got k={self.k!r} and n={self.n!r} instead."
            )
        if self.recovery is not None and not 1 <= self.recovery <= MOST_CLIPS:
            raise InputError(
                f"The clips that clear an alarm must be between 1 and {MOST_CLIPS}. "
                f"Got {self.recovery!r} instead."
            )

    @classmethod
    def parse(cls, text: str, *, recovery: int | None = None) -> AlarmRule:
        """Parse ``3 of 5`` (or ``3/5``), ``every`` anomalous clip, ``1 a month`` or ``off``.

        With ``1 a month`` (day, week, year), faults alarm when the evidence of clips adds up to a
        limit that healthy ones reach once a month. Other kinds of alarms need 3 of 5 clips.
        """
        word = text.strip().lower()
        if word in ("every", "off"):
            return cls(1, 1, recovery, never=word == "off")
        if stated := _STATED.fullmatch(word):
            return cls(recovery=recovery, stated=(int(stated[1]), stated[2]))
        match = _RULE.fullmatch(word)
        if not match:
            raise InputError(
                "An alarm rule is written '3 of 5', '1 a month' (at most so many false alarms), "
                f"'every' or 'off'. Got {text!r} instead."
            )
        return cls(int(match[1]), int(match[2]), recovery)

    def __str__(self) -> str:
        if self.never:
            return "off"
        if self.stated is not None:
            return f"{self.stated[0]} a {self.stated[1]}"
        return "every" if (self.k, self.n) == (1, 1) else f"{self.k} of {self.n}"

    @property
    def normals_to_clear(self) -> int:
        """Normal clips in a row after which an alarm is cleared."""
        return self.n if self.recovery is None else self.recovery

    @property
    def adds_up(self) -> bool:
        """Whether the evidence of clips is added up."""
        return self.stated is not None

    @property
    def interval(self) -> timedelta:
        """Time between false alarms that a rule that adds up allows."""
        if self.stated is None:
            raise InputError(f"The alarm rule '{self}' states no rate of false alarms.")
        return timedelta(days=_DAYS[self.stated[1]]) / self.stated[0]

    @property
    def memory(self) -> int:
        """Past clips on which the next decision can depend."""
        return max(self.n, self.normals_to_clear) - 1


class Decision(NamedTuple):
    """A clip and whether it is anomalous."""

    clip: int
    anomalous: bool


class Opening(NamedTuple):
    """An alarm opens: the clip that completed it, and all contributing clips, oldest first."""

    clip: int
    contributing: tuple[int, ...]


class Extension(NamedTuple):
    """One more anomalous clip of an open alarm."""

    clip: int


class Recovery(NamedTuple):
    """An alarm clears: the last of enough normal clips in a row."""

    clip: int


Event = Opening | Extension | Recovery | None
"""What a clip did to an alarm."""


@dataclass(frozen=True)
class AlarmState:
    """What the next decision depends on: whether an alarm is open, and the recent clips.

    ``recent`` has the clips since the alarm last opened or cleared, oldest first.
    """

    recent: tuple[Decision, ...] = ()
    is_open: bool = False


def kind_of(state: str) -> str | None:
    """The kind of alarm that clips of a state raise; None for normal clips."""
    return {NORMAL: None, ANOMALOUS: FAULT}.get(state, state)


def counts_for(kind: str, state: str) -> bool:
    """Whether clips of this state count for alarms of this kind.

    For a fault or a trend only those that could be judged do, as anomalous or as normal.
    """
    return kind not in (FAULT, TREND) or state in (NORMAL, ANOMALOUS)


def state_of(
    now: datetime,
    cleared_at: datetime | None,
    acknowledged_at: datetime | None,
    shelved_until: datetime | None,
) -> str:
    """The state of an alarm at a time."""
    if cleared_at is not None:
        return CLEARED
    if shelved_until is not None and shelved_until > now:
        return SHELVED
    return ACTIVE if acknowledged_at is None else ACKNOWLEDGED


def advance(rule: AlarmRule, state: AlarmState, decision: Decision) -> tuple[AlarmState, Event]:
    """Return the state after one more clip, and what it did to the alarm.

    Parameters
    ----------
    rule : AlarmRule
    state : AlarmState
        The state after the previous clip; ``AlarmState()`` before the first one.
    decision : Decision
        The next clip.

    Returns
    -------
    state : AlarmState
    event : Opening, Extension, Recovery or None

    Examples
    --------
    >>> rule, state = AlarmRule(2, 3), AlarmState()
    >>> for clip, anomalous in enumerate([True, False, True, True, False, False, False]):
    ...     state, event = advance(rule, state, Decision(clip, anomalous))
    ...     if event:
    ...         print(event)
    Opening(clip=2, contributing=(0, 2))
    Extension(clip=3)
    Recovery(clip=6)
    """
    recent = (*state.recent, decision)[-rule.memory - 1 :]
    if state.is_open:
        last = [anomalous for _, anomalous in recent[-rule.normals_to_clear :]]
        if len(last) == rule.normals_to_clear and not any(last):
            return AlarmState(), Recovery(decision.clip)
        return AlarmState(recent, True), Extension(decision.clip) if decision.anomalous else None
    contributing = tuple(clip for clip, anomalous in recent[-rule.n :] if anomalous)
    if decision.anomalous and len(contributing) >= rule.k and not rule.never:
        return AlarmState(is_open=True), Opening(decision.clip, contributing)
    return AlarmState(recent), None


def add_up(
    limit: float, evidence: Evidence, is_open: bool, clip: int, p_value: float
) -> tuple[Evidence, Event]:
    """Return the evidence after one more clip, and what it did to the alarm.

    An alarm opens when the evidence reaches its limit, grows no further while it is open, and
    clears when nothing is left of it. The clips that contribute are not named here.

    >>> evidence, is_open = Evidence(), False
    >>> for clip, p_value in enumerate([0.02, 0.01, 0.02, 0.9, 0.8]):
    ...     evidence, event = add_up(3.0, evidence, is_open, clip, p_value)
    ...     is_open = isinstance(event, Opening) or (is_open and not isinstance(event, Recovery))
    ...     print(round(evidence.value, 1), event)
    1.6 None
    3.4 Opening(clip=1, contributing=())
    3.0 Extension(clip=2)
    1.2 None
    0.0 Recovery(clip=4)
    """
    after = advance_evidence(evidence, p_value)
    if not is_open:
        return after, Opening(clip, ()) if after.value >= limit else None
    if after.value == 0:
        return after, Recovery(clip)
    event = Extension(clip) if after.value > evidence.value else None
    return replace(after, value=min(after.value, limit)), event
