"""Drift: recent clips compared with what the model was calibrated for, in both directions.

If too many clips are anomalous, or all clips are closer to the normals than these are to each
other, the calibration no longer fits. Some clips far out while the others sound as before point to
the machine. If all clips are equally odder, the surroundings, the microphone or a lasting fault
may be the cause: a person who listens can tell these apart, a number cannot.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from daco.detector.decision import require_rate
from daco.errors import InputError

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
    "Listen to the anomalous clips first: they may be faults. Only if somebody knows that the "
    "machine is healthy, declare it healthy or calibrate with new recordings of it."
)

_MANY = 0.2  # of recent clips in a state that no score decides on


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
    points_to: str | None  #: ``"machine"``, ``"surroundings"``, ``"either"``; None: no drift
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
    not_judged: int = 0,
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
    not_judged : int
        Number of clips of the same time that are out of range or not recorded well.

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
    Some clips are far from normal and the others sound as before. This points to the machine. 28 %
    of the last 200 clips are anomalous; of a healthy machine about 10 % would be.
    >>> print(drift.remedy)
    daco calibrate press.daco NEW_NORMALS --domain source
    """
    require_rate(nominal)
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
    where = "" if only is None else f" of domain {only}"
    judged = "judged clips" if not_judged else "clips"
    share = f"{100 * (part.realised or 0):.3g} % of the last {part.n} {judged}{where} are anomalous"
    return Drift(
        n=total.n,
        nominal=float(nominal),
        realised=total.realised or 0.0,
        bound=total.bound or 0.0,
        by_domain=by_domain,
        stale=points_to is not None,
        points_to=points_to,
        sentence=f"{words} {share}; of a healthy machine about {100 * nominal:.3g} % would be.",
        remedy=f"daco calibrate {shlex.quote(model)} NEW_NORMALS --domain {shlex.quote(most)}",
    )


def _shift(clips: Sequence[tuple[bool, float]], nominal: float) -> int:
    """Whether normal clips are odder than the reference (1), calmer (-1), or alike (0)."""
    calm = [p_value >= (1 + nominal) / 2 for flag, p_value in clips if not flag]
    if len(calm) < FEWEST // 2:
        return 1  # hardly any clip is normal
    change = sum(calm) / len(calm) - 0.5
    bound = max(SHIFT, 3.3 * 0.5 / math.sqrt(len(calm)))
    return 0 if abs(change) <= bound else -1 if change > 0 else 1


def _finding(often: bool, shift: int, n: int, not_judged: int) -> tuple[str | None, str]:
    """What the clips point to, and in words."""
    clips = n + not_judged
    if clips >= FEWEST and not_judged > _MANY * clips:
        return "surroundings", (
            f"{not_judged} of the last {clips} clips have other levels than the normals. This "
            "points to the microphone or the surroundings."
        )
    if often and shift <= 0:
        return "machine", (
            "Some clips are far from normal and the others sound as before. This points to the "
            "machine."
        )
    if often:
        return "either", (
            "All clips sound odder. The surroundings or the microphone changed, or the machine "
            "changed for good."
        )
    if n >= FEWEST and shift < 0:
        return "either", (
            "Clips sound calmer than the calibration expects, so faults may be missed. The "
            "microphone, the surroundings or the way the machine runs changed."
        )
    few = f"There are too few clips to check the calibration; {FEWEST} are needed."
    return None, "The calibration holds." if n >= FEWEST else few


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
