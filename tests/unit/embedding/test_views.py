"""Several networks and several readouts: one table, one decoding, and the same vectors as alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from small_clips import RATE, FakeNet

from daco.audio.decode import Decoder
from daco.backbones import load
from daco.backbones.logmel import BLEND_VIEWS, LogMel
from daco.backbones.several import Networks
from daco.data.clips import Clip, ClipTable
from daco.data.table import EmbeddingTable
from daco.embedding.embed import _on_worker, embed_clips, worker_device
from daco.embedding.frontend import Frontend, Listener, frontend_of
from daco.embedding.parts import Job, embed_part, fingerprints, plan_parts
from daco.embedding.provenance import check_readouts, origin_of, settings_of
from daco.errors import DataError, InputError, ModelError

VIEWS = ("fake", "fake-length", "mod", "env", "cep")


def both():
    return Networks([FakeNet(), LogMel()])


def noise_clips(folder, seconds=(1.0, 1.0, 1.3, 0.8, 1.0, 1.3), rates=(16000, 8000, 44100)):
    folder.mkdir()
    clips = []
    for index, length in enumerate(seconds):
        rate = rates[index % len(rates)]
        wave = 0.1 * np.random.default_rng(index).normal(size=round(length * rate))
        soundfile.write(folder / f"{index}.wav", wave, rate, subtype="PCM_16")
        clips.append(Clip(f"{index}.wav", "fan", domain="source"))
    return ClipTable(folder, tuple(clips))


@pytest.fixture
def clips(tmp_path):
    return noise_clips(tmp_path / "clips")


def embedded(clips, net, out, readouts=None, **options):
    embed_clips(clips, net, out, readouts=readouts, **options)
    return EmbeddingTable.read(out)


def test_views_are_named_by_network_and_readout():
    net = both()
    assert net.name == "fake+logmel"
    assert check_readouts(net, None) == ("fake", *BLEND_VIEWS)
    assert check_readouts(net, ["mod60+cep"]) == ("fake", "mod60", "cep")
    assert check_readouts(net, ["cep", "fake-length"]) == ("fake-length", "cep")
    assert check_readouts(net, ["fake-level+fake-length"])[:2] == ("fake", "fake-length")
    assert check_readouts(net, [net.default_readout]) == net.readouts
    assert check_readouts(LogMel(), ["mod+env", "cep"]) == ("mod", "env", "cep")
    with pytest.raises(InputError, match=r"no view 'envv'.*Did you mean 'env'"):
        check_readouts(net, ["envv"])
    with pytest.raises(InputError, match="fake has no readout 'lenght'"):
        check_readouts(net, ["fake-lenght"])
    with pytest.raises(InputError, match="named twice"):
        check_readouts(net, ["fake", "fake-level"])
    with pytest.raises(InputError, match="named twice"):
        load("logmel+logmel")
    with pytest.raises(InputError, match="must be one of"):
        load("logmel+mn4")


@pytest.mark.parametrize("channel", [0, "mix", "residual-c0.5"])
def test_every_view_is_what_its_network_gives_alone(tmp_path, clips, channel):
    if channel == "residual-c0.5":
        for path in clips.paths():
            wave, rate = soundfile.read(path)
            soundfile.write(path, np.stack([wave, wave[::-1]], axis=1), rate)
    readouts = ["fake", "fake-length", "mod", "env", "cep"]
    table = embedded(clips, both(), tmp_path / "all.parquet", readouts, channel=channel)
    assert table.readouts == tuple(table.views) == VIEWS
    fake = embedded(clips, FakeNet(), tmp_path / "f.parquet", ["level", "length"], channel=channel)
    logmel = embedded(clips, LogMel(), tmp_path / "l.parquet", ["mod+env+cep"], channel=channel)
    alone = [*fake.views.values(), *logmel.views.values()]
    for matrix, expected in zip(table.views.values(), alone, strict=True):
        np.testing.assert_allclose(matrix, expected, atol=1e-5)  # batches of another order


def test_a_recording_is_decoded_once(tmp_path, clips, monkeypatch):
    decoded = []
    decode = Decoder.decode

    def counted(self, source, content=b"", **options):
        decoded.append(source)
        return decode(self, source, content, **options)

    monkeypatch.setattr(Decoder, "decode", counted)
    embedded(clips, both(), tmp_path / "e.parquet")
    assert sorted(decoded) == sorted(clips.paths())


def test_a_clip_too_short_for_one_network_is_left_out_of_all(tmp_path):
    clips = noise_clips(tmp_path / "clips", seconds=(1.0, 0.2, 1.0))
    report = embed_clips(clips, both(), tmp_path / "e.parquet")
    assert [path for path, _ in report.skipped] == ["1.wav"]
    assert {len(matrix) for matrix in EmbeddingTable.read(report.out).views.values()} == {2}


def test_a_table_says_how_each_view_was_made(tmp_path, clips):
    out = tmp_path / "e.parquet"
    table = embedded(clips, both(), out, ["fake-length"])
    assert table.metadata["backbone"] == "fake+logmel"
    assert table.origin() == table.origin("fake-length")
    assert table.origin("fake-length") == {
        "backbone": "fake",
        "weights_sha256": "0" * 64,
        "readout": "length",
        "precision": "fp32",
        "sample_rate": str(RATE),
        "resampler": "soxr",
    }
    assert table.origin("env")["backbone"] == "logmel"
    one = EmbeddingTable(table.columns, {"env": table.matrix("env")}, table.metadata)
    assert list(json.loads(one.metadata["views"])) == ["env"]
    one.write(out)
    assert EmbeddingTable.read(out).origin("env") == table.origin("env")
    with pytest.raises(InputError, match="no readout 'cepp'"):
        table.origin("cepp")


def test_a_finished_table_of_other_networks_is_recognised(tmp_path, clips):
    out = tmp_path / "e.parquet"
    embed_clips(clips, both(), out)
    assert embed_clips(clips, both(), out).embedded == 0
    with pytest.raises(InputError, match=r"weights_sha256 .* the networks of its views"):
        embed_clips(clips, Networks([FakeNet("1" * 64), LogMel()]), out)


# ------------------------------------------------------------------------------ one recording


def logmel(readout):
    return Frontend("logmel", readout, 16000, 0, "fp32", "soxr", None)


def test_a_listener_gives_the_views_of_a_table(tmp_path, clips):
    readouts = ["cep", "mod", "env"]
    table = embedded(clips, LogMel(), tmp_path / "e.parquet", readouts)
    frontend = frontend_of(table, readouts)
    assert frontend_of(table) == logmel("cep")
    assert frontend.views == tuple(map(logmel, readouts))
    listener = Listener(frontend)
    for row, path in enumerate(clips.paths()):
        recording = listener.embed(path)
        expected = table.matrix("+".join(readouts))[row]
        np.testing.assert_allclose(recording.embeddings[0], expected, atol=1e-5)
    assert listener.readouts == tuple(readouts)


@pytest.fixture
def fake_network(monkeypatch):
    """A listener finds it by its name."""
    networks = {"fake": FakeNet, "logmel": LogMel}
    monkeypatch.setattr("daco.embedding.frontend.load", lambda name, *_: networks[name]())


def several_frontends():
    fake = Frontend("fake", "length", RATE, 0, "fp32", "soxr", "0" * 64)
    return replace(fake, others=(logmel("cep"),))


@pytest.mark.usefixtures("fake_network")
def test_windows_of_several_networks_are_of_the_same_time(tmp_path):
    listener = Listener(several_frontends())
    path = tmp_path / "a.wav"
    wave = 0.1 * np.random.default_rng(0).normal(size=16000 * 5)
    soundfile.write(path, wave, 16000, subtype="FLOAT")
    recording = listener.embed(path, window=2.0, hop=1.5)
    assert recording.starts.tolist() == [0.0, 1.5, 3.0]
    assert listener.readouts == ("fake-length", "cep")
    assert recording.embeddings[:, 0].tolist() == [2 * RATE] * 3
    for row, start in enumerate((0, 24000, 48000)):
        part = wave[None, start : start + 32000].astype(np.float32)
        np.testing.assert_allclose(
            recording.embeddings[row, 1:], LogMel().embed(part, "cep")[0], atol=1e-5
        )


@pytest.mark.usefixtures("fake_network")
def test_a_listener_refuses_networks_that_are_not_the_models():
    other = replace(several_frontends(), weights_sha256="1" * 64)
    with pytest.raises(ModelError, match="SHA-256"):
        Listener(other)


# ------------------------------------------------------------------------------ a cluster's worker


def test_a_worker_of_a_cluster_makes_the_part_of_all_views(clips, monkeypatch):
    monkeypatch.setattr("daco.embedding.embed._network", lambda *_: both())
    net, names = both(), check_readouts(both(), None)
    settings = settings_of(net, origin_of(net, names, 0, "cpu"))
    (part,) = plan_parts(clips, fingerprints(clips), settings)
    job = Job(
        **{"backbone": net.name, "precision": "fp32", "device": "cpu", "weights": None},
        **{"readouts": names, "channel": 0, "settings": settings},
        **{"batch_size": 2, "workers": 1},
    )
    content = _on_worker(job, clips.root, part)
    assert content.equals(embed_part(job, net, clips.root, part))
    with pytest.raises(DataError, match="other weights of fake"):
        _on_worker(replace(job, settings="other"), clips.root, part)
    with pytest.raises(InputError, match="cuda:1"):
        worker_device(net, "cuda:1")
    with pytest.raises(InputError, match="fake are in memory only"):
        worker_device(FakeNet(None), "cpu")
