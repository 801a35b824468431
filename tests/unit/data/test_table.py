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

from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable, read_without_vectors
from daco.data.views import Views
from daco.errors import DataError, InputError
from daco.experiments import inputs
from daco.experiments.inputs import VectorReader

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


def through_pandas(path):
    pd.read_parquet(path).to_parquet(path)


@pytest.mark.parametrize("through", [None, through_pandas])
def test_a_table_comes_back_as_it_went_in(tmp_path, through):
    table, path = small_table(), tmp_path / "t.parquet"
    table.write(path)
    if through:
        through(path)
    back = EmbeddingTable.read(path)
    assert back.machines == ("fan", "pump")
    np.testing.assert_array_equal(back.matrix(), X)
    np.testing.assert_array_equal(back.matrix("mean"), X[:, :2])
    for name in table.columns:
        assert back.column(name).tolist() == table.column(name).tolist()
    if through is None:
        assert (back.readouts, back.metadata) == (("mod", "mean"), table.metadata)
        first = path.read_bytes()
        back.write(path)
        assert path.read_bytes() == first


def test_columns_on_disk_are_plain(tmp_path):
    small_table().write(tmp_path / "t.parquet")
    schema = pq.read_schema(tmp_path / "t.parquet")
    assert schema.names == [
        *("path", "year", "machine", "section", "domain", "split", "label", "attributes"),
        *("embedding", "embedding.mean", "shift"),
    ]
    assert schema.field("embedding").type.list_size == 3
    assert schema.field("embedding").type.value_type == pa.float32()
    assert json.loads(schema.metadata[b"daco.readouts"]) == ["mod", "mean"]
    assert schema.metadata[b"daco.backbone"] == b"logmel"
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert frame["attributes"][0] == '{"load": "ü", "v": "1"}'
    np.testing.assert_array_equal(np.stack(frame["embedding"]), X)


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
    assert (table.machines, table.readouts) == (("m",), ("embedding",))
    assert table.column("split").tolist() == ["train"] * 4
    part = read_without_vectors(path).vectors(np.array([3, 1]))
    np.testing.assert_array_equal(part, table.matrix()[[3, 1]])


def test_names_that_are_nearly_known_are_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"column 'labels'\. Did you mean 'label'"):
        EmbeddingTable.from_arrays(np.eye(3), labels=[0, 0, 1])
    table = EmbeddingTable.from_arrays(np.eye(3), label=0, labels=[0, 0, 1], level="a")
    assert table.column("labels").tolist() == [0, 0, 1]
    with pytest.raises(InputError, match="Did you mean 'machine'"):
        table.column("machin")
    with pytest.raises(InputError, match=r"no readout 'cls'.*mod, mean"):
        small_table().layout("cls+mod")


def test_select_by_value_and_by_missing_value():
    table = small_table()
    assert table.select(machine="pump").column("path").tolist() == ["c.wav", "d.wav"]
    assert table.select(domain=None).column("path").tolist() == ["c.wav"]
    train = table.select(split="train", year=2026)
    assert train.column("label").dtype == np.int64  # all known: numbers
    np.testing.assert_array_equal(train.matrix("mean"), X[[0, 3], :2])
    assert len(table.select(machine="valve")) == 0
    assert table.select(machine=["valve", "pump"], label=[0, 1, None]).machines == ("pump",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embedding": X[0]}, "2-D"),
        ({"embedding": np.where(X > 0, np.nan, X)}, "NaN"),
        ({"embedding": {}}, "no readout"),
        ({"embedding": np.ones((4, 3, 2))}, r"reshape\("),
        ({"embedding": {"a": X, "b": X[:2]}}, "2 rows, but 'a' has 4"),
        ({"machine": ["a"]}, "'machine' has 1 values for 4 clips"),
        ({"machine": ["a", "b", "", "c"]}, "row 2, column 'machine'"),
        ({"label": [0, 1, 2, 0]}, "row 2, column 'label'"),
        ({"split": "dev"}, "row 0, column 'split'"),
        ({"year": [2023, 2023.5, 1, 1]}, "row 1, column 'year'"),
        ({"metadata": {"a": 1}}, "text to text"),
        ({"metadata": {"a": "\ud800"}}, "text to text"),
        ({"embedding": {"\ud800": X}}, "readout's name is text"),
        ({"\ud800": 1}, "name of the column '.ud800' cannot be written as UTF-8"),
        ({"path": ["a", "b", "\udcfc", "c"]}, "row 2, column 'path'"),
        ({"note": ["a", "\ud800", "b", "c"]}, "row 1, column 'note'"),
        ({"attributes": [{"speed": "\ud800"}] * 4}, "row 0, column 'attributes'"),
    ],
)
def test_wrong_arrays_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        EmbeddingTable.from_arrays(**{"embedding": X, **arguments})


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
        ({"embedding": [[1.0], None]}, "'embedding' row 1 has 0 values, row 0 has 1"),
        ({"embedding": [[1.0], [1.0], [None]]}, "'embedding' contains NaN .*row 2"),
        ({"embedding": pa.array([[], []], pa.list_(pa.float32()))}, "row 0 has 0 values"),
        (
            {"embedding": pa.array([None, [1.0]], pa.list_(pa.float32(), 1))},
            "row 0 has 0|(row|index) 1",
        ),
        ({"embedding": _with(3, -np.inf)}, "'embedding' contains NaN or inf .*row 3"),
        ({"embedding": [[1e300]]}, "'embedding' row 0 is too large for float32"),
        ({"embedding": FULL[:0]}, "no rows"),
        ({"embedding": FULL, "embedding.x": _with(1, np.nan)}, "'embedding.x' contains .* row 1"),
        ({"embedding": FULL, "machine": ["a", "b", None, "c"]}, "row 2, column 'machine'"),
        ({"embedding": FULL, "machine": [1, 2, 3, 4]}, "'machine': must be text. Got 1"),
        ({"embedding": FULL, "attributes": ["{}", "{", "{}", "{}"]}, "row 1, column 'attributes'"),
        ({"embedding": FULL, "file_name": ["a", None, "b", "c"]}, "row 1, column 'file_name'"),
    ],
)
def test_a_wrong_file_is_named_with_column_and_row(tmp_path, columns, message):
    path = write_parquet(tmp_path / "wrong.parquet", **columns)
    with pytest.raises(DataError, match=message) as caught:
        EmbeddingTable.read(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        ("daco.readouts", ['["a"', "[]", '["a", "b"]', '["a", "a"]', "[1]", "{}"]),
        ("daco.views", ['["mod"]', '{"mod": {"sample_rate": 1}}', "[]", "{"]),
    ],
)
def test_metadata_that_does_not_fit_the_columns_is_refused(tmp_path, key, texts):
    for text in texts:
        table = pa.table({"embedding": FULL}).replace_schema_metadata({key: text})
        pq.write_table(table, tmp_path / "wrong.parquet")
        with pytest.raises(DataError, match=rf"wrong\.parquet.*{key}"):
            EmbeddingTable.read(tmp_path / "wrong.parquet")


