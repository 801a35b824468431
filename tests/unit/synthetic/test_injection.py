"""Recordings with faults: which are taken, what is added to them, what the table says."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
from drill import RATE, write_normals
from two_microphones import both, write

from daco.backbones import load
from daco.backbones.protocol import Backbone
from daco.data.clips import Clip, ClipTable
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.errors import AudioError, DataError, InputError
from daco.synthetic.fault_tables import injected
from daco.synthetic.faults import KINDS
from daco.synthetic.injection import Plan, choose_recordings, inject_recordings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A machine of two domains in plain folders, four recordings of each."""
    return write_normals(tmp_path_factory.mktemp("drill"), {"day": 4, "night": 4})


def table_of(**counts):
    """Clips by ``<split>_<label>``, half of them of each domain."""
    clips = []
    for name, count in counts.items():
        split, label = name.split("_")
        known = {"normal": 0, "anomaly": 1, "unknown": None}[label]
        for number in range(count):
            domain = ("old", "new")[number % 2]
            path = f"{domain}/{name}/{number}.wav"
            clips.append(Clip(path, "fan", domain=domain, split=split, label=known))
    return ClipTable(None, tuple(clips))


def test_only_training_normals_are_taken():
    counts = {"train_normal": 6, "train_unknown": 4, "train_anomaly": 9}
    table = table_of(**counts, test_normal=8, test_anomaly=8)
    chosen = choose_recordings(table, per_domain=100)
    assert len(chosen) == 10
    assert all(clip.split == "train" and clip.label != 1 for clip in chosen)
    with pytest.raises(DataError, match="no normal training clip"):
        choose_recordings(table_of(train_anomaly=3, test_normal=3))


def test_no_more_than_asked_of_each_domain_and_the_same_every_time():
    table = table_of(train_normal=60)
    first, again, other = (choose_recordings(table, 7, seed) for seed in (0, 0, 1))
    assert [clip.domain for clip in first].count("old") == 7
    assert [clip.domain for clip in first].count("new") == 7
    assert first.clips == again.clips
    assert first.clips != other.clips
    places = [table.clips.index(clip) for clip in first]
    assert places == sorted(places)


def test_every_section_is_drawn_from():
    clips = [
        Clip(f"{section}_{n}.wav", "fan", section=section, domain="source")
        for section in ("00", "01", "02")
        for n in range(9)
    ]
    drawn = choose_recordings(ClipTable(None, tuple(clips)), 2)
    assert [clip.section for clip in drawn] == ["00"] * 2 + ["01"] * 2 + ["02"] * 2


def test_the_table_is_as_agreed(folder):
    net, plan, told = load("logmel"), Plan(levels=(-4, -18), seed=3), []
    chosen = choose_recordings(read_clips(folder), 2)
    options = {"readouts": ["mod", "mean"], "progress": lambda *said: told.append(said)}
    made = inject_recordings(chosen, net, plan, **options)
    assert told == [(number, 4) for number in (1, 2, 3, 4)]
    versions = [("", None)] + [(kind, level) for kind in KINDS for level in ("-18", "-4")]
    assert len(made) == 4 * len(versions)
    found = list(zip(made.columns["fault"], made.columns["level_db"], strict=True))
    assert found == versions * 4
    paths = made.columns["path"].tolist()
    assert paths == [clip.path for clip in chosen for _ in versions]
    assert set(made.columns["split"]) == {"supplemental"}
    assert [int(label) for label in made.columns["label"]] == [int(f != "") for f, _ in found]
    assert made.readouts == ("mod", "mean")
    assert made.metadata["backbone"] == "logmel"
    facts = {"kinds": list(KINDS), "levels_db": [-18, -4], "seed": 3}
    assert json.loads(made.metadata["faults"]) == facts


def test_the_clean_row_is_what_daco_embed_makes(folder, tmp_path):
    net, table = load("logmel"), read_clips(folder)
    chosen = choose_recordings(table, 2)
    made = inject_recordings(chosen, net, Plan(kinds=("rub",), levels=(-4,)))
    embed_clips(table, net, tmp_path / "all.parquet", workers=1)
    embedded = EmbeddingTable.read(tmp_path / "all.parquet")
    assert embedded.columns["path"].tolist() == [clip.path for clip in table]
    rows = [table.clips.index(clip) for clip in chosen]
    assert np.allclose(made.matrix()[::2], embedded.matrix()[rows], rtol=1e-5, atol=1e-5)
    assert not np.allclose(made.matrix()[1::2], embedded.matrix()[rows], rtol=1e-3, atol=1e-3)
    pseudo = injected(made, [clip.path for clip in table], X=embedded.matrix())
    assert [table.clips[row] for row in pseudo.rows] == list(chosen.clips)
    assert pseudo.origin.tolist() == [0, 1, 2, 3]
    # A fault of one recording does not depend on which others are there.
    alone = ClipTable(chosen.root, chosen.clips[1:2])
    again = inject_recordings(alone, net, Plan(kinds=("rub",), levels=(-4,)))
    assert np.allclose(again.matrix(), made.matrix()[2:4], rtol=1e-5, atol=1e-5)


