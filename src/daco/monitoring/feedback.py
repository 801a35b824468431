"""Realised rates: how often alarms were false and faults were found, by the answers of people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from daco.detector.ranges import ANOMALOUS, NORMAL
from daco.evaluation.intervals import share_interval
from daco.monitoring.adaptation import JUDGED
from daco.text import quantity


@dataclass(frozen=True)
class Rates:
    """Clips of a model, counted by the answers of people, and the rates that follow from them.

    Normal clips without an answer count as healthy. Nobody knows about anomalous clips without an
    answer: the interval of the false-alarm rate reaches from none of them to all of them.

    Examples
    --------
    >>> counts = {("normal", None): 880, ("anomalous", "false alarm"): 90, ("anomalous", None): 20}
    >>> rates = Rates.from_counts(counts | {("anomalous", "fault"): 9, ("normal", "fault"): 1})
    >>> for sentence in rates.sentences():
    ...     print(sentence)
    Between 7.4 % and 13.2 % of 990 clips are false alarms (90 answered, 20 without an answer).
    9 of 10 clips with a fault were found (55 % to 100 %).
    """

    clips: int = 0  #: judged by their scores, and not answered as faults
    false_alarms: int = 0  #: anomalous, and answered as such
    unanswered: int = 0  #: anomalous, and nobody answered
    faults: int = 0  #: answered as faults
    found: int = 0  #: of these, those that were anomalous

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    @classmethod
    def from_counts(cls, counts: Mapping[tuple[str, str | None], int]) -> Rates:
        """Compute the rates of clips counted by state and answer."""
        judged = Counter({key: n for key, n in counts.items() if key[0] in JUDGED})
        found = judged[ANOMALOUS, "fault"]
        faults = found + judged[NORMAL, "fault"]
        false_alarms, unanswered = judged[ANOMALOUS, "false alarm"], judged[ANOMALOUS, None]
        return cls(judged.total() - faults, false_alarms, unanswered, faults, found)

    @property
    def false_alarm_rate(self) -> tuple[float, float]:
        """The interval of the share of healthy clips that are anomalous."""
        low, _ = share_interval(self.false_alarms, self.clips)
        return low, share_interval(self.false_alarms + self.unanswered, self.clips)[1]

    @property
    def detection_rate(self) -> tuple[float, float]:
        """The interval of the share of faults that are anomalous."""
        return share_interval(self.found, self.faults)

    def sentences(self) -> list[str]:
        """Describe both rates, or that there are no answers to compute them from."""
        if not (self.false_alarms or self.faults):
            waiting = f"Without an answer: {quantity(self.unanswered, 'alarming recording')}."
            return [f"No rate is known yet, because nobody has answered. {waiting}"]
        low, high = (f"{100 * end:.1f} %" for end in self.false_alarm_rate)
        left = f", {self.unanswered} without an answer" if self.unanswered else ""
        counts = f"({self.false_alarms} answered{left})"
        share = f"Between {low} and {high} of {quantity(self.clips, 'clip')}"
        sentences = [f"{share} are false alarms {counts}."]
        if self.faults:
            low, high = (f"{100 * end:.0f} %" for end in self.detection_rate)
            answered = f"{self.found} of {quantity(self.faults, 'clip')} with a fault"
            sentences.append(f"{answered} were found ({low} to {high}).")
        return sentences
