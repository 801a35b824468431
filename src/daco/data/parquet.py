"""Files of embedding tables: the Parquet schema, checked reading, atomic writing."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from daco.data.clips import COLUMNS
from daco.data.columns import clip_columns, parse_json
from daco.errors import DataError, InputError
from daco.files.atomic import atomic_write
from daco.files.remote import Location, explain_errors, open_location
from daco.validation import Float32s, as_float32, require_finite

PREFIX = "daco."
"""Of daco's keys in the file's metadata; other programs keep theirs beside them."""

ROW_GROUP = 4096

LARGE, UNPACKED = 2**30, 20
"""Bytes that any file may become in memory, and bytes that each byte of a larger one may become."""

_TYPES = {"year": pa.int32(), "label": pa.int8()}


@dataclass(frozen=True)
class StoredVectors:
    """The vectors of one readout in a file, which are read where they are indexed.

    `shape` is that of the matrix of all; `size` and `changed` are those of the file.
    """

    path: Location
    column: str
    shape: tuple[int, int]
    size: int
    changed: int

    def require_unchanged(self) -> None:
        """Raise a `DataError` if the file is not as it was."""
        with naming_file(self.path):
            status = self.path.stat()
        if (status.st_size, status.st_mtime_ns) != (self.size, self.changed):
            raise DataError(
                "changed while it was read. Leave it as it is, and run the same command again.",
                path=self.path,
            )

    def __getitem__(self, wanted: Any) -> Float32s:
        """Read and check the vectors of some rows, in this order.

        Row groups without such rows are skipped, and a part of one is in memory at a time.
        """
        self.require_unchanged()
        rows = np.arange(self.shape[0])[wanted]
        order = np.argsort(rows, kind="stable")
        vectors = np.empty((len(rows), self.shape[1]), np.float32)
        with naming_file(self.path), open_table(self.path) as file:
            sizes = [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]
            starts, n_found = np.cumsum([0, *sizes]), 0
            groups = np.unique(np.searchsorted(starts, rows, side="right") - 1)
            for group in groups[groups < len(sizes)].tolist():
                start = int(starts[group])
                for batch in file.iter_batches(ROW_GROUP, [group], _leaf(file, self.column)):
                    part = _as_matrix(batch[self.column], self.column, start, self.shape[1])
                    ends = np.searchsorted(rows, [start, start + len(part)], sorter=order)
                    here = order[slice(*ends)]
                    vectors[here] = part[rows[here] - start]
                    start, n_found = start + len(part), n_found + len(here)
            if n_found < len(rows):  # a damaged file counts its rows in several ways
                raise InputError("it holds fewer vectors than clips. Embed the clips again.")
        return vectors


Content = tuple[dict[str, NDArray[Any]], dict[str, StoredVectors], dict[str, str]]
"""Columns, vectors by readout, and metadata."""


def column_name(readout: str, readouts: Iterable[str]) -> str:
    """The Parquet column of a readout: ``embedding`` for the first, else ``embedding.<readout>``.

    >>> [column_name(readout, ["mod", "mean"]) for readout in ["mod", "mean"]]
    ['embedding', 'embedding.mean']
    """
    return "embedding" if readout == next(iter(readouts)) else f"embedding.{readout}"


def vector_array(matrix: Float32s) -> pa.FixedSizeListArray:
    """The rows of a matrix as an Arrow column, not copied."""
    values = pa.array(np.ascontiguousarray(matrix).ravel())
    element = pa.field("element", pa.float32(), nullable=False)
    return pa.FixedSizeListArray.from_arrays(values, type=pa.list_(element, matrix.shape[1]))


def attributes_text(attributes: Mapping[str, str]) -> str:
    """Attributes as they are stored: a JSON object with sorted keys."""
    return json.dumps(dict(attributes), sort_keys=True, ensure_ascii=False)


def own_metadata(schema: pa.Schema) -> dict[str, str]:
    """What daco noted in the file, by key."""
    return {
        key.decode().removeprefix(PREFIX): value.decode()
        for key, value in (schema.metadata or {}).items()
        if key.decode(errors="replace").startswith(PREFIX)
    }


def write_parquet(
    columns: Mapping[str, NDArray[Any]],
    vectors: Mapping[str, Any],
    metadata: Mapping[str, str],
    path: Location,
) -> None:
    """Write a table as Parquet, whole or not at all; `vectors` are Arrow columns by readout.

    Sessions are left out where no clip has one.
    """
    if path.suffix.lower() != ".parquet":
        raise InputError(f"{path}: tables are written as Parquet. Give it the extension .parquet.")
    columns = {name: values for name, values in columns.items() if name != "session" or any(values)}
    own = [name for name in columns if name not in COLUMNS]
    arrays = {name: _arrow_column(name, columns[name]) for name in columns if name not in own}
    arrays |= {column_name(readout, vectors): array for readout, array in vectors.items()}
    arrays |= {name: _arrow_column(name, columns[name]) for name in own}
    stored = {PREFIX + key: value for key, value in metadata.items()}
    stored[PREFIX + "readouts"] = json.dumps(list(vectors))
    table = pa.table(arrays, metadata=stored)
    text = [name for name in arrays if not is_embedding(name)]
    packed = {f"{name}.list.element": "none" for name in arrays if is_embedding(name)}
    options: Any = {"compression": dict.fromkeys(text, "zstd") | packed, "use_dictionary": text}
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, row_group_size=ROW_GROUP, write_statistics=text, **options)


def _arrow_column(name: str, column: NDArray[Any]) -> pa.Array:
    values = column.tolist()
    if name == "attributes":
        values = list(map(attributes_text, values))
    try:
        return pa.array(values, _TYPES.get(name, pa.string()) if name in COLUMNS else None)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"column {name!r} cannot be stored in Parquet: {error}.") from None


def read_parquet(path: Location, further: Collection[str] | None = None) -> Content:
    """Read and check the clips of a file, but not their vectors.

    Attributes, sessions and columns of one's own may take much memory; with `further`, only those
    of these names are read.
    """
    with open_table(path) as file:
        status = path.stat()
        metadata = own_metadata(file.schema_arrow)
        used = [field.name for field in file.schema_arrow if _is_used(field)]
        embeddings = [name for name in used if is_embedding(name)]
        names = [name for name in (*COLUMNS, "file_name") if name not in ("attributes", "session")]
        names = [*used, *COLUMNS] if further is None else [*names, *further]
        content = file.read(
            columns=[name for name in used if name in names and name not in embeddings]
        )
        given = {name: values_of(content[name]) for name in content.column_names}
        n_clips = file.metadata.num_rows
        columns = clip_columns(given, n_clips, [name for name in COLUMNS if name in names])
        first = next(file.iter_batches(1, columns=embeddings), None)
        if first is None or not first.num_rows:
            raise InputError("the table has no rows. Embed some clips first.")
        vectors = {}
        for column, readout in _readouts(embeddings, metadata).items():
            shape = n_clips, _as_matrix(first[column], column).shape[1]
            stored = StoredVectors(path, column, shape, status.st_size, status.st_mtime_ns)
            vectors[readout] = stored
        return columns, vectors, metadata


@contextmanager
def open_table(path: Location) -> Iterator[pq.ParquetFile]:
    """Open the file of an embedding table, which must have vectors and different columns."""
    with open_location(path) as source, open_parquet(source, path.stat().st_size) as file:
        names = file.schema_arrow.names
        if "embedding" not in names:
            raise InputError(
                f"there is no column 'embedding'. It has {', '.join(map(repr, names)) or 'none'}; "
                "rename the one that holds the vectors."
            )
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise InputError(f"the column {repeated[0]!r} occurs twice. Drop one of them.")
        yield file


def open_parquet(source: Any, size: int) -> pq.ParquetFile:
    """Open a file of `size` bytes, unless it would become far more in memory.

    Equal or missing values take a few bytes in a file, however many there are. Texts stay coded
    by dictionaries, because one long text may stand in every row. Nothing is asked of the columns
    of a row group: Arrow ends the process where their statistics are damaged.
    """
    plain = pq.ParquetFile(source, pre_buffer=False)
    schema, content = plain.schema_arrow, plain.metadata
    groups = range(content.num_row_groups)
    packed = sum(content.row_group(group).total_byte_size for group in groups)
    needed = max(packed, content.num_rows * sum(_width(each.type) for each in schema))
    if needed > max(LARGE, UNPACKED * size):
        raise InputError(
            f"its {size:,} bytes would become {needed:,} in memory. Write it again, or split it."
        )
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    return pq.ParquetFile(source, metadata=content, read_dictionary=texts, pre_buffer=False)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, None where they are missing; equal texts are one object."""
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    column.validate(full=True)  # of a damaged file, codes may have no word
    values: list[Any] = []
    for chunk in column.chunks:
        words = [*chunk.dictionary.to_pylist(), None]
        values += [words[code] for code in chunk.indices.fill_null(-1).to_pylist()]
    return values


