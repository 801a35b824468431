"""Embedding tables on disk: the Parquet schema, checked reading, atomic writing."""

from __future__ import annotations

import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import COLUMNS
from daco.data.columns import clip_columns
from daco.errors import DataError, InputError
from daco.files.atomic import atomic_write
from daco.files.remote import Location, open_location
from daco.validation import Float32s, as_float32, flat_bands, require_finite

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

PREFIX = "daco."
"""Of daco's keys in the file's metadata; other programs keep theirs beside them."""

ROW_GROUP = 4096
_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_NO_NPZ = (  # all that zipfile, zlib and NumPy say about bytes that are no archive of arrays
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


class TableContent(NamedTuple):
    """Columns, matrices by readout and metadata of a table."""

    columns: Mapping[str, NDArray[Any]]
    matrices: Mapping[str, Float32s]
    metadata: Mapping[str, str]


def column_name(readout: str, readouts: Iterable[str]) -> str:
    """The Parquet column of a readout: ``embedding`` for the first, else ``embedding.<readout>``.

    Examples
    --------
    >>> from daco.data.parquet import column_name
    >>> [column_name(readout, ["mod", "mean"]) for readout in ["mod", "mean"]]
    ['embedding', 'embedding.mean']
    """
    return "embedding" if readout == next(iter(readouts)) else f"embedding.{readout}"


def arrow_schema(dims: Mapping[str, int], metadata: Mapping[str, str]) -> pa.Schema:
    """Clip columns, one fixed-size list per readout, and the metadata."""
    import pyarrow as pa

    kinds = {"year": pa.int32(), "label": pa.int8()}
    optional = ("year", "domain", "label")
    fields = [
        pa.field(name, kinds.get(name, pa.string()), nullable=name in optional) for name in COLUMNS
    ]
    fields += [
        pa.field(column_name(readout, dims), vector_type(dim), nullable=False)
        for readout, dim in dims.items()
    ]
    stored = {PREFIX + key: value for key, value in metadata.items()}
    return pa.schema(fields, metadata={**stored, PREFIX + "readouts": json.dumps(list(dims))})


def vector_type(dim: int) -> pa.FixedSizeListType:
    """A fixed-size list of float32 without missing values."""
    import pyarrow as pa

    return pa.list_(pa.field("element", pa.float32(), nullable=False), dim)


def vector_array(matrix: Float32s) -> pa.FixedSizeListArray:
    """The rows of a matrix as an Arrow column, not copied."""
    import pyarrow as pa

    values = pa.array(np.ascontiguousarray(matrix).ravel())
    return pa.FixedSizeListArray.from_arrays(values, type=vector_type(matrix.shape[1]))


def attributes_text(attributes: Mapping[str, str]) -> str:
    """Attributes as they are stored: a JSON object with sorted keys."""
    return json.dumps(dict(attributes), sort_keys=True, ensure_ascii=False)


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer that spends no time on what cannot be compressed: the vectors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = [field.name for field in schema if not pa.types.is_fixed_size_list(field.type)]
    packed = {
        f"{field.name}.list.element": "none"
        for field in schema
        if pa.types.is_fixed_size_list(field.type)
    }
    return pq.ParquetWriter(
        path,
        schema,
        compression={**dict.fromkeys(text, "zstd"), **packed},
        use_dictionary=text,
        write_statistics=text,
    )


def write_parquet(content: TableContent, path: Location) -> None:
    """Write a table as Parquet, whole or not at all."""
    import pyarrow as pa

    if path.suffix.lower() == ".npz":
        raise InputError(f"{path}: tables are written as Parquet. Give it the extension .parquet.")
    dims = {name: matrix.shape[1] for name, matrix in content.matrices.items()}
    schema = arrow_schema(dims, content.metadata)
    arrays: dict[str, Any] = {}
    for name, values in content.columns.items():
        listed = values.tolist()
        if name == "attributes":
            listed = [attributes_text(item) for item in listed]
        if name in COLUMNS:
            arrays[name] = pa.array(listed, schema.field(name).type)
        else:
            try:
                arrays[name] = pa.array(listed)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise InputError(f"column {name!r} cannot be stored in Parquet: {error}.") from None
            schema = schema.append(pa.field(name, arrays[name].type))
    for name, matrix in content.matrices.items():
        arrays[column_name(name, dims)] = vector_array(matrix)
    table = pa.table([arrays[field.name] for field in schema], schema=schema)
    with atomic_write(path) as temporary, parquet_writer(temporary, schema) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)


