"""The command as a user types it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from itertools import product

import numpy as np
import pytest
import soundfile
from command_line import process, run
from small_runs import machine_table

from daco.commands import app
from daco.commands.console import Output, new_table


def test_version_help_and_flags():
    assert run("--version").stdout.startswith("daco 0.")
    assert "demo" in run("--help").stdout
    text = run("score", "--help").stdout
    assert re.search(r"^Usage: .* score \[OPTIONS\] MODEL RECORDINGS\.\.\.$", text, re.M)
    assert re.search(r"^  MODEL  ", text, re.M)
    assert re.search(r"^  --json  ", text, re.M)
    assert re.search(r"^  --window NUMBER  ", text, re.M)


@pytest.mark.parametrize("command", app.COMMANDS)
def test_the_help_of_an_argument_or_option_shows_no_type_of_the_code(command):
    text = run(command, "--help").stdout
    assert re.search(r"^  --help  ", text, re.M)
    assert re.findall(r"^  (?:--\S+|[A-Z]+) <.*|^Usage: .*[{<].*", text, re.M) == []


@pytest.mark.parametrize(
    "arguments",
    [("demo", "--seed", "x"), ("evaluate", "nowhere"), ("nonsense",), ("synth", "file")],
)
def test_a_users_mistake_is_one_message_and_no_stack_trace(tmp_path, arguments):
    (tmp_path / "file").touch()
    result = process(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk is simulated by it")
def test_a_full_disk_behind_standard_output_is_told():
    with open("/dev/full", "w") as full:
        result = process("--help", stdout=full)
    assert result.returncode == 2
    assert " ".join(result.stderr.split()) == (
        "error: No space left on device. Free some space on the disk of the output or of "
        "temporary files and run it again."
    )


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
    assert process.returncode == 130
    assert [line for line in errors.splitlines() if not line.startswith("import time:")] == [
        "Interrupted."
    ]
    assert not list(tmp_path.rglob("*.wav"))


def test_ctrl_c_while_a_dataclass_is_made_is_an_interrupt_like_any_other(tmp_path):
    (tmp_path / "interrupted.py").write_text(
        "import os, signal, sys\n"
        "from daco.cli import main\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'daco.commands.app':\n"
        "            exec('os.kill(os.getpid(), signal.SIGINT)')\n"
        "sys.meta_path.insert(0, Finder())\n"
        "main()\n"
    )
    command = [sys.executable, "-m", "interrupted"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (130, "Interrupted.\n")


LONG = "conf-soft-m100.0625-ldn-diff-K16"
GRID = ("raw-k1", "conf-soft-m0-k1", LONG, "conf-soft-m300-varmin-K16", "zscore-hard-varmin-K16")
MACHINES = ("hydraulic-press-in-the-third-hall-of-the-plant", "a-fan-with-a-name-of-many-words")
RECORDING = "2026-11-15_line-4_shift-2_microphone-near-the-gearbox_{:04d}.wav"
STUDY = (
    *("study", "--dev", "dev.parquet", "--eval", "eval.parquet", "--grid", "grid.txt"),
    *("--splits", "3", "--workers", "1", "--no-report"),
)
PREPARATION = (
    ("fit", MACHINES[0], "--out", "press.daco", "--config", "conf-soft-m300-varmin-K4"),
    (*STUDY, "--out", "run"),
    ("freeze", "run", "--out", "prereg.json"),
    (*STUDY, "--out", "later-run", "--seed", "1"),
)
PRINTED = (
    ("clips", MACHINES[0]),
    ("inspect", "press.daco", "--verbose"),
    ("score", "press.daco", f"{MACHINES[0]}/source"),
    (
        *("sensitivity", "press.daco", MACHINES[0], "--per-domain", "2"),
        *("--level", "-12", "--level", "0", "--fault", "tones"),
    ),
    ("select", "dev.parquet", "--grid", "grid.txt", "--splits", "3"),
    (*STUDY, "--out", "run"),
    ("compare", "run", "later-run"),
    ("verify", "prereg.json", "--run", "later-run"),
    ("evaluate", "scores"),
)
RUN_ALL = """
import json, sys
from daco.commands.app import app
for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments)
    except SystemExit as end:
        assert end.code in (0, None) or arguments[0] == "verify", (end.code, arguments)
    sys.stdout.write("=====\\n")
    sys.stdout.flush()
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the commands print to a pipe and in a terminal of 80 columns; all names are long."""
    folder = tmp_path_factory.mktemp("a-folder-with-quite-a-long-name") / "and-one-more-below-it"
    (folder / "scores").mkdir(parents=True)
    (folder / "grid.txt").write_text("\n".join(GRID), encoding="utf-8")
    machine_table(folder / "dev.parquet", MACHINES)
    machine_table(folder / "eval.parquet", [f"old-{MACHINES[0]}", "lathe"], seed=1)
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
    commands = [sys.executable, "-c", RUN_ALL, json.dumps([*PREPARATION, *PRINTED])]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    options = {"cwd": folder, "env": {**environment, "TERM": "xterm"}, "timeout": 300}
    piped = subprocess.run(commands, capture_output=True, check=False, **options)
    assert piped.returncode == 0, piped.stderr.decode()
    commands[-1] = json.dumps(PRINTED)
    shown = in_a_terminal(commands, stderr=subprocess.DEVNULL, **options)
    return tuple(
        dict(zip((each[0] for each in PRINTED), parts[-len(PRINTED) - 1 : -1], strict=True))
        for parts in (piped.stdout.decode().split("=====\n"), shown.split("=====\n"))
    )


def in_a_terminal(command, timeout, **options):
    """What a command prints in a terminal of 80 columns, without its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, **options) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal is an error to read
            while part := os.read(ours, 1 << 16):
                shown += part
        assert process.wait(timeout) == 0, shown.decode()
    os.close(ours)
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.decode()).replace("\r\n", "\n")


