"""The machines of a study side by side; what is finished is filed, and found again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from daco.compute.processes import outcomes
from daco.errors import DacoError
from daco.experiments.inputs import MachineData
from daco.experiments.machine import Arrays, Settings, machine_file, read_arrays, write_arrays
from daco.version import __version__

_LAYOUT = 2  # of the arrays in a file; files of another layout are computed again
_NAMED = 20  # machines that failed, in one message

Work = Callable[..., Arrays]
Loaded = Iterable[tuple[int, MachineData]]
Prepare = Callable[[Loaded, Settings], Iterable[tuple[int, tuple[Any, ...]]]]
"""Makes a work's arguments of machines as they are loaded, some of them at a time."""
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many machines are done, and how many there are."""


def run_machines(
    work: Work,
    machines: Sequence[MachineData],
    settings: Settings,
    *,
    pool: Executor | None,
    folder: Path | None = None,
    stage: str = "machines",
    progress: Progress | None = None,
    prepare: Prepare | None = None,
    brief: Callable[[Arrays], Arrays] | None = None,
) -> list[Arrays]:
    """`work` for every machine, in their order; those filed under the same key are not redone.

    `prepare` makes the arguments of `work`, by default the
    machine and the settings. `brief` is what is returned of arrays that are filed.

    Raises
    ------
    DacoError
        Some machines failed; the message names them. The others are filed.
    """
    found: dict[int, Arrays] = {}
    shortened = brief if brief is not None and folder is not None else lambda arrays: arrays
    files = [None if folder is None else machine_file(folder, m) for m in machines]
    for index, (file, data) in enumerate(zip(files, machines, strict=True)):
        # The key takes all vectors of the machine; without a file they are not read for it.
        if file is not None and file.is_file():
            earlier = read_arrays(file, _key(data, settings))
            if earlier is not None:
                found[index] = shortened(earlier)
    report = progress or (lambda stage, done, total: None)
    report(stage, len(found), len(machines))
    failures: dict[int, DacoError] = {}
    todo = [index for index in range(len(machines)) if index not in found]
    keys: dict[int, str] = {}

    def loaded() -> Iterator[tuple[int, MachineData]]:
        for index in todo:
            data = machines[index].loaded()
            if files[index] is not None:
                keys[index] = _key(data, settings)
            yield index, data

    for index, outcome in outcomes(pool, work, (prepare or _alone)(loaded(), settings)):
        if isinstance(outcome, DacoError):
            failures[index] = outcome
        else:
            # Here, not in the worker: that may be on a computer without this folder.
            if (file := files[index]) is not None:
                write_arrays(file, outcome, keys.pop(index))
            found[index] = shortened(outcome)
        report(stage, len(found) + len(failures), len(machines))
    if failures:
        raise _failed(machines, failures, kept=folder is not None)
    return [found[index] for index in range(len(machines))]


def _key(data: MachineData, settings: Settings) -> str:
    return f"{__version__}/{_LAYOUT}/{settings.key()}/{data.fingerprint()}"


def _alone(loaded: Loaded, settings: Settings) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for index, data in loaded:
        yield index, (data, settings)


def _failed(
    machines: Sequence[MachineData], failures: dict[int, DacoError], *, kept: bool
) -> DacoError:
    order = sorted(failures)  # not the one in which they happened to be finished
    listed = [
        f"{machines[i].split} machine {machines[i].title}: {failures[i]}" for i in order[:_NAMED]
    ]
    if len(order) > _NAMED:
        listed.append(f"... and {len(order) - _NAMED} more.")
    head = f"{len(failures)} of {len(machines)} machines could not be studied."
    tail = "The others are kept; the same command goes on from there." if kept else ""
    kind = type(failures[order[0]])
    return kind("\n".join([head, *listed, tail]).rstrip())
