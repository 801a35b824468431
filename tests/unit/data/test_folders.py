"""Plain folders mean what people mean by them."""

from __future__ import annotations

import os
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import soundfile
from dcase_trees import make

from daco.audio.decode import read_audio
from daco.audio.formats import FORMATS
from daco.data.sources import list_audio, read_clips
from daco.errors import DataError, InputError


def clips_in(*folders):
    """Two recordings in each folder."""
    return [f"{folder}/{name}.wav" for folder in folders for name in "ab"]


# ------------------------------------------------------------------------------- understanding

TREES = {
    **dict.fromkeys(
        ("normal anomaly", "ok nok", "good bad", "Healthy Faulty", "Okay Broken", "ok failures"),
        "site/all train 0, site/all test 1",
    ),
    "training testing/good testing/bad": ("site/all train None, site/all test 0, site/all test 1"),
    "old new test": "site/old train None, site/new train None, site/None test None",
    "old new test/normal test/anomaly": (
        "site/old train None, site/new train None, site/None test 0, site/None test 1"
    ),
    "train/old test/normal test/old/anomaly": (
        "site/old train None, site/None test 0, site/old test 1"
    ),
    "normal/old normal/new anomaly/new": "site/old train 0, site/new train 0, site/new test 1",
    "old/normal new/normal new/anomaly": "site/old train 0, site/new train 0, site/new test 1",
    "normal anomaly/rub anomaly/slip": "site/all train 0, site/all test 1, site/all test 1",
    "normal/old normal/new anomaly/rub": "site/old train 0, site/new train 0, site/None test 1",
    "fan/old fan/new pump/old": "fan/old train None, fan/new train None, pump/old train None",
    "normal/fan/old anomaly/fan/old": "fan/old train 0, fan/old test 1",
    "fan/id_00/normal fan/id_02/normal fan/id_00/abnormal": (
        "fan/id_00 train 0, fan/id_02 train 0, fan/id_00 test 1"
    ),
    "fan/normal/old/2026-05-01 fan/normal/old/2026-05-02": ("fan/old train 0, fan/old train 0"),
    "NormalSound AnomalousSound": "site/NormalSound train None, site/None test 1",
    "slow fast bearing_fault": "site/slow train None, site/fast train None, site/None test 1",
    "slow belt_failure damaged_belt": "site/slow train None, site/None test 1, site/None test 1",
    "run_to_failure/slow": "run_to_failure/slow train None",
    "no_fault FAULT_1": "site/no_fault train None, site/None test 1",
    "fault_database/normal/slow": "fault_database/slow train 0",
    # a split below a name is that of a machine, a label that of a condition
    "fan/train pump/train pump/test/rub": (
        "fan/all train None, pump/all train None, pump/all test None"
    ),
    "fan/train/normal fan/test/anomaly": "fan/all train 0, fan/all test 1",
    "fan/2026-05-01/train fan/2026-05-01/test": "fan/all train None, fan/all test None",
    "hall/fan/train hall/pump/train": "fan/all train None, pump/all train None",
    "one/fan/train two/fan/train two/pump/train": (
        "one/fan train None, two/fan train None, two/pump train None"
    ),
    "fan/train/old fan/train/new pump/train": (
        "fan/old train None, fan/new train None, pump/all train None"
    ),
    "fan/ok pump/ok pump/broken": "site/fan train 0, site/pump train 0, site/pump test 1",
    "fan/old fan/new pump/old press": (
        "fan/old train None, fan/new train None, pump/old train None, press/all train None"
    ),
    "fan pump press/old press/new": (
        "site/fan train None, site/pump train None, site/press train None, site/press train None"
    ),
    # dates
    "2026-05-01 2026-05-02": "site/all train None, site/all train None",
    "20260501 20260502T1200": "site/all train None, site/all train None",
    "01.05.2026 1.6.2026": "site/all train None, site/all train None",
    "2026-W12 2026_KW13": "site/all train None, site/all train None",
    "KW12 week_3 Week4": "site/all train None, site/all train None, site/all train None",
    "2026/05/01 2026/06/02": "site/all train None, site/all train None",
    "old/2026/05 new/2026/06": "site/old train None, site/new train None",
    "2026-05-01/old 2026-05-02/new": "site/old train None, site/new train None",
    "fan/2026/05/01/old pump/2026/05/02/old": "fan/old train None, pump/old train None",
    "fan/2026-05-01 pump/slow pump/fast press/slow press/fast": (
        "fan/all train None, pump/slow train None, pump/fast train None, press/slow train None, "
        "press/fast train None"
    ),
    "slow fast 2026-05-02/slow": "site/slow train None, site/fast train None, site/slow train None",
    "1500 2000 2020": "site/1500 train None, site/2000 train None, site/2020 train None",
    "2026-13-01 1200": "site/2026-13-01 train None, site/1200 train None",
    "speed2026-05-01 v1.05.2026x": "site/speed2026-05-01 train None, site/v1.05.2026x train None",
    # folders that say nothing
    "export/audio/fan/old export/audio/fan/new": "fan/old train None, fan/new train None",
    "fan/wav/old fan/wav/new pump/wav/old": (
        "fan/old train None, fan/new train None, pump/old train None"
    ),
    "fan/old/wav fan/new/wav pump/old/wav": (
        "fan/old train None, fan/new train None, pump/old train None"
    ),
}


