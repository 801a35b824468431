"""A Parquet table whose vectors stay in the file until rows of them are asked for.

A table of 10,000 machines of the paper's size has 37 GB of vectors and a few hundred bytes per
clip besides. Those are read when it is opened, the vectors when rows of them are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import COLUMNS
from daco.data.columns import clip_columns
from daco.data.parquet import (
    as_matrix,
    by_readout,
    column_name,
    is_embedding,
    naming_file,
    own_metadata,
    require_columns,
)
from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError
from daco.files.remote import Location, parse_location
from daco.validation import Float32s, Indices

if TYPE_CHECKING:
    import pyarrow.parquet as pq

AT_ONCE = 4096
"""Rows that are decoded together: as many as ``daco embed`` writes into a row group."""

_BUFFER = 2**20  # bytes; without it, Arrow reads whole column chunks, however large


@dataclass(frozen=True, eq=False, repr=False)
class StoredTable:
    """The clips of an embedding table, and the open file that their vectors are in.

    Its properties are those of an `EmbeddingTable`.

    Attributes
    ----------
    columns : dict of arrays
        As of `EmbeddingTable`, those that were asked for.
    path : path
        For errors.
    file : pyarrow.parquet.ParquetFile
    first : EmbeddingTable
        The first clip alone, with all readouts.
    stamp : (int, int)
        Size and time of the file when it was opened.
    """

    columns: Mapping[str, NDArray[Any]]
    path: Location
    file: pq.ParquetFile
    first: EmbeddingTable
    stamp: tuple[int, int]

    def __len__(self) -> int:
        return int(self.file.metadata.num_rows)

    def __repr__(self) -> str:
        return f"StoredTable({len(self)} clips in {self.path})"

    @property
    def metadata(self) -> Mapping[str, str]:
        """Where the vectors came from."""
        return self.first.metadata

    @property
    def readouts(self) -> tuple[str, ...]:
        """Names of the readouts; the first is the default."""
        return self.first.readouts

    @property
    def machines(self) -> tuple[str, ...]:
        """Machine types in order of appearance."""
        return tuple(dict.fromkeys(self.columns["machine"].tolist()))

    def bands(self, readout: str | None = None) -> int:
        """Equal parts of a readout's vectors, one per frequency band; 1 where there are none."""
        return self.first.bands(readout)

    def dim(self, readout: str | None = None) -> int:
        """Values of a vector."""
        return int(self.first.matrix(readout).shape[1])

    def require_unchanged(self) -> None:
        """An error where the file is not the one that was opened any more."""
        with naming_file(self.path):
            now = _stamp(self.path)
        if now != self.stamp:
            raise DataError(
                f"{self.path}: changed while it was read. Leave it as it is, and run the same "
                "command again."
            )

    def rows(self, wanted: Indices, readout: str | None = None) -> Float32s:
        """Vectors of some clips, (len(wanted), D) float32, in the order asked for, and checked.

        Row groups without such clips are passed over; of the others, a part is in memory at a
        time.
        """
        found = np.empty((len(wanted), self.dim(readout)), np.float32)
        order = np.argsort(wanted, kind="stable")
        ordered = np.asarray(wanted)[order]
        for first, part in self._parts(ordered, readout):
            low, high = np.searchsorted(ordered, [first, first + len(part)])
            if part.shape[1] != found.shape[1]:
                raise DataError(
                    f"{self.path}: row {first} has {part.shape[1]} values, row 0 has "
                    f"{found.shape[1]}. Embed all clips with one network and one readout."
                )
            found[order[low:high]] = part[ordered[low:high] - first]
        return found

    def _parts(self, ordered: Indices, readout: str | None) -> Iterator[tuple[int, Float32s]]:
        """First row and vectors of consecutive clips, wherever ordered rows are among them."""
        name = column_name(readout or self.readouts[0], self.readouts)
        starts = _group_starts(self.file)
        counts = np.diff(np.searchsorted(ordered, starts))
        for group in np.flatnonzero(counts).tolist():
            with naming_file(self.path):
                first = int(starts[group])
                last = int(ordered[np.searchsorted(ordered, starts[group + 1]) - 1])
                for part in _batches(self.file, group, name):
                    yield first, as_matrix(part, name, first)
                    first += len(part)
                    if first > last:
                        break


def open_table(path: Location | str, further: tuple[str, ...] = ()) -> StoredTable:
    """A Parquet file as a table of its clip columns; vectors are read when asked for.

    Attributes of clips are left out: nothing that reads machines one by one needs them, and they
    take more memory than all other columns. ``further`` are columns of one's own to keep.

    Examples
    --------
    >>> import numpy as np
    >>> import tempfile
    >>> from daco.data.table import EmbeddingTable
    >>> from daco.data.lazy_table import open_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     EmbeddingTable.from_arrays(np.eye(3), machine="fan").write(f"{folder}/emb.parquet")
    ...     table = open_table(f"{folder}/emb.parquet")
    ...     table.rows(np.array([2, 0]))
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    path = parse_location(path)
    if path.is_dir():
        raise DataError(f"{path}: is a folder. Give one Parquet or .npz file.")
    with naming_file(path):
        file = parquet_file(path)
        stamp = _stamp(path)
        names = file.schema_arrow.names
        require_columns(names)
        if not file.metadata.num_rows:
            raise InputError("the table has no rows. Embed some clips first.")
        wanted = [name for name in COLUMNS if name != "attributes"]
        own = () if "path" in names else ("file_name",)
        kept = [name for name in dict.fromkeys((*wanted, *own, *further)) if name in names]
        content = file.read(columns=kept)
        metadata = own_metadata(file.schema_arrow)
        vectors = {
            name: as_matrix(next(_batches(file, 0, name, 1)), name)
            for name in names
            if is_embedding(name)
        }
        given = {name: content[name].to_pylist() for name in kept}
        columns = clip_columns(given, len(content), wanted)
        first = EmbeddingTable({}, by_readout(vectors, metadata), metadata)
    return StoredTable(columns, path, file, first, stamp)


def parquet_file(path: Location) -> pq.ParquetFile:
    """The open file."""
    import pyarrow.parquet as pq

    source = path if isinstance(path, Path) else path.open("rb")
    return pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)


def _stamp(path: Location) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _group_starts(file: pq.ParquetFile) -> Indices:
    """The first row of each row group, and the number of rows."""
    sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)


def _batches(file: pq.ParquetFile, group: int, name: str, at_once: int = AT_ONCE) -> Iterator[Any]:
    """A column of one row group, some rows at a time."""
    import pyarrow as pa

    # By its own name Arrow would also find 'embedding.mean', and read both: the values of a list
    # column are at a path such as 'embedding.mean.list.element'.
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    leaf = [path for path in paths if path.rsplit(".", 2)[0] == name]
    # One column: Arrow's threads gain nothing.
    options = {"row_groups": [group], "columns": leaf or [name], "use_threads": False}
    for batch in file.iter_batches(at_once, **options):
        yield pa.chunked_array([batch.column(name)])
