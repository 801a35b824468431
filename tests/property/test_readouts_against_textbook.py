"""Every readout is what its definition says, on NumPy and torch, and keeps its identities."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_readouts as textbook
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from daco.backbones.readout import pool

torch = pytest.importorskip("torch")

SHAPES = hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=6)
# Multiples of 1/64: equal frames, equal features and zeros are common, and exact.
ENTRIES = st.integers(-6400, 6400).map(lambda number: number / 64)
FRAMES = SHAPES.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=ENTRIES))
LIBRARIES = st.sampled_from([np.asarray, torch.from_numpy])
BAND_READOUTS = ("band", "max", "rdp")
DEFINITIONS = {
    "band": textbook.band,
    "max": textbook.largest,
    "rdp": textbook.rdp,
    "mean": textbook.mean,
    "std": textbook.std,
}


def pooled(frames, name, library=np.asarray):
    """One clip read out: (bands, features), or (features,) over all bands."""
    vector = np.asarray(pool(library(frames[None]), name))
    return vector.reshape(frames.shape[2:] if name == "mean" else frames.shape[1:])


def same(ours, expected, frames, number=1.0):
    """Equal but for single precision.

    A mean that is wrong by one rounding of the largest value moves the distance of a frame by as
    much, its weight `number` times as much relative to that distance, and the result, which lies
    among the frames, by `number` roundings.
    """
    assert np.isfinite(ours).all()
    atol = (10 + number) * 2.0**-23 * max(np.abs(frames).max(), 1e-30)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=atol)


@given(FRAMES, st.sampled_from([*DEFINITIONS]), LIBRARIES)
def test_pooling(frames, name, library):
    same(pooled(frames, name, library), DEFINITIONS[name](frames), frames, 4)


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize(("steps", "bands", "rate"), [(33, 9, 3.125), (63, 1, 6.25)])
def test_modulation(steps, bands, rate, library):
    frames = np.random.default_rng(0).normal(size=(steps, bands, 2)).astype(np.float32)
    ours = np.asarray(pool(library(frames[None]), "mod", frame_rate=rate))[0]
    np.testing.assert_allclose(ours, textbook.modulation(frames, rate), atol=2e-5)


@settings(max_examples=50)
@given(FRAMES, st.sampled_from(BAND_READOUTS), LIBRARIES)
def test_clips_and_layouts_in_memory_do_not_matter(frames, name, library):
    several = np.stack([frames, -frames, frames * 2])
    together = np.asarray(pool(library(several), name))
    order = (0, 3, 2, 1)
    turned = library(np.ascontiguousarray(several.transpose(order)))
    view = turned.permute(order) if torch.is_tensor(turned) else turned.transpose(order)
    same(together, np.asarray(pool(view, name)), several, 4)
    for clip, alone in zip(together, several, strict=True):
        same(clip.reshape(frames.shape[1:]), pooled(alone, name, library), several, 4)
