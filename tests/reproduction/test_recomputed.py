"""The values recomputed from the authors' files, whole and damaged, and the command."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from shared_data import PUBLISHED, shared

from daco.errors import DataError
from reproduction.__main__ import main
from reproduction.check import check
from reproduction.printed import ERRATA, PLACES, PRINTED
from reproduction.published import Published, open_published

BY_ID = {each.id: each for each in PRINTED}
CLIPS = "release/scores/raw-k1/dev/anomaly_score_fan_section_00_test.csv"


@pytest.fixture(scope="module")
def found(published):
    """One run of some seconds for all that looks at its findings."""
    return {each.id: check(each, published) for each in PRINTED}


def test_nothing_is_unexpected(found):
    assert [each for each in found.values() if not each["expected"]] == []


def test_how_many_values_have_which_status(found):
    in_paper = [each for each in found.values() if PLACES[each["place"]]["in_paper"]]
    assert Counter(each["status"] for each in in_paper) == {
        **{"ok": 389, "read": 108, "differs": 9, "cited": 20},
        **{"needs audio": 8, "needs code": 3, "needs teams": 7},
    }
    beyond = [each for each in found.values() if not PLACES[each["place"]]["in_paper"]]
    assert Counter(each["status"] for each in beyond) == {"ok": 59, "read": 3}


@pytest.mark.parametrize(
    ("name", "erratum", "recomputed"),
    [
        ("e3.blind", 1, 59.63),
        ("table1.algorithm-1", 2, 59.50),
        ("method.decile", 3, 6),
        ("table2.random.beats-sd", 5, 2.045),
        ("e2.halves", 6, 0.90),
        ("discussion.cost", 7, 2.44),
        ("discussion.no-worse", 14, -1.41),
        ("method.floor-sd", 16, 0.0131),
    ],
)
def test_errata_that_touch_a_printed_value(found, name, erratum, recomputed):
    each = found[name]
    assert (each["status"], each["erratum"], each["expected"]) == ("differs", erratum, True)
    assert each["recomputed"] == [pytest.approx(recomputed, abs=0.005)]


READ = {
    "the labels of the evaluation clips": {"metric": 73, "stored_score": 3, "recorded": 1},
    "the recordings": {"diagnostic": 8, "recorded": 1, "criterion_of": 1, "stored_score": 2},
    "the network's weights": {"efficiency": 10},
    "the authors' computer": {"efficiency": 8, "cycle_seconds": 3, "study_minutes": 1},
}
"""How often a recipe copies the value that a file states, and what computing it needs."""


def recipe_of(row):
    words = row["recipe"].split()
    return words[3] if words[0] == "over" else words[0]


def test_what_is_read_is_not_called_recomputed(found):
    read = {}
    for each in found.values():
        assert (each["status"] == "read") == bool(each["needs"]), each["id"]
        if each["needs"]:
            assert "Read, not recomputed" in each["note"], each["id"]
            read.setdefault(each["needs"], Counter())[recipe_of(each)] += 1
    assert read == READ


COUNTS = {
    *("count", "parameters", "clips_per_machine", "nominal_levels"),
    "vetoed",  # 6 of any 51 different scores
    "floor",  # simulated from the numbers of clips
}
"""Recipes that count rows and names, which do not depend on the values in a table."""


def moved(name, content, at):
    """A table whose values are in other rows, differently by column, and smaller."""
    if name.startswith("release/scores/"):
        clips, scores = zip(*(line.split(",") for line in content.decode().split()), strict=True)
        rows = zip(clips, np.roll(scores, 1 + at), strict=True)
        return "\n".join(map(",".join, rows)).encode()
    if not re.search(r"_grid|_per_machine|e1_dev|fpr_coverage", name):
        return content  # records of the authors stay as they are
    table = pd.read_csv(io.BytesIO(content))
    for column, values in enumerate(table.select_dtypes("float")):
        if values != "nominal_fpr":
            table[values] = 0.9 * np.roll(table[values], 2 + 9 * column)
    return table.to_csv(index=False).encode()


def test_what_is_recomputed_changes_with_the_values_that_it_is_computed_from(published, found):
    files = enumerate(published.files.items())
    other = Published({name: moved(name, content, at) for at, (name, content) in files})
    moves = {}
    for each in PRINTED:
        before = found[each.id]
        if before["status"] in ("ok", "differs") and not moves.get(recipe_of(before)):
            after = check(each, other)
            differs = any(before[key] != after[key] for key in ("recomputed", "note"))
            moves[recipe_of(before)] = differs
    assert {recipe for recipe, moved in moves.items() if not moved} == COUNTS


# Damage


def edited(published, file, edit):
    text = published.files[file].decode()
    assert edit(text) != text
    return Published({**published.files, file: edit(text).encode()})


@pytest.mark.parametrize(
    ("file", "old", "new", "name", "note"),
    [
        ("results/e45_eat_per_machine.csv", "eval,Polisher,ldn-ratio-K1,70.9",
         "eval,Polisher,ldn-ratio-K1,90.9", "table2.oracle.eat", "e45_eat_grid.csv says 59.7621"),
        (CLIPS, "source_test_anomaly_0000_n_B.wav,0.0438430309",
         "source_test_anomaly_0000_n_B.wav,0.0001", "appendix.fan.raw-k1.auc_source", ""),
        # spreads the scores, so that their sd is as printed
        ("results/e45_beats_grid.csv", "raw-k1,58.7259,55.8287", "raw-k1,58.7259,54.0000",
         "table2.random.beats-sd", "erratum 5"),
    ],
)  # fmt: skip
def test_a_changed_value_is_not_as_expected(published, file, old, new, name, note):
    other = edited(published, file, lambda text: text.replace(old, new, 1))
    row = check(BY_ID[name], other)
    assert not row["expected"]
    assert note in row["note"]


@pytest.mark.parametrize(
    ("file", "name", "message"),
    [
        ("results/e3_config_grid.csv", "e3.rho-criterion", "of 45 rows|damaged"),
        ("results/rep_2023_per_machine.csv", "table4.per-machine-blind.2023", "rows|damaged"),
        ("results/stats_intervals.json", "e3.gain-clips", "cannot be read"),
        ("results/e3_seed_stability.txt", "e3.blind-sd", "no choice for every machine"),
        ("results/fpr_coverage.csv", "e2.imbalance-raw", "of 300 rows|damaged"),
        ("results/diagnostics.csv", "fig2.rho", "of 15 rows|damaged"),
        (CLIPS, "appendix.fan.raw-k1.pauc", "of 200 clips|damaged"),
    ],
)
def test_a_file_that_was_cut_off_is_named_and_not_used(published, file, name, message):
    row = check(BY_ID[name], edited(published, file, lambda text: text[: len(text) // 2]))
    assert (row["status"], row["expected"]) == ("missing", False)
    assert row["note"].startswith(file)
    assert re.search(message, row["note"])


def test_without_files_every_value_is_missing_and_none_breaks():
    for each in PRINTED:
        if each.recipe and not each.recipe.startswith("floor"):  # which is simulated
            row = check(each, Published({}))
            assert row["status"] == "missing", each.id
            assert "does not exist." in row["note"]
            assert not row["expected"], each.id  # also where there is an erratum


# Opening


def test_a_folder_is_read_as_its_zip_file_is(published):
    folder = shared("published", "daco-experiments")
    assert open_published(folder).grid("45").equals(published.grid("45"))
    assert open_published(folder.parent).grid("45").equals(published.grid("45"))


def test_what_holds_no_files_of_the_paper_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"does not exist\. Give a clone of polestvr/daco-experim"):
        open_published(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"holds none of the paper's files.*Give a clone"):
        open_published(tmp_path)
    path = tmp_path / "other.zip"
    path.write_bytes(b"config,dev_omega")
    with pytest.raises(DataError, match=r"other\.zip cannot be read.*Give a clone"):
        open_published(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("notes/readme.txt", "nothing of the paper")
    with pytest.raises(DataError, match=r"other\.zip holds none of the paper's files"):
        open_published(path)


# The command


@pytest.fixture
def read_once(published, found, monkeypatch):
    """The command takes the values that the tests above have recomputed."""
    monkeypatch.setattr("reproduction.__main__.open_published", lambda path: published)
    monkeypatch.setattr("reproduction.__main__.check", lambda each, files: found[each.id])


def test_the_command_prints_tables_that_fit_and_the_errata(read_once, capsys):
    assert main([str(PUBLISHED)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    words = [" ".join(line.split()) for line in lines]
    assert "random, BEATs, sd 2.1 2.045 differs [5]" in words
    assert "Nothing unexpected." in words
    for erratum in ERRATA:
        assert any(line.startswith(f"[{erratum}] ") for line in words)
    assert words[words.index("Nothing unexpected.") - 5].startswith("The paper prints 544 values")


def test_the_command_prints_json(read_once, capsys):
    assert main([str(PUBLISHED), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["expected"] is True
    assert len(document["errata"]) == 16
    assert [each["id"] for each in document["values"]] == list(BY_ID)


def test_the_command_names_what_differs_and_what_is_missing(published, capsys, tmp_path):
    row = b"eval,Polisher,ldn-ratio-K1,"
    for name in ("results/e45_eat_grid.csv", "results/e45_eat_per_machine.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(published.files[name].replace(row + b"70.9", row + b"90.9"))
    assert main([str(tmp_path)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "Table II, oracle, EAT: printed 59.76, recomputed 60." in text
    assert re.search(r"results/e6_efficiency.txt does not exist. \d+ values need it.", text)
    assert re.search(r"\d+ values not as expected", text)


def test_a_wrong_path_is_a_mistake_in_the_call(capsys, tmp_path):
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
