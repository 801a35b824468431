"""Recording sessions from ``daco fit`` and ``daco update`` to the model file."""

from __future__ import annotations

import pytest
from command_line import run
from drill import hum

from daco.detector.model import MachineModel

DAYS = ("20260512", "20260513", "20260514")
FIT = ("--config", "raw-k1")


def record(path, day, seed):
    """A recording of a machine that wobbles in another way every day."""
    hum(path, 200, seed, modulation=6.0 + 2 * day)


@pytest.fixture(scope="module")
def motor(tmp_path_factory):
    """Five recordings in each of three mornings, and in the new condition one morning more."""
    root = tmp_path_factory.mktemp("plant") / "motor"
    for number, day in enumerate(DAYS):
        for clip in range(5):
            record(root / "old" / f"{day}_08{clip}000.wav", number, 10 * number + clip)
    for clip in range(5):
        record(root / "new" / f"20260520_08{clip}000.wav", 3, 100 + clip)
    return root


def fitted(source, out, *options):
    result = run("fit", source, "--out", out, *FIT, *options)
    return MachineModel.load(out), " ".join(result.stderr.split())


def test_a_model_knows_the_sessions_of_its_normals_and_rests_on_them(motor, tmp_path):
    plain, _ = fitted(motor, tmp_path / "plain.daco")
    assert plain.sessions == ()
    model, notes = fitted(motor, tmp_path / "motor.daco", "--session-by", "gap:30min")
    assert "Recording sessions by gap:30min" in notes
    by_name = dict(zip(model.clip_names, model.sessions, strict=True))
    assert by_name["old/20260513_084000.wav"] == "2026-05-13 08:00:00"
    assert len(set(model.sessions)) == 4
    assert model.basis["old"]["kind"] == "sessions"
    assert model.basis["new"]["kind"] == "training"  # nothing is left of it without its session


def test_every_source_says_the_same_sessions(motor, tmp_path):
    model, _ = fitted(motor, tmp_path / "direct.daco", "--session-by", "gap:30min")
    expected = dict(zip(model.clip_names, model.sessions, strict=True))
    manifest, table = tmp_path / "motor.csv", tmp_path / "motor.parquet"
    run("clips", motor, "--session-by", "gap:30min", "--manifest", manifest)
    run("embed", manifest, "--backbone", "logmel", "--out", table)
    for source in (manifest, table):
        again, notes = fitted(source, tmp_path / "again.daco")
        assert "Recording sessions by the column 'session': " in notes
        for name, session in zip(again.clip_names, again.sessions, strict=True):
            assert session == expected["/".join(name.split("/")[-2:])]


def test_an_update_brings_its_sessions(motor, tmp_path):
    fitted(motor, tmp_path / "motor.daco", "--session-by", "gap:30min")
    for clip in range(4):
        record(tmp_path / "more" / f"202605{15 + clip // 2}_08{clip}000.wav", 1, 200 + clip)
    update = ("update", tmp_path / "motor.daco", tmp_path / "more", "--domain", "old")
    update += ("--keep-suspicious",)
    several = tmp_path / "several.daco"
    run(*update, "--out", several, "--session-by", "gap:30min")
    days = ["2026-05-15 08:00:00"] * 2 + ["2026-05-16 08:20:00"] * 2
    assert list(MachineModel.load(several).sessions[-4:]) == days
    one = tmp_path / "one.daco"
    run(*update, "--out", one)
    assert len(set(MachineModel.load(one).sessions[-4:])) == 1
    assert len(set(MachineModel.load(one).sessions)) == 5
    plain = tmp_path / "plain.daco"
    fitted(motor, plain)
    run("update", plain, *update[2:])
    assert MachineModel.load(plain).sessions == ()
