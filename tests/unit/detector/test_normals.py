"""Normals from recordings and tables: which clips, of which machine, made how."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
import soundfile
from field_models import LOGMEL

from daco.backbones import load
from daco.data.table import EmbeddingTable
from daco.detector.normals import (
    clips_to_judge,
    is_table,
    normals_of_recordings,
    normals_of_table,
    one_recording,
    usual_seconds,
)
from daco.errors import AudioError, DataError, InputError


@pytest.fixture(scope="module")
def net():
    return load("logmel")


def record(path, seconds=0.5, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = np.random.default_rng(seed).normal(0, 0.1, round(16000 * seconds))
    soundfile.write(path, wave, 16000)
    return path


@pytest.fixture
def press(tmp_path):
    """Three source and two target normals, a test clip and an anomaly."""
    root = tmp_path / "press"
    for index in range(3):
        record(root / "train" / "normal" / "source" / f"s{index}.wav", seed=index)
    for index in range(2):
        record(root / "train" / "normal" / "target" / f"t{index}.wav", seed=9 + index)
    record(root / "test" / "normal" / "source" / "held.wav", seed=20)
    record(root / "test" / "anomaly" / "source" / "broken.wav", seed=21)
    return root


def table(**columns):
    metadata = {
        "backbone": "logmel",
        "weights_sha256": "",
        "precision": "fp32",
        "channel": "0",
        "sample_rate": "16000",
        "resampler": "soxr",
    }
    n = len(columns.get("path", range(6)))
    vectors = {"mod": np.eye(n, 4) + 1, "mean": np.eye(n, 3) + 1}
    given = {"embedding": vectors, "domain": "source", "metadata": metadata, **columns}
    return EmbeddingTable.from_arrays(**given)


class TestRecordings:
    def test_only_training_normals_are_taken(self, press, net):
        (found,) = normals_of_recordings(press, net).machines
        assert found.machine == "press"
        assert [name.rpartition("/")[2] for name in found.names] == [
            "s0.wav", "s1.wav", "s2.wav", "t0.wav", "t1.wav",
        ]  # fmt: skip
        assert found.domains == ("source",) * 3 + ("target",) * 2
        assert found.embeddings.shape == (5, 112)
        assert found.frontend is not None
        assert found.frontend.seconds == 0.5
        assert (found.frontend.backbone, found.frontend.readout) == ("logmel", "mod")
        assert found.frontend.weights_sha256 is None
        assert found.origin["source"] == "press"
        assert found.origin["root"] == str(press)

    def test_new_normals_are_training_clips_and_others_where_there_are_none(self, press, net):
        gathered = normals_of_recordings(press, net, training=False)
        assert len(gathered.machines[0]) == 5
        assert gathered.oddities == (
            "Left out 2 test clips (1 of them an anomaly): only normal training clips are used.",
        )
        shutil.rmtree(press / "train")
        gathered = normals_of_recordings(press, net, training=False)
        assert gathered.machines[0].names == ("test/normal/source/held.wav",)
        assert not any("no training clip" in each for each in gathered.oddities)
        assert any("labelled anomaly left out" in each for each in gathered.oddities)

    def test_the_readout_and_the_channel_are_kept(self, press, net):
        (found,) = normals_of_recordings(press, net, readout="mean", channel="mix").machines
        assert found.embeddings.shape == (5, 128)
        assert (found.frontend.readout, found.frontend.channel) == ("mean", "mix")

    def test_a_broken_file_stops_or_is_left_out(self, press, net):
        bad = press / "train" / "normal" / "source" / "s1.wav"
        bad.write_bytes(b"RIFF")
        with pytest.raises(AudioError, match="s1"):
            normals_of_recordings(press, net)
        gathered = normals_of_recordings(press, net, on_error="skip")
        assert len(gathered.machines[0]) == 4
        ((path, reason),) = gathered.skipped
        assert path.endswith("s1.wav")
        assert reason

    def test_embeddings_can_be_kept_and_used_again(self, press, net, tmp_path):
        out = tmp_path / "kept.parquet"
        (first,) = normals_of_recordings(press, net, keep=out).machines
        (second,) = normals_of_table(out).machines
        np.testing.assert_array_equal(first.embeddings, second.embeddings)
        assert second.frontend.seconds is None
        assert second.origin["source"] == "kept.parquet"
        assert len(second.origin["source_sha256"]) == 64

    def test_one_recording_is_a_source_too(self, press, net):
        path = press / "train" / "normal" / "target" / "t0.wav"
        (found,) = normals_of_recordings(path, net, training=False).machines
        assert found.names == ("t0.wav",)
        assert one_recording(path).clips[0].machine == "target"
        with pytest.raises(DataError, match="does not exist"):
            normals_of_recordings(press / "gone.wav", net)

    def test_without_normals_there_is_nothing_to_fit(self, tmp_path, net):
        record(tmp_path / "fan" / "anomaly" / "a.wav")
        with pytest.raises(DataError, match="no normal training clip"):
            normals_of_recordings(tmp_path / "fan", net)

    def test_the_usual_length_is_the_median_of_what_can_be_read(self, tmp_path):
        paths = [record(tmp_path / f"{s}.wav", s) for s in (1.0, 2.0, 3.0)]
        (tmp_path / "bad.wav").write_bytes(b"x")
        assert usual_seconds([*paths, tmp_path / "bad.wav"]) == 2.0
        assert usual_seconds([tmp_path / "bad.wav"]) is None


class TestTables:
    def test_are_told_from_manifests(self, tmp_path):
        table().write(tmp_path / "e.parquet")
        np.savez(tmp_path / "e.npz", embedding=np.eye(3))
        pd.DataFrame({"path": ["a.wav"]}).to_parquet(tmp_path / "manifest.parquet")
        (tmp_path / "broken.parquet").write_bytes(b"PAR1")
        names = ("e.parquet", "e.npz", "manifest.parquet", "broken.parquet", "gone.parquet")
        found = [is_table(tmp_path / name) for name in names]
        assert found == [True, True, False, True, False]
        with pytest.raises(DataError, match="not a readable Parquet"):
            normals_of_table(tmp_path / "broken.parquet")

    def test_machines_splits_and_labels(self, tmp_path):
        clips = table(
            path=list("abcdef"),
            machine=["fan", "fan", "pump", "fan", "fan", "pump"],
            split=["train", "train", "train", "test", "train", "train"],
            label=[0, None, 0, 0, 1, 0],
            domain=["x", "y", "x", "x", "x", "y"],
        )
        clips.write(tmp_path / "e.parquet")
        gathered = normals_of_table(tmp_path / "e.parquet")
        fan, pump = gathered.machines
        assert (fan.machine, fan.names, fan.domains) == ("fan", ("a", "b"), ("x", "y"))
        assert (pump.machine, pump.names, pump.domains) == ("pump", ("c", "f"), ("x", "y"))
        np.testing.assert_array_equal(pump.embeddings, clips.matrix()[[2, 5]])
        assert gathered.oddities == (
            "Left out 1 test clip: only normal training clips are used.",
            "1 clip labelled anomaly left out: e.",
        )
        assert (
            normals_of_table(tmp_path / "e.parquet", readout="mean").machines[0].embeddings.shape[1]
            == 3
        )

    def test_a_machine_of_two_years_is_two(self, tmp_path):
        clips = table(path=list("abcd"), machine="fan", year=[2023, 2023, 2024, 2024])
        clips.write(tmp_path / "e.parquet")
        names = [each.machine for each in normals_of_table(tmp_path / "e.parquet").machines]
        assert names == ["fan (2023)", "fan (2024)"]

    def test_sections_of_a_machine_are_one_model_and_it_is_said(self, tmp_path):
        table(section=["00", "01", "00", "01", "00", "00"]).write(tmp_path / "t.parquet")
        found = normals_of_table(tmp_path / "t.parquet")
        assert len(found.machines) == 1
        assert any("one model of the sections 00, 01" in each for each in found.oddities)

    def test_clips_without_domains_are_one_domain_but_not_some_of_them(self, tmp_path):
        table(domain=None).write(tmp_path / "none.parquet")
        assert set(normals_of_table(tmp_path / "none.parquet").machines[0].domains) == {"all"}
        table(domain=["x", None, "x", "x", "x", "x"]).write(tmp_path / "some.parquet")
        with pytest.raises(DataError, match="1 clip without a domain"):
            normals_of_table(tmp_path / "some.parquet")

    def test_of_the_users_own_have_no_frontend(self, tmp_path):
        np.savez(tmp_path / "e.npz", embedding=np.eye(3))
        assert normals_of_table(tmp_path / "e.npz").machines[0].frontend is None
        table(metadata={"backbone": "mine"}).write(tmp_path / "e.parquet")
        assert normals_of_table(tmp_path / "e.parquet").machines[0].frontend is None

    def test_that_say_half_of_how_they_were_made_are_refused(self, tmp_path):
        table(metadata={"backbone": "logmel"}).write(tmp_path / "e.parquet")
        with pytest.raises(InputError, match="metadata is incomplete"):
            normals_of_table(tmp_path / "e.parquet")

    def test_are_judged_only_if_made_as_the_model_was(self, tmp_path):
        table(split="test", label=1).write(tmp_path / "e.parquet")
        X, names, levels = clips_to_judge(tmp_path / "e.parquet", LOGMEL)
        assert X.shape == (6, 4)
        assert names == tuple("012345")
        assert levels is None
        assert clips_to_judge(tmp_path / "e.parquet", None)[0].shape == (6, 4)
        metadata = dict(table().metadata) | {"channel": "1"}
        table(metadata=metadata).write(tmp_path / "other.parquet")
        with pytest.raises(InputError, match="channel 1, those of the model with 0"):
            clips_to_judge(tmp_path / "other.parquet", LOGMEL)


class TestNames:
    """Clips whose DCASE names say what they are."""

    TRAIN = tuple(
        f"section_00_{d}_train_normal_000{i}.wav" for d in ("source", "target") for i in (0, 1)
    )
    TEST = tuple(f"section_00_target_test_{kind}_0000.wav" for kind in ("normal", "anomaly"))

    def write(self, path, **columns):
        np.savez(path, embedding=np.eye(6) + 1, file_name=[*self.TRAIN, *self.TEST], **columns)
        return path

    def test_test_clips_are_left_out_and_counted(self, tmp_path):
        found = normals_of_table(self.write(tmp_path / "fan.npz"))
        assert found.machines[0].names == self.TRAIN
        assert found.machines[0].domains == ("source", "source", "target", "target")
        assert found.oddities == (
            "Left out 2 test clips (1 of them an anomaly): only normal training clips are used.",
        )

    def test_an_update_leaves_them_out_too_unless_there_are_no_others(self, tmp_path):
        found = normals_of_table(self.write(tmp_path / "fan.npz"), training=False)
        assert found.machines[0].names == self.TRAIN
        assert "only normal training clips are used" in found.oddities[0]
        np.savez(tmp_path / "new.npz", embedding=np.eye(2) + 1, file_name=self.TEST)
        found = normals_of_table(tmp_path / "new.npz", training=False)
        assert found.machines[0].names == self.TEST[:1]

    def test_a_column_does_not_make_an_anomaly_by_name_normal(self, tmp_path):
        path = self.write(tmp_path / "fan.npz", split=["train"] * 6, label=[0] * 6)
        with pytest.raises(
            DataError,
            match=r"1 clip with the name of an anomaly would be used as normal.*test_anomaly_0000",
        ):
            normals_of_table(path)

    def test_a_column_may_make_a_test_clip_a_training_clip_and_it_is_said(self, tmp_path):
        split = ["train"] * 5 + ["test"]
        found = normals_of_table(self.write(tmp_path / "fan.npz", split=split))
        assert len(found.machines[0]) == 5
        assert any(
            "1 clip with the name of a test clip" in each and self.TEST[0] in each
            for each in found.oddities
        )

    def test_names_without_a_training_clip_are_refused(self, tmp_path):
        np.savez(
            tmp_path / "fan.npz",
            embedding=np.eye(3),
            path=[f"section_00_{i:04}.wav" for i in range(3)],
        )
        with pytest.raises(DataError, match="no normal training clip"):
            normals_of_table(tmp_path / "fan.npz")

    def test_a_manifest_of_names_is_read_the_same(self, tmp_path, net):
        for seed, name in enumerate((*self.TRAIN, *self.TEST)):
            record(tmp_path / "fan" / name, seed=seed)
        (tmp_path / "fan" / "clips.csv").write_text("path\n" + "\n".join((*self.TRAIN, *self.TEST)))
        found = normals_of_recordings(tmp_path / "fan" / "clips.csv", net)
        assert found.machines[0].names == self.TRAIN
        assert found.machines[0].domains == ("source", "source", "target", "target")
        assert any(each.startswith("Left out 2 test clips") for each in found.oddities)
