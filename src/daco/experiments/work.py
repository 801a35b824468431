"""The work of a study on its machines: handed out to workers, kept in the folder of the run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from daco.compute.processes import outcomes
from daco.errors import DacoError
from daco.experiments.machine import Settings, p_values, reference_scores, study_machine
from daco.experiments.machine_data import MachineData, left_out, require_some
from daco.experiments.run_files import P_VALUE
from daco.experiments.run_folder import MachineRows, RunFolder
from daco.text import quantity
from daco.validation import Float64s
from daco.version import __version__

Progress = Callable[[str, int, int], None]
"""Called with the stage, the number of machines done, and their total."""

Key = tuple[str, str, str]
"""Set, machine and section."""

_LAYOUT = 1  # of the rows; those of another layout are computed again


@dataclass(frozen=True)
class Work:
    """What is done for each machine, unless a folder has it from before.

    Attributes
    ----------
    settings : Settings
    pool : Executor or None
        The workers, as :func:`daco.compute.processes.worker_pool` gives them.
    folder : RunFolder or None
        Where finished machines are kept.
    progress : callable or None
    notes : list of str
        Sentences about machines that are left out, or odd, are added to it.
    """

    settings: Settings
    pool: Executor | None
    folder: RunFolder | None
    progress: Progress | None
    notes: list[str]

    def score(self, machines: Sequence[MachineData]) -> dict[Key, MachineRows]:
        """Return the rows of each machine, in their order; one that fails is left out."""
        keys: dict[Key, str] = {}
        found: dict[Key, MachineRows] = {}
        failures: dict[Key, DacoError] = {}

        def items() -> Iterator[tuple[MachineData, tuple[Any, ...]]]:
            for machine in machines:
                data = machine.loaded()
                keys[data.key] = self._key(data)
                self._note_copies(data)
                known = None if self.folder is None else self.folder.rows(keys[data.key])
                if known is None:
                    yield machine, (data, self.settings)
                else:
                    found[data.key] = known

        for machine, outcome in outcomes(self.pool, study_machine, items()):
            if isinstance(outcome, DacoError):
                failures[machine.key] = outcome
            else:
                rows = found[machine.key] = MachineRows.of(machine, outcome, keys[machine.key])
                if self.folder is not None:
                    self.folder.write_rows(rows)
            self._advance("scoring", len(found) + len(failures), len(machines))
        self._advance("scoring", len(machines), len(machines))
        lost = {each.where: failures[each.key] for each in machines if each.key in failures}
        self.notes.extend(left_out(lost))
        require_some(found, self.notes)
        return {each.key: found[each.key] for each in machines if each.key in found}

    def decide(
        self,
        machines: Sequence[MachineData],
        rows: Mapping[Key, MachineRows],
        configs: Sequence[str],
    ) -> dict[Key, MachineRows]:
        """Return the rows with p-values of all `configs`."""
        result = dict(rows)

        def items() -> Iterator[tuple[MachineData, tuple[Any, ...]]]:
            for machine in machines:
                known = rows[machine.key].clips
                missing = [name for name in configs if not _is_decided(known, name)]
                if missing:
                    yield machine, (machine.loaded(), self.settings, missing)

        for done, (machine, outcome) in enumerate(outcomes(self.pool, reference_scores, items())):
            if isinstance(outcome, DacoError):
                raise outcome
            scored = rows[machine.key]
            result[machine.key] = replace(scored, clips=_with_p_values(scored.clips, outcome))
            if self.folder is not None:
                self.folder.write_rows(result[machine.key])
            self._advance("deciding", done + 1, len(machines))
        return result

    def _key(self, data: MachineData) -> str:
        """Text that changes whenever the rows of a machine would."""
        asked = f"{__version__}/{_LAYOUT}/{self.settings.text()}/{data.fingerprint()}"
        return hashlib.sha256(asked.encode()).hexdigest()[:32]

    def _note_copies(self, data: MachineData) -> None:
        if copies := data.copies:
            self.notes.append(
                f"{data.where}: {quantity(copies, 'test clip')} with the same vector as a "
                "training clip. Scores of such clips mean nothing: remove them."
            )

    def _advance(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)


def _is_decided(clips: pa.Table, config: str) -> bool:
    name = P_VALUE + config
    return name in clips.column_names and not clips[name].null_count


def _with_p_values(clips: pa.Table, references: Mapping[str, Float64s]) -> pa.Table:
    """The clips of a machine with p-values by these reference scores of its normals."""
    n = len(next(iter(references.values())))
    domains = clips["domain"].to_numpy()[:n]
    weights = clips["weight_target"].to_numpy()[n:]
    for config, scores in references.items():
        values = p_values(config, scores, domains, clips[config].to_numpy()[n:], weights)
        column = pa.array(np.concatenate([np.full(n, np.nan), values]))
        if (name := P_VALUE + config) in clips.column_names:
            clips = clips.drop_columns(name)
        clips = clips.append_column(name, column)
    return clips
