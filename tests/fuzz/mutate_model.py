"""Model files that are not what they say; the hash is made to fit in most of them."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from field_models import LOGMEL, small_model
from fuzz.mutator import LONG_EXTREMES, Mutation

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.0, -0.0, 0.5, 1.0, 1.5,
    1e-320, 1e308, float("nan"), float("inf"), "", "0", "\0", "é" * 40, "\ud800", "x" * 5000,
    "1" * 5000, [], {}, [[]], [None], {"": None}, [0] * 100, {"a": {"b": {"c": []}}},
)  # fmt: skip

_CONFIGS = (
    "raw-k1", "raw-k0", "raw-k256", "raw-k257", "raw-k" + "9" * 50, "conf-soft-m0-k1",
    "conf-hard-m1000000-k16", "conf-oracle-m0-k1", "conf-soft-m-1-k1", "ldn-ratio-K1",
    "ldn-diff-K256", "conf-soft-m0-ldnK16", "zscore-soft-k1", "ratio-soft-k1", "maha", "auto",
)  # fmt: skip

SEEDS: dict[str, Callable[[], list[bytes]]] = {"model": lambda: _seeds()}


def _seeds() -> list[bytes]:
    models = [
        small_model(),
        small_model(1, frontend=LOGMEL, config="ldn-ratio-K1", false_alarm_rate=0.2),
        small_model(2, frontend=LOGMEL, config="raw-k1", false_alarm_rate=0.01),
        small_model(3, clip_sha256=[f"{row:064x}" for row in range(50)]),
    ]
    return [model.to_bytes() for model in models]


def mutate_model(rng: Random, data: bytes) -> bytes:
    """Other values, types, shapes and offsets in the header, the description or the tensors."""
    (length,) = struct.unpack_from("<Q", data)
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    document = json.loads(header["__metadata__"]["model"])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        change = rng.choice(("document", "config", "header", "tensor", "body", "body"))
        if change == "document":
            _change_somewhere(rng, document)
        elif change == "config":
            document["config"] = rng.choice(_CONFIGS)
        elif change == "header":
            _change_somewhere(rng, header)
        elif change == "tensor":
            _change_tensor(rng, header, body)
        else:
            body = _change_numbers(rng, body)
    return _assembled(rng, header, document, body)


def _assembled(rng: Random, header: Any, document: Any, body: bytes) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["model"] = _awkward(rng, text)
        if rng.random() < 0.8:  # who can write the file can write the hash
            begin = f"daco-model {header['__metadata__'].get('schema')}\n{text}\n"
            content = begin.encode(errors="surrogatepass") + body
            header["__metadata__"]["sha256"] = hashlib.sha256(content).hexdigest()
    packed = _awkward(rng, json.dumps(header, ensure_ascii=rng.random() < 0.5))
    encoded = packed.encode(errors="surrogatepass")
    encoded += b" " * (-len(encoded) % 8)
    length = len(encoded)
    if rng.random() < 0.1:
        length = rng.choice((*LONG_EXTREMES, length - 1, length + 1, length + len(body)))
    return struct.pack("<Q", length) + encoded + body


def _awkward(rng: Random, text: str) -> str:
    """JSON that parsers trip over; most often the text as it is."""
    if rng.random() < 0.85:
        return text
    depth = rng.choice((20, 2000, 100_000))
    return rng.choice(
        (
            text[:-1] + ',"domains":[]}',
            text[:-1] + ',"deep":' + "[" * depth + "]" * depth + "}",
            text[:-1] + ',"deep":' + '{"a":' * depth,
            text[:-1] + ',"many":[' + "0," * 5000 + "0]}",
            text[:-1] + ',"digits":' + "9" * 5000 + "}",
            text[:-1] + ',"small":1e-99999,"large":1e99999}',
            text.replace("0.", "NaN, 0.", 1),
            text.replace(":", "::", 1),
            text + text,
            "\ufeff" + text,
            text.replace('"', "'", 2),
        )
    )


def _change_somewhere(rng: Random, tree: Any) -> None:
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
    else:
        holder[key] = deepcopy(rng.choice(ODD_VALUES))


def _change_tensor(rng: Random, header: Any, body: bytes) -> None:
    """What is said about one tensor: its type, its shape, where it lies."""
    said = header.get(rng.choice(("embeddings", "reference_scores", "clip_domains", "clip_names")))
    if not isinstance(said, dict):
        return
    field = rng.choice(("dtype", "shape", "shape", "data_offsets", "data_offsets"))
    if field == "dtype":
        said[field] = rng.choice(("F16", "F32", "F64", "I32", "U8", "BF16", "BOOL", "", "|O", 4))
    elif isinstance(said.get(field), list) and said[field]:
        at = rng.randrange(len(said[field]))
        one = said[field][at]
        near = (one + 1, one - 1, one + 8, one * 2) if isinstance(one, int) else ()
        said[field][at] = rng.choice((*near, 0, -1, 2**31, 2**62, 2**64, len(body), 0.5, "8", None))
        if rng.random() < 0.2:
            rng.shuffle(said[field])


def _change_numbers(rng: Random, body: bytes) -> bytes:
    """NaN, inf, zeros, copies or noise in the tensors."""
    start = rng.randrange(0, max(1, len(body) - 8), 4)
    count = rng.choice((4, 4, 32, 320, len(body)))
    word = rng.choice(
        (
            struct.pack("<f", float("nan")),
            struct.pack("<d", float("inf")),
            struct.pack("<f", 3e38),
            struct.pack("<f", 1e-44),
            bytes(4),
            b"\xff" * 4,
            rng.randbytes(64),
            body[:32],
        )
    )
    patch = (word * (count // len(word) + 1))[: min(count, len(body) - start)]
    return body[:start] + patch + body[start + len(patch) :]


MUTATIONS: dict[str, Mutation] = {"model": mutate_model}
