"""Inputs of a study: the machines in an embedding table, each with its normals and test clips."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import Clip
from daco.data.dcase import require_normal_names
from daco.data.dcase_truth import inject_truth
from daco.data.lazy_table import StoredTable, open_table
from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError
from daco.files.remote import Location, parse_location
from daco.method.pseudo_anomalies import PseudoAnomalies
from daco.text import name_list, quantity
from daco.validation import Float32s, Indices

SOURCE, TARGET = "source", "target"
UNKNOWN_LABEL = -1

Source: TypeAlias = "EmbeddingTable | Location | str"
"""A table, or the file it is in."""

BUDGET = 256 * 2**20
"""Bytes of vectors that are read from a file together: 70 machines of the paper's size."""

Table = EmbeddingTable | StoredTable


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
    _starts: NDArray[Any] = field(default_factory=lambda: np.zeros(1, np.intp), init=False)
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
        if machine not in self._loaded:
            self._fetch(machine, self.table)
        assert self._matrix is not None
        at = machine - self._loaded.start
        return self._matrix[self._starts[at] : self._starts[at + 1]]

    def _fetch(self, machine: int, table: StoredTable) -> None:
        self._matrix = None  # frees the memory before the next read
        sizes = np.cumsum([len(rows) for rows in self.rows[machine:]])
        fitting = int(np.searchsorted(sizes * 4 * self.dim, BUDGET, side="right"))
        self._loaded = range(machine, machine + max(1, fitting))
        self._starts = np.concatenate([[0], sizes])
        together = np.concatenate([self.rows[each] for each in self._loaded])
        self._matrix = table.rows(together, self.readout)
        self._matrix.flags.writeable = False


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Vectors of one machine that are read when they are needed."""

    reader: VectorReader
    index: int

    def load(self) -> Float32s:
        """Vectors of its normals, then of its test clips."""
        return self.reader.vectors(self.index)


@dataclass(frozen=True, eq=False)
class MachineData:
    """One machine and section: training normals, and test clips as far as they are known.

    ``title`` is the machine's name in tables, with its section where it has several. ``labels``
    are -1 and ``test_domains`` are "" where nothing is known. ``vectors`` are those of the normals
    and after them those of the test clips, in memory or where to find them. ``bands`` are the equal
    consecutive parts of a vector. ``normals`` are the paths of the training normals, by which
    injected faults find the clip they were made of; ``pseudo`` are those faults, where there are
    any, or what makes them.
    """

    split: str
    machine: str
    section: str
    title: str
    vectors: Float32s | StoredVectors
    domains: NDArray[np.str_]
    names: NDArray[np.str_]
    labels: NDArray[np.int_]
    test_domains: NDArray[np.str_]
    normals: tuple[str, ...] = ()
    bands: int = 1
    pseudo: PseudoAnomalies | Callable[[MachineData], PseudoAnomalies] | None = None

    def loaded(self) -> MachineData:
        """The machine with all of its vectors in memory, as whoever works on it needs it."""
        data = self
        if isinstance(data.vectors, StoredVectors):
            data = replace(data, vectors=data.vectors.load())
        if callable(data.pseudo):
            data = replace(data, pseudo=data.pseudo(data))
        return data

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
    def dim(self) -> int:
        """Values of a vector."""
        vectors = self.vectors
        return vectors.reader.dim if isinstance(vectors, StoredVectors) else int(vectors.shape[1])

    @property
    def _vectors(self) -> Float32s:
        return self.vectors.load() if isinstance(self.vectors, StoredVectors) else self.vectors

    @property
    def labelled(self) -> bool:
        """Whether the official metrics can be computed."""
        if not len(self.labels) or (self.labels < 0).any():
            return False
        normal_domains = set(self.test_domains[self.labels == 0].tolist())
        return (
            normal_domains == {SOURCE, TARGET}
            and bool((self.test_domains != "").all())
            and bool((self.labels == 1).any())
        )

    def fingerprint(self) -> str:
        """SHA-256 of everything that enters the scores, so that stale results are not reused."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for text in (self.split, self.machine, self.section, str(self.bands)):
            digest.update(text.encode() + b"\0")
        data = self.loaded()
        arrays: list[NDArray[Any]] = [
            data.X,
            data.domains,
            data.X_test,
            data.names,
            data.labels,
            data.test_domains,
        ]
        if (made := data.faults) is not None:
            arrays += [made.clean, made.rows, made.domains, made.vectors, made.origin, made.kinds]
        for array in arrays:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class DomainNames:
    """Which domain of the data is the paper's source and which its target."""

    source: str
    target: str


