"""An embedding table comes back as it went in, and a wrong one is named by column and row."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daco.data.stored import open_table
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.errors import DataError, InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3)).astype(np.float32)


def small_table():
    return EmbeddingTable.from_arrays(
        {"mod": X, "mean": X[:, :2]},
        machine=["fan", "fan", "pump", "pump"],
        domain=["source", "target", None, "source"],
        split=["train", "test", "test", "train"],
        label=[0, 1, None, 0],
        path=["a.wav", "b.wav", "c.wav", "d.wav"],
        year=2026,
        attributes=[{"v": "1", "load": "ü"}, {}, {}, {}],
        metadata={"backbone": "logmel", "weights_sha256": ""},
        shift=["a", "b", "c", "d"],
    )


def write_parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def vectors(matrix, kind=None):
    return pa.array(np.asarray(matrix).tolist(), kind or pa.list_(pa.float32()))


def test_a_table_comes_back_as_it_went_in(tmp_path):
    table = small_table()
    table.write(tmp_path / "t.parquet")
    back = EmbeddingTable.read(tmp_path / "t.parquet")
    assert len(back) == 4
    assert back.readouts == ("mod", "mean")
    assert back.machines == ("fan", "pump")
    assert back.metadata == table.metadata
    for readout in (None, "mod", "mean"):
        np.testing.assert_array_equal(back.matrix(readout), table.matrix(readout))
    for name in table.columns:
        assert back.column(name).tolist() == table.column(name).tolist()


def test_columns_on_disk_are_plain(tmp_path):
    small_table().write(tmp_path / "t.parquet")
    schema = pq.read_schema(tmp_path / "t.parquet")
    assert schema.names == [
        *("path", "year", "machine", "section", "domain", "split", "label", "attributes"),
        *("embedding", "embedding.mean", "shift"),
    ]
    kind = schema.field("embedding").type
    assert pa.types.is_fixed_size_list(kind)
    assert kind.list_size == 3
    assert kind.value_type == pa.float32()
    assert json.loads(schema.metadata[b"daco.readouts"]) == ["mod", "mean"]
    assert schema.metadata[b"daco.backbone"] == b"logmel"
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert frame["attributes"][0] == '{"load": "ü", "v": "1"}'
    np.testing.assert_array_equal(np.stack(frame["embedding"]), X)


def test_the_matrix_is_a_view_of_what_was_read_even_over_row_groups(tmp_path):
    n_clips = 10_000  # more than two row groups
    wide = np.arange(n_clips * 2, dtype=np.float32).reshape(n_clips, 2)
    EmbeddingTable.from_arrays(wide).write(tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups > 2
    before = pa.total_allocated_bytes()
    table = EmbeddingTable.read(tmp_path / "t.parquet")
    matrix = table.matrix()
    assert pa.total_allocated_bytes() - before >= matrix.nbytes  # Arrow owns the values
    assert np.shares_memory(matrix, table.matrix())
    assert not matrix.flags.owndata
    assert not matrix.flags.writeable
    np.testing.assert_array_equal(matrix, wide)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(pa.float32()), pa.list_(pa.float64()), pa.large_list(pa.float32())),
        *(pa.list_(pa.float32(), 3), pa.list_(pa.float16(), 3)),
    ],
    ids=str,
)
def test_any_parquet_with_an_embedding_column_is_a_table(tmp_path, kind):
    path = write_parquet(tmp_path / "own.parquet", embedding=vectors(X, kind), machine=["m"] * 4)
    table = EmbeddingTable.read(path)
    rtol = 1e-3 if kind.value_type == pa.float16() else 0  # half floats carry 11 bits
    np.testing.assert_allclose(table.matrix(), X, rtol=rtol)
    assert table.matrix().dtype == np.float32
    assert table.machines == ("m",)
    assert table.column("split").tolist() == ["train"] * 4
    assert table.readouts == ("embedding",)


def test_a_trip_through_pandas_keeps_vectors_and_missing_values(tmp_path):
    small_table().write(tmp_path / "t.parquet")
    pd.read_parquet(tmp_path / "t.parquet").to_parquet(tmp_path / "u.parquet")
    back = EmbeddingTable.read(tmp_path / "u.parquet")
    np.testing.assert_array_equal(back.matrix(), X)
    assert back.column("label").tolist() == [0, 1, None, 0]
    assert back.column("domain").tolist() == ["source", "target", None, "source"]
    assert back.column("attributes")[0] == {"v": "1", "load": "ü"}


def test_a_column_that_is_nearly_one_of_daco_is_refused():
    with pytest.raises(InputError, match=r"column 'labels'\. Did you mean 'label'"):
        EmbeddingTable.from_arrays(np.eye(3), labels=[0, 0, 1])
    table = EmbeddingTable.from_arrays(np.eye(3), label=0, labels=[0, 0, 1], level="a")
    assert table.column("labels").tolist() == [0, 0, 1]


def test_npz_with_optional_columns(tmp_path):
    np.savez(
        tmp_path / "own.npz",
        **{"embedding": X.astype(np.float64), "embedding.mean": X[:, :1]},
        machine="fan",
        domain=["source", "", "target", "target"],
        label=[0.0, 1.0, np.nan, 0.0],
    )
    table = EmbeddingTable.read(tmp_path / "own.npz")
    np.testing.assert_array_equal(table.matrix(), X)
    assert table.readouts == ("embedding", "mean")
    assert table.machines == ("fan",)
    assert table.column("domain").tolist() == ["source", None, "target", "target"]
    assert table.column("label").tolist() == [0, 1, None, 0]
    assert table.column("path").tolist() == ["0", "1", "2", "3"]
    np.savez(tmp_path / "half.npz", embedding=X.astype(np.float16))
    np.testing.assert_allclose(EmbeddingTable.read(tmp_path / "half.npz").matrix(), X, rtol=1e-3)


def test_select_by_value_and_by_missing_value():
    table = small_table()
    assert table.select(machine="pump").column("path").tolist() == ["c.wav", "d.wav"]
    assert table.select(domain=None).column("path").tolist() == ["c.wav"]
    train = table.select(split="train", year=2026)
    assert train.column("label").dtype == np.int64  # all known: numbers
    assert train.column("label").tolist() == [0, 0]
    np.testing.assert_array_equal(train.matrix("mean"), X[[0, 3], :2])
    assert len(table.select(machine="valve")) == 0
    assert table.select(machine=["valve", "pump"], label=[0, 1, None]).machines == ("pump",)


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(InputError, match="Did you mean 'machine'"):
        small_table().column("machin")
    with pytest.raises(InputError, match=r"no readout 'cls'.*mod, mean"):
        small_table().matrix("cls")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embedding": X[0]}, "2-D"),
        ({"embedding": np.where(X > 0, np.nan, X)}, "NaN"),
        ({"embedding": X.astype(float) * 1e300}, "row 0 is too large for float32"),
        ({"embedding": {}}, "no readout"),
        ({"embedding": np.empty((0, 3))}, "0 sample"),
        ({"embedding": np.empty((4, 0))}, "0 feature"),
        ({"embedding": np.ones((4, 3, 2, 1))}, "2-D"),
        ({"embedding": [[[1.0, 2.0]], [[1.0]]]}, "ragged"),
        ({"embedding": {"a": X, "b": X[:2]}}, "2 rows, but 'a' has 4"),
        ({"embedding": X, "machine": ["a"]}, "'machine' has 1 values for 4 clips"),
        ({"embedding": X, "machine": ["a", "b", "", "c"]}, "row 2, column 'machine'"),
        ({"embedding": X, "label": [0, 1, 2, 0]}, "row 2, column 'label': must be 0"),
        ({"embedding": X, "split": "dev"}, "row 0, column 'split': must be one of train, test"),
        (
            {"embedding": X, "year": [2023, 2023.5, 1, 1]},
            "row 1, column 'year': must be",
        ),
        ({"embedding": X, "metadata": {"a": 1}}, "text to text"),
        ({"embedding": X, "metadata": {"a": "\ud800"}}, "text to text"),
        ({"embedding": {"\ud800": X}}, "readout's name is text"),
        ({"embedding": X, "\ud800": 1}, "name of the column '.ud800' cannot be written as UTF-8"),
        (
            {"embedding": X, "path": ["a", "b", "\udcfc", "c"]},
            "row 2, column 'path'",
        ),
        (
            {"embedding": X, "note": ["a", "\ud800", "b", "c"]},
            "row 1, column 'note'",
        ),
        (
            {"embedding": X, "attributes": [{"speed": "\ud800"}] * 4},
            "row 0, column 'attributes'",
        ),
    ],
)
def test_wrong_arrays_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        EmbeddingTable.from_arrays(**arguments)


def test_from_arrays_leaves_the_callers_array_writeable():
    mine = X.copy()
    table = EmbeddingTable.from_arrays(mine)
    mine[0, 0] = 5
    assert not table.matrix().flags.writeable


def _with(row, value):
    matrix = X.copy()
    matrix[row] = value
    return vectors(matrix)


FULL = vectors(X)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"vector": FULL}, "no column 'embedding'. It has 'vector'"),
        ({"embedding": [1.0, 2.0]}, "'embedding' must hold lists of floats. Got double"),
        ({"embedding": [["a"]]}, "'embedding' must hold lists of floats"),
        ({"embedding": [[1.0, 2.0], [1.0]]}, "'embedding' row 1 has 1 values, row 0 has 2"),
        ({"embedding": [[1.0], None]}, "'embedding' row 1 is missing"),
        ({"embedding": [[1.0], [1.0], [None]]}, "'embedding' row 2 has missing values"),
        ({"embedding": pa.array([[], []], pa.list_(pa.float32()))}, "empty lists"),
        ({"embedding": _with(2, np.nan)}, "'embedding' contains NaN or inf .*row 2"),
        ({"embedding": _with(3, -np.inf)}, "'embedding' contains NaN or inf .*row 3"),
        ({"embedding": [[1e300]]}, "'embedding' row 0 is too large for float32"),
        ({"embedding": FULL[:0]}, "no rows"),
        ({"embedding": FULL, "embedding.x": _with(1, np.inf)}, "'embedding.x' contains .* row 1"),
        (
            {"embedding": FULL, "machine": ["a", "b", None, "c"]},
            "row 2, column 'machine'",
        ),
        (
            {"embedding": FULL, "machine": [1, 2, 3, 4]},
            "'machine': must be text. Got 1",
        ),
        ({"embedding": FULL, "label": [0, 1, 7, 0]}, "row 2, column 'label': must be 0"),
        (
            {"embedding": FULL, "split": ["train"] * 3 + ["x"]},
            "row 3, column 'split'",
        ),
        (
            {"embedding": FULL, "attributes": ["{}", "{", "{}", "{}"]},
            "row 1, column 'attributes'",
        ),
    ],
)
def test_a_wrong_file_is_named_with_column_and_row(tmp_path, columns, message):
    path = write_parquet(tmp_path / "wrong.parquet", **columns)
    with pytest.raises(DataError, match=message) as caught:
        EmbeddingTable.read(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("readouts", ['["a"', "[]", '["a", "b"]', '["a", "a"]', "[1]", "{}"])
def test_metadata_that_does_not_fit_the_columns_is_refused(tmp_path, readouts):
    table = pa.table({"embedding": FULL}).replace_schema_metadata({"daco.readouts": readouts})
    pq.write_table(table, tmp_path / "wrong.parquet")
    with pytest.raises(DataError, match=r"daco\.readouts"):
        EmbeddingTable.read(tmp_path / "wrong.parquet")


LONG = RNG.normal(size=(4, 6)).astype(np.float32)


def test_a_layout_says_which_columns_are_of_which_readout(tmp_path):
    table = EmbeddingTable.from_arrays({"rdp-g4@L9": LONG, "mean": X}, machine=["a", "a", "b", "b"])
    table.write(tmp_path / "t.parquet")
    back = EmbeddingTable.read(tmp_path / "t.parquet")
    for each in (table, back, back.select(machine="b"), open_table(tmp_path / "t.parquet")):
        assert each.layout() == each.layout("rdp-g4@L9") == Views(("rdp-g4@L9",), (6,))
        assert each.layout("mean+rdp-g4@L9") == Views(("mean", "rdp-g4@L9"), (3, 6))
    np.testing.assert_array_equal(back.matrix("mean+rdp-g4@L9"), np.hstack([X, LONG]))
    assert "rdp-g4@L9 (6), mean (3)" in repr(back)
    with pytest.raises(InputError, match="no readout 'band'"):
        back.layout("mean+band")


def test_a_vector_per_band_must_be_made_one_vector():
    with pytest.raises(InputError, match=r"reshape\("):
        EmbeddingTable.from_arrays(np.ones((4, 3, 2)))


@pytest.mark.parametrize("name", ["t.parquet", "t.npz"])
@pytest.mark.parametrize("content", [b"", b"not a table", None])
def test_files_that_are_no_tables(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        EmbeddingTable.read(tmp_path / name)


def test_a_truncated_table_is_refused_wherever_it_was_cut(tmp_path):
    small_table().write(tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    for size in (4, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.parquet").write_bytes(whole[:size])
        with pytest.raises(DataError, match="not a readable Parquet file"):
            EmbeddingTable.read(tmp_path / "cut.parquet")


def test_writing_where_nothing_can_be_written_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match="Create the folder first"):
        small_table().write(tmp_path / "missing" / "t.parquet")
    with pytest.raises(DataError, match="Choose the name of a file"):
        small_table().write(tmp_path)
    with pytest.raises(InputError, match=r"extension \.parquet"):
        small_table().write(tmp_path / "t.npz")
    assert list(tmp_path.iterdir()) == []


def test_the_same_bytes_are_written_and_a_failed_write_leaves_them(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    small_table().write(path)
    before = path.read_bytes()
    small_table().write(path)
    assert path.read_bytes() == before

    def full_disk(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(DataError, match=r"t\.parquet: cannot be written \(No space left"):
        EmbeddingTable.from_arrays(X * 2).write(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["t.parquet"]


def test_npz_with_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "t.npz", embedding=X, machine=np.array(["a", None, "b", "c"], object))
    with pytest.raises(DataError, match="Save text as text"):
        EmbeddingTable.read(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"vectors": X}, "no column 'embedding'"),
        ({"embedding": X[0]}, "'embedding' must be a 2-D array"),
        ({"embedding": X, "embedding.b": X[:2]}, "2 rows, but 'embedding' has 4"),
        ({"embedding": np.where(X > 0, np.nan, X)}, "'embedding' contains NaN .* row 0"),
        ({"embedding": X, "label": [0, 1]}, "'label' has 2 values for 4 clips"),
        (
            {"embedding": X, "domain": ["a", "\ud800", "b", "b"]},
            "row 1, column 'domain'",
        ),
        ({"embedding": X, "x": ["a", "\ud800", "b", "b"]}, "row 1, column 'x'"),
    ],
)
def test_a_wrong_npz_is_named(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(DataError, match=message):
        EmbeddingTable.read(tmp_path / "t.npz")


@given(
    rows=st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
            st.none() | st.sampled_from([0, 1]),
            st.none() | st.integers(1990, 2100),
            st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.just("v")),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_whatever_the_clips_hold_survives(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    names, labels, years, attributes = map(list, zip(*rows, strict=True))
    vectors = np.arange(len(rows) * 2).reshape(-1, 2)
    table = EmbeddingTable.from_arrays(
        vectors, path=names, machine=names, label=labels, year=years, attributes=attributes
    )
    table.write(path)
    back = EmbeddingTable.read(path)
    for name in ("path", "machine", "label", "year", "attributes"):
        assert back.column(name).tolist() == table.column(name).tolist()
    np.testing.assert_array_equal(back.matrix(), vectors)


# --------------------------------------------------------------------------------- DCASE names

TRAIN = [
    f"section_00_{d}_train_normal_{i:04}_vel_8.wav" for d in ("source", "target") for i in (0, 1)
]
TEST = [f"section_00_target_test_{kind}_0000_vel_9.wav" for kind in ("normal", "anomaly")]
SAID = {
    "domain": ["source", "source", "target", "target", "target", "target"],
    "split": ["train"] * 4 + ["test"] * 2,
    "label": [0, 0, 0, 0, 0, 1],
    "attributes": [{"vel": "8"}] * 4 + [{"vel": "9"}] * 2,
}


def by_arrays(tmp_path, **columns):
    return EmbeddingTable.from_arrays(np.eye(6), **columns)


def by_npz(tmp_path, **columns):
    np.savez(tmp_path / "fan.npz", embedding=np.eye(6), **columns)
    return EmbeddingTable.read(tmp_path / "fan.npz")


def by_parquet(tmp_path, **columns):
    frame = pd.DataFrame({"embedding": list(np.eye(6)), **columns})
    frame.to_parquet(tmp_path / "fan.parquet")
    return EmbeddingTable.read(tmp_path / "fan.parquet")


def by_rows(tmp_path, **columns):
    by_parquet(tmp_path, **columns)
    return open_table(tmp_path / "fan.parquet")


READERS = [by_arrays, by_npz, by_parquet, by_rows]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("column", ["path", "file_name"])
def test_names_say_what_columns_do_not(tmp_path, read, column):
    table = read(tmp_path, **{column: TRAIN + TEST})
    assert table.columns["path"].tolist() == TRAIN + TEST
    for name in ("domain", "split", "label"):
        assert table.columns[name].tolist() == SAID[name]
    if "attributes" in table.columns:
        assert table.columns["attributes"].tolist() == SAID["attributes"]
    assert set(table.columns["machine"]) == {"machine"}


@pytest.mark.parametrize("read", READERS)
def test_folders_of_names_say_machine_year_and_split(tmp_path, read):
    paths = [f"dcase2023t2/dev_data/raw/fan/train/{name}" for name in TRAIN]
    paths += [
        "D:\\data\\bearing\\train\\section_01_source_normal_0001.wav",
        "pump/section_00_0001.wav",
    ]
    columns = read(tmp_path, path=paths).columns
    assert columns["machine"].tolist() == ["fan"] * 4 + ["bearing", "pump"]
    assert columns["section"].tolist() == ["00"] * 4 + ["01", "00"]
    assert columns["year"].tolist() == [2023] * 4 + [None] * 2
    assert columns["split"].tolist() == ["train"] * 5 + ["test"]
    assert columns["label"].tolist() == [0] * 5 + [None]


@pytest.mark.parametrize("read", READERS)
def test_a_column_that_is_given_counts(tmp_path, read):
    given = {"split": ["train"] * 6, "label": [0] * 6, "domain": ["a"] * 6, "machine": ["x"] * 6}
    columns = read(tmp_path, path=TRAIN + TEST, **given).columns
    assert {name: columns[name].tolist() for name in given} == given


@pytest.mark.parametrize("read", READERS)
def test_other_names_say_nothing(tmp_path, read):
    columns = read(tmp_path, path=list("abcdef")).columns
    assert set(columns["split"].tolist()) == {"train"}
    assert set(columns["domain"].tolist()) == set(columns["label"].tolist()) == {None}


def test_an_error_names_the_column_that_the_names_are_in(tmp_path):
    with pytest.raises(DataError, match=r"row 1, column 'file_name': must be text. Got None"):
        by_parquet(tmp_path, file_name=[TRAIN[0], None, *TRAIN[1:], TEST[0]])


@pytest.mark.parametrize("read", READERS)
def test_other_names_among_test_names_need_a_split(tmp_path, read):
    mixed = [*TRAIN, "a.wav", TEST[1]]
    with pytest.raises(
        (InputError, DataError), match=r"no column 'split'.* 1 clip with other names: a\.wav"
    ):
        read(tmp_path, path=mixed)
    assert read(tmp_path, path=mixed, split=["train"] * 5 + ["test"]).columns["domain"][4] is None
    assert (
        read(tmp_path, path=[*TRAIN, "a.wav", "b.wav"]).columns["split"].tolist() == ["train"] * 6
    )


def bomb(path, suffix):
    """A small file of 300,000 equal clips."""
    vectors = np.zeros((300_000, 4), np.float32)
    if suffix == ".npz":
        np.savez_compressed(path, embedding=vectors)
    else:
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4)
        pq.write_table(pa.table({"embedding": column}), path, compression="zstd")
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_a_file_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path, monkeypatch, suffix):
    path = bomb(tmp_path / f"a{suffix}", suffix)
    assert len(EmbeddingTable.read(path)) == 300_000  # small enough for any computer
    monkeypatch.setattr("daco.data.parquet.LARGE", 2**20)
    with pytest.raises(DataError, match=r"would become 4,8\d\d,\d\d\d in memory"):
        EmbeddingTable.read(path)


def test_a_long_text_in_every_row_takes_its_memory_once(tmp_path):
    columns = {"embedding": [[1.0]] * 5000, "machine": ["m" * 10**6] * 5000}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    machines = EmbeddingTable.read(tmp_path / "a.parquet").columns["machine"].tolist()
    assert len({id(name) for name in machines}) == 1
