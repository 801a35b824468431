"""Eight kinds of machines and their faults as sounds.

Rotating parts are functions of the shaft's angle, and impacts excite a resonance. A fault is added
to that sound; at severity 0 it adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.validation import Float32s, Floats

Orders = Mapping[int, float] | Mapping[float, float]

_TABLE = 1 << 16  # points per turn: a nearest-point lookup is then quieter than 16 bits need
_CONTROL_HZ = 50.0  # rate at which slow variations are drawn


@dataclass(frozen=True)
class Run:
    """One clip of a machine: its operating point, its health, its random numbers.

    ``unit`` are ten numbers in (-1, 1), the same for all clips of one machine. ``fault_rng`` is
    apart from ``rng`` so that a fault leaves the healthy part of the sound as it was.
    """

    n: int
    rate: int
    speed: float
    load: float
    unit: tuple[float, ...]
    rng: np.random.Generator
    fault_rng: np.random.Generator
    fault: str | None = None
    severity: float = 0.0

    def amount(self, fault: str) -> float:
        """How much of a fault there is in this clip."""
        return self.severity if fault == self.fault else 0.0

    def ring(self, places: ArrayLike, sizes: ArrayLike, hertz: float, decay: float) -> Float32s:
        """Impacts in this clip."""
        return ring(self.n, self.rate, places, sizes, hertz, decay)

    def hiss(self, centre: float, width: float, tilt: float = 0.0) -> Float32s:
        """Noise of the healthy machine."""
        return hiss(self.rng, self.n, self.rate, centre, width, tilt)

    def fault_hiss(self, centre: float, width: float) -> Float32s:
        """Noise of the fault."""
        return hiss(self.fault_rng, self.n, self.rate, centre, width)


@dataclass(frozen=True)
class Kind:
    """A kind of machine: its sound, its faults, and the speeds and loads of its two domains.

    Speeds are in turns per second (valve and belt: cycles; motor: of its supply). ``strength``
    scales the faults so that a frozen embedding finds every kind about equally hard.
    """

    name: str
    sound: Callable[[Run], Float32s]
    faults: tuple[str, ...]
    attribute: str
    source_speeds: tuple[float, ...]
    target_speeds: tuple[float, ...]
    source_load: float
    target_load: float
    strength: float


def slow(rng: np.random.Generator, n: int, rate: int, hertz: float) -> NDArray[np.float64]:
    """A random walk around zero of about unit size, with nothing faster than ``hertz``."""
    points = int(n / rate * _CONTROL_HZ) + 3
    keep = max(2, int(points / _CONTROL_HZ * hertz) + 1)
    spectrum = np.zeros(points // 2 + 1, complex)
    keep = min(keep, len(spectrum) - 1)
    spectrum[1 : keep + 1] = rng.normal(size=(keep, 2)) @ (1, 1j)
    curve = np.fft.irfft(spectrum, points) * points / (2 * np.sqrt(keep))
    return np.interp(np.arange(n) * (_CONTROL_HZ / rate), np.arange(points), curve)


def turning(run: Run, speed: float, slip: float) -> Floats:
    """The angle of a shaft in turns; its speed wanders by the fraction ``slip``."""
    step = (speed / run.rate) * (1 + slip * slow(run.rng, run.n, run.rate, 0.7))
    return np.cumsum(step) + run.rng.uniform()


def orders(run: Run, angle: Floats, speed: float, amplitudes: Orders) -> Float32s:
    """Harmonics of a shaft, amplitude by order (or half order), from a table of two turns."""
    spectrum = np.zeros(_TABLE // 2 + 1, complex)
    for order, amplitude in amplitudes.items():
        if order * speed < 0.45 * run.rate:
            phase = np.exp(2j * np.pi * (order * run.unit[9] + order * order * 0.318))
            spectrum[round(2 * order)] += amplitude * phase
    table = (np.fft.irfft(spectrum, _TABLE) * (_TABLE / 2)).astype(np.float32)
    return table[(angle * (_TABLE / 2)).astype(np.int64) & (_TABLE - 1)]


@lru_cache(maxsize=8)
def _frequencies(n: int, rate: int) -> NDArray[np.float32]:
    return np.fft.rfftfreq(n, 1 / rate).astype(np.float32)


def hiss(
    rng: np.random.Generator, n: int, rate: int, centre: float, width: float, tilt: float = 0.0
) -> Float32s:
    """Gaussian noise of unit power around ``centre`` Hz; ``tilt`` -1 makes it pink below."""
    from scipy import fft

    size = fft.next_fast_len(n, real=True)
    f = _frequencies(size, rate)
    gain = 1 / (1 + ((f - centre) / width) ** 2)
    if tilt:
        gain *= ((f + 20) / (centre + 20)) ** tilt
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


def passes(run: Run, angle: Floats, order: float, jitter: float = 0.0) -> NDArray[np.float64]:
    """Sample places at which something that happens ``order`` times a turn happens."""
    first, last = np.ceil(angle[0] * order), np.floor(angle[-1] * order)
    events = np.arange(first, last + 1)
    if jitter:
        events = np.sort(events + jitter * run.fault_rng.normal(size=len(events)))
    return np.interp(events / order, angle, np.arange(run.n))


def strew(rng: np.random.Generator, n: int, rate: int, per_second: float) -> NDArray[np.float64]:
    """Sample places of events that come by chance."""
    return np.sort(rng.uniform(0, n, rng.poisson(per_second * n / rate)))


def _modulate(angle: Floats, order: float, depth: float) -> Float32s:
    return (1 + depth * np.cos(2 * np.pi * (order * angle))).astype(np.float32)


def _burst(run: Run, places: NDArray[np.float64], seconds: float) -> Float32s:
    """An envelope that jumps to 1 at each place and decays."""
    from scipy.signal import lfilter

    train = np.zeros(run.n, np.float32)
    train[np.clip(places.astype(np.int64), 0, run.n - 1)] = 1
    pole = np.float32(np.exp(-1 / (seconds * run.rate)))
    return np.asarray(lfilter(np.ones(1, np.float32), np.array([1, -pole]), train), np.float32)


def bearing(run: Run) -> Float32s:
    """A rolling bearing: rumble, load-zone modulation, dirt; races that spall."""
    balls = 8 + round(run.unit[0])
    angle = turning(run, run.speed, 0.004)
    resonance = 2600 + 500 * run.unit[1]
    sound = orders(run, angle, run.speed, {1: 0.5, 2: 0.3, 3: 0.2, balls * 0.5: 0.1})
    rolling = run.hiss(1500 + 300 * run.unit[2], 1100, -0.3)
    sound += rolling * _modulate(angle, 1, 0.15 + 0.25 * run.load)
    dirt = strew(run.rng, run.n, run.rate, 4)
    sound += run.ring(dirt, run.rng.exponential(2.5, len(dirt)), resonance, 0.002)
    if amount := run.amount("outer race"):
        hits = passes(run, angle, outer_race_order(run.unit), 0.01)
        sizes = amount * 4.0 * run.fault_rng.uniform(0.6, 1.4, len(hits))
        sound += run.ring(hits, sizes, resonance, 0.002)
    if amount := run.amount("inner race"):  # the spall turns through the load zone once a turn
        hits = passes(run, angle, balls - outer_race_order(run.unit), 0.01)
        zone = 1 + np.cos(2 * np.pi * angle[hits.astype(np.int64)])
        sound += run.ring(hits, amount * 3.2 * zone, resonance, 0.002)
    if amount := run.amount("dry"):
        squeak = run.fault_hiss(1.7 * resonance, 300)
        sound += 0.4 * amount * squeak * _modulate(angle, 1, 0.9)
    return sound


def outer_race_order(unit: Sequence[float]) -> float:
    """Impacts per turn of a spall on the outer race: less than half the number of balls."""
    return 0.405 * (8 + round(unit[0]))


def fan(run: Run) -> Float32s:
    """A fan: blade pass and its harmonics over turbulent flow."""
    blades = 6 + round(run.unit[0])
    angle = turning(run, run.speed, 0.006)
    tones = {1: 0.25, 2: 0.1} | {k * blades: 1.1 / k**1.2 for k in range(1, 7)}
    sound = orders(run, angle, run.speed, tones)
    flow = run.hiss(500 + 150 * run.unit[1], 900, -0.5)
    gusts = 1 + 0.2 * run.load * slow(run.rng, run.n, run.rate, 3)
    sound += flow * _modulate(angle, blades, 0.3) * gusts.astype(np.float32)
    if amount := run.amount("imbalance"):
        heavy = orders(run, angle, run.speed, {1: 1.6 * amount, 2: 0.3 * amount})
        sound = sound * _modulate(angle, 1, min(0.9, 0.2 * amount)) + heavy
    if amount := run.amount("rub"):
        scrape = run.fault_hiss(4200, 1500)
        sound += 0.35 * amount * scrape * _burst(run, passes(run, angle, 1, 0.02), 0.006)
    if amount := run.amount("loose part"):
        hits = passes(run, angle, 0.5, 0.05)
        sizes = amount * run.fault_rng.exponential(2, len(hits))
        sound += run.ring(hits, sizes, 1350 + 200 * run.unit[2], 0.006)
    return sound


def gearbox(run: Run) -> Float32s:
    """Two meshing wheels: mesh tones with sidebands of both shafts."""
    teeth = 21 + round(4 * run.unit[0])
    ratio = teeth / (teeth + 13)
    angle = turning(run, run.speed, 0.003)
    mesh = {teeth * k: (0.6 + 0.5 * run.load) / k for k in (1, 2, 3)}
    sides = {teeth * k + j: 0.16 / k / abs(j) for k in (1, 2) for j in (-2, -1, 1, 2)}
    sound = orders(run, angle, run.speed, {1: 0.3, 2: 0.15} | mesh | sides)
    sound *= _modulate(angle, ratio, 0.12)
    sound += 0.9 * run.hiss(1100 + 200 * run.unit[1], 1300, -0.4)
    rattle = strew(run.rng, run.n, run.rate, 5 * (1 - run.load) + 2)
    body = 1900 + 300 * run.unit[2]
    sound += run.ring(rattle, run.rng.exponential(1.5, len(rattle)), body, 0.004)
    if amount := run.amount("worn tooth"):  # it meets its partner once a turn
        hits = passes(run, angle, 1, 0.002)
        sizes = amount * 5.5 * run.fault_rng.uniform(0.7, 1.3, len(hits))
        sound += run.ring(hits, sizes, body, 0.004)
    if amount := run.amount("misalignment"):
        extra = {teeth * k + j: 0.5 * amount for k in (1, 2) for j in (-2, -1, 1, 2)}
        sound += orders(run, angle, run.speed, extra | {2 * teeth: 0.6 * amount, 2: 0.5 * amount})
    if amount := run.amount("dry"):
        growl = run.fault_hiss(teeth * run.speed * 2, 500)
        sound += 0.9 * amount * growl * _modulate(angle, ratio, 0.8)
    return sound


def pump(run: Run) -> Float32s:
    """A piston pump: pressure pulses that carry flow noise."""
    pistons = 3
    angle = turning(run, run.speed, 0.008)
    pulse = {k: 0.9 / k for k in range(1, 4)} | {pistons * k: 1.2 / k for k in range(1, 9)}
    sound = orders(run, angle, run.speed, pulse)
    flow = run.hiss(900 + 200 * run.unit[0], 700, -0.3)
    strokes = _modulate(angle, pistons, 0.35 + 0.3 * run.load)
    sound += flow * strokes
    knock = passes(run, angle, pistons)
    sizes = 1.5 + 0.5 * run.rng.normal(size=len(knock))
    sound += run.ring(knock, sizes, 700 + 100 * run.unit[1], 0.008)
    if amount := run.amount("leak"):
        spray = run.fault_hiss(5200, 1800)
        sound += 0.075 * amount * spray * _modulate(angle, 1, 0.7)
    if amount := run.amount("cavitation"):  # bubbles collapse during suction
        bubbles = strew(run.fault_rng, run.n, run.rate, 160)
        open_ = np.cos(2 * np.pi * (angle[bubbles.astype(np.int64)] * pistons + 0.4)) > 0.3
        sizes = amount * run.fault_rng.exponential(0.33, len(bubbles)) * open_
        sound += run.ring(bubbles, sizes, 3800, 0.0008)
    if amount := run.amount("worn piston"):
        sound = sound * _modulate(angle, 1, min(0.9, 0.25 * amount))
    return sound


def valve(run: Run) -> Float32s:
    """A solenoid valve: it clicks open, lets gas through, and clicks shut."""
    cycles = turning(run, run.speed, 0.02)
    duty = 0.35 + 0.15 * run.load
    opens = passes(run, cycles, 1)
    shuts = opens + duty * run.rate / run.speed
    opens = opens + 0.004 * run.rate * run.rng.normal(size=len(opens))
    shuts = shuts + 0.004 * run.rate * run.rng.normal(size=len(shuts))
    sizes = run.rng.uniform(0.8, 1.2, (2, len(opens)))
    lag = np.zeros(len(opens))
    if amount := run.amount("stiction"):  # it sticks, then lets go late and hard
        stuck = run.fault_rng.uniform(size=len(opens)) < min(0.9, 0.7 * amount)
        lag = stuck * run.fault_rng.uniform(0.2, 0.8, len(opens)) * min(1.5, amount)
        opens = opens + lag * 0.4 * run.rate / run.speed
        sizes = sizes * (1 + 0.8 * amount * stuck)
    plunger, seat = 2300 + 300 * run.unit[0], 1300 + 200 * run.unit[1]
    sound = run.ring(opens, 7 * sizes[0], plunger, 0.004)
    sound += run.ring(shuts, 9 * sizes[1], seat, 0.006)
    sound += run.ring(shuts + 0.018 * run.rate, 3 * sizes[1], seat, 0.006)  # it bounces once
    if amount := run.amount("worn seat"):  # and chatters when the seat no longer guides it
        for bounce in (0.035, 0.05, 0.07):
            late = bounce * run.fault_rng.uniform(0.7, 1.3, len(shuts))
            chatter = amount * run.fault_rng.exponential(6, len(shuts))
            sound += run.ring(shuts + late * run.rate, chatter, seat, 0.006)
    flow = run.hiss(3600 + 400 * run.unit[2], 1500)
    is_open = (cycles % 1 < duty).astype(np.float32)
    hum = orders(run, np.arange(run.n) * (100 / run.rate), 100, {1: 0.2, 2: 0.12, 3: 0.08})
    sound += (0.25 + 0.6 * is_open) * flow + hum * is_open
    if amount := run.amount("leak"):
        gas = run.fault_hiss(5000, 1500)
        sound += 0.2 * amount * gas * (1 - is_open)
    return sound


def belt(run: Run) -> Float32s:
    """A belt conveyor: the splice passes once a round, idlers rumble."""
    rollers = 7 + round(2 * run.unit[0])
    angle = turning(run, run.speed, 0.01)
    sound = orders(run, angle, run.speed, {rollers * k: 0.5 / k for k in range(1, 9)})
    rumble = run.hiss(350 + 100 * run.unit[1], 500, -0.4)
    sound += rumble * _modulate(angle, rollers, 0.3)
    splice = passes(run, angle, 1)
    sizes = (2 + 2 * run.load) * run.rng.uniform(0.7, 1.3, len(splice))
    sound += run.ring(splice, sizes, 240 + 40 * run.unit[2], 0.03)
    goods = strew(run.rng, run.n, run.rate, 1 + 2 * run.load)
    sound += run.ring(goods, run.rng.exponential(2, len(goods)), 800, 0.015)
    if amount := run.amount("slip"):  # the belt squeals when the pulley overtakes it
        where = np.clip(slow(run.fault_rng, run.n, run.rate, 1.5), 0, 2).astype(np.float32)
        tone = turning(run, 2100, 0.01)
        sound += 0.18 * amount * where * orders(run, tone, 2100, {1: 1, 2: 0.5, 3: 0.2})
    if amount := run.amount("seized idler"):
        sound += 0.4 * amount * run.fault_hiss(2600, 400)
    if amount := run.amount("loose part"):
        hits = passes(run, angle, rollers, 0.06)
        sizes = amount * run.fault_rng.exponential(0.4, len(hits))
        sound += run.ring(hits, sizes, 3100, 0.003)
    return sound


def motor(run: Run) -> Float32s:
    """An induction motor on an inverter: hum at twice the supply, rotor slots, a cooling fan."""
    supply, slots = run.speed, 28
    slip = 0.02 + 0.04 * run.load
    shaft = supply / 2 * (1 - slip)
    angle = turning(run, shaft, 0.001)
    grid = np.arange(run.n) * (2 * supply / run.rate) + run.rng.uniform()
    hum = orders(run, grid, 2 * supply, {1: 1, 2: 0.5, 3: 0.3, 4: 0.2, 6: 0.15})
    slot = orders(run, angle, shaft, {slots: 0.35, slots + 4: 0.2, 2 * slots: 0.15})
    sound = hum * (0.7 + 0.5 * run.load) + slot
    sound += orders(run, angle, shaft, {1: 0.3, 2: 0.15, 7: 0.4, 14: 0.2})
    sound += 0.8 * run.hiss(700 + 200 * run.unit[0], 1000, -0.4)
    if amount := run.amount("broken bar"):  # torque beats at the pole-pass frequency
        beat = np.arange(run.n) * (2 * slip * supply / run.rate)
        sound = sound * _modulate(beat, 1, min(0.9, 0.14 * amount))
    if amount := run.amount("misalignment"):
        sound += orders(run, angle, shaft, {2: 1.3 * amount, 4: 0.4 * amount, 1: 0.4 * amount})
    if amount := run.amount("bearing"):
        hits = passes(run, angle, 3.58, 0.01)
        sound += run.ring(hits, amount * 0.6, 3300 + 300 * run.unit[1], 0.002)
    return sound


def spindle(run: Run) -> Float32s:
    """A shaft in journal bearings: low orders, oil noise, a coupling."""
    angle = turning(run, run.speed, 0.005)
    low = {1: 1.0, 2: 0.5, 3: 0.3, 4: 0.2, 5: 0.12, 6: 0.1}
    blur = (1 + 0.15 * slow(run.rng, run.n, run.rate, 2)).astype(np.float32)
    sound = orders(run, angle, run.speed, low) * blur
    body = 1200 + 250 * run.unit[0]
    oil = run.hiss(body, 900, -0.3)
    sound += oil * _modulate(angle, 1, 0.1 + 0.2 * run.load)
    if amount := run.amount("imbalance"):  # the force grows with the square of the speed
        sound += orders(run, angle, run.speed, {1: 2.2 * amount})
        sound += 0.18 * amount * oil * (_modulate(angle, 1, 1) - 1)
    if amount := run.amount("misalignment"):
        sound += orders(run, angle, run.speed, {2: 1.6 * amount, 3: 0.6 * amount})
        sound += 0.15 * amount * oil * (_modulate(angle, 2, 1) - 1)
    if amount := run.amount("rub"):  # contact in part of the turn, and a half order
        scrape = run.fault_hiss(2.2 * body, 1200)
        touch = _burst(run, passes(run, angle, 1, 0.02), 0.012)
        sound += 0.35 * amount * scrape * touch
        sound += orders(run, angle, run.speed, {0.5: 0.7 * amount, 1.5: 0.4 * amount})
    return sound


KINDS = {
    kind.name: kind
    for kind in (
        Kind("bearing", bearing, ("outer race", "inner race", "dry"), "vel",
             (8.0, 11.0, 14.0), (9.5, 12.5), 0.4, 0.8, 0.85),
        Kind("fan", fan, ("imbalance", "rub", "loose part"), "spd",
             (9.0, 12.0, 15.0), (10.5, 13.5), 0.4, 0.8, 0.9),
        Kind("gearbox", gearbox, ("worn tooth", "misalignment", "dry"), "volt",
             (6.0, 8.0, 10.0), (7.0, 9.0), 0.4, 0.8, 0.8),
        Kind("motor", motor, ("broken bar", "misalignment", "bearing"), "frq",
             (40.0, 45.0, 50.0), (42.5, 47.5), 0.3, 0.8, 0.8),
        Kind("belt", belt, ("slip", "seized idler", "loose part"), "spd",
             (0.8, 1.1, 1.4), (0.95, 1.25), 0.3, 0.8, 0.55),
        Kind("pump", pump, ("leak", "cavitation", "worn piston"), "flow",
             (2.0, 2.6, 3.2), (2.3, 2.9), 0.4, 0.8, 0.75),
        Kind("spindle", spindle, ("imbalance", "misalignment", "rub"), "rpm",
             (7.0, 9.0, 11.0), (8.0, 10.0), 0.4, 0.8, 0.85),
        Kind("valve", valve, ("stiction", "leak", "worn seat"), "pat",
             (1.0, 1.4, 1.8), (1.2, 1.6), 0.2, 0.6, 1.0),
    )
}  # fmt: skip
