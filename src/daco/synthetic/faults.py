"""Synthetic faults added to a waveform at a stated level.

- ``impacts``: hits 3 to 60 times a second that ring at 1.5 to 6 kHz for 1 to 5 ms (a spalled race);
- ``tones``: a harmonic series of 100 to 2,500 Hz (a whine, a new mesh tone);
- ``noise``: one octave of steady noise (a leak);
- ``rub``: 1 to 4 bursts of noise a second, 20 to 120 ms each (a rotor that touches);
- ``modulation``: the sound swells and fades 1 to 15 times a second (looseness, a broken bar);
- ``resonance``: an equaliser peak (a loose part that rings).

Changes that are not faults of the machine, and that a network may not notice:

- ``level``: it becomes quieter (a microphone that moved): by half at -6 dB, to a tenth at -0.9 dB;
- ``off``: it stops, for half of the time at -3 dB, for all of it at 0 dB; what remains is a humming
  hall, 30 dB below the recording;
- ``white``: white noise over all frequencies (a bad cable, rain);
- ``speed``: it runs faster or slower, by 6 % at -24 dB, 25 % at -12 dB.

The level is the RMS of the *change* over the RMS of the recording. For ``speed`` it is that of the
relative change of speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.audio.decode import resample
from daco.errors import InputError
from daco.synthetic.sounds import ring
from daco.validation import Float32s, Float64s

LEVELS = (-18.0, -10.0, -4.0)
"""Decibels at which faults are injected to compare configurations."""

FAR_DB = -20.0
"""A fault at the far microphone, relative to the near one: no room keeps it away from there."""

HALL_DB = -30.0
"""Level of a machine that is off, relative to the recording."""

_LOUDEST_DB = 60.0


def inject(
    wave: ArrayLike, sample_rate: int, kind: str, level_db: float, rng: np.random.Generator
) -> Float32s:
    """Add a fault whose RMS is `level_db` decibels relative to that of the waveform.

    Parameters
    ----------
    wave : (n,) or (channels, n)
        If there are several channels, the first is the near microphone, whose RMS counts; all
        others are far.
    sample_rate : int
    kind : str
        ``impacts``, ``tones``, ``noise``, ``rub``, ``modulation``, ``resonance``, ``level``,
        ``off``, ``white`` or ``speed``.
    level_db : float
        20 log10 of the RMS of the change over the RMS of the recording, both around their mean.
        Above -3 dB a modulation passes through zero.
    rng : numpy.random.Generator
        Draws the details of the fault (rates, frequencies, phases).

    Returns
    -------
    float32 array of the same shape
        It may exceed full scale. Silence has no RMS and stays as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.synthetic.faults import inject
    >>> clean = np.sin(np.arange(16000, dtype=np.float32))
    >>> faulted = inject(clean, 16000, "impacts", -10, np.random.default_rng(0))
    >>> print(f"{20 * np.log10(np.std(faulted - clean) / np.std(clean)):.3f} dB")
    -10.000 dB
    """
    clean = _checked_wave(wave)
    (change,) = fault_changes(clean, sample_rate, kind, [level_db], rng)
    return clean + change


def fault_changes(
    wave: ArrayLike,
    sample_rate: int,
    kind: str,
    levels_db: Sequence[float],
    rng: np.random.Generator,
) -> Iterator[Float32s]:
    """The signals that `inject` adds, of the shape of `wave`: the same fault at each level."""
    require_faults([kind], levels_db)
    if not sample_rate > 0:
        raise InputError(f"The sample rate must be a number above 0. Got {sample_rate!r}.")
    clean = _checked_wave(wave)
    gains = np.full((len(np.atleast_2d(clean)), 1), 10 ** (FAR_DB / 20))
    gains[0] = 1
    near = np.atleast_2d(clean)[0].astype(np.float64)
    near -= near.mean()
    is_silent = not near.any()
    fault = np.zeros_like(near)
    if kind in _MAKERS and not is_silent:
        fault = _MAKERS[kind](near, int(sample_rate), rng)
        fault = fault - fault.mean()
        fault *= near.std() / (fault.std() or np.inf)
    seed = rng.integers(2**32)
    for level_db in levels_db:
        change = 10 ** (level_db / 20) * fault
        if kind in _BY_LEVEL and not is_silent:
            own = np.random.default_rng(seed)
            change = _BY_LEVEL[kind](near, int(sample_rate), level_db, own)
        yield (gains * change).astype(np.float32).reshape(clean.shape)


def require_faults(kinds: Sequence[str], levels_db: Sequence[float]) -> None:
    """Raise an `InputError` for kinds that do not exist or repeat, and for impossible levels."""
    if not set(kinds) <= set(ALL_KINDS) or not 0 < len(kinds) == len(set(kinds)):
        given = ", ".join(map(str, kinds)) or "none"
        raise InputError(f"A fault is one of {', '.join(ALL_KINDS)}, each once. Got {given}.")
    if not levels_db or not all(-np.inf < level <= _LOUDEST_DB for level in levels_db):
        raise InputError(f"A fault's level must be decibels below 60. Got {list(levels_db)}.")


def _checked_wave(wave: ArrayLike) -> Float32s:
    """A waveform as float32, (n,) or (channels, n)."""
    array: NDArray[Any] = np.asarray(wave)
    if array.ndim not in (1, 2) or 0 in array.shape or array.dtype.kind != "f":
        raise InputError(
            "A waveform is an array (samples,) or (channels, samples) of floating-point numbers. "
            f"Got {array.dtype} of shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise InputError("The waveform contains NaN or inf. Leave that recording out.")
    return array.astype(np.float32, copy=False)


# Each kind takes the clean near microphone around its mean, and gives a change.


def _impacts(wave: Float64s, rate: int, rng: np.random.Generator) -> Float64s:
    n = len(wave)
    period = rate / np.exp(rng.uniform(np.log(3), np.log(60)))
    hertz, decay = _hertz(rng, 1500, 6000, rate), rng.uniform(0.001, 0.005)
    first = rng.uniform(0, min(period, n - 1))  # at least one falls into the clip
    places = np.arange(first, n, period)
    places[1:] += 0.02 * period * rng.normal(size=len(places) - 1)  # rolling elements slip
    sizes = rng.uniform(0.6, 1.4, len(places))
    return np.asarray(ring(n, rate, places, sizes, hertz, decay), np.float64)


def _tones(wave: Float64s, rate: int, rng: np.random.Generator) -> Float64s:
    t = np.arange(len(wave)) / rate
    fundamental = _hertz(rng, 100, 2500, rate)
    sound = np.zeros_like(t)
    for order in range(1, int(rng.integers(2, 7))):
        phase, size = rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 1) / order
        if order == 1 or order * fundamental < 0.45 * rate:
            sound += size * np.cos(2 * np.pi * order * fundamental * t + phase)
    return sound


def _noise(wave: Float64s, rate: int, rng: np.random.Generator) -> Float64s:
    centre = _hertz(rng, 250, 4000, rate)
    return _band_noise(rng, len(wave), rate, centre / np.sqrt(2), centre * np.sqrt(2))


def _rub(wave: Float64s, rate: int, rng: np.random.Generator) -> Float64s:
    n = len(wave)
    period, width = rate / rng.uniform(1, 4), rng.uniform(0.02, 0.12) * rate
    centre = _hertz(rng, 1000, 4000, rate)
    scrape = _band_noise(rng, n, rate, centre / 2, centre * 2)
    # The middle of the first burst is inside the clip, whatever its length.
    middles = np.arange(rng.uniform(0, min(period, n - 1)), n + width, period)
    middles[1:] += 0.05 * period * rng.normal(size=len(middles) - 1)
    at = np.arange(n)
    envelope = np.zeros(n)
    for middle, size in zip(middles, rng.uniform(0.6, 1.4, len(middles)), strict=True):
        inside = slice(max(0, int(middle - width / 2)), max(0, int(middle + width / 2) + 2))
        hump = np.cos(np.pi * np.clip((at[inside] - middle) / width, -0.5, 0.5)) ** 2
        envelope[inside] = np.maximum(envelope[inside], size * hump)
    return scrape * envelope


def _modulation(wave: Float64s, rate: int, rng: np.random.Generator) -> Float64s:
    t = np.arange(len(wave)) / rate
    hertz, phase = np.exp(rng.uniform(np.log(1), np.log(15))), rng.uniform(0, 2 * np.pi)
    return wave * np.cos(2 * np.pi * hertz * t + phase)


def _resonance(wave: Float64s, rate: int, rng: np.random.Generator) -> Float64s:
    from scipy.signal import iirpeak, lfilter

    hertz, sharpness = _hertz(rng, 300, 4000, rate), rng.uniform(2, 8)
    return np.asarray(lfilter(*iirpeak(hertz, sharpness, fs=rate), wave), np.float64)


_MAKERS: dict[str, Callable[[Float64s, int, np.random.Generator], Float64s]] = {
    "impacts": _impacts,
    "tones": _tones,
    "noise": _noise,
    "rub": _rub,
    "modulation": _modulation,
    "resonance": _resonance,
}

KINDS = tuple(_MAKERS)
"""The kinds of faults of a machine."""


def _off(wave: Float64s, rate: int, level_db: float, rng: np.random.Generator) -> Float64s:
    from scipy import fft

    n = len(wave)
    length = min(n, round(n * 10 ** (level_db / 10)))
    first = int(rng.integers(n - length + 1))
    spectrum = fft.rfft(rng.normal(size=n)) / np.sqrt(1 + np.arange(n // 2 + 1))
    hum = np.sin(2 * np.pi * 100 * np.arange(n) / rate + rng.uniform(0, 6))
    hall = fft.irfft(spectrum, n)
    hall = hall / hall.std() + hum
    hall *= 10 ** (HALL_DB / 20) * wave.std() / hall.std()
    change = np.zeros(n)
    change[first : first + length] = (hall - wave)[first : first + length]
    return change


def _speed(wave: Float64s, rate: int, level_db: float, rng: np.random.Generator) -> Float64s:
    factor = (1 + 10 ** (level_db / 20)) ** rng.choice([-1, 1])
    other = resample(wave.astype(np.float32), rate, max(1, round(rate / factor)))[: len(wave)]
    # What becomes too short goes on with its mirror image.
    return np.asarray(np.pad(other, (0, len(wave) - len(other)), "reflect") - wave, np.float64)


_BY_LEVEL = {"off": _off, "speed": _speed}
_MAKERS |= {
    "level": lambda wave, rate, rng: -wave,
    "white": lambda wave, rate, rng: rng.normal(size=len(wave)),
}

ALL_KINDS = (*_MAKERS, *_BY_LEVEL)
"""All kinds, with those that are not faults of the machine."""


def _hertz(rng: np.random.Generator, low: float, high: float, rate: int) -> float:
    """A frequency, each octave as likely; at low sample rates the range moves below Nyquist."""
    high = min(high, 0.42 * rate)
    return float(np.exp(rng.uniform(np.log(min(low, high / 2)), np.log(high))))


def _band_noise(rng: np.random.Generator, n: int, rate: int, low: float, high: float) -> Float64s:
    """Gaussian noise between two frequencies, at least one bin of it."""
    from scipy import fft

    size = max(4, fft.next_fast_len(n, real=True))
    first = min(max(1, int(np.ceil(low * size / rate))), size // 2 - 1)
    last = max(first, min(int(high * size / rate), size // 2 - 1))
    spectrum = np.zeros(size // 2 + 1, complex)
    spectrum[first : last + 1] = rng.normal(size=(last + 1 - first, 2)) @ (1, 1j)
    return np.asarray(fft.irfft(spectrum, size)[:n], np.float64)
