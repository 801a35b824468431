"""Networks of other packages are used by name as daco's own, and broken ones are named."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from small_clips import RATE, make_clips
from third_party import write_package

from daco.backbones import load
from daco.backbones.installed import network_names
from daco.backbones.protocol import embed_safely
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.embedding.frontend import Listener, frontend_of
from daco.errors import InputError, ModelError, WeightsError

NETWORKS = """
from pathlib import Path

import numpy as np
from daco.backbones import Backbone


class Grid:
    sample_rate = 8000
    shortest = 400

    def grid(self, waveforms):
        assert waveforms.dtype == np.float32
        clips = waveforms[:, : waveforms.shape[1] // 40 * 40].reshape(len(waveforms), -1, 4, 10)
        return np.abs(clips) + np.arange(4)[:, None]


class Vector:
    sample_rate = 8000

    def __init__(self, weights=None, device="cpu"):
        self.scale = 1.0 if weights is None else float(Path(weights).read_text())

    def embed(self, waveforms):
        return self.scale * np.stack([waveforms.std(1), np.ones(len(waveforms))], axis=1)


class Full(Backbone):
    sample_rate, readouts, default_readout = 8000, ("first", "two"), "two"

    def embed_many(self, waveforms, readouts):
        return {name: waveforms[:, : 1 + (name == "two")] for name in readouts}
"""
POINTS = [f"daco.backbones:{name.lower()} = plugin:{name}" for name in ("Grid", "Vector", "Full")]
POINTS += ["daco.backbones:logmel = plugin:Grid"]


@pytest.fixture(autouse=True)
def _forget_plugins():
    yield
    for name in ("plugin", "broken"):
        sys.modules.pop(name, None)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    folder = write_package(tmp_path / "site", NETWORKS, *POINTS)
    monkeypatch.syspath_prepend(folder)
    return folder


def waves(clips=3, samples=RATE):
    return np.random.default_rng(1).normal(scale=0.1, size=(clips, samples)).astype(np.float32)


@pytest.mark.usefixtures("installed")
def test_a_backbone_keeps_its_readouts_and_no_name_of_daco_is_overridden():
    net, clips = load("full"), waves()
    assert (net.default_readout, net.package) == ("two", "some-plugin 1.0")
    np.testing.assert_array_equal(net.embed(clips, "first"), clips[:, :1])
    assert network_names().count("logmel") == 1
    assert load("logmel").package is None
    with pytest.raises(InputError, match=r"full, grid, vector.*Did you mean 'vector'"):
        load("vectr")


@pytest.mark.usefixtures("installed")
def test_weights_reach_a_network_that_has_them(tmp_path):
    file = tmp_path / "scale.txt"
    file.write_text("2.0")
    clips = waves()
    scaled = load("vector", weights=file)
    np.testing.assert_allclose(scaled.embed(clips), 2 * load("vector").embed(clips), rtol=1e-6)
    assert len(scaled.weights_sha256) == 64
    with pytest.raises(WeightsError, match="must be a file"):
        load("vector", weights=tmp_path / "nowhere")
    with pytest.raises(InputError, match="takes no weights"):
        load("grid", weights=file)
    with pytest.raises(InputError, match="precision"):
        load("grid", precision="bf16")


def test_a_model_says_which_package_it_needs(installed, tmp_path):
    table = make_clips(tmp_path / "clips", 2, (RATE,))
    embed_clips(table, load("grid"), tmp_path / "e.parquet", readouts=["band"])
    frontend = frontend_of(EmbeddingTable.read(tmp_path / "e.parquet"))
    assert frontend.package == "some-plugin 1.0"
    assert Listener(frontend).embed_waveform(waves(1)[0], RATE).embeddings.shape == (1, 40)
    (installed / "some_plugin-1.0.dist-info").rename(installed / "unknown")
    with pytest.raises(ModelError, match=r"'grid' of the package some-plugin 1\.0"):
        Listener(frontend)
    write_package(installed, NETWORKS, *POINTS, version="1.1")
    with pytest.raises(ModelError, match=r"some-plugin 1\.0 .* some-plugin 1\.1"):
        Listener(frontend)


@pytest.fixture
def add_package(tmp_path, monkeypatch):
    """Installs another package with a network of this name."""

    def add(code, name):
        point = f"daco.backbones:{name} = broken:Net"
        folder = write_package(tmp_path / "other", code, point, module="broken", name=name)
        monkeypatch.syspath_prepend(folder)

    return add


RETURNS = "class Net:\n    sample_rate = 8000\n    def embed(self, waves): "


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_module", r"bad 1\.0 failed \(ModuleNotFoundError"),
        ("import sys; sys.exit(3)", r"bad 1\.0 failed \(SystemExit: 3"),
        ("Net = 3", r"bad 1\.0 failed \(TypeError"),
        ("def Net(): raise OSError('no checkpoint\\nhere')", r"OSError: no checkpoint\)"),
        (RETURNS + "raise ValueError('odd')", "bad 1.*odd"),
    ],
)
def test_a_broken_package_is_named_and_others_work(add_package, code, message):
    add_package(code, "bad")
    with pytest.raises(InputError, match=message):
        load("bad")
    assert load("grid").embed(waves()).shape == (3, 10)


@pytest.mark.usefixtures("installed")
def test_a_network_may_print_and_change_its_input(add_package, capsys):
    add_package(
        """
        print("imported")

        class Net:
            sample_rate = 8000

            def embed(self, waves):
                print("called")
                waves *= 0.5
                return waves[:, :2]
        """,
        "loud",
    )
    net, given = load("loud+grid"), waves()
    vectors = embed_safely(net, [given, given], ["loud", "grid-mean"])
    np.testing.assert_array_equal(given, waves())
    np.testing.assert_array_equal(vectors["grid-mean"], load("grid").embed(waves()))
    printed = capsys.readouterr()
    assert (printed.out, printed.err.split()[:2]) == ("", ["imported", "called"])


@pytest.mark.usefixtures("installed")
def test_two_packages_with_one_name_are_both_named(add_package):
    add_package("", "grid")
    with pytest.raises(InputError, match=r"'grid' of grid 1\.0 and some-plugin 1\.0"):
        load("grid")
