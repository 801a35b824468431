"""Readouts as they are written down, of one clip in double precision.

``frames`` is (time, bands, features); what keeps the bands apart comes back as (bands, features).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

EDGES = (0.2, 0.7, 1.5, 3.0, 5.0, 8.0, 12.0, 15.7)


def mean(frames):
    return band(frames).mean(0)


def band(frames):
    return sum(frames.astype(np.float64)) / len(frames)


def largest(frames):
    return frames.max(0)


def std(frames):
    return np.sqrt(sum((frames - band(frames)) ** 2) / len(frames))


def rdp(frames, gamma=4):
    found = []
    for vectors in np.moveaxis(frames.astype(np.float64), 1, 0):
        distance = np.array([np.sqrt(sum(away**2)) for away in vectors - vectors.mean(0)])
        relative = distance / max(distance) if max(distance) > 1e-8 else 0 * distance
        weights = (1 + relative) ** gamma
        found.append(weights @ vectors / sum(weights))
    return np.array(found)


def modulation(frames, frame_rate):
    """Of a clip of ten seconds or longer, whose length needs no correction but its window's."""
    steps, bands, _ = frames.shape
    window, ten = np.hanning(steps), np.hanning(311)
    scale = np.sqrt(31.25 * sum(ten**2) / (frame_rate * sum(window**2)))
    moving = window[:, None, None] * (frames - band(frames))
    turns = np.exp(-2j * np.pi * np.outer(np.arange(steps // 2 + 1), np.arange(steps)) / steps)
    sizes = scale * np.abs(np.tensordot(turns, moving, axes=1))
    hertz = np.arange(len(sizes)) * frame_rate / steps
    found = []
    for low, high in pairwise(EDGES):
        if (low + high) / 2 < frame_rate / 2:
            level = np.log(1e-3 + sizes[(low <= hertz) & (hertz < high)].mean(0))
            found += [level[first : first + 8].mean(0) for first in range(0, bands, 8)]
    return np.concatenate(found)
