"""``daco fit`` and ``daco inspect`` as a plant engineer types them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from command_line import printed, refused, run, said
from drill import NORMALS
from shared_data import shared

from daco.backbones.weights import SOURCES
from daco.data.table import EmbeddingTable
from daco.detector.model import MachineModel
from daco.detector.modelfile import SCHEMA
from daco.errors import DataError, InputError, ModelError
from daco.files.hashing import sha256_of_file

VIEWS = "mod+mod60+env+cep"
MN04 = ("real", "mn04_as_mAP_432.pt")


def fitted(source, out, *options):
    """The model that a command makes, and what it prints."""
    text = printed("fit", source, "--out", out, *options)
    return MachineModel.load(out), text


@pytest.fixture(scope="module")
def table(drill):
    """The embeddings of the machine's normals."""
    out = drill[0].parent / "e.parquet"
    run("embed", drill[0], "--out", out, "--readout", VIEWS)
    return out


def test_several_machines_give_several_files_and_a_table_for_each(drill, tmp_path):
    for machine in ("fan", "motor"):
        shutil.copytree(drill[0], tmp_path / "plant" / machine)
    out = tmp_path / "models"
    result = run("fit", tmp_path / "plant", "--out", f"{out}/", "--false-alarm-rate", 0.2)
    assert "Read as 2 machines" in result.stderr
    assert sorted(path.name for path in out.iterdir()) == ["fan.daco", "motor.daco"]
    for name in ("fan", "motor"):
        model = MachineModel.load(out / f"{name}.daco")
        assert (model.machine, model.domain_sizes) == (name, NORMALS)
        assert model.frontend.seconds == 0.5
        assert model.provenance["source"] == "plant"
    text = " ".join(result.stdout.split())
    assert text.count("that 1 in 5 healthy recordings is called anomalous") == 2
    for jargon in ("onfiguration", "domain", "threshold", "sha256", "view", "conf-soft"):
        assert jargon not in text
    refused("fit", tmp_path / "plant", "--out", tmp_path / "one.daco")  # the name of one file


def test_a_rate_that_the_clips_do_not_support_is_warned_about(drill, tmp_path, monkeypatch):
    """It also prints which faults would be noticed, what --verbose adds, and a better network."""
    (tmp_path / "mn04").mkdir()
    (tmp_path / "mn04" / SOURCES["mn04"].file_name).touch()
    monkeypatch.setenv("DACO_WEIGHTS_DIR", str(tmp_path))
    model, text = fitted(drill[0], tmp_path / "m.daco", "--false-alarm-rate", 0.05, "--verbose")
    assert (model.config, model.views.names) == ("blend", ("mod", "mod60", "env", "cep"))
    assert f"0.05 is below {1 / 11:.3g}, the smallest that 10 clips of night can support" in text
    assert "Calibrate with at least 19 new normals of night." in text
    assert "16 clips of day" in text
    assert "Synthetic faults in 6 recordings" in text
    assert all(fault in text for fault in ("- impacts: ", "- tones: ", "- off: caught from "))
    assert "The view mod finds the most similar normal." in text
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert "repeat daco fit with --backbone logmel --backbone mn04" in text


def test_embeddings_do_instead_of_recordings(drill, table, tmp_path):
    second, text = fitted(table, tmp_path / "m.daco", "--false-alarm-rate", 0.2)
    assert "can measure which faults the model catches only in recordings" in text
    first = MachineModel.load(drill[1])
    np.testing.assert_array_equal(first.embeddings, second.embeddings)
    assert first.thresholds == second.thresholds
    assert first.ranges == second.ranges
    assert (first.ranges["clips"], first.ranges["sample_rates"]) == (26, [16000])
    for model in (first, second):
        held = zip(model.clip_names, model.clip_sha256, strict=True)
        assert all(sha256_of_file(drill[0] / name) == sha256 for name, sha256 in held)
    options = ("--readout", "env", "--siblings", 3, "--config", "choose")
    one, _ = fitted(table, tmp_path / "one.daco", *options)
    assert (one.readout, one.siblings) == ("env", 3)
    assert "resamples" in said("inspect", tmp_path / "one.daco", "--verbose")
    error = refused("fit", table, "--out", tmp_path / "x.daco", "--device", "cpu")
    assert isinstance(error, InputError)
    assert "--device" in str(error)


def test_a_model_of_own_embeddings_scores_them_and_no_recordings(drill, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 5))
    table = EmbeddingTable.from_arrays(X, domain=["a"] * 20 + ["b"] * 10)
    table.write(tmp_path / "own.parquet")
    own, _ = fitted(tmp_path / "own.parquet", tmp_path / "own.daco", "--config", "raw-k2")
    assert (own.frontend, own.config) == (None, "raw-k2")
    assert "named by the user" in said("inspect", tmp_path / "own.daco", "--verbose")
    for command in ("score", "sensitivity"):
        assert "of your own" in str(refused(command, tmp_path / "own.daco", drill[0]))
    judged = run("score", tmp_path / "own.daco", tmp_path / "own.parquet", "--csv")
    lines = judged.stdout.splitlines()
    assert len(lines) == 31