def test_a_layout_says_which_columns_are_of_which_readout(tmp_path):
    long = RNG.normal(size=(4, 6)).astype(np.float32)
    table = EmbeddingTable.from_arrays({"rdp-g4@L9": long, "mean": X}, machine=["a", "a", "b", "b"])
    table.write(tmp_path / "t.parquet")
    back, clips = (
        read(tmp_path / "t.parquet") for read in (EmbeddingTable.read, read_without_vectors)
    )
    for each in (table, back, back.select(machine="b"), clips):
        assert each.layout() == each.layout("rdp-g4@L9") == Views(("rdp-g4@L9",), (6,))
        assert each.layout("mean+rdp-g4@L9") == Views(("mean", "rdp-g4@L9"), (3, 6))
    np.testing.assert_array_equal(back.matrix("mean+rdp-g4@L9"), np.hstack([X, long]))
    assert "rdp-g4@L9 (6), mean (3)" in repr(back)


# ----------------------------------------------------------------------------------- bad files


def test_files_that_are_no_tables(tmp_path):
    small_table().write(tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    cuts = [whole[:size] for size in (0, 4, 100, len(whole) // 2, len(whole) - 1)]
    for content in (*cuts, b"not a table"):
        (tmp_path / "bad.parquet").write_bytes(content)
        for read in (EmbeddingTable.read, read_clips):
            with pytest.raises(DataError, match=r"bad\.parquet: not a readable Parquet file"):
                read(tmp_path / "bad.parquet")
    for name in ("absent.parquet", ""):
        with pytest.raises(DataError, match="cannot be read"):
            EmbeddingTable.read(tmp_path / name)


def test_another_extension_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"extension \.parquet"):
        small_table().write(tmp_path / "t.npz")


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
    numbers = np.arange(len(rows) * 2).reshape(-1, 2)
    table = EmbeddingTable.from_arrays(
        numbers, path=names, machine=names, label=labels, year=years, attributes=attributes
    )
    table.write(path)
    back = EmbeddingTable.read(path)
    for name in ("path", "machine", "label", "year", "attributes"):
        assert back.column(name).tolist() == table.column(name).tolist()
    np.testing.assert_array_equal(back.matrix(), numbers)


def test_a_file_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path, monkeypatch):
    zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1_200_000, np.float32)), 4)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"embedding": zeros}), path, compression="zstd")
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("daco.data.parquet.LARGE", 2**20)
    with pytest.raises(DataError, match=r"would become 4,8\d\d,\d\d\d in memory"):
        EmbeddingTable.read(path)
    pq.write_table(pa.table({"path": ["a.wav"] * 300_000}), path)
    with pytest.raises(DataError, match="would become 2,400,000 in memory"):
        read_clips(path)


def test_a_long_text_in_every_row_takes_its_memory_once(tmp_path):
    machine = pa.array(["m" * 10**6]).dictionary_encode().take(pa.array([0] * 5000))
    path = write_parquet(tmp_path / "a.parquet", embedding=[[1.0]] * 5000, machine=machine)
    machines = EmbeddingTable.read(path).columns["machine"].tolist()
    assert len({id(name) for name in machines}) == 1


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


