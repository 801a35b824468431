"""Clip tables, manifests and plain folders."""

from __future__ import annotations

import pickle

import pandas as pd
import pytest
from dcase_trees import make
from hypothesis import given
from hypothesis import strategies as st

from daco.data.clips import COLUMNS, Clip, ClipTable
from daco.data.manifest import write_manifest
from daco.data.sources import read_clips
from daco.errors import DataError, InputError


def manifest(root, text, name="clips.csv"):
    root.mkdir(exist_ok=True)
    (root / name).write_text(text)
    return root / name


# -------------------------------------------------------------------------------------- table


def test_a_clip_refuses_what_is_no_split_or_label():
    with pytest.raises(InputError, match=r"one of train, test, supplemental. Got 'dev' instead"):
        Clip("a.wav", "fan", split="dev")
    with pytest.raises(InputError, match=r"0 \(normal\), 1 \(anomaly\) or None. Got 2 instead"):
        Clip("a.wav", "fan", label=2)


def test_clips_are_values():
    clip = Clip("a.wav", "fan", attributes={"speed": "1"})
    assert clip == Clip("a.wav", "fan", attributes={"speed": "1"})
    assert len({clip, Clip("a.wav", "fan", attributes={"speed": "1"})}) == 1
    assert pickle.loads(pickle.dumps(clip)) == clip  # worker processes get them so


def test_a_table_is_columns_rows_and_paths(tmp_path):
    clips = (
        Clip("a.wav", "fan", 2024, domain="source", label=0, attributes={"speed": "1"}),
        Clip("b.wav", "pump", 2024, split="test"),
        Clip("c.wav", "fan", 2023, split="test", label=1),
    )
    table = ClipTable(tmp_path, clips)
    assert tuple(table.columns()) == COLUMNS
    assert list(table) == list(clips)
    assert len(table) == 3
    assert table.machines == ("fan", "pump")
    assert list(table.by_machine()) == [(2024, "fan"), (2024, "pump"), (2023, "fan")]
    assert table.paths()[1] == tmp_path / "b.wav"
    assert table.select(machine="fan", split="test").clips == clips[2:]
    assert table.select(label=None).clips == clips[1:2]
    frame = table.to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["label"].tolist() == [0, pd.NA, 1]
    with pytest.raises(InputError, match=r"no column 'machines'\. Did you mean 'machine'"):
        table.select(machines="fan")


# ---------------------------------------------------------------------------------- manifests


def test_a_manifest_needs_only_paths(tmp_path):
    make(tmp_path / "pump", "a.wav", "sub/b.wav")
    table = read_clips(manifest(tmp_path / "pump", "path\nsub/b.wav\na.wav\n"))
    assert table.root == tmp_path / "pump"
    assert table.clips == (
        Clip("sub/b.wav", "pump", domain="all"),
        Clip("a.wav", "pump", domain="all"),
    )


def test_every_column_of_a_manifest_is_understood(tmp_path):
    make(tmp_path, *"abcdef")
    rows = [
        'a,2024,fan,0,source,train,normal,"{""speed"": ""1""}",12 May',
        "b,2024.0,fan,01,target,Test,1,,",
        "c,,fan,,,test,0.0,,nan",
        "d,nan,fan,00,source,supplemental,NaN,,",
        "e,2024,fan,00,source,train,0,,2",
        "f,2024,fan,00,target,test,Broken,,",
    ]
    header = "\ufeffpath,Year,machine,section,domain, split,LABEL,attributes,Session"
    text = "\n".join([header, *rows])
    table = read_clips(manifest(tmp_path, text), year=2025)
    assert table.columns() == {
        "path": list("abcdef"),
        "year": [2024, 2024, 2025, 2025, 2024, 2024],
        "machine": ["fan"] * 6,
        "section": ["00", "01", "00", "00", "00", "00"],
        "domain": ["source", "target", None, "source", "source", "target"],
        "split": ["train", "test", "test", "supplemental", "train", "test"],
        "label": [0, 1, 0, None, 0, 1],
        "attributes": [{"speed": "1"}, {}, {}, {}, {}, {}],
        "session": ["12 May", None, None, None, "2", None],
    }


@pytest.mark.parametrize("separator", [";", "\t"])
def test_separators_line_ends_and_empty_rows_of_spreadsheets_are_understood(tmp_path, separator):
    make(tmp_path, "a.wav")
    text = "path;label;\r\na.wav;0;\r\n;;\r\n\r\n".replace(";", separator)
    (clip,) = read_clips(manifest(tmp_path, text))
    assert clip.label == 0


