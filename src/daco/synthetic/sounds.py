"""Four kinds of healthy machines as sounds: a bearing, a fan, a motor and a valve.

A machine turns. Its tones are orders of the shaft, its noise swells with the shaft's angle, and its
impacts excite a resonance. :mod:`daco.synthetic.faults` adds faults to such a sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from daco.validation import Float32s, Float64s

_TABLE = 1 << 16  # points per turn: a nearest-point lookup is then quieter than 16 bits need
_CONTROL_HZ = 50.0  # rate at which slow variations are drawn


@dataclass(frozen=True)
class Kind:
    """A kind of machine: its operating points, the parts of its sound, and its faults.

    Speeds of the source and of the target domain are in turns a second (motor: half its supply;
    valve: cycles), and vary by the fraction ``slip``. ``tones`` has amplitudes by order, ``noise``
    centre, width (Hz) and tilt, ``swell`` order and depth of the noise's modulation. An impact has
    its place in the turn (None: by chance, four a second), size, frequency and decay (s).
    ``level_db`` is the level of a fault of severity 1, such that the default embedding finds the
    faults of all kinds about equally hard.
    """

    attribute: str
    source_speeds: tuple[float, ...]
    target_speeds: tuple[float, ...]
    slip: float
    tones: Mapping[int, float]
    noise: tuple[float, float, float]
    swell: tuple[int, float]
    impacts: tuple[tuple[float | None, float, float, float], ...]
    faults: tuple[str, ...]
    level_db: float


KINDS = {
    "bearing": Kind(
        "vel", (8, 11, 14), (9.5, 12.5), 0.004,
        tones={1: 0.5, 2: 0.3, 3: 0.2, 4: 0.1}, noise=(1500, 1100, -0.3), swell=(1, 0.4),
        impacts=((None, 2.5, 2600, 0.002),), faults=("impacts", "rub", "modulation"), level_db=-14,
    ),
    "fan": Kind(
        "spd", (9, 12, 15), (10.5, 13.5), 0.006,
        tones={1: 0.25, 2: 0.1, 6: 1.1, 12: 0.5, 18: 0.3, 24: 0.2, 30: 0.15},
        noise=(500, 900, -0.5), swell=(6, 0.4), impacts=(),
        faults=("modulation", "rub", "tones"), level_db=-13,
    ),
    "motor": Kind(
        "frq", (20, 22.5, 25), (21.25, 23.75), 0.001,
        tones={1: 0.3, 4: 1, 7: 0.4, 8: 0.5, 12: 0.3, 14: 0.2, 28: 0.35, 32: 0.2, 56: 0.15},
        noise=(700, 1000, -0.4), swell=(7, 0.2), impacts=(),
        faults=("modulation", "tones", "impacts"), level_db=-14,
    ),
    "valve": Kind(
        "pat", (1, 1.4, 1.8), (1.2, 1.6), 0.02,
        tones={100: 0.2, 200: 0.1}, noise=(3600, 1500, 0.0), swell=(1, 0.8),
        impacts=((0.0, 7, 2300, 0.004), (0.4, 9, 1300, 0.006), (0.43, 3, 1300, 0.006)),
        faults=("rub", "impacts", "tones"), level_db=-7,
    ),
}  # fmt: skip


def machine_sound(
    kind: Kind,
    n: int,
    rate: int,
    speed: float,
    load: float,
    own: np.random.Generator,
    rng: np.random.Generator,
) -> Float32s:
    """One clip of a healthy machine, (n,); ``own`` gives what all clips of one machine share."""
    pitch, colour, *phases = own.uniform(-1, 1, 2 + len(kind.tones)).tolist()
    step = (speed / rate) * (1 + kind.slip * slow(rng, n, rate, 0.7))
    angle = np.cumsum(step) + rng.uniform()
    spectrum = np.zeros(_TABLE // 2 + 1, complex)
    for (order, amplitude), phase in zip(kind.tones.items(), phases, strict=True):
        if order * speed < 0.45 * rate:
            spectrum[order] = amplitude * (0.7 + 0.5 * load) * np.exp(2j * np.pi * phase)
    turn = (np.fft.irfft(spectrum, _TABLE) * (_TABLE / 2)).astype(np.float32)
    sound = turn[(angle * _TABLE).astype(np.int64) & (_TABLE - 1)]
    centre, width, tilt = kind.noise
    order, depth = kind.swell
    swell = 1 + depth * (0.4 + load) * np.cos(2 * np.pi * order * angle)
    gusts = 1 + 0.2 * load * slow(rng, n, rate, 3)
    noise = hiss(rng, n, rate, centre * (1 + 0.2 * colour), width, tilt)
    sound += noise * (swell * gusts).astype(np.float32)
    for place, size, hertz, decay in kind.impacts:
        if place is None:
            at = strew(rng, n, rate, 4)
            sizes = rng.exponential(size, len(at))
        else:
            turns = np.arange(np.ceil(angle[0] - place), np.floor(angle[-1] - place) + 1)
            at = np.interp(turns + place, angle, np.arange(n))
            at += 0.004 * rate * rng.normal(size=len(at))
            sizes = size * rng.uniform(0.8, 1.2, len(at))
        sound += ring(n, rate, at, sizes, hertz * (1 + 0.15 * pitch), decay)
    return sound


def slow(rng: np.random.Generator, n: int, rate: int, hertz: float) -> Float64s:
    """A random walk around zero of about unit size, with nothing faster than ``hertz``."""
    points = int(n / rate * _CONTROL_HZ) + 3
    keep = max(2, int(points / _CONTROL_HZ * hertz) + 1)
    spectrum = np.zeros(points // 2 + 1, complex)
    keep = min(keep, len(spectrum) - 1)
    spectrum[1 : keep + 1] = rng.normal(size=(keep, 2)) @ (1, 1j)
    curve = np.fft.irfft(spectrum, points) * points / (2 * np.sqrt(keep))
    return np.interp(np.arange(n) * (_CONTROL_HZ / rate), np.arange(points), curve)


@lru_cache(maxsize=8)
def _frequencies(n: int, rate: int) -> Float32s:
    return np.fft.rfftfreq(n, 1 / rate).astype(np.float32)


def hiss(
    rng: np.random.Generator, n: int, rate: int, centre: float, width: float, tilt: float
) -> Float32s:
    """Gaussian noise of unit power around ``centre`` Hz; ``tilt`` -1 makes it pink below."""
    from scipy import fft

    size = fft.next_fast_len(n, real=True)
    f = _frequencies(size, rate)
    gain = ((f + 20) / (centre + 20)) ** np.float32(tilt) / (1 + ((f - centre) / width) ** 2)
    gain[0] = 0
    draws = rng.standard_normal((len(f), 2), dtype=np.float32).view(np.complex64)[:, 0]
    gain *= size / (2 * np.sqrt(np.square(gain).sum()))
    return np.asarray(fft.irfft(draws * gain, size)[:n], np.float32)


def ring(
    n: int, rate: int, places: ArrayLike, sizes: ArrayLike, hertz: float, decay: float
) -> Float32s:
    """Impacts at sample ``places`` with peak ``sizes``: each rings at ``hertz`` and dies away."""
    from scipy.signal import lfilter

    train = np.zeros(n, np.float32)
    index = np.asarray(places, np.float64).astype(np.int64)
    inside = (index >= 0) & (index < len(train))
    np.add.at(train, index[inside], np.broadcast_to(sizes, index.shape)[inside])
    pole = np.exp(-1 / (decay * rate))
    turn = 2 * np.pi * min(hertz, 0.42 * rate) / rate
    poles = np.array([1, -2 * pole * np.cos(turn), pole * pole], np.float32)
    return np.asarray(lfilter(np.array([0, np.sin(turn)], np.float32), poles, train), np.float32)


def strew(rng: np.random.Generator, n: int, rate: int, per_second: float) -> Float64s:
    """Sample places of events that come by chance."""
    return np.sort(rng.uniform(0, n, rng.poisson(per_second * n / rate)))
