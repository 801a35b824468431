"""Readouts of a real network on real recordings, against embeddings that were made elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_readouts as textbook
from conformance.test_real_machines import recordings
from shared_data import shared

from daco.backbones import load

pytest.importorskip("torch")

READOUTS = ["mean", "band", "max", "rdp", "mod"]


@pytest.fixture(scope="module", params=["bearing", "fan"])
def clips(request):
    """The network, waveforms, reference bands of 70 clips, and all readouts of one pass each."""
    from scipy.signal import resample_poly

    net = load("mn04", shared("real", "mn04_as_mAP_432.pt"))
    waves, reference = recordings(request.param, "mn04_band")
    waves = resample_poly(waves, 2, 1, axis=1).astype(np.float32)
    batches = [net.embed_many(waves[i : i + 10], READOUTS) for i in range(0, 70, 10)]
    found = {name: np.concatenate([batch[name] for batch in batches]) for name in READOUTS}
    return net, waves, reference["band"], found


def test_band_is_the_reference_and_its_mean_is_the_embedding(clips):
    _, _, reference, found = clips
    bands = found["band"].reshape(70, 4, 384)
    # Stored as float16: 11 bits. Measured beside them: 1.1e-5.
    np.testing.assert_allclose(bands, reference, rtol=2**-11, atol=5e-5)
    np.testing.assert_allclose(bands.mean(1), found["mean"], atol=1e-6)


def test_every_readout_is_the_textbook_version_of_the_grid(clips):
    net, waves, _, found = clips
    frames = net.grid(waves[:1])[0].astype(np.float64)
    expected = {"max": textbook.largest(frames), "rdp": textbook.rdp(frames, 4)}
    for name, bands in expected.items():
        # The clip came in a batch of ten, whose convolutions round differently: up to 1e-5.
        np.testing.assert_allclose(found[name][0], np.ravel(bands), rtol=1e-4, atol=3e-5)
    modulation = textbook.modulation(frames[..., :5], net.frame_rate).reshape(2, 1, 5)
    ours = found["mod"][0].reshape(2, 1, 384)[..., :5]
    np.testing.assert_allclose(ours, modulation, atol=1e-3)
