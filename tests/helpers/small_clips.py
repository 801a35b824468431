"""Short clips of known level, and a network that tells level and length."""

from __future__ import annotations

import numpy as np
import soundfile

from daco.backbones.protocol import Backbone
from daco.data.clips import Clip, ClipTable

RATE = 8000


class FakeNet(Backbone):
    """Level and length of a waveform: easy to foresee, whatever the batch."""

    name, sample_rate, device, precision = "fake", RATE, "cpu", "fp32"
    readouts, default_readout = ("level", "length"), "level"

    def __init__(self, weights_sha256="0" * 64):
        self.weights_sha256 = weights_sha256
        self.batches = []

    def embed_many(self, waveforms, readouts):
        self.batches.append(waveforms.shape)
        level = np.abs(waveforms).max(axis=1)
        made = {
            "level": np.stack([level, np.ones_like(level)], axis=1),
            "length": np.full((len(waveforms), 1), waveforms.shape[1], np.float32),
        }
        return {readout: made[readout] for readout in readouts}

    @property
    def seen(self):
        return sum(shape[0] for shape in self.batches)


def write_clip(path, level, samples=800):
    wave = np.full(samples, level, np.float32)
    soundfile.write(path, wave, RATE, subtype="FLOAT")


def make_clips(folder, count, lengths=(800,)):
    folder.mkdir(exist_ok=True)
    clips = []
    for index in range(count):
        name = f"{index:04d}.wav"
        write_clip(folder / name, (index + 1) / (count + 1), lengths[index % len(lengths)])
        clips.append(Clip(name, "fan", domain="source", label=index % 2, attributes={"n": name}))
    return ClipTable(folder, tuple(clips))


def levels(count):
    return np.arange(1, count + 1, dtype=np.float32) / np.float32(count + 1)
