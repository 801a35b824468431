"""What to expect of an alarm rule: false alarms a week, and how soon a fault is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.errors import InputError
from daco.monitoring.evidence import ALLOWANCE
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.detector.model import MachineModel

HEARD = 0.4
"""Share of recordings in which a typical fault is heard: what real machines' faults showed."""

CONFIDENCE = 0.8  # of the interval of a rate
MOST_MEMORY = 12  # clips that a chain remembers exactly
EVERY_MINUTES = 10
"""Between recordings, where nobody knows better yet."""

_KNOWN_FROM = 100  # clips whose decisions say how alike successive ones are


def rate_interval(rate: float, references: int) -> tuple[float, float]:
    """The 80 % interval of the realised rate of false clips, with this many reference recordings.

    A limit that is a quantile of n references is exceeded by a share of new recordings that has a
    Beta distribution.

    >>> tuple(round(end, 3) for end in rate_interval(0.1, 50))
    (0.051, 0.156)
    """
    from scipy.stats import beta

    exceeding = max(1.0, rate * (references + 1))
    tail = (1 - CONFIDENCE) / 2
    known = beta(exceeding, max(1.0, references + 1 - exceeding))
    return float(known.ppf(tail)), float(known.ppf(1 - tail))


@lru_cache(maxsize=64)
def clips_until_alarm(
    k: int, n: int, share: float, correlation: float = 0.0
) -> tuple[float, float]:
    """Return mean and median number of clips until k of the last n are anomalous.

    Parameters
    ----------
    k, n : int
        The rule; 1 and 1 alarm at every anomalous clip.
    share : float
        Share of anomalous clips.
    correlation : float
        Correlation of successive decisions: a clip after an anomalous one is anomalous with
        probability ``share + correlation * (1 - share)``.

    Notes
    -----
    Exact for rules of up to 13 clips, as a Markov chain; longer ones are simulated.

    Examples
    --------
    >>> [round(clips_until_alarm(3, 5, share)[0]) for share in (0.1, 0.06)]
    [243, 967]
    >>> clips_until_alarm(3, 5, 0.4)[1], clips_until_alarm(3, 5, 0.28)[1]
    (8.0, 15.0)
    """
    if not 1 <= k <= n or not 0 <= share <= 1 or not 0 <= correlation < 1:
        raise InputError(
            "A rule has 1 <= k <= n; shares are between 0 and 1, correlations 0 to below 1. "
            f"Got k={k!r}, n={n!r}, share={share!r} and correlation={correlation!r}."
        )
    if share == 0:
        return float("inf"), float("inf")
    return _moments(_survival(k, n, share, correlation))


def _survival(k: int, n: int, share: float, correlation: float) -> Float64s:
    """Probability of no alarm after 0, 1, ... clips, until it falls by the same factor each time.

    A state is what the last clips were, a bit each; an alarm ends the chain.
    """
    memory = max(n - 1, 1)
    if memory > MOST_MEMORY:
        return _simulated_survival(k, n, share, correlation)
    states = np.arange(2**memory)
    hits = np.array([(state % 2 ** (n - 1)).bit_count() for state in states.tolist()])
    after_normal, after_anomalous = share * (1 - correlation), share + correlation * (1 - share)
    chance = np.where(states % 2 == 1, after_anomalous, after_normal)
    after_hit, after_miss = (2 * states + 1) % len(states), 2 * states % len(states)
    stays = hits + 1 < k  # a further anomalous clip does not complete the alarm
    probability: Any = np.zeros(len(states))
    probability[0] = 1
    survival = [1.0]
    for _ in range(40 * n):
        hit = np.bincount(after_hit, probability * chance * stays, len(states))
        miss = np.bincount(after_miss, probability * (1 - chance), len(states))
        probability = hit + miss
        survival.append(float(probability.sum()))
        if survival[-1] < 1e-12:
            break
    return np.array(survival)


def _simulated_survival(k: int, n: int, share: float, correlation: float) -> Float64s:
    """The same from 500 simulated sequences, for rules with a long memory."""
    rng = np.random.default_rng(0)
    sequences, steps = 500, 40 * n
    recent = np.zeros((sequences, n), bool)
    alive = np.ones(sequences, bool)
    survival = [1.0]
    for step in range(steps):
        chance = share * (1 - correlation) + correlation * recent[:, (step - 1) % n]
        recent[:, step % n] = rng.random(sequences) < chance
        alive &= recent.sum(axis=1) < k
        survival.append(float(alive.mean()))
    return np.array(survival)


def _moments(survival: Float64s) -> tuple[float, float]:
    """Mean and median of the number of clips, the tail of the survival being geometric."""
    last, middle = len(survival) - 1, (len(survival) - 1) // 2
    median = float(np.argmax(survival <= 0.5)) if survival[-1] <= 0.5 else float("inf")
    if survival[-1] < 1e-12:
        return float(survival.sum()), median
    factor = (survival[last] / survival[middle]) ** (1 / (last - middle))
    if factor >= 1:
        return float("inf"), median
    mean = survival[:-1].sum() + survival[-1] / (1 - factor)
    if survival[-1] > 0.5:
        median = last + float(np.ceil(np.log(0.5 / survival[-1]) / np.log(factor)))
    return float(mean), median


