"""The model file: one safetensors file, checked before anything in it is used.

The layout is that of safetensors, so that other programs can open it: eight bytes that give the
length of a JSON header, the header, and the tensors' bytes without gaps.

- ``own_scores`` F64 (N,), ``embeddings`` F32 (N, D), ``clip_domains`` I32 (N,);
- ``clip_names`` U8: UTF-8, one name after the other, separated by a zero byte;
- in schema 3 ``clip_sha256`` U8 (N, 32): the hash of each recording, zeros where it is not known;
- ``__metadata__``: ``format``, ``schema``, ``sha256`` (of all the rest), and ``model``, a JSON
  object as text: machine, config, frontend, domains, rate, threshold, reason, provenance, and
  from schema 2 on ``bands``, the number of bands of each vector.

A file may come from anywhere. Its header is read only after its length was held against a bound
and the size of the file, nothing is allocated that the file does not really contain, and nothing
is ever unpickled. The hash finds damage, not malice: who can write the file can write the hash.
Therefore everything that follows from the bank, calibration scores and threshold, is computed
again and compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.detector.model import MachineModel, expected_threshold, recalibrated
from daco.detector.modelcheck import SHA256
from daco.embedding.frontend import Frontend
from daco.errors import DacoError, ModelError
from daco.files.atomic import atomic_write
from daco.files.remote import Location, RemotePath
from daco.method.config import ScoreConfig

SCHEMA = 3
"""The newest that is read. Models are written in the oldest that holds them, for older readers."""

FORMAT = "daco-model"
SUFFIX = ".daco"

MAX_HEADER = 1 << 20
"""Bytes of the JSON header; names and vectors are tensors, so that it stays small."""

MAX_FILE = 1 << 31
MAX_DEPTH = 12

_LENGTH = struct.Struct("<Q")
_TENSORS = {
    "own_scores": ("F64", 1),
    "embeddings": ("F32", 2),
    "clip_domains": ("I32", 1),
    "clip_names": ("U8", 1),
}
"""Name, dtype and number of dimensions, in the order of the file: widest first, all aligned."""

_HASHES = {"clip_sha256": ("U8", 2)}
_HASH_BYTES = 32

_DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "U8": "u1"}
_ROUNDING = 1e-6  # float32 against float64 moved distances of real banks by up to 5e-7
_METADATA = ("format", "model", "schema", "sha256")
_DOCUMENT = {
    "machine": str,
    "config": str,
    "frontend": (dict, type(None)),
    "domains": list,
    "false_alarm_rate": float,
    "threshold": float,
    "reason": str,
    "provenance": dict,
}

Arrays = dict[str, NDArray[Any]]


def write_model(model: MachineModel, path: Location) -> None:
    """Write `model` to `path` in one step; the same model gives the same bytes."""
    content = encode(model)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def read_model(path: Location) -> MachineModel:
    """The model in `path`; a `ModelError` names the file and what is wrong with it."""
    try:
        return decode(_read(path))
    except (DacoError, MemoryError) as error:
        reason = "it does not fit into memory." if isinstance(error, MemoryError) else error
        raise ModelError(f"{path}: {reason}") from None


def is_model(path: Location) -> bool:
    """Whether a file looks like a model, of this schema or a newer one; nothing is checked."""
    try:
        with path.open("rb") as file:
            length = _LENGTH.unpack(file.read(_LENGTH.size))[0]
            return length <= MAX_HEADER and f'"{FORMAT}"'.encode() in file.read(length)
    except (OSError, struct.error):
        return False


def content_hash(model: MachineModel) -> str:
    """SHA-256 of the canonical document and the tensors: the same in memory and on disk."""
    return _hash(_schema(model), _document(model), _pack(model).values())


def encode(model: MachineModel) -> bytes:
    """The bytes of a model file."""
    packed = _pack(model)
    document = _document(model)
    header: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "model": _canonical(document),
            "schema": str(_schema(model)),
            "sha256": _hash(_schema(model), document, packed.values()),
        }
    }
    offset = 0
    for name, array in packed.items():
        header[name] = {
            "dtype": _tensors_of(_schema(model))[name][0],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = _canonical(header).encode()
    text += b" " * (-len(text) % 8)  # as safetensors aligns the tensors
    if len(text) > MAX_HEADER:
        raise ModelError(
            f"The description of the model takes {len(text):,} bytes, {MAX_HEADER:,} are allowed. "
            "Put less into its provenance."
        )
    return b"".join([_LENGTH.pack(len(text)), text, *(a.tobytes() for a in packed.values())])


def decode(data: bytes) -> MachineModel:
    """The model in the bytes of a file, or a `DacoError` that says what is wrong."""
    header, body = _split(data)
    metadata = header.pop("__metadata__", None)
    _check_metadata(metadata)
    schema = int(metadata["schema"])
    arrays = _tensors(header, body, _tensors_of(schema))
    document = _parse(metadata["model"], "description")
    _check_document(document, schema)
    names = _unpack_names(arrays.pop("clip_names"), len(arrays["embeddings"]))
    hashes = _unpack_hashes(arrays.get("clip_sha256"), len(names))
    found = _hash(schema, document, [body])
    if found != metadata["sha256"]:
        raise ModelError(
            f"the content does not fit its hash (expected {metadata['sha256'][:12]}..., got "
            f"{found[:12]}...): the file is damaged. Copy it again."
        )
    model = MachineModel(
        **document
        | {"domains": tuple(document["domains"]), "frontend": _frontend(document["frontend"])},
        clip_names=names,
        embeddings=arrays["embeddings"],
        clip_domains=arrays["clip_domains"],
        own_scores=arrays["own_scores"],
        clip_sha256=hashes,
    )
    _check_calibration(model)
    model.__dict__["sha256"] = found
    return model


def _read(path: Location) -> bytes:
    """The whole file, if it is a regular one of a size that a model can have."""
    if isinstance(path, RemotePath):
        return _fetched(path)
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelError("not a regular file. Give a model made by daco fit.")
            if status.st_size > MAX_FILE:
                raise ModelError(f"{status.st_size:,} bytes are more than a model can have.")
            chunks = []
            left = status.st_size + 1  # one more, to notice a file that grows meanwhile
            while left and (chunk := file.read(min(left, 1 << 24))):
                chunks.append(chunk)
                left -= len(chunk)
    except IsADirectoryError:
        raise ModelError("is a folder. Give a model made by daco fit.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, DacoError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"cannot be opened ({reason}).") from None
    if left != 1:
        raise ModelError("changed while it was read. Try again.")
    return b"".join(chunks)


def _fetched(path: RemotePath) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError("is a folder. Give a model made by daco fit.")
        if status.st_size > MAX_FILE:
            raise ModelError(f"{status.st_size:,} bytes are more than a model can have.")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"cannot be opened ({error.strerror}).") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for a writer


def _split(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """The parsed header and the bytes after it."""
    if len(data) < _LENGTH.size + 2:
        raise ModelError(
            f"{len(data)} bytes are too few for a model. The file is empty or was cut off."
        )
    length = _LENGTH.unpack_from(data)[0]
    if length > MAX_HEADER:
        raise ModelError(
            f"not a model of daco, or damaged: its header would have {length:,} bytes, "
            f"{MAX_HEADER:,} are allowed."
        )
    if length > len(data) - _LENGTH.size:
        raise ModelError(
            f"truncated: a header of {length:,} bytes in a file of {len(data):,}. Copy it again."
        )
    start = _LENGTH.size + length
    try:
        text = data[_LENGTH.size : start].decode()
    except UnicodeDecodeError:
        raise ModelError("not a model of daco, or damaged: the header is no UTF-8 text.") from None
    return _parse(text, "header"), memoryview(data)[start:]


def _parse(text: str, what: str) -> dict[str, Any]:
    """A JSON object: no key twice, no NaN, not too deep."""
    try:
        parsed = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refused, parse_float=_finite
        )
    except ModelError as error:
        raise ModelError(f"damaged: the {what} {error}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"not a model of daco, or damaged: the {what} is no JSON.") from None
    if not isinstance(parsed, dict):
        raise ModelError(f"damaged: the {what} is no JSON object.")
    level: list[Any] = [parsed]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return parsed
    raise ModelError(f"damaged: the {what} is nested more than {MAX_DEPTH} deep.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ModelError("names a key twice.")
    return found


def _refused(name: str) -> Any:
    raise ModelError(f"contains {name:.40}.")


def _finite(text: str) -> float:
    number = float(text)
    return number if abs(number) != float("inf") else _refused(text)


def _check_metadata(metadata: Any) -> None:
    texts = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    if not texts or metadata.get("format") != FORMAT:
        raise ModelError("not a model of daco. Give a file made by daco fit.")
    schema = metadata.get("schema", "")
    if not (schema.isascii() and schema.isdigit() and 0 < len(schema) < 10 and int(schema) > 0):
        raise ModelError(f"damaged: the schema must be a number. Got {schema!r:.40}.")
    if int(schema) > SCHEMA:  # before anything else of it: what follows may have any form
        raise ModelError(
            f"made by a newer daco (schema {int(schema)}, this one reads up to {SCHEMA}): upgrade."
        )
    if sorted(metadata) != sorted(_METADATA):
        raise ModelError(f"damaged: the metadata must be {', '.join(_METADATA)}.")
    if not SHA256.fullmatch(metadata["sha256"]):
        raise ModelError("damaged: its hash is no SHA-256.")


def _tensors_of(schema: int) -> dict[str, tuple[str, int]]:
    return _TENSORS if schema < 3 else _TENSORS | _HASHES


def _tensors(
    header: Mapping[str, Any], body: memoryview, expected: Mapping[str, tuple[str, int]]
) -> Arrays:
    """Views of the body, after every declaration was held against the bytes that are there."""
    if sorted(header) != sorted(expected):
        raise ModelError(
            f"damaged: a model holds the tensors {', '.join(expected)}. Got {len(header)}: "
            f"{sorted(header)!r:.80}."
        )
    spans: list[tuple[int, int]] = []
    arrays: Arrays = {}
    for name, (dtype, ndim) in expected.items():
        said = header[name]
        if not isinstance(said, dict) or sorted(said) != ["data_offsets", "dtype", "shape"]:
            raise ModelError(f"damaged: the tensor {name} must have a dtype, shape and offsets.")
        if said["dtype"] != dtype:
            raise ModelError(f"damaged: {name} must be {dtype}. Got {said['dtype']!r:.40}.")
        shape, offsets = said["shape"], said["data_offsets"]
        if not _counts(shape, ndim) or not _counts(offsets, 2):
            raise ModelError(
                f"damaged: {name} must have {ndim} dimension{'s' * (ndim > 1)} and 2 offsets, "
                f"whole numbers. Got {shape!r:.40} and {offsets!r:.40}."
            )
        start, stop = offsets
        n_bytes = prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
        if stop > len(body):
            raise ModelError(
                f"truncated: {name} ends at byte {stop:,} of {len(body):,}. Copy the file again."
            )
        if stop - start != n_bytes:
            raise ModelError(
                f"damaged: {name} of shape {shape} takes {n_bytes:,} bytes, its offsets give "
                f"{stop - start:,}."
            )
        spans.append((start, stop))
        found = np.frombuffer(body[start:stop], _DTYPES[dtype]).reshape(shape)
        arrays[name] = found.astype(found.dtype.newbyteorder("="), copy=False)
    if any(a[1] != b[0] for a, b in zip([(0, 0), *spans], [*spans, (len(body), 0)], strict=True)):
        raise ModelError("damaged: the tensors overlap, leave gaps, or bytes follow after them.")
    count = len(arrays["embeddings"])
    for name in ("own_scores", "clip_domains"):
        if len(arrays[name]) != count:
            raise ModelError(f"damaged: {count} embeddings, but {len(arrays[name])} {name}.")
    return arrays


def _counts(values: Any, length: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == length
        and all(type(value) is int and 0 <= value <= MAX_FILE for value in values)
    )


def _check_document(document: Mapping[str, Any], schema: int) -> None:
    expected = _DOCUMENT if schema == 1 else _DOCUMENT | {"bands": int}
    if sorted(document) != sorted(expected):
        raise ModelError(f"damaged: the description must hold {', '.join(expected)}.")
    for name, kind in expected.items():
        if not isinstance(document[name], kind):  # type: ignore[arg-type]
            raise ModelError(f"damaged: {name} cannot be {document[name]!r:.60}.")


def _frontend(said: Any) -> Frontend | None:
    if said is None:
        return None
    if sorted(said) != sorted(field.name for field in fields(Frontend)):
        raise ModelError("damaged: the description of the network is not complete.")
    return Frontend(**said)


def _unpack_names(array: NDArray[Any], count: int) -> tuple[str, ...]:
    raw = array.tobytes()
    if raw.count(b"\0") != count - 1:
        raise ModelError(f"damaged: {raw.count(0) + 1} clip names for {count} clips.")
    try:
        return tuple(raw.decode().split("\0"))
    except UnicodeDecodeError:
        raise ModelError("damaged: the clip names are no UTF-8 text.") from None


def _unpack_hashes(array: NDArray[Any] | None, count: int) -> tuple[str, ...]:
    if array is None:
        return ()
    if array.shape != (count, _HASH_BYTES):
        raise ModelError(f"damaged: {count} clips need {count} hashes of {_HASH_BYTES} bytes.")
    return tuple(row.tobytes().hex() if row.any() else "" for row in array)


def _check_calibration(model: MachineModel) -> None:
    """Hold what was stored against what follows from the bank."""
    expected = expected_threshold(model)
    if not np.isclose(model.threshold, expected, rtol=1e-9, atol=1e-12):
        raise ModelError(
            f"the threshold {model.threshold:.6g} is not that of its calibration scores, "
            f"{expected:.6g}. Fit the model again."
        )
    own = recalibrated(model)
    off = np.abs(own - model.own_scores) > _tolerances(model, own)
    if off.any():
        raise ModelError(
            f"the calibration scores of {int(off.sum())} of {len(off)} clips are not those of the "
            "bank: the file was put together from two, or scored by another version of daco. Fit "
            "the model again."
        )


def _tolerances(model: MachineModel, own: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far the scores of another processor may be from those stored, clip by clip.

    Its matrix product rounds a cosine distance differently, by less than `_ROUNDING`. That moves
    a score by its share of the typical distance, times a small number of operations, and lets
    clips that are nearly equal change places, each a step of their domain's quantile map. A
    bank of near-duplicates is all rounding: there everything passes.
    """
    typical = float(np.median(model.bank.leave_one_out("raw-k1")))
    share = 0.05 + 4 * _ROUNDING / max(typical, _ROUNDING)
    steps = np.array(list(model.floor().values()))[model.clip_domains]
    places = 2 * steps if model.config.startswith("conf") else 0 * steps
    return share * float(np.ptp(own)) + places + 1e-9


