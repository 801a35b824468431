"""Inputs of a study: grids, and the machines of embedding tables."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import Clip
from daco.data.dcase import require_normal_names
from daco.data.dcase_truth import inject_truth
from daco.data.lazy_table import StoredTable, open_table
from daco.data.table import EmbeddingTable
from daco.data.views import Bands, Views
from daco.errors import ConfigError, DataError, InputError
from daco.files.remote import Location, parse_location
from daco.method.config import ScoreConfig, blind_pool, frontier_grid, paper_grid
from daco.method.pseudo_anomalies import PseudoAnomalies
from daco.text import name_list, quantity
from daco.validation import Float32s, Indices

SOURCE, TARGET = "source", "target"
UNKNOWN_LABEL = -1
GRID_NAMES: dict[str, Callable[[int], list[ScoreConfig]]] = {
    "51": lambda bands: paper_grid(51),
    "45": lambda bands: paper_grid(45),
    "9": lambda bands: blind_pool(),
    "frontier": frontier_grid,
}
"""The paper's grids, its nine configurations for choosing without labels, and the wide one."""

BUDGET = 256 * 2**20
"""Bytes of vectors that are read from a file together: 70 machines of the paper's size."""

Table = EmbeddingTable | StoredTable
Source: TypeAlias = "EmbeddingTable | Location | str"
"""A table, or the file it is in."""