def test_a_small_bank_names_what_the_blend_leaves_out(drill, tmp_path):
    (tmp_path / "few").mkdir()
    for clip in sorted((drill[0] / "day").iterdir())[:6]:
        shutil.copy(clip, tmp_path / "few")
    _, text = fitted(tmp_path / "few", tmp_path / "m.daco", "--verbose")
    assert "too few normals for ldn-ratio-K16 of the blend" in text
    described = json.loads(run("inspect", tmp_path / "m.daco", "--json").stdout)
    assert described["left_out_of_blend"] == ["ldn-ratio-K16"]


def test_a_broken_recording_is_left_out_and_named(drill, tmp_path):
    root = shutil.copytree(drill[0], tmp_path / "drill")
    (root / "day" / "day03.wav").write_bytes(b"RIFFnothing")
    assert "day03.wav" in run("fit", root, "--out", f"{tmp_path}/new/", code=4).stdout
    assert len(MachineModel.load(tmp_path / "new" / "drill.daco")) == 25


@pytest.mark.parametrize(
    ("options", "token"),
    [
        (("--config", "conf-soft-k1"), "Did you mean"),
        (("--false-alarm-rate", "0"), "false_alarm_rate"),
        (("--siblings", "few"), "'siblings'"),
        (("--out", "nowhere/m.daco"), "not a folder"),
    ],
)
def test_a_mistake_is_reported_before_any_work(drill, tmp_path, monkeypatch, options, token):
    monkeypatch.chdir(tmp_path)
    assert token in str(refused("fit", drill[0], "--out", "m.daco", *options))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_model_is_not_replaced(table, tmp_path):
    thesis = tmp_path / "thesis.daco"
    thesis.write_text("years of work")
    assert isinstance(refused("fit", table, "--out", thesis), DataError)
    assert thesis.read_text() == "years of work"


def test_a_model_is_described_in_words_and_as_json(drill):
    _, path = drill
    model = MachineModel.load(path)
    text = said("inspect", path, "--verbose")
    low, high = model.ranges["limits"]["level"]
    for fact in ("mod60 of logmel", f"level {low:g} to {high:g} dB", model.sha256):
        assert fact in text
    found = json.loads(run("inspect", path, "--json").stdout)
    night = found["domains"]["night"]
    assert (night["normals"], night["clips"], night["kind"]) == (10, 10, "training")
    assert night["threshold"] == model.thresholds["night"]
    assert night["smallest_rate"] == 1 / 11
    expected = {
        "sha256": model.sha256,
        "schema": SCHEMA,
        "basis": model.basis_sentence,
        "bytes": path.stat().st_size,
        "ranges": model.ranges,
        "left_out_of_blend": [],
    }
    assert {name: found[name] for name in expected} == expected


def test_scores_are_drawn_and_what_cannot_be_inspected_is_refused(drill, tmp_path):
    run("inspect", drill[1], "--picture", tmp_path / "scores.svg")
    assert (tmp_path / "scores.svg").stat().st_size > 10_000
    assert ".svg or .png" in str(refused("inspect", drill[1], "--picture", tmp_path / "a.gif"))
    assert isinstance(refused("inspect", tmp_path / "none.daco"), ModelError)


# Real recordings and a network with weights


@pytest.mark.shared("real", "audio")
def test_anomalies_of_a_real_fan_rank_higher(tmp_path):
    """Of 100 pairs of an anomaly and a normal."""
    root, out = shared("real", "audio", "fan"), tmp_path / "m.daco"
    model, text = fitted(root, out, "--config", "choose", "--readout", "mod")
    assert "warning" not in text
    assert model.domain_sizes == {"source": 40, "target": 10}
    assert all("_train_" in clip for clip in model.clip_names)  # never a test clip
    lines = run("score", out, root / "test", "--json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert len(found) == 20
    anomalous = np.array(["anomaly" in each["name"] for each in found])
    scores = np.array([each["score"] for each in found])
    above = scores[anomalous][:, None] > scores[~anomalous]
    assert above.mean() == pytest.approx(0.82, abs=0.021)


@pytest.mark.shared(*MN04)
def test_views_of_several_networks_keep_the_order_of_the_model(tmp_path):
    """Recordings and a table with its views in another order update a model alike."""
    weights = ("--weights", shared(*MN04))
    train = sorted(shared("real", "audio", "fan", "train").glob("*.flac"))
    networks = ("--backbone", "mn04", "--backbone", "logmel", "--readout", "mn04+mod", *weights)
    for folder, clips in (("first", train[:5]), ("more", train[5:8])):
        (tmp_path / folder).mkdir()
        for number, clip in enumerate(clips):
            shutil.copy(clip, tmp_path / folder / f"{folder}{number}.flac")
        run("embed", tmp_path / folder, "--out", tmp_path / f"{folder}.parquet", *networks)
    updated = []
    for source in ("more", "more.parquet"):
        path = tmp_path / f"of_{source}.daco"
        model, _ = fitted(tmp_path / "first.parquet", path, "--readout", "mod+mn04")
        options = ("--domain", model.domains[0], "--keep-suspicious")
        options += weights if source == "more" else ()
        run("update", path, tmp_path / source, *options)
        updated.append(MachineModel.load(path))
    assert updated[0].views.names == updated[1].views.names == ("mod", "mn04")
    np.testing.assert_allclose(updated[0].embeddings, updated[1].embeddings, atol=1e-5)
