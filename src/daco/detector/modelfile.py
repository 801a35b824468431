"""The model file: one safetensors file, checked before anything in it is used.

The tensors and the header are described in ``docs/reference/files.md``.
Schemas 1 to 4 have ``own_scores`` F64 (N,) and a ``threshold`` in place of the reference scores and
the basis; hashes came with 3, bands with 2, views with 4.

A file may come from anywhere. Its size and the length of its header are bounded before they are
read, safetensors checks the layout of the tensors, and nothing is unpickled. The hash detects
damage, not an attacker, who can write the hash as well.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from daco.data.views import Bands, Views
from daco.embedding.frontend import Frontend, Frontends
from daco.errors import ModelError
from daco.files.hashing import is_sha256
from daco.files.remote import Location
from daco.text import quantity

SCHEMA = 5
"""The schema that is written; older ones are read."""

FORMAT = "daco-model"
SUFFIX = ".daco"

MAX_HEADER = 1 << 20
"""Bytes of the JSON header; names and vectors are tensors, so that it stays small."""

MAX_DEPTH = 12

_LENGTH = struct.Struct("<Q")
_HASH_BYTES = 32
_METADATA = ("format", "model", "schema", "sha256")
_TENSORS: dict[str, tuple[str, str, int]] = {
    "reference_scores": ("F64", "<f8", 1),
    "own_scores": ("F64", "<f8", 1),
    "embeddings": ("F32", "<f4", 2),
    "new_embeddings": ("F32", "<f4", 2),
    "clip_domains": ("I32", "<i4", 1),
    "new_domains": ("I32", "<i4", 1),
    "reference_domains": ("I32", "<i4", 1),
    "clip_names": ("U8", "u1", 1),
    "clip_sha256": ("U8", "u1", 2),
    "new_names": ("U8", "u1", 1),
    "sessions": ("U8", "u1", 1),
}
"""Types and number of dimensions, in the order of the file and of the hash."""

_NEW = {"new_embeddings", "new_domains", "new_names"}

_DOCUMENT: dict[str, Any] = {
    "machine": str,
    "config": str,
    "frontend": (dict, type(None)),
    "domains": list,
    "false_alarm_rate": float,
    "threshold": float,
    "reason": str,
    "provenance": dict,
    "bands": (int, dict),
    "basis": dict,
    "ranges": (dict, type(None)),
}

Fields = dict[str, Any]
"""The fields of a `daco.detector.model.MachineModel` by name."""


def encode(model: Mapping[str, Any]) -> bytes:
    """Encode the fields of a model; the same fields give the same bytes."""
    document, tensors = _document(model), _pack(model)
    metadata = {
        "format": FORMAT,
        "model": _canonical(document),
        "schema": str(SCHEMA),
        "sha256": _hash(SCHEMA, document, tensors),
    }
    data = safetensors.numpy.save(tensors, metadata)
    start = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    # safetensors writes the metadata in random order: the header is written again, sorted.
    header = _canonical(json.loads(data[_LENGTH.size : start])).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > MAX_HEADER:
        raise ModelError(
            f"The description of the model takes {len(header):,} bytes, {MAX_HEADER:,} are "
            "allowed. Put less into its provenance."
        )
    return b"".join([_LENGTH.pack(len(header)), header, memoryview(data)[start:]])


def decode(data: bytes) -> tuple[Fields, str]:
    """Decode and check a model file: its fields and its hash, or a `ModelError`.

    The fields have the right types; :func:`daco.detector.modelcheck.check_fields` checks values.
    """
    metadata = _metadata(data)
    schema = int(metadata["schema"])
    arrays = _tensors(data, schema)
    document = _parse(metadata["model"], "description")
    _check_document(document, schema)
    sha256 = _hash(schema, document, arrays)
    if sha256 != metadata["sha256"]:
        raise ModelError(
            f"the content does not fit its hash (expected {metadata['sha256'][:12]}..., got "
            f"{sha256[:12]}...): the file is damaged. Copy it again."
        )
    count, new = len(arrays["embeddings"]), len(arrays.get("new_embeddings", ()))
    fields: Fields = {
        **document,
        **arrays,
        "domains": tuple(document["domains"]),
        "frontend": _frontend(document["frontend"]),
        "bands": _bands(document.get("bands", 1)),
        "clip_sha256": _unpack_hashes(arrays.get("clip_sha256"), count),
    }
    for name, rows in (("clip_names", count), ("new_names", new), ("sessions", count)):
        if name in arrays:
            fields[name] = _unpack_names(arrays[name], rows)
    return fields if schema > 4 else _as_schema_5(fields), sha256


def _as_schema_5(fields: Fields) -> Fields:
    """Older models have leave-one-out scores of their normals, which are their reference."""
    del fields["threshold"]
    scores, codes = fields.pop("own_scores"), fields["clip_domains"]
    sizes = Counter(codes.tolist())  # nothing is checked yet: any text, any number
    basis = {
        str(name): {"kind": "training", "clips": sizes[code], "when": None}
        for code, name in enumerate(fields["domains"])
    }
    return fields | {"reference_scores": scores, "reference_domains": codes, "basis": basis}


def content_hash(model: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of a model's content, the same in memory and on disk."""
    return _hash(SCHEMA, _document(model), _pack(model))


