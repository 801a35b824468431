"""``daco evaluate``, ``submission``, ``freeze`` and ``verify`` as a user types them."""

from __future__ import annotations

import json
import shutil
import zipfile

import pandas as pd
import pytest
from command_line import NARROW, app
from command_line import run as command
from shared_data import shared
from small_runs import small_study
from typer.testing import CliRunner

from daco.errors import DacoError

LABEL = "Kato_Hitachi_task2_1"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments, code=0, wide=False):
    """What is printed, in a terminal of 80 columns; a mistake with its message."""
    if code == 2:
        result = CliRunner(env=NARROW).invoke(app, list(map(str, arguments)))
        assert isinstance(result.exception, DacoError)
        return f"{result.output} {result.exception}"
    output = command(*arguments, code=code).output
    assert wide or max(map(len, output.splitlines())) <= 80
    return output


def lines_of(printed):
    return [" ".join(line.split()) for line in printed.splitlines()]


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    small_study(folder)
    return folder


@pytest.fixture(scope="module")
def after(tmp_path_factory):
    folder = tmp_path_factory.mktemp("after")
    small_study(folder, labelled=True, decide=["all"])
    return folder


def submit(run_folder, out, *options, label=LABEL):
    """Extract the package of a run."""
    printed = run("submission", run_folder, "--label", label, "--out", "a.zip", *options)
    with zipfile.ZipFile("a.zip") as archive:
        archive.extractall(out)
    return lines_of(printed)


def test_released_development_scores(tmp_path):
    """The authors' files: 58.73 for raw k-NN on the development machines of 2025."""
    folder = shared("published", "daco-experiments", "release", "scores", "raw-k1", "dev")
    result = run("evaluate", folder, "--out", "metrics.csv")
    lines = lines_of(result)
    assert "fan 51.20 61.20 41.20 48.79 24.32 0.00" in lines
    assert "Official score: 58.73" in lines
    assert "95 % interval over 7 machines: 52.18 to 65.27" in lines
    assert "Written: metrics.csv" in lines
    table = pd.read_csv(tmp_path / "metrics.csv")
    assert len(table) == 7
    assert list(table.columns[:6]) == [
        *("system", "machine", "section", "clips", "auc_all", "auc_source")
    ]
    document = json.loads(run("evaluate", folder, "--json", wide=True))
    assert round(document["official_score"], 2) == 58.73


def test_from_a_study_over_a_package_to_its_evaluation(after):
    lines = submit(after / "run", "teams")
    assert lines[0].startswith(f"{LABEL}: ")
    assert "Written and checked: a.zip" in lines
    result = run("evaluate", "teams", "--truth", after / "evaluator")
    grid = pd.read_csv(after / "run/grid.csv").set_index("config")["eval_omega"]
    chosen = json.loads((after / "run/selection.json").read_text())["chosen"]["config"]
    assert f"Official score: {grid[chosen]:.2f}" in lines_of(result)
    assert sum(line.startswith("harmonic mean") for line in lines_of(result)) == 2  # and decisions


