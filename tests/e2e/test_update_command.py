"""``daco update`` and ``daco calibrate`` as a plant engineer types them."""

from __future__ import annotations

import shutil

import numpy as np
import soundfile
from command_line import printed, refused, run, said
from drill import RATE, hum, scaled, write_normals

from daco.detector.model import MachineModel
from daco.errors import DataError, InputError
from daco.files.hashing import sha256_of_file

NIGHT = ("--domain", "night")
KEEP = "--keep-suspicious"


def new_recordings(folder, day, night, first=100):
    return write_normals(folder, {"day": day, "night": night}, first)


class TestUpdate:
    def test_more_normals_of_a_domain(self, model, tmp_path):
        before = MachineModel.load(model)
        new = new_recordings(tmp_path / "new", 2, 6)
        assert "none of them is 'dusk'" in str(refused("update", model, new, "--domain", "dusk"))
        text = printed("update", model, new, *NIGHT, KEEP, "--verbose")
        after = MachineModel.load(model)
        assert after.domain_sizes == {"day": 16, "night": 16}
        assert "Left out 2 clips of other domains than night" in text
        assert "Added 6 recordings. There are now 32." in text
        assert f"{before.thresholds['night']:.4g} -> {after.thresholds['night']:.4g}" in text
        (update,) = after.provenance["updates"]
        assert (update["clips"], update["domain"], update["source"]) == (6, "night", "new")
        assert after.provenance["created"] == before.provenance["created"]
        assert after.false_alarm_rate == before.false_alarm_rate
        assert after.clip_sha256[-1] == sha256_of_file(max(new.glob("night/*")))
        assert "added 6 of night from new" in said("inspect", model)

    def test_copies_are_added_once_and_names_stay_unique(self, model, tmp_path):
        path = hum(tmp_path / "new" / "night" / "night00.wav", 320, 400)
        shutil.copy(path, path.with_name("copy.wav"))
        run("update", model, tmp_path / "new", *NIGHT, KEEP)
        names = MachineModel.load(model).clip_names
        assert len(set(names)) == len(names) == 27
        content = model.read_bytes()
        text = printed("update", model, tmp_path / "new", *NIGHT)
        assert "Left out 2 copies" in text
        assert "There is nothing to add." in text
        assert model.read_bytes() == content
        wave, _ = soundfile.read(path)
        noise = np.random.default_rng(0).normal(0, 1e-3, len(wave))
        soundfile.write(tmp_path / "again.wav", wave + noise, RATE)
        text = printed("update", model, tmp_path / "again.wav", *NIGHT, KEEP)
        assert "again.wav may be a copy of night" in text

    def test_a_new_domain_is_said_to_be_one_and_a_bad_normal_of_it_left_out(self, model, tmp_path):
        for index in range(4):
            hum(tmp_path / "winter" / f"w{index}.wav", 90, index)
        out = tmp_path / "more.daco"
        wave, _ = soundfile.read(tmp_path / "winter" / "w0.wav")
        soundfile.write(tmp_path / "winter" / "low.wav", wave[::2], RATE // 2)
        options = ("--domain", "winter", "--out", out)
        text = printed("update", model, tmp_path / "winter", *options, code=4)
        assert "winter is a new domain beside day, night" in text
        assert "low.wav: rate: 8000 Hz, the normals have 16000 Hz" in text
        assert MachineModel.load(out).domains == ("day", "night", "winter")
        assert MachineModel.load(model).domains == ("day", "night")  # --out leaves it alone


class TestCalibrate:
    def test_new_recordings_decide_and_stay_outside_the_bank(self, model, tmp_path):
        before = MachineModel.load(model)
        text = said("calibrate", model, new_recordings(tmp_path / "new", 12, 9))
        after = MachineModel.load(model)
        assert after.clip_names == before.clip_names
        assert [each["kind"] for each in after.basis.values()] == ["new", "new"]
        assert after.reference.sizes == {"day": 12, "night": 9}
        assert "Calibrated with 21 new recordings: 12 of day and 9 of night" in text
        assert "warning" not in text
        assert "from 21 new recordings of" in said("inspect", model)
        scored = run("score", model, tmp_path / "new", "--json").stdout
        assert '"basis": "from 21 new recordings of' in scored

    def test_many_recordings_unlike_the_normals_are_a_warning(self, model, tmp_path):
        """Two are too few: of a healthy machine, both may be anomalous."""
        for index in range(2):
            hum(tmp_path / "few" / f"{index}.wav", 200, 300 + index, modulation=12.0)
        text = printed("calibrate", model, tmp_path / "few", "--domain", "day")
        assert "With the old alarm limit, 2 of them were anomalous." in text
        assert "Check that they" not in text
        run("update", model, "--undo")
        for index in range(12):  # as odd as faults are
            hum(tmp_path / "odd" / f"{index:02}.wav", 200, 600 + index, modulation=30.0)
        text = printed("calibrate", model, tmp_path / "odd", "--domain", "day", KEEP)
        assert "Check that they are recordings of this machine" in text
        assert "This calibration costs detection" in text

    def test_what_cannot_be_used_is_said(self, model, drill, tmp_path):
        new = new_recordings(tmp_path / "new", 3, 3)
        error = refused("calibrate", model, new, "--domain", "nigth")
        assert isinstance(error, InputError)
        assert "Did you mean 'night'?" in str(error)
        error = refused("calibrate", model, new, "--out", tmp_path / "nowhere" / "a.daco")
        assert "nowhere is not a folder" in str(error)
        error = refused("calibrate", model, drill[0])
        assert isinstance(error, DataError)
        assert "already has all of these clips" in str(error)

    def test_clips_of_no_condition_count_where_they_fit_best(self, model, tmp_path):
        for index in range(12):
            hum(tmp_path / "new" / f"clip{index}.wav", (200, 320)[index % 2], 500 + index)
        text = printed("calibrate", model, tmp_path / "new")
        assert "6 of day and 6 of night, each assigned to the condition that it fits best" in text
        assert MachineModel.load(model).reference.sizes == {"day": 6, "night": 6}

    def test_other_levels_than_the_normals_need_to_be_insisted_on(self, model, tmp_path):
        """Else a machine that is off would set what counts as anomalous, without a word."""
        new = new_recordings(tmp_path / "new", 6, 6)
        for path in new.rglob("*.wav"):
            scaled(path, path, 0.03)
        error = refused("calibrate", model, new)
        assert isinstance(error, DataError)
        assert "off: level" in str(error)
        run("calibrate", model, new, KEEP)
        assert "off" not in run("score", model, min(new.rglob("*.wav"))).stdout
