"""``daco evaluate``: what score files of any system are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from daco.commands.output import Output

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from daco.evaluation.evaluate import Evaluation, Ranking

_OFFICIAL = {
    "auc_all": "AUC\nall",
    "auc_source": "AUC\nsource",
    "auc_target": "AUC\ntarget",
    "pauc": "pAUC",
    "f1_ev": "F1-EV",
    "bounded_f1_ev": "bounded\nF1-EV",
}
_DECISIONS = {
    f"{metric}_{domain}": f"{heading}\n{domain}"
    for metric, heading in (("precision", "precis."), ("recall", "recall"), ("f1", "F1"))
    for domain in ("source", "target")
}


def evaluate(
    scores: Annotated[
        Path, typer.Argument(help="Folder of score files, or of several systems' folders.")
    ],
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Your checkout of the official evaluator. Not needed where names say the label."
        ),
    ] = None,
    year: Annotated[
        int | None, typer.Option(help="Year of the data set, such as 2023.", min=2000)
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Evaluate what is there; machines may be missing.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the metrics of all machines here (.csv).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Official AUC, pAUC, official score and F1 of score files, matched by the clips' names.

    Several systems (SCORES/<team>/<system>) are ranked, and the first is compared with each
    other one on the same machines. Exit code 2 when rows or machines are
    wrong, missing or doubled: the official evaluator would not say so.
    """
    import json

    from daco.errors import DataError
    from daco.evaluation.evaluate import evaluate_scores, explained, find_systems, rank_systems

    options: dict[str, Any] = {"year": year, "partial": partial}
    systems = find_systems(scores.expanduser())
    console, errors = Output(), Output(stderr=True)
    if len(systems) > 1:
        ranking = rank_systems(scores, truth, **options)
        results: Sequence[Evaluation] = ranking.evaluations
        document: Any = {
            "ranking": [result.to_dict() for result in results],
            "differences": [asdict(difference) for difference in ranking.differences],
            "failures": {name: list(problems) for name, problems in ranking.failures.items()},
        }
    else:
        ranking = None
        results = [evaluate_scores(systems[0] if systems else scores, truth, **options)]
        document = results[0].to_dict()
    if out is not None:
        _write(results, out)
    if as_json:
        typer.echo(json.dumps(document, indent=1, ensure_ascii=False))
    elif ranking is not None:
        _show_ranking(console, ranking)
    else:
        _show(console, results[0])
    if out is not None and not as_json:
        console.print(f"Written: {out}", markup=False, highlight=False, soft_wrap=True)
    if ranking is not None and ranking.failures:
        for name, problems in ranking.failures.items():
            errors.print(explained(scores / name, problems), markup=False, highlight=False)
        raise DataError(
            f"{len(ranking.failures)} of {len(systems)} systems could not be evaluated; the "
            "reasons are above."
        )


def _show(console: Console, result: Evaluation) -> None:
    from rich.text import Text

    from daco.text import quantity

    tables = [_OFFICIAL]
    if any("f1_source" in machine.metrics for machine in result.machines):
        tables.append(_DECISIONS)
    for columns in tables:
        console.print(_rendered(result, columns))
        console.print()
    label = "Official score"
    if result.partial:
        label = f"Partial score of {quantity(result.machines, 'machine')}, NOT COMPARABLE"
    console.print(Text(f"{label}: {result.official_score:.2f}", style="bold"))
    if result.interval is not None:
        low, high = result.interval
        console.print(
            f"95 % interval over {len(result.machines)} machines: {low:.2f} to {high:.2f}",
            highlight=False,
        )
    console.print(
        "In percent. An AUC sets one domain's normal clips against all anomalies; the score is "
        "the harmonic mean of AUC source, AUC target and pAUC over all machines.",
        highlight=False,
    )
    _show_notes(console, result)


def _rendered(result: Evaluation, columns: dict[str, str]) -> Table:
    from rich.text import Text

    from daco.evaluation.scorefiles import machine_title

    table = _empty_table()
    table.add_column("machine", overflow="fold")
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    rows = [(machine_title(each.machine, each.section), each.metrics) for each in result.machines]
    for name, metrics in rows:
        table.add_row(Text(name), *(_percent(metrics.get(column)) for column in columns))
    table.add_section()
    for name, metrics in (
        ("arithmetic mean", result.arithmetic_mean),
        ("harmonic mean", result.harmonic_mean),
    ):
        table.add_row(name, *(_percent(metrics.get(column)) for column in columns))
    return table


def _show_ranking(console: Console, ranking: Ranking) -> None:
    from rich.text import Text

    table = _empty_table()
    table.add_column("", justify="right")
    table.add_column("system", overflow="fold")
    for heading in ("official", "AUC\nsource", "AUC\ntarget", "pAUC", "F1\nsource", "F1\ntarget"):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, result in enumerate(ranking.evaluations, 1):
        means = result.harmonic_mean
        table.add_row(
            "-" if result.partial else str(place),
            Text(f"{result.system} (partial)" if result.partial else result.system),
            _percent(result.official_score),
            *(
                _percent(means.get(column))
                for column in ("auc_source", "auc_target", "pauc", "f1_source", "f1_target")
            ),
        )
    console.print(table)
    console.print(
        "In percent; columns are harmonic means over the machines. Partial systems lack "
        "machines: their score is of another task.",
        highlight=False,
    )
    if any(result.interval for result in ranking.evaluations):
        _show_differences(console, ranking)
    for note in dict.fromkeys(note for result in ranking.evaluations for note in result.notes):
        console.print(Text(f"- {note}"))


def _show_differences(console: Console, ranking: Ranking) -> None:
    from rich.text import Text

    from daco.evaluation.statistics import too_few_machines
    from daco.experiments.tables import written

    table = _empty_table()
    table.add_column("system", overflow="fold")
    for heading in (
        "95 % of its\nofficial score",
        "first\nminus it",
        "95 % of the\ndifference",
        "p",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    differences = {each.second: each for each in ranking.differences}
    for result in ranking.evaluations:
        found = differences.get(result.system)
        table.add_row(
            Text(result.system),
            _ends(result.interval),
            "" if found is None else f"{found.delta:+.2f}",
            "" if found is None else _ends(found.interval),
            "" if found is None else written(found.p_value, "p"),
        )
    console.print()
    console.print(table)
    told = "95 % intervals by a jackknife over machines with Student's t."
    if differences:
        told += (
            " p: the two systems exchange their results on each machine; two-sided, "
            "for one comparison."
        )
        few = too_few_machines(ranking.differences[0].n_machines)
        told += f" {few}" if few else ""
    console.print(told, highlight=False)


def _ends(interval: tuple[float, float] | None) -> Text:
    from rich.text import Text

    # As Text: the square brackets of an interval are no markup.
    return Text("-" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]")


def _show_notes(console: Console, result: Evaluation) -> None:
    from rich.text import Text

    notes = list(result.notes)
    if any(machine.metrics["bounded_f1_ev"] == 0 for machine in result.machines):
        notes.append("Bounded F1-EV is 0 where F1 is best when nearly every clip is an alarm.")
    if result.missing:
        notes.insert(0, f"No scores for {', '.join(result.missing)}.")
    for note in notes:
        console.print(Text(f"- {note}"))


def _write(results: Sequence[Evaluation], out: Path) -> None:
    import pandas as pd

    from daco.experiments.study_tables import write_csv_table

    rows = [
        {"system": result.system, **machine}
        for result in results
        for machine in result.to_dict()["machines"]
    ]
    write_csv_table(pd.DataFrame(rows), out)


def _empty_table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
