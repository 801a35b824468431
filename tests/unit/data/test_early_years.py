"""Data sets of DCASE 2020, 2021 and 2022: names, layouts and truths."""

from __future__ import annotations

import pytest
from early_years import (
    make_list_of_2020,
    make_set,
    make_truth_of_2021,
    make_truth_of_2022,
    paths_of,
)

from daco.data.dcase import (
    MACHINES,
    machine_sections,
    require_normal_names,
)
from daco.data.sources import read_clips
from daco.errors import DataError

YEARS = (2020, 2021, 2022)


def test_the_machines_and_sections_of_each_year():
    sizes = {year: [len(each) for each in machine_sections(year).values()] for year in MACHINES}
    # ToyConveyor has three ids of 2020 in the development set, the other five have four
    assert sizes == {
        **{2020: [23, 18], 2021: [21, 21], 2022: [21, 21]},
        **{2023: [7, 7], 2024: [7, 9], 2025: [7, 8], 2026: [7, 5]},
    }
    for year in YEARS:
        both = machine_sections(year)
        assert not both["dev"] & both["eval"]


@pytest.mark.parametrize("year", YEARS)
@pytest.mark.parametrize("part", ["dev", "eval"])
def test_every_clip_of_a_set_is_what_its_name_and_folder_say(tmp_path, year, part):
    root = make_set(tmp_path / f"dcase{year}t2" / f"{part}_data" / "raw", year, part)
    table = read_clips(tmp_path)
    assert {clip.year for clip in table} == {year}
    assert {(clip.machine, clip.section) for clip in table} == machine_sections(year)[part]
    assert len(table) == len(list(paths_of(year, part)))
    for clip in table:
        folder, name = clip.path.split("/")[-2:]
        assert clip.split == ("train" if folder == "train" else "test")
        named = next((label for label in ("normal", "anomaly") if label in name), None)
        assert clip.label == {None: None, "normal": 0, "anomaly": 1}[named]
        domain = next((each for each in ("source", "target") if each in name), None)
        assert clip.domain == ("all" if year == 2020 else domain)
    labelled = part == "dev"
    assert (table.oddities == ()) is labelled
    if not labelled:
        assert "without a label" in table.oddities[0]
    # a machine's folder is enough
    alone = read_clips(root / "fan", year=year)
    assert len(alone) == len(table.select(machine="fan"))
    assert alone.machines == ("fan",)


def test_years_whose_folders_do_not_say_them_stay_apart(tmp_path):
    for year in (2020, 2022):
        make_set(tmp_path / str(year), year, "dev", machines=["fan"])
    table = read_clips(tmp_path)
    assert {(clip.path[:4], clip.year) for clip in table} == {("2020", 2020), ("2022", None)}
    make_set(tmp_path / "dcase2021t2", 2021, "dev", machines=["fan"])
    years = {(clip.path.split("/")[0], clip.year) for clip in read_clips(tmp_path)}
    assert years == {("2020", 2020), ("2022", None), ("dcase2021t2", 2021)}


@pytest.mark.parametrize(("year", "known"), [(2020, 2020), (2021, 2021), (2022, None)])
def test_names_say_the_year_in_folders_and_lists(tmp_path, year, known):
    make_set(tmp_path, year, "dev", machines=["fan"])
    assert {clip.year for clip in read_clips(tmp_path)} == {known}
    rows = ["path", *(clip.path for clip in read_clips(tmp_path))]
    (tmp_path / "clips.csv").write_text("\n".join(rows))
    assert {clip.year for clip in read_clips(tmp_path / "clips.csv")} == {known}


def test_clips_of_2020_with_an_anomalys_name_are_no_normals():
    with pytest.raises(
        DataError, match=r"name of an anomaly .* normal: anomaly_id_00_00000001\.wav"
    ):
        require_normal_names(["normal_id_00_00000001.wav", "anomaly_id_00_00000001.wav"])
    assert require_normal_names(["normal_id_00_00000001.wav"]) == []


def test_the_list_of_2020_labels_the_evaluation_set(tmp_path):
    root = make_set(tmp_path / "eval_data", 2020, "eval")
    path = make_list_of_2020(tmp_path / "dcase2020_task2_evaluator/eval_data_list.csv")
    for truth in (path, path.parent):
        table = read_clips(root, truth=truth)
        assert table.oddities == ()
        assert len(table.select(split="test", label=0)) == 18 * 4
        for clip in table.select(split="test"):
            assert clip.label == int(int(clip.path[-6:-4]) >= 4)
            assert clip.domain == "all"
    # the lists of later years have no column of labels
    make_list_of_2020(path, column=False)
    assert read_clips(root, truth=path).clips == table.clips


def test_a_list_that_does_not_fit_is_an_error(tmp_path):
    root = make_set(tmp_path / "eval_data", 2020, "eval")
    path = make_list_of_2020(tmp_path / "eval_data_list.csv")
    path.write_text(path.read_text().replace("id_01_00000003.wav,", "id_01_00000099.wav,"))
    with pytest.raises(
        DataError, match=r"eval_data_list\.csv .* 4 clips without a row \(fan/id_01_00000003"
    ):
        read_clips(root, truth=path)
    path.write_text("id_01_00000003.wav,normal_id_01_00000003.wav,0\n")
    with pytest.raises(DataError, match=r"eval_data_list\.csv, row 1: neither a machine nor"):
        read_clips(root, truth=path)
    path.write_text("fan\nid_01_00000003.wav,what,is\n")
    with pytest.raises(DataError, match=r"row 2: neither a machine nor"):
        read_clips(root, truth=path)


def test_the_evaluator_of_2021_labels_each_domain(tmp_path):
    root = make_set(tmp_path / "eval_data", 2021, "eval")
    truth = make_truth_of_2021(tmp_path / "dcase2021_task2_evaluator")
    table = read_clips(root, truth=truth)
    assert table.oddities == ()
    for domain in ("source", "target"):
        of_domain = table.select(split="test", domain=domain)
        assert len(of_domain) == 21 * 8
        assert all(f"_{domain}_test_" in clip.path for clip in of_domain)
        assert all(clip.label == int(clip.path[-8:-4] >= "0004") for clip in of_domain)
    file = truth / "ground_truth_data/ground_truth_fan_section_04_target_test.csv"
    file.unlink()
    with pytest.raises(DataError, match=r"8 clips without a row \(fan/section_04_target_test_0000"):
        read_clips(root, truth=truth)


def test_the_evaluator_of_2022_labels_the_evaluation_set(tmp_path):
    root = make_set(tmp_path / "eval_data", 2022, "eval")
    truth = make_truth_of_2022(tmp_path / "dcase2022_evaluator")
    table = read_clips(root, truth=truth)
    assert table.oddities == ()
    assert len(table.select(split="test", domain="target", label=1)) == 21 * 4
    with pytest.raises(DataError, match="is of 2022, the test clips without a label are of 2021"):
        read_clips(root, truth=truth, year=2021)
