"""Drift: the share of recent clips called anomalous against the model's false-alarm rate.

When the share is above the rate by more than chance explains, either the calibration no longer fits
(another microphone, season, product: add normals), or the machine is failing. A person who listens
can tell the two apart; a number cannot.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from daco.detector.thresholds import require_rate
from daco.errors import InputError

WINDOW = 200
"""Recent clips that are looked at."""

FEWEST = 30
"""Clips below which nothing is called stale: a few anomalous clips are an alarm, not a drift."""

LEVEL = 0.001
"""Probability below which a count of alarms is not chance; small, as every clip is a new test."""

CAUTION = (
    "A rising rate may also be real faults: listen to the flagged clips before adding normals."
)


@dataclass(frozen=True)
class DomainDrift:
    """The clips that belong most to one domain; `realised` and `bound` are None without any."""

    n: int
    realised: float | None
    bound: float | None
    stale: bool


@dataclass(frozen=True)
class Drift:
    """Recent decisions against the nominal rate.

    The bound is the largest share that chance explains: at the nominal rate a larger one has a
    probability of at most `LEVEL`, by the binomial distribution.
    """

    n: int  #: clips looked at
    nominal: float  #: the model's false-alarm rate
    realised: float  #: the share of the clips called anomalous
    bound: float
    by_domain: Mapping[str, DomainDrift]  #: tested at `LEVEL` divided by the number of domains
    stale: bool  #: the total or a domain is above its bound, on at least `FEWEST` clips
    sentence: str  #: the finding
    remedy: str  #: the command that helps
    caution: str = CAUTION  #: when not to use it

    # It is also part of the API's response models, which allow no other fields.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def drift_of(
    decisions: Sequence[tuple[bool, Mapping[str, float]]],
    nominal: float,
    *,
    domains: Sequence[str] | Mapping[str, int] = (),
    model: str = "MODEL.daco",
) -> Drift | None:
    """Compare recent decisions of one model with the rate it was calibrated for.

    Parameters
    ----------
    decisions : sequence of (bool, mapping)
        Whether each clip was called anomalous, and its domain weights.
    nominal : float in (0, 1)
        The model's false-alarm rate.
    domains : sequence of str
        By default those in the weights.
    model : str
        The model's file, for the remedy.

    Returns
    -------
    Drift or None
        None without any clip.

    Notes
    -----
    A threshold from few normals may realise twice its rate from the first day. The bound takes
    the nominal rate as exact, so that such a machine is called stale as well. The remedy is the
    same: more normals.

    Examples
    --------
    >>> from daco.monitoring.drift import drift_of
    >>> decisions = [(row % 5 == 0, {"source": 0.9, "target": 0.1}) for row in range(200)]
    >>> drift = drift_of(decisions, 0.1, model="press.daco")
    >>> drift.stale, drift.realised, drift.bound
    (True, 0.2, 0.17)
    >>> print(drift.sentence)
    calibration is stale: realised false-alarm rate 0.20 at nominal 0.10 over the last 200 clips
    >>> print(drift.remedy)
    daco update press.daco NEW_NORMALS --domain source
    """
    require_rate(nominal)
    if not decisions:
        return None
    flags = [bool(anomalous) for anomalous, _ in decisions]
    names = list(domains) or sorted({name for _, weights in decisions for name in weights})
    of_domain: dict[str, list[bool]] = {name: [] for name in names}
    for flag, (_, weights) in zip(flags, decisions, strict=True):
        if weights:
            of_domain.setdefault(max(weights, key=lambda name: weights[name]), []).append(flag)
    level = LEVEL / max(1, len(of_domain))
    by_domain = {name: _domain_drift(each, nominal, level) for name, each in of_domain.items()}
    total = _domain_drift(flags, nominal, LEVEL)
    assert total.realised is not None
    assert total.bound is not None
    stale = [name for name, each in by_domain.items() if each.stale]
    most = max(stale or of_domain, key=lambda name: sum(of_domain[name]), default="DOMAIN")
    return Drift(
        n=total.n,
        nominal=float(nominal),
        realised=total.realised,
        bound=total.bound,
        by_domain=by_domain,
        stale=total.stale or bool(stale),
        sentence=_sentence(total, nominal, {name: by_domain[name] for name in stale}),
        remedy=f"daco update {shlex.quote(model)} NEW_NORMALS --domain {shlex.quote(most)}",
    )


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


def _sentence(total: DomainDrift, nominal: float, stale: Mapping[str, DomainDrift]) -> str:
    promised = f"{nominal:.2f}" if nominal >= 0.01 else f"{nominal:.2g}"

    def rates(part: DomainDrift) -> str:
        realised = f"realised false-alarm rate {part.realised:.2f} at nominal {promised}"
        return f"{realised} over the last {part.n} clips"

    if total.stale:
        return f"calibration is stale: {rates(total)}"
    if stale:
        name, part = next(iter(stale.items()))
        return f"calibration is stale in domain {name}: {rates(part)} of that domain"
    if total.n < FEWEST:
        return f"too few clips to hold the calibration against: {total.n}, {FEWEST} are needed"
    return f"calibration holds: {rates(total)}"