def is_model(path: Location) -> bool:
    """Tell whether a file looks like a model, without checking its content."""
    try:
        with path.open("rb") as file:
            length = _LENGTH.unpack(file.read(_LENGTH.size))[0]
            return length <= MAX_HEADER and f'"{FORMAT}"'.encode() in file.read(length)
    except (OSError, struct.error):
        return False


def _metadata(data: bytes) -> dict[str, str]:
    """The metadata; safetensors gives it for files on this computer only, and not for bytes."""
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
    try:
        text = data[_LENGTH.size : _LENGTH.size + length].decode()
    except UnicodeDecodeError:
        raise ModelError("not a model of daco, or damaged: the header is not UTF-8 text.") from None
    metadata = _parse(text, "header").get("__metadata__")
    if not isinstance(metadata, dict):
        metadata = {}
    texts = all(isinstance(value, str) for value in metadata.values())
    if not texts or metadata.get("format") != FORMAT:
        raise ModelError("not a model of daco. Give a file made by daco fit.")
    schema = metadata.get("schema", "")
    if not (schema.isascii() and schema.isdigit() and 0 < len(schema) < 10 and int(schema) > 0):
        raise ModelError(f"damaged: the schema must be a number. Got {schema!r:.40}.")
    if int(schema) > SCHEMA:  # first, because the rest of a newer file may have any form
        raise ModelError(
            f"made by a newer daco (schema {int(schema)}, this one reads up to {SCHEMA}): upgrade."
        )
    if sorted(metadata) != sorted(_METADATA):
        raise ModelError(f"damaged: the metadata must be {', '.join(_METADATA)}.")
    if not is_sha256(metadata["sha256"]):
        raise ModelError("damaged: its hash is not a SHA-256.")
    return metadata


def _parse(text: str, what: str) -> dict[str, Any]:
    """A JSON object that is not too deep and names no key twice."""
    try:
        parsed = json.loads(text, object_pairs_hook=_object)
    except ModelError:
        raise
    except (ValueError, RecursionError):
        raise ModelError(f"not a model of daco, or damaged: the {what} is not JSON.") from None
    if not isinstance(parsed, dict):
        raise ModelError(f"damaged: the {what} is not a JSON object.")
    if _is_deeper(parsed, MAX_DEPTH):
        raise ModelError(f"damaged: the {what} is nested more than {MAX_DEPTH} deep.")
    return parsed


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # readers would differ about which of them counts
        raise ModelError("damaged: the JSON names a key twice.")
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def _tensors(data: bytes, schema: int) -> dict[str, NDArray[Any]]:
    """The tensors by name; safetensors holds their declarations against the bytes of the file."""
    try:
        views = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        why = "".join(char if char.isprintable() else "?" for char in str(error)[:200])
        raise ModelError(f"truncated or damaged ({why}). Copy the file again.") from None
    scores = {"reference_scores", "reference_domains"} if schema > 4 else {"own_scores"}
    optional = {"clip_sha256"} if schema > 2 else set()
    optional |= {*_NEW, "sessions"} if schema > 4 else set()
    needed = scores | {"embeddings", "clip_domains", "clip_names"}
    needed |= optional if schema == 3 else optional & set(views)
    expected = [name for name in _TENSORS if name in needed]
    if sorted(views) != sorted(expected):
        raise ModelError(
            f"damaged: a model holds the tensors {', '.join(expected)}. Got {len(views)}: "
            f"{sorted(views)!r:.80}."
        )
    arrays = {}
    for name in expected:
        view, (kind, dtype, ndim) = views[name], _TENSORS[name]
        if view["dtype"] != kind or len(view["shape"]) != ndim:
            raise ModelError(
                f"damaged: {name} must be {kind} of {quantity(ndim, 'dimension')}. Got "
                f"{view['dtype']} of shape {view['shape']!r:.40}."
            )
        array = np.frombuffer(view["data"], dtype).reshape(view["shape"])
        arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return arrays


