"""Injected changes of known kind, band and rate: which share is named by a finding.

::

    python benchmarks/findings.py [--draws 20]

Profiles are of the training normals, changes are injected into normals of the test split: of the
real recordings below DACO_SHARED, and of the synthetic factory. The table has the share of changes
that one of the findings names with kind, band and rate or time; in brackets, that the first does.
The level is the power of what was added over that of the recording. For a missing tone and a
quieter band it is how much of them is removed: all at 0 dB, half of the amplitude at -6 dB.
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
from scipy import signal

from daco.monitoring.findings import Finding, findings
from daco.monitoring.healthy import HealthyProfile
from daco.monitoring.sound_features import sound_features
from daco.synthetic.factory import MACHINES, ClipPlan, record
from daco.synthetic.sounds import ring

REAL = ("fan", "bearing")
LEVELS_DB = (0.0, -6.0)


class Change(NamedTuple):
    """A changed recording, and what names the change."""

    wave: Any
    kinds: set[str]
    low_hz: float
    high_hz: float
    rate_hz: float | None = None
    when: tuple[float, float] | None = None


def band_noise(rng, n, rate, low, high):
    sos = signal.butter(6, [low, min(high, 0.47 * rate)], "bandpass", fs=rate, output="sos")
    return signal.sosfiltfilt(sos, rng.normal(size=n))


def geometric(rng, low, high):
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def octave(rng, low=300, high=4500):
    centre = geometric(rng, low, high)
    return centre / np.sqrt(2), centre * np.sqrt(2)


def scaled(change, wave, level_db):
    return change * (wave.std() / change.std() * 10 ** (level_db / 20))


# Each change takes a recording, its sample rate, a level and a generator.


def tone(wave, rate, level_db, rng):
    hertz = geometric(rng, 150, 6500)
    t = np.arange(len(wave)) / rate
    change = np.sin(2 * np.pi * hertz * t + rng.uniform(0, 6))
    return Change(wave + scaled(change, wave, level_db), {"tone"}, hertz, hertz)


def knocks(wave, rate, level_db, rng):
    per_second, hertz, decay = (
        geometric(rng, 3, 60),
        geometric(rng, 900, 6000),
        rng.uniform(0.001, 0.005),
    )
    period = rate / per_second
    places = np.arange(rng.uniform(0, period), len(wave), period)
    places = places + 0.01 * period * rng.normal(size=len(places))
    places = places[places > 0]
    change = ring(len(wave), rate, places, rng.uniform(0.7, 1.3, len(places)), hertz, decay)
    return Change(
        wave + scaled(np.asarray(change, float), wave, level_db),
        {"repetition"},
        hertz / 1.2,
        hertz * 1.2,
        per_second,
    )


def noise(wave, rate, level_db, rng):
    low, high = octave(rng)
    change = band_noise(rng, len(wave), rate, low, high)
    return Change(wave + scaled(change, wave, level_db), {"level"}, low, high)


def modulation(wave, rate, level_db, rng):
    per_second = geometric(rng, 1, 25)
    swell = np.sin(2 * np.pi * per_second * np.arange(len(wave)) / rate + rng.uniform(0, 6))
    return Change(
        wave * (1 + np.sqrt(2) * 10 ** (level_db / 20) * swell),
        {"repetition"},
        50,
        rate / 2,
        per_second,
    )


def modulated_noise(wave, rate, level_db, rng):
    per_second = geometric(rng, 2, 40)
    low, high = octave(rng, 600, 4500)
    swell = 1 + np.sin(2 * np.pi * per_second * np.arange(len(wave)) / rate)
    change = band_noise(rng, len(wave), rate, low, high) * swell
    return Change(wave + scaled(change, wave, level_db), {"repetition"}, low, high, per_second)


def missing(wave, rate, level_db, rng, lines):
    hertz = rng.choice(lines)
    sos = signal.butter(2, [hertz - 12, hertz + 12], "bandpass", fs=rate, output="sos")
    part = signal.sosfiltfilt(sos, wave)
    return Change(wave - 10 ** (level_db / 20) * part, {"tone", "harmonics", "level"}, hertz, hertz)


def resonance(wave, rate, level_db, rng):
    hertz, sharpness = geometric(rng, 400, 4500), rng.uniform(2, 8)
    change = signal.lfilter(*signal.iirpeak(hertz, sharpness, fs=rate), wave)
    width = hertz / sharpness / 2
    return Change(wave + scaled(change, wave, level_db), {"level"}, hertz - width, hertz + width)


def rattle(wave, rate, level_db, rng):
    low, high = octave(rng, 800, 4500)
    change = band_noise(rng, len(wave), rate, low, high)
    envelope = np.zeros(len(wave))
    for start in rng.uniform(0, len(wave), int(rng.integers(8, 40))).astype(int):
        length = int(rng.uniform(0.02, 0.08) * rate)
        part = envelope[start : start + length]
        part[:] = np.maximum(part, rng.uniform(0.5, 1) * np.hanning(length)[: len(part)])
    return Change(
        wave + scaled(change * envelope, wave, level_db), {"event", "repetition"}, low, high
    )


def event(wave, rate, level_db, rng):
    low, high = octave(rng, 400, 4500)
    length = int(geometric(rng, 0.05, 0.8) * rate)
    start = int(rng.uniform(0, len(wave) - length))
    change = np.zeros(len(wave))
    change[start : start + length] = band_noise(rng, len(wave), rate, low, high)[
        :length
    ] * np.hanning(length)
    when = start / rate, (start + length) / rate
    return Change(wave + scaled(change, wave, level_db), {"event"}, low, high, None, when)


def family(wave, rate, level_db, rng):
    spacing, count = geometric(rng, 30, 450), int(rng.integers(5, 15))
    t = np.arange(len(wave)) / rate
    orders = [k for k in range(1, count + 1) if k * spacing < 0.45 * rate]
    change = sum(
        np.sin(2 * np.pi * k * spacing * t + rng.uniform(0, 6)) / np.sqrt(k) for k in orders
    )
    return Change(
        wave + scaled(change, wave, level_db), {"harmonics"}, spacing, spacing * orders[-1], spacing
    )


def quieter(wave, rate, level_db, rng):
    low, high = octave(rng, 300, 4500)
    sos = signal.butter(4, [low, high], "bandpass", fs=rate, output="sos")
    part = signal.sosfiltfilt(sos, wave)
    return Change(wave - 0.95 * 10 ** (level_db / 20) * part, {"level"}, low, high)


def rub(wave, rate, level_db, rng):
    per_second, width = rng.uniform(1, 4), rng.uniform(0.03, 0.12)
    low, high = octave(rng, 1000, 4500)
    change = band_noise(rng, len(wave), rate, low, high)
    phase = (np.arange(len(wave)) / rate * per_second + rng.uniform(0, 1)) % 1
    hump = np.maximum(0, np.cos(np.pi * np.clip((phase - 0.5) / (width * per_second), -0.5, 0.5)))
    return Change(
        wave + scaled(change * hump, wave, level_db), {"repetition"}, low, high, per_second
    )


CHANGES: dict[str, Callable[..., Any]] = {
    "tone": tone,
    "knocks": knocks,
    "band noise": noise,
    "modulation of all": modulation,
    "modulated noise": modulated_noise,
    "missing tone": missing,
    "resonance": resonance,
    "rattle": rattle,
    "single event": event,
    "harmonics": family,
    "quieter band": quieter,
    "rub": rub,
}


def is_named(finding: Finding, change: Change) -> bool:
    """Whether kind, band (overlap within 5 %) and rate (5 %) or time of a finding are right."""
    if finding.kind not in change.kinds:
        return False
    if finding.high_hz < change.low_hz / 1.05 or finding.low_hz > change.high_hz * 1.05:
        return False
    if change.when is not None:
        return finding.start_s < change.when[1] and finding.end_s > change.when[0]
    if change.rate_hz is None:
        return True
    return finding.rate_hz is not None and abs(finding.rate_hz / change.rate_hz - 1) < 0.05


def tones_of(wave: Any, profile: HealthyProfile) -> Any:
    """Lines of a recording that its nearest healthy ones have, too; what can be missing."""
    sound = sound_features(wave, profile.sample_rate)
    near = profile.reference().nearest(sound.levels, sound.tones)
    shared = np.minimum(profile.lines[near].min(axis=0), sound.lines)
    return sound.line_hz[shared >= 10].astype(float)


def draw(
    name: str, wave: Any, profile: HealthyProfile, level_db: float, seed: int
) -> Change | None:
    """One injected change; None where a recording has no tone that could be missing."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if name != "missing tone":
        return CHANGES[name](wave.astype(float), profile.sample_rate, level_db, rng)
    lines = tones_of(wave, profile)
    return missing(wave, profile.sample_rate, level_db, rng, lines) if len(lines) else None


