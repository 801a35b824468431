"""Normals from recordings and tables: which clips, of which machine, made how."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from drill import hum
from field_models import LOGMEL

from daco.backbones import load
from daco.data.table import EmbeddingTable, is_table
from daco.data.views import Views
from daco.embedding.normals import (
    Normals,
    clips_to_judge,
    normals_of_recordings,
    normals_of_table,
    one_recording,
)
from daco.errors import DataError, InputError


@pytest.fixture(scope="module")
def net():
    return load("logmel")


@pytest.fixture
def press(tmp_path):
    """Three source and two target normals, a test clip and an anomaly."""
    root = tmp_path / "press"
    for index in range(3):
        hum(root / "train" / "normal" / "source" / f"s{index}.wav", 200, index)
    for index in range(2):
        hum(root / "train" / "normal" / "target" / f"t{index}.wav", 200, 9 + index)
    hum(root / "test" / "normal" / "source" / "held.wav", 200, 20)
    hum(root / "test" / "anomaly" / "source" / "broken.wav", 200, 21)
    return root


MADE = {
    "backbone": "logmel",
    "weights_sha256": "",
    "precision": "fp32",
    "channel": "0",
    "sample_rate": "16000",
    "resampler": "soxr",
}


def write(file, **columns):
    n = len(columns.get("path", range(6)))
    vectors = {"mod": np.eye(n, 4) + 1, "mean": np.eye(n, 3) + 1}
    given = {"embedding": vectors, "domain": "source", "metadata": MADE, **columns}
    EmbeddingTable.from_arrays(**given).write(file)
    return file


def test_some_of_the_clips_are_taken_with_all_that_is_known_about_them():
    X = np.arange(8, dtype=np.float32).reshape(4, 2)
    normals = Normals("fan", X, tuple("aabb"), tuple("wxyz"), None, {}, sessions=tuple("1122"))
    assert normals.views == Views(("embedding",), (2,))
    taken = normals.take([2, 0])
    assert (taken.domains, taken.names, taken.sessions) == (("b", "a"), ("y", "w"), ("2", "1"))
    np.testing.assert_array_equal(taken.embeddings, X[[2, 0]])
    assert np.shares_memory(normals.take([1, 2]).embeddings, X)
    assert len(normals.take([])) == 0


class TestRecordings:
    def test_only_training_normals_are_taken(self, press, net):
        (found,) = normals_of_recordings(press, net).machines
        assert found.machine == "press"
        stems = [name.rpartition("/")[2][:2] for name in found.names]
        assert stems == ["s0", "s1", "s2", "t0", "t1"]
        assert found.domains == ("source",) * 3 + ("target",) * 2
        assert found.embeddings.shape == (5, 112)
        assert (found.frontend.backbone, found.frontend.readout) == ("logmel", "mod")
        assert (found.frontend.weights_sha256, found.frontend.seconds) == (None, 0.5)
        assert (found.origin["source"], found.origin["root"]) == ("press", str(press))
        assert found.levels.shape == (5, 11)
        assert len(found.qualities) == len(found.sha256s) == 5

    def test_new_normals_are_training_clips_and_others_where_there_are_none(self, press, net):
        gathered = normals_of_recordings(press, net, training=False)
        assert len(gathered.machines[0]) == 5
        (warning,) = gathered.warnings
        assert "2 test clips (1 of them an anomaly)" in warning
        shutil.rmtree(press / "train")
        gathered = normals_of_recordings(press, net, training=False)
        assert gathered.machines[0].names == ("test/normal/source/held.wav",)
        assert not any("no training clip" in each for each in gathered.warnings)
        assert any("labelled anomaly left out" in each for each in gathered.warnings)

    def test_the_readouts_and_the_channel_are_kept(self, press, net):
        (found,) = normals_of_recordings(press, net, readout="mean+cep", channel="mix").machines
        assert found.views == Views(("mean", "cep"), (128, 40))
        assert [view.readout for view in found.frontend.views] == ["mean", "cep"]
        assert found.frontend.channel == "mix"

    def test_one_recording_is_a_source_too(self, press, net):
        path = press / "train" / "normal" / "target" / "t0.wav"
        (found,) = normals_of_recordings(path, net, training=False).machines
        assert found.names == ("t0.wav",)
        assert one_recording(path).clips[0].machine == "target"
        with pytest.raises(DataError, match="does not exist"):
            normals_of_recordings(press / "gone.wav", net)

    def test_without_normals_there_is_nothing_to_fit(self, tmp_path, net):
        hum(tmp_path / "fan" / "anomaly" / "a.wav", 200, 0)
        with pytest.raises(DataError, match="no normal training clip"):
            normals_of_recordings(tmp_path / "fan", net)

    def test_the_usual_length_is_that_of_the_machine(self, tmp_path, net):
        for machine, seconds in (("fan", (1.0, 2.0, 3.0)), ("pump", (1.0, 1.0))):
            for each, length in enumerate(seconds):
                hum(tmp_path / "plant" / machine / "train" / f"{each}.wav", 200, 0, length)
        found = normals_of_recordings(tmp_path / "plant", net, machine_level=1).machines
        assert {each.machine: each.frontend.seconds for each in found} == {"fan": 2.0, "pump": 1.0}


class TestTables:
    def test_are_told_from_manifests(self, tmp_path):
        write(tmp_path / "e.parquet")
        pd.DataFrame({"path": ["a.wav"]}).to_parquet(tmp_path / "manifest.parquet")
        (tmp_path / "broken.parquet").write_bytes(b"PAR1")
        names = ("e.parquet", "manifest.parquet", "broken.parquet", "gone.parquet")
        found = [is_table(tmp_path / name) for name in names]
        assert found == [True, False, True, False]
        with pytest.raises(DataError, match="Parquet"):
            normals_of_table(tmp_path / "broken.parquet")

    def test_machines_splits_and_labels(self, tmp_path):
        file = write(
            tmp_path / "e.parquet",
            path=list("abcdef"),
            machine=["fan", "fan", "pump", "fan", "fan", "pump"],
            split=["train", "train", "train", "test", "train", "train"],
            label=[0, None, 0, 0, 1, 0],
            domain=["x", "y", "x", "x", "x", "y"],
        )
        gathered = normals_of_table(file)
        fan, pump = gathered.machines
        assert (fan.machine, fan.names, fan.domains) == ("fan", ("a", "b"), ("x", "y"))
        assert (pump.machine, pump.names, pump.domains) == ("pump", ("c", "f"), ("x", "y"))
        np.testing.assert_array_equal(pump.embeddings, (np.eye(6, 4) + 1)[[2, 5]])
        assert [warning.split(":")[0] for warning in gathered.warnings] == [
            "Left out 1 test clip",
            "1 clip labelled anomaly left out",
        ]
        assert normals_of_table(file, readout="mean").machines[0].views == Views(("mean",), (3,))

    def test_years_are_machines_and_sections_are_not(self, tmp_path):
        years = write(tmp_path / "y.parquet", path=list("abcd"), machine="fan", year=[1, 1, 2, 2])
        found = [each.machine for each in normals_of_table(years).machines]
        assert found == ["fan (1)", "fan (2)"]
        gathered = normals_of_table(write(tmp_path / "s.parquet", section=["00", "01"] * 3))
        assert len(gathered.machines) == 1
        assert any("sections 00, 01" in each for each in gathered.warnings)

    def test_clips_without_domains_are_one_domain_but_not_some_of_them(self, tmp_path):
        none = write(tmp_path / "none.parquet", domain=None)
        assert set(normals_of_table(none).machines[0].domains) == {"all"}
        some = write(tmp_path / "some.parquet", domain=["x", None, "x", "x", "x", "x"])
        with pytest.raises(DataError, match="1 clip without a domain"):
            normals_of_table(some)

    def test_of_the_users_own_have_no_frontend_but_half_of_one_is_refused(self, tmp_path):
        EmbeddingTable.from_arrays(np.eye(3)).write(tmp_path / "e.parquet")
        own = write(tmp_path / "own.parquet", metadata={"backbone": "mine"})
        for file in (tmp_path / "e.parquet", own):
            assert normals_of_table(file).machines[0].frontend is None
        half = write(tmp_path / "half.parquet", metadata={"backbone": "logmel"})
        with pytest.raises(InputError, match="incomplete"):
            normals_of_table(half)

    def test_are_judged_only_if_made_as_the_model_was(self, tmp_path):
        file = write(tmp_path / "e.parquet", split="test", label=1)
        for frontend in (LOGMEL, None):
            X, names, levels = clips_to_judge(file, frontend)
            assert (X.shape, names, levels) == ((6, 4), tuple("012345"), None)
        other = write(tmp_path / "other.parquet", metadata=MADE | {"channel": "1"})
        with pytest.raises(InputError, match="channel 1, those of the model with 0"):
            clips_to_judge(other, LOGMEL)


def test_a_column_does_not_make_an_anomaly_by_name_normal(tmp_path):
    names = ["section_00_target_test_anomaly_0000.wav", *"abcde"]
    path = write(tmp_path / "fan.parquet", path=names, split="train", label=0)
    with pytest.raises(DataError, match=r"name of an anomaly.*test_anomaly_0000"):
        normals_of_table(path)
