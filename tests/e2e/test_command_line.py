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


def test_version_and_help():
    assert run("--version").stdout.startswith("daco 0.")
    assert "demo" in run("--help").stdout


def test_a_users_mistake_is_one_message_and_no_stack_trace():
    for result in (
        run("demo", "--seed", "x"),
        run("select", "--train", "nowhere.parquet"),
        run("nonsense"),
    ):
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
        assert result.stderr.strip()
