"""``daco baseline`` as a user types it, and its scores in a study's E1."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from daco.backbones import load
from daco.commands.baseline import baseline
from daco.commands.study import study
from daco.data.clips import read_clips
from daco.embedding.embed import embed_clips
from daco.evaluation.evaluate import rank_systems
from daco.experiments.autoencoders.scoretable import read_score_table
from daco.synthetic.factory import synth_factory

app = typer.Typer()
app.command()(baseline)
app.command()(study)

# The same app in a process of its own, with errors shown as the daco command shows them.
PROGRAM = """
import sys, typer
from rich.console import Console
from rich.markup import escape
from daco.commands.baseline import baseline
from daco.errors import DacoError
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(baseline)
sys.modules["torch"] = None
try:
    app()
except DacoError as error:
    Console(stderr=True).print("error:", escape(str(error)), highlight=False)
    sys.exit(2)
"""
SYSTEMS = ["ae-mse", "ae-maha", "ae-maha-row"]
OWN = ["knn1", "sel-maha", "gmm2", "conf-oracle-m30-k1"]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


@pytest.fixture(scope="module")
def factory(tmp_path_factory):
    """Two development machines and an evaluation machine with anonymous clips of 2 s."""
    folder = tmp_path_factory.mktemp("factory")
    size = {"n_source": 12, "n_target": 4, "n_test": 12, "seconds": 2.0, "workers": 1}
    synth_factory(folder, machines=["fan", "pump"], split="dev", **size)
    synth_factory(folder, machines=["valve"], split="eval", **size)
    for role in ("dev", "eval"):
        clips = read_clips(folder / f"{role}_data")
        embed_clips(clips, load("logmel"), folder / f"{role}.parquet", workers=1)
    return folder


@pytest.fixture(scope="module")
def trained(factory):
    arguments = ("baseline", factory / "dev_data", "--out", factory / "b.parquet")
    return run(*arguments, "--epochs", 3, "--scores", factory / "files")


def test_two_machines_are_trained_and_summed_up_in_80_columns(factory, trained):
    assert trained.exit_code == 0, trained.output
    lines = trained.stdout.splitlines()
    # paths are not wrapped: they are to be copied
    assert max(len(line) for line in lines if str(factory) not in line) <= 80
    assert [line.split()[0] for line in lines if line.startswith(("fan", "pump"))] == [
        "fan",
        "pump",
    ]
    assert any(line.startswith("official score") for line in lines)
    assert f"{factory / 'b.parquet'}: 2 machines trained" in trained.stdout
    rows = read_score_table(factory / "b.parquet").rows
    assert rows.groupby(["machine", "system"], sort=False).size().to_dict() == {
        (machine, system): 12 for machine in ("fan", "pump") for system in SYSTEMS
    }
    assert set(rows["split"]) == {"test"}
    assert (rows.query("system == 'ae-mse'")["score"] > 0).all()


def test_the_same_command_again_trains_nothing(factory, trained):
    before = (factory / "b.parquet").read_bytes()
    again = run("baseline", factory / "dev_data", "--out", factory / "b.parquet", "--epochs", 3)
    assert "0 machines trained, 2 found finished" in again.stdout
    assert (factory / "b.parquet").read_bytes() == before


def test_the_score_files_can_be_evaluated_and_agree_with_the_summary(factory, trained):
    ranking = rank_systems(factory / "files")
    assert not ranking.failures
    found = {each.system: each.official_score for each in ranking.evaluations}
    assert sorted(found) == sorted(SYSTEMS)
    line = next(li for li in trained.stdout.splitlines() if li.startswith("official score"))
    assert line.split()[2:] == [f"{found[system]:.2f}" for system in SYSTEMS]


def test_clips_without_labels_are_scored_and_not_evaluated(factory, tmp_path):
    result = run("baseline", factory / "eval_data", "--out", tmp_path / "e.parquet", "--epochs", 1)
    assert result.exit_code == 0, result.output
    assert "1 machine without complete labels" in result.stdout
    assert "official score" not in result.stdout
    assert len(read_score_table(tmp_path / "e.parquet").rows) == 12 * 3


def test_without_torch_one_sentence_says_what_to_install(factory, tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(factory / "dev_data")]
    result = subprocess.run(
        [*command, "--out", str(tmp_path / "b.parquet")],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert result.returncode == 2
    assert 'pip install "daco-asd[torch]"' in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