def read_table(table: Source, further: tuple[str, ...] = ()) -> Table:
    """A table in memory as it is; a Parquet file without its vectors, which are read when needed.

    ``further`` are columns of the file to keep besides those of every table.
    """
    if isinstance(table, EmbeddingTable):
        return table
    if parse_location(table).suffix.lower() == ".npz":
        return EmbeddingTable.read(table)
    return open_table(table, further)


def with_truth(table: Table, truth: Path | str, notes: list[str]) -> Table:
    """The table, with labels and domains of its test clips from an evaluator's checkout."""
    fields = ("path", "machine", "year", "section", "domain", "split", "label")
    columns = [table.columns[name].tolist() for name in fields]
    clips = [
        Clip(**dict(zip(fields, values, strict=True))) for values in zip(*columns, strict=True)
    ]
    known = inject_truth(clips, truth, oddities=notes)
    changed = dict(table.columns)
    for name in ("label", "domain"):
        values = np.empty(len(table), dtype=object)
        values[:] = [getattr(clip, name) for clip in known]
        changed[name] = values
    return replace(table, columns=changed)


def name_domains(tables: Iterable[Table]) -> DomainNames:
    """The two domains of the training clips; the one with more clips is the source.

    Domains called ``source`` and ``target`` are taken at their word.
    """
    sizes: Counter[str | None] = Counter()
    for table in tables:
        train = table.columns["split"] == "train"
        sizes.update(table.columns["domain"][train].tolist())
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


def machines_of(
    table: Table, split: str, names: DomainNames, readout: str | None = None
) -> list[MachineData]:
    """Every machine and section of `table`, in order of appearance."""
    years = {year for year in table.columns["year"].tolist() if year is not None}
    if len(years) > 1:
        raise InputError(
            f"The {split} table mixes the years {', '.join(map(str, sorted(years)))}; machines of "
            "one name differ between years. Study one year at a time: table.select(year=...)."
        )
    bands, columns = table.bands(readout), table.columns
    rows = rows_by_machine(table)
    sections = Counter(machine for machine, _ in rows)
    result: list[MachineData] = []
    places: list[Indices] = []
    reader = VectorReader(table, readout, places)
    for (machine, section), at in rows.items():
        part = {name: columns[name][at] for name in ("path", "domain", "split", "label")}
        train, test = (part["split"] == which for which in ("train", "test"))
        title = machine if sections[machine] == 1 else f"{machine}_{section}"
        where = f"{split} machine {title}"
        _require_normals(where, part, train, names)
        require_normal_names(part["path"][train].tolist())
        places.append(np.concatenate([at[train], at[test]]))
        result.append(
            MachineData(
                split=split,
                machine=machine,
                section=section,
                title=title,
                vectors=StoredVectors(reader, len(result)),
                domains=renamed(part["domain"][train], names),
                names=_file_names(where, part["path"][test].tolist()),
                labels=np.array(
                    [UNKNOWN_LABEL if v is None else v for v in part["label"][test]], dtype=np.int64
                ),
                test_domains=renamed(part["domain"][test], names),
                normals=tuple(map(str, part["path"][train])),
                bands=bands,
            )
        )
    if not result:
        raise InputError(f"The {split} table holds no clips.")
    return result


class Normals(Sequence[tuple[str, Any, list[str]]]):
    """Title, vectors and domains of each machine's training clips, read when asked for."""

    def __init__(self, reader: VectorReader, titles: list[str], domains: list[list[str]]) -> None:
        self.reader, self.titles, self.domains = reader, titles, domains

    def __len__(self) -> int:
        return len(self.titles)

    def __getitem__(self, at: Any) -> Any:
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self.titles[at], self.reader.vectors(at), self.domains[at]