def test_paths_of_a_manifest_may_leave_its_folder_or_come_from_windows(tmp_path):
    make(tmp_path, "other/a.wav", "lists/sub/b.wav", "lists/c.wav")
    inside, outside = tmp_path / "lists/c.wav", tmp_path / "other/../other/a.wav"
    text = f"path\n../other/a.wav\nsub\\b.wav\n{inside}\n"
    table = read_clips(manifest(tmp_path / "lists", text))
    assert [clip.path for clip in table] == ["../other/a.wav", "sub/b.wav", "c.wav"]
    assert all(path.is_file() for path in table.paths())
    (clip,) = read_clips(manifest(tmp_path / "lists", f"path\n{outside}\n"))
    assert clip.path == "../other/a.wav"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty. It needs a header"),
        ("file\na.wav\n", r"has no column 'path'; its columns are 'file'"),
        ("path\n", "has a header but no rows"),
        ("path,path\na.wav,b.wav\n", "has the column 'path' more than once"),
        ("path,label\na.wav,0\n,1\n", r"row 2, column 'path': empty"),
        (
            "path,label\na.wav,0\nb.wav,odd\n",
            r"row 2, column 'label': must be 0 \(normal\), 1",
        ),
        ("path,split\na.wav,dev\n", r"row 1, column 'split': must be one of train, test"),
        ("path,label\na.wav,1\n", r"row 1, column 'split': missing for an anomaly"),
        ("path,year\na.wav,soon\n", r"row 1, column 'year': must be a whole number"),
        ("path,attributes\na.wav,x=1\n", r"row 1, column 'attributes': must be a JSON"),
        ("path,machine\na.wav\n", r"row 1 has 1 value, the header has 2"),
        ("path\na.wav\nb.wav\n./a.wav\n", r"row 3, column 'path': 'a.wav' is already in row 1"),
        ("path\na.wav\nx.wav\n../y.wav\n", r"2 files of .* not found .*: row 2 'x.wav', row 3 '.."),
        *(("path\n.\n", "1 file of .* not found"), ("path\na\0.wav\n", "1 file of .* not found")),
        ("path\n" + ".wav\n".join(map(str, range(1000))), "1,000 files of .* and 995 more"),
        ("path\nä.wav\n".encode("latin-1"), "is not UTF-8 text"),
    ],
)
def test_manifest_errors_name_row_and_column(tmp_path, text, message):
    make(tmp_path, "a.wav", "b.wav")
    (tmp_path / "clips.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message):
        read_clips(tmp_path / "clips.csv")


def test_a_spreadsheet_runs_no_name_of_a_written_manifest(tmp_path):
    names = ["=cmd|'C calc'!A0.wav", "+1.wav", "-1.wav", "@x.wav", "'=y.wav", "fan.wav"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    write_manifest(read_clips(tmp_path), tmp_path / "list.csv")
    cells = [line.lstrip('"') for line in (tmp_path / "list.csv").read_text().splitlines()[1:]]
    assert [cell[0] for cell in cells] == ["'"] * 5 + ["f"]
    assert sorted(read_clips(tmp_path / "list.csv").columns()["path"]) == sorted(names)


def test_unknown_columns_are_odd(tmp_path):
    make(tmp_path, "a.wav", "b.wav")
    table = read_clips(manifest(tmp_path, "path,labels,speed\na.wav,1,2\nb.wav,1,2\n"))
    assert table.oddities == (
        "Column 'labels' of clips.csv ignored. Did you mean 'label'?",
        "Column 'speed' of clips.csv ignored.",
    )


def test_another_extension_of_a_manifest_is_refused(tmp_path):
    table = ClipTable(tmp_path, (Clip("a.wav", "fan"),))
    with pytest.raises(InputError, match=r"ends in \.csv or \.parquet. Got 'a\.json' instead"):
        write_manifest(table, tmp_path / "a.json")


def test_anomalies_among_the_training_clips_are_odd(tmp_path):
    make(tmp_path, "a", "b", "c")
    text = "path,machine,domain,split,label\na,fan,x,train,1\nb,fan,x,train,0\nc,fan,,train,0\n"
    assert read_clips(manifest(tmp_path, text)).oddities == (
        "fan: 1 training clip without a domain: c.",
        "fan: 1 training clip labelled anomaly: a.",
    )


def test_a_manifest_of_pandas_is_understood(tmp_path):
    make(tmp_path, "a.wav", "b.wav")
    columns = {"path": ["a.wav", "b.wav"], "split": "test", "label": [1.0, None], "section": [0, 1]}
    frame = pd.DataFrame({**columns, "domain": [900, 1800], "embedding": [[1.0], [2.0]]})
    frame.to_parquet(tmp_path / "clips.parquet")
    table = read_clips(tmp_path / "clips.parquet")
    assert table.columns()["label"] == [1, None]
    assert table.columns()["section"] == ["00", "01"]
    assert table.columns()["domain"] == ["900", "1800"]
    frame.drop(columns="embedding").to_csv(tmp_path / "clips.csv", index=False)
    assert read_clips(tmp_path / "clips.csv").clips == table.clips


words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1).filter(
    lambda text: text.lower() not in ("nan", "none", "null", "<na>")
)


@given(
    machine=words,
    domain=st.none() | words,
    split=st.sampled_from(["train", "test", "supplemental"]),
    label=st.sampled_from([None, 0, 1]),
    year=st.none() | st.integers(1000, 9999),
    attributes=st.dictionaries(st.text(st.characters(codec="utf-8")), words, max_size=3),
    session=st.none() | words,
    suffix=st.sampled_from([".csv", ".parquet"]),
)
def test_a_written_manifest_reads_back(
    tmp_path_factory, machine, domain, split, label, year, attributes, session, suffix
):
    root = make(tmp_path_factory.mktemp("round"), 'a, b;"c".wav', "d.wav")
    clips = (
        Clip('a, b;"c".wav', machine, year, "01", domain, split, label, attributes, session),
        Clip("d.wav", machine),
    )
    path = root / f"clips{suffix}"
    write_manifest(ClipTable(root, clips), path)
    assert read_clips(path).clips == clips