def by_parquet(tmp_path, **columns):
    pd.DataFrame({"embedding": list(np.eye(6)), **columns}).to_parquet(tmp_path / "fan.parquet")
    return EmbeddingTable.read(tmp_path / "fan.parquet")


@pytest.fixture(params=[by_arrays, by_parquet])
def columns_of(request, tmp_path):
    return lambda **columns: request.param(tmp_path, **columns).columns


@pytest.mark.parametrize("column", ["path", "file_name"])
def test_names_say_what_columns_do_not_and_columns_count(columns_of, column):
    columns = columns_of(**{column: TRAIN + TEST})
    assert columns["path"].tolist() == TRAIN + TEST
    assert {name: columns[name].tolist() for name in SAID} == SAID
    assert set(columns["machine"]) == {"machine"}
    given = {"split": ["train"] * 6, "label": [0] * 6, "domain": ["a"] * 6, "machine": ["x"] * 6}
    columns = columns_of(**{column: TRAIN + TEST}, **given)
    assert {name: columns[name].tolist() for name in given} == given


def test_folders_of_names_say_machine_year_and_split(columns_of):
    paths = [f"dcase2023t2/dev_data/raw/fan/train/{name}" for name in TRAIN]
    paths += [
        "D:\\data\\bearing\\train\\section_01_source_normal_0001.wav",
        "pump/section_00_0001.wav",
    ]
    columns = columns_of(path=paths)
    assert columns["machine"].tolist() == ["fan"] * 4 + ["bearing", "pump"]
    assert columns["section"].tolist() == ["00"] * 4 + ["01", "00"]
    assert columns["year"].tolist() == [2023] * 4 + [None] * 2
    assert columns["split"].tolist() == ["train"] * 5 + ["test"]
    assert columns["label"].tolist() == [0] * 5 + [None]


def test_other_names_say_nothing_and_among_test_names_need_a_split(columns_of):
    columns = columns_of(path=list("abcdef"))
    assert set(columns["split"].tolist()) == {"train"}
    mixed = [*TRAIN, "a.wav", TEST[1]]
    with pytest.raises((InputError, DataError), match=r"no column 'split'.* a\.wav"):
        columns_of(path=mixed)
    columns = columns_of(path=mixed, split=["train"] * 5 + ["test"])
    assert columns["domain"][4] is columns["label"][4] is None


# ------------------------------------------------------------------------- vectors in the file

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
    table = read_without_vectors(path, ("fault", "unknown"))
    assert (len(table), table.readouts, table.metadata) == (N, whole.readouts, whole.metadata)
    assert {*whole.columns} - {*table.columns} == {"attributes", "session"}
    for name in table.columns:
        assert table.columns[name].tolist() == whole.columns[name].tolist()
    assert "fault" not in read_without_vectors(path).columns
    rng = np.random.default_rng(1)
    for readout in (None, "mean", "mean+mod"):
        assert table.layout(readout) == whole.layout(readout)
        for rows in (np.arange(N), rng.permutation(N)[:90], np.array([499, 0, 0, 63, 64]), []):
            wanted = np.array(rows, int)
            expected = whole.matrix(readout)[wanted]
            np.testing.assert_array_equal(table.vectors(wanted, readout), expected)
            np.testing.assert_array_equal(whole.vectors(wanted, readout), expected)


@pytest.mark.parametrize("row", [0, 70, 499])
def test_a_wrong_vector_of_a_later_row_group_is_named_with_its_row(path, row):
    listed = np.ones((N, 6)).tolist()
    listed[row][1] = np.nan
    pq.write_table(pa.table({"embedding": listed}), path, row_group_size=64)
    with pytest.raises(DataError, match=rf"emb.parquet: .*NaN.*row {row}"):
        read_without_vectors(path).vectors(np.arange(1, N) if row else np.arange(N))
    listed[row : row + 1] = []
    listed[320:] = [each[:3] for each in listed[320:]]
    pq.write_table(pa.table({"embedding": listed}), path, row_group_size=64)
    with pytest.raises(DataError, match="row 320 has 3 values, row 0 has 6"):
        read_without_vectors(path).vectors(np.arange(400))


def test_a_file_that_changes_between_clips_and_vectors_is_refused(path):
    table = read_without_vectors(path)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DataError, match=r"emb.parquet: changed while it was read"):
        table.vectors(np.arange(300))


@pytest.mark.parametrize("budget", [1, 6 * 4 * 80, 10**9])
def test_a_reader_gives_every_machine_its_vectors_whatever_fits(whole, path, budget, monkeypatch):
    rows = [np.arange(m, N, 7) for m in range(7)]
    monkeypatch.setattr(inputs, "BUDGET", budget)
    reader = VectorReader(read_without_vectors(path), "mod", rows)
    for m in (0, 1, 2, 6, 0, 3, 4, 5):
        found = reader.vectors(m)
        np.testing.assert_array_equal(found, whole.matrix("mod")[rows[m]])
        loaded = sum(each.nbytes for each in reader._loaded.values())
        assert loaded <= max(budget, found.nbytes)
