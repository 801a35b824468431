"""A killed or interrupted run goes on where it was, and never with stale vectors."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from small_clips import FakeNet, levels, make_clips, write_clip

from daco.data.clips import Clip, ClipTable
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips, make_shards
from daco.errors import AudioError, DataError


@pytest.fixture
def ten(tmp_path):
    return make_clips(tmp_path / "clips", 10, lengths=(800, 1600, 1000))


class Interrupted(FakeNet):
    """Stops the run, as Ctrl-C does, after some clips."""

    def __init__(self, after, **options):
        super().__init__(**options)
        self.after = after

    def embed_many(self, waveforms, readouts):
        if self.seen >= self.after:
            raise KeyboardInterrupt
        return super().embed_many(waveforms, readouts)


def interrupt(table, out, after=8, **options):
    """Leave two finished shards of four clips and one begun."""
    net = Interrupted(after)
    with pytest.raises(KeyboardInterrupt):
        embed_clips(table, net, out, shard_size=4, batch_size=1, **options)
    assert not out.exists()


@pytest.fixture
def interrupted(ten, tmp_path):
    out = tmp_path / "e.parquet"
    interrupt(ten, out)
    return ten, out


def resumed(table, out, net=None, **options):
    """How many clips were embedded again."""
    net = net or FakeNet()
    report = embed_clips(table, net, out, **{"shard_size": 4, "batch_size": 1} | options)
    assert report.embedded == net.seen
    assert report.embedded + report.reused == len(table)
    return report.embedded


def test_finished_work_is_reused_once(interrupted):
    assert resumed(*interrupted) == 2
    assert resumed(*interrupted) == 10


def change_level(path):
    write_clip(path, 0.99)


def change_behind_the_times(path):
    """Same size, same modification time: only ctime and the content tell."""
    before = path.stat()
    wave, rate = soundfile.read(path, dtype="float32")
    soundfile.write(path, wave[::-1] * 0.5, rate, subtype="FLOAT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


@pytest.mark.parametrize("change", [change_level, change_behind_the_times])
def test_a_changed_recording_is_embedded_again(interrupted, change):
    table, out = interrupted
    change(table.root / "0001.wav")
    assert resumed(table, out) == 4 + 2
    level = np.abs(soundfile.read(table.root / "0001.wav")[0]).max()
    assert EmbeddingTable.read(out).matrix()[1, 0] == pytest.approx(level, rel=1e-6)


def test_a_recording_that_was_only_touched_or_copied_is_not(interrupted):
    table, out = interrupted
    (table.root / "0001.wav").touch()
    shutil.copyfile(table.root / "0002.wav", table.root / "copy")
    (table.root / "copy").replace(table.root / "0002.wav")
    assert resumed(table, out) == 2


@pytest.mark.parametrize(
    "change",
    [{"precision": "bf16"}, {"device": "cuda:1"}, {"name": "other"}, {"weights_sha256": "1" * 64}],
)
def test_another_network_embeds_everything_again(interrupted, change):
    net = FakeNet()
    vars(net).update(change)
    assert resumed(*interrupted, net) == 10


def test_weights_without_a_hash_are_never_taken_for_the_same(ten, tmp_path):
    out = tmp_path / "e.parquet"
    net = Interrupted(8, weights_sha256=None)
    with pytest.raises(KeyboardInterrupt):
        embed_clips(ten, net, out, shard_size=4, batch_size=1)
    assert resumed(ten, out, FakeNet(weights_sha256=None)) == 10


@pytest.mark.parametrize(
    ("options", "again"),
    [
        ({"readouts": ["length"]}, 10),
        ({"channel": "mix"}, 10),
        ({"shard_size": 5}, 10),
        ({"batch_size": 3}, 2),
        ({"workers": 5}, 2),
        ({"on_error": "skip"}, 2),
    ],
)
def test_settings_that_change_vectors_embed_everything_again(interrupted, options, again):
    assert resumed(*interrupted, **options) == again


def test_another_version_of_daco_embeds_everything_again(interrupted, monkeypatch):
    monkeypatch.setattr("daco.embedding.provenance.__version__", "99.0")
    assert resumed(*interrupted) == 10


def test_labels_that_came_later_are_in_the_table_without_new_vectors(interrupted):
    table, out = interrupted
    clips = tuple(Clip(clip.path, "pump", split="test", label=1) for clip in table)
    assert resumed(ClipTable(table.root, clips), out) == 2
    assert EmbeddingTable.read(out).select(machine="pump", label=1).matrix().shape == (10, 2)


def test_other_clips_are_not_given_the_vectors_of_the_old_ones(interrupted):
    table, out = interrupted
    shifted = ClipTable(table.root, table.clips[1:])
    assert resumed(shifted, out) == 9
    np.testing.assert_allclose(EmbeddingTable.read(out).matrix()[:, 0], levels(10)[1:], rtol=1e-6)


def test_a_damaged_shard_is_made_again(interrupted):
    table, out = interrupted
    shards = sorted(Path(f"{out}.shards").glob("*.arrow"))
    assert len(shards) == 2
    shards[0].write_bytes(shards[0].read_bytes()[:100])
    shards[1].write_bytes(b"")
    assert resumed(table, out) == 10


def test_skips_are_kept_for_skip_and_tried_again_for_fail(ten, tmp_path):
    (ten.root / "0001.wav").write_bytes(b"")
    out = tmp_path / "e.parquet"
    interrupt(ten, out, after=7, on_error="skip")
    with pytest.raises(AudioError, match=r"0001\.wav"):
        embed_clips(ten, FakeNet(), out, shard_size=4)
    net = FakeNet()
    report = embed_clips(ten, net, out, shard_size=4, on_error="skip")
    assert (net.seen, report.embedded, report.reused) == (2, 2, 7)
    assert report.skipped == (("0001.wav", "the file is empty."),)


def test_a_missing_file_that_came_back_is_embedded(ten, tmp_path):
    (ten.root / "0001.wav").rename(tmp_path / "away.wav")
    out = tmp_path / "e.parquet"
    interrupt(ten, out, after=7, on_error="skip")
    (tmp_path / "away.wav").rename(ten.root / "0001.wav")
    report = embed_clips(ten, FakeNet(), out, shard_size=4, on_error="skip")
    assert (report.embedded, report.skipped) == (4 + 2, ())


def test_a_missing_file_under_another_name_is_listed_by_its_new_name(ten, tmp_path):
    (ten.root / "0001.wav").unlink()
    out = tmp_path / "e.parquet"
    interrupt(ten, out, after=7, on_error="skip")
    clips = list(ten.clips)
    clips[1] = Clip("elsewhere.wav", "fan")
    renamed_table = ClipTable(ten.root, tuple(clips))
    report = embed_clips(renamed_table, FakeNet(), out, shard_size=4, on_error="skip")
    assert [path for path, _ in report.skipped] == ["elsewhere.wav"]


def test_a_full_disk_keeps_the_finished_shards(ten, tmp_path, monkeypatch):
    out = tmp_path / "e.parquet"
    real, calls = os.fsync, []

    def full_disk(handle):
        calls.append(handle)
        if len(calls) > 2:  # a shard is two: the file and its folder
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(DataError, match=r"No space left on device\)\. Free some space"):
        embed_clips(ten, FakeNet(), out, shard_size=4)
    monkeypatch.undo()
    assert resumed(ten, out) == 6


def test_a_table_is_as_readable_as_any_other_file(ten, tmp_path):
    embed_clips(ten, FakeNet(), tmp_path / "e.parquet")
    (tmp_path / "other").touch()
    assert (tmp_path / "e.parquet").stat().st_mode == (tmp_path / "other").stat().st_mode


# --- kill -9 ---

SLOW_RUN = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from daco.backbones.protocol import Backbone
from daco.data.clips import Clip, ClipTable
from daco.embedding.embed import embed_clips

class Slow(Backbone):
    name, sample_rate, device, precision = "slow", 8000, "cpu", "fp32"
    readouts, default_readout, weights_sha256 = ("start", "length"), "start", "0" * 64

    def embed_many(self, waveforms, readouts):
        global batches
        batches += 1
        if batches == kill_after and not pause:
            os.kill(os.getpid(), signal.SIGKILL)
        if batches == kill_after:
            threading.Timer(pause, os.kill, (os.getpid(), signal.SIGKILL)).start()
        print("batch", flush=True)
        time.sleep(0.004)
        length = np.full((len(waveforms), 1), waveforms.shape[1], np.float32)
        return {"start": waveforms[:, :3], "length": length}

root, out = map(Path, sys.argv[1:3])
batches, kill_after, pause = 0, int(sys.argv[3]), float(sys.argv[4])
clips = tuple(Clip(p.name, "fan") for p in sorted(root.glob("*.wav")))
report = embed_clips(ClipTable(root, clips), Slow(), out, shard_size=5, batch_size=2,
                     readouts=["start", "length"], on_error="skip", workers=2)
print("done", report.reused, flush=True)
"""


