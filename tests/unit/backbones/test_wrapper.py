"""A torch module or an object is a network in one line, for `load` and for `embed_clips`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from small_clips import RATE, make_clips

from daco.audio.formats import AudioLimits
from daco.backbones import load
from daco.backbones.readout import pool
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.embedding.frontend import Frontend, Listener, frontend_of
from daco.errors import AudioError, InputError

WAVES = np.random.default_rng(1).normal(scale=0.1, size=(3, RATE)).astype(np.float32)


class Level:
    """Mean level of four parts of a clip."""

    sample_rate = RATE

    def embed(self, waveforms):
        assert waveforms.dtype == np.float32
        return np.abs(waveforms.reshape(len(waveforms), 4, -1)).mean(axis=2)


class Grid:
    """Four bands of ten samples in each step of time, and a vector."""

    sample_rate, frame_rate = RATE, 200.0

    def grid(self, waveforms):
        return np.abs(waveforms.reshape(len(waveforms), -1, 4, 10)) + np.arange(4)[:, None]


def test_any_object_with_embed_is_a_network():
    net = load(Level())
    assert (net.name, net.readouts, net.package) == ("Level", ("own",), None)
    np.testing.assert_allclose(net.embed(WAVES), Level().embed(WAVES))
    bare = SimpleNamespace(embed=lambda waves: waves[:, :3].astype("float64"), name="mine")
    mine = load(bare, sample_rate=RATE)
    assert (mine.name, mine.embed(WAVES).dtype) == ("mine", np.float32)
    assert load(net) is net


def test_a_grid_has_every_pooled_readout_and_modulation_where_its_frame_rate_is_known():
    net = load(Grid())
    assert net.readouts == ("mean", "band", "max", "std", "rdp", "mod")
    for readout in net.readouts:
        expected = pool(Grid().grid(WAVES), readout, frame_rate=200.0)
        # Pooled from float32, and from float64.
        np.testing.assert_allclose(net.embed(WAVES, readout), expected, rtol=1e-5)
    both = SimpleNamespace(embed=Level().embed, grid=Grid().grid)
    readouts = load(both, sample_rate=RATE).readouts
    assert readouts == ("own", "mean", "band", "max", "std", "rdp")


def embedding(function, **attributes):
    return SimpleNamespace(embed=function, **attributes)


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        (embedding(len), {"sample_rate": None}, r"sample_rate=16000\)"),
        (embedding(len, name="beats"), {}, "name 'beats'"),
        (Level(), {"sample_rate": 5}, "in hertz"),
        (Level(), {"precision": "bf16"}, "precision"),
        (Level(), {"weights": "a.pt"}, "weights"),
        (3, {}, "'int' must have a method embed or grid"),
        (SimpleNamespace(grid=lambda waves: waves), {}, "frequency, dim"),
        (embedding(lambda waves: waves[0]), {}, r"\(clips, dim\)\. Got float32"),
        (embedding(lambda waves: waves[:, :0]), {}, r"\(clips, dim\)"),
        (embedding(lambda waves: waves[:1, :2]), {}, "for 2 clips"),
        (embedding(lambda waves: waves[:, :2] * 1j), {}, "complex64"),
        (embedding(lambda waves: waves[:, :2] * np.inf), {}, "NaN or inf"),
        (embedding(lambda waves: waves[:, :3] - waves[:, :3].mean(0)), {}, "evaluation mode"),
    ],
)
def test_what_is_no_network_is_refused(network, options, message):
    with pytest.raises(InputError, match=message):
        load(network, **{"sample_rate": RATE, **options})


def test_embed_clips_takes_the_object_and_the_table_says_where_vectors_come_from(tmp_path):
    table = make_clips(tmp_path / "clips", 4, (RATE,))
    report = embed_clips(table, network=Level(), out=tmp_path / "e.parquet")
    assert report.embedded == 4
    read = EmbeddingTable.read(tmp_path / "e.parquet")
    assert (read.metadata["backbone"], read.matrix().shape) == ("Level", (4, 4))
    assert frontend_of(read) is None  # a model of it cannot load the network by name
    assert embed_clips(table, "logmel", tmp_path / "l.parquet").clips == 4


def test_limits_of_a_recording_hold_for_every_network(tmp_path, monkeypatch):
    second = Frontend("Level", "own", 2 * RATE, 0, "fp32", "soxr", None)
    first = Frontend("logmel", "mod", RATE, 0, "fp32", "soxr", None, others=(second,))
    nets = [load("logmel", sample_rate=RATE), load(Level(), sample_rate=2 * RATE)]
    monkeypatch.setattr("daco.embedding.frontend.load", lambda *_: nets.pop(0))
    listener, path = Listener(first), tmp_path / "a.wav"
    soundfile.write(path, WAVES[0], RATE)
    assert listener.embed(path).embeddings.shape == (1, 112 + 4)
    with pytest.raises(AudioError, match=f"{2 * RATE} samples at {2 * RATE} Hz, more than"):
        listener.embed(path, limits=AudioLimits(values=RATE))


def test_a_failure_of_the_object_is_its_own_error():
    def embed(waveforms):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        load(SimpleNamespace(embed=embed), sample_rate=RATE)


class TestModules:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_a_module_is_called_in_evaluation_mode_without_gradients(self, torch):
        module = torch.nn.Sequential(
            torch.nn.Unflatten(1, (4, -1)), torch.nn.Dropout(0.5), torch.nn.AvgPool1d(RATE // 4)
        )
        module.append(torch.nn.Flatten()).append(torch.nn.Linear(4, 2))
        net = load(module, sample_rate=RATE)
        assert (net.name, net.readouts, net.parameters) == ("Sequential", ("own",), 10)
        with torch.no_grad():
            expected = module(torch.from_numpy(WAVES)).numpy()
        np.testing.assert_allclose(net.embed(WAVES), expected, atol=1e-6)

    @pytest.mark.parametrize("shape", [(-1, 10), (-1, 2, 5)])
    def test_a_module_that_returns_a_grid_has_every_readout(self, torch, shape):
        net = load(torch.nn.Unflatten(1, shape), sample_rate=RATE)
        assert net.readouts == ("mean", "band", "max", "std", "rdp")
        assert net.grid(WAVES).shape == (3, RATE // 10, *((1, 10) if len(shape) == 2 else (2, 5)))
        assert net.embed(WAVES, "band").shape == (3, 10)

    def test_methods_of_a_module_get_tensors_and_its_layers_are_no_methods(self, torch):
        class Net(torch.nn.Module):
            sample_rate = RATE

            def __init__(self):
                super().__init__()
                self.grid = torch.nn.Linear(2, 2)

            def embed(self, waveforms):
                return self.grid(waveforms[:, :2]).to(torch.bfloat16)

        net = load(Net())
        assert (net.readouts, net.embed(WAVES).shape) == (("own",), (3, 2))
