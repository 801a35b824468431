"""No model file, however damaged or hostile, does more than be refused."""

from __future__ import annotations

import json
import math
import struct
import tracemalloc

import pytest
from fuzz.harness import Child, check
from fuzz.mutate_model import Stored, declared, pack, text_of, unpack, with_hash, with_text
from fuzz.mutator import seeds
from hypothesis import given
from hypothesis import strategies as st

from daco.detector.model import MachineModel
from daco.detector.modelfields import DTYPES, FIELDS, Tensor
from daco.errors import DacoError

OUTCOMES = ("accepted", "ModelError")
VALUES = [name for name, field in FIELDS.items() if not isinstance(field, Tensor)]
TENSORS = [name for name, field in FIELDS.items() if isinstance(field, Tensor)]
TEXTS = ("clip_names", "clip_sha256", "sessions", "new_names")


@pytest.fixture(scope="module")
def child():
    with Child("model") as started:
        yield started


def test_every_model_is_loaded_or_refused_with_a_reason(child):
    check(child, "model")


def test_a_file_put_together_again_is_the_same_model(child):
    """Otherwise the tests below would only test the hash."""
    for data in seeds("model"):
        assert child.feed("model", _file(*_parts(data))) == "accepted"


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


def _parts(data=None):
    parts = unpack(seeds("model")[-1] if data is None else data)
    return parts.document, parts.tensors


def _file(document, tensors, declarations=None):
    """A file whose hash fits whatever it says."""
    tensors = with_hash(with_text(tensors, text_of(document)))
    header, body = declared(tensors, {"format": "daco-model"})
    return pack(json.dumps({**header, **(declarations or {})}), body)


@given(changes=st.dictionaries(st.sampled_from(VALUES) | st.text(), _JSON, min_size=1))
def test_any_description_is_loaded_or_refused(child, changes):
    document, tensors = _parts()
    assert child.feed("model", _file({**document, **changes}, tensors)) in OUTCOMES


_DECLARATION = st.fixed_dictionaries(
    {
        "dtype": _JSON,
        "shape": st.lists(st.integers()),
        "data_offsets": st.lists(st.integers(), min_size=2, max_size=2),
    }
)


@given(
    changes=st.dictionaries(
        st.sampled_from([*TENSORS, "model", "sha256"]), _JSON | _DECLARATION, min_size=1
    )
)
def test_any_declaration_is_loaded_or_refused(child, changes):
    assert child.feed("model", _file(*_parts(), changes)) in OUTCOMES


@given(
    name=st.sampled_from([*TENSORS, "another"]),
    dtype=st.sampled_from(sorted(DTYPES)),
    shape=st.lists(st.integers(0, 60) | st.sampled_from((2**31, 2**62, 2**64 - 1)), max_size=3)
    | st.just([1] * 65),
    fill=st.binary(min_size=1, max_size=16),
)
def test_any_type_and_shape_is_loaded_or_refused(child, name, dtype, shape, fill):
    document, tensors = _parts()
    size = math.prod(shape) * int(DTYPES[dtype][-1])
    size = size if size < 1 << 20 else 0
    tensors[name] = Stored(dtype, shape, (fill * (size // len(fill) + 1))[:size])
    assert child.feed("model", _file(document, tensors)) in OUTCOMES


@given(name=st.sampled_from(TENSORS), at=st.integers(0, 5000), patch=st.binary(max_size=64))
def test_any_numbers_in_the_tensors_are_loaded_or_refused(child, name, at, patch):
    document, tensors = _parts()
    data = tensors[name].data
    at = at % (len(data) or 1)
    patch = patch[: len(data) - at]
    tensors[name].data = data[:at] + patch + data[at + len(patch) :]
    assert child.feed("model", _file(document, tensors)) in OUTCOMES


@given(name=st.sampled_from(TEXTS), data=st.lists(st.binary(max_size=70)).map(b"\0".join))
def test_any_texts_are_loaded_or_refused(child, name, data):
    document, tensors = _parts()
    for texts in (data, tensors[name].data + data):
        tensors[name] = Stored("U8", [len(texts)], texts)
        assert child.feed("model", _file(document, tensors)) in OUTCOMES


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
