"""Model files that are not what they say; the hash is made to fit in most of them."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from field_models import LOGMEL, normals, small_model
from fuzz.mutator import LONG_EXTREMES, Mutation

from daco.data.views import Views
from daco.detector.revision import calibrate_with

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.0, -0.0, 0.5, 1.0, 1.5,
    1e-320, 1e308, float("nan"), float("inf"), "", "0", "\0", "é" * 40, "\ud800", "x" * 5000,
    "1" * 5000, [], {}, [[]], [None], {"": None}, [0] * 100, {"a": {"b": {"c": []}}},
)  # fmt: skip

_CONFIGS = (
    "raw-k1", "raw-k0", "raw-k256", "raw-k257", "raw-k" + "9" * 50, "conf-soft-m0-k1",
    "conf-hard-m1000000-k16", "conf-oracle-m0-k1", "conf-soft-m-1-k1", "ldn-ratio-K1",
    "ldn-diff-K256", "conf-soft-m0-ldnK16", "zscore-soft-k1", "ratio-soft-k1", "varmin-K4",
    "ldn-mean-K49", "blend", "conf-hard-m0-blend", "blend+maha", "ext-maha", "maha", "auto",
)  # fmt: skip

_TEXTS = ("clip_names", "clip_sha256", "sessions", "new_names")
_ODD_TEXTS = (
    b"", b"\0", b"\0" * 50, b"\0" * 20_000, b"\xff\0", b"\xc3", b"\xed\xa0\x80\0", b"a\0" * 50,
    b"a\0" * 49 + b"a", b"0" * 64 + b"\0", b"x" * 2000 + b"\0", b"\x1b[2J\r\n\0" * 50,
)  # fmt: skip
_ODD_SHAPES: tuple[list[int], ...] = (
    [], [0], [0, 8], [0, 2**31], [0, 2**62], [0, 2**63], [2**32, 0, 2**32], [0] * 40, [1] * 40,
    [1] * 70, [1], [1, 1], [50], [50, 8], [8, 50], [400], [10_001, 1],
)  # fmt: skip
_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "U8": 1, "BOOL": 1}
_NUMPY = {"F64": "<f8", "F32": "<f4", "I32": "<i4", "U8": "|u1"}

SEEDS: dict[str, Callable[[], list[bytes]]] = {"model": lambda: _seeds()}


def _seeds() -> list[bytes]:
    sessions = ["", *(f"Schicht {row // 5}" for row in range(1, 50))]
    models = [
        small_model(),
        small_model(1, frontend=LOGMEL, config="ldn-ratio-K1", false_alarm_rate=0.2),
        small_model(2, frontend=LOGMEL, config="raw-k1", false_alarm_rate=0.01),
        small_model(3, clip_sha256=[f"{row:064x}" for row in range(50)], groups=sessions),
        small_model(4, views=Views(("mod", "cep"), (5, 3)), config="conf-soft-m0-k1", siblings=2),
    ]
    new = calibrate_with(models[3], normals(seed=5)[0][:3], ["target"] * 3, ["a", "b", "ü"])
    return [model.to_bytes() for model in (*models, new)]


@dataclass
class Stored:
    """One tensor of a file: what is said about it, and its bytes."""

    dtype: str
    shape: list[int]
    data: bytes


@dataclass
class Parts:
    """A model file in pieces; `pack` puts them together again."""

    document: Any
    tensors: dict[str, Stored]
    metadata: Any = field(default_factory=lambda: {"format": "daco-model"})


def unpack(data: bytes) -> Parts:
    """The pieces of a sound file, without its hash."""
    (length,) = struct.unpack_from("<Q", data)
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    metadata = header.pop("__metadata__")
    tensors = {
        name: Stored(said["dtype"], said["shape"], body[slice(*said["data_offsets"])])
        for name, said in header.items()
    }
    del tensors["sha256"]
    return Parts(json.loads(tensors.pop("model").data), tensors, metadata)


def text_of(document: Any) -> str:
    """JSON as daco writes it."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def with_text(tensors: dict[str, Stored], text: str) -> dict[str, Stored]:
    """The tensors and that of the JSON object."""
    data = text.encode(errors="surrogatepass")
    return {**tensors, "model": Stored("U8", [len(data)], data)}


