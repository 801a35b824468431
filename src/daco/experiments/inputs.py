"""Inputs of a study: embedding tables, their domains and years."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import Clip
from daco.data.dcase import require_normal_names
from daco.data.dcase_truth import inject_truth
from daco.data.table import EmbeddingTable, read_without_vectors
from daco.errors import InputError
from daco.files.remote import Location, is_remote
from daco.text import name_list, quantity
from daco.validation import Float32s, Indices

SOURCE, TARGET = "source", "target"
BUDGET = 256 * 2**20
"""Bytes of vectors that are read from a file together: 70 machines of the paper's size."""

Source: TypeAlias = "EmbeddingTable | Location | str"
"""A table, or the file it is in."""


@dataclass(eq=False)
class VectorReader:
    """Vectors of the machines of a table, given their `rows`.

    A machine's vectors are read on first access, together with those of the next machines that
    fit into `BUDGET`. A table in memory is only indexed.
    """

    table: EmbeddingTable
    readout: str | None
    rows: Sequence[Indices]
    _loaded: dict[int, Float32s] = field(default_factory=dict, init=False)

    def vectors(self, machine: int) -> Float32s:
        """Vectors of one machine, in the order of its rows; read-only."""
        if not self.table.stored():
            return self.table.vectors(self.rows[machine], self.readout)
        if machine not in self._loaded:
            self._loaded = {}  # frees the memory before the next read
            ends = np.cumsum([len(rows) for rows in self.rows[machine:]])
            n_values = BUDGET // 4 // self.table.layout(self.readout).dim
            count = max(1, int(np.searchsorted(ends, n_values, side="right")))
            together = np.concatenate(self.rows[machine : machine + count])
            matrix = self.table.vectors(together, self.readout)
            matrix.flags.writeable = False
            self._loaded = dict(enumerate(np.split(matrix, ends[: count - 1]), machine))
        return self._loaded[machine]


@dataclass(frozen=True)
class DomainNames:
    """Which domain of the data is the paper's source and which its target.

    There is no target where every machine has one domain, which is called source then.
    """

    source: str
    target: str | None

    def rename(self, domains: NDArray[Any]) -> NDArray[np.str_]:
        """Domains of the data as ``source`` and ``target``; "" for any other."""
        if self.target is None:
            return np.full(len(domains), SOURCE)
        known = {self.source: SOURCE, self.target: TARGET}
        # A test clip of a third domain is as good as unknown: no quantile map was fitted for it.
        return np.array([known.get(domain, "") for domain in domains.tolist()], dtype=np.str_)


def read_table(table: Source, columns: tuple[str, ...] = ()) -> EmbeddingTable:
    """A table in memory as it is; a Parquet file without its vectors, which are read when needed.

    ``columns`` of the file are kept besides those of every table.
    """
    if isinstance(table, EmbeddingTable):
        return table
    if not isinstance(table, str | PathLike) and not is_remote(table):
        raise InputError(
            "A study takes an EmbeddingTable or the path of one; EmbeddingTable.from_arrays makes "
            f"one from arrays. Got {type(table).__name__} instead."
        )
    return read_without_vectors(table, columns)


def read_tables(
    dev: Source, eval: Source | None, truth: Path | str | None, notes: list[str]
) -> dict[str, EmbeddingTable]:
    """The tables of a study by set; a machine may be in one of them only."""
    tables = {"dev": read_table(dev)}
    if eval is not None:
        tables["eval"] = read_table(eval)
    elif truth is not None:
        raise InputError("'truth' belongs to evaluation clips. Give 'eval' too.")
    if truth is not None:
        tables["eval"] = with_truth(tables["eval"], truth, notes)
    keys = ("year", "machine", "section")  # until 2022 other sections of the same machines
    machines = [set(rows_by(table, *keys)) for table in tables.values()]
    if len(machines) == 2 and (both := machines[0] & machines[1]):
        raise InputError(
            f"Machine {min(machine for _, machine, _ in both)!r} is in both the dev and the eval "
            "table. Evaluation machines must be new to the choice: leave it out of one of them."
        )
    return tables


