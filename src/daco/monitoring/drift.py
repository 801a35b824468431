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
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from daco.detector.decision import require_rate
from daco.detector.ranges import ANOMALOUS, NORMAL, OFF
from daco.errors import InputError

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
class DomainDrift:
    """The clips that belong most to one domain; `realised` and `bound` are None without any."""

    n: int
    realised: float | None
    bound: float | None
    stale: bool


@dataclass(frozen=True)
class Drift:
    """Recent decisions compared with the false-alarm rate of the model.

    `bound` is the largest share that chance explains: at the nominal rate, a larger one has a
    probability of at most 0.001 by the binomial distribution. `realised` is the share of anomalous
    clips, not a false-alarm rate: some of them may be faults.
    """

    n: int  #: clips looked at
    nominal: float  #: the model's false-alarm rate
    realised: float  #: the share of the clips called anomalous
    bound: float
    by_domain: Mapping[str, DomainDrift]  #: tested at `LEVEL` divided by the number of domains
    #: on at least `FEWEST` clips the total or a domain is above its bound, or all is too quiet
    stale: bool
    points_to: str | None  #: ``"machine"``, ``"surroundings"``, ``"recorder"``, ``"either"``
    sentence: str  #: the finding
    remedy: str  #: the command that helps
    caution: str = CAUTION  #: when not to use it

    # It is also part of the API's response models, which allow no other fields.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def drift_of(
    decisions: Sequence[tuple[bool, Mapping[str, float], float]],
    nominal: float,
    *,
    domains: Sequence[str] | Mapping[str, int] = (),
    model: str = "MODEL.daco",
    not_judged: Mapping[str, int] | None = None,
) -> Drift | None:
    """Compare recent decisions of one model with its false-alarm rate.

    Parameters
    ----------
    decisions : sequence of (bool, mapping, float)
        Whether each clip was called anomalous, its domain weights, and its p-value; without clips
        that somebody called faults.
    nominal : float in (0, 1)
        The false-alarm rate of the model.
    domains : sequence of str
        By default those in the weights.
    model : str
        The file of the model, for the remedy.
    not_judged : mapping
        Numbers of clips of the same time that could not be judged, by the code of the reason:
        ``short``, ``long``, ``rate``, ``silent``, ``clipped``, ``range``.

    Returns
    -------
    Drift or None
        None without any clip.

    Notes
    -----
    A threshold from few normals may realise twice its rate from the first day. The bound takes
    the nominal rate as exact, so such a machine is called stale as well. The remedy is the same:
    calibrate with more clips of the healthy machine.

    Examples
    --------
    >>> from daco.monitoring.drift import drift_of
    >>> p_values = [0.01 if row % 5 == 0 else (row + 0.5) / 200 for row in range(200)]
    >>> decisions = [(p <= 0.1, {"source": 0.9, "target": 0.1}, p) for p in p_values]
    >>> drift = drift_of(decisions, 0.1, model="press.daco")
    >>> drift.stale, drift.realised, drift.bound, drift.points_to
    (True, 0.28, 0.17, 'machine')
    >>> print(drift.sentence)  # doctest: +NORMALIZE_WHITESPACE
    Some recordings are far from healthy and the others sound as before. This points to the
    machine. 28 % of the last 200 recordings are anomalous; of a healthy machine about 10 % would
    be.
    >>> print(drift.remedy)
    daco calibrate press.daco NEW_NORMALS --domain source
    """
    require_rate(nominal)
    not_judged = not_judged or {}
    if not decisions and not not_judged:
        return None
    names = list(domains) or sorted({name for _, weights, _ in decisions for name in weights})
    of_domain: dict[str, list[tuple[bool, float]]] = {name: [] for name in names}
    for flag, weights, p_value in decisions:
        if weights:
            domain = max(weights, key=lambda name: weights[name])
            of_domain.setdefault(domain, []).append((flag, p_value))
    level = LEVEL / max(1, len(of_domain))
    flags = {name: [flag for flag, _ in each] for name, each in of_domain.items()}
    by_domain = {name: _domain_drift(each, nominal, level) for name, each in flags.items()}
    every = [(flag, p_value) for flag, _, p_value in decisions]
    total = _domain_drift([flag for flag, _ in every], nominal, LEVEL)
    stale = [name for name, each in by_domain.items() if each.stale]
    most = max(stale or flags, key=lambda name: sum(flags[name]), default="DOMAIN")
    only = None if total.stale or not stale else stale[0]
    shift = _shift(every if only is None else of_domain[only], nominal)
    points_to, words = _finding(total.stale or bool(stale), shift, total.n, not_judged)
    part = total if only is None else by_domain[only]
    where = "" if only is None else f" of the condition {only}"
    judged = "judged recordings" if not_judged else "recordings"
    share = (
        f" {100 * (part.realised or 0):.3g} % of the last {part.n} {judged}{where} are anomalous"
    )
    share += f"; of a healthy machine about {100 * nominal:.3g} % would be."
    return Drift(
        n=total.n,
        nominal=float(nominal),
        realised=total.realised or 0.0,
        bound=total.bound or 0.0,
        by_domain=by_domain,
        stale=points_to is not None,
        points_to=points_to,
        sentence=words + (share if part.n else ""),
        remedy=f"daco calibrate {shlex.quote(model)} NEW_NORMALS --domain {shlex.quote(most)}",
    )


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
    rate, domains = info.false_alarm_rate, list(info.domains)
    return drift_of(decisions, rate, domains=domains, model=model, not_judged=not_judged)