def with_hash(tensors: dict[str, Stored]) -> dict[str, Stored]:
    """The tensors and a hash that fits: who can write the file can write the hash."""
    digest = hashlib.sha256()
    for name, each in sorted(tensors.items()):
        said = f"{name} {_NUMPY.get(each.dtype, each.dtype)} {tuple(each.shape)}\n"
        digest.update(said.encode(errors="replace") + each.data)
    return {**tensors, "sha256": Stored("U8", [32], digest.digest())}


def declared(tensors: dict[str, Stored], metadata: Any) -> tuple[dict[str, Any], bytes]:
    """The header and the body of a file."""
    header, body = {"__metadata__": metadata}, b""
    # The largest numbers first, as safetensors aligns them.
    for name, each in sorted(tensors.items(), key=lambda item: -_BYTES.get(item[1].dtype, 1)):
        offsets = [len(body), len(body) + len(each.data)]
        header[name] = {"dtype": each.dtype, "shape": each.shape, "data_offsets": offsets}
        body += each.data
    return header, body


def pack(header: str, body: bytes, length: int | None = None) -> bytes:
    """The bytes of a file; `length` is what it says of its header."""
    encoded = header.encode(errors="surrogatepass")
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded) if length is None else length) + encoded + body


def mutate_model(rng: Random, data: bytes) -> bytes:
    """Other values, types, shapes and offsets in the header, the JSON object or the tensors."""
    parts = unpack(data)
    damage_header = False
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        change = rng.choice(
            ("document", "document", "config", "header", "shape", "numbers", "texts", "names")
        )
        if change == "document":
            change_somewhere(rng, parts.document)
        elif change == "config":
            parts.document["config"] = rng.choice(_CONFIGS)
        elif change == "header":
            damage_header = True
        elif change == "names":
            _change_names(rng, parts.tensors)
        elif change == "texts":
            _change_texts(rng, parts.tensors)
        elif parts.tensors:
            tensor = parts.tensors[rng.choice(sorted(parts.tensors))]
            (_change_shape if change == "shape" else _change_numbers)(rng, tensor)
    return _assembled(rng, parts, damage_header)


def _assembled(rng: Random, parts: Parts, damage_header: bool) -> bytes:
    tensors = with_text(parts.tensors, _awkward(rng, text_of(parts.document)))
    if rng.random() < 0.05:
        _change_shape(rng, tensors["model"])
    tensors = with_hash(tensors)
    if rng.random() < 0.1:
        (_change_shape if rng.random() < 0.5 else _change_numbers)(rng, tensors["sha256"])
    header, body = declared(tensors, parts.metadata)
    if damage_header:
        change_somewhere(rng, header)
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5)
    length = None
    if rng.random() < 0.05:
        text = _awkward(rng, text, always=True)
    if rng.random() < 0.05:
        size = len(text)
        length = rng.choice((*LONG_EXTREMES, size - 1, size + 1, size + len(body)))
    return pack(text, body, length)


def _awkward(rng: Random, text: str, always: bool = False) -> str:
    """JSON that parsers trip over; most often the text as it is."""
    if not always and rng.random() < 0.9:
        return text
    depth = rng.choice((20, 300, 900, 970, 2000, 100_000))
    return rng.choice(
        (
            text[:-1] + ',"domains":[]}',
            text[:-1] + ',"zz":' + "[" * depth + "]" * depth + "}",
            text.replace('"created":', '"a":' + "[" * depth + "]" * depth + ',"created":', 1),
            text.replace('"machine":"press"', '"machine":' + "[" * depth + "]" * depth, 1),
            text[:-1] + ',"zz":' + '{"a":' * depth,
            text[:-1] + ',"zz":[' + "0," * 5000 + "0]}",
            text[:-1] + ',"zz":' + "9" * 5000 + "}",
            text[:-1] + ',"zz":1e-99999,"zzz":1e99999}',
            text[:-1] + " " * (1 << 20) + "}",
            text.replace("0.", "NaN, 0.", 1),
            text.replace(":", "::", 1),
            text + text,
            "\ufeff" + text,
            text.replace('"', "'", 2),
        )
    )


