"""No manifest and no embedding table, however damaged or hostile, does more than be refused."""

from __future__ import annotations

import csv
import datetime
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz.harness import check
from fuzz.mutate_tables import RECORDINGS
from hypothesis import given
from hypothesis import strategies as st

KINDS = ("manifest", "list", "parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_is_read_or_refused_with_a_reason(child, kind):
    check(child, kind)


_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
_HEADERS = st.sampled_from(
    ("path", "year", "machine", "section", "domain", "split", "label", "attributes", "Path ")
)


@given(
    header=st.lists(_HEADERS | _TEXT, max_size=6),
    rows=st.lists(st.lists(_TEXT | st.sampled_from(RECORDINGS), max_size=7), max_size=4),
    delimiter=st.sampled_from(",;\t"),
    ending=st.sampled_from(("\n", "\r\n", "\r")),
)
def test_any_table_of_text_is_read_or_refused(child, header, rows, delimiter, ending):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=ending)
    writer.writerows([header, *rows])
    assert child.feed("manifest", text.getvalue().encode()) in ("accepted", "DataError")


@given(
    name=st.sampled_from(("year", "machine", "section", "domain", "split", "label", "attributes")),
    cell=_TEXT | st.from_regex(r"[\[{]{1,9}(\"[a-z]\":)?[-0-9.e]*[\]}]{0,9}", fullmatch=True),
)
def test_any_cell_is_understood_or_refused(child, name, cell):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["path", name], [RECORDINGS[0], cell]])
    assert child.feed("manifest", text.getvalue().encode()) in ("accepted", "DataError")


_COLUMNS = (
    pa.array([[1.0, 2.0], [3.0]]),
    pa.array([[1.0, 2.0], [float("nan"), 3.0]]),
    pa.array([[1, 2], [3, 4]]),
    pa.array([[1e300], [2.0]]),
    pa.array([["a"], ["b"]]),
    pa.array([[[1.0]], [[2.0]]]),
    pa.array([[], []], pa.list_(pa.float32())),
    pa.array([[1.0], None]),
    pa.array([[1.0, None], [2.0, 3.0]]),
    pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float16(), 2)),
    pa.array([{"speed": 1}, None]),
    pa.array([{"a": b"\xff"}, None]),
    pa.array([b"\xff", b""]),
    pa.array([2**62, None]),
    pa.array([float("inf"), 1.0]),
    pa.array(['{"speed": "2"}', '{"\\ud800": "2"}']),
    pa.array([True, None]),
    pa.array([None, None]),
    pa.array([datetime.date(2025, 1, 1), None]),
    pa.array([[("speed", "2")], None], pa.map_(pa.string(), pa.string())),
    pa.array(["old", None]).dictionary_encode(),
)
_NAMES = ("embedding", "embedding.mean", "path", "domain", "label", "year", "attributes", "x")
_FIRST = {
    "parquet": {"embedding": pa.array([[1.0, 2.0], [3.0, 4.0]])},
    "list": {"path": pa.array(RECORDINGS[:2])},
}


@pytest.mark.parametrize("kind", _FIRST)
@pytest.mark.parametrize("name", [*_NAMES, "section", "split"])
def test_any_type_of_column_is_understood_or_refused(child, kind, name):
    for column in _COLUMNS:
        file = io.BytesIO()
        pq.write_table(pa.table({**_FIRST[kind], name: column}), file)
        assert child.feed(kind, file.getvalue()) in ("accepted", "DataError"), column


@pytest.mark.parametrize("place", ["attributes", "daco.readouts", "daco.views"])
def test_deeply_nested_json_is_refused(child, place):
    table = pa.table({"embedding": pa.array([[1.0, 2.0]])})
    if place == "attributes":
        table = table.append_column(place, pa.array(["[" * 100_000]))
    else:
        table = table.replace_schema_metadata({place: "[" * 100_000})
    file = io.BytesIO()
    pq.write_table(table, file)
    assert child.feed("parquet", file.getvalue()) == "DataError"
