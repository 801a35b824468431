"""The folder of a run: two tables, ``run.json`` and the report; while it runs, parts of machines.

Rows of a machine are found by their key, a hash of its data and of the settings, among the parts
and in the tables of a finished run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from daco.errors import DataError, InputError
from daco.experiments.machine import MachineScores
from daco.experiments.machine_data import MachineData
from daco.experiments.run_files import CLIPS, CRITERIA, REPORT, RUN, write_run
from daco.files.atomic import atomic_write
from daco.files.hashing import sha256_of_file
from daco.text import name_list
from daco.validation import Float64s

PARTS = "parts"

_FACTS = b"daco.machine"
_KEY = ("set", "machine", "section")
_TEXT = (*_KEY, "configuration", "measure")


@dataclass(frozen=True, eq=False)
class MachineRows:
    """The rows of one machine in the tables of a study, and facts about it for ``run.json``."""

    clips: pa.Table
    criteria: pa.Table
    facts: dict[str, Any]

    @classmethod
    def of(cls, data: MachineData, scores: MachineScores, key: str) -> Self:
        """Make the rows of what was computed; `key` finds them again."""
        n, n_test = len(data.domains), len(data.clips)
        columns: dict[str, Any] = _constants(data, n + n_test)
        columns["split"] = np.repeat(["train", "test"], [n, n_test])
        columns["clip"] = np.concatenate([data.normals, data.clips])
        columns["domain"] = np.concatenate([data.domains, data.test_domains])
        columns["label"] = np.concatenate([np.zeros(n, np.int8), data.labels])
        criteria = [_NO_CRITERIA, *(_criteria(data, *each) for each in scores.criteria)]
        return cls(
            pa.table(columns | scores.columns),
            pa.concat_tables(criteria),
            {**scores.facts, "key": key},
        )


def _constants(data: MachineData, count: int) -> dict[str, pa.Array]:
    values = zip(_KEY, data.key, strict=True)
    return {name: pa.repeat(value, count) for name, value in values}


def _criteria(
    data: MachineData,
    measure: str,
    splits: Sequence[int],
    configs: Sequence[str],
    values: Float64s,
) -> pa.Table:
    """Rows of one measure, by configuration and split."""
    rows = np.repeat(np.arange(len(configs)), len(splits))
    return pa.table(
        {
            **_constants(data, len(rows)),
            "configuration": pa.array(list(configs), pa.string()).take(pa.array(rows)),
            "measure": pa.repeat(measure, len(rows)),
            "split": np.tile(np.array(splits, np.int32), len(configs)),
            "value": np.ascontiguousarray(values).ravel(),
        }
    )


_NO_CRITERIA = pa.table(
    {name: pa.array([], pa.string()) for name in _TEXT}
    | {"split": pa.array([], pa.int32()), "value": pa.array([], pa.float64())}
)


class RunFolder:
    """The files of one run.

    Parameters
    ----------
    path : Path
        A new or empty folder, or that of a run. Another one raises an `InputError`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._parts = path, path / PARTS
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file. Choose a folder for the results.")
        is_run = self._parts.is_dir() or (path / RUN).is_file()
        if path.is_dir() and not is_run and any(path.iterdir()):
            raise InputError(f"{path} holds other files. Choose a new folder for the results.")
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{path} cannot be created: {error.strerror}.") from None

    def require_own(self, machines: Sequence[tuple[str, str, str]]) -> None:
        """Raise an `InputError` if the folder has a finished run with other machines."""
        earlier = [tuple(each[name] for name in _KEY) for each in self._run.get("machines", ())]
        others = [f"{which} machine {name}" for which, name, _ in set(earlier) - set(machines)]
        if others:
            raise InputError(
                f"{self.path} is of another study, which has {name_list(sorted(others), 3)}. "
                "Choose another folder, or delete it."
            )

    @cached_property
    def _run(self) -> dict[str, Any]:
        """The document of a finished run; empty if there is none."""
        try:
            run = json.loads((self.path / RUN).read_text(encoding="utf-8"))
            return run if isinstance(run, dict) else {}
        except (OSError, ValueError):
            return {}

    @cached_property
    def _finished(self) -> dict[str, MachineRows]:
        """Rows of the machines of a finished run by their keys."""
        try:
            tables = [pq.read_table(self.path / name) for name in (CLIPS, CRITERIA)]
            clips, criteria = map(_by_machine, tables)
            found = {}
            for facts in self._run["machines"]:
                key = tuple(facts[name] for name in _KEY)
                own = criteria.get(key, tables[1].slice(0, 0))
                found[facts["key"]] = MachineRows(clips[key], own, facts)
            return found
        except (OSError, KeyError, TypeError, pa.ArrowException):
            return {}  # not a finished run, or a damaged one: computed again

    def rows(self, key: str) -> MachineRows | None:
        """Return the rows of a machine, or None if they are to be computed."""
        try:
            clips, criteria = (pq.read_table(path) for path in self._files(key))
            facts = json.loads(criteria.schema.metadata[_FACTS])
            return MachineRows(clips, criteria.replace_schema_metadata(), facts)
        except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):
            return self._finished.get(key)

    def write_rows(self, rows: MachineRows) -> None:
        """Keep the rows of a machine until the run is finished."""
        facts = {_FACTS: json.dumps(rows.facts).encode()}
        tables = rows.clips, rows.criteria.replace_schema_metadata(facts)
        for path, table in zip(self._files(rows.facts["key"]), tables, strict=True):
            with atomic_write(path) as temporary:
                pq.write_table(table, temporary, compression="none", use_dictionary=False)

    def write(self, clips: pa.Table, criteria: pa.Table, run: Mapping[str, Any]) -> dict[str, Any]:
        """Write the tables and then ``run.json``, which says that the run is finished."""
        earlier = dict(self._run)
        (self.path / RUN).unlink(missing_ok=True)
        for name, table in ((CLIPS, clips), (CRITERIA, criteria)):
            with atomic_write(self.path / name) as temporary:
                pq.write_table(table, temporary, compression="zstd", use_dictionary=_texts(table))
        hashes = {name: sha256_of_file(self.path / name) for name in (CLIPS, CRITERIA)}
        finished: dict[str, Any] = json.loads(json.dumps({**run, "tables": hashes}))
        same = ("tables", "choice", "settings", "notes")
        if any(earlier.get(name) != finished[name] for name in same):
            (self.path / REPORT).unlink(missing_ok=True)  # it is of other tables
        write_run(self.path, finished)
        shutil.rmtree(self._parts, ignore_errors=True)
        return finished

    def _files(self, key: str) -> tuple[Path, Path]:
        return self._parts / f"{key}.clips.parquet", self._parts / f"{key}.criteria.parquet"


def _texts(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_string(field.type)]


def _by_machine(table: pa.Table) -> dict[tuple[str, ...], pa.Table]:
    """The rows of each machine, which follow each other."""
    changes = np.zeros(max(len(table) - 1, 0), np.bool_)
    for name in _KEY:
        column = table[name].combine_chunks()
        changes |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()] if len(table) else []
    parts = [
        table.slice(start, stop - start)
        for start, stop in zip(starts, [*starts[1:], len(table)], strict=True)
    ]
    return {tuple(part[name][0].as_py() for name in _KEY): part for part in parts}