def change_somewhere(rng: Random, tree: Any) -> None:
    """One value of a tree of JSON replaced, removed, renamed or nested."""
    places = [(tree, key) for key in tree]
    for holder, key in places:
        child = holder[key]
        if isinstance(child, dict):
            places += [(child, each) for each in child]
        elif isinstance(child, list):
            places += [(child, each) for each in range(len(child))]
    holder, key = rng.choice(places)
    action = rng.randrange(6)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[rng.choice(("", "x", "\0", key + " ", key.upper()))] = holder.pop(key)
    elif action == 2:
        holder[key] = [holder[key]]
    elif action == 3 and isinstance(holder[key], list):
        holder[key] = holder[key] * rng.choice((0, 2, 70))
    elif action == 3 and isinstance(holder[key], int):
        holder[key] += rng.choice((-1, 1, 8, holder[key]))
    else:
        holder[key] = deepcopy(rng.choice(ODD_VALUES))


def _change_names(rng: Random, tensors: dict[str, Stored]) -> None:
    """A tensor too few or too many, or two in each other's place."""
    names = sorted(tensors)
    action = rng.randrange(4)
    if action == 0 and names:
        del tensors[rng.choice(names)]
    elif action == 1 and names:
        tensors[rng.choice(("x", "", "config", "é", "\0"))] = tensors.pop(rng.choice(names))
    elif action == 2 and names:
        a, b = rng.choice(names), rng.choice(names)
        tensors[a], tensors[b] = tensors[b], tensors[a]
    else:
        for number in range(rng.choice((1, 1, 3000))):
            tensors[f"more {number}"] = Stored(rng.choice(sorted(_BYTES)), [0], b"")


def _change_shape(rng: Random, tensor: Stored) -> None:
    """Another type or shape, with as many bytes as it needs."""
    old, rows = tensor.shape, rng.choice((0, 1, 3, 49, 51, 60, 10_001))
    if rng.random() < 0.3:
        tensor.dtype = rng.choice(sorted(_BYTES))
    tensor.shape = list(
        rng.choice(([rows, *old[1:]], [*old, 1], [1, *old], old[::-1], rng.choice(_ODD_SHAPES)))
    )
    count = math.prod(tensor.shape) * _BYTES[tensor.dtype]
    if count < 1 << 22 and rng.random() < 0.9:
        tensor.data = (tensor.data * (count // (len(tensor.data) or 1) + 1))[:count]
        tensor.data += bytes(count - len(tensor.data))


def _change_texts(rng: Random, tensors: dict[str, Stored]) -> None:
    """Other texts of clips: not UTF-8, of another number, too long, not ended."""
    name = rng.choice(_TEXTS)
    data = tensors[name].data if name in tensors else b""
    at, odd = rng.randrange(len(data) + 1), rng.choice(_ODD_TEXTS)
    changed = rng.choice((odd, data + odd, data[:at] + odd + data[at:], data[:at], data[:-1]))
    tensors[name] = Stored("U8", [len(changed)], changed)


def _change_numbers(rng: Random, tensor: Stored) -> None:
    """NaN, inf, zeros, copies or noise in a tensor."""
    data = tensor.data
    start = rng.randrange(0, max(1, len(data) - 8), 4)
    count = rng.choice((4, 4, 32, 320, len(data)))
    word = rng.choice(
        (
            struct.pack("<f", float("nan")),
            struct.pack("<d", float("inf")),
            struct.pack("<f", 3e38),
            struct.pack("<d", 1.7e308),
            struct.pack("<f", 1e-44),
            struct.pack("<i", rng.choice((-1, 0, 1, 2, 2**31 - 1))),
            bytes(4),
            b"\xff" * 4,
            rng.randbytes(64),
            data[:32] or b"\0",
        )
    )
    patch = (word * (count // len(word) + 1))[: min(count, len(data) - start)]
    tensor.data = data[:start] + patch + data[start + len(patch) :]


MUTATIONS: dict[str, Mutation] = {"model": mutate_model}
