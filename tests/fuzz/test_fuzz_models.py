"""No model file, however damaged or hostile, does more than be refused."""

from __future__ import annotations

import json
import struct
import tracemalloc

import pytest
from fuzz.harness import check
from fuzz.mutate_model import Stored, declared, pack, text_of, unpack, with_hash, with_text
from fuzz.mutator import seeds
from hypothesis import given
from hypothesis import strategies as st

from daco.detector.model import MachineModel
from daco.detector.modelfields import FIELDS, Tensor
from daco.errors import DacoError

KINDS = ("model",)
TENSORS = [name for name, field in FIELDS.items() if isinstance(field, Tensor)]


def test_every_model_is_loaded_or_refused_with_a_reason(child):
    check(child, "model")


def test_a_file_put_together_again_is_the_same_model(child):
    """Otherwise the tests below would only test the hash."""
    for data in seeds("model"):
        assert child.feed("model", _file(*_parts(data))) == "accepted"


def _parts(data=None):
    parts = unpack(seeds("model")[-1] if data is None else data)
    return parts.document, parts.tensors


def _file(document, tensors, declarations=None):
    """A file whose hash fits whatever it says."""
    tensors = with_hash(with_text(tensors, text_of(document)))
    header, body = declared(tensors, {"format": "daco-model"})
    return pack(json.dumps({**header, **(declarations or {})}), body)


@pytest.mark.parametrize("name", [*TENSORS, "model", "sha256"])
def test_no_tensor_may_be_missing(child, name):
    document, tensors = _parts()
    tensors = with_text(tensors, text_of(document))
    tensors = with_hash({key: each for key, each in tensors.items() if key != name})
    if name == "sha256":
        del tensors["sha256"]
    header, body = declared(tensors, {"format": "daco-model"})
    assert child.feed("model", pack(json.dumps(header), body)) == "ModelError"


def _many_texts():
    return {"clip_names": Stored("U8", [4 << 20], bytes(4 << 20))}


def _many_references():
    count = 500_000
    return {
        "reference_scores": Stored("F64", [count], bytes(8 * count)),
        "reference_domains": Stored("I32", [count], struct.pack(f"<{count}i", *range(count))),
    }


def _many_tensors():
    return {f"{number}": Stored("U8", [0], b"") for number in range(50_000)}


@pytest.mark.parametrize("more", [_many_texts, _many_references, _many_tensors])
def test_what_is_cheap_to_write_takes_little_memory(more):
    document, tensors = _parts()
    data = _file(document, {**tensors, **more()})
    tracemalloc.start()
    try:
        with pytest.raises(DacoError):
            MachineModel.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_any_bytes_are_refused(child, rest, length):
    assert child.feed("model", struct.pack("<Q", length) + rest) == "ModelError"
