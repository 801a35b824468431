"""A plant of humming machines in a folder: models, inboxes, and its daco.toml."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import cache

import numpy as np
from service_process import FRONTEND, RATE, faulty, humming, normal, wait_until, write_plant

from daco.detector.ranges import learn_ranges
from daco.embedding.frontend import Listener
from daco.monitoring.config import PlantConfig
from daco.monitoring.engine import Plant
from daco.monitoring.store import Recording

__all__ = ["faulty", "normal", "put", "running", "upload", "wait_until", "write_plant"]


@cache
def ranges():
    """How loud the normals of the model are."""
    listener = Listener(FRONTEND)
    waves = [humming(row).astype(np.float32) for row in range(40)]
    return learn_ranges(np.concatenate([listener.embed_waveform(w, RATE).levels for w in waves]))


@contextmanager
def running(file, start=True):
    """The plant of a daco.toml."""
    plant = Plant(PlantConfig.load(file))
    try:
        if start:
            plant.start()
        yield plant
    finally:
        plant.stop()


def put(path, data, age=0.0):
    """A file that appears complete; `age` seconds old by its times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_bytes(data)
    if age:
        os.utime(hidden, (time.time() - age, time.time() - age))
    hidden.rename(path)
    return path


def upload(plant, data, machine="press", **known):
    """A recording that came over HTTP."""
    return plant.handle(Recording(machine, known.pop("name", "a.wav"), data, **known))