def _schema(model: MachineModel) -> int:
    if model.clip_sha256:
        return 3
    return 1 if model.bands == 1 else 2


def _document(model: MachineModel) -> dict[str, Any]:
    bands = {} if _schema(model) == 1 else {"bands": model.bands}
    return bands | {
        "machine": model.machine,
        "config": ScoreConfig.parse(model.config).name,
        "frontend": None if model.frontend is None else asdict(model.frontend),
        "domains": list(model.domains),
        "false_alarm_rate": model.false_alarm_rate,
        "threshold": model.threshold,
        "reason": model.reason,
        "provenance": dict(model.provenance),
    }


def _pack(model: MachineModel) -> Arrays:
    names = "\0".join(model.clip_names).encode()
    hashes = b"".join(bytes.fromhex(each) or bytes(_HASH_BYTES) for each in model.clip_sha256)
    given = {
        **model.__dict__,
        "clip_names": np.frombuffer(names, np.uint8),
        "clip_sha256": np.frombuffer(hashes, np.uint8).reshape(-1, _HASH_BYTES),
    }
    return {
        name: np.ascontiguousarray(given[name], _DTYPES[dtype])
        for name, (dtype, _) in _tensors_of(_schema(model)).items()
    }


def _hash(schema: int, document: Mapping[str, Any], parts: Iterable[Any]) -> str:
    try:
        digest = hashlib.sha256(f"{FORMAT} {schema}\n{_canonical(document)}\n".encode())
    except UnicodeEncodeError:
        raise ModelError("the description contains what is no text in UTF-8.") from None
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _canonical(document: Mapping[str, Any]) -> str:
    """The one way to write it: sorted keys, no spaces, floats that read back the same."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
