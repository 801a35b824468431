"""``daco study`` as a user runs it, on the real machines' embeddings."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from command_line import process, refused, run, said, signalled
from real_tables import real_table
from synthetic_machines import synthetic_machine, synthetic_table

from daco import EmbeddingTable
from daco.evaluation.evaluate import evaluate_scores
from daco.experiments.result import StudyResult


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    real_table("fan").write(folder / "dev.parquet")
    real_table("bearing").write(folder / "eval.parquet")
    return folder


@pytest.fixture(scope="module")
def finished(tables, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    result = run(
        *("study", "--dev", tables / "dev.parquet", "--eval", tables / "eval.parquet"),
        *("--out", out, "--grid", "9", "--workers", "2", "--splits", "10"),
        *("--scores", "chosen", "--scores", "raw-k1", "--scores", "blend"),
    )
    return out, result


def test_it_prints_the_choice_and_where_the_report_lies(finished):
    out, result = finished
    chosen = StudyResult.read(out).selection["chosen"]["config"]
    assert result.stdout.startswith(chosen)
    assert f"report: {out / 'report.html'}" in result.stdout
    assert (out / "report.html").stat().st_size > 10_000
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    text = " ".join(result.stdout.split())
    assert "on 1 development machine and 1 evaluation machine." in text
    resamples = StudyResult.read(out).selection["resamples"]
    assert f"{resamples['agreement']:.0%} of {resamples['n']} resamples of splits" in text


def test_a_choice_that_the_label_free_veto_cuts_is_warned_of_and_both_vetoes_keep_it_out(
    tables, tmp_path
):
    """The bearing's labels pass what detects nothing; the roles of the machines are swapped."""
    options = ("--dev", tables / "eval.parquet", "--eval", tables / "dev.parquet")
    options += ("--out", tmp_path / "run", "--splits", "10", "--workers", "1", "--no-report")
    first = said("study", *options, "--veto", "paper")
    assert first.startswith("ldn-diff-K16 was chosen by paper's choice")
    assert "warning: ldn-diff-K16 is excluded by the label-free veto" in first
    assert (
        "The dev-score veto excludes raw-k4, conf-soft-m100-k4, conf-soft-m300-k4 and 3 more"
        in first
    )
    assert "The label-free veto (embedding-space pseudo-anomalies) excludes ldn-diff-K16" in first
    second = said("study", *options)
    assert "was chosen by criterion, both vetoes" in second
    assert not second.startswith("ldn-diff-K16")
    assert "is excluded by" not in second


def test_score_files_evaluate_to_the_same_metrics(finished):
    out, _ = finished
    folder = out / "scores" / "raw-k1"
    assert sorted(path.name for path in folder.iterdir()) == [
        "anomaly_score_bearing_section_00_test.csv",
        "decision_result_bearing_section_00_test.csv",
    ]
    assert len(list((out / "scores_dev" / "raw-k1").iterdir())) == 2
    evaluation = evaluate_scores(folder)
    per_machine = StudyResult.read(out).per_machine
    row = per_machine.query("machine == 'bearing' and config == 'raw-k1'").iloc[0]
    found = evaluation.to_dict()["machines"][0]
    for quantity in ("auc_source", "auc_target", "pauc"):
        assert found[quantity] == pytest.approx(row[quantity], abs=1e-8)


def test_the_blend_has_score_files_though_the_grid_does_not_have_it(finished):
    out, _ = finished
    found = evaluate_scores(out / "scores" / "blend").to_dict()["machines"][0]
    row = (
        StudyResult.read(out).baselines.query("machine == 'bearing' and backend == 'blend'").iloc[0]
    )
    for quantity in ("auc_source", "auc_target", "pauc"):
        assert found[quantity] == pytest.approx(row[quantity], abs=1e-8)


