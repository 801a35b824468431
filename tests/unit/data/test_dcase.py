"""DCASE layouts, file names and attributes, with every trap known of the real data sets."""

from __future__ import annotations

import pytest
from dcase_trees import anonymous, labelled_test, make, make_machine, only, train
from hypothesis import given
from hypothesis import strategies as st

from daco.data.dcase import ClipName, parse_attributes, parse_name
from daco.data.sources import read_clips
from daco.errors import DataError

# ------------------------------------------------------------------------------------- names


NAMES = """
section_00_source_train_normal_0000_vel_8_loc_B.wav | 00 0000 source train 0 vel_8_loc_B
section_00_target_test_anomaly_0199_noAttribute.wav | 00 0199 target test 1 noAttribute
section_00_source_normal_0035_weight15_BckgF | 00 0035 source None 0 weight15_BckgF
section_00_source_test_normal_0001_ac_0.03.wav | 00 0001 source test 0 ac_0.03
section_00_source_test_normal_0001_.wav | 00 0001 source test 0
section_00_source_train_normal_0001.FLAC | 00 0001 source train 0
section_00_0200.wav | 00 0200 None test None
section_00_machine_0001_.wav | 00 0001 None supplemental None
section_00_machine_source_0000_noAttribute.wav | 00 0000 source supplemental None noAttribute
section_00_noise_supplemental_normal_0000.wav | 00 0000 None supplemental None
section_00_supplemental_0000.wav | 00 0000 None supplemental None
normal_id_01_00000349.wav | 01 00000349 all None 0
anomaly_id_04_00000264.wav | 04 00000264 all None 1
id_05_00000514.wav | 05 00000514 all test
section_03_source_test_0199.wav | 03 0199 source test
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_names_of_every_year(line):
    name, fields = line.split(" | ")
    known = {"None": None, "0": 0, "1": 1}
    assert parse_name(name) == ClipName(*(known.get(each, each) for each in fields.split()))


@pytest.mark.parametrize(
    "name",
    [
        *("a.wav", "section_00.wav", "section_00_test_0000.wav", "xsection_00_0000.wav"),
        *("section_00_0.0", "id_5_00000514.wav", "id_05_0514.wav"),
        "section_03_source_train_0199.wav",
    ],
)
def test_other_names_are_no_dcase_names(name):
    assert parse_name(name) is None


@given(st.text())
def test_any_text_is_a_name_or_none(text):
    name = parse_name(text)
    if name is not None:
        parse_attributes(name.tail)


@pytest.mark.parametrize(
    ("tail", "attributes"),
    [
        ("vel_8_loc_B", {"vel": "8", "loc": "B"}),
        ("m-n_W", {"m-n": "W"}),
        ("ac_0.03", {"ac": "0.03"}),
        ("spd1000_BckgC", {"spd": "1000", "Bckg": "C"}),
        ("weight15_BckgF", {"weight": "15", "Bckg": "F"}),
        (
            "mic_imp23absu_mic_pos_A_grind_0_bkg_A",
            {"mic": "imp23absu", "mic_pos": "A", "grind": "0", "bkg": "A"},
        ),
        ("car_A2_spd_1_mic_2_mic_1", {"car": "A2", "spd": "1", "mic": "2", "mic#2": "1"}),
        ("vol_7_5V", {"raw": "vol_7_5V"}),
        ("wt_200_damage1", {"raw": "wt_200_damage1"}),
        ("spd_1_", {"spd": "1"}),
        ("noAttribute", {}),
        ("", {}),
        ("_", {}),
    ],
)
def test_attributes_of_names_are_split_where_that_is_certain(tail, attributes):
    assert parse_attributes(tail) == attributes


# ----------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("year", [2023, 2026])
@pytest.mark.parametrize(
    "layout", ["dcase{}t2/dev_data/raw", "dcase{}t2/dev/raw", "dcase{}_t2/development", "DCASE-{}"]
)
@pytest.mark.parametrize("level", [0, 1, 2, 3, 4])
def test_a_development_set_is_read_from_any_level(tmp_path, year, layout, level):
    machine = "fan"  # of every year
    folder = tmp_path / layout.format(year)
    make_machine(folder, machine, test=labelled_test("_spd_1"), tail="_spd_1")
    whole = (folder / machine / "train").relative_to(tmp_path).parts
    source = tmp_path.joinpath(*whole[: min(level, len(whole))])
    table = read_clips(source)
    assert {(clip.year, clip.machine, clip.section) for clip in table} == {(year, "fan", "00")}
    assert len(table.select(split="train", label=0)) == 5
    assert len(table.select(split="train", domain="target")) == 2
    assert all(path.is_file() for path in table.paths())
    assert table.clips[0].attributes == {"spd": "1"}
    if level < len(whole):
        assert len(table.select(split="test", domain="target", label=1)) == 2
        assert table.oddities == ()


@pytest.mark.parametrize(
    "folder",
    ["dev_bearingEmu", "dev_bearingEmu/bearingEmu", "bearingEmu/raw", "dev_data_bearingEmu_r2"],
)
def test_an_extra_folder_or_an_archives_name_does_not_rename_the_machine(tmp_path, folder):
    make(tmp_path / "data", *(f"{folder}/train/{name}" for name in train()))
    assert read_clips(tmp_path / "data").machines == ("bearingEmu",)


def test_only_the_name_tells_the_domain_never_the_path(tmp_path):
    root = tmp_path / "target_anomaly_test" / "normal"
    make(root, "fan/train/section_00_source_train_normal_0000.wav")
    clip = only(read_clips(root))
    assert (clip.domain, clip.label, clip.split, clip.machine) == ("source", 0, "train", "fan")


def test_a_year_is_only_for_folders_that_do_not_say_it(tmp_path):
    make_machine(tmp_path / "dcase2024t2", "ToyCarEmu")
    assert {clip.year for clip in read_clips(tmp_path, year=2024)} == {2024}
    with pytest.raises(DataError, match="say the year 2024, not 2023"):
        read_clips(tmp_path, year=2023)


def test_train_and_test_archives_of_one_machine_merge(tmp_path):
    make(tmp_path, *(f"eval_data_3DPrinter_train_r2/3DPrinter/train/{n}" for n in train()))
    make(tmp_path, *(f"eval_data_3DPrinter_test/3DPrinter/test/{n}" for n in anonymous(3, 1)))
    table = read_clips(tmp_path, year=2024)
    assert list(table.by_machine()) == [(2024, "3DPrinter")]
    assert len(table) == 8


def test_supplemental_clips_are_neither_train_nor_test(tmp_path):
    names = [
        "section_00_machine_0001_.wav",
        "section_00_machine_source_0002_noAttribute.wav",
        "section_00_noise_0003.wav",
        "section_00_supplemental_0004.wav",
    ]
    make_machine(tmp_path, "bearing", test=labelled_test(), supplemental=names)
    table = read_clips(tmp_path).select(split="supplemental")
    assert sorted(clip.path.rpartition("/")[2] for clip in table) == sorted(names)
    assert {clip.label for clip in table} == {None}


def test_clips_with_other_names_are_left_out_and_named(tmp_path):
    make_machine(tmp_path, "fan", test=labelled_test())
    make(tmp_path, "fan/train/strange.wav", "fan/test/foreign.wav")
    make(tmp_path, "fan/test/section_00_source_train_normal_0999.wav")
    table = read_clips(tmp_path)
    assert len(table.select(split="train")) == 6  # the name of the last one counts
    assert table.select(label=None).clips == ()
    assert table.oddities[0] == (
        "2 clips left out, with a name not of DCASE's form: fan/test/foreign.wav, "
        "fan/train/strange.wav."
    )


def test_the_baselines_labelled_copies_do_not_double_the_test_set(tmp_path):
    raw = tmp_path / "raw"
    make_machine(raw, "grinder", test=anonymous())
    make(raw, *(f"grinder/test_rename/{name}" for name in labelled_test()))
    table = read_clips(raw)
    assert table.machines == ("grinder",)
    assert len(table.select(split="test")) == 8
    assert {clip.label for clip in table.select(split="test")} == {0, 1}
    assert table.oddities == (
        "4 test clips left out in favour of the labelled copies in test_rename.",
    )
