"""What sounds different in a recording, in numbers and in a plant engineer's words.

A recording is compared with the healthy ones of its machine: bands that are louder or quieter,
tones and families of harmonics that appeared or are missing, repetition, and short events. It does
not matter which network scored it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError
from daco.monitoring.healthy import HealthyProfile, Reference
from daco.monitoring.sound_features import (
    ENVELOPE_RATE,
    RATES,
    SoundFeatures,
    bands,
    sound_features,
)
from daco.text import quantity, ratio_in_words
from daco.validation import Float32s, Indices

MOST_FINDINGS = 3
NOTHING = "No single feature of the sound stands out."
"""What to say of a recording without a finding."""

_WEIGHTS = {"event": 1.2, "harmonics": 1.2, "repetition": 1.2, "tone": 1.0, "level": 0.8}
_KNOCKING = 4  # harmonics of a rate that make knocks of a swelling sound
_SEPARATE = 0.04  # seconds between two events
_FEW = 3  # events; more are bursts


@dataclass(frozen=True)
class Finding:
    """One thing that sounds different.

    ``confidence`` is 0.95 at the limit that 1 in 20 healthy recordings may exceed; the doubt is
    divided by 20 for each further limit.
    """

    kind: str  #: ``level``, ``tone``, ``repetition``, ``harmonics`` or ``event``
    low_hz: float
    high_hz: float
    rate_hz: float | None  #: repetitions a second, or the distance between harmonics
    change_db: float  #: against the nearest healthy recordings
    start_s: float
    end_s: float
    confidence: float
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them, rounded to four digits."""
        return {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


class _Candidate(NamedTuple):
    """A finding before it is ranked; `strength` is its excess in units of the limit."""

    strength: float
    kind: str
    low_hz: float
    high_hz: float
    change_db: float
    text: str
    rate_hz: float | None = None
    start_s: float = 0.0
    end_s: float | None = None
    vagueness: int = 0  #: less vague findings of the same band explain it


class _Comparison(NamedTuple):
    """A recording beside its healthy ones."""

    sound: SoundFeatures
    reference: Reference
    near: Indices
    excess: dict[str, Float32s]
    limits: dict[str, float]

    @property
    def profile(self) -> HealthyProfile:
        return self.reference.profile


def findings(
    waveform: NDArray[Any],
    sample_rate: int,
    healthy: HealthyProfile | Sequence[NDArray[Any]],
    *,
    condition: str | None = None,
) -> list[Finding]:
    """Return what sounds different from healthy recordings, the most important first.

    Parameters
    ----------
    waveform : array of shape (n,)
        The recording, of at least 2 s.
    sample_rate : int
        That of the recording and of the profile.
    healthy : HealthyProfile or sequence of waveforms
        The healthy recordings of the machine; at least 5, better 20. A profile saves time.
    condition : str, optional
        The operating condition to compare with, if the profile has at least 20 recordings of it.

    Returns
    -------
    list of Finding
        At most three. Empty if no single feature stands out.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> waves = rng.normal(size=(20, 48000))
    >>> tone = 0.5 * np.sin(2 * np.pi * 1000 / 16000 * np.arange(48000))
    >>> for finding in findings(waves[0] + tone, 16000, waves[1:]):
    ...     print(finding.kind, finding.text)
    tone New tone at about 1 kHz, 10 dB above what healthy recordings have there.
    """
    if not isinstance(healthy, HealthyProfile):
        healthy = HealthyProfile.from_recordings(healthy, sample_rate)
    if sample_rate != healthy.sample_rate:
        raise InputError(
            f"The healthy recordings have {healthy.sample_rate} Hz, this one {sample_rate} Hz. "
            f"Resample it to {healthy.sample_rate} Hz."
        )
    sound, reference = sound_features(waveform, sample_rate), healthy.reference(condition)
    near = reference.nearest(sound.levels, sound.tones)
    compared = _Comparison(sound, reference, near, reference.excess(sound, near), reference.limits)
    candidates = [
        *_harmonics(compared),
        *_repetition(compared),
        *_events(compared),
        *_levels(compared),
        *_overall(compared),
    ]
    families = [each for each in candidates if each.kind == "harmonics"]
    candidates += _tones(compared, families)
    ranked = sorted(candidates, key=lambda each: -_importance(each, candidates))
    return [_finding(each, len(waveform) / sample_rate) for each in ranked[:MOST_FINDINGS]]


def _finding(candidate: _Candidate, seconds: float) -> Finding:
    values = candidate._asdict()
    strength = values.pop("strength")
    values.pop("vagueness")
    end_s = seconds if candidate.end_s is None else candidate.end_s
    return Finding(**values | {"end_s": end_s}, confidence=float(1 - 0.05**strength))


def _importance(candidate: _Candidate, candidates: Sequence[_Candidate]) -> float:
    """Its weighted strength, or a little more than that of a vaguer one in the same band."""
    vaguer = [
        1.01 * _WEIGHTS[each.kind] * each.strength
        for each in candidates
        if each.vagueness > candidate.vagueness
        and each.low_hz < candidate.high_hz
        and each.high_hz > candidate.low_hz
    ]
    return max([_WEIGHTS[candidate.kind] * candidate.strength, *vaguer])


def _run(values: Float32s, peak: int, least: float) -> tuple[int, int]:
    """First and last index of the run around a peak in which values are at least `least`."""
    low = high = peak
    while low > 0 and values[low - 1] >= least:
        low -= 1
    while high < len(values) - 1 and values[high + 1] >= least:
        high += 1
    return low, high


def _levels(compared: _Comparison) -> Iterator[_Candidate]:
    edges = bands(compared.profile.sample_rate).levels
    reference = compared.reference
    usual = np.median(reference.shape(compared.profile.levels[compared.near]), axis=0)
    change = reference.shape(compared.sound.levels) - usual
    for name in ("louder", "quieter"):
        excess, limit = compared.excess[name], compared.limits[name]
        peak = int(excess.argmax())
        if excess[peak] <= limit:
            continue
        low, high = _run(excess, peak, max(limit, excess[peak] / 2))
        low_hz, high_hz, db = edges[low], edges[high + 1], float(change[low : high + 1].mean())
        text = f"{name.capitalize()} {_between(low_hz, high_hz)}, by about {abs(db):.0f} dB: "
        text += f"{ratio_in_words(db)} as strong as in healthy recordings."
        yield _Candidate(excess[peak] / limit, "level", low_hz, high_hz, db, text, vagueness=2)


def _overall(compared: _Comparison) -> Iterator[_Candidate]:
    excess, limit = compared.excess["overall"].max(), compared.limits["overall"]
    if excess > limit:
        usual = np.median(compared.profile.overall[compared.near])
        db = float(compared.sound.overall - usual)
        text = f"The whole recording is {abs(db):.0f} dB {'louder' if db > 0 else 'quieter'} than "
        text += "healthy ones."
        top = compared.profile.sample_rate / 2
        yield _Candidate(excess / limit, "level", 0.0, top, db, text)


def _harmonics(compared: _Comparison) -> Iterator[_Candidate]:
    sound, profile, near = compared.sound, compared.profile, compared.near
    for name in ("harmonics", "missing harmonics"):
        excess, limit = compared.excess[name], compared.limits[name]
        cell = int(excess.argmax())
        if excess[cell] <= limit:
            continue
        row = near[profile.harmonics[near, cell].argmax()]
        source, at = (sound, ...) if name == "harmonics" else (profile, row)
        spacing = float(source.harmonics_hz[at][cell])
        tones, hertz = source.tones[at], source.tone_hz[at]
        partials = hertz[(tones > 6) & _are_multiples(hertz, spacing)]
        high_hz = float(max([2 * spacing, *partials]))
        db = float(sound.harmonics[cell] - np.median(profile.harmonics[near, cell]))
        text = f"Family of tones every {_hertz(spacing)} up to {_hertz(high_hz)} "
        text += "that healthy recordings " + ("have: it is missing." if db < 0 else "do not have.")
        yield _Candidate(excess[cell] / limit, "harmonics", spacing, high_hz, db, text, spacing)


def _are_multiples(hertz: Any, spacing: float) -> Any:
    orders = np.round(hertz / spacing)
    return (orders > 0) & (np.abs(hertz - orders * spacing) < 1 + 0.05 * orders)


def _tones(compared: _Comparison, families: Sequence[_Candidate]) -> list[_Candidate]:
    """The two strongest tones that appeared, and that are missing, outside of families."""
    sound, profile, near = compared.sound, compared.profile, compared.near
    found: list[_Candidate] = []
    for name in ("tone", "missing tone"):
        is_new = name == "tone"
        own, known = (sound.tones, profile.tones) if is_new else (sound.lines, profile.lines)
        excess, limit = compared.excess[name], compared.limits[name]
        kept: list[float] = []
        for cell in np.argsort(-excess):
            if excess[cell] <= limit or len(kept) == 2:
                break
            strongest = near[known[near, cell].argmax()]
            hertz = float(sound.tone_hz[cell] if is_new else profile.line_hz[strongest, cell])
            of_family = any(_are_multiples(hertz, each.rate_hz or 1) for each in families)
            if of_family or any(abs(hertz - other) < 0.03 * hertz + 4 for other in kept):
                continue
            kept.append(hertz)
            db = float(own[cell] - np.median(known[near, cell]))
            text = f"New tone at about {_hertz(hertz)}, {db:.0f} dB above what healthy recordings "
            text += "have there."
            if not is_new:
                text = (
                    f"The tone of healthy recordings at about {_hertz(hertz)} is missing or weak "
                )
                text += f"({db:.0f} dB)."
            found.append(_Candidate(excess[cell] / limit, "tone", hertz - 4, hertz + 4, db, text))
    return found


def _repetition(compared: _Comparison) -> Iterator[_Candidate]:
    edges = bands(compared.profile.sample_rate).envelopes
    excess, limit = compared.excess["repetition"], compared.limits["repetition"]
    if excess.max() <= limit:
        return
    band = int(excess.max(axis=1).argmax())
    strong = np.flatnonzero(excess[band] > max(limit / 2, excess[band].max() / 3))
    rates = compared.sound.repetition_hz[band, strong].astype(float)
    rate = _fundamental(rates, excess[band, strong])
    cell = int(np.clip(np.searchsorted(RATES, rate) - 1, 0, len(RATES) - 2))
    around = slice(max(0, cell - 1), cell + 2)
    at_rate = excess[:, around].max(axis=1)
    low, high = _run(at_rate, band, max(limit / 2, at_rate[band] / 2))
    low_hz, high_hz = edges[low], edges[high + 1]
    usual = np.median(compared.profile.repetition[compared.near][:, band, around].max(axis=1))
    db = float(compared.sound.repetition[band, around].max() - usual)
    words = f"{ratio_in_words(db)} as strong as in healthy recordings."
    if len(strong) >= _KNOCKING:
        text = f"Knocking at about {_rate(rate)} per second {_between(low_hz, high_hz)}, {words}"
    else:
        text = f"The sound {_between(low_hz, high_hz)} swells and fades at about {_rate(rate)} per "
        text += f"second, {words}"
    yield _Candidate(excess.max() / limit, "repetition", low_hz, high_hz, db, text, rate)


def _fundamental(rates: NDArray[Any], weights: NDArray[Any]) -> float:
    """The rate of which most others are multiples."""
    best, chosen = -np.inf, float(rates[0])
    for rate in np.sort(rates)[::-1]:
        ratios = rates / rate
        off = np.abs(ratios - np.round(ratios)) * rate
        multiples = (off < 0.15 + 0.02 * rates) & (ratios > 0.9)
        score = weights[multiples].sum() - weights[~multiples].sum()
        if score > best:
            best, chosen = score, float(rate)
    return chosen


def _events(compared: _Comparison) -> Iterator[_Candidate]:
    edges = bands(compared.profile.sample_rate).envelopes
    excess, limit = compared.excess["event"], compared.limits["event"]
    band = int(excess.argmax())
    if excess[band] <= limit:
        return
    course = compared.sound.course[band]
    loud = np.flatnonzero(course > max(course.max() - 10, compared.reference.upper["event"][band]))
    if len(loud) > 0.4 * len(course):
        return
    parts = np.split(loud, np.flatnonzero(np.diff(loud) > _SEPARATE * ENVELOPE_RATE) + 1)
    loudest = max(parts, key=lambda part: course[part].max())
    start, end = loudest[0] / ENVELOPE_RATE, (loudest[-1] + 1) / ENVELOPE_RATE
    low, high = _run(excess, band, max(limit / 2, excess[band] / 2))
    low_hz, high_hz = edges[low], edges[high + 1]
    db = float(course.max() - np.median(compared.profile.events[compared.near, band]))
    is_burst = len(parts) > _FEW
    what = f"{quantity(len(parts), 'short burst')}" if is_burst else "Short event"
    when = f"the strongest at {start:.1f} s" if is_burst else f"at {start:.1f} s"
    text = f"{what} {_between(low_hz, high_hz)}, {when}, {db:.0f} dB above the peaks of healthy "
    text += "recordings."
    strength = excess[band] / limit
    yield _Candidate(
        strength, "event", low_hz, high_hz, db, text, None, start, end, vagueness=int(is_burst)
    )


def _between(low_hz: float, high_hz: float) -> str:
    low, high = _hertz(low_hz), _hertz(high_hz)
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return f"between {low} and {high}"


def _hertz(hertz: float) -> str:
    """A frequency in three digits at most.

    >>> _hertz(743.7), _hertz(2563)
    ('744 Hz', '2.6 kHz')
    """
    return f"{hertz:.0f} Hz" if hertz < 999.5 else f"{round(hertz / 1000, 1):g} kHz"


def _rate(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}".removesuffix(".0")
