"""When a machine's decisions become an alarm: k anomalous clips among the last n.

One loud clip wakes nobody. An open alarm stays one alarm: it is not opened again until the
machine has recovered or a person has acknowledged it, and every alarm counts only clips that
came after the last opening or closing, so no clip belongs to two alarms. What counts is the
order in which clips arrive, never a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from daco.errors import InputError

MOST_CLIPS = 1000
"""The longest window of a rule: what has to be looked at for every clip stays small."""

_WRITTEN = re.compile(r"(\d{1,4}) ?(?:/|of) ?(\d{1,4})", re.ASCII)


@dataclass(frozen=True)
class AlarmRule:
    """k anomalous clips among the last n open an alarm, consecutive normal clips close it.

    Parameters
    ----------
    k : int
        Anomalous clips that open an alarm.
    n : int
        Clips among which they are counted.
    recovery : int, optional
        Normal clips in a row that close an open alarm; `n` of them where nothing is said.
    every : bool
        True lets an open alarm hold nothing back: the next k open another one.

    Examples
    --------
    >>> rule = AlarmRule.parse("3/5")
    >>> rule.k, rule.n, rule.normals_to_close, str(rule)
    (3, 5, 5, '3/5')
    >>> AlarmRule.parse("off") == EVERY_CLIP
    True
    """

    k: int = 3
    n: int = 5
    recovery: int | None = None
    every: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n <= MOST_CLIPS:
            raise InputError(
                f"An alarm rule k/n needs 1 <= k <= n <= {MOST_CLIPS}. "
                f"Got k={self.k!r} and n={self.n!r} instead."
            )
        if self.recovery is not None and not 1 <= self.recovery <= MOST_CLIPS:
            raise InputError(
                "The 'recovery' of an alarm rule must be between 1 and "
                f"{MOST_CLIPS} clips. Got {self.recovery!r} instead."
            )

    @classmethod
    def parse(cls, text: str, *, recovery: int | None = None) -> AlarmRule:
        """The rule a user typed: ``3/5``, or ``off`` for an alarm at every anomalous clip."""
        word = text.strip().lower()
        if word == "off":
            return cls(1, 1, recovery, every=True)
        written = _WRITTEN.fullmatch(word)
        if not written:
            raise InputError(
                f"An alarm rule is written k/n, such as 3/5, or 'off'. Got {text!r} instead."
            )
        return cls(int(written[1]), int(written[2]), recovery)

    def __str__(self) -> str:
        return "off" if (self.k, self.n, self.every) == (1, 1, True) else f"{self.k}/{self.n}"

    @property
    def normals_to_close(self) -> int:
        """Normal clips in a row after which an open alarm is closed."""
        return self.n if self.recovery is None else self.recovery

    @property
    def memory(self) -> int:
        """How many past clips the next decision can depend on."""
        return max(self.n, self.normals_to_close) - 1


EVERY_CLIP = AlarmRule(1, 1, every=True)
"""The rule ``off``: every anomalous clip is an alarm of its own."""


class Decision(NamedTuple):
    """A clip and whether it was found anomalous."""

    clip: int
    anomalous: bool


class Opened(NamedTuple):
    """An alarm: the clip that completed it, and all that contributed, oldest first."""

    clip: int
    contributing: tuple[int, ...]


class Recovered(NamedTuple):
    """The end of an alarm: the last of enough normal clips in a row."""

    clip: int


@dataclass(frozen=True)
class AlarmState:
    """What the next decision depends on.

    Parameters
    ----------
    recent : tuple of Decision
        Oldest first, none from before the last opening, recovery or acknowledgement. A new
        state has none, so it is also the state after an acknowledgement.
    is_open : bool
        An alarm is open.
    """

    recent: tuple[Decision, ...] = ()
    is_open: bool = False


def advance(
    rule: AlarmRule, state: AlarmState, decision: Decision
) -> tuple[AlarmState, Opened | Recovered | None]:
    """The state after one more clip, and the alarm that it opened or ended.

    Examples
    --------
    >>> rule, state = AlarmRule(2, 3), AlarmState()
    >>> for clip, anomalous in enumerate([True, False, True, True, False, False, False]):
    ...     state, event = advance(rule, state, Decision(clip, anomalous))
    ...     if event:
    ...         print(event)
    Opened(clip=2, contributing=(0, 2))
    Recovered(clip=6)
    """
    recent = (*state.recent, decision)[-rule.memory - 1 :]
    if decision.anomalous and (rule.every or not state.is_open):
        contributing = tuple(clip for clip, anomalous in recent[-rule.n :] if anomalous)
        if len(contributing) >= rule.k:
            return AlarmState(is_open=True), Opened(decision.clip, contributing)
    last = [anomalous for _, anomalous in recent[-rule.normals_to_close :]]
    if state.is_open and len(last) == rule.normals_to_close and not any(last):
        return AlarmState(), Recovered(decision.clip)
    return AlarmState(recent, state.is_open), None
