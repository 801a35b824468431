"""What a network of daco can be asked for, and what one forward pass of it gives."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from daco.backbones import load, mobilenet, network  # noqa: E402
from daco.backbones.readout import pool  # noqa: E402
from daco.errors import DacoWarning, InputError  # noqa: E402


class Ladder(torch.nn.Module):
    """Frames of 2 bands x 3 samples; layer k multiplies them by k + 1. A first frame is CLS."""

    depth = 3

    def __init__(self):
        super().__init__()
        self.computed = []

    def forward(self, features):
        return self.at_layers(features, {self.depth})[self.depth]

    def at_layers(self, features, wanted):
        x = features.view(len(features), -1, 2, 3)
        found = {}
        for number in range(1, max(wanted) + 1):
            self.computed.append(number)
            x = x * (number + 1)
            if number in wanted:
                found[number] = (x, {"cls": x[:, 0, 0]})
        return found


def ladder(**options):
    return network.Network(
        "ladder",
        lambda waveforms: waveforms,
        Ladder(),
        sample_rate=60,
        shortest=6,
        own_readouts=("cls",),
        default_readout="cls",
        frame_rate=10.0,
        **options,
    )


WAVES = np.random.default_rng(0).normal(size=(2, 120)).astype(np.float32)
GRID = WAVES.reshape(2, 20, 2, 3)


def test_every_readout_of_every_layer_comes_from_one_pass():
    net = ladder()
    expected = {
        "cls": 24 * GRID[:, 0, 0],
        "layer1": 2 * GRID[:, 0, 0],
        "rdp": pool(24 * GRID, "rdp"),
        "layer2": 6 * GRID[:, 0, 0],
        "mod": pool(24 * GRID, "mod", frame_rate=10.0),
    }
    found = net.embed_many(WAVES, list(expected))
    assert net.encoder.computed == [1, 2, 3]
    assert list(found) == list(expected)
    for name, vectors in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], vectors, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(net.embed(WAVES, "layer3"), net.embed(WAVES))
    net.encoder.computed.clear()
    net.embed_many(WAVES, ["layer1", "layer2"])
    assert net.encoder.computed == [1, 2]  # no layer beyond the last one asked for


@pytest.mark.parametrize("kind", [np.float64, ">f4", np.ndarray.tolist, torch.from_numpy])
def test_waveforms_may_be_floats_of_numpy_or_torch(kind):
    frozen = WAVES.copy()
    frozen.flags.writeable = False
    given = WAVES.astype(kind) if kind in (np.float64, ">f4") else kind(WAVES)
    for waves in (given, frozen):
        np.testing.assert_array_equal(ladder().embed(waves), 24 * GRID[:, 0, 0])


def test_bfloat16_grids_are_pooled_in_single_precision():
    exact, rounded = ladder(), ladder(precision="bf16")
    for name in ("rdp", "band", "max"):
        grid = torch.from_numpy(rounded.grid(WAVES))
        np.testing.assert_allclose(rounded.embed(WAVES, name), pool(grid, name), rtol=1e-6)
        np.testing.assert_allclose(  # 8 bits of values up to 100
            rounded.embed(WAVES, name), exact.embed(WAVES, name), rtol=0.05, atol=0.5
        )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("median", r"ladder has no readout 'median'\. It has cls, mean, band, max, std, rdp, mod"),
        ("layer4", r"It has .*layer1, layer2, layer3\. Did you mean 'layer"),
    ],
)
def test_an_unknown_readout_is_refused_before_anything_is_computed(name, message):
    net = ladder()
    with pytest.raises(InputError, match=message):
        net.embed_many(WAVES, ["mean", name])
    assert net.encoder.computed == []


@pytest.fixture(scope="module")
def weights():
    random = torch.Generator().manual_seed(0)
    shapes = mobilenet.expected_shapes().items()
    return {name: torch.rand(shape, generator=random) for name, shape in shapes}


def test_mn04_has_four_bands_and_ten_steps_in_three_seconds(weights):
    mn04 = load("mn04", weights)
    assert (mn04.frame_rate, mn04.depth) == (3.125, 0)
    step = mn04.sample_rate / mn04.frame_rate
    waves = np.zeros((1, round(12 * step)), np.float32)
    grids = [mn04.grid(waves[:, : round(steps * step)]) for steps in (9, 10, 12)]
    assert np.diff([grid.shape[1] for grid in grids]).tolist() == [1, 2]
    assert {grid.shape[2:] for grid in grids} == {(4, 384)}
    assert mn04.embed(waves, "mod").shape == (1, 2 * 384)


@pytest.mark.parametrize("flags", [{"avx512_bf16": False, "amx_bf16": False}, {"amx_bf16": True}])
def test_a_cpu_without_the_instructions_is_told_so(weights, monkeypatch, flags):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags, raising=False)
    if any(flags.values()):
        assert load("mn04", weights, precision="bf16").precision == "bf16"
    else:
        with pytest.warns(DacoWarning, match="no instructions for bfloat16"):
            load("mn04", weights, precision="bf16")


def test_folding_a_batch_norm_changes_nothing():
    torch.manual_seed(0)

    def make():
        return torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, bias=False), torch.nn.BatchNorm2d(3))

    original = make().eval()
    for statistic in (original[1].running_mean, original[1].running_var):
        statistic.uniform_(0.5, 2)
    folded = network.folded(original.state_dict(), make)
    x = torch.rand(1, 2, 5, 5)
    torch.testing.assert_close(folded(x), original(x))
    assert isinstance(folded[1], torch.nn.Identity)