def read_table(path: Location) -> TableContent:
    """The content of a Parquet or ``.npz`` file, checked."""
    return _read_npz(path) if path.suffix.lower() == ".npz" else _read_parquet(path)


@contextmanager
def naming_file(path: Location | str) -> Iterator[None]:
    """Turn errors of reading into a DataError that names the file."""
    import pyarrow as pa

    try:
        yield
    except InputError as error:
        raise DataError(error.reason, path=path) from None
    except pa.ArrowException as error:
        reason = first_line(error)
        raise DataError(f"not a readable Parquet file ({reason}).", path=path) from None
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise DataError(f"cannot be read ({reason}).", path=path) from None
    except UnicodeDecodeError:
        raise DataError("holds text that is not UTF-8. Write it again.", path=path) from None


def _read_parquet(path: Location) -> TableContent:
    import pyarrow.parquet as pq

    if path.is_dir():
        raise DataError(f"{path}: is a folder. Give one Parquet or .npz file.")
    with open_location(path) as source, pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        kept = [name for name in schema.names if _is_kept(schema.field(name))]
        require_columns(schema.names)
        # One read over all row groups gives one chunk per column: a matrix is a view of it.
        content = file.read(columns=kept)
    if not len(content):
        raise InputError("the table has no rows. Embed some clips first.")
    metadata = own_metadata(schema)
    vectors = {name: as_matrix(content[name], name) for name in kept if is_embedding(name)}
    matrices = by_readout(vectors, metadata)
    given = {name: content[name].to_pylist() for name in kept if not is_embedding(name)}
    return TableContent(clip_columns(given, len(content)), matrices, metadata)


def own_metadata(schema: pa.Schema) -> dict[str, str]:
    """What daco noted in the file, by key."""
    return {
        key.decode().removeprefix(PREFIX): value.decode()
        for key, value in (schema.metadata or {}).items()
        if key.decode(errors="replace").startswith(PREFIX)
    }


def _read_npz(path: Location) -> TableContent:
    try:
        with open_location(path) as source, zipfile.ZipFile(source) as archive:
            arrays = {
                info.filename.removesuffix(".npy"): _npy(archive, info)
                for info in archive.infolist()
            }
    except _NO_NPZ as error:
        hint = " Save text as text, not as objects." if "allow_pickle" in str(error) else ""
        raise DataError(f"{path}: not a readable .npz file ({first_line(error)}).{hint}") from None
    require_columns(list(arrays))
    matrices: dict[str, Float32s] = {}
    bands: dict[str, int] = {}
    for name in filter(is_embedding, arrays):
        array, count = flat_bands(arrays[name])
        if count is not None:
            bands[name.removeprefix("embedding.")] = count
        if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.size:
            raise InputError(
                f"column {name!r} must be numbers of shape (clips, dimensions) or (clips, bands, "
                f"dimensions). Got {array.dtype} of shape {arrays[name].shape} instead."
            )
        matrices[name] = as_float32(array, f"column {name!r}")
        require_finite(matrices[name], f"column {name!r}")
    n_clips = len(matrices["embedding"])
    for name, matrix in matrices.items():
        if len(matrix) != n_clips:
            raise InputError(f"column {name!r} has {len(matrix)} rows, 'embedding' has {n_clips}.")
    given = {name: array for name, array in arrays.items() if not is_embedding(name)}
    metadata = {"bands": json.dumps(bands)}
    return TableContent(clip_columns(given, n_clips), by_readout(matrices, {}), metadata)


