"""What a network can be asked for, and what one forward pass of it gives."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from daco.backbones import mobilenet  # noqa: E402
from daco.backbones.network import Network  # noqa: E402
from daco.backbones.readout import pool  # noqa: E402
from daco.errors import InputError  # noqa: E402


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
    return Network(
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
    asked = ["cls", "rdp-g4@L1", "mod@L2", "cls@L2", "band", "gem-p3@L3", "mean@L1"]
    found = net.embed_many(WAVES, asked)
    assert net.encoder.computed == [1, 2, 3]
    assert list(found) == asked
    expected = {
        "cls": 24 * GRID[:, 0, 0],
        "rdp-g4@L1": pool(2 * GRID, "rdp-g4"),
        "mod@L2": pool(6 * GRID, "mod", frame_rate=10.0),
        "cls@L2": 6 * GRID[:, 0, 0],
        "band": pool(24 * GRID, "band"),
        "gem-p3@L3": pool(24 * GRID, "gem-p3"),
        "mean@L1": pool(2 * GRID, "mean"),
    }
    for name, vectors in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], vectors, rtol=1e-5, atol=1e-5)


def test_layers_beyond_the_last_one_asked_for_are_not_computed():
    net = ladder()
    net.embed_many(WAVES, ["mean@L1", "band@L2"])
    assert net.encoder.computed == [1, 2]


def test_the_last_layer_is_the_output():
    net = ladder()
    for name in ("cls", "mean", "rdp-g4"):
        np.testing.assert_array_equal(net.embed(WAVES, f"{name}@L3"), net.embed(WAVES, name))


@pytest.mark.parametrize("name", ["band", "max", "gem-p2", "rdp-g4", "rdp1-g4@L1", "rdpgem-g16"])
def test_two_bands_of_three_features_are_one_vector(name):
    assert ladder().embed(WAVES, name).shape == (2, 6)


def test_bfloat16_grids_are_pooled_in_single_precision():
    exact, rounded = ladder(), ladder(precision="bf16")
    for name in ("rdp-g4", "gem-p3", "band", "max"):
        grid = torch.from_numpy(rounded.grid(WAVES))
        np.testing.assert_allclose(rounded.embed(WAVES, name), pool(grid, name), rtol=1e-6)
        np.testing.assert_allclose(
            rounded.embed(WAVES, name), exact.embed(WAVES, name), rtol=0.05, atol=0.5
        )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("median", r"ladder has no readout 'median'\. It has cls, mean, meanstd, mod, band, max"),
        ("clss", "and each of a layer, @L1 to @L3. Did you mean 'cls'"),
        ("rdp-g4.0@L2", "Did you mean 'rdp-g4@L2'"),
        ("mean@L4", "ladder has layers 1 to 3. Got the readout 'mean@L4'; use 'mean@L3'"),
        ("own@L1", "ladder has no readout 'own@L1'"),
    ],
)
def test_an_unknown_readout_is_refused_before_anything_is_computed(name, message):
    net = ladder()
    with pytest.raises(InputError, match=message):
        net.check_readout(name)
    with pytest.raises(InputError, match=message):
        net.embed_many(WAVES, ["mean", name])
    assert net.encoder.computed == []


@pytest.fixture(scope="module")
def mn04():
    shapes = mobilenet.expected_shapes()
    random = torch.Generator().manual_seed(0)
    weights = {name: torch.rand(shape, generator=random) for name, shape in shapes.items()}
    return mobilenet.build(weights, "cpu", "fp32")


def test_a_network_without_layers_says_so(mn04):
    with pytest.raises(InputError, match=r"mn04 has no layers to choose from.*use 'rdp-g4'"):
        mn04.check_readout("rdp-g4@L4")
    with pytest.raises(InputError, match="no readout 'cls'"):
        mn04.check_readout("cls")


def test_mn04_has_four_bands_and_ten_steps_in_three_seconds(mn04):
    assert (mn04.frame_rate, mn04.depth) == (3.125, 0)
    step = mn04.sample_rate / mn04.frame_rate
    waves = np.zeros((1, round(12 * step)), np.float32)
    grids = [mn04.grid(waves[:, : round(steps * step)]) for steps in (9, 10, 12)]
    assert np.diff([grid.shape[1] for grid in grids]).tolist() == [1, 2]
    assert {grid.shape[2:] for grid in grids} == {(4, 384)}
    assert mn04.embed(waves, "mod").shape == (1, 2 * 384)