def test_several_systems_are_ranked_and_the_broken_one_is_named(after, tmp_path):
    for config in ("raw-k1", "conf-soft-m0-k1", "ratio-hard-k1"):
        label = f"{config.split('-')[0].title()}_X_task2_1"
        submit(after / "run", "teams", "--config", config, label=label)
    result = run("evaluate", "teams", "--truth", after / "evaluator")
    grid = pd.read_csv(after / "run/grid.csv").set_index("config")["eval_omega"]
    best = max(("raw-k1", "conf-soft-m0-k1", "ratio-hard-k1"), key=grid.__getitem__)
    (first,) = (line for line in lines_of(result) if line.startswith("1 task2/"))
    assert first.startswith(f"1 task2/{best.split('-')[0].title()}_X_task2_1 {grid[best]:.2f} ")

    # two machines: the interval is everything, and the smallest p-value is 2 / 4
    assert "2 machines are too few to tell a difference from chance." in " ".join(result.split())
    document = json.loads(
        run("evaluate", "teams", "--truth", after / "evaluator", "--json", wide=True)
    )
    scored = {each["system"]: each["official_score"] for each in document["ranking"]}
    for each in document["differences"]:
        assert each["delta"] == pytest.approx(scored[each["first"]] - scored[each["second"]])
        assert each["interval"][0] < each["delta"] < each["interval"][1]
        assert each["p_value"] in (0.5, 1.0)
        assert f"{each['delta']:+.2f} [{each['interval'][0]:.2f}, " in " ".join(result.split())
    assert len(document["differences"]) == 2

    broken = tmp_path / "teams/task2/Raw_X_task2_1/anomaly_score_Sander_section_00_test.csv"
    broken.write_text(broken.read_text().replace("section_00_00", "section_01_00"))
    result = run("evaluate", "teams", "--truth", after / "evaluator", code=2)
    text = " ".join(result.split())
    assert " 2 task2/" in text
    assert " 3 task2/" not in text
    assert "anomaly_score_Sander_section_00_test.csv: 24 rows with an unknown name" in text
    assert "The official evaluator matches rows by their sorted position" in text
    assert "1 of 3 systems could not be evaluated" in text


def test_missing_machines_are_an_error_and_with_partial_a_label(after, tmp_path):
    submit(after / "run", ".")
    for path in tmp_path.rglob("*_Sander_*"):
        path.unlink()
    result = run("evaluate", "task2", "--truth", after / "evaluator", code=2)
    assert "no score file for 1 machine of 2: Sander." in result
    result = run("evaluate", "task2", "--truth", after / "evaluator", "--partial")
    assert "Partial score of 1 machine, NOT COMPARABLE: " in result
    assert "Official score" not in result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "nowhere"), "cannot be read as a folder"),
        (("evaluate", "."), "There is no score file"),
        (("submission", ".", "--label", LABEL, "--out", "a.zip"), "not a finished run"),
        (("freeze", ".", "--out", "a.json"), "not a finished run"),
        (("verify", "a.json"), "does not exist"),
    ],
)
def test_mistakes_end_in_a_sentence(tmp_path, arguments, message):
    result = run(*arguments, code=2)
    assert message in " ".join(result.split())


def test_freeze_then_verify_when_the_labels_are_out(before, after, tmp_path):
    shutil.copytree(before / "run", tmp_path / "run")
    result = run("freeze", "run", "--out", "p.json", "--date", "2026-06-01")
    assert "No evaluation score was known." in result
    document = json.loads((tmp_path / "p.json").read_text())
    assert f"SHA-256 {document['sha256']}" in result

    result = run("verify", "p.json", "--run", after / "run")
    grid = pd.read_csv(after / "run/grid.csv").set_index("config")["eval_omega"]
    frozen = document["frozen"]["config"]
    assert f"frozen pick {frozen} {grid[frozen]:.2f}" in lines_of(result)
    assert "2 machines are too few to tell a difference from chance." in lines_of(result)
    assert "Nothing changed." in result
    words = json.loads(run("verify", "p.json", "--json", wide=True))
    assert words["ok"] is True

    path = tmp_path / "run/grid.csv"
    path.write_text(path.read_text().replace("1", "2", 1))
    result = run("verify", "p.json", code=1)
    assert "Changed: grid.csv, artifacts" in result
    text = (tmp_path / "p.json").read_text()
    (tmp_path / "p.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    result = run("verify", "p.json", code=1)
    assert "Changed: document." in result


def test_what_was_frozen_is_not_overwritten_and_known_scores_are_said(after, tmp_path):
    result = run("freeze", after / "run", "--out", "p.json")
    assert "Evaluation scores were known when this was frozen" in result
    result = run("verify", "p.json")
    assert "Evaluation scores were known when this was frozen." in result
    result = run("freeze", after / "run", "--out", "p.json", code=2)
    assert "already exists" in result
