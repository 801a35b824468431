"""Embedding tables on disk: the Parquet schema, checked reading, atomic writing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from daco.data.clips import COLUMNS
from daco.data.columns import clip_columns, is_embedding, parse_json, require_embedding
from daco.errors import DataError, InputError
from daco.files.atomic import atomic_write
from daco.files.remote import Location, explain_errors, open_location
from daco.validation import Float32s, as_float32, require_finite

PREFIX = "daco."
"""Of daco's keys in the file's metadata; other programs keep theirs beside them."""

ROW_GROUP = 4096

LARGE, UNPACKED = 2**30, 20
"""Bytes that any file may become in memory, and bytes that each byte of a larger one may become."""


def column_name(readout: str, readouts: Iterable[str]) -> str:
    """The Parquet column of a readout: ``embedding`` for the first, else ``embedding.<readout>``.

    >>> [column_name(readout, ["mod", "mean"]) for readout in ["mod", "mean"]]
    ['embedding', 'embedding.mean']
    """
    return "embedding" if readout == next(iter(readouts)) else f"embedding.{readout}"


def arrow_schema(
    dims: Mapping[str, int], metadata: Mapping[str, str], *, sessions: bool = False
) -> pa.Schema:
    """Clip columns, with or without sessions, one fixed-size list per readout, the metadata."""
    kinds = {"year": pa.int32(), "label": pa.int8()}
    optional = ("year", "domain", "label", "session")
    fields = [
        pa.field(name, kinds.get(name, pa.string()), nullable=name in optional)
        for name in COLUMNS
        if sessions or name != "session"
    ]
    fields += [
        pa.field(column_name(readout, dims), _vector_type(dim), nullable=False)
        for readout, dim in dims.items()
    ]
    stored = {PREFIX + key: value for key, value in metadata.items()}
    return pa.schema(fields, metadata={**stored, PREFIX + "readouts": json.dumps(list(dims))})


def _vector_type(dim: int) -> pa.FixedSizeListType:
    return pa.list_(pa.field("element", pa.float32(), nullable=False), dim)


def vector_array(matrix: Float32s) -> pa.FixedSizeListArray:
    """The rows of a matrix as an Arrow column, not copied."""
    values = pa.array(np.ascontiguousarray(matrix).ravel())
    return pa.FixedSizeListArray.from_arrays(values, type=_vector_type(matrix.shape[1]))


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


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer that spends no time on what cannot be compressed: the vectors."""
    text = [field.name for field in schema if not pa.types.is_fixed_size_list(field.type)]
    packed = [f"{name}.list.element" for name in schema.names if name not in text]
    compression = dict.fromkeys(text, "zstd") | dict.fromkeys(packed, "none")
    return pq.ParquetWriter(
        path, schema, compression=compression, use_dictionary=text, write_statistics=text
    )


def write_parquet(
    columns: Mapping[str, NDArray[Any]],
    vectors: Mapping[str, Any],
    metadata: Mapping[str, str],
    path: Location,
) -> None:
    """Write a table as Parquet, whole or not at all; `vectors` are Arrow columns by readout."""
    if path.suffix.lower() == ".npz":
        raise InputError(f"{path}: tables are written as Parquet. Give it the extension .parquet.")
    dims = {name: array.type.list_size for name, array in vectors.items()}
    columns = {name: values for name, values in columns.items() if name != "session" or any(values)}
    schema = arrow_schema(dims, metadata, sessions="session" in columns)
    arrays = {column_name(name, dims): array for name, array in vectors.items()}
    for name, values in columns.items():
        listed = values.tolist()
        if name == "attributes":
            listed = list(map(attributes_text, listed))
        try:
            arrays[name] = pa.array(listed, schema.field(name).type if name in COLUMNS else None)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"column {name!r} cannot be stored in Parquet: {error}.") from None
        if name not in COLUMNS:
            schema = schema.append(pa.field(name, arrays[name].type))
    with atomic_write(path) as temporary, _writer(temporary, schema) as writer:
        writer.write_table(pa.table(arrays, schema=schema), row_group_size=ROW_GROUP)


def read_parquet(
    path: Location,
) -> tuple[dict[str, NDArray[Any]], dict[str, Float32s], dict[str, str]]:
    """Columns, matrices by readout and metadata of a file, checked."""
    with open_location(path) as source, open_parquet(source, path.stat().st_size) as file:
        require_table(file)
        names = [field.name for field in file.schema_arrow if _is_table_column(field)]
        # One read over all row groups gives one chunk per column: a matrix is a view of it.
        content = file.read(columns=names)
    metadata = own_metadata(content.schema)
    vectors = {name: as_matrix(content[name], name) for name in names if is_embedding(name)}
    given = {name: values_of(content[name]) for name in names if not is_embedding(name)}
    return clip_columns(given, len(content)), by_readout(vectors, metadata), metadata


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
    require_size(max(packed, content.num_rows * sum(_width(each.type) for each in schema)), size)
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    return pq.ParquetFile(source, metadata=content, read_dictionary=texts, pre_buffer=False)


