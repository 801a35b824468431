"""No model file, however damaged or hostile, does more than be refused."""

from __future__ import annotations

import hashlib
import json
import struct

import pytest
from fuzz.harness import Child, check
from fuzz.mutator import seeds
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def child():
    with Child("model") as started:
        yield started


def test_every_model_is_loaded_or_refused_with_a_reason(child):
    check(child, "model")


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(("F32", "F64", "raw-k1", "conf-soft-m0-k1", "source", "logmel")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
_DOCUMENT = ("machine", "config", "frontend", "domains", "false_alarm_rate", "threshold",
             "reason", "provenance")  # fmt: skip


def _parts():
    data = seeds("model")[0]
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["model"]), data[8 + length :]


def _file(header, document, body):
    """A file whose hash fits whatever it says."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content = f"daco-model 1\n{text}\n".encode(errors="surrogatepass") + body
    metadata = {**header["__metadata__"], "model": text}
    metadata["sha256"] = hashlib.sha256(content).hexdigest()
    encoded = json.dumps({**header, "__metadata__": metadata}).encode()
    return struct.pack("<Q", len(encoded)) + encoded + body


@given(changes=st.dictionaries(st.sampled_from(_DOCUMENT) | st.text(), _JSON, min_size=1))
def test_any_description_is_loaded_or_refused(child, changes):
    header, document, body = _parts()
    data = _file(header, {**document, **changes}, body)
    assert child.feed("model", data) in ("accepted", "ModelError")


_TENSORS = ("embeddings", "reference_scores", "clip_domains", "reference_domains", "clip_names")
_DECLARATION = st.fixed_dictionaries(
    {
        "dtype": _JSON,
        "shape": st.lists(st.integers()),
        "data_offsets": st.lists(st.integers(), min_size=2, max_size=2),
    }
)


@given(changes=st.dictionaries(st.sampled_from(_TENSORS), _JSON | _DECLARATION, min_size=1))
def test_any_tensor_is_loaded_or_refused(child, changes):
    header, document, body = _parts()
    data = _file({**header, **changes}, document, body)
    assert child.feed("model", data) in ("accepted", "ModelError")


@given(at=st.integers(0, 50 * (8 + 8 * 4 + 4 + 4) - 1), patch=st.binary(min_size=1, max_size=64))
def test_any_numbers_in_the_tensors_are_loaded_or_refused(child, at, patch):
    header, document, body = _parts()
    changed = body[:at] + patch + body[at + len(patch) :]
    data = _file(header, document, changed[: len(body)])
    assert child.feed("model", data) in ("accepted", "ModelError")


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_any_bytes_are_refused(child, rest, length):
    assert child.feed("model", struct.pack("<Q", length) + rest) == "ModelError"
