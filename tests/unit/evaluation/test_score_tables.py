"""Score tables: files of other systems are read whole, or refused with file and row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from shared_data import shared

from daco.errors import DataError, InputError
from daco.evaluation.score_tables import match_names, read_score_table
from daco.evaluation.scorefiles import read_score_files

ROWS = {
    "path": ["day1/a.wav", "day1/b.wav", "day1/c.wav", "day1/d.wav"],
    "machine": ["fan", "fan", "fan", "pump"],
    "section": ["00", "00", "00", "01"],
    "domain": ["slow", "fast", None, "slow"],
    "split": ["train", "train", "test", "train"],
    "label": [0, None, 1, None],
    "score": [0.1, -2.5, 1 / 3, 1e-17],
    "weight_Fast": [None, None, 0.25, None],
    "remark": ["x", "y", "z", "z"],
}


def written(path, rows=ROWS):
    frame = pd.DataFrame(rows)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep=";" if path.stem == "semicolons" else ",")
    return path


@pytest.mark.parametrize("name", ["own.csv", "semicolons.CSV", "own.parquet"])
def test_a_file_is_read_with_every_digit(tmp_path, name):
    table = read_score_table(written(tmp_path / name))
    assert table.machines == (("fan", "00"), ("pump", "01"))
    normals, test = table.machine("fan")
    assert normals["path"].tolist() == ROWS["path"][:2]
    assert normals["domain"].tolist() == ["slow", "fast"]
    assert normals["score"].tolist() == ROWS["score"][:2]
    assert test["score"].tolist() == [1 / 3]
    assert test["domain"].isna().all()
    assert test["label"].tolist() == [1]
    assert test["weight_Fast"].tolist() == [0.25]
    assert "remark" not in test


def test_what_is_not_there_is_read_from_names(tmp_path):
    names = [
        "fan/train/section_02_source_train_normal_0001_vel_8.wav",
        "fan/test/section_02_target_test_anomaly_0001_vel_8.wav",
    ]
    path = written(tmp_path / "own.csv", {"path": names, "score": [1, 2]})
    table = read_score_table(path)
    assert table.machines == (("fan", "02"),)
    normals, test = table.machine("fan", "02")
    assert normals["domain"].tolist() == ["source"]
    assert (test["domain"].tolist(), test["label"].tolist()) == (["target"], [1])


def test_clips_without_domains_are_of_one(tmp_path):
    rows = {"path": ["a", "b"], "split": ["train", "test"], "section": [3, 3], "score": [1, 2]}
    normals, test = read_score_table(written(tmp_path / "a.csv", rows)).machine("machine", "03")
    assert normals["domain"].tolist() == test["domain"].tolist() == ["all"]


def test_a_folder_of_challenge_files(tmp_path):
    (tmp_path / "anomaly_score_fan_section_00_train.csv").write_text(
        "section_00_source_train_normal_0000.wav,0.5\nsection_00_target_train_normal_0001.wav,1\n"
    )
    (
        tmp_path / "anomaly_score_DCASE2024T2fan_section_00_test_seed13711_id(0_)_Eval.csv"
    ).write_text("section_00_0000.wav,2.5\n")
    (tmp_path / "decision_result_fan_section_00_test.csv").write_text("section_00_0000.wav,1\n")
    normals, test = read_score_table(tmp_path).machine("fan")
    assert normals["domain"].tolist() == ["source", "target"]
    assert normals["score"].tolist() == [0.5, 1]
    assert test["score"].tolist() == [2.5]
    assert test["label"].isna().all()
    scored = [file.kind for file in read_score_files(tmp_path)]
    assert scored == ["anomaly_score", "decision_result"]  # held-out normals are not evaluated


SYSTEMS = sorted(
    path.name for path in shared("published", "daco-experiments", "release", "scores").iterdir()
)


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "2026"])
@pytest.mark.parametrize("part", ["dev", "eval"])
def test_the_authors_scores_are_read_as_they_are(system, part):
    folder = shared("published", "daco-experiments", "release", "scores") / system / part
    files, table = read_score_files(folder), read_score_table(folder)
    assert len(table.clips) == sum(len(file.names) for file in files)
    for file in files:
        rows = table.clips[table.clips["machine"] == file.machine]
        assert tuple(rows["path"]) == file.names
        assert np.array_equal(rows["score"], file.values)
        assert rows["label"].isna().all() == (part == "eval")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"score": [1, 2, "high", 4]},
            "row 3: 'day1/c.wav' has no finite number in the column 'score'",
        ),
        ({"score": [1, 2, 3, "inf"]}, "row 4: 'day1/d.wav' has no finite number"),
        ({"score": [1, None, 3, 4]}, "row 2: 'day1/b.wav' has no finite number"),
        ({"split": ["train", "dev", "test", "test"]}, "row 2, column 'split': 'dev' is not one of"),
        ({"label": [0, 2, 0, 0]}, "row 2, column 'label': '2' is not 0 (normal), 1 (anomaly)"),
        ({"path": ["a", "b", "", "d"]}, "row 3, column 'path': empty"),
        ({"split": ["train", "", "test", "test"]}, "row 2, column 'split': empty"),
        ({"path": ["a", "a", "c", "d"]}, "row 2: 'a' has two rows"),
        ({"label": [0, 1, 0, 0]}, "row 2: 'day1/b.wav' is of the split 'train', but an anomaly"),
        ({"domain": ["slow", None, None, "a"]}, "row 2: 'day1/b.wav' is of the split 'train', but"),
        ({"weight_Fast": [1, 1, "x", 1]}, "row 3: 'day1/c.wav' has no finite weight"),
        ({"Score": [1, 2, 3, 4]}, "has the column 'score' more than once"),
    ],
)
def test_wrong_rows_are_named(tmp_path, changes, message):
    path = written(tmp_path / "own.csv", ROWS | changes)
    with pytest.raises(DataError) as error:
        read_score_table(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "path,value\na,1\n", "no column 'score'"),
        ("a.csv", "path,score\n", "a header but no rows"),
        ("a.csv", "", "is empty"),
        ("a.csv", "path,score\na,1,2\n", "row 1 has 3 values"),
        ("a.parquet", "no Parquet", "Parquet"),
        ("a.txt", "path,score\na,1\n", "Give a folder, or a .csv or .parquet file"),
        ("anomaly_score_fan_section_00_train.csv", "a.wav,1\n", "Give its folder"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=name) as error:
        read_score_table(tmp_path / name)
    assert message in str(error.value)


def test_wrong_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_score_table(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="there is no file anomaly_score_"):
        read_score_table(tmp_path)
    (tmp_path / "anomaly_score_fan_section_00_train.csv").write_text("a.wav,1\nb.wav,x\n")
    (tmp_path / "anomaly_score_fan.csv").write_text("a.wav,1\n")
    with pytest.raises(DataError) as error:
        read_score_table(tmp_path)
    assert "anomaly_score_fan_section_00_train.csv: not a number: line 2" in str(error.value)
    assert "anomaly_score_fan.csv: not a name such as" in str(error.value)


def test_a_machine_needs_normals_and_test_clips(tmp_path):
    table = read_score_table(written(tmp_path / "own.csv"))
    with pytest.raises(DataError, match=r"own.csv: pump section 01 lacks scores of test clips"):
        table.machine("pump", "01")
    with pytest.raises(DataError, match="fam lacks scores of normals that the system did not"):
        table.machine("fam")


def test_an_anomaly_by_name_is_no_normal(tmp_path):
    rows = {"path": ["section_00_source_test_anomaly_0001"], "split": ["train"], "score": [1]}
    rows |= {"label": [0], "domain": ["source"]}
    with pytest.raises(DataError, match="the name of an anomaly"):
        read_score_table(written(tmp_path / "own.csv", rows))
    rows["path"] = ["section_00_source_test_normal_0001"]
    assert "name of a test clip" in read_score_table(written(tmp_path / "own.csv", rows)).notes[0]


def test_names_are_matched_by_path_or_by_stem():
    paths = ["x/a.wav", "y/a.wav", "y/b.wav"]
    assert match_names(["y/a.wav", "x/a.wav"], paths, "it").tolist() == [1, 0]
    assert match_names(["b.flac", "a"], paths[1:], "it").tolist() == [1, 0]
    for name in ("z", "a.wav"):
        with pytest.raises(InputError, match=f"The table has no row or several for 1 clip: {name}"):
            match_names(["b.wav", name], paths, "The table")
