"""``daco embed`` as a user types it, on real recordings and on a killed run."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command_line import refused, signalled
from command_line import run as command
from drill import write_normals
from shared_data import shared

from daco.backbones.logmel import BLEND_VIEWS
from daco.data.table import EmbeddingTable
from daco.errors import DacoError


def run(*arguments, code=0):
    return command("embed", *arguments, code=code)


@pytest.fixture
def recordings(tmp_path):
    """Six clips of half a second in two domains."""
    return write_normals(tmp_path / "fan", {"day": 3, "night": 3})


def test_a_folder_becomes_a_table(recordings, tmp_path):
    out = tmp_path / "emb.parquet"
    arguments = ("--backbone", "logmel", "--out", out, "--readout", "mod", "--readout", "mean")
    result = run(recordings, *arguments)
    assert f"{out}: 6 clips in" in result.stdout
    table = EmbeddingTable.read(out)
    assert table.readouts == ("mod", "mean")
    assert table.matrix().shape == (6, 112)
    assert table.matrix("mean").shape == (6, 128)
    assert sorted(set(table.column("domain"))) == ["day", "night"]
    assert table.metadata["backbone"] == "logmel"


def test_a_corrupt_recording_is_left_out_and_the_exit_code_says_so(recordings, tmp_path):
    bad = recordings / "day" / "day01.wav"
    bad.write_bytes(b"")
    out = tmp_path / "emb.parquet"
    result = run(recordings, "--out", out, code=4)
    assert "Left out 1 recording:" in result.stdout
    assert "day01.wav: the file is empty." in result.stdout
    table = EmbeddingTable.read(out)
    assert len(table) == 5
    assert "day01.wav" in table.metadata["skipped"]
    said = run(recordings, "--out", out, code=4).stdout
    assert "is finished: 5 clips" in said
    assert "day01.wav: the file is empty." in said


def test_an_unknown_network_is_a_mistake(recordings, tmp_path):
    out = tmp_path / "emb.parquet"
    assert "beats" in str(refused("embed", recordings, "--out", out, "--backbone", "beatz"))
    assert not out.exists()


def expected(name, file_names):
    stored = np.load(shared("real", "embeddings", name))
    rows = {Path(str(each)).stem: row for row, each in enumerate(stored["file_name"])}
    (key,) = [key for key in stored.files if key != "file_name"]
    return stored[key][[rows[Path(each).stem] for each in file_names]]


@pytest.fixture
def few(tmp_path):
    """Four real recordings, of 10 s and 16 kHz each: enough for a network of a million weights."""
    folder = tmp_path / "fan" / "train"
    folder.mkdir(parents=True)
    for path in sorted(shared("real", "audio", "fan", "train").glob("*.flac"))[:4]:
        shutil.copy(path, folder)
    return folder.parent


@pytest.mark.shared("real", "audio")
def test_a_network_and_weight_free_views_in_one_table(few, tmp_path):
    """Every view of the table is the stored one, from one pass over the recordings.

    mn04 asks for the resampler its vectors were made with; soxr would miss by 1e-2.
    """
    pytest.importorskip("torch")
    weights = shared("real", "mn04_as_mAP_432.pt")
    out = tmp_path / "emb.parquet"
    options = ("--weights", weights, "--out", out)
    run(few, "--backbone", "mn04", "--backbone", "logmel", *options)
    table = EmbeddingTable.read(out)
    assert table.readouts == ("mn04", *BLEND_VIEWS)
    # Float32 rounding, and of env and mod60 what float16 leaves.
    tolerances = {"mn04": 1e-4, "mod": 1e-5, "mod60": 4e-3, "env": 4e-3, "cep": 1e-3}
    for view in table.readouts:
        stored = "logmel_mod" if view == "mod" else view
        wanted = expected(f"fan_{stored}.npz", table.column("path"))
        np.testing.assert_allclose(table.matrix(view), wanted, rtol=0, atol=tolerances[view])
    assert "--force embeds them again." in run(few, "--backbone", "mn04+logmel", *options).stdout
    run(few, "--backbone", "mn04+logmel", "--readout", "mn04-band+cep", "--force", *options)
    table = EmbeddingTable.read(out)
    assert table.readouts == ("mn04-band", "cep")
    assert table.matrix("mn04-band").shape[1] == 4 * 384


def test_killed_and_typed_again(tmp_path):
    folder = tmp_path / "fan"
    folder.mkdir()
    wave = np.random.default_rng(1).normal(0, 0.1, 5000)
    for index in range(600):
        soundfile.write(folder / f"{index:03d}.wav", np.roll(wave, index), 16000)
    out, whole = tmp_path / "emb.parquet", tmp_path / "whole.parquet"
    run(folder, "--out", whole)

    # The first one is held while the second one is refused.
    first = signalled(signal.SIGSTOP, ".arrow", 2, "embed", folder, "--out", out)
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert "another run is writing it" in str(refused("embed", folder, "--out", out))
    first.kill()
    first.communicate()
    assert not out.exists()

    assert "(256 of an interrupted run)" in run(folder, "--out", out).stdout
    assert out.read_bytes() == whole.read_bytes()
    assert not Path(f"{out}.parts").exists()


# ------------------------------------------------------------------------------ finished tables


@pytest.fixture
def finished(recordings, tmp_path):
    out = tmp_path / "emb.parquet"
    run(recordings, "--out", out)
    return out


def again(recordings, out, *arguments):
    """What the same command says, in one line, and whether it wrote anything."""
    before = out.stat().st_mtime_ns
    try:
        text = run(recordings, "--out", out, *arguments).stdout
    except DacoError as error:
        text = str(error)
    return " ".join(text.split()), out.stat().st_mtime_ns != before


def test_a_finished_table_is_left_as_it_is(recordings, finished):
    message, written = again(recordings, finished)
    assert "is finished: 6 clips" in message
    assert not written
    # Another number of threads changes no vector; another time may, so contents are compared.
    os.utime(next(recordings.rglob("*.wav")))
    message, _ = again(recordings, finished, "--workers", 1, "--batch-size", 2)
    assert "sizes or times" in message
    message, written = again(recordings, finished, "--verify")
    assert "is finished" in message
    assert not written


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (("--readout", "mean"), r"""readouts ["mod"] (now ["mean"])"""),
        (("--domain-level", "0"), "other recordings"),
        ((), "other recordings"),
    ],
)
def test_what_changed_is_said_and_replaced_by_force_only(recordings, finished, options, difference):
    if not options:
        soundfile.write(next(recordings.rglob("*.wav")), np.zeros(8000), 16000)
    message, written = again(recordings, finished, *options)
    assert difference in message
    assert "--force" in message
    assert not written
    message, written = again(recordings, finished, *options, "--force")
    assert "clips in" in message
    assert written