def with_truth(table: EmbeddingTable, truth: Path | str, notes: list[str]) -> EmbeddingTable:
    """The table, with labels and domains of its test clips from an evaluator's checkout."""
    fields = ("path", "machine", "year", "section", "domain", "split", "label")
    rows = zip(*(table.columns[name].tolist() for name in fields), strict=True)
    clips = [Clip(**dict(zip(fields, row, strict=True))) for row in rows]
    known = inject_truth(clips, truth, oddities=notes)
    changed = dict(table.columns)
    for name in ("label", "domain"):
        changed[name] = np.array([getattr(clip, name) for clip in known], dtype=object)
    return replace(table, columns=changed)


def name_domains(tables: Iterable[EmbeddingTable]) -> DomainNames:
    """The two domains of the training clips; the one with more clips is the source.

    Domains called ``source`` and ``target`` keep these roles. Where no machine has two domains,
    there is one; where others have, a machine with one says nothing.
    """
    machines: list[Counter[str | None]] = []
    for table in tables:
        train = np.flatnonzero(table.columns["split"] == "train")
        by_machine = rows_by(table, "machine", "section", rows=train).values()
        machines += (Counter(table.columns["domain"][rows].tolist()) for rows in by_machine)
    several = [mine for mine in machines if len(mine) > 1]
    sizes = sum(several or machines, Counter[str | None]())
    if machines and not several:
        return DomainNames(name_list(name for name in sizes if name is not None), None)
    if None in sizes:
        raise InputError(
            f"{quantity(sizes[None], 'training clip')} without a domain. A study needs the domain "
            "of every normal clip: fill the 'domain' column."
        )
    named = {str(name): size for name, size in sizes.items()}
    if set(named) == {SOURCE, TARGET}:
        return DomainNames(SOURCE, TARGET)
    if len(named) != 2:
        found = name_list(map(repr, sorted(named))) if named else "none"
        raise InputError(
            f"A study compares two domains, the old condition and the new one. The training clips "
            f"have {len(named)}: {found}. Use 'daco select' or daco.NormalBank for another number."
        )
    target, source = sorted(named, key=lambda name: (named[name], name))
    return DomainNames(source, target)


def require_normals(table: EmbeddingTable, train: Indices) -> None:
    """Raise an `InputError` where training clips are anomalies."""
    refuse_clips(table, train, "label", 1, "labelled as anomaly")
    require_normal_names(table.columns["path"][train].tolist())


def refuse_clips(table: EmbeddingTable, train: Indices, column: str, value: Any, what: str) -> None:
    """Raise an `InputError` where training clips have a value in a column; `what` describes it."""
    found = table.columns["machine"][train][table.columns[column][train] == value].tolist()
    if found:
        raise InputError(
            f"{quantity(found, 'training clip')} {what} (machines: "
            f"{name_list(dict.fromkeys(found))}). Remove or correct them."
        )


def year_of(table: EmbeddingTable, title: str = "") -> int | None:
    """The year of a table, where it has one; an error where it has several."""
    years = sorted(set(table.columns["year"].tolist()) - {None})
    if len(years) > 1:
        raise InputError(
            f"The {title} table mixes the years {', '.join(map(str, years))}; machines of one name "
            "differ between years. Study one year at a time: table.select(year=...)."
        )
    return years[0] if years else None


def rows_by(table: EmbeddingTable, *names: str, rows: Indices | None = None) -> dict[Any, Indices]:
    """Rows by the values of these columns, in order of appearance."""
    rows = np.arange(len(table)) if rows is None else rows
    found: dict[Any, list[int]] = {}
    keys = zip(*(table.columns[name][rows].tolist() for name in names), strict=True)
    for row, key in zip(rows.tolist(), keys, strict=True):
        found.setdefault(key, []).append(row)
    return {key: np.array(each, np.intp) for key, each in found.items()}
