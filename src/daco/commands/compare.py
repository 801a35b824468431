"""``daco compare``: finished studies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from daco.commands.console import Output, estimate_text, print_json
from daco.commands.options import AsJson, System, argument, parse_systems
from daco.errors import InputError

if TYPE_CHECKING:
    from daco.experiments.compare import Comparison

RUNS_ABREAST = 3
"""Runs whose scores and intervals fit 80 characters; more are shown below each other."""


def compare(
    runs: Annotated[list[Path], argument("Compare these finished studies.", metavar="RUNS...")],
    system: System = None,
    as_json: AsJson = False,
) -> None:
    """Compare studies of different networks, readouts or years, each on its own machines.

    Runs are named by their folders. daco shows the score of every rule in each run, how well the
    dev score and the criterion predict it, and the differences between the choice and the others.
    Intervals are over machines.
    """
    from daco.evaluation.system_scores import read_system
    from daco.experiments.compare import compare_runs
    from daco.experiments.result import StudyResult

    systems = parse_systems(system or [])
    names = [run.resolve().name for run in runs]
    titles = names if len(set(names)) == len(runs) else list(map(str, runs))
    if len({*titles, *systems}) < len(titles) + len(systems):
        raise InputError("Give every run once, and other names than theirs to systems.")
    comparison = compare_runs(
        {title: StudyResult.read(run) for title, run in zip(titles, runs, strict=True)},
        {title: read_system(path) for title, path in systems.items()},
    )
    if as_json:
        print_json(comparison.to_dict())
    else:
        _show(Output(), comparison)


def _show(console: Output, comparison: Comparison) -> None:
    document = comparison.to_dict()
    scores: dict[str, dict[str, Any]] = {}
    for row in document["rules"]:
        score = estimate_text(row["eval_score"], row["eval_low"], row["eval_high"])
        scores.setdefault(row["rule"], {"": row["rule"]})[row["run"]] = score
    title = "Evaluation score (%) of what each rule picks, 95 % over machines"
    for start in range(0, len(comparison.runs), RUNS_ABREAST):
        runs = comparison.runs[start : start + RUNS_ABREAST]
        rows = [row for row in scores.values() if any(run in row for run in runs)]
        console.table(rows, [""], runs, title=title)
        title = ""
    chosen = {"run": "", "rule": "rule", "configuration": "configuration", "stability": "resamples"}
    console.table(document["choices"], chosen, title="What was chosen")
    console.table(
        [_readable(row, row["rho"]) for row in document["transfer"]],
        {"run": "", "signal": "signal"},
        {"estimate": "ρ, 95 %", "over": "over", "p": "p, families permuted"},
        title="Rank correlation with the evaluation score",
    )
    console.table(
        [_readable(row, row["value"]) for row in document["differences"]],
        {"run": "", "other": "minus"},
        {"estimate": "difference, 95 %", "over": "over"},
        title="Choice minus others, in points",
    )
    console.notes(comparison.notes)


def _readable(row: dict[str, Any], value: float | None) -> dict[str, Any]:
    """A row with the words of its columns."""
    return row | {
        "estimate": estimate_text(value, row["low"], row["high"], "+.2f"),
        "over": "1 machine" if row["n"] == 1 else f"{row['n']} {row['over']}",
        "p": None if row.get("p") is None else f"{row['p']:.3f}",
        "other": row.get("against") or row.get("second"),
    }