@contextmanager
def naming_file(path: Location) -> Iterator[None]:
    """Turn errors of reading into a DataError that names the file."""
    try:
        with explain_errors(path):
            yield
    except InputError as error:
        raise DataError(error.reason, path=path) from None
    except pa.ArrowException as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".") or "empty file"
        raise DataError(f"not a readable Parquet file ({reason}).", path=path) from None
    except OSError as error:
        first_line = str(error).strip().partition("\n")[0].rstrip(".")
        reason = os.strerror(error.errno) if error.errno else first_line
        raise DataError(f"cannot be read ({reason}).", path=path) from None
    except UnicodeDecodeError:
        raise DataError("holds text that is not UTF-8. Write it again.", path=path) from None


def is_embedding(name: str) -> bool:
    """Whether a column holds the vectors of a readout."""
    return name == "embedding" or name.startswith("embedding.")


def _is_used(field: pa.Field) -> bool:
    """Embeddings, clip columns and plain columns; not pandas' index, not nested columns."""
    if is_embedding(field.name) or field.name in COLUMNS:
        return True
    return not field.name.startswith("__index_level_") and not pa.types.is_nested(field.type)


def _width(kind: pa.DataType) -> int:
    """The fewest bytes that a value takes."""
    return 4 * kind.list_size if pa.types.is_fixed_size_list(kind) else 8


