"""Feeds inputs to a child process and reports the outcomes, also when the child dies.

The suite tries a fixed range of inputs; ``make fuzz FUZZ_SECONDS=600`` random ones (explore.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fuzz.mutator import mutated

HERE = Path(__file__).resolve().parent

SECONDS = 2.0
"""Of processor time for one input, and a tenth of its time by the clock."""

MEMORY = 512 << 20
"""Address space beyond what the process has after it has seen every kind once."""

COUNTS = {
    "wav": 1000,
    "flac": 700,
    "model": 700,
    "manifest": 500,
    # and what else people may hand in:
    "ogg": 200,
    "aiff": 200,
    "mp3": 200,
    "list": 300,
    "parquet": 300,
}
"""Inputs of each kind in the suite."""


class Child:
    """A confined process for some kinds of inputs, started again when it died."""

    def __init__(self, *kinds: str, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._kinds = kinds
        self._limits = json.dumps([seconds, memory])
        self._errors = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._errors.close()

    def feed(self, kind: str, data: bytes) -> str:
        """``accepted``, the name of an error, or what went wrong after a ``!``."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([kind, data.hex()]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return str(json.loads(line)) if line.endswith("\n") else f"!{self._death()}"

    def _start(self) -> subprocess.Popen[str]:
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            [sys.executable, HERE / "child.py", self._limits, *self._kinds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",
                "MALLOC_ARENA_MAX": "2",  # arenas of threads would count as address space
                "ARROW_DEFAULT_MEMORY_POOL": "system",
                "OMP_NUM_THREADS": "1",
            },
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"The child could not begin: {self._death()}")
        return self._process

    def _death(self) -> str:
        """How the process ended, and the last it said."""
        assert self._process is not None
        code = self._process.wait()
        self._end()
        self._errors.seek(0)
        said = self._errors.read()[-2000:]
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the process died of {how}\n{said}"

    def _end(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what was not sent has no reader any more
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def failures(child: Child, kind: str, numbers: Iterable[int], outcomes: Counter[str]) -> list[str]:
    """A sentence for each mutated input that did what it must not; counts the outcomes of all."""
    found = []
    for number in numbers:
        outcome = child.feed(kind, mutated(kind, number))
        outcomes[outcome] += 1
        if outcome.startswith("!"):
            again = f"python tests/fuzz/mutator.py {kind} {number} OUT"
            found.append(f"{kind} {number}: {outcome[1:]}\n    to see it again: {again}")
    return found


def check(child: Child, kind: str) -> None:
    """Every input is accepted or refused with a reason, and there are enough of both."""
    count, outcomes = COUNTS[kind], Counter[str]()
    found = failures(child, kind, range(count), outcomes)
    assert not found, "\n\n".join(found[:20])
    # Mutations that all fail at the first byte, or none, would test nothing.
    accepted = outcomes.pop("accepted")
    assert accepted >= count / 100, outcomes
    assert outcomes.total() >= count / 4, outcomes
