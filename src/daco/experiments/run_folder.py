"""The folder of a run: two tables, ``run.json`` and the report; while it runs, parts of machines.

Rows of a machine are found by their key, a hash of its data and of the settings, among the parts
and in the tables of a finished run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from daco.errors import DataError, InputError
from daco.experiments.machine import MachineRows
from daco.experiments.machine_data import MACHINE
from daco.files.atomic import atomic_write
from daco.files.hashing import sha256_of_file
from daco.text import name_list

CLIPS, CRITERIA, RUN, REPORT = "clips.parquet", "criteria.parquet", "run.json", "report.html"
PARTS = "parts"


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
        earlier = [tuple(each[name] for name in MACHINE) for each in self._run.get("machines", ())]
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
        """Rows of the machines of a finished run by their keys; none if it is damaged."""
        try:
            tables = [pd.read_parquet(self.path / name) for name in (CLIPS, CRITERIA)]
            clips, criteria = (dict(iter(table.groupby(MACHINE, sort=False))) for table in tables)
            found = {}
            for facts in self._run["machines"]:
                key = tuple(facts[name] for name in MACHINE)
                found[facts["key"]] = MachineRows(
                    clips[key], criteria.get(key, tables[1][:0]), facts
                )
            return found
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def rows(self, key: str) -> MachineRows | None:
        """Return the rows of a machine, or None if they are to be computed."""
        try:
            facts = json.loads((self._parts / f"{key}.json").read_text(encoding="utf-8"))
            clips, criteria = (pd.read_parquet(self._part(key, name)) for name in (CLIPS, CRITERIA))
            return MachineRows(clips, criteria, facts)
        except (OSError, ValueError):
            return self._finished.get(key)

    def write_rows(self, rows: MachineRows) -> None:
        """Keep the rows of a machine until the run is finished."""
        key = rows.facts["key"]
        with atomic_write(self._parts / f"{key}.json") as temporary:  # last: the part is whole then
            for name, table in ((CLIPS, rows.clips), (CRITERIA, rows.criteria)):
                table.to_parquet(self._part(key, name), compression=None, index=False)
            temporary.write_text(json.dumps(rows.facts), encoding="utf-8")

    def _part(self, key: str, name: str) -> Path:
        return self._parts / f"{key}.{name}"

    def write_tables(self, clips: pd.DataFrame, criteria: pd.DataFrame) -> dict[str, str]:
        """Write the two tables, and return the SHA-256 of their files."""
        (self.path / RUN).unlink(missing_ok=True)
        hashes: dict[str, str] = {}
        for name, table in ((CLIPS, clips), (CRITERIA, criteria)):
            texts = [name for name in table if table[name].dtype == "str"]
            with atomic_write(self.path / name) as temporary:
                table.to_parquet(temporary, compression="zstd", use_dictionary=texts, index=False)
            hashes[name] = sha256_of_file(self.path / name)
        return hashes

    def finish(self, run: Mapping[str, Any]) -> None:
        """Write ``run.json``, which says that the run is finished."""
        earlier = self._run
        if any(
            earlier.get(name) != run[name] for name in ("tables", "choice", "settings", "notes")
        ):
            (self.path / REPORT).unlink(missing_ok=True)  # it is of other tables
        write_run(self.path, run)
        shutil.rmtree(self._parts, ignore_errors=True)


def write_run(folder: Path, run: Mapping[str, Any]) -> None:
    """Write ``run.json``; the order of keys is kept."""
    text = json.dumps(run, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(folder / RUN) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
