"""``daco compare``: finished studies side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from daco.commands.output import Output
from daco.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from daco.experiments.comparison import Comparison

RUNS_ABREAST = 4
"""Runs whose columns fit 80 characters beside the rules; more are shown below each other."""


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished studies.")],
    name: Annotated[
        list[str] | None,
        typer.Option(help="What to call a run; once per run. Default: the folders' names."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tables: CSV, Markdown, LaTeX and JSON.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare studies: other backbones, readouts or years, each on its own machines.

    Shows what every rule scores in each run, how well dev score and criterion predict it, and
    the differences between the guarded pick and the others.
    """
    from daco.experiments.comparison import compare_runs
    from daco.experiments.result import StudyResult

    titles = _titles(runs, name)
    found = compare_runs(
        {title: StudyResult.read(run) for title, run in zip(titles, runs, strict=True)}
    )
    if out is not None:
        found.write(out)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
        return
    show_comparison(Output(), found)
    if out is not None:
        Output().print(f"Tables in {out}.", highlight=False, markup=False, soft_wrap=True)


def _titles(runs: Sequence[Path], names: list[str] | None) -> list[str]:
    if names and len(names) != len(runs):
        raise InputError(
            f"There are {len(runs)} runs and {len(names)} names. Give --name once per run, in "
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


def show_comparison(console: Console, found: Comparison) -> None:
    """Print the tables, none of them wider than 80 characters."""
    names = [str(name) for name in found.selection.columns[1:]]
    parts = [("Evaluation score (%) of what each rule selects", _selection_tables(found, names))]
    parts.append(("What was selected", [_picks(found, names)]))
    parts.append(("Rank correlation with the evaluation score", [_correlations(found)]))
    if len(found.deltas):
        parts.append(("Guarded pick minus others, in points", [_deltas(found)]))
    if len(names) > 1 and len(found.means):
        parts.append(("Mean evaluation score over the runs", [_means(found)]))
    for title, tables in parts:
        console.print(f"[bold]{title}[/bold]", highlight=False)
        for table in tables:
            console.print(table)
            console.print()
    for note in found.notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}", highlight=False)


def _selection_tables(found: Comparison, names: Sequence[str]) -> list[Table]:
    tables = []
    for start in range(0, len(names), RUNS_ABREAST):
        shown = names[start : start + RUNS_ABREAST]
        tables.append(_table(["", *shown]))
        for row in _records(found.selection):
            tables[-1].add_row(row["rule"], *(row[name] for name in shown))
    return tables


def _picks(found: Comparison, names: Sequence[str]) -> Table:
    from daco.experiments.decision import LABEL_FREE

    rules = ["dev score", "guarded criterion", "oracle"]
    if LABEL_FREE in set(found.rules["rule"]):
        rules.insert(2, LABEL_FREE)
    picks = found.rules.dropna(subset=["config"])
    table = _table(["", "rule", "configuration"], left=3)
    for name in names:
        mine = picks[picks["run"] == name].set_index("rule")["config"]
        for rule in rules:
            table.add_row(escape(name) if rule == rules[0] else "", rule, mine.get(rule, "–"))
    return table


def _correlations(found: Comparison) -> Table:
    from daco.experiments.comparison import interval_text
    from daco.experiments.tables import written

    table = _table(["", "signal", "ρ", "over families", "p", "partial ρ", "grid"], left=2)
    for row in _records(found.correlations):
        table.add_row(
            escape(row["run"]),
            row["signal"],
            written(row["rho"], "+.2f"),
            interval_text(row["low"], row["high"]),
            written(row["p_permutation"], "p"),
            written(row["partial_rho"], "+.2f"),
            f"{row['n_configs']} in {row['n_families']}",
        )
    table.caption = "p: family means permuted, two-sided; partial: given strength and family"
    table.caption_justify = "left"
    return table


def _deltas(found: Comparison) -> Table:
    from daco.experiments.comparison import interval_text
    from daco.experiments.tables import written

    table = _table(["", "minus", "difference", "95 % over machines", "without one machine"], left=2)
    for row in _records(found.deltas):
        table.add_row(
            escape(row["run"]),
            row["against"],
            written(row["delta"], "+.2f"),
            interval_text(row["low"], row["high"]),
            interval_text(row["loo_low"], row["loo_high"]),
        )
    return table


def _means(found: Comparison) -> Table:
    from daco.experiments.tables import written

    table = _table(["", "mean", "runs"])
    for row in _records(found.means):
        hindsight = " (in hindsight)" if row["in_hindsight"] else ""
        table.add_row(row["rule"] + hindsight, written(row["eval_omega"]), str(row["n_runs"]))
    return table


def _table(headings: Sequence[str], left: int = 1) -> Table:
    """A plain table whose first `left` columns are texts and the others numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for position, heading in enumerate(headings):
        number = position >= left
        fold = position == 0 or number  # names of runs; signals, rules and configurations are not
        table.add_column(
            escape(heading),
            justify="right" if number else "left",
            overflow="fold" if fold else "ellipsis",
        )
    return table


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    from daco.experiments.aggregate import plain

    return [{str(key): plain(v) for key, v in row.items()} for row in table.to_dict("records")]