@pytest.mark.parametrize("tree", TREES)
def test_folders_are_machines_domains_splits_and_labels(tmp_path, tree):
    make(tmp_path / "site", *clips_in(*tree.split()))
    expected = TREES[tree].split(", ")
    for folder, meaning in zip(tree.split(), expected, strict=True):
        found = {
            f"{clip.machine}/{clip.domain} {clip.split} {clip.label}"
            for clip in read_clips(tmp_path / "site")
            if clip.path.startswith(f"{folder}/") and clip.path.count("/") == folder.count("/") + 1
        }
        assert found == {meaning}


@pytest.mark.parametrize(
    ("tree", "levels", "expected"),
    [
        ("fan/old fan/new pump/old", {"domain_level": 1}, "site/fan site/fan site/pump"),
        (
            "fan/old fan/new pump/old",
            {"machine_level": 1, "domain_level": 0},
            "fan/all fan/all pump/all",
        ),
        ("fan pump", {"machine_level": 1}, "fan/all pump/all"),
        ("fan/old fan/new pump", {"machine_level": 1}, "fan/old fan/new pump/all"),
        ("hall/fan/old hall/pump/new", {"machine_level": 2}, "fan/old pump/new"),
        ("mo/train/old tu/train/new", {"domain_level": 0}, "site/all site/all"),
        ("mo/train/old tu/train/new", {"domain_level": 1}, "site/mo site/tu"),
        ("mo/train/old tu/train/new", {"domain_level": 2}, "site/old site/new"),
        ("2026-05-01 2026-05-02", {"domain_level": 1}, "site/2026-05-01 site/2026-05-02"),
        ("fan/2026-05-01 pump/2026-05-02", {"machine_level": 1}, "fan/all pump/all"),
        ("2026-05-01/fan/old 2026-05-02/pump/old", {"machine_level": 2}, "fan/old pump/old"),
    ],
)
def test_levels_of_machines_and_domains_can_be_said(tmp_path, tree, levels, expected):
    make(tmp_path / "site", *clips_in(*tree.split()))
    table = read_clips(tmp_path / "site", **levels)
    for folder, meaning in zip(tree.split(), expected.split(), strict=True):
        found = {f"{c.machine}/{c.domain}" for c in table if c.path.startswith(f"{folder}/")}
        assert found == {meaning}


@pytest.mark.parametrize("folder", ["normal", "train", "motor/OK/2026-05-01", "2026-05-01"])
def test_a_folder_of_a_label_split_or_date_does_not_name_the_machine(tmp_path, folder):
    make(tmp_path / "motor" / folder, *clips_in("slow", "fast"))
    assert read_clips(tmp_path / "motor" / folder).machines == ("motor",)


def test_an_umlaut_stored_in_two_ways_is_one_name(tmp_path):
    folders = [unicodedata.normalize(form, "Lüfter groß") for form in ("NFC", "NFD")]
    make(tmp_path / "plant", f"{folders[0]}/alt/a.wav", f"{folders[1]}/neu /b.wav")
    assert {clip.machine for clip in read_clips(tmp_path / "plant")} == {folders[0]}


def test_it_is_said_what_the_folders_were_taken_for(tmp_path):
    make(tmp_path / "pump", *clips_in("old", "new"), "old/c.wav")
    table = read_clips(tmp_path / "pump")
    assert "one machine, pump, in" in table.understood
    assert "new (2 clips), old (3 clips)" in table.understood
    assert "--machine-level 1" in table.understood
    assert table.remarks == (table.understood,)
    make(tmp_path / "hall", *clips_in("a/fan/fast", "a/motor/fast"))
    asked = read_clips(tmp_path / "hall", machine_level=2, domain_level=3)
    assert "--domain-level 2" in asked.understood
    make(tmp_path / "plant", *clips_in("fan/fast", "motor/fast", "motor/slow"))
    plant = read_clips(tmp_path / "plant").understood
    assert "2 machines" in plant
    assert "motor: fast (2 clips), slow (2 clips)" in plant
    assert "--domain-level 1" in plant
    assert "--machine-level 2" in plant
    for root, folders in {"fan": ("source", "target"), "flat": (".",)}.items():
        make(tmp_path / root, *clips_in(*folders))
        assert read_clips(tmp_path / root).understood == ""  # nothing to doubt


