"""``daco synth`` as a user types it."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from daco.commands.synth import synth
from daco.errors import DataError

APP = typer.Typer()
APP.command()(synth)
SMALL = ["--source", "2", "--target", "1", "--test", "4", "--seconds", "0.5", "--workers", "1"]


def run(*arguments, **options):
    return CliRunner().invoke(APP, [str(argument) for argument in arguments], **options)


def test_it_writes_a_data_set_and_says_what(tmp_path):
    result = run(tmp_path / "factory", "--machine", "fan", "--machine", "valve", *SMALL)
    assert result.exit_code == 0, result.output
    assert "14 clips of 0.5 s from 2 machines (fan, valve)" in " ".join(result.output.split())
    assert len(list((tmp_path / "factory" / "dev_data" / "raw").rglob("*.wav"))) == 14
    assert len(result.output.splitlines()) == 1


def test_both_sets_of_a_year(tmp_path):
    machines = ["--machine", "pump", "--machine", "belt"]
    result = run(tmp_path, *machines, "--split", "both", "--year", "2026", *SMALL)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "dev_data" / "raw" / "pump" / "attributes_00.csv").is_file()
    assert (tmp_path / "eval_data" / "raw" / "belt" / "test" / "section_00_0003.wav").is_file()


def test_a_directory_with_data_is_left_alone(tmp_path):
    run(tmp_path, "--machine", "fan", *SMALL)
    with pytest.raises(DataError, match="remove it"):
        run(tmp_path, "--machine", "fan", *SMALL, catch_exceptions=False)


def test_help_tells_the_options():
    result = run("--help", env={"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0
    assert "severity" in result.output
