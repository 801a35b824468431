"""The model file: one safetensors file, checked before anything in it is used.

:mod:`daco.detector.modelfields` says what it holds, and ``docs/reference/files.md`` describes it.
What exists for each clip is a tensor; everything else is one JSON object, the tensor ``model``.

A file may come from anywhere. Its size is bounded before it is read, safetensors checks the layout
of the tensors, and nothing is unpickled. The hash detects damage, not an attacker, who can write
the hash as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from daco.detector.modelfields import DTYPES, FIELDS, MAX_CLIPS, Value, canonical_json, follows
from daco.errors import DataError, InputError, ModelError
from daco.files.remote import Location, is_remote
from daco.text import name_list

SCHEMA = 6
FORMAT = "daco-model"
SUFFIX = ".daco"
MAX_FILE = 1 << 31
MAX_DESCRIPTION = 1 << 20

_MODEL, _HASH = "model", "sha256"  # the tensors that are no field
_UNSAFE = re.compile(r"[^\w.-]+")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # by Windows

Tensors = dict[str, NDArray[Any]]


def encode(model: Mapping[str, Any]) -> bytes:
    """Encode the fields of a model; the same fields give the same bytes."""
    tensors = _pack(model)
    if tensors[_MODEL].nbytes > MAX_DESCRIPTION:
        raise ModelError(
            f"The description of the model takes {tensors[_MODEL].nbytes:,} bytes, "
            f"{MAX_DESCRIPTION:,} are allowed. Put less into its provenance."
        )
    tensors[_HASH] = np.frombuffer(_digest(tensors), np.uint8)
    return safetensors.numpy.save(tensors, {"format": FORMAT})


def content_hash(model: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of a model's content, the same in memory and on disk."""
    return _digest(_pack(model)).hex()


def decode(data: bytes) -> tuple[dict[str, Any], str]:
    """Decode a model file: its fields, with the right types, and its hash, or a `ModelError`."""
    stored = _read_tensors(data)
    if _MODEL not in stored or _HASH not in stored or stored[_MODEL].ndim != 1:
        raise ModelError("not a model of daco. Give a file made by daco fit.")
    expected = stored.pop(_HASH).tobytes()
    digest = _digest(stored)
    document = _read_document(stored.pop(_MODEL).tobytes())
    if expected != digest:
        raise ModelError(
            f"the content does not fit its hash (expected {expected.hex()[:12]}..., got "
            f"{digest.hex()[:12]}...): the file is damaged. Copy it again."
        )
    if {*document, *stored} != set(FIELDS):
        raise ModelError(f"damaged: a model holds {', '.join(FIELDS)}, and nothing else.")
    values: dict[str, Any] = {}
    for name, field in FIELDS.items():
        if isinstance(field, Value):
            if name not in document or not follows(document[name], field.rule):
                raise ModelError(f"damaged: {name} cannot be {document.get(name)!r:.60}.")
            values[name] = field.unpack(document[name])
        else:
            if name not in stored or stored[name].dtype != DTYPES[field.dtype]:
                raise ModelError(f"damaged: {name} must be a tensor of {field.dtype}.")
            values[name] = stored[name] if field.rule is None else _split(stored[name])
    return values, digest.hex()


def _split(stored: NDArray[Any]) -> tuple[str, ...]:
    """The texts of a tensor, each with a zero byte after it."""
    data = stored.tobytes()
    if stored.ndim != 1 or data.count(b"\0") > MAX_CLIPS:
        raise ModelError(f"damaged: names of clips must be one row of at most {MAX_CLIPS:,}.")
    try:
        *texts, rest = data.decode().split("\0")
    except UnicodeDecodeError:
        raise ModelError("damaged: the names of clips are not UTF-8 text.") from None
    if rest:
        raise ModelError("damaged: a zero byte must follow the name of each clip.")
    return tuple(texts)


def _read_tensors(data: bytes) -> Tensors:
    """The tensors by name; safetensors compares their declarations with the size of the file."""
    if int.from_bytes(data[:8], "little") > MAX_DESCRIPTION:
        raise ModelError("not a model of daco, or damaged. Give a file made by daco fit.")
    try:
        declared = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        why = "".join(char if char.isprintable() else "?" for char in str(error)[:200])
        raise ModelError(f"not a model of daco, truncated or damaged ({why}).") from None
    tensors = {}
    for name, tensor in declared:
        dtype, shape = tensor["dtype"], tensor["shape"]
        if dtype not in DTYPES or len(shape) > 2 or max(shape, default=0) > MAX_FILE:
            raise ModelError(
                "not a model of daco, or damaged: a tensor must be a vector or a matrix of "
                f"{', '.join(DTYPES)}. Got {dtype} {shape!s:.40}."
            )
        tensors[name] = np.frombuffer(tensor["data"], DTYPES[dtype]).reshape(shape)
    return tensors


