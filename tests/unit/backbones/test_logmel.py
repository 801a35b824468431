"""The weight-free embedding, and what importing the backbones costs and needs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import daco.backbones
from daco.backbones.classical import mel_filters
from daco.backbones.logmel import LogMel
from daco.backbones.readout import pool
from daco.errors import AudioError, InputError


def waves(clips=2, seconds=2.0, rate=16000, seed=0):
    shape = (clips, round(seconds * rate))
    return (0.1 * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def test_every_readout_has_its_shape_and_dtype():
    net, wave = LogMel(), waves(3)
    sizes = {"mod": 112, "mean": 128, "std": 128, "env": 640, "cep": 40, "mod60": 192}
    assert set(net.readouts) == set(sizes)
    for readout, vectors in net.embed_many(wave, net.readouts).items():
        assert vectors.shape == (3, sizes[readout])
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, net.embed(wave, readout))
    np.testing.assert_array_equal(net.embed(wave), net.embed(wave, "mod"))
    grid = net.grid(wave)
    for readout, pooling in (("mean", "band"), ("std", "std"), ("mod", "mod")):
        expected = pool(grid, pooling, frame_rate=31.25)
        np.testing.assert_allclose(net.embed(wave, readout), expected, atol=1e-4)


def test_views_of_the_waveform_pad_a_clip_that_is_too_short_with_silence():
    net, wave = LogMel(), waves(1, 0.5)
    padded = np.pad(wave, ((0, 0), (0, 8192 - wave.shape[1])))
    for readout in ("env", "cep", "mod60"):
        np.testing.assert_array_equal(net.embed(wave, readout), net.embed(padded, readout))


def test_mel_triangles_are_those_written_down():
    """By hand: 0 to 1000 Hz are 999.986 mel of 2595 lg(1 + f/700), half of it is 390.871 Hz."""
    (band,) = mel_filters(2000, 20, 1)  # bins of 100 Hz
    expected = {0: 0, 3: 300 / 390.871, 4: 600 / 609.129, 5: 500 / 609.129, 10: 0}
    np.testing.assert_allclose(band[list(expected)], list(expected.values()), atol=1e-5)


@pytest.mark.parametrize(
    ("waveforms", "kind", "message"),
    [
        (np.zeros(16000, np.float32), InputError, "2-D"),
        (np.zeros((0, 16000), np.float32), InputError, "at least one clip"),
        (np.zeros((1, 16000), np.int16), InputError, "divide 16-bit samples by 32768"),
        (np.zeros((1, 4607), np.float32), AudioError, "at least 4608 samples"),
        (np.full((2, 16000), np.nan, np.float32), InputError, r"waveforms\[0\]"),
    ],
)
def test_unusable_waveforms_are_refused(waveforms, kind, message):
    with pytest.raises(kind, match=message):
        LogMel().embed(waveforms)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp8"}, "precision"),
        ({"weights": "some.pt"}, "no weights"),
        ({"sample_rate": 999}, "1000"),
    ],
)
def test_options_that_it_has_not_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        daco.backbones.load("logmel", **options)


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_torch_logmel_works_and_the_others_say_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, daco.backbones as b\n"
        "from daco.errors import MissingExtraError\n"
        "assert b.load('logmel').embed(np.zeros((1, 16000), np.float32)).shape == (1, 112)\n"
        "for name in b.NAMES[1:]:\n"
        "    try:\n"
        "        b.load(name)\n"
        "    except MissingExtraError as error:\n"
        "        assert 'pip install \"daco-asd[torch]\"' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError(name)\n"
    )
    run(code)
