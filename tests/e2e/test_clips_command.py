"""``daco clips`` as a user types it."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
from command_line import refused, run, said
from shared_data import shared

from daco.data.sources import read_clips


def rows(*arguments):
    """The printed lines with single blanks; none is wider than a terminal."""
    result = run("clips", *arguments)
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines if str(arguments[0].parent) not in line)
    return [" ".join(line.split()) for line in lines]


def wav(path, *, seconds=0.1, rate=16000, channels=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros((int(seconds * rate), channels)), rate)


def evaluation_set(root):
    for i in range(4):
        wav(root / "ToyDrone" / "train" / f"section_00_source_train_normal_{i:04d}.wav")
        wav(root / "ToyDrone" / "test" / f"section_00_{i:04d}.wav")
    return root


def test_real_recordings():
    lines = rows(shared("real", "audio"))
    assert lines[0].startswith("140 clips of 2 machines in ")
    for machine in ("bearing", "fan"):
        assert f"{machine} train source 40 - - 10 16k 1" in lines
        assert f"{machine} test target 5 5 - 10 16k 1" in lines
    assert lines[-1] == "Nothing looks odd."


def test_two_years_are_two_machines_and_a_manifest_keeps_the_year(tmp_path):
    for year in (2023, 2026):
        evaluation_set(tmp_path / f"dcase{year}t2")
    lines = rows(tmp_path)
    assert "16 clips of 2 machines" in lines[0]
    for year in (2023, 2026):
        assert f"{year} ToyDrone test - - - 4 0.1 16k 1" in lines
    out = tmp_path / "clips.parquet"
    rows(evaluation_set(tmp_path / "set"), "--manifest", out, "--year", 2026)
    assert [clip.year for clip in read_clips(out)] == [2026] * 8


def test_what_only_the_recordings_tell(tmp_path):
    root = tmp_path / "pump"
    for i in range(3):
        wav(root / "old" / f"{i}.wav")
        wav(root / "new" / f"{i}.wav", seconds=0.25, rate=44100, channels=2)
    (root / "new" / "[bold]broken.wav").write_bytes(b"no sound")
    (root / "new" / "empty.wav").write_bytes(b"")
    text = said("clips", root)
    assert "pump train new - - 5 0.25 44.1k 2" in text
    assert "5 oddities: - 1 clip of zero bytes: new/empty.wav." in text
    assert "[bold]broken.wav: not readable" in text
    for difference in ("of 16000 and 44100 Hz", "with 1 and 2 channels", "0.1-0.25 s"):
        assert difference in text


@pytest.fixture
def fan(tmp_path):
    """Recordings of two days, and a test clip."""
    for day in ("12", "13"):
        for minute in ("00", "10"):
            wav(tmp_path / "fan" / "old" / f"202605{day}_08{minute}00.wav")
    wav(tmp_path / "fan" / "test" / "old" / "x.wav")
    return tmp_path / "fan"


def test_sessions_are_counted_and_written_into_a_manifest(fan):
    out = fan.parent / "fan.csv"
    text = said("clips", fan, "--session-by", "gap:30min", "--manifest", out)
    assert "fan 2 in old (2 clips)." in text
    days = ["2026-05-12 08:00:00"] * 2 + ["2026-05-13 08:00:00"] * 2
    assert read_clips(out).columns()["session"] == [*days, None]  # not of test clips
    assert "by the column 'session': fan 2 in old (2 clips)." in said("clips", out)
    assert "Recording sessions" not in said("clips", fan)
    out.write_text(out.read_text().replace("2026-05-12 08:00:00", "", 1))
    assert "- fan: 1 clip of 4 without a session by the column" in said("clips", out)


@pytest.mark.parametrize(
    ("options", "token"),
    [
        (("--session-by", "gap:2d"), "one session by gap:2d"),
        (("--manifest", "nowhere/fan.csv"), "nowhere is not a folder"),
    ],
)
def test_mistakes_are_named(fan, options, token):
    assert token in str(refused("clips", fan, *options))