@pytest.mark.parametrize(
    ("tree", "ignored", "option"),
    [
        ("2026-05-01/old 2026-05-02/new", "2026-05-01, 2026-05-02", "--machine-level 2"),
        ("2026/05/01 2026/05/02", "2026/05/01, 2026/05/02", "--domain-level"),
        ("usb/wav/fan/old usb/wav/fan/new", "usb, wav", "--domain-level 3"),
    ],
)
def test_folders_that_do_not_count_are_named_and_options_count_them(
    tmp_path, tree, ignored, option
):
    make(tmp_path / "site", *clips_in(*tree.split()))
    understood = read_clips(tmp_path / "site").understood
    assert f"({ignored}) do not count" in understood
    assert option in understood


def test_a_level_without_recordings_is_refused_and_levels_are_for_plain_folders(tmp_path):
    make(tmp_path / "pump", "old/monday/a.wav", "old/tuesday/b.wav")
    with pytest.raises(InputError, match="lies 3 folders deep"):
        read_clips(tmp_path / "pump", domain_level=3)
    with pytest.raises(InputError, match="must be 0 or more"):
        read_clips(tmp_path / "pump", domain_level=-1)
    table = read_clips(tmp_path / "pump", domain_level=1)
    assert "2 clips in subfolders of a domain, read as clips of that domain" in table.oddities[0]
    make(tmp_path / "fan", "train/section_00_source_train_normal_0000.wav")
    (tmp_path / "fan/list.csv").write_text("path\ntrain/section_00_source_train_normal_0000.wav\n")
    for source in (tmp_path / "fan", tmp_path / "fan/list.csv"):
        with pytest.raises(InputError, match="are known"):
            read_clips(source, domain_level=1)


def test_clips_come_in_the_order_of_their_paths(tmp_path):
    make(tmp_path / "motor", "a.wav", "m/b.wav", "m/sub/a.wav", "m/z.wav", "n/a.wav")
    paths = [clip.path for clip in read_clips(tmp_path / "motor", domain_level=0)]
    assert paths == ["a.wav", "m/b.wav", "m/sub/a.wav", "m/z.wav", "n/a.wav"]


# ------------------------------------------------------------------------------------ oddities


@pytest.mark.parametrize(
    ("paths", "left_out"),
    [
        ([*clips_in("Healthy"), "x/c.wav", "d.wav"], "Healthy/: d.wav, x/c.wav."),
        ([*clips_in("train/ok", "train/good"), "val/c.wav"], "train/good/, train/ok/: val/c.wav."),
        ([*clips_in("train", "test"), "val/c.wav"], "train/: val/c.wav."),
        ([*clips_in("old"), "c.wav"], "the folders of the domains: c.wav."),
        (
            [*clips_in("fan/day", "fan/night", "pump/day"), "pump/stray.wav", "stray.wav"],
            "the folders of the domains: pump/stray.wav, stray.wav.",
        ),
    ],
)
def test_what_lies_beside_the_normal_clips_is_left_out_and_named(tmp_path, paths, left_out):
    table = read_clips(make(tmp_path / "site", *paths))
    assert f"left out, not inside {left_out}" in table.oddities[0]
    named = left_out.partition(": ")[2].rstrip(".").split(", ")
    assert set(paths) - {clip.path for clip in table} == set(named)


def test_a_few_clips_in_a_subfolder_do_not_make_the_others_strays(tmp_path):
    table = read_clips(make(tmp_path / "fan", "a.wav", "b.wav", "c.wav", "new/d.wav"))
    assert [(clip.path, clip.domain) for clip in table][-2:] == [
        ("c.wav", "all"),
        ("new/d.wav", "all"),
    ]
    assert "1 clip in subfolders of a domain" in table.oddities[0]


def test_oddities_name_what_is_wrong(tmp_path):
    make(tmp_path / "pump", "source/a.wav", "source/a.flac")
    (tmp_path / "pump/source/empty.wav").touch()
    assert read_clips(tmp_path / "pump").oddities == (
        "1 clip of zero bytes: source/empty.wav.",
        "pump: no target clip among the training clips.",
        "pump: 1 name used more than once: source/a.flac = source/a.wav.",
    )
    make(tmp_path / "pump", "target/a.wav")
    oddities = read_clips(tmp_path / "pump").oddities
    assert "pump: only 1 training clip in the domain target." in oddities
    make(tmp_path / "fan", "test/a.wav")
    assert read_clips(tmp_path / "fan").oddities == (
        "fan: no training clip.",
        "1 test clip without a label (fan): they can be scored, not evaluated.",
    )
    days = clips_in("2026-05-01", "2026-05-02")  # a recorder counts from 1 every day
    assert read_clips(make(tmp_path / "days", *days)).oddities == ()


