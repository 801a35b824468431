"""Tables whose vectors stay in the file: the same rows as of a table that is read whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daco.data.stored import open_table
from daco.data.table import EmbeddingTable
from daco.errors import DataError
from daco.experiments import inputs
from daco.experiments.inputs import VectorReader

N = 500


@pytest.fixture
def whole():
    rng = np.random.default_rng(0)
    return EmbeddingTable.from_arrays(
        {"mod": rng.normal(size=(N, 6)), "mean": rng.normal(size=(N, 4))},
        machine=[f"m{i % 7}" for i in range(N)],
        domain=["old", None] * (N // 2),
        label=[0, 1, None, 0, 1] * (N // 5),
        attributes=[{"speed": str(i)} for i in range(N)],
        metadata={"backbone": "some"},
        fault=["", "rub"] * (N // 2),
    )


@pytest.fixture
def path(whole, tmp_path):
    """In row groups of 64, as other programs may write them."""
    whole.write(tmp_path / "first.parquet")
    path = tmp_path / "emb.parquet"
    pq.write_table(pq.read_table(tmp_path / "first.parquet"), path, row_group_size=64)
    return path


def test_what_it_says_without_vectors_is_what_the_whole_table_says(whole, path):
    table = open_table(path)
    assert len(table) == len(whole)
    assert table.readouts == whole.readouts
    assert table.metadata == whole.metadata
    for readout in (None, "mod", "mean"):
        assert table.layout(readout) == whole.layout(readout)
        assert table.layout(readout).dim == whole.matrix(readout).shape[1]
    for name in ("path", "machine", "domain", "split", "label", "year", "section"):
        assert table.columns[name].tolist() == whole.columns[name].tolist()


def test_attributes_are_left_out_and_further_columns_kept_when_asked_for(whole, path):
    assert not {"attributes", "fault"} & set(open_table(path).columns)
    table = open_table(path, ("fault", "unknown"))
    assert table.columns["fault"].tolist() == whole.columns["fault"].tolist()


@pytest.mark.parametrize("readout", [None, "mean"])
def test_rows_come_in_the_order_asked_for(whole, path, readout):
    table = open_table(path)
    rng = np.random.default_rng(1)
    for rows in (np.arange(N), rng.permutation(N)[:90], np.array([499, 0, 0, 63, 64]), []):
        found = table.rows(np.array(rows, int), readout)
        np.testing.assert_array_equal(found, whole.matrix(readout)[np.array(rows, int)])


@pytest.mark.parametrize("row", [0, 70, 499])
def test_a_vector_that_is_not_finite_is_told_with_its_row(path, row):
    content = pq.read_table(path)
    vectors = np.stack(content["embedding"].to_numpy())
    vectors[row, 1] = np.nan
    content = content.drop(["embedding", "embedding.mean"]).append_column(
        "embedding", pa.array(vectors.tolist(), pa.list_(pa.float32(), 6))
    )
    content = content.replace_schema_metadata({})
    pq.write_table(content, path, row_group_size=64)
    with pytest.raises(DataError, match=rf"emb.parquet: .*NaN.*row {row}"):
        open_table(path).rows(np.arange(N))


def test_lists_of_any_length_and_float64_are_read(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(10, 3))
    pq.write_table(pa.table({"embedding": vectors.tolist()}), tmp_path / "a.parquet")
    found = open_table(tmp_path / "a.parquet").rows(np.array([9, 3]))
    np.testing.assert_array_equal(found, vectors[[9, 3]].astype(np.float32))


def test_vectors_of_different_length_are_told(tmp_path):
    listed = [[1.0, 2.0]] * 6 + [[1.0, 2.0, 3.0]] * 6
    pq.write_table(pa.table({"embedding": listed}), tmp_path / "a.parquet", row_group_size=6)
    with pytest.raises(DataError, match="row 6 has 3 values, row 0 has 2"):
        open_table(tmp_path / "a.parquet").rows(np.arange(12))


def test_what_is_no_table_is_refused_as_by_a_whole_read(tmp_path):
    (tmp_path / "text.parquet").write_text("no table")
    pq.write_table(pa.table({"vector": [[1.0]]}), tmp_path / "other.parquet")
    pq.write_table(pa.table({"embedding": [[1.0]]}).slice(0, 0), tmp_path / "empty.parquet")
    names = ("text.parquet", "other.parquet", "empty.parquet", "absent.parquet", "")
    for name in names:
        told = []
        for read in (open_table, EmbeddingTable.read):
            with pytest.raises(DataError) as error:
                read(tmp_path / name)
            told.append(str(error.value))
        assert told[0] == told[1]


def test_damage_that_is_found_while_rows_are_read_is_told(path):
    table = open_table(path)
    content = bytearray(path.read_bytes())
    content[4:4000] = b"\xff" * 3996
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"emb.parquet: (cannot be read|not a readable)"):
        table.rows(np.arange(300))


@pytest.mark.parametrize("budget", [1, 6 * 4 * 80, 10**9])
def test_a_reader_gives_every_machine_its_vectors_whatever_fits(whole, path, budget, monkeypatch):
    rows = [np.arange(m, N, 7) for m in range(7)]
    monkeypatch.setattr(inputs, "BUDGET", budget)
    reader = VectorReader(open_table(path), "mod", rows)
    for m in (0, 1, 2, 6, 0, 3, 4, 5):
        found = reader.vectors(m)
        np.testing.assert_array_equal(found, whole.matrix("mod")[rows[m]])
        assert reader._matrix.nbytes <= max(budget, found.nbytes)


def test_a_small_file_is_read_once_for_all_machines(path, monkeypatch):
    table = open_table(path)
    reader = VectorReader(table, None, [np.arange(m, N, 7) for m in range(7)])
    calls = []
    rows = type(table).rows
    monkeypatch.setattr(type(table), "rows", lambda *given: calls.append(1) or rows(*given))
    for _ in range(2):
        for m in range(7):
            reader.vectors(m)
    assert len(calls) == 1


def test_vectors_are_read_from_another_file_system(whole, path):
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/tables/emb.parquet", path.read_bytes())
    table = open_table("memory://tables/emb.parquet")
    rows = np.array([499, 3, 200])
    np.testing.assert_array_equal(table.rows(rows), whole.matrix()[rows])
    with pytest.raises(DataError, match="absent"):
        open_table("memory://tables/absent.parquet")