def _shift(clips: Sequence[tuple[bool, float]], nominal: float) -> int:
    """Whether normal clips are odder than the reference (1), calmer (-1), or alike (0)."""
    calm = [p_value >= (1 + nominal) / 2 for flag, p_value in clips if not flag]
    if len(calm) < FEWEST // 2:
        return 1  # hardly any clip is normal
    change = sum(calm) / len(calm) - 0.5
    bound = max(SHIFT, 3.3 * 0.5 / math.sqrt(len(calm)))
    return 0 if abs(change) <= bound else -1 if change > 0 else 1


def _finding(
    often: bool, shift: int, n: int, not_judged: Mapping[str, int]
) -> tuple[str | None, str]:
    """What the clips point to, and in words."""
    clips = n + sum(not_judged.values())
    code = max(not_judged, key=lambda code: not_judged[code], default="")
    if clips >= FEWEST and not_judged.get(code, 0) > _MANY * clips:
        points_to = "surroundings" if code == "range" else "recorder"
        return points_to, f"{not_judged[code]} of the last {clips} recordings {_NOT_JUDGED[code]}"
    if often and shift <= 0:
        return "machine", (
            "Some recordings are far from healthy and the others sound as before. This points to "
            "the machine."
        )
    if often:
        return "either", (
            "All recordings sound odder. The surroundings or the microphone changed, or the "
            "machine changed for good."
        )
    if n >= FEWEST and shift < 0:
        return "either", (
            "Recordings sound calmer than the alarm limit expects, so faults may be missed. The "
            "microphone, the surroundings or the way the machine runs changed."
        )
    few = f"There are too few recordings to check the alarm limit; {FEWEST} are needed."
    return None, "The alarm limit holds." if n >= FEWEST else few


def largest_by_chance(n: int, rate: float, level: float = LEVEL) -> int:
    """The largest count out of n that chance explains at a rate.

    The smallest k such that more than k happen with a probability of at most `level`.

    >>> largest_by_chance(200, 0.1), largest_by_chance(3, 0.1)
    (34, 3)
    """
    from scipy.special import bdtrc

    if n < 0:
        raise InputError(f"The number of clips must not be negative. Got {n!r}.")
    return int(np.argmax(bdtrc(np.arange(n + 1), n, rate) <= level))


def _domain_drift(flags: Sequence[bool], nominal: float, level: float) -> DomainDrift:
    n = len(flags)
    if not n:
        return DomainDrift(0, None, None, stale=False)
    realised, bound = sum(flags) / n, largest_by_chance(n, nominal, level) / n
    return DomainDrift(n, realised, bound, stale=n >= FEWEST and realised > bound)