def test_the_scores_of_another_system_are_candidates(finished, tables, tmp_path):
    """Those of the study's own raw-k1, in the challenge's files with the normals' beside them."""
    out, _ = finished
    folder = tmp_path / "mine"
    for role, kind in (("dev", "scores_dev"), ("eval", "scores")):
        shutil.copytree(out / kind / "raw-k1", folder, dirs_exist_ok=True)
        table = EmbeddingTable.read(tables / f"{role}.parquet")
        normals = [Path(path).name for path in table.select(split="train").columns["path"]]
        [machine] = [m for m in StudyResult.read(out).machine_scores() if m.split == role]
        own = zip(normals, machine.own_of("raw-k1"), strict=True)
        name = f"anomaly_score_{machine.machine}_section_00_train.csv"
        (folder / name).write_text("".join(f"{clip},{float(score)!r}\n" for clip, score in own))
    text = said(
        *("study", "--dev", tables / "dev.parquet", "--eval", tables / "eval.parquet"),
        *("--out", tmp_path / "run", "--grid", "9", "--workers", "1", "--splits", "10"),
        *("--system", f"mine={folder}", "--no-report"),
    )
    assert "among 16 configurations" in text
    assert "does not judge tables of scores" in text
    scores = StudyResult.read(tmp_path / "run").grid.set_index("config")["eval_omega"]
    assert scores["ext-mine"] == pytest.approx(scores["raw-k1"], abs=1e-6)


def test_a_killed_study_goes_on(tmp_path):
    """kill -9 in the middle; the same command finishes, with what was finished kept."""
    machines = [synthetic_machine(f"m{i}", i, dim=256) for i in range(12)]
    synthetic_table(machines).write(tmp_path / "dev.parquet")
    command = ["study", "--dev", tmp_path / "dev.parquet", "--out", tmp_path / "run"]
    command += ["--splits", "10", "--workers", "1", "--no-report"]
    signalled(signal.SIGKILL, ".npz", 4, *command).communicate()
    filed = tmp_path / "run" / "machines"
    kept = {path: path.stat().st_mtime_ns for path in filed.glob("*.npz")}
    assert len(kept) == 3
    assert not (tmp_path / "run" / "run.json").exists()
    result = process(*command)
    assert result.returncode == 0, result.stderr
    assert len(list(filed.glob("*.npz"))) == 12
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_several_readouts_are_studied_and_compared(tmp_path):
    for role, machine in (("dev", "fan"), ("eval", "bearing")):
        full = real_table(machine)
        both = {"mean": full.matrix(), "half": full.matrix()[:, ::2]}
        EmbeddingTable(full.columns, both, full.metadata).write(tmp_path / f"{role}.parquet")
    result = run(
        *("study", "--dev", tmp_path / "dev.parquet", "--eval", tmp_path / "eval.parquet"),
        *("--out", tmp_path / "run", "--grid", "9", "--no-report", "--splits", "10"),
        *("--workers", "1", "--readout", "mean", "--readout", "half"),
    )
    for name in ("mean", "half"):
        assert StudyResult.read(tmp_path / "run" / name).provenance["readout"] == name
        assert name in result.stdout
    assert (tmp_path / "run" / "comparison" / "compare.json").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--grid", "52"], "no grid '52'"),
        (["--scores", "raw-k9"], "not in the grid"),
        (["--scores", "choosen"], "Unknown configuration 'choosen'"),
        (["--system", "mine"], "--system takes NAME=PATH"),
        (["--system", "mine=nowhere.csv"], "nowhere.csv"),
        (["--grid", "raw-k1,ext-nobody"], "no scorer 'nobody'"),
        (["--truth", "nowhere"], "nowhere"),
        (["--readout", "nothing", "--readout", "embedding"], "no readout 'nothing'"),
    ],
)
def test_mistakes_end_in_one_sentence(tables, tmp_path, options, words):
    arguments = ["study", "--dev", tables / "dev.parquet", "--eval", tables / "eval.parquet"]
    arguments += ["--out", tmp_path / "run", "--no-report", "--workers", "1", "--grid", "9"]
    assert words in str(refused(*arguments, *options))