def _npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """One array, read after its header was held against the bytes that are there."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        if version not in _NPY_HEADERS:
            raise ValueError(f"{info.filename} is an array of format {version}")
        shape, _, dtype = _NPY_HEADERS[version](file)
        expected = prod(shape) * dtype.itemsize
        if expected > info.file_size - file.tell() and not dtype.hasobject:
            raise ValueError(f"{info.filename} needs {expected} bytes, and fewer are there")
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def is_embedding(name: str) -> bool:
    """Whether a column holds the vectors of a readout."""
    return name == "embedding" or name.startswith("embedding.")


def _is_kept(field: pa.Field) -> bool:
    """Embeddings, clip columns and plain columns; not pandas' index, not nested columns."""
    import pyarrow as pa

    if is_embedding(field.name) or field.name in COLUMNS:
        return True
    return not field.name.startswith("__index_level_") and not pa.types.is_nested(field.type)


def require_columns(names: list[str]) -> None:
    """An error where there are no vectors, or a column is there twice."""
    if "embedding" not in names:
        raise InputError(
            f"there is no column 'embedding'. It has {', '.join(map(repr, names)) or 'none'}; "
            "rename the one that holds the vectors."
        )
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise InputError(f"the column {repeated[0]!r} is there twice. Drop one of them.")


def as_matrix(column: pa.ChunkedArray, name: str, first: int = 0) -> Float32s:
    """A list column as a matrix, a view of Arrow's memory where it is a fixed-size list.

    ``first`` is the row of the file that it begins with, for errors to name the right one.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    lists = (pa.types.is_fixed_size_list, pa.types.is_list, pa.types.is_large_list)
    if not any(is_list(kind) for is_list in lists) or not pa.types.is_floating(kind.value_type):
        raise InputError(f"column {name!r} must hold lists of floats. Got {kind} instead.")
    if column.null_count:
        row = first + pc.index(column.is_null(), True).as_py()
        raise InputError(f"column {name!r} row {row} is missing. Drop the clip or embed it again.")
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_fixed_size_list(kind):
        dim = kind.list_size
    else:
        lengths = array.value_lengths().to_numpy(zero_copy_only=False)
        dim = int(lengths[0])
        if (lengths != dim).any():
            row = int(np.argmax(lengths != dim))
            raise InputError(
                f"column {name!r} row {first + row} has {lengths[row]} values, row {first} has "
                f"{dim}. Embed all clips with one network and one readout."
            )
    if dim == 0:
        raise InputError(f"column {name!r} holds empty lists. Embed the clips again.")
    flat = array.flatten()
    if flat.null_count:
        row = first + pc.index(flat.is_null(), True).as_py() // dim
        raise InputError(f"column {name!r} row {row} has missing values. Embed the clip again.")
    values = flat.to_numpy(zero_copy_only=False).reshape(len(array), dim)
    require_finite(values, f"column {name!r}", first)
    return as_float32(values, f"column {name!r}", first)


def by_readout(vectors: dict[str, Float32s], metadata: Mapping[str, str]) -> dict[str, Float32s]:
    """Matrices by readout name; the metadata knows the name of the default one."""
    named = [name.removeprefix("embedding.") for name in vectors if name != "embedding"]
    if "readouts" not in metadata:
        return {name.removeprefix("embedding."): vectors[name] for name in sorted(vectors)}
    try:
        readouts = json.loads(metadata["readouts"])
    except (ValueError, RecursionError):
        readouts = None
    if (
        not isinstance(readouts, list)
        or not all(isinstance(name, str) for name in readouts)
        or len(set(readouts)) != len(readouts)
        or sorted(readouts[1:]) != sorted(named)
        or not readouts
    ):
        raise InputError(
            f"the metadata {PREFIX}readouts is {metadata['readouts']!r}, which does not describe "
            f"the columns {', '.join(map(repr, vectors))}. Embed the clips again."
        )
    return {name: vectors[column_name(name, readouts)] for name in readouts}


def first_line(error: BaseException) -> str:
    """What a library says is wrong, in short."""
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else "empty file"