def recordings(machine: str, split: str, label: str = "normal") -> tuple[list[Any], int]:
    """Waveforms of a machine of the real recordings below DACO_SHARED, and their rate."""
    folder = Path(os.environ.get("DACO_SHARED", "../shared")) / "real" / "audio" / machine / split
    paths = sorted(folder.glob(f"*_{label}_*.flac"))
    waves = [soundfile.read(path, dtype="float32") for path in paths]
    return [wave for wave, _ in waves], waves[0][1]


def synthetic(machine: str, split: str, count: int) -> tuple[list[Any], int]:
    """Waveforms of a machine of the synthetic factory."""
    plans = [
        ClipPlan(machine, split, domain, 0, number)
        for number in range(count // 2)
        for domain in ("source", "target")
    ]
    return [record(plan)[:, 0] / np.float32(32768) for plan in plans], 16000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20, help="of each change and machine")
    draws = parser.parse_args().draws
    machines = {name: (recordings(name, "train"), recordings(name, "test")) for name in REAL}
    for name in MACHINES:
        machines[f"synthetic {name}"] = (synthetic(name, "train", 40), synthetic(name, "test", 16))
    table: dict[tuple[str, float, bool], list[tuple[bool, bool]]] = {}
    for machine, ((train, rate), (test, _)) in machines.items():
        began = time.perf_counter()
        profile = HealthyProfile.from_recordings(train, rate)
        built = time.perf_counter() - began
        print(f"{machine}: {1e3 * built / len(train):.0f} ms a healthy recording", end=", ")
        _ = profile.reference().limits
        began = time.perf_counter()
        false = sum(bool(findings(wave, rate, profile)) for wave in test)
        spent = (time.perf_counter() - began) / len(test)
        print(f"{1e3 * spent:.0f} ms a recording; false: {false} of {len(test)} test", end=", ")
        shuffled = np.random.default_rng(0).permutation(len(train))
        known, held = shuffled[len(train) // 2 :], shuffled[: len(train) // 2]
        half = HealthyProfile.from_recordings([train[row] for row in known], rate)
        false = sum(bool(findings(train[row], rate, half)) for row in held)
        print(f"{false} of {len(held)} held-out normals")
        for name in CHANGES:
            for level_db in LEVELS_DB:
                for seed in range(draws):
                    change = draw(name, test[seed % len(test)], profile, level_db, seed)
                    if change is None:
                        continue
                    named = [
                        is_named(each, change) for each in findings(change.wave, rate, profile)
                    ]
                    key = name, level_db, machine in REAL
                    table.setdefault(key, []).append((any(named), named[:1] == [True]))
    heads = [f"{where}, {level:g} dB" for where in ("real", "synthetic") for level in LEVELS_DB]
    print("\n| change | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads))
    rows = {}
    for name in CHANGES:
        rows[name] = [
            np.mean(table[name, level, real], axis=0)
            if (name, level, real) in table
            else (np.nan,) * 2
            for real in (True, False)
            for level in LEVELS_DB
        ]
    rows["all"] = np.nanmean(list(rows.values()), axis=0)
    for name, cells in rows.items():
        texts = ["" if np.isnan(some) else f"{some:.0%} ({first:.0%})" for some, first in cells]
        print(f"| {name} | " + " | ".join(texts) + " |")


if __name__ == "__main__":
    main()