def evidence_until_alarm(limit: float, rate: float, heard: float) -> float:
    """Mean number of clips until a CUSUM of normal quantiles reaches its limit.

    A fault whose share `heard` of clips has a p-value of at most `rate` shifts the quantiles by a
    constant; Siegmund's approximation gives the mean.

    >>> round(evidence_until_alarm(5.0, 0.1, 0.4))
    10
    """
    from scipy.stats import norm

    drift = float(norm.isf(rate) - norm.isf(heard)) - ALLOWANCE
    reach = limit + 1.166
    if abs(drift) < 1e-6:
        return reach**2
    exponent = -2 * drift * reach
    return float((np.exp(exponent) - exponent - 1) / (2 * drift**2))


@dataclass(frozen=True)
class Expectation:
    """What an alarm rule will do, with the ends of the interval of the false-clip rate."""

    false_alarms_a_week: float
    false_alarms_low: float
    false_alarms_high: float
    clips_between: float  #: recordings between two false alarms
    heard: float  #: share of recordings in which the fault is heard
    clips_to_alarm: float  #: recordings until such a fault alarms

    @property
    def sentences(self) -> tuple[str, str]:
        """It in plain words."""
        about = _count(self.false_alarms_a_week)
        low, high = _count(self.false_alarms_low), _count(self.false_alarms_high)
        between = "" if low == high else f" (between {low} and {high})"
        if self.false_alarms_a_week < 0.5 and np.isfinite(self.clips_between):
            weeks = _count(1 / max(self.false_alarms_a_week, 1e-9))
            first = f"Expect about one false alarm in {weeks} weeks"
        else:
            first = f"Expect about {about} false alarm{'' if about == '1' else 's'} a week{between}"
        if not np.isfinite(self.clips_to_alarm):
            return f"{first}.", f"A fault heard in {self.heard:.0%} of recordings never alarms."
        second = f"A fault that is heard in {self.heard * 100:.0f} % of recordings alarms after "
        second += f"about {_count(self.clips_to_alarm)} recordings."
        return f"{first}.", second


@lru_cache(maxsize=1000)
def expect(
    rule: tuple[int, int] | float,
    rate: float,
    recordings_a_day: float,
    *,
    references: int | None = None,
    heard: float = HEARD,
    correlation: float = 0.0,
    clips_between: float | None = None,
) -> Expectation:
    """Return what to expect of a rule.

    Parameters
    ----------
    rule : (k, n), or float
        At least k of the last n clips anomalous; (1, 1) for every one. A number is the limit of
        the evidence (:mod:`daco.monitoring.evidence`).
    rate : float
        Share of healthy recordings that are called anomalous.
    recordings_a_day : float
    references : int, optional
        Reference recordings the rate was set with: gives its interval. Unknown: no interval.
    heard : float
        Share of a fault's recordings that are called anomalous.
    correlation : float
        Of successive decisions, from the history; 0 if unknown.
    clips_between : float, optional
        For the evidence: the clips between false alarms for which the limit was set.

    Examples
    --------
    >>> for sentence in expect((3, 5), 0.1, 144, references=50).sentences:
    ...     print(sentence)
    Expect about 4 false alarms a week (between 0.7 and 13).
    A fault that is heard in 40 % of recordings alarms after about 8 recordings.
    """
    rates = (rate, *((rate, rate) if references is None else rate_interval(rate, references)))
    if isinstance(rule, tuple):
        between = [clips_until_alarm(*rule, each, correlation)[0] for each in rates]
        to_alarm = clips_until_alarm(*rule, heard, correlation)[1]
    else:
        between = [
            evidence_until_alarm(rule, rate, each) if clips_between is None else clips_between
            for each in rates
        ]
        to_alarm = evidence_until_alarm(rule, rate, heard)
    week = 7 * recordings_a_day
    return Expectation(
        week / between[0], week / between[1], week / between[2], between[0], heard, to_alarm
    )


def expectation_of_model(model: MachineModel) -> list[str]:
    """What to expect of a model and '3 of 5' in plain words, a recording every 10 minutes."""
    references = len(model.new_names) or None  # those of the bank do not say how sure the rate is
    a_day = 24 * 60 / EVERY_MINUTES
    false_alarms, delay = expect(
        (3, 5), model.false_alarm_rate, a_day, references=references
    ).sentences
    if references is None:  # how many new recordings are beyond the limit is not known
        false_alarms = f"If the limit holds, e{false_alarms[1:]}"
    return [f"{false_alarms.rstrip('.')}, with a recording every {EVERY_MINUTES} minutes.", delay]


def correlation_of(anomalous: Sequence[bool]) -> float:
    """Correlation of successive decisions, for `expect`; 0 where too few are known.

    >>> correlation_of([False] * 60 + [True] * 20 + [False] * 60)
    0.9
    >>> correlation_of([True, False] * 10)
    0.0
    """
    flags = np.asarray(anomalous, float)
    if len(flags) < _KNOWN_FROM or flags.std() == 0:
        return 0.0
    centred = flags - flags.mean()
    correlation = float(centred[1:] @ centred[:-1] / (centred @ centred))
    return round(min(max(correlation, 0.0), 0.9), 1)


def _count(number: float) -> str:
    """A number as precise as it is meant: one digit below 1, none up to 20, two digits above."""
    if number < 1:
        return f"{number:.1g}"
    return f"{number:.0f}" if number < 20 else f"{float(f'{number:.2g}'):,.0f}"
