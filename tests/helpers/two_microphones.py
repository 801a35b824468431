"""A machine in a loud hall, heard by a microphone near it and one far from it."""

from __future__ import annotations

import numpy as np
import soundfile

RATE = 16_000
POLICIES = (0, 1, "mix", "lsq", "specsub", "residual-c0.5", "residual-proj")


def both(seed=0, seconds=0.5, rate=RATE, hall=0.1, whine=0.0):
    """Near and far, float32 of shape (2, n); a whine beside the hum is a fault."""
    rng = np.random.default_rng(seed)
    n = round(seconds * rate)
    time = np.arange(n) / rate
    hum = 0.1 * (1 + 0.3 * np.sin(50 * time + rng.uniform(0, 6))) * np.sin(1250 * time)
    hum += whine * np.sin(18_000 * time + rng.uniform(0, 6))
    swell = np.sin(np.pi * rng.uniform(3, 14) * np.arange(n + 10) / rate)
    noise = rng.normal(0, hall, n + 10) * (1 + 0.8 * swell)
    near = hum + 0.7 * noise[10:] + rng.normal(0, 0.002, n)
    far = 0.05 * hum + noise[7:-3] + rng.normal(0, 0.002, n)
    return np.stack([near, far]).astype(np.float32)


def write(path, waves, rate=RATE, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.asarray(waves).T, rate, **options)
    return path