def _leaf(file: pq.ParquetFile, name: str) -> list[str]:
    """The path of a column's values; by its own name Arrow would read 'embedding.mean', too."""
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    return [path for path in paths if path.rsplit(".", 2)[0] == name] or [name]


def _as_matrix(column: pa.Array, name: str, first: int = 0, dim: int | None = None) -> Float32s:
    """A list column as a matrix, a view of Arrow's memory where it is a fixed-size list.

    Errors count rows from `first`, the row of the file that the column begins with. `dim` is the
    length of the vectors where it is known.
    """
    kind, label = column.type, f"column {name!r}"
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)
    if not (is_list or pa.types.is_large_list(kind)) or not pa.types.is_floating(kind.value_type):
        raise InputError(f"{label} must hold lists of floats. Got {kind} instead.")
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    dim = dim or int(lengths[0])
    if (wrong := lengths != dim).any() or not dim:
        row = int(np.argmax(wrong))
        raise InputError(
            f"{label} row {first + row} has {lengths[row]} values, row 0 has {dim}. Embed all "
            "clips with one network and one readout."
        )
    # Missing values become NaN.
    values = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), dim)
    require_finite(values, label, first)
    return as_float32(values, label, first)


def _readouts(columns: list[str], metadata: Mapping[str, str]) -> dict[str, str]:
    """Readouts by column; the metadata knows their order and the name of the default one."""
    if "readouts" not in metadata:
        return {name: name.removeprefix("embedding.") for name in sorted(columns)}
    readouts = parse_json(metadata["readouts"])
    if isinstance(readouts, list) and all(isinstance(name, str) for name in readouts):
        named = {column_name(name, readouts): name for name in readouts}
        if len(named) == len(readouts) and named.keys() == set(columns):
            return named
    raise InputError(
        f"the metadata {PREFIX}readouts is {metadata['readouts']!r}, which does not describe the "
        f"columns {', '.join(map(repr, columns))}. Embed the clips again."
    )
