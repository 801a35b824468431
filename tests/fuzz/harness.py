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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

SECONDS = 2.0
"""Of processor time, and by the clock, for one input."""

MEMORY = 512 << 20
"""Address space beyond what the process has after it has seen every kind once."""

MOST_DEATHS = 10

COUNTS = {
    "wav": 3500,
    "flac": 2500,
    "model": 2000,
    "manifest": 2000,
    # and what else people may hand in:
    "ogg": 400,
    "aiff": 400,
    "mp3": 400,
    "list": 500,
    "parquet": 500,
}
"""Inputs of each kind in the suite."""


@dataclass
class Findings:
    """What became of many inputs.

    Attributes
    ----------
    outcomes : Counter
        ``accepted``, the names of daco's errors, ``wrong`` and ``died``.
    failures : list of str
        A sentence for each input that did what it must not.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def refused(self) -> int:
        return sum(n for name, n in self.outcomes.items() if name.endswith("Error"))


class Child:
    """A confined process for some kinds of inputs, started again when it died."""

    def __init__(self, *kinds: str, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._kinds = kinds
        self._limits = json.dumps([seconds, seconds, memory])
        self._place = tempfile.NamedTemporaryFile(prefix="daco-fuzz-at-")  # noqa: SIM115
        self._errors = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._place.close()
        self._errors.close()

    def feed(self, kind: str, data: bytes) -> str:
        """What became of one input: ``accepted``, the name of an error, or what went wrong."""
        answer = self._ask({"kind": kind, "data": data.hex()})
        if answer is None:
            return self._death()
        return answer["failures"][0][1] if answer["failures"] else next(iter(answer["outcomes"]))

    def run(self, kind: str, start: int, stop: int) -> Findings:
        """What became of the inputs of a range of numbers."""
        found = Findings()
        ranges = [(start, stop)]
        while ranges:
            start, stop = ranges.pop()
            answer = self._ask({"kind": kind, "start": start, "stop": stop})
            if answer is None:  # with it died what it knew about those before
                index = self._index()
                found.failures.append(_sentence(kind, index, self._death()))
                found.outcomes["died"] += 1
                if found.outcomes["died"] >= MOST_DEATHS:
                    break
                around = ((start, index), (index + 1, stop))
                ranges += [each for each in around if each[0] < each[1]]
                continue
            found.outcomes.update(answer["outcomes"])
            found.failures += [_sentence(kind, *each) for each in answer["failures"]]
        return found

    def _ask(self, request: dict[str, Any]) -> Any:
        """The answer, or None from a process that died over it."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line.endswith("\n") else None

    def _start(self) -> subprocess.Popen[str]:
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            [sys.executable, HERE / "child.py", self._place.name, self._limits, *self._kinds],
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

    def _index(self) -> int:
        text = Path(self._place.name).read_text("ascii").strip()
        return int(text) if text else -1

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


def check(child: Child, kind: str) -> None:
    """Every input is accepted or refused with a reason, and there are enough of both."""
    count = COUNTS[kind]
    found = child.run(kind, 0, count)
    assert not found.failures, "\n\n".join(found.failures[:20])
    assert found.outcomes.total() == count
    # Mutations that all fail at the first byte, or none, would test nothing.
    assert found.outcomes["accepted"] >= count / 100, found
    assert found.refused >= count / 4, found


def _sentence(kind: str, index: int, what: str) -> str:
    again = f"python tests/fuzz/mutator.py {kind} {index} OUT"
    return f"{kind} {index}: {what}\n    to see it again: {again}"
