"""Drift: recent clips compared with what the model was calibrated for, in both directions.

If too many clips are anomalous, or all clips are closer to the normals than these are to each
other, the calibration no longer fits. Some clips far out while the others sound as before point to
the machine. If all clips are equally odder, the surroundings, the microphone or a lasting fault
may be the cause: a person who listens can tell these apart, a number cannot.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from daco.detector.decision import require_rate
from daco.detector.ranges import ANOMALOUS, NORMAL, OFF

if TYPE_CHECKING:
    from daco.monitoring.store.records import StoredClip
    from daco.monitoring.worker import ModelInfo

WINDOW = 200
"""Recent clips that are looked at."""

FEWEST = 30
"""Clips below which nothing is called stale: a few anomalous clips are an alarm, not a drift."""

LEVEL = 0.001
"""Probability below which a count of alarms is not chance; small, as every clip is a new test."""

SHIFT = 0.15
"""Least change of the share of clips in the calm half of p-values that is a shift of all clips: a
reference of 25 clips knows that share to about 0.1."""

CAUTION = (
    "Listen to the anomalous recordings first: they may be faults. Only if somebody knows that the "
    "machine is healthy, declare it healthy or calibrate with new recordings of it."
)

_MANY = 0.2  # of recent clips that no score decides on, for one reason

_NOT_JUDGED = {
    "short": "are shorter than the healthy ones. The settings of the recorder changed.",
    "long": "are longer than the healthy ones. The settings of the recorder changed.",
    "rate": "have another sample rate than the healthy ones. The recorder or its settings changed.",
    "silent": "are silent. Check the microphone and its cable.",
    "clipped": "are overdriven. Lower the gain of the recorder.",
    "range": "have other levels than the healthy ones. The microphone, its place or the "
    "surroundings changed.",
}
"""What is said of clips that could not be judged, by the code of the reason."""


@dataclass(frozen=True)
class Drift:
    """Whether recent decisions fit what the model was calibrated for."""

    stale: bool
    sentence: str  #: the finding
    remedy: str  #: the command that helps
    caution: str = CAUTION  #: when not to use it


def drift_of(
    decisions: Sequence[tuple[bool, Mapping[str, float], float]],
    nominal: float,
    *,
    model: str = "MODEL.daco",
    not_judged: Mapping[str, int] | None = None,
) -> Drift | None:
    """Compare recent decisions of one model with its false-alarm rate; None without any clip.

    `decisions` are whether each clip was called anomalous, its domain weights and its p-value,
    without clips that somebody called faults; `not_judged` the numbers of clips of the same time
    that could not be judged, by the code of the reason. Too many clips are anomalous if chance
    explains their number with a probability below 0.001, divided by the number of domains where
    those of one domain are counted. A limit from few normals may realise twice its rate from the
    first day and is called stale as well: the remedy is the same.
    """
    require_rate(nominal)
    not_judged = not_judged or {}
    if not decisions and not not_judged:
        return None
    every = [(flag, p_value) for flag, _, p_value in decisions]
    of_domain: dict[str, list[tuple[bool, float]]] = {}
    for flag, weights, p_value in decisions:
        if weights:
            domain = max(weights, key=lambda name: weights[name])
            of_domain.setdefault(domain, []).append((flag, p_value))
    level = LEVEL / max(1, len(of_domain))
    often = _is_too_often(every, nominal, LEVEL)
    domains = [name for name, part in of_domain.items() if _is_too_often(part, nominal, level)]
    most = max(domains or of_domain, key=lambda name: _anomalous(of_domain[name]), default="DOMAIN")
    part, where = every, ""
    if domains and not often:
        part, where = of_domain[domains[0]], f" of the condition {domains[0]}"
    shift = _shift(part, nominal)
    stale, sentence = _finding(often or bool(domains), shift, len(every), not_judged)
    if part:
        judged = "judged recordings" if not_judged else "recordings"
        sentence += (
            f" {100 * _anomalous(part) / len(part):.3g} % of the last {len(part)} {judged}{where} "
            f"are anomalous; of a healthy machine about {100 * nominal:.3g} % would be."
        )
    remedy = f"daco calibrate {shlex.quote(model)} NEW_NORMALS --domain {shlex.quote(most)}"
    return Drift(stale, sentence, remedy)


def drift_of_clips(
    clips: Iterable[StoredClip], info: ModelInfo, model: str = "MODEL.daco"
) -> Drift | None:
    """Compare the last clips of a machine with its model, without those of other models.

    Clips that somebody called faults, and those of a machine that is off, are left out.
    """
    decisions, not_judged = [], Counter[str]()
    for clip in clips:
        if clip.model_sha256 != info.sha256 or clip.answer == "fault" or clip.state == OFF:
            continue
        if clip.state in (NORMAL, ANOMALOUS):
            decisions.append((clip.anomalous, clip.domain_weights, clip.p_value))
        else:
            codes = [reason.partition(":")[0] for reason in clip.reasons]
            not_judged[next((code for code in codes if code in _NOT_JUDGED), "range")] += 1
    return drift_of(decisions, info.false_alarm_rate, model=model, not_judged=not_judged)


def _shift(clips: Sequence[tuple[bool, float]], nominal: float) -> int:
    """Whether normal clips are odder than the reference (1), calmer (-1), or alike (0)."""
    calm = [p_value >= (1 + nominal) / 2 for flag, p_value in clips if not flag]
    if len(calm) < FEWEST // 2:
        return 1  # hardly any clip is normal
    change = sum(calm) / len(calm) - 0.5
    bound = max(SHIFT, 3.3 * 0.5 / math.sqrt(len(calm)))
    return 0 if abs(change) <= bound else -1 if change > 0 else 1


def _finding(often: bool, shift: int, n: int, not_judged: Mapping[str, int]) -> tuple[bool, str]:
    """Whether the limit is out of date, and what the clips point to."""
    clips = n + sum(not_judged.values())
    code = max(not_judged, key=lambda code: not_judged[code], default="")
    if clips >= FEWEST and not_judged.get(code, 0) > _MANY * clips:
        return True, f"{not_judged[code]} of the last {clips} recordings {_NOT_JUDGED[code]}"
    if often and shift <= 0:
        return True, (
            "Some recordings are far from healthy and the others sound as before. This points to "
            "the machine."
        )
    if often:
        return True, (
            "All recordings sound odder. The surroundings or the microphone changed, or the "
            "machine changed for good."
        )
    if n >= FEWEST and shift < 0:
        return True, (
            "Recordings sound calmer than the alarm limit expects, so faults may be missed. The "
            "microphone, the surroundings or the way the machine runs changed."
        )
    few = f"There are too few recordings to check the alarm limit; {FEWEST} are needed."
    return False, "The alarm limit holds." if n >= FEWEST else few


def largest_by_chance(n: int, rate: float, level: float = LEVEL) -> int:
    """The largest count out of n that chance explains at a rate.

    The smallest k such that more than k happen with a probability of at most `level`.

    >>> largest_by_chance(200, 0.1), largest_by_chance(3, 0.1)
    (34, 3)
    """
    from scipy.special import bdtrc

    return int(np.argmax(bdtrc(np.arange(n + 1), n, rate) <= level))


def _anomalous(clips: Sequence[tuple[bool, float]]) -> int:
    return sum(flag for flag, _ in clips)


def _is_too_often(clips: Sequence[tuple[bool, float]], nominal: float, level: float) -> bool:
    """Whether more clips are anomalous than chance explains."""
    n = len(clips)
    return n >= FEWEST and _anomalous(clips) > largest_by_chance(n, nominal, level)
