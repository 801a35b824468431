"""A Parquet table whose embeddings stay in the file: those of one machine are read at a time.

A table of 10,000 machines of the paper's size has 37 GB of embeddings, and a few hundred bytes of
other columns per clip.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    as_matrix,
    by_readout,
    column_name,
    naming_file,
    open_parquet,
    own_metadata,
    require_table,
    values_of,
)
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.errors import DataError
from daco.files.remote import Location, parse_location
from daco.validation import Float32s, Indices


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

    def layout(self, readout: str | None = None) -> Views:
        """Return which columns of `rows` belong to which readout, for ``"mod+env"`` to two."""
        return self.first.layout(readout)

    def origin(self, readout: str | None = None) -> dict[str, str]:
        """Return network, weights and readout of the embeddings, as far as they are known."""
        return self.first.origin(readout)

    def require_unchanged(self) -> None:
        """Raise a `DataError` if the file has changed since it was opened."""
        with naming_file(self.path):
            now = _stamp(self.path)
        if now != self.stamp:
            raise DataError(
                "changed while it was read. Leave it as it is, and run the same command again.",
                path=self.path,
            )

    def rows(self, wanted: Indices, readout: str | None = None) -> Float32s:
        """Read and check the embeddings of some clips, (len(wanted), D) float32, in that order.

        Row groups without such clips are skipped, and one of the others is in memory at a time.
        """
        if readout is not None and "+" in readout and readout not in self.readouts:
            return np.hstack([self.rows(wanted, name) for name in readout.split("+")])
        name = column_name(readout or self.readouts[0], self.readouts)
        vectors = np.empty((len(wanted), self.layout(readout).dim), np.float32)
        groups = range(self.file.num_row_groups)
        ends = np.cumsum([self.file.metadata.row_group(each).num_rows for each in groups])
        group_of = np.searchsorted(ends, wanted, side="right")
        for group in np.unique(group_of).tolist():
            start = int(ends[group - 1]) if group else 0
            with naming_file(self.path):
                content = self.file.read_row_group(group, columns=_leaf(self.file, name))
                part = as_matrix(content[name], name, start)
            if part.shape[1] != vectors.shape[1]:
                raise DataError(
                    f"row {start} has {part.shape[1]} values, row 0 has {vectors.shape[1]}. Embed "
                    "all clips with one network and one readout.",
                    path=self.path,
                )
            here = group_of == group
            vectors[here] = part[wanted[here] - start]
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
        stamp = _stamp(path)
        file = open_parquet(path if isinstance(path, Path) else path.open("rb"), stamp[0])
        require_table(file)
        names = file.schema_arrow.names
        left_out = {"attributes", "session"} - set(further)
        wanted = [name for name in COLUMNS if name not in left_out]
        own = () if "path" in names else ("file_name",)
        asked = [name for name in dict.fromkeys((*wanted, *own, *further)) if name in names]
        content = file.read(columns=asked)
        given = {name: values_of(content[name]) for name in asked}
        columns = clip_columns(given, len(content), wanted)
        metadata = own_metadata(file.schema_arrow)
        vectors = {}
        for name in filter(is_embedding, names):
            batch = next(file.iter_batches(1, columns=_leaf(file, name)))
            vectors[name] = as_matrix(pa.chunked_array([batch.column(name)]), name)
        first = EmbeddingTable({}, by_readout(vectors, metadata), metadata)
    return StoredTable(columns, path, file, first, stamp)


def _leaf(file: pq.ParquetFile, name: str) -> list[str]:
    """The path of a column's values; by its own name Arrow would read 'embedding.mean', too."""
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    return [path for path in paths if path.rsplit(".", 2)[0] == name] or [name]


def _stamp(path: Location) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
