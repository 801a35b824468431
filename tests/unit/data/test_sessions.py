"""Recording sessions by column, folder, time and attribute, from recordings to models."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from real_tables import real_table
from small_clips import FakeNet, make_clips

from daco.data.clips import COLUMNS, Clip
from daco.data.sessions import find_sessions, recording_time
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.embedding.normals import normals_of_table
from daco.errors import DataError, InputError


def sessions(clips, rule, **options):
    """The session of each clip of one machine, by its path."""
    found, _ = find_sessions({"fan": clips}, rule, **options)
    return {clip.path: clip.session for clip in found["fan"]}


def clips_of(*paths, **fields):
    return [Clip(path, "fan", **fields) for path in paths]


# --------------------------------------------------------------------------------------- times

AT = datetime(2026, 5, 12, 8, 30)


@pytest.mark.parametrize(
    "name",
    [
        *("2026-05-12T08-30-00.wav", "2026-05-12T08:30:00Z.wav", "2026-05-12 08.30.00.flac"),
        *("20260512_083000.WAV", "20260512T083000+0200.wav", "20260512083000.wav"),
        *("20260512_083000T.WAV", "24F3190461A5_20260512_083000.WAV"),  # AudioMoth
        *("SM4-01_20260512_083000.wav", "REC20260512_083000.wav", "2026_05_12_08_30_00_007.wav"),
        *("260512_083000_Tr1.WAV", "260512-083000.wav"),  # Zoom
        *("20260512_0830.wav", "2026-05-12_08h30.wav", "12.05.2026 08.30.wav"),
        *("fan/2026/05/12/0830.wav", "2026/05/12/old/08-30-00.wav"),
        *("2026-05-12/083000.wav", "line 2/2026-05-12/08-30-00.wav", r"20260512_0830\clip1.wav"),
        *("2026-05-01/2026-05-12T08-30-00.wav", "20260512_083000.123456.wav"),
    ],
)
def test_times_of_recorders_are_read_from_names(name):
    assert recording_time(name) == AT


@pytest.mark.parametrize("name", ["2026-05-12.wav", "20260512/clip_01.wav", "20260512_9999.wav"])
def test_a_date_alone_is_the_beginning_of_its_day(name):
    assert recording_time(name) == datetime(2026, 5, 12)


@pytest.mark.parametrize(
    "name",
    [
        *("section_00_source_train_normal_0001_m-n_W.wav", "ZOOM0001.WAV", "260512_0001.wav"),
        *("20261301_083000.wav", "20260231.wav", "120260512_083000.wav", "12345678.wav"),
    ],
)
def test_other_numbers_are_no_times(name):
    assert recording_time(name) is None


def test_a_session_ends_with_a_gap_and_not_with_its_length():
    names = [f"20260512_{hour:02}{minute:02}00.wav" for hour in (8, 9) for minute in (0, 20, 40)]
    clips = clips_of(*names, "20260512_101000.wav", "20260512_104100.wav", "20260513_080000.wav")
    found = sessions(clips, "gap:30min")
    assert list(found.values()) == [
        *["2026-05-12 08:00:00"] * 7,
        "2026-05-12 10:41:00",
        "2026-05-13 08:00:00",
    ]
    assert len(set(sessions(clips, "gap:1h").values())) == 2
    assert len(set(sessions(clips, "gap:1800s").values())) == 3
    with pytest.raises(DataError, match=r"fan: all 9 clips are one session by gap:1d \(times in"):
        sessions(clips, "gap:1d")


def test_without_times_in_names_those_of_the_files_count_and_it_is_said(tmp_path):
    paths = [f"{index}.wav" for index in range(4)]
    for path, minutes in zip(paths, (0, 90, 10, 100), strict=True):
        (tmp_path / path).write_bytes(b"x")
        os.utime(tmp_path / path, (1_800_000_000 + 60 * minutes,) * 2)
    found, notes = find_sessions({"fan": clips_of(*paths)}, "gap:30min", tmp_path)
    first, second, *others = (clip.session for clip in found["fan"])
    assert others == [first, second] != [second, first]
    assert notes[0] == (
        "Recording sessions by gap:30min (times of last change, which copying may alter): fan 2 in "
        "all (2 clips)."
    )
    mixed = clips_of(*paths, "20260512_083000.wav")
    with pytest.raises(DataError, match=r"fan: 4 clips of 5 without a session by gap:30min"):
        find_sessions({"fan": mixed}, "gap:30min", tmp_path)
    with pytest.raises(DataError, match="Names such as 20260512_083000"):
        find_sessions({"fan": clips_of(*paths)}, "gap:30min")  # of a table: no files


# -------------------------------------------------------------------------- folders, attributes


def test_folders_name_sessions_below_words_for_split_and_label():
    clips = clips_of("train/old/mo/1.wav", "train/old/mo/2.wav", "normal/new/tu/3.wav")
    assert list(sessions(clips, "folder:2").values()) == ["mo", "mo", "tu"]
    assert list(sessions(clips, "folder:1").values()) == ["old", "old", "new"]
    with pytest.raises(DataError, match=r"3 clips of 3 without a session by folder:3: train/old"):
        sessions(clips, "folder:3")


def test_attributes_are_sessions_alone_and_together():
    clips = [
        Clip(f"{speed}{load}{copy}", "fan", attributes={"speed": speed, "load": load})
        for speed in "12"
        for load in "ab"
        for copy in "xy"
    ]
    assert sorted(set(sessions(clips, "attribute:speed").values())) == ["speed 1", "speed 2"]
    both = sessions(clips, "attribute:speed+load")
    assert len(set(both.values())) == 4
    assert both["1ax"] == both["1ay"] == "speed 1, load a"
    with pytest.raises(DataError, match=r"8 clips of 8 .* attribute:sped: .* attributes speed, l"):
        sessions(clips, "attribute:sped")
    some = [*clips[:6], replace(clips[6], attributes={}), replace(clips[7], attributes={})]
    with pytest.raises(DataError, match=r"2 clips of 8 without a session .*: 2bx, 2by\."):
        sessions(some, "attribute:load")


@pytest.mark.parametrize(
    "rule", ["", "gap", "gap:", "gap:0min", "gap:-1h", "gap:30", "folder:0", "folder:x", "day:1"]
)
def test_other_rules_are_refused_with_examples(rule):
    with pytest.raises(InputError, match=r"folder:2, gap:30min \(or s, h, d\) or attribute:speed"):
        sessions(clips_of("a/1.wav"), rule)


def test_a_session_for_each_clip_is_refused_but_not_of_an_update():
    clips = clips_of("20260512_080000.wav", "20260513_080000.wav")
    with pytest.raises(DataError, match=r"fan: all 2 clips are a session each by gap:30min"):
        sessions(clips, "gap:30min")
    assert len(set(sessions(clips, "gap:30min", several=False).values())) == 2
    assert len(set(sessions(clips, "gap:2d", several=False).values())) == 1


def test_the_note_counts_sessions_by_machine_and_domain():
    domains = {"fan": [("old", 3), ("old", 2), ("new", 1)], "pump": [("x", 2), ("x", 1)]}
    machines = {
        name: [Clip(f"{s}/{i}", name, domain=d) for d, s in pairs for i in range(s)]
        for name, pairs in domains.items()
    }
    (counts, few) = find_sessions(machines, "folder:1")[1]
    assert "fan 2 in old (2 to 3 clips) and 1 in new (1 clip), pump 2 in x (1 to 2 cl" in counts
    assert "Fewer than 6 sessions" in few
    six = {"fan": clips_of(*(f"{day}/{i}" for day in "abcdef" for i in "12"))}
    assert len(find_sessions(six, "folder:1")[1]) == 1
    assert len(find_sessions(machines, "folder:1", several=False)[1]) == 1  # an update adds to many


# -------------------------------------------------------------------------------------- columns


def test_a_column_counts_without_a_rule_and_must_be_complete(tmp_path):
    clips = clips_of("a", "b", session="mo") + clips_of("c", session="tu")
    assert list(sessions(clips, None).values()) == ["mo", "mo", "tu"]
    assert find_sessions({"fan": clips_of("a", "b")}, None)[1] == []
    with pytest.raises(DataError, match=r"fan: 1 clip of 4 without a session by the column 'sess"):
        sessions([*clips, Clip("d", "fan")], None)
    one = clips_of("a", "b", session="mo")  # data, and not somebody's rule
    assert list(sessions(one, None).values()) == ["mo", "mo"]


def test_a_table_keeps_sessions_and_one_without_them_has_no_column(tmp_path):
    X = np.eye(3)
    plain = EmbeddingTable.from_arrays(X, machine="fan")
    plain.write(tmp_path / "plain.parquet")
    assert "session" not in pq.read_schema(tmp_path / "plain.parquet").names
    assert EmbeddingTable.read(tmp_path / "plain.parquet").column("session").tolist() == [None] * 3
    for given_names in (["mo", "mo", None], [1, 1, 2], np.array([1.0, 1.0, 2.0])):
        EmbeddingTable.from_arrays(X, session=given_names).write(tmp_path / "s.parquet")
        back = EmbeddingTable.read(tmp_path / "s.parquet").column("session").tolist()
        assert back == [None if s is None else str(s).removesuffix(".0") for s in given_names]
    assert list(pd.read_parquet(tmp_path / "s.parquet").columns[:9]) == list(COLUMNS)
    EmbeddingTable.from_arrays(X, session=["mo", "mo", "tu"]).write(tmp_path / "s.parquet")
    assert normals_of_table(tmp_path / "s.parquet").machines[0].sessions == ("mo", "mo", "tu")


def test_another_session_changes_a_finished_table(tmp_path):
    clips, net = make_clips(tmp_path / "clips", 3), FakeNet()
    embed_clips(clips, net, tmp_path / "e.parquet")
    assert embed_clips(clips, net, tmp_path / "e.parquet").embedded == 0
    named = replace(clips, clips=tuple(replace(clip, session="mo") for clip in clips))
    with pytest.raises(InputError, match="other recordings"):
        embed_clips(named, net, tmp_path / "e.parquet")


@pytest.mark.shared("real", "embeddings")
@pytest.mark.parametrize(
    ("machine", "rule", "counts"),
    [
        ("fan", "attribute:m-n", "2 in source (476 to 514 clips) and 2 in target (5 clips)"),
        ("bearing", "attribute:vel+loc", "13 in source (57 to 99 clips) and 9 in target (1 to 2 c"),
    ],
)
def test_attributes_of_real_names_are_sessions_of_a_table(tmp_path, machine, rule, counts):
    table = real_table(machine)
    replace(table, metadata={}).write(tmp_path / "real.parquet")
    found = normals_of_table(tmp_path / "real.parquet", session_by=rule)
    assert f"Recording sessions by {rule}: {machine} {counts}" in " ".join(found.warnings)
    (normals,) = found.machines
    assert len(normals.sessions) == len(normals) == 1000
