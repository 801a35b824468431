"""``daco compare`` as a user types it, on the published results and on a study of one's own."""

from __future__ import annotations

import json

import published_runs as published
import pytest
import typer
from small_runs import small_study
from typer.testing import CliRunner

from daco.commands.compare import compare
from daco.errors import DacoError

APP = typer.Typer()
APP.command()(compare)


def run(*arguments):
    command = [str(argument) for argument in arguments]
    return CliRunner().invoke(APP, command, env={"COLUMNS": "80"}, catch_exceptions=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {name: published.write_run(root / name, name) for name in published.SETTINGS}


def test_four_runs_fit_a_terminal(folders, tmp_path):
    names = ("2023", "2024", "beats", "ch0")
    result = run(*(folders[name] for name in names), "--out", tmp_path / "tables")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)
    guarded = next(line for line in lines if line.startswith("guarded criterion"))
    assert guarded.split()[2:] == ["63.52", "56.29", "61.05", "58.97"]
    assert "[−0.09,+0.69]" in result.stdout
    assert (tmp_path / "tables" / "compare.json").is_file()


def test_seven_runs_are_shown_in_blocks(folders):
    result = run(*folders.values())
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    oracle = [line.split()[1:] for line in lines if line.startswith("oracle")]
    assert oracle[0] == ["64.14", "60.11", "61.05", "59.76"]
    assert oracle[1] == ["56.83", "61.18", "57.05"]
    assert oracle[2] == ["60.02", "7"]


def test_json_is_what_is_written(folders, tmp_path):
    result = run(folders["eat"], folders["panns"], "--json", "--out", tmp_path)
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "compare.json").read_text())
    assert document["runs"] == ["eat", "panns"]


def test_names_of_ones_own(folders):
    result = run(folders["eat"], folders["panns"], "--name", "EAT", "--name", "PANNs", "--json")
    assert json.loads(result.stdout)["runs"] == ["EAT", "PANNs"]


def test_runs_of_one_name_are_told_apart(folders):
    with pytest.raises(DacoError, match=r"called 'eat'\. Tell them apart with --name"):
        run(folders["eat"], folders["eat"])
    with pytest.raises(DacoError, match="2 runs and 1 names"):
        run(folders["eat"], folders["panns"], "--name", "EAT")


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(DacoError, match="not a finished run"):
        run(tmp_path)


def test_a_study_of_ones_own_beside_a_published_one(folders, tmp_path):
    small_study(tmp_path / "open")
    small_study(tmp_path / "known", labelled=True)
    result = run(
        *(tmp_path / "open" / "run", tmp_path / "known" / "run", folders["beats"]),
        *("--name", "open", "--name", "known", "--name", "published"),
    )
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "open has no evaluation labels" in text
    assert "different grids (open 4, known 4, published 51 configurations" in text
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
