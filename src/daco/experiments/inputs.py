"""Inputs of a study: the machines of embedding tables."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import Clip
from daco.data.dcase import require_normal_names
from daco.data.dcase_truth import inject_truth
from daco.data.lazy_table import StoredTable, open_table
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.errors import DataError, InputError
from daco.evaluation.metrics import QUANTITIES, grid_metrics
from daco.files.remote import Location, is_remote, parse_location
from daco.method.viability import PseudoAnomalies
from daco.text import name_list, quantity
from daco.validation import Float32s, Float64s, Indices

SOURCE, TARGET = "source", "target"
UNKNOWN_LABEL = -1
_NAMED = 20  # machines that are left out
BUDGET = 256 * 2**20
"""Bytes of vectors that are read from a file together: 70 machines of the paper's size."""

Table = EmbeddingTable | StoredTable
Source: TypeAlias = "EmbeddingTable | Location | str"
"""A table, or the file it is in."""


@dataclass(eq=False)
class VectorReader:
    """Vectors of the machines of a table, given their `rows`.

    A machine's vectors are read on first access, together with those of the next machines that
    fit into `BUDGET`. A table in memory is only indexed.
    """

    table: Table
    readout: str | None
    rows: Sequence[Indices]
    _loaded: range = field(default=range(0), init=False)
    _starts: Indices = field(default_factory=lambda: np.zeros(1, np.intp), init=False)
    _matrix: Float32s | None = field(default=None, init=False)

    @property
    def dim(self) -> int:
        """Values of a vector."""
        if isinstance(self.table, StoredTable):
            return self.table.dim(self.readout)
        return int(self.table.matrix(self.readout).shape[1])

    def vectors(self, machine: int) -> Float32s:
        """Vectors of one machine, in the order of its rows; read-only."""
        if isinstance(self.table, EmbeddingTable):
            return self.table.matrix(self.readout)[self.rows[machine]]
        if machine not in self._loaded or self._matrix is None:
            self._matrix = None  # frees the memory before the next read
            sizes = np.cumsum([len(rows) for rows in self.rows[machine:]])
            fitting = int(np.searchsorted(sizes * 4 * self.dim, BUDGET, side="right"))
            self._loaded = range(machine, machine + max(1, fitting))
            self._starts = np.concatenate([[0], sizes])
            together = np.concatenate([self.rows[each] for each in self._loaded])
            self._matrix = self.table.rows(together, self.readout)
            self._matrix.flags.writeable = False
        at = machine - self._loaded.start
        return self._matrix[self._starts[at] : self._starts[at + 1]]


@dataclass(frozen=True, eq=False)
class MachineData:
    """One machine and section: training normals, and test clips as far as they are known.

    ``title`` is the machine's name in tables, with its section where it has several. ``labels``
    are -1 and ``test_domains`` are "" where they are unknown. ``vectors`` with the columns of
    ``views`` are those of the normals and then those of the test clips. ``normals`` are the paths
    of the normals, by which injected faults (``pseudo``) are matched with their clip. Vectors and
    faults may be functions that read them. ``quantities`` are the metrics, ``systems`` the scores
    of normals and test clips by other systems.
    """

    split: str
    machine: str
    section: str
    title: str
    vectors: Float32s | Callable[[], Float32s]
    views: Views
    domains: NDArray[np.str_]
    names: NDArray[np.str_]
    labels: NDArray[np.int_]
    test_domains: NDArray[np.str_]
    normals: tuple[str, ...] = ()
    pseudo: PseudoAnomalies | Callable[[MachineData], PseudoAnomalies] | None = None
    quantities: tuple[str, ...] = QUANTITIES
    systems: Mapping[str, tuple[Float64s, Float64s]] = field(default_factory=dict)

    def loaded(self) -> MachineData:
        """The machine with its vectors and faults in memory."""
        data = replace(self, vectors=self._vectors)
        return replace(data, pseudo=data.faults)

    @property
    def X(self) -> Float32s:  # noqa: N802, as in scikit-learn
        """Vectors of the normals."""
        return self._vectors[: len(self.domains)]

    @property
    def X_test(self) -> Float32s:  # noqa: N802
        """Vectors of the test clips."""
        return self._vectors[len(self.domains) :]

    @property
    def faults(self) -> PseudoAnomalies | None:
        """The injected faults."""
        return self.pseudo(self) if callable(self.pseudo) else self.pseudo

    @property
    def _vectors(self) -> Float32s:
        return self.vectors() if callable(self.vectors) else self.vectors

    @property
    def labelled(self) -> bool:
        """Whether the official metrics can be computed."""
        if (self.labels < 0).any() or (self.test_domains == "").any():
            return False
        normal, anomalous = (set(self.test_domains[self.labels == at].tolist()) for at in (0, 1))
        needed = set(self.domains.tolist())
        by_domain = "pauc_source" in self.quantities  # each domain's clips by themselves
        return normal == needed and (anomalous == needed if by_domain else bool(anomalous))

    def metrics(self, scores: Float64s) -> Float64s:
        """The quantities of each column of scores, (C, quantities), in percent; else nan."""
        if not self.labelled:
            return np.full((scores.shape[1], len(self.quantities)), np.nan)
        truth = self.labels, self.test_domains
        return 100 * grid_metrics(scores, *truth, quantities=self.quantities).values

    @property
    def balanced(self) -> bool:
        """Whether there are two domains, so that there is a criterion."""
        return TARGET in self.domains

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that enters the scores, so that stale results are not reused."""
        digest = hashlib.sha256()
        facts = (self.split, self.machine, self.section, str(self.views))
        for text in (*facts, *self.quantities, *self.systems):
            digest.update(text.encode() + b"\0")
        data = self.loaded()
        arrays: list[NDArray[Any]] = [data.X, data.domains, data.X_test]
        arrays += [data.names, data.labels, data.test_domains]
        arrays += [scores for pair in data.systems.values() for scores in pair]
        if (made := data.faults) is not None:
            arrays += [made.clean, made.rows, made.domains, made.vectors, made.origin, made.kinds]
        for array in arrays:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


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


def read_table(table: Source, columns: tuple[str, ...] = ()) -> Table:
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
    if parse_location(table).suffix.lower() == ".npz":
        return EmbeddingTable.read(table)
    return open_table(table, columns)


def with_truth(table: Table, truth: Path | str, notes: list[str]) -> Table:
    """The table, with labels and domains of its test clips from an evaluator's checkout."""
    fields = ("path", "machine", "year", "section", "domain", "split", "label")
    rows = zip(*(table.columns[name].tolist() for name in fields), strict=True)
    clips = [Clip(**dict(zip(fields, row, strict=True))) for row in rows]
    known = inject_truth(clips, truth, oddities=notes)
    changed = dict(table.columns)
    for name in ("label", "domain"):
        changed[name] = np.array([getattr(clip, name) for clip in known], dtype=object)
    return replace(table, columns=changed)


