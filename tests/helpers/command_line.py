"""The ``daco`` command in this process, in a terminal of 80 columns, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from typer.testing import CliRunner

from daco.commands.app import app
from daco.errors import DacoError

NARROW = {"COLUMNS": "80"}


def run(*arguments, code=0, environment=NARROW):
    """The result of a command that ends with an exit code; an unexpected error is raised."""
    result = CliRunner(env=environment).invoke(app, list(map(str, arguments)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def said(*arguments, code=0):
    """What a command prints in lines of 80 columns, in one line; paths may exceed them."""
    stdout = run(*arguments, code=code).stdout
    for line in stdout.splitlines():
        assert len(line) <= 80 or os.sep in line, line
    return " ".join(stdout.split())


def printed(*arguments, code=0):
    """All that a command prints, its notes and warnings too, in one line."""
    return " ".join(run(*arguments, code=code).output.split())


def refused(*arguments):
    """The error that a user's mistake ends with; 'daco' prints it and exits with 2."""
    result = CliRunner(env=NARROW).invoke(app, list(map(str, arguments)))
    assert isinstance(result.exception, DacoError), result.output
    return result.exception


_SIGNALLED = """
import os, signal, sys
number, suffix, count = int(sys.argv.pop(1)), sys.argv.pop(1), int(sys.argv.pop(1))

def notice(event, arguments):
    global count
    if event == "os.rename" and os.fspath(arguments[1]).endswith(suffix):
        count -= 1
        if count == 0:
            os.killpg(0, number)
            if number == signal.SIGSTOP:  # which may reach other threads first
                signal.pause()

sys.addaudithook(notice)
from daco.cli import main
main()
"""


def signalled(number, suffix, count, *arguments):
    """A command in a process group that gets a signal before its `count`-th file is in place.

    Only files whose names end with `suffix` count, and only those of the first process.
    """
    given = map(str, (int(number), suffix, count, *arguments))
    return subprocess.Popen(
        [sys.executable, "-c", _SIGNALLED, *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def process(*arguments, environment=NARROW, **options):
    """The finished process of a command."""
    command = [sys.executable, "-m", "daco.cli", *map(str, arguments)]
    options = {"timeout": 300, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, env={**os.environ, **environment}, **options)
