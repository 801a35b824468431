"""``daco compare``: finished studies side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape

from daco.commands.console import Output, new_table, print_json
from daco.commands.options import AsJson, argument, option, parse_systems
from daco.errors import InputError

if TYPE_CHECKING:
    from daco.experiments.compare import Comparison

RUNS_ABREAST = 3
"""Runs whose scores and intervals fit 80 characters; more are shown below each other."""

_TABLES = {  # title, then headings of the columns of text and of numbers
    "choices": (
        "What was chosen",
        {"run": "", "rule": "rule", "configuration": "configuration", "stability": "resamples"},
        {},
    ),
    "transfer": (
        "Rank correlation with the evaluation score",
        {"run": "", "signal": "signal"},
        {"rho": "ρ, 95 %", "n": "over", "p": "p, families permuted"},
    ),
    "differences": (
        "Choice minus others, in points",
        {"run": "", "against": "minus"},
        {"value": "difference, 95 %", "n": "over"},
    ),
}


def compare(
    runs: Annotated[list[Path], argument("Compare these folders of finished studies.")],
    name: Annotated[
        list[str] | None, option("Name a run, once per run. The default is the folder's name.")
    ] = None,
    system: Annotated[
        list[str] | None,
        option("Compare the scores of another system, as NAME=TABLE.", metavar="NAME=TABLE"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare studies of different networks, readouts or years, each on its own machines.

    daco shows the score of every rule in each run, how well the dev score and the criterion
    predict it, and the differences between the choice and the others. Intervals are over machines.
    """
    from daco.evaluation.system_scores import read_system
    from daco.experiments.compare import compare_runs
    from daco.experiments.result import StudyResult

    systems = parse_systems(system or [])
    titles = _titles(runs, name, systems)
    comparison = compare_runs(
        {title: StudyResult.read(run) for title, run in zip(titles, runs, strict=True)},
        {title: read_system(path) for title, path in systems.items()},
    )
    if as_json:
        print_json(comparison.to_dict())
    else:
        _show(Output(), comparison)


def _titles(runs: Sequence[Path], names: list[str] | None, systems: Iterable[str]) -> list[str]:
    if names and len(names) != len(runs):
        raise InputError(f"There are {len(runs)} runs but {len(names)} names. Name all or none.")
    titles = names or [run.resolve().name for run in runs]
    [(title, count)] = Counter([*titles, *systems]).most_common(1)
    if count > 1:
        raise InputError(
            f"Two runs are called {title!r}. Tell them apart with --name, once per run in order."
        )
    return titles


def _show(console: Output, comparison: Comparison) -> None:
    """Print the tables, none of them wider than 80 characters."""
    document = comparison.to_dict()
    scores = {
        (row["run"], row["rule"]): _estimate(row["eval_score"], row["eval_low"], row["eval_high"])
        for row in document["rules"]
    }
    title = "Evaluation score (%) of what each rule picks, 95 % over machines"
    for start in range(0, len(comparison.runs), RUNS_ABREAST):
        runs = comparison.runs[start : start + RUNS_ABREAST]
        rules = dict.fromkeys(rule for run, rule in scores if run in runs)
        rows = [[rule, *(scores.get((run, rule), "–") for run in runs)] for rule in rules]
        _print_table(console, title, [""], runs, rows)
        title = ""
    for name, (title, texts, numbers) in _TABLES.items():
        rows = [[_cell(row, key) for key in texts | numbers] for row in document[name]]
        _print_table(console, title, texts.values(), numbers.values(), rows)
    console.notes(comparison.notes)


def _print_table(
    console: Output, title: str, texts: Iterable[str], numbers: Iterable[str], rows: list[list[str]]
) -> None:
    if not rows:
        return
    if title:
        console.print(f"[bold]{title}[/bold]")
    headings = [*texts], [escape(heading) for heading in numbers]
    table = new_table(*headings, box=None, pad_edge=False, header_style="dim")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
    console.print()


def _cell(row: dict[str, Any], key: str) -> str:
    if key in ("rho", "value"):
        return _estimate(row[key], row["low"], row["high"], "+.2f")
    if key == "n":
        return "1 machine" if row["n"] == 1 else f"{row['n']} {row['over']}"
    if key == "p":
        return "–" if row["p"] is None else f"{row['p']:.3f}"
    return str(row[key] or row["second"] if key == "against" else row[key])


def _estimate(value: float | None, low: float | None, high: float | None, form: str = ".2f") -> str:
    """A value with its interval, as far as they are known."""
    if value is None:
        return "–"
    return f"{value:{form}}" + ("" if low is None else f" [{low:{form}}, {high:{form}}]")
