"""Score and decision files: exact when written, strict when read."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from daco.errors import InputError
from daco.evaluation.scorefiles import (
    DECISIONS,
    SCORES,
    parse_file_name,
    read_score_files,
    score_file_name,
    write_decisions,
    write_scores,
)

NAMES = [f"section_00_{i:04d}.wav" for i in range(4)]


def one_file(folder, text, name="anomaly_score_fan_section_00_test.csv", encoding="utf-8"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode(encoding))
    return folder


def problems_of(folder):
    found = []
    assert read_score_files(folder, found).empty
    return found


def read(folder):
    found = []
    table = read_score_files(folder, found)
    assert not found
    return table


@pytest.mark.parametrize("machine", ["fan", "3DPrinter", "my_section_02_pump"])
@pytest.mark.parametrize(
    ("domain", "year", "ending"),
    [
        ("all", 2020, "_id_03.csv"),
        ("source", 2021, "_section_03_source_test.csv"),
        (None, None, "_section_03_test.csv"),
    ],
)
def test_names_lead_back_to_their_machine(machine, domain, year, ending):
    for kind in (SCORES, DECISIONS):
        name = score_file_name(machine, "03", kind, domain)
        assert name == f"{kind}_{machine}{ending}"
        of_2021 = domain if year == 2021 else None
        assert parse_file_name(name) == (kind, machine, "03", "test", year, of_2021)


def test_the_baselines_names_and_those_of_other_files():
    ending = "_section_00_test_seed13711_id(0_)"
    scores = parse_file_name(f"anomaly_score_DCASE2024T2fan{ending}_Eval.csv")
    assert scores == (SCORES, "fan", "00", "test", 2024, None)
    decisions = parse_file_name(f"decision_result_DCASE2026T2ToyCarEmu{ending}.csv")
    assert decisions == (DECISIONS, "ToyCarEmu", "00", "test", 2026, None)
    others = ("anomaly_score_fan_section_00_test.csv.bak", "anomaly_score_fan.csv")
    for name in (*others, "result_DCASE2024T2fan_test_seed13711_id(0_)_Eval_roc.csv"):
        assert parse_file_name(name) is None


@pytest.mark.parametrize("machine", ["../fan", "a\\b", "", "a\nb"])
def test_a_machine_that_is_no_file_name_is_refused(machine):
    with pytest.raises(InputError, match="cannot be in a file's name"):
        score_file_name(machine)


def test_scores_come_back_to_the_last_bit_in_their_order(tmp_path):
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.normal(size=50), rng.normal(size=50) * 1e-300, [1e308, -0.0, 7]])
    names = [f"section_00_{i:04d}_ac_0.03.wav" for i in rng.permutation(len(scores))]
    path = write_scores(tmp_path / "new" / "folder", "fan", "00", names, scores)
    table = read(path.parent)
    assert [f"{name}.wav" for name in table["name"]] == names
    assert table["value"].to_numpy().tobytes() == scores.tobytes()
    assert path.read_bytes().count(b"\n") == len(names)
    assert not list(path.parent.glob("*.tmp"))


def test_a_clip_is_written_as_a_wav_whatever_it_was(tmp_path):
    path = write_decisions(tmp_path, "fan", "00", ["test/a.flac", "b", "c,d.wav"], [True, 0, 1.0])
    with path.open(newline="") as file:
        assert list(csv.reader(file)) == [["a.wav", "1"], ["b.wav", "0"], ["c,d.wav", "1"]]


@pytest.mark.parametrize(
    ("names", "scores", "message"),
    [
        (NAMES[:2], [0.1], r"2 clips and values of shape \(1,\)"),
        (NAMES[:2], [0.1, np.nan], "section_00_0001.wav has nan, not a finite score"),
        (["a.wav", "test/a.wav"], [0.1, 0.2], "of the same name"),
        ([], [], "0 clips"),
    ],
)
def test_what_cannot_be_a_score_file_is_not_written(tmp_path, names, scores, message):
    with pytest.raises(InputError, match=message):
        write_scores(tmp_path, "fan", "00", names, scores)
    with pytest.raises(InputError, match=r"has 0.9, not a decision, 1 \(anomalous\) or 0"):
        write_decisions(tmp_path, "fan", "00", NAMES[:2], [0.9, 0.1])
    assert list(tmp_path.iterdir()) == []


def test_marks_line_ends_and_spaces_do_not_matter(tmp_path):
    text = "\ufeffsection_00_0000.wav,1.5\r\nsection_00_0001.wav, 2e-3 \r\n\r\n"
    table = read(one_file(tmp_path / "a", text))
    assert table["name"].tolist() == ["section_00_0000", "section_00_0001"]
    assert table["value"].tolist() == [1.5, 0.002]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("filename,score\na.wav,1\n", "line 1 (filename,score)"),
        ("a.wav,1\nb.wav,high\n", "line 2 (b.wav,high)"),
        ("a.wav,1,2\nb.wav\n", "line 1 (a.wav,1,2), line 2 (b.wav)"),
        ("a.wav,-inf\nb.wav,1e999\n", "line 1 (a.wav,-inf), line 2 (b.wav,1e999)"),
        ("a.wav,1\n\nx/a.wav,2\n", "line 3 (x/a.wav,2)"),
        ("\n\n", "empty"),
    ],
)
def test_a_wrong_row_is_told_by_file_and_line(tmp_path, text, problem):
    (found,) = problems_of(one_file(tmp_path, text))
    assert found.startswith("anomaly_score_fan_section_00_test.csv: ")
    assert found.endswith(f"{problem}.")


def test_decisions_may_be_written_as_floats(tmp_path):
    name = score_file_name("fan", kind=DECISIONS)
    table = read(one_file(tmp_path / "a", "a.wav,1.0\nb.wav,0\n", name))
    assert table["value"].tolist() == [1, 0]


def test_text_that_is_not_utf_8_and_names_that_tell_no_machine(tmp_path):
    folder = one_file(tmp_path, "ä.wav,1\n", encoding="latin-1")
    odd, unreadable = problems_of(one_file(folder, "a.wav,1\n", "anomaly_score_fan.csv"))
    assert odd.startswith("anomaly_score_fan.csv: the machine is unknown")
    assert unreadable.startswith("anomaly_score_fan_section_00_test.csv cannot be read: 'utf-8'")


def test_two_files_of_one_machine_are_a_problem(tmp_path):
    one_file(tmp_path, "a.wav,1\n")
    name = "anomaly_score_DCASE2024T2fan_section_00_test_seed13711_id(0_)_Eval.csv"
    one_file(tmp_path, "a.wav,2\n", name)
    found = []
    assert read_score_files(tmp_path, found)["year"].tolist() == [2024]
    assert "the same section as in anomaly_score_DCASE2024T2fan" in found[0]


def test_a_section_of_2021_has_a_file_for_each_domain(tmp_path):
    names = [f"section_03_{domain}_test_0000.wav" for domain in ("source", "target")]
    first = write_scores(tmp_path, "fan", "03", names, [1, 2])
    write_decisions(tmp_path, "fan", "03", names, [0, 1])
    assert first.name == "anomaly_score_fan_section_03_source_test.csv"
    table = read(tmp_path)
    assert (len(set(table["file"])), set(table["year"])) == (4, {2021})
    assert [f"{name}.wav" for name in table["name"]] == names * 2
    # one file of both domains beside them is too many
    first.with_name(score_file_name("fan", "03")).write_text(first.read_text())
    found = []
    read_score_files(tmp_path, found)
    assert "same section as in anomaly_score_fan_section_03_source_test.csv" in found[0]
