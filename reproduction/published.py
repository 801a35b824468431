"""The tables that the authors of the paper published, from a folder or ZIP file.

A table is used only if it is complete: every configuration of its grid, every machine of its year,
every clip of a machine. An error names the file that is not.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from daco.data.dcase import MACHINES, parse_name
from daco.errors import DataError
from daco.evaluation.metrics import QUANTITIES
from daco.method.config import paper_grid
from daco.text import name_list

Content = TypeVar("Content")


class Setting(NamedTuple):
    """One year, backbone or channel policy: a grid, and the machines behind it."""

    year: int
    grid: str
    machines: str
    size: int = 51
    policy: str | None = None


SETTINGS = {
    "45": Setting(2025, "e3_config_grid.csv", "e3_per_machine.csv", size=45),
    "beats": Setting(2025, "e45_beats_grid.csv", "e45_beats_per_machine.csv"),
    "eat": Setting(2025, "e45_eat_grid.csv", "e45_eat_per_machine.csv"),
    "panns": Setting(2025, "e45_panns_grid.csv", "e45_panns_per_machine.csv"),
    "2023": Setting(2023, "rep_2023_grid.csv", "rep_2023_per_machine.csv"),
    "2024": Setting(2024, "rep_2024_grid.csv", "rep_2024_per_machine.csv"),
    "ch0": Setting(2026, "e8_2026_grid.csv", "e8_2026_per_machine_ch0.csv", policy="ch0"),
    "mix": Setting(2026, "e8_2026_grid.csv", "e8_2026_per_machine_mix.csv", policy="mix"),
}
DEV, EVAL = MACHINES[2025]["dev"], MACHINES[2025]["eval"]
METRICS = list(QUANTITIES)

_CLIPS = 200  # of each machine
_FILES = ("results/*", "release/**/*", "*/results/*", "*/release/**/*")
_WANTED = "a clone of polestvr/daco-experiments, or a ZIP file of it"
_NAMES = {  # of columns: the authors', and those of a study
    "config": "configuration",
    "dev_omega": "dev_score",
    "eval_omega": "eval_score",
    "crit_dev": "criterion_dev",
    "crit_eval": "criterion_eval",
    "balance_ks": "criterion",
}


class PublishedError(DataError):
    """A published file is missing or damaged; the message names it."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file} {what}.")


@dataclass(frozen=True, eq=False)
class Published:
    """The authors' files by their path in the repository, such as ``results/e1_dev.csv``."""

    files: Mapping[str, bytes]

    def read(self, file: str, read: Callable[[bytes], Content]) -> Content:
        """What `read` makes of a file."""
        if file not in self.files:
            raise PublishedError(file, "does not exist")
        try:
            return read(self.files[file])
        except ValueError as error:
            raise PublishedError(file, f"cannot be read ({error})") from None

    def text(self, file: str) -> str:
        """The text of a file."""
        return self.read(file, lambda content: content.decode("utf-8-sig"))

    def table(
        self, file: str, rows: Mapping[str, Sequence[Any]], values: Sequence[str], **part: str
    ) -> pd.DataFrame:
        """A CSV file with every combination of `rows` once, and finite numbers in `values`.

        `part` selects rows by the text in a column. Columns are given by the names in the file and
        returned with those of a study.
        """
        where = f"results/{file}"
        table = self.read(where, lambda content: pd.read_csv(io.BytesIO(content), dtype=str))
        columns = list(dict.fromkeys((*part, *rows, *values)))
        if absent := [name for name in columns if name not in table]:
            raise PublishedError(where, f"has no column {name_list(absent)}")
        for name in values:
            table[name] = pd.to_numeric(table[name], errors="coerce").astype(float)
        known = table[columns].replace([np.inf, -np.inf], np.nan).notna().all()
        if not known.all():
            raise PublishedError(where, f"is damaged in column {name_list(known.index[~known])}")
        for name, value in part.items():
            table = table[table[name] == value]
        wanted = pd.DataFrame(list(product(*rows.values())), columns=list(rows))
        found = wanted.merge(table[columns])
        if not len(found) == len(wanted) == len(table):
            raise PublishedError(where, f"has {len(found)} of {len(wanted)} rows")
        return found.drop(columns=list(part)).rename(columns=_NAMES)

    @cache  # noqa: B019
    def grid(self, setting: str, *, frozen: bool = False) -> pd.DataFrame:
        """Scores and criteria by configuration; only those of dev before the labels of 2026."""
        known = SETTINGS[setting]
        file = "prereg2026_grid.csv" if frozen else known.grid
        columns = ["dev_omega", "crit_dev", "eval_omega", "crit_eval"]
        rows = {"config": [config.name for config in paper_grid(known.size)]}
        part = {"policy": known.policy} if known.policy else {}
        table = self.table(file, rows, columns[: 2 if frozen else 4], **part)
        return table.set_index("configuration")

    @cache  # noqa: B019
    def metrics(self, setting: str, of: str) -> pd.DataFrame:
        """Metrics in percent and criterion of each machine and configuration of a set."""
        known = SETTINGS[setting]
        file, part = known.machines, {"split": of}
        if known.policy:
            part = {"policy": known.policy}
            file = f"prereg2026_per_machine_{known.policy}.csv" if of == "dev" else file
        configurations = [config.name for config in paper_grid(known.size)]
        rows = {"machine": MACHINES[known.year][of], "config": configurations}
        return self.table(file, rows, [*METRICS, "balance_ks"], **part)

    @cache  # noqa: B019
    def clips(self, configuration: str, of: str, machine: str) -> pd.DataFrame:
        """Scores of the clips of a machine (BEATs, 2025), and labels and domains of dev clips."""
        name = f"anomaly_score_{machine}_section_00_test.csv"
        file = f"release/scores/{configuration}/{of}/{name}"
        lines = self.text(file).split()
        try:
            scores = dict(line.split(",") for line in lines)
            table = pd.DataFrame({"score": pd.Series(scores).astype(float)})
        except ValueError:
            raise PublishedError(file, "is damaged: not a name and a score in each line") from None
        if of == "dev":
            names = [parse_name(name) for name in scores]
            table["label"] = [name.label if name else None for name in names]
            table["domain"] = [name.domain if name else None for name in names]
        if len(table.dropna()) != _CLIPS:
            raise PublishedError(file, f"has {len(table.dropna())} of {_CLIPS} clips")
        return table


def open_published(path: Path | str) -> Published:
    """Read a clone of the authors' repository, a folder with one, or a ZIP file of it."""
    root = Path(path).expanduser()
    try:
        if root.is_dir():
            paths = (file for pattern in _FILES for file in root.glob(pattern))
            files = {file.as_posix(): file.read_bytes() for file in paths if file.is_file()}
        else:
            with zipfile.ZipFile(root) as archive:
                files = {name: archive.read(name) for name in archive.namelist()}
    except FileNotFoundError:
        raise DataError(f"{root} does not exist. Give {_WANTED}.") from None
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError) as error:
        raise DataError(f"{root} cannot be read ({error}). Give {_WANTED}.") from None
    grids = [name for name in files if re.search(r"\bresults/\w+_grid\.csv$", name)]
    if not grids:
        raise DataError(
            f"{root} holds none of the paper's files: it has no results/*_grid.csv. Give {_WANTED}."
        )
    folder = min(grids, key=len).rpartition("results/")[0]
    return Published({name.removeprefix(folder): content for name, content in files.items()})
