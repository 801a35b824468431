"""Alarms: raised when at least k of the last n clips are anomalous.

An open alarm is not opened again until the machine has recovered or a person has acknowledged it.
Only clips after the last opening or closing count, in the order of arrival, never by a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from daco.detector.ranges import ANOMALOUS, NORMAL
from daco.errors import InputError

MOST_CLIPS = 1000
"""The longest window of a rule; the last clips are read for every decision."""

_RULE = re.compile(r"(\d{1,4}) ?(?:/|of) ?(\d{1,4})", re.ASCII)


@dataclass(frozen=True)
class AlarmRule:
    """The rule that k anomalous clips of the last n open an alarm, and normal clips close it.

    Examples
    --------
    >>> rule = AlarmRule.parse("3/5")
    >>> rule.k, rule.n, rule.normals_to_close, str(rule)
    (3, 5, 5, '3/5')
    >>> AlarmRule.parse("off")
    AlarmRule(k=1, n=1, recovery=None, every=True)
    """

    k: int = 3  #: anomalous clips that open an alarm
    n: int = 5  #: clips among which they are counted
    recovery: int | None = None  #: normal clips in a row that close it; `n` by default
    every: bool = False  #: an open alarm does not keep the next k clips from opening another one

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n <= MOST_CLIPS:
            raise InputError(
                f"An alarm rule k/n needs 1 <= k <= n <= {MOST_CLIPS}. "
                f"Got k={self.k!r} and n={self.n!r} instead."
            )
        if self.recovery is not None and not 1 <= self.recovery <= MOST_CLIPS:
            raise InputError(
                f"The 'recovery' of an alarm rule must be between 1 and {MOST_CLIPS} clips. "
                f"Got {self.recovery!r} instead."
            )

    @classmethod
    def parse(cls, text: str, *, recovery: int | None = None) -> AlarmRule:
        """Parse ``3/5``, or ``off`` for an alarm at every anomalous clip."""
        word = text.strip().lower()
        if word == "off":
            return cls(1, 1, recovery, every=True)
        match = _RULE.fullmatch(word)
        if not match:
            raise InputError(
                f"An alarm rule is written k/n, such as 3/5, or 'off'. Got {text!r} instead."
            )
        return cls(int(match[1]), int(match[2]), recovery)

    def __str__(self) -> str:
        return "off" if (self.k, self.n, self.every) == (1, 1, True) else f"{self.k}/{self.n}"

    @property
    def normals_to_close(self) -> int:
        """Normal clips in a row after which an open alarm is closed."""
        return self.n if self.recovery is None else self.recovery

    @property
    def memory(self) -> int:
        """Past clips on which the next decision can depend."""
        return max(self.n, self.normals_to_close) - 1


class Decision(NamedTuple):
    """A clip and whether it is anomalous."""

    clip: int
    anomalous: bool


class Opening(NamedTuple):
    """An alarm opens: the clip that completed it, and all contributing clips, oldest first."""

    clip: int
    contributing: tuple[int, ...]


class Recovery(NamedTuple):
    """An alarm ends: the last of enough normal clips in a row."""

    clip: int


@dataclass(frozen=True)
class AlarmState:
    """What the next decision depends on: whether an alarm is open, and the recent clips.

    ``recent`` has the clips since the last opening, recovery or acknowledgement, oldest first.
    """

    recent: tuple[Decision, ...] = ()
    is_open: bool = False


def counts_for(kind: str, state: str) -> bool:
    """Whether clips of this state count for alarms of this kind, which is a state, too.

    For a fault of the machine only those that could be judged do, as anomalous or as normal.
    """
    return kind != ANOMALOUS or state in (NORMAL, ANOMALOUS)


def advance(
    rule: AlarmRule, state: AlarmState, decision: Decision
) -> tuple[AlarmState, Opening | Recovery | None]:
    """Return the state after one more clip, and the alarm that it opened or closed.

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
    event : Opening, Recovery or None

    Examples
    --------
    >>> rule, state = AlarmRule(2, 3), AlarmState()
    >>> for clip, anomalous in enumerate([True, False, True, True, False, False, False]):
    ...     state, event = advance(rule, state, Decision(clip, anomalous))
    ...     if event:
    ...         print(event)
    Opening(clip=2, contributing=(0, 2))
    Recovery(clip=6)
    """
    recent = (*state.recent, decision)[-rule.memory - 1 :]
    if decision.anomalous and (rule.every or not state.is_open):
        contributing = tuple(clip for clip, anomalous in recent[-rule.n :] if anomalous)
        if len(contributing) >= rule.k:
            return AlarmState(is_open=True), Opening(decision.clip, contributing)
    last = [anomalous for _, anomalous in recent[-rule.normals_to_close :]]
    if state.is_open and len(last) == rule.normals_to_close and not any(last):
        return AlarmState(), Recovery(decision.clip)
    return AlarmState(recent, state.is_open), None
