"""``daco study`` as a user runs it."""

from __future__ import annotations

import signal

import pytest
from command_line import refused, run, signalled
from synthetic_machines import small_table

from daco.experiments.result import StudyResult

QUICK = ("--workers", "1", "--no-report")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    small_table("fan").write(folder / "dev.parquet")
    small_table("bearing").write(folder / "eval.parquet")
    return folder


def arguments(tables, out, *more, grid="9"):
    both = ("--dev", tables / "dev.parquet", "--eval", tables / "eval.parquet")
    return ("study", *both, "--out", out, "--grid", grid, "--splits", "5", *more)


@pytest.fixture(scope="module")
def finished(tables, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    options = ("--workers", "1", "--export", out.parent / "figures")
    return out, run(*arguments(tables, out, *options))


def test_it_prints_rules_side_by_side_then_the_choice_and_cautions(finished):
    out, result = finished
    lines = result.stdout.splitlines()
    choice = StudyResult.read(out).run["choice"]
    assert max(map(len, lines[:-2])) <= 80
    rules = {line.split()[0] for line in lines if line}
    assert {"guarded", "label-free", "paper", "fixed", "blend", "oracle"} <= rules
    text = " ".join(result.stdout.split())
    assert "over machines (1 dev and 1 eval)" in text
    assert "1 machine is too few to tell a difference" in text
    assert f"{choice['config']} was chosen by the rule guarded among 9 configurations" in text
    assert text.index("oracle") < text.index("was chosen by") < text.index(choice["reason"])
    assert lines[-2] == f"report: {out / 'report.html'}"


def test_it_leaves_a_run_with_a_report_and_what_was_exported(finished):
    out, _ = finished
    result = StudyResult.read(out)
    assert {"sel-maha", "gmm2", "conf-oracle-m30-k1"} <= set(result.compared)
    assert (out / "report.html").stat().st_size > 10_000
    assert list((out.parent / "figures").rglob("*.svg"))


def test_a_killed_study_goes_on(tmp_path):
    """kill -9 in the middle; the same command finishes, and only the machine under way is lost."""
    small_table(*(f"m{i}" for i in range(5))).write(tmp_path / "dev.parquet")
    command = ["study", "--dev", tmp_path / "dev.parquet", "--out", tmp_path / "run"]
    command += ["--grid", "raw-k1,conf-soft-m0-k1", "--splits", "5", *QUICK]
    signalled(signal.SIGKILL, ".json", 4, *command).communicate()
    parts = tmp_path / "run" / "parts"
    assert len(list(parts.glob("*.json"))) == 3
    assert not (tmp_path / "run" / "run.json").exists()
    run(*command)
    assert len(StudyResult.read(tmp_path / "run").run["machines"]) == 5
    assert not parts.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rule", "both"], "guarded"),
        (["--system", "mine"], "NAME=TABLE"),
    ],
)
def test_mistakes_end_in_one_sentence(tables, tmp_path, options, words):
    given = arguments(tables, tmp_path / "run", *QUICK)
    assert words in str(refused(*given, *options))
