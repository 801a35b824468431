"""Scores of another system: one table from files, folders and runs."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from daco.errors import DataError, InputError
from daco.evaluation.scorefiles import write_decisions, write_scores
from daco.evaluation.system_scores import RUN_SCHEMA, match_names, read_system

ROWS = {
    "path": [f"day1/{name}.wav" for name in "abcd"],
    "machine": ["fan", "fan", "fan", "pump"],
    "section": [0, 0, 0, 1],
    "domain": ["slow", "Fast", None, "slow"],
    "split": ["train", "train", "test", "train"],
    "label": [0, None, 1, None],
    "score": [0.5, 1e-3, 7, 0.25],
    "weight_Fast": [None, None, 0.75, None],
    "remark": ["x", "y", "z", ""],
}


def written(path, rows=ROWS):
    table = pd.DataFrame(rows)
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_is_read_with_all_it_says(tmp_path, ending):
    table = read_system(written(tmp_path / f"own.{ending}"))
    columns = ["machine", "section", "split", "clip", "domain", "label", "score", "weight_Fast"]
    assert list(table) == columns
    assert table["section"].tolist() == ["00", "00", "00", "01"]
    assert table["domain"].tolist() == ["slow", "Fast", "", "slow"]
    assert table["label"].tolist() == [0, -1, 1, -1]
    assert table["score"].tolist() == ROWS["score"]
    assert table["weight_Fast"].dropna().tolist() == [0.75]
    assert table.attrs["notes"] == []


def test_what_is_not_there_is_read_from_names(tmp_path):
    names = [
        "fan/train/section_02_source_train_normal_0001_vel_8.wav",
        "fan/test/section_02_target_test_anomaly_0001_vel_8.wav",
    ]
    table = read_system(written(tmp_path / "own.csv", {"path": names, "score": [1, 2]}))
    assert table[["machine", "section", "split", "domain", "label"]].to_numpy().tolist() == [
        ["fan", "02", "train", "source", 0],
        ["fan", "02", "test", "target", 1],
    ]
    rows = {"path": ["a", "b"], "split": ["train", "test"], "score": [1, 2]}
    assert set(read_system(written(tmp_path / "a.csv", rows))["domain"]) == {"all"}


def test_a_folder_of_challenge_files(tmp_path):
    (tmp_path / "anomaly_score_fan_section_00_train.csv").write_text(
        "section_00_source_train_normal_0000.wav,0.5\nsection_00_target_train_normal_0001.wav,1\n"
    )
    write_scores(tmp_path, "fan", "00", ["section_00_0001.wav", "section_00_0000.wav"], [2.5, 3])
    write_decisions(tmp_path, "fan", "00", ["section_00_0000.wav", "section_00_0001.wav"], [1, 0])
    table = read_system(tmp_path)
    assert table["split"].tolist() == ["test", "test", "train", "train"]
    assert table["score"].tolist() == [2.5, 3, 0.5, 1]
    assert table["decision"].tolist()[:2] == [0, 1]
    assert table["domain"].tolist()[2:] == ["source", "target"]
    assert (table["label"][:2] == -1).all()


def test_a_run_gives_its_chosen_configuration(tmp_path):
    clips = pd.DataFrame(
        {"set": "eval", "machine": "fan", "section": "00", "split": "test"}, range(3)
    )
    clips = clips.assign(clip=list("abc"), domain="source", label=0, weight_target=0.5)
    clips["raw-k1"], clips["blend"] = [1.0, 2.0, 3.0], [4.0, 5.0, np.nan]
    clips["p:blend"] = [0.05, 0.5, np.nan]
    clips.to_parquet(tmp_path / "clips.parquet")
    run = {"choice": {"config": "blend"}, "settings": {"false_alarm_rate": 0.05}}
    run["schema"] = RUN_SCHEMA
    (tmp_path / "run.json").write_text(json.dumps(run))
    table = read_system(tmp_path)
    assert table["score"].tolist() == [4, 5]
    assert table["decision"].tolist() == [1, 0]  # a p-value of the rate itself is an alarm
    assert (table["set"][0], table["weight_target"][0]) == ("eval", 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": [1, 2, "high", 4]}, "row 3: 'day1/c.wav' has no finite number in the column"),
        ({"label": [0, 2, 0, 0]}, "row 2, column 'label': must be 0 (normal), 1 (anomaly)"),
        ({"split": ["train", "", "test", "test"]}, "row 2, column 'split': must be one of"),
        ({"path": ["a", "a", "c", "d"]}, "row 2: 'a' has two rows"),
        ({"label": [0, 1, 0, 0]}, "row 2: 'day1/b.wav' is of the split 'train', but an anomaly"),
        ({"domain": ["slow", None, None, "a"]}, "row 2: 'day1/b.wav' is of the split 'train', but"),
        ({"weight_Fast": [1, 1, "x", 1]}, "row 3: 'day1/c.wav' has no finite weight"),
    ],
)
def test_wrong_rows_are_named(tmp_path, changes, message):
    path = written(tmp_path / "own.csv", ROWS | changes)
    with pytest.raises(DataError) as error:
        read_system(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "path,value\na,1\n", "no column 'score'"),
        ("a.txt", "path,score\na,1\n", "Give a folder, or a .csv or .parquet file"),
        ("anomaly_score_fan_section_00_train.csv", "a.wav,1\n", "Give its folder"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=name) as error:
        read_system(tmp_path / name)
    assert message in str(error.value)


def test_wrong_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_system(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="no score file"):
        read_system(tmp_path)
    (tmp_path / "anomaly_score_fan.csv").write_text("a.wav,1\n")
    with pytest.raises(DataError, match=r"anomaly_score_fan\.csv: the machine is unknown"):
        read_system(tmp_path)


def test_an_anomaly_by_name_is_no_normal(tmp_path):
    rows = {"path": ["section_00_source_test_anomaly_0001"], "split": ["train"], "score": [1]}
    rows |= {"label": [0], "domain": ["source"]}
    with pytest.raises(DataError, match="the name of an anomaly"):
        read_system(written(tmp_path / "own.csv", rows))
    rows["path"] = ["section_00_source_test_normal_0001"]
    (note,) = read_system(written(tmp_path / "own.csv", rows)).attrs["notes"]
    assert "name of a test clip" in note


def test_names_are_matched_by_path_or_by_stem():
    paths = ["x/a.wav", "y/a.wav", "y/b.wav"]
    assert match_names(["y/a.wav", "x/a.wav"], paths, "it").tolist() == [1, 0]
    assert match_names(["b.flac", "a"], paths[1:], "it").tolist() == [1, 0]
    for name in ("z", "a.wav"):
        with pytest.raises(InputError, match=f"The table has no row or several for 1 clip: {name}"):
            match_names(["b.wav", name], paths, "The table")