def test_nothing_to_read_is_an_error_that_helps(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_clips(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no recording \(WAV, FLAC"):
        read_clips(tmp_path)
    make(tmp_path, "dev_fan.zip", "dev_valve.zip")
    with pytest.raises(DataError, match="2 archives but no recording"):
        read_clips(tmp_path)
    make(tmp_path, "a.wav")
    with pytest.raises(DataError, match="is not a manifest"):
        read_clips(tmp_path / "a.wav")


# --------------------------------------------------------------------------------------- files


def test_a_flat_folder_is_listed_without_hidden_and_other_files(tmp_path):
    make(tmp_path / "pump 7", "b.wav", "a.FLAC", "c.Ogg", "notes.txt", ".hidden.wav", "._a.wav")
    make(tmp_path / "pump 7", "__MACOSX/b.wav", ".cache/d.wav")
    table = read_clips(tmp_path / "pump 7")
    assert [clip.path for clip in table] == ["a.FLAC", "b.wav", "c.Ogg"]
    assert {(c.machine, c.domain, c.split) for c in table} == {("pump 7", "all", "train")}
    assert table.oddities == ()


AUDIO_KINDS = {
    "a.wav": {},
    "b.flac": {},
    "c.ogg": {},
    "d.oga": {"format": "OGG"},
    "e.opus": {"format": "OGG", "subtype": "OPUS"},
    "f.aif": {"format": "AIFF"},
    "g.aiff": {},
    "h.mp3": {},
}


def test_every_format_that_can_be_decoded_is_listed_and_decoded(tmp_path):
    wave = 0.1 * np.sin(np.arange(16000) * 0.1)
    for name, options in AUDIO_KINDS.items():
        options = {"format": name.rpartition(".")[2], **options}
        soundfile.write(tmp_path / name, wave, 16000, **options)
    assert {Path(name).suffix for name in AUDIO_KINDS} == set(FORMATS)
    table = read_clips(tmp_path)
    assert [clip.path for clip in table] == sorted(AUDIO_KINDS)
    assert table.oddities == ()
    for path in table.paths():
        # Lossy codecs add a frame or two of padding.
        assert len(read_audio(path, sample_rate=16000)) == pytest.approx(16000, abs=3000)


def test_recordings_that_cannot_be_read_are_named(tmp_path):
    names = ("a.wav", "e.wav", "b.M4A", "sub/c.wma", "d.aac", "notes.txt", ".hidden.m4a")
    (oddity,) = read_clips(make(tmp_path / "pump", *names)).oddities
    assert oddity.startswith("3 files that daco cannot read: b.M4A, d.aac, sub/c.wma.")
    make(tmp_path / "phone", "a.m4a", "b.m4a")
    with pytest.raises(DataError, match=r"no recording .* 2 files that daco cannot read: a\.m4a"):
        read_clips(tmp_path / "phone")
    (tmp_path / "phone/list.csv").write_text("path\na.m4a\n")
    assert "cannot read: a.m4a" in read_clips(tmp_path / "phone/list.csv").oddities[0]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_links_are_followed_once_and_broken_ones_named(tmp_path):
    make(tmp_path / "elsewhere", "a.wav", "b.wav")
    pump = make(tmp_path / "pump", "old/c.wav", "old/d.wav")
    (pump / "new").symlink_to(tmp_path / "elsewhere")
    (pump / "old" / "again").symlink_to(pump)
    (pump / "old" / "gone.wav").symlink_to(tmp_path / "nothing")
    files, oddities = list_audio(pump)
    assert list(files) == ["new/a.wav", "new/b.wav", "old/c.wav", "old/d.wav"]
    assert oddities == ["1 link left out, broken: old/gone.wav."]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such names")
def test_names_that_are_not_text_are_refused_or_left_out(tmp_path):
    folder = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"P\xfcmpe")))  # Latin-1
    make(folder, "a.wav")
    (folder / "clips.csv").write_text("path\na.wav\n")
    for source in (folder, folder / "clips.csv"):
        with pytest.raises(DataError, match=r"P.mpe.* is not UTF-8. Rename the file or folder"):
            read_clips(source)
    make(tmp_path / "fine", "a.wav", os.fsdecode(b"\xfc.wav"))
    table = read_clips(tmp_path / "fine")
    assert [clip.path for clip in table] == ["a.wav"]
    assert "left out" in table.oddities[0]