def name_domains(tables: Iterable[Table]) -> DomainNames:
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


def year_of(table: Table) -> int | None:
    """The year of a table, where it has one."""
    known = set(table.columns["year"].tolist()) - {None}
    return known.pop() if known else None


def rows_by(table: Table, *names: str, rows: Indices | None = None) -> dict[Any, Indices]:
    """Rows by the values of these columns, in order of appearance."""
    rows = np.arange(len(table)) if rows is None else rows
    found: dict[Any, list[int]] = {}
    keys = zip(*(table.columns[name][rows].tolist() for name in names), strict=True)
    for row, key in zip(rows.tolist(), keys, strict=True):
        found.setdefault(key, []).append(row)
    return {key: np.array(each, np.intp) for key, each in found.items()}


def machines_of(
    table: Table,
    split: str,
    names: DomainNames,
    readout: str | None = None,
    *,
    quantities: tuple[str, ...] = QUANTITIES,
    notes: list[str] | None = None,
) -> list[MachineData]:
    """Every machine and section of `table` with enough normals, in order of appearance.

    A line about each of the others is added to `notes`.
    """
    years = {year for year in table.columns["year"].tolist() if year is not None}
    if len(years) > 1:
        raise InputError(
            f"The {split} table mixes the years {', '.join(map(str, sorted(years)))}; machines of "
            "one name differ between years. Study one year at a time: table.select(year=...)."
        )
    rows = rows_by(table, "machine", "section")
    if not rows:
        raise InputError(f"The {split} table holds no clips.")
    sections = Counter(machine for machine, _ in rows)
    rows_read: list[Indices] = []
    reader = VectorReader(table, readout, rows_read)
    views = table.layout(readout)
    result: list[MachineData] = []
    lacking: dict[str, str] = {}
    for (machine, section), at in rows.items():
        title = machine if sections[machine] == 1 else f"{machine}_{section}"
        where = f"{split} machine {title}"
        train, test = (at[table.columns["split"][at] == which] for which in ("train", "test"))
        normals, tested = (
            {name: table.columns[name][part] for name in ("path", "domain", "label")}
            for part in (train, test)
        )
        if reason := _lacking_normals(where, normals, names):
            lacking[where] = reason
            continue
        rows_read.append(np.concatenate([train, test]))
        labels = [UNKNOWN_LABEL if label is None else label for label in tested["label"]]
        result.append(
            MachineData(
                split=split,
                machine=machine,
                section=section,
                title=title,
                vectors=partial(reader.vectors, len(result)),
                views=views,
                domains=names.rename(normals["domain"]),
                names=_file_names(where, tested["path"].tolist()),
                labels=np.array(labels, dtype=np.int64),
                test_domains=names.rename(tested["domain"]),
                normals=tuple(map(str, normals["path"])),
                quantities=quantities,
            )
        )
    if notes is not None:
        notes += left_out(lacking)
    return result


def left_out(reasons: Mapping[str, object]) -> list[str]:
    """Sentences about machines that are not studied, with the reasons of the first."""
    lines = [f"{machine} is left out: {why}" for machine, why in reasons.items()]
    more = len(lines) - _NAMED
    return [*lines[:_NAMED], f"{more} more machines are left out."] if more > 1 else lines


def _lacking_normals(where: str, normals: dict[str, NDArray[Any]], names: DomainNames) -> str:
    """What a machine lacks to be studied, empty for nothing; anomalies are an error."""
    if anomalies := int((normals["label"] == 1).sum()):
        raise InputError(
            f"{where}: {quantity(anomalies, 'training clip')} labelled as anomaly. Training clips "
            "are normal: remove them or correct the label."
        )
    require_normal_names(normals["path"].tolist())
    sizes = Counter(names.rename(normals["domain"]).tolist())
    for domain, name in ((SOURCE, names.source), (TARGET, names.target)):
        if sizes[domain] < 2 and name is not None:
            of = (
                f" of domain {name!r}; two of each are needed."
                if names.target
                else "; two are needed."
            )
            return f"it has {quantity(sizes[domain], 'training clip')}{of}"
    return ""


def _file_names(where: str, paths: list[str]) -> NDArray[np.str_]:
    names = [path.replace("\\", "/").rsplit("/", 1)[-1] for path in paths]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{where}: {quantity(twice, 'test clip')} more than once ({name_list(twice, 3)}). "
            "Scores are filed by clip name: give each test clip one row and a name of its own."
        )
    return np.array(names, dtype=np.str_)
