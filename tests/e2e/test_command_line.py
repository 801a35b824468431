"""The command as a user types it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from itertools import product

import numpy as np
import pytest
import soundfile
from command_line import process, run
from synthetic_machines import small_table

from daco import cli


@pytest.mark.parametrize(
    ("arguments", "token"),
    [
        (("demo", "--seed", "x"), "'--seed'"),
        (("evaluate", "nowhere"), "nowhere"),
        (("nonsense",), "'nonsense'"),
        (("synth", "file"), "file"),
        (("score",), "'model'"),
    ],
)
def test_a_users_mistake_is_one_message_and_exit_code_2(
    tmp_path, monkeypatch, capsys, arguments, token
):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["daco", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    assert (end.value.code, printed.out) == (2, "")
    assert token in printed.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk is simulated by it")
def test_a_full_disk_behind_standard_output_is_one_message():
    with open("/dev/full", "w") as full:
        result = process("--help", stdout=full)
    assert result.returncode == 2
    assert result.stderr.startswith("error: No space left on device. Free some space")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("moment", ["start", "work"])
def test_ctrl_c_ends_without_a_stack_trace(tmp_path, moment):
    """The signal goes to the workers, too, as from a terminal; half a data set is removed."""
    command = [sys.executable, "-X", "importtime", "-m", "daco.cli", "synth", "factory"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        for line in process.stderr:
            if line.rstrip().endswith(
                " rich.box" if moment == "start" else " daco.synthetic.factory"
            ):
                break
        while moment == "work" and process.poll() is None and not list(tmp_path.rglob("*.wav")):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        errors = process.stderr.read()
    # Python ends by the signal itself where the interrupt came while a module was imported.
    assert process.returncode in (130, -signal.SIGINT)
    assert [line for line in errors.splitlines() if not line.startswith("import time:")] == [
        "Interrupted."
    ]
    assert not list(tmp_path.rglob("*.wav"))


CONFIG = "conf-soft-m300-varmin-K4"
MACHINES = ("hydraulic-press-in-the-third-hall-of-the-plant", "a-fan-with-a-name-of-many-words")
RECORDING = "2026-11-15_line-4_shift-2_microphone-near-the-gearbox_{:04d}.wav"
FAULTS = ("--per-domain", "2", "--level", "-12", "--level", "0", "--fault", "tones")
PRINTED = {
    "clips": ("clips", MACHINES[0]),
    "fit": ("fit", MACHINES[0], "--out", "press.daco", "--config", CONFIG, "--verbose"),
    "inspect": ("inspect", "press.daco", "--verbose"),
    "normals": ("inspect", "press.daco", "--normals"),
    "score": ("score", "press.daco", f"{MACHINES[0]}/source"),
    "sensitivity": ("sensitivity", "press.daco", MACHINES[0], *FAULTS),
    "select": ("select", "dev.parquet", "--grid", f"raw-k1,{CONFIG}", "--splits", "3"),
    "evaluate": ("evaluate", "scores"),
}


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """Recordings, scores and embeddings of machines with long names."""
    folder = tmp_path_factory.mktemp("plant")
    (folder / "scores").mkdir()
    small_table(*MACHINES, n_source=80, n_target=20).write(folder / "dev.parquet")
    scores = folder / "scores" / f"anomaly_score_{MACHINES[0]}_section_00_test.csv"
    clips = product(("source", "target"), ("normal", "anomaly"), range(10))
    rows = [f"section_00_{d}_test_{kind}_{i:04d}.wav,{i % 7}\n" for d, kind, i in clips]
    scores.write_text("".join(rows), encoding="utf-8")
    for domain in ("source", "target"):
        place = folder / MACHINES[0] / domain
        place.mkdir(parents=True)
        for i in range(12):
            wave = np.random.default_rng([i, domain == "target"]).normal(size=16000) * 0.1
            soundfile.write(place / RECORDING.format(i), wave, 16000)
    with contextlib.chdir(folder):
        run(*PRINTED["fit"])
    return folder


def numbers(text):
    """Numbers that stand alone; parts of names may be broken at the end of a line."""
    return Counter(re.findall(r"(?<!\S)-?\d[\d.,]*%?(?!\S)", text))


@pytest.mark.parametrize("name", PRINTED)
def test_80_columns_lose_nothing_and_a_pipe_breaks_no_line(plant, monkeypatch, name):
    monkeypatch.chdir(plant)
    piped = run(*PRINTED[name], environment={}).stdout
    shown = run(*PRINTED[name]).stdout
    assert all(len(line) <= 80 or os.sep in line for line in shown.splitlines())
    assert not [line for line in (shown + piped).splitlines() if line.endswith(" ")]
    assert not numbers(piped) - numbers(shown)
    assert name != "score" or RECORDING.format(0) in shown
    assert Counter(re.findall("normal|ANOMALY", piped)) == Counter(
        re.findall("normal|ANOMALY", shown)
    )
    whole = {"score": RECORDING.format(0), "select": CONFIG, "inspect": CONFIG}
    assert whole.get(name, MACHINES[0]) in piped.replace("\n", " ") or name == "normals"


def test_a_terminal_shows_a_verdict_in_its_80_columns(plant):
    """A pseudo-terminal, in which nothing but its size tells the width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "daco.cli", *PRINTED["score"]]
    with subprocess.Popen(
        command, cwd=plant, stdin=theirs, stdout=theirs, env={**environment, "TERM": "xterm"}
    ) as daco:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal is an error to read
            while part := os.read(ours, 1 << 16):
                shown += part
        assert daco.wait(60) == 0
    os.close(ours)
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.decode())
    assert max(len(line) for line in text.splitlines() if os.sep not in line) <= 80
    assert "12 recordings anomalous" in " ".join(text.split())
