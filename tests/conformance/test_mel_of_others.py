"""Mel filters and filter banks agree with librosa and Kaldi (`tests/golden/mel/make.py`)."""

from __future__ import annotations

import numpy as np
import pytest
from shared_data import ROOT

from daco.backbones.classical import mel_filters
from daco.backbones.logmel import LogMel


@pytest.fixture(scope="module")
def golden():
    with np.load(ROOT / "tests" / "golden" / "mel" / "htk.npz") as file:
        return dict(file)


@pytest.mark.parametrize(("rate", "size", "bands"), [(16000, 1024, 128), (16000, 512, 64)])
def test_mel_filters_are_librosas(golden, rate, size, bands):
    expected = golden[f"filters_{rate}_{size}_{bands}"]
    np.testing.assert_allclose(mel_filters(rate, size, bands), expected, atol=1e-6)


def test_levels_of_mel_bands_are_librosas(golden):
    levels = LogMel().grid(golden["wave"][None])[0, :, :, 0].T
    np.testing.assert_allclose(levels, golden["levels"], atol=2e-3)  # dB, in single precision


@pytest.mark.parametrize(("window", "scale"), [("povey", 2.0**15), ("hanning", 1.0)])
def test_filter_banks_of_the_networks_are_kaldis(golden, window, scale):
    torch = pytest.importorskip("torch")
    from daco.backbones.transformer import fbank

    wave = golden["wave"]
    wave = scale * wave if window == "povey" else wave - wave.mean()
    energies = fbank(torch.from_numpy(wave)[None], window)[0].numpy()
    # Natural logarithms; quiet bands next to loud ones lose digits in single precision.
    np.testing.assert_allclose(energies[::10], golden[window], atol=5e-3)
