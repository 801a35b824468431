"""``daco baseline`` as a user types it, and its scores in a study's E1."""

from __future__ import annotations

import os
import subprocess
import sys

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from daco.backbones import load
from daco.commands.baseline import baseline
from daco.commands.study import study
from daco.data.clips import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.errors import DacoError
from daco.evaluation.evaluate import rank_systems
from daco.experiments.autoencoders.scoretable import read_score_table
from daco.experiments.result import StudyResult
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


# --- E1 -------------------------------------------------------------------------------------


def study_of(factory, out, *options, eval=False):
    arguments = ["study", "--dev", factory / "dev.parquet", "--out", out, "--grid", "9"]
    if eval:
        arguments += ["--eval", factory / "eval.parquet"]
    return run(*arguments, "--workers", 1, "--splits", 2, *options)


@pytest.fixture(scope="module")
def studies(factory, trained, tmp_path_factory):
    """The same study without and with the autoencoders."""
    folder = tmp_path_factory.mktemp("studies")
    results = {}
    for name, options in (("plain", []), ("both", ["--baselines", factory / "b.parquet"])):
        found = study_of(factory, folder / name, *options, eval=True)
        assert found.exit_code == 0, found.output
        results[name] = StudyResult.read(folder / name)
    return results


def test_e1_shows_the_autoencoders_beside_the_other_scorers(factory, studies):
    table = studies["both"].baselines
    rows = table[table["backend"].isin(SYSTEMS)]
    assert rows[["split", "machine", "backend"]].to_numpy().tolist() == [
        ["dev", machine, system] for system in SYSTEMS for machine in ("fan", "pump")
    ]
    evaluation = {each.system: each for each in rank_systems(factory / "files").evaluations}
    for row in rows.itertuples():
        metrics = {each.machine: each.metrics for each in evaluation[row.backend].machines}
        for quantity in ("auc_source", "auc_target", "pauc"):
            expected = metrics[row.machine][quantity]
            assert getattr(row, quantity) == pytest.approx(expected, abs=1e-8)


def test_all_else_is_as_without_them(studies):
    plain, both = studies["plain"], studies["both"]
    assert set(plain.baselines["backend"]) == set(OWN)
    own = both.baselines[both.baselines["backend"].isin(OWN)].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, plain.baselines)
    pd.testing.assert_frame_equal(both.grid, plain.grid)
    assert both.selection == plain.selection
    assert both.stats == plain.stats
    assert "baselines" not in plain.provenance
    [noted] = both.provenance["baselines"]
    assert (noted["path"], noted["systems"]) == ("b.parquet", SYSTEMS)


def test_the_report_names_them_and_says_that_they_are_no_scorers_of_the_embeddings(studies):
    page = (studies["both"].folder / "report.html").read_text("utf-8")
    assert "simple autoencoder *" in page
    assert "selective Mahalanobis autoencoder, as published *" in page
    assert "took part in no choice" in page
    plain = (studies["plain"].folder / "report.html").read_text("utf-8")
    assert "autoencoder" not in plain
    assert "Other scorers on the same embeddings</h2>" in plain


def refusal(result):
    assert isinstance(result.exception, DacoError), result.output
    return str(result.exception)


def test_a_clip_without_a_score_is_refused(factory, trained, tmp_path):
    rows = read_score_table(factory / "b.parquet").rows
    rows.iloc[2:].to_parquet(tmp_path / "cut.parquet")
    said = refusal(study_of(factory, tmp_path / "run", "--baselines", tmp_path / "cut.parquet"))
    assert "no score by ae-mse of 1 test clip of the dev machine fan" in said


def test_a_machine_without_scores_is_refused(factory, trained, tmp_path):
    rows = read_score_table(factory / "b.parquet").rows
    rows[rows["machine"] == "fan"].to_parquet(tmp_path / "fan.parquet")
    said = refusal(study_of(factory, tmp_path / "run", "--baselines", tmp_path / "fan.parquet"))
    assert "no score by ae-mse of 1 dev machine out of 2 (pump)" in said


def test_scores_of_other_machines_are_refused(factory, trained, tmp_path):
    rows = read_score_table(factory / "b.parquet").rows
    rows.assign(machine="saw" + rows["machine"]).to_parquet(tmp_path / "saw.parquet")
    said = refusal(study_of(factory, tmp_path / "run", "--baselines", tmp_path / "saw.parquet"))
    assert "not one score is of a machine of this study" in said


def test_the_same_scores_twice_are_refused(factory, trained, tmp_path):
    twice = ["--baselines", factory / "b.parquet"] * 2
    assert "Give each score once" in refusal(study_of(factory, tmp_path / "run", *twice))


def test_a_systems_name_is_its_own(factory, trained, tmp_path):
    rows = read_score_table(factory / "b.parquet").rows
    rows.assign(system=rows["system"].replace("ae-mse", "knn1")).to_parquet(tmp_path / "x.parquet")
    said = refusal(study_of(factory, tmp_path / "run", "--baselines", tmp_path / "x.parquet"))
    assert "a system is called 'knn1'" in said


def test_clips_are_found_by_name_wherever_they_lie_and_in_whatever_format(
    factory, trained, tmp_path
):
    rows = read_score_table(factory / "b.parquet").rows
    moved = rows["path"].str.replace(".wav", ".flac").str.replace("/test/", "/x/y/")
    rows.assign(path=moved).sample(frac=1, random_state=0).to_parquet(tmp_path / "m.parquet")
    found = study_of(
        factory, tmp_path / "run", "--baselines", tmp_path / "m.parquet", "--no-report"
    )
    assert found.exit_code == 0, found.output
    table = StudyResult.read(tmp_path / "run").baselines
    assert set(table["backend"]) == {*OWN, *SYSTEMS}


def test_labels_are_the_studys_own(factory, trained, tmp_path):
    rows = read_score_table(factory / "b.parquet").rows
    rows.assign(label=1 - rows["label"], domain=None).to_parquet(tmp_path / "wrong.parquet")
    tables = []
    for name, file in (("right", factory / "b.parquet"), ("wrong", tmp_path / "wrong.parquet")):
        study_of(factory, tmp_path / name, "--baselines", file, "--no-report")
        tables.append(StudyResult.read(tmp_path / name).baselines)
    pd.testing.assert_frame_equal(*tables)


def test_an_embedding_table_is_no_table_of_scores(factory, tmp_path):
    said = refusal(study_of(factory, tmp_path / "run", "--baselines", factory / "dev.parquet"))
    assert "is no table of scores: it has no column 'system', 'score'" in said
    assert len(EmbeddingTable.read(factory / "dev.parquet")) == 56
