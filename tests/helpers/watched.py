"""A humming machine, a model of it, and recordings that arrive in a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import soundfile
from field_models import LOGMEL

from daco.detector.model import MachineModel
from daco.embedding.frontend import Listener

RATE = 16_000
SECONDS = 0.5
FRONTEND = replace(LOGMEL, seconds=SECONDS)


def sound(seed, fault=False):
    """Half a second of hum, or of a grinding that no normal has."""
    rng = np.random.default_rng(seed)
    time = np.arange(int(RATE * SECONDS)) / RATE
    wave = 0.2 * np.sin(2 * np.pi * 120 * rng.uniform(0.98, 1.02) * time)
    wave += 0.02 * rng.normal(size=len(time))
    if fault:
        wave = 0.3 * rng.normal(size=len(time)) * (np.sin(2 * np.pi * 37 * time) > 0)
    return wave.astype(np.float32)


def record(path: Path, seed, fault=False, **options):
    """A new recording, written in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound(seed, fault), RATE, **options)
    return path


def save_model(path: Path, count=24, rate=0.1):
    """A model of `count` normals."""
    listener = Listener(FRONTEND)
    X = np.concatenate(
        [listener.embed_waveform(sound(10_000 + i), RATE).embeddings for i in range(count)]
    )
    domains = ["source"] * (count - 8) + ["target"] * 8
    MachineModel.fit(
        X,
        domains,
        machine="press",
        frontend=FRONTEND,
        config="raw-k1",
        false_alarm_rate=rate,
        clip_names=[f"normal_{i:02d}.wav" for i in range(count)],
    ).save(path)
    return path
