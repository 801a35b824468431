"""The command as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "daco.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80", **environment},
        timeout=300,
        check=False,
    )


def test_demo_prints_the_selection_table_in_80_columns():
    result = run("demo")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 80
    for rule in ("random", "dev score", "guarded criterion", "per-machine blind", "oracle"):
        assert rule in result.stdout
    strip = [line for line in result.stdout.splitlines() if " s." not in line]  # the time
    again = [line for line in run("demo").stdout.splitlines() if " s." not in line]
    assert strip == again


def test_version_and_help():
    assert run("--version").stdout.startswith("daco 0.")
    assert "demo" in run("--help").stdout


def test_a_users_mistake_is_one_message_and_no_stack_trace():
    for result in (
        run("demo", "--seed", "x"),
        run("demo", DACO_KERNELS="fortran"),
        run("nonsense"),
    ):
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
        assert result.stderr.strip()