def names_and_numbers(text):
    """Words with a digit in them: configurations, numbers, paths and hashes."""
    return sorted(word for word in re.split(r"[\s│┃]+", text) if re.search(r"\d", word))


@pytest.mark.parametrize("name", [each[0] for each in PRINTED])
def test_names_and_numbers_stay_whole_in_a_pipe_and_in_a_terminal(printed, name):
    piped, shown = (each[name] for each in printed)
    assert names_and_numbers(piped) == names_and_numbers(shown)
    wide = [line for line in shown.splitlines() if len(line) > 80]
    longest = [max(map(len, line.split())) for line in wide]
    assert not wide or min(longest) >= len(LONG), "\n".join(wide)
    whole = {
        "clips": MACHINES[:1],
        "inspect": (MACHINES[0], "conf-soft-m300-varmin-K4"),
        "score": (RECORDING.format(0), "source/" + RECORDING.format(0)),
        "sensitivity": MACHINES[:1],
        "select": (*MACHINES, LONG),
        "study": ("conf-soft-m0-k1",),
        "compare": ("conf-soft-m0-k1",),
        "verify": ("conf-soft-m0-k1",),
        "evaluate": MACHINES[:1],
    }
    assert all(
        each in re.split(r"[\s,:;]+", piped) or each in piped.split() for each in whole[name]
    )


def test_text_in_a_pipe_is_not_wrapped(printed):
    piped, shown = (each["select"] for each in printed)
    advice = f"{MACHINES[0]}: use "
    (line,) = (line for line in piped.splitlines() if line.startswith(advice))
    assert len(line) > 80
    assert line not in shown
    assert line in " ".join(shown.split())


def test_a_name_longer_than_the_terminal_hides_no_column(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    table = new_table(["decision"], ["score"])
    table.add_column("recording")
    table.add_row("normal", "1.093", "x" * 90)
    Output().print(table)
    assert capsys.readouterr().out.split() == [
        *("decision", "score", "recording"),
        *("normal", "1.093", "x" * 90),
    ]
