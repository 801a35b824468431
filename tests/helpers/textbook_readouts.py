"""Readouts as they are written down: loops over one clip's frames, in double precision.

``frames[t][f]`` is the vector of time step t in band f. What keeps the bands apart comes back
as (bands, features).
"""

from __future__ import annotations

import cmath
import math
from itertools import pairwise

import numpy as np

EDGES = (0.2, 0.7, 1.5, 3.0, 5.0, 8.0, 12.0, 15.7)


def mean_of(vectors):
    return sum(vectors) / len(vectors)


def length(vector):
    return math.sqrt(math.fsum(value * value for value in vector))


def weights(vectors, gamma):
    """Of relative deviation pooling, for the time steps of one band."""
    mu = mean_of(vectors)
    delta = [length(vector - mu) for vector in vectors]
    furthest = max(delta)
    rho = [each / furthest if furthest > 1e-8 else 0.0 for each in delta]
    unscaled = [(1 + each) ** gamma for each in rho]
    return [each / math.fsum(unscaled) for each in unscaled]


def weighed(vectors, given):
    return sum(weight * vector for weight, vector in zip(given, vectors, strict=True))


def band(frames):
    return [mean_of(vectors) for vectors in of_bands(frames)]


def largest(frames):
    return [[max(column) for column in zip(*vectors, strict=True)] for vectors in of_bands(frames)]


def rdp(frames, gamma):
    return [weighed(vectors, weights(vectors, gamma)) for vectors in of_bands(frames)]


def of_bands(frames):
    """One list of vectors, a vector per time step, for each band."""
    return [[step[f] for step in frames] for f in range(len(frames[0]))]


def fourier(series, k):
    turn = -2j * cmath.pi * k / len(series)
    return sum(value * cmath.exp(turn * t) for t, value in enumerate(series))


def modulation(frames, frame_rate):
    """Of a clip of ten seconds or longer, whose length needs no correction but its window's."""
    steps, bands, features = np.shape(frames)
    hann = [0.5 - 0.5 * math.cos(2 * math.pi * t / (steps - 1)) for t in range(steps)]
    ten = [0.5 - 0.5 * math.cos(2 * math.pi * t / 310) for t in range(311)]
    scale = math.sqrt(31.25 * sum(w * w for w in ten) / (frame_rate * sum(w * w for w in hann)))
    found = []
    for low, high in pairwise(EDGES):
        if (low + high) / 2 >= frame_rate / 2:
            continue
        inside = [k for k in range(steps // 2 + 1) if low <= k * frame_rate / steps < high]
        levels = np.empty((bands, features))
        for f in range(bands):
            for d in range(features):
                series = [frames[t][f][d] for t in range(steps)]
                centre = math.fsum(series) / steps
                moving = [hann[t] * (series[t] - centre) for t in range(steps)]
                sizes = [abs(fourier(moving, k)) for k in inside]
                levels[f, d] = math.log(1e-3 + scale * sum(sizes) / len(sizes))
        for first in range(0, bands, 8):
            found.append(levels[first : first + 8].mean(0))
    return np.concatenate(found)
