"""Inputs of a study: grids, and the machines of embedding tables."""

from __future__ import annotations

import csv
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
from daco.data.dcase_sets import inject_truth
from daco.data.lazy_table import StoredTable, open_table
from daco.data.table import EmbeddingTable
from daco.errors import ConfigError, DataError, InputError
from daco.files.remote import Location, parse_location
from daco.method.config import ScoreConfig, blind_pool, frontier_grid, paper_grid, parse_grid
from daco.method.pseudo_anomalies import PseudoAnomalies
from daco.text import name_list, quantity
from daco.validation import Bools, Float32s, Indices

SOURCE, TARGET = "source", "target"
UNKNOWN_LABEL = -1
GRID_NAMES: dict[str, Callable[[int], list[ScoreConfig]]] = {
    "51": lambda bands: paper_grid(51),
    "45": lambda bands: paper_grid(45),
    "9": lambda bands: blind_pool(),
    "frontier": frontier_grid,
}
"""The paper's grids, its nine configurations for choosing without labels, and the wide one."""

Table = EmbeddingTable | StoredTable
Source: TypeAlias = "EmbeddingTable | Location | str"
"""A table, or the file it is in."""

BUDGET = 256 * 2**20
"""Bytes of vectors that are read from a file together: 70 machines of the paper's size."""


def read_grid(name_or_path: str | Path, bands: int = 1) -> list[ScoreConfig]:
    """The configurations of a named grid, or those a file lists.

    Parameters
    ----------
    name_or_path : str or Path
        ``"51"`` or ``"45"``, the paper's grids; ``"9"``, its pool for choosing without labels;
        ``"frontier"``, the wide one; or a text file with one configuration name per line (``#``
        starts a comment); or a CSV file with a column ``config``, such as the ``grid.csv`` of a
        run.
    bands : int
        Of the vectors that the grid is for; only ``"frontier"`` depends on it.

    Returns
    -------
    list of ScoreConfig
        In the file's order, which breaks ties.

    Examples
    --------
    >>> from daco.experiments.inputs import read_grid
    >>> len(read_grid("51")), read_grid("9")[1].name
    (51, 'conf-soft-m0-k1')
    """
    if str(name_or_path) in GRID_NAMES:
        return GRID_NAMES[str(name_or_path)](bands)
    path = Path(name_or_path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        known = ", ".join(GRID_NAMES)
        raise DataError(
            f"There is no grid {str(name_or_path)!r}: it is neither one of {known} nor a file "
            "with one configuration name per line."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list of configurations: {error}.") from None
    configs: dict[ScoreConfig, int] = {}
    for number, name in _config_column(text):
        try:
            config = ScoreConfig.parse(name)
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        if config in configs:
            raise ConfigError(
                f"{path}, line {number}: {name!r} is already on line {configs[config]}. Remove one."
            )
        configs[config] = number
    if not configs:
        raise DataError(f"{path} names no configuration. Write one per line.")
    return parse_grid(configs)


def _config_column(text: str) -> list[tuple[int, str]]:
    """Line numbers and names: the column ``config`` of a CSV, or every line that has one."""
    lines = [(n, line.partition("#")[0].strip()) for n, line in enumerate(text.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line]
    header = [cell.strip() for cell in next(csv.reader([lines[0][1]]))] if lines else []
    if "config" not in header:
        return lines
    at = header.index("config")
    rows = [(n, next(csv.reader([line]))) for n, line in lines[1:]]
    return [(n, cells[at].strip() if at < len(cells) else "") for n, cells in rows]


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
    are -1 and ``test_domains`` are "" where they are unknown. ``vectors`` are those of the normals
    and then those of the test clips, in memory or as the reader that has them and the machine's
    index. ``bands`` are the equal consecutive parts of a vector. ``normals`` are the paths of the
    training normals, by which injected faults are matched with their clip; ``pseudo`` are those
    faults, where there are any, or a function that reads them.
    """

    split: str
    machine: str
    section: str
    title: str
    vectors: Float32s | tuple[VectorReader, int]
    domains: NDArray[np.str_]
    names: NDArray[np.str_]
    labels: NDArray[np.int_]
    test_domains: NDArray[np.str_]
    normals: tuple[str, ...] = ()
    bands: int = 1
    pseudo: PseudoAnomalies | Callable[[MachineData], PseudoAnomalies] | None = None

    def loaded(self) -> MachineData:
        """The machine with its vectors and faults in memory."""
        data = replace(self, vectors=self._vectors)
        return replace(data, pseudo=data.pseudo(data)) if callable(data.pseudo) else data

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
        return vectors[0].dim if isinstance(vectors, tuple) else int(vectors.shape[1])

    @property
    def _vectors(self) -> Float32s:
        vectors = self.vectors
        return vectors[0].vectors(vectors[1]) if isinstance(vectors, tuple) else vectors

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

    Domains called ``source`` and ``target`` keep these roles.
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


def year_of(table: Table) -> int | None:
    """The year of a table, where it has one."""
    known = set(table.columns["year"].tolist()) - {None}
    return known.pop() if known else None


def rows_by_machine(table: Table) -> dict[tuple[str, str], Indices]:
    """Rows of every machine and section, in order of appearance."""
    columns = table.columns
    found: dict[tuple[str, str], list[int]] = {}
    keys = zip(columns["machine"].tolist(), columns["section"].tolist(), strict=True)
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return {key: np.array(rows, np.intp) for key, rows in found.items()}


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
    rows_read: list[Indices] = []
    reader = VectorReader(table, readout, rows_read)
    for (machine, section), at in rows.items():
        part = {name: columns[name][at] for name in ("path", "domain", "split", "label")}
        train, test = (part["split"] == which for which in ("train", "test"))
        title = machine if sections[machine] == 1 else f"{machine}_{section}"
        where = f"{split} machine {title}"
        _require_normals(where, part, train, names)
        rows_read.append(np.concatenate([at[train], at[test]]))
        labels = [UNKNOWN_LABEL if label is None else label for label in part["label"][test]]
        result.append(
            MachineData(
                split=split,
                machine=machine,
                section=section,
                title=title,
                vectors=(reader, len(result)),
                domains=names.rename(part["domain"][train]),
                names=_file_names(where, part["path"][test].tolist()),
                labels=np.array(labels, dtype=np.int64),
                test_domains=names.rename(part["domain"][test]),
                normals=tuple(map(str, part["path"][train])),
                bands=bands,
            )
        )
    if not result:
        raise InputError(f"The {split} table holds no clips.")
    return result


def _require_normals(
    where: str, part: dict[str, NDArray[Any]], train: Bools, names: DomainNames
) -> None:
    if anomalies := int((part["label"][train] == 1).sum()):
        raise InputError(
            f"{where}: {quantity(anomalies, 'training clip')} labelled as anomaly. Training clips "
            "are normal: remove them or correct the label."
        )
    sizes = Counter(part["domain"][train].tolist())
    for domain in (names.source, names.target):
        if sizes[domain] < 2:
            raise InputError(
                f"{where} has {quantity(sizes[domain], 'training clip')} of domain {domain!r}; the "
                "criterion holds out half of each domain and needs two. Add recordings, or leave "
                "the machine out."
            )
    require_normal_names(part["path"][train].tolist())


def _file_names(where: str, paths: list[str]) -> NDArray[np.str_]:
    names = [path.replace("\\", "/").rsplit("/", 1)[-1] for path in paths]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{where}: {quantity(twice, 'test clip')} more than once ({name_list(twice, 3)}). "
            "Scores are filed by clip name: give each test clip one row and a name of its own."
        )
    return np.array(names, dtype=np.str_)
