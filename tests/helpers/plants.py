"""A plant of humming machines in a folder: models, inboxes, and its daco.toml."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
from service_process import FRONTEND, RATE, faulty, humming, model, normal, wait_until

from daco.detector.ranges import learn_ranges
from daco.embedding.frontend import Listener
from daco.monitoring.config import PlantConfig
from daco.monitoring.engine import Plant
from daco.monitoring.store import Recording

__all__ = ["build", "faulty", "normal", "put", "running", "upload", "wait_until"]


@cache
def ranges():
    """How loud the normals of the model are."""
    listener = Listener(FRONTEND)
    waves = [humming(row).astype(np.float32) for row in range(40)]
    return learn_ranges(np.concatenate([listener.embed_waveform(w, RATE).levels for w in waves]))


def build(folder, machines, service="", notify="", **changed):
    """Write models, folders and daco.toml; `machines` has the lines of each table."""
    (folder / "models").mkdir(exist_ok=True)
    text = f"[service]\nworkers = 2\n{service}\n[notify]\n{notify}\n"
    for name, lines in machines.items():
        if not (folder / "models" / f"{name}.daco").exists():
            made = replace(model(), machine=name, **changed)
            made.save(folder / "models" / f"{name}.daco")
        (folder / "inbox" / name).mkdir(parents=True, exist_ok=True)
        text += f"[machine.{name}]\n{lines}\n"
    (folder / "daco.toml").write_text(text)
    return folder / "daco.toml"


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