class Ear(Backbone):
    """A network of a higher rate that tells how much it hears above a recording's Nyquist."""

    name, sample_rate, device, precision, resampler = "ear", 32000, "cpu", "fp32", "soxr"
    readouts, default_readout, weights_sha256 = ("high",), "high", None

    def embed_many(self, waveforms, readouts):
        power = np.abs(np.fft.rfft(waveforms, axis=1)) ** 2
        hertz = np.fft.rfftfreq(waveforms.shape[1], 1 / self.sample_rate)
        high = power[:, hertz > 8600].sum(axis=1) / power.sum(axis=1)
        return {"high": np.stack([high, np.ones(len(high))], axis=1).astype(np.float32)}


def test_nothing_is_added_that_the_recorder_could_not_have_heard(folder):
    chosen = choose_recordings(read_clips(folder), 2)
    made = inject_recordings(chosen, Ear(), Plan(levels=(10,)))
    assert made.matrix()[:, 0].max() < 1e-4


class Tape(Backbone):
    """A network whose embedding is the waveform itself."""

    name, sample_rate, device, precision, resampler = "tape", 16000, "cpu", "fp32", "soxr"
    readouts, default_readout, weights_sha256 = ("wave",), "wave", None

    def embed_many(self, waveforms, readouts):
        return {"wave": waveforms.astype(np.float32)}


def rms(wave):
    return float(np.sqrt(np.mean(np.square(wave - wave.mean(), dtype=np.float64))))


@pytest.mark.parametrize(
    ("policy", "channels", "gain"),
    [
        *((0, 1, 1), ("mix", 1, 1), (0, 2, 1), ("near", 2, 1), (1, 2, 0.1), ("far", 2, 0.1)),
        *(("mix", 2, 0.55), (2, 3, 0.1), ("mix", 3, 0.4), ("residual-c0.5", 2, 0.95)),
    ],
)
@pytest.mark.parametrize("kind", ["tones", "modulation"])
def test_the_fault_is_at_the_near_microphone_and_leaks_to_the_far_one(
    policy, channels, gain, kind, tmp_path
):
    near, far = both(seconds=0.5)
    waves = np.stack([near, 3 * far, far])[:channels]
    write(tmp_path / "clips" / "0.wav", waves, subtype="FLOAT")
    table = read_clips(tmp_path / "clips")
    clean, faulted = inject_recordings(table, Tape(), Plan((kind,), (-4,)), channel=policy).matrix()
    level = rms(near) * 10 ** (-4 / 20)
    assert rms(faulted - clean) == pytest.approx(gain * level, rel=1e-4)


def test_a_recording_that_cannot_be_read_is_named(folder, tmp_path):
    (tmp_path / "bad.wav").write_bytes(b"RIFF")
    table = ClipTable(tmp_path, (Clip("bad.wav", "fan"),))
    with pytest.raises(AudioError, match=r"bad\.wav"):
        inject_recordings(table, load("logmel"))
    soundfile.write(tmp_path / "short.wav", np.zeros(100), RATE)
    table = ClipTable(tmp_path, (Clip("short.wav", "fan"),))
    with pytest.raises(AudioError, match=r"short\.wav: logmel needs clips of at least"):
        inject_recordings(table, load("logmel"))
    with pytest.raises(InputError, match="readout"):
        inject_recordings(choose_recordings(read_clips(folder)), load("logmel"), readouts=["cls9"])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        *(({"kinds": ("crack",)}, "impacts"), ({"kinds": ()}, "impacts"), ({"seed": -1}, "seed")),
        *(({"kinds": ("rub", "rub")}, "each once"), ({"levels": ()}, "decibels")),
        ({"levels": (float("nan"),)}, "decibels"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(options, match):
    with pytest.raises(InputError, match=match):
        Plan(**options)
