"""Detection rates of a model by kind of fault, domain and level, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import ONE_DOMAIN
from daco.text import name_list

DETECT = 0.9
"""The share of recordings that counts as caught."""

CONFIDENCE = 0.95
FEW = 20

Counts = NDArray[np.int64]


class Rate(NamedTuple):
    """So many of so many clips, and the interval that 95 % of such counts are drawn from.

    >>> Rate(9, 10).share, [round(end, 2) for end in Rate(10, 10).interval]
    (0.9, [0.69, 1.0])
    """

    caught: int
    clips: int

    @property
    def share(self) -> float:
        """The rate itself."""
        return self.caught / self.clips

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's exact binomial interval."""
        from scipy.stats import binomtest

        ends = binomtest(self.caught, self.clips).proportion_ci(CONFIDENCE)
        return float(ends.low), float(ends.high)

    def to_row(self) -> dict[str, Any]:
        """Counts, share and interval by column."""
        low, high = self.interval
        counts = {"caught": self.caught, "clips": self.clips}
        return {**counts, "rate": self.share, "low": low, "high": high}


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Detection rates of a model by kind of fault, domain and (ascending) level.

    ``caught`` counts recordings that are noticed, of shape (kinds, domains, levels), ``by_score``
    those that the score calls anomalous and ``by_ranges`` those outside the ranges,
    ``false_alarms`` the same recordings without a fault and ``clips`` all of them, by domain.
    ``detect`` is the share that counts as caught, ``in_model`` how many recordings are among the
    model's normals and were left out of it, and ``recorded`` what the machine of the recordings is
    called, where that is not the model's name.
    """

    machine: str
    config: str
    model_sha256: str
    thresholds: dict[str, float]
    false_alarm_rate: float
    kinds: tuple[str, ...]
    domains: tuple[str, ...]
    levels: tuple[float, ...]
    caught: Counts
    by_score: Counts
    by_ranges: Counts
    false_alarms: Counts
    clips: Counts
    detect: float
    in_model: int
    seed: int
    recorded: tuple[str, ...] = ()

    def noticed_by(self, kind: str) -> str:
        """``score``, ``ranges`` or ``both``: what notices most at the highest level."""
        at = self.kinds.index(kind)
        most = max(1, self.caught[at, :, -1].sum()) / 2
        ways = {"score": self.by_score, "ranges": self.by_ranges}
        names = [name for name, counts in ways.items() if counts[at, :, -1].sum() >= most]
        return "both" if len(names) > 1 else names[0] if names else "-"

    def rate(self, kind: str, domain: str, level: float) -> Rate:
        """The detection rate of one fault, domain and level."""
        at = self.kinds.index(kind), self.domains.index(domain), self.levels.index(level)
        return Rate(int(self.caught[at]), int(self.clips[at[1]]))

    def false_alarm(self, domain: str) -> Rate:
        """The share of the same recordings that the model flags without a fault."""
        at = self.domains.index(domain)
        return Rate(int(self.false_alarms[at]), int(self.clips[at]))

    def caught_from(self, kind: str, domain: str) -> float | None:
        """The lowest level from which on the fault is caught at every level; None if at none."""
        lowest = None
        for level in reversed(self.levels):
            if self.rate(kind, domain, level).share < self.detect:
                break
            lowest = level
        return lowest

    def sentences(self) -> Iterator[str]:
        """One sentence for each kind of fault.

        ``impacts are caught from -12 dB in source, from -6 dB in target.``
        """
        top = self.levels[-1]
        for kind in self.kinds:
            verb = "are" if kind in ("impacts", "tones") else "is"
            caught, missed = [], []
            for domain in self.domains:
                level = self.caught_from(kind, domain)
                where = "" if self.domains == (ONE_DOMAIN,) else f" in {domain}"
                if level is None:
                    missed.append(f"{self.rate(kind, domain, top).share:.0%}{where}")
                else:
                    caught.append(f"from {level:g} dB{where}")
            text = f"{kind} {verb} caught {', '.join(caught)}" if caught else f"{kind} {verb}"
            if missed:
                text += f"{', ' if caught else ' '}not caught up to {top:g} dB: {', '.join(missed)}"
            how = {"ranges": ", by the ranges", "both": ", by score or ranges"}
            yield f"{text}{how.get(self.noticed_by(kind), '') if caught else ''}."

    def cautions(self) -> Iterator[str]:
        """What the numbers do not say."""
        if self.recorded and not self.in_model:
            yield (
                f"the model is of {self.machine}, the recordings are of {name_list(self.recorded)} "
                "and none of them is in the model: if that is another machine, the rates say "
                "nothing about the model's."
            )
        for domain, clips in zip(self.domains, self.clips.tolist(), strict=True):
            if clips < FEW:
                low = Rate(clips, clips).interval[0]
                stand = "recordings stand" if clips > 1 else "recording stands"
                yield (
                    f"{clips} {domain} {stand} behind each rate there: even {clips} of {clips} "
                    f"caught may be a true rate of {low:.2f}."
                )
        for domain in self.domains:
            alarms = self.false_alarm(domain)
            if alarms.interval[0] > self.false_alarm_rate:
                yield (
                    f"{alarms.caught} of {alarms.clips} {domain} recordings are flagged without a "
                    f"fault, more than the model's rate of {self.false_alarm_rate:g} allows for: "
                    "what is caught there says little."
                )

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per fault, domain and level; the clean recordings come first, without a fault."""
        for domain in self.domains:
            row = self.false_alarm(domain).to_row()
            yield {"fault": "", "domain": domain, "level_db": None, **row, "by_ranges": None}
        for kind, domain, level in product(self.kinds, self.domains, self.levels):
            at = self.kinds.index(kind), self.domains.index(domain), self.levels.index(level)
            row = self.rate(kind, domain, level).to_row() | {"by_ranges": int(self.by_ranges[at])}
            yield {"fault": kind, "domain": domain, "level_db": level, **row}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        names = ("machine", "config", "model_sha256", "thresholds", "false_alarm_rate", "detect")
        return {
            **{name: getattr(self, name) for name in names},
            "clips": dict(zip(self.domains, self.clips.tolist(), strict=True)),
            "in_model": self.in_model,
            "recorded": list(self.recorded),
            "seed": self.seed,
            "caught_from_db": {
                kind: {domain: self.caught_from(kind, domain) for domain in self.domains}
                for kind in self.kinds
            },
            "sentences": list(self.sentences()),
            "cautions": list(self.cautions()),
            "rates": list(self.rows()),
        }
