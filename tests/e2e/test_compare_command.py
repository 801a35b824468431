"""``daco compare`` as a user types it, on the published results and on a study of one's own."""

from __future__ import annotations

import json

import published_runs as published
import pytest
from command_line import refused, run, said
from small_runs import small_study


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {name: published.write_run(root / name, name) for name in published.SETTINGS}


def test_four_runs_fit_a_terminal(folders, tmp_path):
    names = ("2023", "2024", "beats", "ch0")
    result = run("compare", *(folders[name] for name in names), "--out", tmp_path / "tables")
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)
    guarded = next(line for line in lines if line.startswith("paper's choice"))
    assert guarded.split()[2:] == ["63.52", "56.29", "61.05", "58.97"]
    assert "[−0.09,+0.69]" in result.stdout
    assert (tmp_path / "tables" / "compare.json").is_file()


def test_seven_runs_are_shown_in_blocks(folders):
    lines = run("compare", *folders.values()).stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    oracle = [line.split()[1:] for line in lines if line.startswith("oracle")]
    assert oracle[0] == ["64.14", "60.11", "61.05", "59.76"]
    assert oracle[1] == ["56.83", "61.18", "57.05"]
    assert oracle[2] == ["60.02", "7"]


def test_json_is_what_is_written_and_runs_have_names(folders, tmp_path):
    runs = (folders["eat"], folders["panns"], "--json")
    document = json.loads(run("compare", *runs, "--out", tmp_path).stdout)
    assert document == json.loads((tmp_path / "compare.json").read_text())
    assert document["runs"] == ["eat", "panns"]
    renamed = run("compare", *runs, "--name", "EAT", "--name", "PANNs").stdout
    assert json.loads(renamed)["runs"] == ["EAT", "PANNs"]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("eat", "eat"), (), "called 'eat'. Tell them apart with --name"),
        (("eat", "panns"), ("--name", "EAT"), "2 runs but 1 names"),
        ((".",), (), "not a finished run"),
    ],
)
def test_mistakes_are_named(folders, names, options, message, tmp_path):
    runs = (folders.get(name, tmp_path) for name in names)
    assert message in str(refused("compare", *runs, *options))


def test_a_study_of_ones_own_beside_a_published_one(folders, tmp_path):
    small_study(tmp_path / "open")
    small_study(tmp_path / "known", labelled=True)
    text = said(
        *("compare", tmp_path / "open" / "run", tmp_path / "known" / "run", folders["beats"]),
        *("--name", "open", "--name", "known", "--name", "published"),
    )
    assert "open has no evaluation labels" in text
    assert "different grids (open 4, known 4, published 51 configurations" in text
