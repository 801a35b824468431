"""Ground truth of evaluation sets: by name, complete, of the right year, or an error."""

from __future__ import annotations

import pytest
from dcase_trees import anonymous, labelled_test, make, make_machine, make_truth

from daco.data.sources import read_clips
from daco.errors import DataError


@pytest.fixture
def evaluation(tmp_path):
    """An evaluation set of 2024, one machine of which counts from 1."""
    raw = tmp_path / "dcase2024t2/eval_data/raw"
    make_machine(raw, "RoboticArm", test=anonymous())
    make_machine(raw, "Scanner", test=anonymous(first=1))
    return raw


@pytest.fixture
def truth(tmp_path):
    folder = tmp_path / "dcase2024_task2_evaluator"
    stems = [
        "section_00_source_normal_0035_weight15_BckgF",  # the real names lack the word test
        "section_00_source_anomaly_0036_weight15_BckgF",
        "section_00_target_normal_0037_weight15_BckgF",
        "section_00_target_anomaly_0038_weight15_BckgF",
    ]
    make_truth(folder, "RoboticArm", anonymous(), stems=stems)
    make_truth(folder, "Scanner", anonymous(first=1), shuffled=True)
    return make_truth(folder, "ToyCircuit", anonymous())  # a machine that is not here


def test_without_truth_evaluation_clips_are_anonymous(evaluation):
    table = read_clips(evaluation)
    test = table.select(split="test")
    assert {(clip.label, clip.domain) for clip in test} == {(None, None)}
    assert table.oddities == (
        "8 test clips without a label (RoboticArm (2024), Scanner (2024)): they can be scored, "
        "not evaluated.",
    )


def test_truth_is_matched_by_name_in_any_order(evaluation, truth):
    table = read_clips(evaluation, truth=truth)
    assert table.oddities == ()
    for machine in table.machines:
        test = table.select(machine=machine, split="test")
        assert [(clip.label, clip.domain) for clip in test] == [
            *((0, "source"), (1, "source"), (0, "target"), (1, "target"))
        ]
    assert table.select(split="train") == read_clips(evaluation).select(split="train")


def test_wrong_names_in_the_same_order_are_an_error(evaluation, truth):
    make_truth(truth, "Scanner", anonymous(first=0))
    with pytest.raises(DataError) as error:
        read_clips(evaluation, truth=truth)
    text = str(error.value)
    assert "does not fit the test clips" in text
    assert "1 clip without a row (Scanner/section_00_0004)" in text
    assert "1 clip only in the truth (Scanner/section_00_0000)" in text


@pytest.mark.parametrize("kind", ["data", "domain"])
def test_missing_extra_and_double_rows_are_errors_in_each_file(evaluation, truth, kind):
    file = truth / f"ground_truth_{kind}/ground_truth_Scanner_section_00_test.csv"
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join(whole[1:]))
    with pytest.raises(DataError, match=r"of only some clips: Scanner/section_00_"):
        read_clips(evaluation, truth=truth)
    extra = whole[0].replace(whole[0].split(",")[0], "section_00_0999.wav")
    file.write_text("".join([*whole, extra]))
    with pytest.raises(DataError, match=r"of only some clips: Scanner/section_00_0999"):
        read_clips(evaluation, truth=truth)
    file.write_text("".join([*whole, whole[0]]))
    with pytest.raises(DataError, match=r"names clips more than once: Scanner/section_00_"):
        read_clips(evaluation, truth=truth)


def test_truth_fits_clips_of_another_format_and_its_own_subfolder(evaluation, truth):
    for path in list(evaluation.glob("*/test/*.wav")):
        path.rename(path.with_suffix(".flac"))
    table = read_clips(evaluation, truth=truth / "ground_truth_data")
    assert len(table.select(split="test", label=1)) == 4


def test_clips_that_are_there_twice_are_an_error(evaluation, truth):
    make(evaluation, "eval_data_Scanner_test/Scanner/test/section_00_0001.wav")
    with pytest.raises(DataError, match=r"1 clip there twice \(Scanner/section_00_0001\)"):
        read_clips(evaluation, truth=truth)


def test_test_clips_of_foreign_names_do_not_escape_the_comparison(evaluation, truth):
    for index, path in enumerate(sorted(evaluation.glob("Scanner/test/*.wav"))[:2]):
        path.rename(path.with_name(f"clip_{index}.wav"))
    with pytest.raises(DataError, match=r"2 clips only in the truth \(Scanner/section_00_0001, "):
        read_clips(evaluation, truth=truth)


def test_truth_of_another_year_is_an_error_though_all_names_fit(tmp_path):
    raw = tmp_path / "dcase2026t2/eval_data/raw"
    make_machine(raw, "ToyDrone", test=anonymous())
    truth = make_truth(tmp_path / "dcase2023_task2_evaluator", "ToyDrone", anonymous())
    with pytest.raises(DataError, match="is of 2023, the test clips without a label are of 2026"):
        read_clips(raw, truth=truth)
    renamed = truth.rename(tmp_path / "evaluator")
    table = read_clips(raw, truth=renamed)
    assert any("ToyDrone is a machine of 2023 and 2026" in line for line in table.oddities)
    (renamed / "dcase2023_task2_evaluator.py").touch()
    with pytest.raises(DataError, match="is of 2023"):
        read_clips(raw, truth=renamed)


def test_truth_of_one_year_leaves_the_others_alone(tmp_path):
    for year in (2023, 2026):
        make_machine(tmp_path / f"dcase{year}t2", "ToyDrone", test=anonymous())
    truth = make_truth(tmp_path / "dcase2026_task2_evaluator", "ToyDrone", anonymous())
    table = read_clips(tmp_path, truth=truth)
    assert {clip.label for clip in table.select(year=2023, split="test")} == {None}
    assert {clip.label for clip in table.select(year=2026, split="test")} == {0, 1}
    assert "ToyDrone (2023): no truth, it is of 2026 only." in table.oddities
    with pytest.raises(DataError, match="Read one year at a time"):
        read_clips(tmp_path, truth=truth.rename(tmp_path / "evaluator"))


def test_labelled_clips_need_no_truth(tmp_path, truth):
    make_machine(tmp_path / "set", "fan", test=labelled_test())
    table = read_clips(tmp_path / "set", truth=truth)
    assert "was not needed" in table.oddities[0]


def test_truth_that_is_no_truth_is_an_error(evaluation, truth, tmp_path):
    with pytest.raises(DataError, match=r"no labels of clips in .*nowhere"):
        read_clips(evaluation, truth=tmp_path / "nowhere")
    file = truth / "ground_truth_data/ground_truth_Scanner_section_00_test.csv"
    file.write_text("section_00_0001.wav,score\n")
    with pytest.raises(DataError, match=r"row 1: not a file name and 0 or 1"):
        read_clips(evaluation, truth=truth)
