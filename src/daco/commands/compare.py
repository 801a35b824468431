"""``daco compare``: finished studies side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from daco.commands.console import Output, new_table, print_json
from daco.commands.options import AsJson, argument, option
from daco.errors import InputError

if TYPE_CHECKING:
    from daco.experiments.compare import Comparison

RUNS_ABREAST = 4
"""Runs whose columns fit 80 characters beside the rules; more are shown below each other."""

Rows = list[list[str]]
_CORRELATIONS = "Rank correlation with the evaluation score"


def compare(
    runs: Annotated[list[Path], argument("Compare these folders of finished studies.")],
    name: Annotated[
        list[str] | None, option("Name a run, once per run. The default is the folder's name.")
    ] = None,
    out: Annotated[
        Path | None, option("Write the tables to this folder as CSV, Markdown, LaTeX and JSON.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare studies of different networks, readouts or years, each on its own machines.

    daco shows the score of every rule in each run, how well the dev score and the criterion
    predict it, and the differences between the choice and the others.
    """
    from daco.experiments.compare import compare_runs
    from daco.experiments.result import StudyResult

    titles = _titles(runs, name)
    comparison = compare_runs(
        {title: StudyResult.read(run) for title, run in zip(titles, runs, strict=True)}
    )
    if out is not None:
        comparison.write(out)
    if as_json:
        print_json(comparison.to_dict())
        return
    show_comparison(Output(), comparison)
    if out is not None:
        Output().write(f"The tables are in {out}.", wrap=False)


def _titles(runs: Sequence[Path], names: list[str] | None) -> list[str]:
    if names and len(names) != len(runs):
        raise InputError(
            f"There are {len(runs)} runs but {len(names)} names. Give --name once per run, in "
            "their order, or not at all."
        )
    titles = names or [run.resolve().name for run in runs]
    twice = [title for title, count in Counter(titles).items() if count > 1]
    if twice:
        raise InputError(
            f"Two runs are called {twice[0]!r}. Tell them apart with --name, once per run in "
            "their order."
        )
    return titles


def show_comparison(console: Output, comparison: Comparison) -> None:
    """Print the tables, none of them wider than 80 characters."""
    for title, headings, left, rows in _tables(comparison):
        if title:
            console.print(f"[bold]{title}[/bold]")
        table = new_table([], box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        for position, heading in enumerate(headings):
            number = position >= left
            table.add_column(
                escape(heading),
                justify="right" if number else "left",
                overflow="fold" if position == 0 or number else "ellipsis",  # names of runs fold
            )
        for row in rows:
            table.add_row(*row)
        console.print(table)
        if title == _CORRELATIONS:
            note = "p: two-sided, by permuted family means. partial: given strength and family."
            console.print(note)
        console.print()
    console.notes(comparison.notes)


def _tables(comparison: Comparison) -> Iterator[tuple[str, list[str], int, Rows]]:
    """Title, headings, number of text columns and rows; no title where a table is continued."""
    from daco.experiments.analysis import plain_rows
    from daco.experiments.compare import interval_text
    from daco.experiments.rules import VETOES
    from daco.experiments.tables import format_cell

    names = [str(name) for name in comparison.selection.columns[1:]]
    title = "Evaluation score (%) of what each rule selects"
    for start in range(0, len(names), RUNS_ABREAST):
        shown = names[start : start + RUNS_ABREAST]
        yield title, ["", *shown], 1, comparison.selection[["rule", *shown]].to_numpy().tolist()
        title = ""

    known = set(comparison.rules["rule"])
    rules = ["dev score", *(rule for rule in VETOES.values() if rule in known), "oracle"]
    picks = {(row["run"], row["rule"]): row["config"] for row in plain_rows(comparison.rules)}
    rows = [
        [escape(name) if rule == rules[0] else "", rule, picks.get((name, rule)) or "–"]
        for name in names
        for rule in rules
    ]
    yield "The selected configurations", ["", "rule", "configuration"], 3, rows

    rows = [
        [
            escape(row["run"]),
            row["signal"],
            format_cell(row["rho"], "+.2f"),
            interval_text(row["low"], row["high"]),
            format_cell(row["p_permutation"], "p"),
            format_cell(row["partial_rho"], "+.2f"),
            f"{row['n_configs']} in {row['n_families']}",
        ]
        for row in plain_rows(comparison.correlations)
    ]
    headings = ["", "signal", "ρ", "over families", "p", "partial ρ", "grid"]
    yield _CORRELATIONS, headings, 2, rows

    rows = [
        [
            escape(row["run"]),
            row["against"],
            format_cell(row["delta"], "+.2f"),
            interval_text(row["low"], row["high"]),
            interval_text(row["loo_low"], row["loo_high"]),
        ]
        for row in plain_rows(comparison.deltas)
    ]
    headings = ["", "minus", "difference", "95 % over machines", "without one machine"]
    if rows:
        yield "Choice minus others, in points", headings, 2, rows

    rows = [
        [
            row["rule"] + (" (in hindsight)" if row["in_hindsight"] else ""),
            format_cell(row["eval_omega"]),
            str(row["n_runs"]),
        ]
        for row in plain_rows(comparison.means)
    ]
    if len(names) > 1 and rows:
        yield "Mean evaluation score over the runs", ["", "mean", "runs"], 1, rows