def _check_document(document: Mapping[str, Any], schema: int) -> None:
    since = {"bands": 2, "basis": 5, "ranges": 5}
    gone = {"threshold"} if schema > 4 else set()
    expected = [name for name in _DOCUMENT if since.get(name, 1) <= schema and name not in gone]
    if sorted(document) != sorted(expected):
        raise ModelError(f"damaged: the description must hold {', '.join(expected)}.")
    for name in expected:
        if not isinstance(document[name], _DOCUMENT[name]):
            raise ModelError(f"damaged: {name} cannot be {document[name]!r:.60}.")
    if isinstance(document.get("bands"), dict) != (schema > 3) and schema < 5:
        raise ModelError(f"damaged: bands cannot be {document.get('bands')!r:.60} in this schema.")


def _frontend(description: dict[str, Any] | None) -> Frontend | None:
    if description is None:
        return None
    others = description.get("others", [])
    names = {field.name for field in fields(Frontend)}
    complete = isinstance(others, list) and all(
        isinstance(view, dict) and {*view, "package"} == names for view in others
    )
    if not complete or {*description, "package"} - {"others"} != names:
        raise ModelError("damaged: the description of the network is not complete.")
    if "others" not in description:
        return Frontend(**description)
    return Frontends(**{**description, "others": tuple(Frontend(**view) for view in others)})


def _bands(description: int | dict[str, Any]) -> Bands:
    if isinstance(description, int):
        return description
    names = [field.name for field in fields(Views)]
    lists = all(isinstance(each, list) for each in description.values())
    if sorted(description) != sorted(names) or not lists:
        raise ModelError("damaged: the description of the views is not complete.")
    return Views(*(tuple(description[name]) for name in names))


def _unpack_names(array: NDArray[Any], count: int) -> tuple[str, ...]:
    raw = array.tobytes()
    if raw.count(b"\0") != count - 1:
        raise ModelError(f"damaged: {raw.count(0) + 1} clip names for {count} clips.")
    try:
        return tuple(raw.decode().split("\0"))
    except UnicodeDecodeError:
        raise ModelError("damaged: the clip names are not UTF-8 text.") from None


def _unpack_hashes(array: NDArray[Any] | None, count: int) -> tuple[str, ...]:
    if array is None:
        return ()
    if array.shape != (count, _HASH_BYTES):
        raise ModelError(f"damaged: {count} clips need {count} hashes of {_HASH_BYTES} bytes.")
    return tuple(row.tobytes().hex() if row.any() else "" for row in array)


def _document(model: Mapping[str, Any]) -> dict[str, Any]:
    document = {name: model[name] for name in _DOCUMENT if name != "threshold"}
    if isinstance(model["bands"], Views):
        document["bands"] = {name: list(value) for name, value in asdict(model["bands"]).items()}
    frontend, ranges = model["frontend"], model["ranges"]
    return document | {
        "frontend": None if frontend is None else asdict(frontend, dict_factory=_known),
        "domains": list(model["domains"]),
        "provenance": dict(model["provenance"]),
        "basis": {name: dict(each) for name, each in model["basis"].items()},
        "ranges": None if ranges is None else dict(ranges),
    }


def _known(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a frontend; only a network of others has a package."""
    return {name: value for name, value in fields if (name, value) != ("package", None)}


def _pack(model: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    packed = {name: model[name] for name in _TENSORS if name in model}
    hashes = b"".join(bytes.fromhex(each) or bytes(_HASH_BYTES) for each in model["clip_sha256"])
    packed["clip_sha256"] = np.frombuffer(hashes, np.uint8).reshape(-1, _HASH_BYTES)
    for name in ("clip_names", "new_names", "sessions"):
        packed[name] = np.frombuffer("\0".join(model[name]).encode(), np.uint8)
    absent = {"clip_sha256": not hashes, "sessions": not model["sessions"]}
    absent |= dict.fromkeys(_NEW, not len(model["new_embeddings"]))
    return {
        name: np.ascontiguousarray(array, _TENSORS[name][1])
        for name, array in packed.items()
        if not absent.get(name)
    }


def _hash(schema: int, document: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    try:
        digest = hashlib.sha256(f"{FORMAT} {schema}\n{_canonical(document)}\n".encode())
    except UnicodeEncodeError:
        raise ModelError("the description contains text that is not UTF-8.") from None
    except ValueError:
        raise ModelError("damaged: the description contains NaN or infinity.") from None
    for name in _TENSORS:
        if name in tensors:
            digest.update(tensors[name].data)
    return digest.hexdigest()


def _canonical(document: Mapping[str, Any]) -> str:
    """Sorted keys, no spaces, floats that read back the same, neither NaN nor infinity."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