def _width(kind: pa.DataType) -> int:
    """The fewest bytes that a value takes."""
    return 4 * kind.list_size if pa.types.is_fixed_size_list(kind) else 8


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, None where they are missing; equal texts are one object."""
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    values: list[Any] = []
    for chunk in column.chunks:
        words = [*chunk.dictionary.to_pylist(), None]
        values += [words[code] for code in chunk.indices.fill_null(-1).to_pylist()]
    return values


def require_size(needed: int, size: int) -> None:
    """Raise where content of `needed` bytes is unbelievably large for a file of `size` bytes."""
    if needed > max(LARGE, UNPACKED * size):
        raise InputError(
            f"its {size:,} bytes would become {needed:,} in memory. Write it again, or split it."
        )


def _is_table_column(field: pa.Field) -> bool:
    """Embeddings, clip columns and plain columns; not pandas' index, not nested columns."""
    if is_embedding(field.name) or field.name in COLUMNS:
        return True
    return not field.name.startswith("__index_level_") and not pa.types.is_nested(field.type)


def require_table(file: pq.ParquetFile) -> None:
    """An error where there are no vectors or no rows, or a column is there twice."""
    names = file.schema_arrow.names
    require_embedding(names)
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise InputError(f"the column {repeated[0]!r} occurs twice. Drop one of them.")
    if not file.metadata.num_rows:
        raise InputError("the table has no rows. Embed some clips first.")


@contextmanager
def naming_file(path: Location) -> Iterator[None]:
    """Turn errors of reading into a DataError that names the file."""
    try:
        with explain_errors(path):
            yield
    except InputError as error:
        raise DataError(error.reason, path=path) from None
    except pa.ArrowException as error:
        reason = f"not a readable Parquet file ({first_line(error)})."
        raise DataError(reason, path=path) from None
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)  # of Arrow, whose text names the file again
        reason = os.strerror(errno.ENOENT) if missing else error.strerror or first_line(error)
        raise DataError(f"cannot be read ({reason}).", path=path) from None
    except UnicodeDecodeError:
        raise DataError("holds text that is not UTF-8. Write it again.", path=path) from None


def as_matrix(column: pa.ChunkedArray, name: str, first: int = 0) -> Float32s:
    """A list column as a matrix, a view of Arrow's memory where it is a fixed-size list.

    ``first`` is the row of the file that it begins with, for errors to name the right one.
    """
    kind, label = column.type, f"column {name!r}"
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)
    if not (is_list or pa.types.is_large_list(kind)) or not pa.types.is_floating(kind.value_type):
        raise InputError(f"{label} must hold lists of floats. Got {kind} instead.")
    if column.null_count:
        row = first + pc.index(column.is_null(), True).as_py()
        raise InputError(f"{label} row {row} is missing. Drop the clip or embed it again.")
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    dim = int(lengths[0])
    if dim == 0:
        raise InputError(f"{label} holds empty lists. Embed the clips again.")
    if (lengths != dim).any():
        row = int(np.argmax(lengths != dim))
        raise InputError(
            f"{label} row {first + row} has {lengths[row]} values, row {first} has {dim}. Embed "
            "all clips with one network and one readout."
        )
    flat = array.flatten()
    if flat.null_count:
        row = first + pc.index(flat.is_null(), True).as_py() // dim
        raise InputError(f"{label} row {row} has missing values. Embed the clip again.")
    values = flat.to_numpy(zero_copy_only=False).reshape(len(array), dim)
    require_finite(values, label, first)
    return as_float32(values, label, first)


def by_readout(vectors: dict[str, Float32s], metadata: Mapping[str, str]) -> dict[str, Float32s]:
    """Matrices by readout name; the metadata knows the name of the default one."""
    if "readouts" not in metadata:
        return {name.removeprefix("embedding."): vectors[name] for name in sorted(vectors)}
    readouts = parse_json(metadata["readouts"])
    if isinstance(readouts, list) and all(isinstance(name, str) for name in readouts):
        named = {column_name(name, readouts): name for name in readouts}
        if len(named) == len(readouts) and named.keys() == vectors.keys():
            return {name: vectors[column] for column, name in named.items()}
    raise InputError(
        f"the metadata {PREFIX}readouts is {metadata['readouts']!r}, which does not describe the "
        f"columns {', '.join(map(repr, vectors))}. Embed the clips again."
    )


def first_line(error: BaseException) -> str:
    """What a library says is wrong, in short."""
    return str(error).strip().partition("\n")[0].rstrip(".") or "empty file"
