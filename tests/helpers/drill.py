"""A drill that hums in two operating conditions, as half seconds of sound in a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

RATE = 16_000
HERTZ = {"day": 200, "night": 320}
NORMALS = {"day": 16, "night": 10}
FAULTY = {"hertz": 200, "seed": 98, "modulation": 1.0}
"""A wobble that no normal has."""


def hum(path: Path, hertz: int, seed: int, seconds: float = 0.5, modulation: float = 8.0) -> Path:
    """A hum whose wobble starts anywhere; no two clips have the same noise."""
    rng = np.random.default_rng([seed, hertz])
    time = np.arange(round(seconds * RATE)) / RATE
    wobble = 1 + 0.3 * np.sin(2 * np.pi * modulation * time + rng.uniform(0, 6))
    wave = 0.2 * wobble * np.sin(2 * np.pi * hertz * time) + rng.normal(0, 0.03, len(time))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, wave, RATE)
    return path


def write_normals(root: Path, counts: dict[str, int], first: int = 0) -> Path:
    """Recordings of each domain in a folder of its name; `first` makes them new ones."""
    for domain, count in counts.items():
        for index in range(first, first + count):
            hum(root / domain / f"{domain}{index:02}.wav", HERTZ[domain], index)
    return root


def scaled(path: Path, source: Path, factor: float) -> Path:
    """A recording with another loudness."""
    wave, rate = soundfile.read(source)
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, factor * wave, rate)
    return path
