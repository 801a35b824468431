"""A Parquet table whose embeddings stay in the file until some of its rows are needed.

A table of 10,000 machines of the paper's size has 37 GB of embeddings, and a few hundred bytes of
other columns per clip. Opening it reads only the latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from daco.data.clips import COLUMNS
from daco.data.columns import clip_columns, is_embedding
from daco.data.parquet import (
    ROW_GROUP,
    as_matrix,
    by_readout,
    column_name,
    naming_file,
    own_metadata,
    require_table,
)
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.errors import DataError
from daco.files.remote import Location, parse_location
from daco.validation import Float32s, Indices

_BUFFER = 2**20  # bytes; without it, Arrow reads whole column chunks, however large


@dataclass(frozen=True, eq=False, repr=False)
class StoredTable:
    """The clips of an embedding table, and the open file that has their embeddings.

    Attributes
    ----------
    columns : dict of arrays
        The columns of an `EmbeddingTable` that were asked for.
    path, file
        The location, and the open Parquet file.
    first : EmbeddingTable
        The first clip, with all readouts.
    stamp : tuple of int
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
        """Where the embeddings come from."""
        return self.first.metadata

    @property
    def readouts(self) -> tuple[str, ...]:
        """Names of the readouts; the first is the default."""
        return self.first.readouts

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines in order of appearance."""
        return tuple(dict.fromkeys(self.columns["machine"].tolist()))

    def layout(self, readout: str | None = None) -> Views:
        """Return which columns of `rows` belong to which readout, for ``"mod+env"`` to two."""
        return self.first.layout(readout)

    def origin(self, readout: str | None = None) -> dict[str, str]:
        """Return network, weights and readout of the embeddings, as far as they are known."""
        return self.first.origin(readout)

    def dim(self, readout: str | None = None) -> int:
        """Return the number of values in an embedding."""
        return int(self.first.matrix(readout).shape[1])

    def require_unchanged(self) -> None:
        """Raise a `DataError` if the file has changed since it was opened."""
        with naming_file(self.path):
            now = _stamp(self.path)
        if now != self.stamp:
            raise DataError(
                f"{self.path}: changed while it was read. Leave it as it is, and run the same "
                "command again."
            )

    def rows(self, wanted: Indices, readout: str | None = None) -> Float32s:
        """Read and check the embeddings of some clips, (len(wanted), D) float32, in that order.

        Row groups without such clips are skipped, and only a part of the others is in memory at a
        time.
        """
        if readout is not None and "+" in readout and readout not in self.readouts:
            return np.hstack([self.rows(wanted, name) for name in readout.split("+")])
        vectors = np.empty((len(wanted), self.dim(readout)), np.float32)
        name = column_name(readout or self.readouts[0], self.readouts)
        order = np.argsort(wanted, kind="stable")
        ordered = np.asarray(wanted)[order]
        groups = range(self.file.num_row_groups)
        starts = np.cumsum([0, *(self.file.metadata.row_group(g).num_rows for g in groups)])
        for group in np.flatnonzero(np.diff(np.searchsorted(ordered, starts))).tolist():
            first = int(starts[group])
            last = int(ordered[np.searchsorted(ordered, starts[group + 1]) - 1])
            with naming_file(self.path):
                for batch in _batches(self.file, group, name):
                    part = as_matrix(batch, name, first)
                    low, high = np.searchsorted(ordered, [first, first + len(part)])
                    if part.shape[1] != vectors.shape[1]:
                        raise DataError(
                            f"{self.path}: row {first} has {part.shape[1]} values, row 0 has "
                            f"{vectors.shape[1]}. Embed all clips with one network and one readout."
                        )
                    vectors[order[low:high]] = part[ordered[low:high] - first]
                    first += len(part)
                    if first > last:
                        break
        return vectors


def open_table(path: Location | str, further: tuple[str, ...] = ()) -> StoredTable:
    """Open a Parquet file and read its clips; embeddings are read on request.

    Parameters
    ----------
    path : path or URL
        The embedding table.
    further : tuple of str
        Columns to read besides the clip columns. Attributes and sessions are left out by default,
        because attributes take more memory than all other columns.

    Returns
    -------
    StoredTable

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     EmbeddingTable.from_arrays(np.eye(3), machine="fan").write(f"{folder}/emb.parquet")
    ...     table = open_table(f"{folder}/emb.parquet")
    ...     table.rows(np.array([2, 0]))
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    path = parse_location(path)
    with naming_file(path):
        source = path if isinstance(path, Path) else path.open("rb")
        file = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
        stamp = _stamp(path)
        require_table(file)
        names = file.schema_arrow.names
        left_out = {"attributes", "session"} - set(further)
        wanted = [name for name in COLUMNS if name not in left_out]
        own = () if "path" in names else ("file_name",)
        asked = dict.fromkeys((*wanted, *own, *further))
        content = file.read([name for name in asked if name in names])
        columns = clip_columns(content.to_pydict(), len(content), wanted)
        metadata = own_metadata(file.schema_arrow)
        vectors = {
            name: as_matrix(next(_batches(file, 0, name, 1)), name)
            for name in filter(is_embedding, names)
        }
        first = EmbeddingTable({}, by_readout(vectors, metadata), metadata)
    return StoredTable(columns, path, file, first, stamp)


def _stamp(path: Location) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _batches(
    file: pq.ParquetFile, group: int, name: str, at_once: int = ROW_GROUP
) -> Iterator[pa.ChunkedArray]:
    """A column of one row group, some rows at a time."""
    # By its own name Arrow would also find 'embedding.mean', and read both: the values of a list
    # column are at a path such as 'embedding.mean.list.element'.
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    leaf = [path for path in paths if path.rsplit(".", 2)[0] == name]
    # One column: Arrow's threads gain nothing.
    options = {"row_groups": [group], "columns": leaf or [name], "use_threads": False}
    for batch in file.iter_batches(at_once, **options):
        yield pa.chunked_array([batch.column(name)])