def normals_of(table: Table, readout: str | None) -> Normals:
    """The training clips of all machines, in order of appearance."""
    train = np.flatnonzero(table.columns["split"] == "train")
    if not len(train):
        raise InputError(
            "The table has no clip of split 'train'. A choice needs normal recordings: correct the "
            "'split' column, or embed the training clips."
        )
    columns = {name: table.columns[name][train].tolist() for name in ("year", "machine", "section")}
    domains, labels = (table.columns[name][train].tolist() for name in ("domain", "label"))
    if missing := [m for m, d in zip(columns["machine"], domains, strict=True) if d is None]:
        raise InputError(
            f"{quantity(missing, 'training clip')} without a domain (machines: "
            f"{name_list(dict.fromkeys(missing))}). The criterion compares domains: fill the "
            "'domain' column."
        )
    if odd := [m for m, label in zip(columns["machine"], labels, strict=True) if label == 1]:
        raise InputError(
            f"{quantity(odd, 'training clip')} labelled as anomaly (machines: "
            f"{name_list(dict.fromkeys(odd))}). Training clips are normal: remove them."
        )
    require_normal_names(table.columns["path"][train].tolist())
    rows: dict[tuple[Any, str, str], list[int]] = {}
    for row, key in enumerate(zip(*columns.values(), strict=True)):
        rows.setdefault(key, []).append(row)
    table.bands(readout)  # names an unknown readout
    return Normals(
        VectorReader(table, readout, [train[mine] for mine in rows.values()]),
        _titles(list(rows)),
        [[domains[row] for row in mine] for mine in rows.values()],
    )


def _titles(keys: Sequence[tuple[Any, str, str]]) -> list[str]:
    """A machine's name, with section and year where the name alone would not do."""
    sections = Counter((year, machine) for year, machine, _ in keys)
    years: dict[str, set[Any]] = {}
    for year, machine, _ in keys:
        years.setdefault(machine, set()).add(year)
    return [
        machine
        + (f"_{section}" if sections[year, machine] > 1 else "")
        + (f" ({year})" if len(years[machine]) > 1 and year is not None else "")
        for year, machine, section in keys
    ]


def _require_normals(
    where: str, part: dict[str, NDArray[Any]], train: NDArray[np.bool_], names: DomainNames
) -> None:
    if (part["label"][train] == 1).any():
        raise InputError(
            f"{where}: {quantity(int((part['label'][train] == 1).sum()), 'training clip')} "
            "labelled as anomaly. Training clips are normal: remove them or correct the label."
        )
    sizes = Counter(part["domain"][train].tolist())
    for domain in (names.source, names.target):
        if sizes[domain] < 2:
            raise InputError(
                f"{where} has {quantity(sizes[domain], 'training clip')} of domain {domain!r}; the "
                "criterion holds out half of each domain and needs two. Add recordings, or leave "
                "the machine out."
            )


def renamed(domains: NDArray[Any], names: DomainNames) -> NDArray[np.str_]:
    """Domains of the data as ``source`` and ``target``; "" for what is neither."""
    known = {names.source: SOURCE, names.target: TARGET, None: ""}
    # A test clip of a third domain is as good as unknown: no quantile map was fitted for it.
    return np.array([known.get(domain, "") for domain in domains.tolist()], dtype=np.str_)


def _file_names(where: str, paths: list[str]) -> NDArray[np.str_]:
    names = [path.replace("\\", "/").rsplit("/", 1)[-1] for path in paths]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{where}: {quantity(twice, 'test clip')} more than once ({name_list(twice, 3)}). "
            "Scores are filed by clip name: give each test clip one row and a name of its own."
        )
    return np.array(names, dtype=np.str_)


def rows_by_machine(table: Table) -> dict[tuple[str, str], Indices]:
    """Indices of every machine and section, in order of appearance."""
    columns = table.columns
    found: dict[tuple[str, str], list[int]] = {}
    keys = zip(columns["machine"].tolist(), columns["section"].tolist(), strict=True)
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return {key: np.array(rows, np.intp) for key, rows in found.items()}