def read_grid(name_or_path: str | Path, bands: Bands = 1) -> list[ScoreConfig]:
    """Read the configurations of a named grid or of a file, whose order breaks ties.

    A file has one configuration name per line (``#`` starts a comment), or is a CSV file with a
    column ``config``, such as the ``grid.csv`` of a run. Only ``"frontier"`` depends on the
    `bands` of the vectors.

    >>> len(read_grid("51")), read_grid("9")[1].name
    (51, 'conf-soft-m0-k1')
    """
    if str(name_or_path) in GRID_NAMES:
        first = bands.bands[0] if isinstance(bands, Views) else bands
        return GRID_NAMES[str(name_or_path)](first)
    path = Path(name_or_path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(
            f"There is no grid {str(name_or_path)!r}: it is neither one of "
            f"{', '.join(GRID_NAMES)} nor a file with one configuration name per line."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list of configurations: {error}.") from None
    lines: dict[ScoreConfig, int] = {}
    for number, name in _config_column(text):
        try:
            config = ScoreConfig.parse(name)
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        if config in lines:
            raise ConfigError(
                f"{path}, line {number}: {name!r} is already on line {lines[config]}. Remove one."
            )
        lines[config] = number
    if not lines:
        raise DataError(f"{path} names no configuration. Write one per line.")
    return list(lines)


def _config_column(text: str) -> list[tuple[int, str]]:
    """Line numbers and names: the column ``config`` of a CSV, or every line that has one."""
    lines = [(n, line.partition("#")[0].strip()) for n, line in enumerate(text.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line]
    rows = [(n, [cell.strip() for cell in next(csv.reader([line]))]) for n, line in lines]
    if not rows or "config" not in rows[0][1]:
        return lines
    at = rows[0][1].index("config")
    return [(n, "".join(cells[at : at + 1])) for n, cells in rows[1:]]


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
    are -1 and ``test_domains`` are "" where they are unknown. ``vectors`` of ``dim`` values in
    ``bands`` equal parts are those of the normals and then those of the test clips. ``normals``
    are the paths of the normals, by which injected faults (``pseudo``) are matched with their
    clip. Vectors and faults may be functions that read them.
    """

    split: str
    machine: str
    section: str
    title: str
    vectors: Float32s | Callable[[], Float32s]
    dim: int
    domains: NDArray[np.str_]
    names: NDArray[np.str_]
    labels: NDArray[np.int_]
    test_domains: NDArray[np.str_]
    normals: tuple[str, ...] = ()
    bands: Bands = 1
    pseudo: PseudoAnomalies | Callable[[MachineData], PseudoAnomalies] | None = None

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
        return (
            bool((self.labels == 1).any() and (self.labels >= 0).all())
            and bool((self.test_domains != "").all())
            and set(self.test_domains[self.labels == 0].tolist()) == {SOURCE, TARGET}
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that enters the scores, so that stale results are not reused."""
        digest = hashlib.sha256()
        for text in (self.split, self.machine, self.section, str(self.bands)):
            digest.update(text.encode() + b"\0")
        data = self.loaded()
        arrays: list[NDArray[Any]] = [data.X, data.domains, data.X_test]
        arrays += [data.names, data.labels, data.test_domains]
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

    def rename(self, domains: NDArray[Any]) -> NDArray[np.str_]:
        """Domains of the data as ``source`` and ``target``; "" for any other."""
        known = {self.source: SOURCE, self.target: TARGET}
        # A test clip of a third domain is as good as unknown: no quantile map was fitted for it.
        return np.array([known.get(domain, "") for domain in domains.tolist()], dtype=np.str_)


def read_table(table: Source, columns: tuple[str, ...] = ()) -> Table:
    """A table in memory as it is; a Parquet file without its vectors, which are read when needed.

    ``columns`` of the file are kept besides those of every table.
    """
    if isinstance(table, EmbeddingTable):
        return table
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

    Domains called ``source`` and ``target`` keep these roles.
    """
    sizes: Counter[str | None] = Counter()
    for table in tables:
        sizes.update(table.columns["domain"][table.columns["split"] == "train"].tolist())
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
    table: Table, split: str, names: DomainNames, readout: str | None = None
) -> list[MachineData]:
    """Every machine and section of `table`, in order of appearance."""
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
    bands, dim = table.bands(readout), reader.dim
    result: list[MachineData] = []
    for (machine, section), at in rows.items():
        title = machine if sections[machine] == 1 else f"{machine}_{section}"
        where = f"{split} machine {title}"
        train, test = (at[table.columns["split"][at] == which] for which in ("train", "test"))
        normals, tested = (
            {name: table.columns[name][part] for name in ("path", "domain", "label")}
            for part in (train, test)
        )
        _require_normals(where, normals, names)
        rows_read.append(np.concatenate([train, test]))
        labels = [UNKNOWN_LABEL if label is None else label for label in tested["label"]]
        result.append(
            MachineData(
                split=split,
                machine=machine,
                section=section,
                title=title,
                vectors=partial(reader.vectors, len(result)),
                dim=dim,
                domains=names.rename(normals["domain"]),
                names=_file_names(where, tested["path"].tolist()),
                labels=np.array(labels, dtype=np.int64),
                test_domains=names.rename(tested["domain"]),
                normals=tuple(map(str, normals["path"])),
                bands=bands,
            )
        )
    return result


def _require_normals(where: str, normals: dict[str, NDArray[Any]], names: DomainNames) -> None:
    if anomalies := int((normals["label"] == 1).sum()):
        raise InputError(
            f"{where}: {quantity(anomalies, 'training clip')} labelled as anomaly. Training clips "
            "are normal: remove them or correct the label."
        )
    sizes = Counter(normals["domain"].tolist())
    for domain in (names.source, names.target):
        if sizes[domain] < 2:
            raise InputError(
                f"{where} has {quantity(sizes[domain], 'training clip')} of domain {domain!r}; the "
                "criterion holds out half of each domain and needs two. Add recordings, or leave "
                "the machine out."
            )
    require_normal_names(normals["path"].tolist())


def _file_names(where: str, paths: list[str]) -> NDArray[np.str_]:
    names = [path.replace("\\", "/").rsplit("/", 1)[-1] for path in paths]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{where}: {quantity(twice, 'test clip')} more than once ({name_list(twice, 3)}). "
            "Scores are filed by clip name: give each test clip one row and a name of its own."
        )
    return np.array(names, dtype=np.str_)
