"""Layers of BEATs and EAT against the golden vectors, and what their grids are made of."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conformance.test_golden_backbones import TOLERANCE, error, wave  # noqa: E402

from daco.backbones.readout import pool  # noqa: E402
from daco.errors import InputError  # noqa: E402

LAYERS = range(1, 13)


def test_all_layers_of_one_pass(golden):
    if golden.name == "panns":
        with pytest.raises(InputError, match="panns has no readout 'layer4'"):
            golden.net.check_readout("layer4")
        return
    net = golden.net
    kind, layers = ("mean", "layer_mean") if golden.name == "beats" else ("cls", "layer_cls")
    passes = []
    hook = net.encoder.norm.register_forward_hook(lambda *args: passes.append(1))
    names = [f"layer{layer}" for layer in LAYERS]
    found = net.embed_many(wave("s2")[None], [*names, kind, "rdp"])
    hook.remove()
    assert len(passes) == 1
    ours = np.concatenate([found[name] for name in names])
    assert error(ours, golden[f"s2.{layers}"][-12:]) <= TOLERANCE
    assert np.array_equal(found[kind], found["layer12"])
    assert np.array_equal(found[kind], net.embed(wave("s2")[None]))
    assert found["rdp"].shape == (1, 8 * 768)


def test_readouts_are_those_of_the_grid(golden):
    net, waveforms = golden.net, np.stack([wave("s2"), wave("silence2")])
    grid = net.grid(waveforms)
    names = ["band", "max", "std", "rdp", "mean"]
    found = net.embed_many(waveforms, names)
    for name in names:
        # In another order of additions, of values up to 5.
        np.testing.assert_allclose(found[name], pool(grid, name), rtol=1e-4, atol=2e-5)
    assert grid.shape[2] == (1 if golden.name == "panns" else 8)
    bands = found["band"].reshape(2, grid.shape[2], -1)
    np.testing.assert_allclose(bands.mean(1), found["mean"], atol=1e-5)


def test_the_frame_rate_is_that_of_the_grid(golden):
    net = golden.net
    assert net.frame_rate == (3.125 if golden.name == "panns" else 6.25)
    if golden.name == "eat":  # which sees 10.24 s of any clip
        assert net.grid(wave("s2")[None]).shape[1] == 64
        return
    step = round(net.sample_rate / net.frame_rate)
    steps = [
        net.grid(np.zeros((1, net.shortest + n * step), np.float32)).shape[1] for n in (0, 1, 5)
    ]
    assert np.diff(steps).tolist() == [1, 4]


def test_the_modulation_of_a_learned_grid(golden):
    net = golden.net
    waveforms = wave("s10" if golden.name == "panns" else "s2")[None]
    vectors = net.embed(waveforms, "mod")
    modulation_bands = 2 if golden.name == "panns" else 3
    assert vectors.shape == (1, modulation_bands * net.grid(waveforms).shape[3])
    assert np.isfinite(vectors).all()