def _read_document(text: bytes) -> dict[str, Any]:
    """The JSON object of a file, if it is written in the one way in which daco writes it."""
    try:
        document = json.loads(text) if len(text) <= MAX_DESCRIPTION else None
        canonical = canonical_json(document)
    except (ValueError, RecursionError):
        document, canonical = None, b""
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ModelError("not a model of daco, or damaged. Give a file made by daco fit.")
    schema = document.pop("schema", None)
    if schema != SCHEMA:
        raise ModelError(
            f"made by another version of daco (schema {schema!r:.20}, this one reads {SCHEMA}). "
            "Fit the model again, or use the version that made it."
        )
    if canonical != text:
        raise ModelError("damaged: its description is not written as daco writes it.")
    return document


def _pack(model: Mapping[str, Any]) -> Tensors:
    """The tensors of a model, without the hash."""
    document: dict[str, Any] = {"format": FORMAT, "schema": SCHEMA}
    tensors: Tensors = {}
    for name, field in FIELDS.items():
        if isinstance(field, Value):
            document[name] = model[name]
        elif field.rule is None:
            tensors[name] = np.ascontiguousarray(model[name], DTYPES[field.dtype])
        else:
            joined = "".join(f"{text}\0" for text in model[name])
            tensors[name] = np.frombuffer(joined.encode(), np.uint8)
    tensors[_MODEL] = np.frombuffer(canonical_json(document), np.uint8)
    return tensors


def _digest(tensors: Tensors) -> bytes:
    digest = hashlib.sha256()
    for name, array in sorted(tensors.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode("utf-8", "replace"))
        digest.update(array.tobytes())
    return digest.digest()


def is_model(path: Location) -> bool:
    """Tell whether a file looks like a model, without checking its content."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return f'"format":"{FORMAT}"'.encode() in file.read(min(length, MAX_DESCRIPTION))
    except OSError:
        return False


def read_file(path: Location) -> bytes:
    """The content of a regular file of a size that a model can have."""
    try:
        if is_remote(path):
            _require_file(path.stat())
            return path.read_bytes()
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            _require_file(status)
            data = file.read(status.st_size + 1)  # one more, to notice a file that grows meanwhile
    except FileNotFoundError:
        raise ModelError("does not exist. Give a model made by daco fit.") from None
    except IsADirectoryError:
        raise ModelError("is a folder. Give a model made by daco fit.") from None
    except OSError as error:
        raise ModelError(f"cannot be opened ({error.strerror or error}).") from None
    if len(data) != status.st_size:
        raise ModelError("changed while it was read. Try again.")
    return data


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for a writer


def _require_file(status: Any) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ModelError("is a folder. Give a model made by daco fit.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError("not a regular file. Give a model made by daco fit.")
    if status.st_size > MAX_FILE:
        raise ModelError(f"{status.st_size:,} bytes are more than a model can have.")


def model_paths(machines: Sequence[str], out: Path) -> list[Path]:
    """The model file of each machine; an error where a file exists that is no model."""
    if len(machines) == 1 and not out.is_dir():
        paths = [out]
    else:
        if not out.is_dir() and (out.exists() or out.suffix == SUFFIX):
            raise InputError(
                f"{out} is the name of one file, but there are {len(machines)} machines "
                f"({name_list(machines)}). Give a folder."
            )
        paths = [out / f"{name}{SUFFIX}" for name in safe_names(machines)]
    for path in paths:
        if path.exists() and not is_model(path):
            raise DataError(f"{path} exists already and is not a model. Choose another name.")
    return paths


def safe_names(machines: Sequence[str]) -> list[str]:
    """File names for machines, whatever they are called; all different, also without case.

    >>> safe_names(["fan", "../fan", "Fan", "press 2/old"])
    ['fan', 'fan-2', 'Fan-3', 'press-2-old']
    """
    names: dict[str, str] = {}
    for machine in machines:
        stem = _UNSAFE.sub("-", machine).strip(".-_ ")[:80] or "machine"
        stem = f"{stem}-" if _RESERVED.fullmatch(stem) else stem
        name, number = stem, 1
        while name.casefold() in names:
            number += 1
            name = f"{stem}-{number}"
        names[name.casefold()] = name
    return list(names.values())
