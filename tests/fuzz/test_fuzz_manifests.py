"""No manifest, however damaged or hostile, does more than be refused."""

from __future__ import annotations

import csv
import datetime
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz.harness import Child, check
from fuzz.mutate_tables import RECORDINGS
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def child():
    with Child("manifest", "list") as started:
        yield started


@pytest.mark.parametrize("kind", ["manifest", "list"])
def test_every_manifest_is_read_or_refused_with_a_reason(child, kind):
    check(child, kind)


_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
_NAMES = st.sampled_from(
    ("path", "year", "machine", "section", "domain", "split", "label", "attributes", "Path ")
)


@given(
    header=st.lists(_NAMES | _TEXT, max_size=6),
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


@given(path=_TEXT.map(lambda text: "../" + text) | st.sampled_from(("/", "..", ".", "~", "\0")))
def test_any_path_is_found_or_refused(child, path):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["path"], [path]])
    assert child.feed("manifest", text.getvalue().encode()) in ("accepted", "DataError")


_COLUMNS = (
    pa.array([[1, 2], None]),
    pa.array([{"speed": 1}, None]),
    pa.array([b"\xff", b""]),
    pa.array([1.5, float("nan")]),
    pa.array([2**62, None]),
    pa.array([float("inf"), 1.0]),
    pa.array(['{"speed": "2"}', '{"\\ud800": "2"}']),
    pa.array([True, None]),
    pa.array([None, None]),
    pa.array([datetime.date(2025, 1, 1), None]),
    pa.array([{"a": b"\xff"}, None]),
    pa.array([[("speed", "2")], None], pa.map_(pa.string(), pa.string())),
    pa.array(["old", None]).dictionary_encode(),
)


@pytest.mark.parametrize("name", ["path", "year", "section", "split", "label", "attributes"])
def test_any_type_of_column_is_understood_or_refused(child, name):
    for column in _COLUMNS:
        file = io.BytesIO()
        columns = {"path": pa.array(RECORDINGS[:2]), name: column}
        pq.write_table(pa.table(columns), file)
        assert child.feed("list", file.getvalue()) in ("accepted", "DataError"), column


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(child, data):
    assert child.feed("manifest", data) == "DataError"