def slow_run(root, out, kill_after=0, pause=0.0):
    """Run in a process of its own, killed in the batch of a number or some time after it began."""
    command = [sys.executable, "-c", SLOW_RUN, str(root), str(out), str(kill_after), str(pause)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.splitlines(), done.returncode


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kill")
    make_clips(folder / "clips", 43, lengths=(800, 1600, 1000))
    (folder / "clips" / "0017.wav").write_bytes(b"")
    out = folder / "whole.parquet"
    lines, code = slow_run(folder / "clips", out)
    assert code == 0, lines
    return folder, out.read_bytes(), lines.count("batch")


@settings(max_examples=4)
@given(data=st.data())
def test_killed_at_any_moment_and_resumed_gives_the_same_bytes(uninterrupted, data):
    folder, expected, n_batches = uninterrupted
    out = folder / "killed.parquet"
    out.unlink(missing_ok=True)
    for _ in range(data.draw(st.integers(1, 2), label="kills")):
        after = data.draw(st.integers(1, n_batches), label="after batch")
        pause = data.draw(st.floats(0, 0.03), label="pause")
        slow_run(folder / "clips", out, after, pause)
        # Whole or not there: never half a table.
        assert not out.exists() or out.read_bytes() == expected
    _, code = slow_run(folder / "clips", out)
    assert code == 0
    assert out.read_bytes() == expected
    assert {each.name for each in folder.iterdir()} == {"clips", "whole.parquet", "killed.parquet"}


def test_a_kill_loses_at_most_the_shard_in_flight(uninterrupted, tmp_path):
    folder, expected, n_batches = uninterrupted
    out = tmp_path / "e.parquet"
    _, code = slow_run(folder / "clips", out, kill_after=n_batches - 1)
    assert code == -signal.SIGKILL
    shards = list(Path(f"{out}.shards").glob("*.arrow"))
    again, code = slow_run(folder / "clips", out)
    assert code == 0
    finished = 5 * (43 // 5) - 1  # without the skipped clip: all but the last, short shard
    assert len(shards) >= 43 // 5 - 1
    assert int(again[-1].split()[1]) >= finished - 5
    assert out.read_bytes() == expected


class Elsewhere:
    """An engine that knows whether it was let go."""

    device = "cpu"
    connected = False

    def shards(self, job, table, spans):
        self.connected = True
        try:
            for start, stop in spans:
                part = ClipTable(table.root, table.clips[start:stop])
                (shard,) = make_shards(job, FakeNet(), part, [(0, len(part))])
                yield replace(shard, start=start, stop=stop)
        finally:
            self.connected = False


def test_a_run_begun_here_goes_on_elsewhere(interrupted):
    table, out = interrupted
    report = embed_clips(table, FakeNet(), out, shard_size=4, engine=Elsewhere())
    assert (report.reused, report.embedded) == (8, 2)


def test_an_error_here_lets_the_engine_go_while_somebody_holds_the_error(ten, tmp_path):
    """A notebook keeps the last one: the same call again would find a connection there already."""
    engine, seen = Elsewhere(), []

    def interrupt_it(done, total):
        if done:
            seen.append(engine.connected)
            raise KeyboardInterrupt

    out = tmp_path / "e.parquet"
    with pytest.raises(KeyboardInterrupt) as held:
        embed_clips(ten, FakeNet(), out, shard_size=4, engine=engine, progress=interrupt_it)
    assert held.traceback
    assert seen == [True]
    assert not engine.connected
    report = embed_clips(ten, FakeNet(), out, shard_size=4, engine=engine)
    assert (report.reused, report.embedded) == (4, 6)
