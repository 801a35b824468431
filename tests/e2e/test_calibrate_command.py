"""``daco calibrate`` and ``daco update --and-calibrate`` as a plant engineer types them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command_line import refused, run
from shared_data import shared

from daco.detector.model import MachineModel
from daco.errors import DataError, InputError

RATE = 16000


def hum(path, hertz, seed, wobble=8.0):
    """A hum whose wobble starts anywhere; no two clips have the same noise."""
    rng = np.random.default_rng([seed, hertz])
    time = np.arange(RATE // 2) / RATE
    level = 1 + 0.3 * np.sin(2 * np.pi * wobble * time + rng.uniform(0, 6))
    wave = 0.2 * level * np.sin(2 * np.pi * hertz * time) + rng.normal(0, 0.03, len(time))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, wave, RATE)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    root = tmp_path_factory.mktemp("drill") / "drill"
    for domain, hertz, count in (("day", 200, 16), ("night", 320, 10)):
        for index in range(count):
            hum(root / domain / f"{domain}{index:02}.wav", hertz, index)
    model = root.parent / "drill.daco"
    run("fit", root, "--out", model, "--false-alarm-rate", 0.2)
    return model


@pytest.fixture
def model(fitted, tmp_path):
    return Path(shutil.copy(fitted, tmp_path / "drill.daco"))


def new_recordings(folder, counts, first=100):
    for domain, hertz, count in (("day", 200, counts[0]), ("night", 320, counts[1])):
        for index in range(count):
            hum(folder / domain / f"new{index:02}.wav", hertz, first + index)
    return folder


def test_the_folder_of_one_domain_is_calibrated_as_that_domain(model, tmp_path):
    new = new_recordings(tmp_path / "new", (9, 0))
    (new / "day").rename(new / "night")
    text = " ".join(run("calibrate", model, new / "night", "--keep-suspicious").stdout.split())
    assert "Calibrated with 9 new recordings: 9 of night." in text
    assert MachineModel.load(model).reference.sizes["night"] == 9


def test_new_recordings_decide_and_stay_outside_the_bank(model, tmp_path):
    before = MachineModel.load(model)
    result = run("calibrate", model, new_recordings(tmp_path / "new", (12, 9)))
    after = MachineModel.load(model)
    assert after.domain_sizes == before.domain_sizes
    assert after.clip_names == before.clip_names
    assert [after.basis[name]["kind"] for name in ("day", "night")] == ["new", "new"]
    assert after.reference.sizes == {"day": 12, "night": 9}
    expected = after.bank.examine(after.new_embeddings, after.config).scores
    np.testing.assert_allclose(np.sort(after.reference_scores), np.sort(expected), atol=1e-9)
    text = " ".join(result.stdout.split())
    assert "Calibrated with 21 new recordings: 12 of day and 9 of night" in text
    assert "from 21 new recordings of" in text
    assert "warning" not in text
    assert all(len(line) <= 80 for line in result.stdout.replace(str(tmp_path), "").splitlines())
    assert "from 21 new recordings of" in " ".join(run("inspect", model).stdout.split())
    scored = run("score", model, tmp_path / "new", "--json").stdout
    assert '"basis": "from 21 new recordings of' in scored


@pytest.mark.parametrize("count", [2, 12])
def test_many_recordings_unlike_the_normals_are_a_warning(model, tmp_path, count):
    """Two are too few: of a healthy machine, both may be anomalous."""
    for index in range(count):
        hum(tmp_path / "other" / f"{index:02}.wav", 200, 300 + index, wobble=12.0)
    text = " ".join(run("calibrate", model, tmp_path / "other", "--domain", "day").stdout.split())
    assert f"With the old alarm limit, {count} of them were anomalous." in text
    warning = f"{count} of {count} recordings were anomalous before, where 20 % would be usual."
    assert (warning in text) == ("Check that they are recordings of this machine" in text)
    assert (warning in text) == (count == 12)


def test_one_domain_alone_leaves_the_other_as_it_was(model, tmp_path):
    before = MachineModel.load(model)
    new = new_recordings(tmp_path / "new", (0, 9)) / "night"
    run("calibrate", model, new, "--domain", "night", "--out", tmp_path / "out.daco")
    after = MachineModel.load(tmp_path / "out.daco")
    assert after.reference.kinds == {"day": "training", "night": "new"}
    np.testing.assert_allclose(
        after.reference_scores[after.reference_domains == 0],
        before.reference_scores[before.reference_domains == 0],
    )
    assert "for day from the training recordings only" in after.basis_sentence
    again = new_recordings(tmp_path / "again", (0, 5), first=300) / "night"
    run("calibrate", tmp_path / "out.daco", again, "--domain", "night")
    assert MachineModel.load(tmp_path / "out.daco").reference.sizes["night"] == 5


def test_clips_of_no_named_domain_count_where_they_fit_best(model, tmp_path):
    folder = tmp_path / "new"
    for index in range(10):
        hum(folder / f"clip{index}.wav", (200, 320)[index % 2], 500 + index)
    text = " ".join(run("calibrate", model, folder).stdout.split())
    assert "5 of day and 5 of night, each assigned to the condition that it fits best" in text


def test_what_cannot_be_used_is_said(model, tmp_path):
    new = new_recordings(tmp_path / "new", (3, 3))
    error = refused("calibrate", model, new, "--domain", "nigth")
    assert isinstance(error, InputError)
    assert "Did you mean 'night'?" in str(error)
    assert "Give the domain of the new clips" in str(refused("update", model, new))
    for command in (("calibrate",), ("update", "--domain", "day")):
        error = refused(*command, model, new, "--out", tmp_path / "nowhere" / "a.daco")
        assert "nowhere is not a folder" in str(error)
    hum(tmp_path / "old" / "day" / "day00.wav", 200, 0)  # the model was fitted to it
    error = refused("calibrate", model, tmp_path / "old")
    assert isinstance(error, DataError)
    assert "already has all of these clips" in str(error)
    hum(tmp_path / "old" / "day" / "fresh.wav", 200, 901)
    result = run("calibrate", model, tmp_path / "old", "--domain", "day")
    assert "Left out 1 copy: day/day00.wav (of day/day00.wav)" in " ".join(result.stderr.split())


def test_a_copy_counts_once(model, tmp_path):
    new = new_recordings(tmp_path / "new", (6, 6))
    shutil.copy(
        new / "day" / sorted(each.name for each in (new / "day").iterdir())[0],
        new / "day" / "again.wav",
    )
    result = run("calibrate", model, new)
    assert "Left out 1 copy" in result.stderr
    assert MachineModel.load(model).reference.sizes == {"day": 6, "night": 6}


def test_other_levels_than_the_normals_need_to_be_insisted_on(model, tmp_path):
    """Else a machine that is off would set what counts as anomalous, without a word."""
    new = new_recordings(tmp_path / "new", (6, 6))
    for path in new.rglob("*.wav"):
        wave, rate = soundfile.read(path)
        soundfile.write(path, 0.03 * wave, rate)
    error = refused("calibrate", model, new)
    assert isinstance(error, DataError)
    assert "off: level" in str(error)
    run("calibrate", model, new, "--keep-suspicious")
    (clip, *_) = sorted(new.rglob("*.wav"))
    assert "off" not in run("score", model, clip).stdout


def test_a_clip_that_becomes_a_normal_no_longer_calibrates(model, tmp_path):
    """It has distance 0 to itself: as a reference it would make everything anomalous."""
    new = new_recordings(tmp_path / "new", (12, 9))
    run("calibrate", model, new)
    result = run("update", model, new / "day", "--domain", "day", "--keep-suspicious")
    assert "12 clips of the last calibration became part of the normals" in " ".join(
        result.stderr.split()
    )
    kinds = {name: each["kind"] for name, each in MachineModel.load(model).basis.items()}
    assert kinds == {"day": "training", "night": "new"}


def test_one_clip_cannot_be_halved(model, tmp_path):
    new = new_recordings(tmp_path / "new", (1, 0))
    error = refused(
        "update", model, new / "day", "--domain", "day", "--and-calibrate", "--keep-suspicious"
    )
    assert isinstance(error, InputError)
    assert "at least two clips" in str(error)


def test_a_later_update_keeps_the_calibration_and_scores_it_again(model, tmp_path):
    run("calibrate", model, new_recordings(tmp_path / "new", (12, 9)))
    before = MachineModel.load(model)
    more = new_recordings(tmp_path / "more", (4, 0), first=700) / "day"
    run("update", model, more, "--domain", "day", "--keep-suspicious")
    after = MachineModel.load(model)
    assert after.domain_sizes == {"day": 20, "night": 10}
    assert after.reference.kinds == before.reference.kinds
    assert after.basis["day"]["when"] == before.basis["day"]["when"]
    expected = after.bank.examine(after.new_embeddings, after.config).scores
    np.testing.assert_allclose(np.sort(after.reference_scores), np.sort(expected), atol=1e-9)


def test_a_new_session_serves_bank_and_threshold_by_turns(model, tmp_path):
    new = new_recordings(tmp_path / "new", (0, 12)) / "night"
    run("update", model, new, "--domain", "night", "--keep-suspicious", "--and-calibrate")
    after = MachineModel.load(model)
    assert after.domain_sizes == {"day": 16, "night": 22}
    assert after.reference.kinds == {"day": "training", "night": "sessions"}
    assert after.reference.sizes["night"] == 12
    halves = {name for name in after.sessions if name}
    assert len(halves) == 2
    # What a clip of one half scores where its half is hidden from the bank.
    night = after.reference_scores[after.reference_domains == 1]
    expected = after.bank.examine_normals(after.config, sessions=after.sessions).scores
    np.testing.assert_allclose(night, expected[-12:], atol=1e-9)
    assert "each judged without its half of them" in after.basis_sentence


def test_real_recordings_of_another_session(tmp_path):
    """Five new normals of each domain are too few for a rate of 0.1, and it says so."""
    audio = shared("real", "audio")
    model, new = tmp_path / "fan.daco", tmp_path / "new"
    run("fit", audio / "fan", "--out", model)
    for path in (audio / "fan" / "test").glob("*normal*"):
        new.mkdir(exist_ok=True)
        shutil.copy(path, new)
    result = run("calibrate", model, new)
    assert "5 of source and 5 of target" in " ".join(result.stdout.split())
    found = MachineModel.load(model)
    assert found.reference.sizes == {"source": 5, "target": 5}
    assert "is below 0.167" in " ".join((result.stdout + result.stderr).split())
