"""``daco evaluate``: the official metrics of score files of any system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from daco.commands.console import Output, new_table, print_json
from daco.commands.options import AsJson, Truth, Year, argument, flag, option
from daco.errors import DataError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.evaluation.evaluate import Ranking
    from daco.evaluation.results import Evaluation

_OFFICIAL = {
    "auc": "AUC",
    "auc_all": "AUC\nall",
    "auc_source": "AUC\nsource",
    "auc_target": "AUC\ntarget",
    "pauc": "pAUC",
    "pauc_source": "pAUC\nsource",
    "pauc_target": "pAUC\ntarget",
    "f1_ev": "F1-EV",
    "bounded_f1_ev": "bounded\nF1-EV",
}
_DECISIONS = {
    f"{metric}_{domain}": f"{heading}\n{domain}"
    for metric, heading in (("precision", "precis."), ("recall", "recall"), ("f1", "F1"))
    for domain in ("source", "target", "all")
}
_MEANINGS = {
    2020: "The evaluator of 2020 gives no score of all machines. This is the arithmetic mean of "
    "AUC and pAUC over the ids of a machine, and then over the machines.",
    2021: "AUC and pAUC of a domain use its clips only. The score is the harmonic mean of these "
    "four over all machines and sections.",
}
_MEANING = (
    "An AUC compares one domain's normal clips with all anomalies. The score is the harmonic mean "
    "of AUC source, AUC target and pAUC over all machines"
)


def evaluate(
    scores: Annotated[
        Path,
        argument("Read the score files of this folder, or of several systems in its subfolders."),
    ],
    truth: Truth = None,
    year: Year = None,
    partial: Annotated[
        bool, flag("--partial", "Evaluate the machines that have scores and ignore the others.")
    ] = False,
    out: Annotated[Path | None, option("Write all metrics to this CSV file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the official AUC, pAUC, score and F1 of score files.

    daco matches clips by their names. It ranks several systems (SCORES/<team>/<system>) and
    compares the first with each other one on the same machines. Unlike the official evaluator, it
    ends with exit code 2 when rows or machines are wrong, missing or doubled.
    """
    from daco.evaluation.evaluate import evaluate_scores, explained, find_systems, rank_systems

    options: dict[str, Any] = {"year": year, "partial": partial}
    systems = find_systems(scores.expanduser())
    console, errors = Output(), Output(stderr=True)
    ranking = rank_systems(scores, truth, **options) if len(systems) > 1 else None
    if ranking is not None:
        results: Sequence[Evaluation] = ranking.evaluations
        document: Any = {
            "ranking": [result.to_dict() for result in results],
            "differences": [asdict(difference) for difference in ranking.differences],
            "failures": {name: list(problems) for name, problems in ranking.failures.items()},
        }
    else:
        results = [evaluate_scores(systems[0] if systems else scores, truth, **options)]
        document = results[0].to_dict()
    if out is not None:
        import pandas as pd

        from daco.experiments.study_tables import write_csv_table

        write_csv_table(pd.DataFrame([row for result in results for row in result.rows()]), out)
    if as_json:
        print_json(document)
    elif ranking is not None:
        show_ranking(console, ranking)
    else:
        _show(console, results[0])
    if out is not None and not as_json:
        console.write(f"Written: {out}", wrap=False)
    if ranking is not None and ranking.failures:
        for name, problems in ranking.failures.items():
            errors.print(Text(explained(scores / name, problems)))
        raise DataError(
            f"{len(ranking.failures)} of {len(systems)} systems could not be evaluated. The "
            "reasons are above."
        )


def _show(console: Output, result: Evaluation) -> None:
    for columns in (_OFFICIAL, _DECISIONS):
        if any(name in machine.metrics for machine in result.machines for name in columns):
            console.print(_metric_table(result, columns), "")
    machines = {each.machine for each in result.machines}
    has_sections = len(machines) < len(result.machines)
    label = "Mean of AUC and pAUC" if result.year == 2020 else "Official score"
    if result.partial:
        noun = "section" if has_sections else "machine"
        label = f"Partial score of {quantity(result.machines, noun)}, NOT COMPARABLE"
    console.write(f"{label}: {result.official_score:.2f}", style="bold")
    if result.interval is not None:
        low, high = result.interval
        console.write(f"95 % interval over {len(machines)} machines: {low:.2f} to {high:.2f}")
    usual = f"{_MEANING} and sections." if has_sections else f"{_MEANING}."
    console.write(f"In percent. {_MEANINGS.get(result.year or 0, usual)}")
    notes = list(result.notes)
    if any(machine.metrics["bounded_f1_ev"] == 0 for machine in result.machines):
        notes.append("Bounded F1-EV is 0 where the best F1 makes nearly every clip anomalous.")
    if result.missing:
        notes.insert(0, f"There are no scores for {', '.join(result.missing)}.")
    for note in notes:
        console.write(f"- {note}")


def _metric_table(result: Evaluation, columns: dict[str, str]) -> Table:
    from daco.evaluation.results import machine_values
    from daco.evaluation.scorefiles import machine_title

    known = {name for each in result.machines for name in each.metrics}
    columns = {name: heading for name, heading in columns.items() if name in known}
    table = new_table(["machine"], list(columns.values()))
    for machine in dict.fromkeys(each.machine for each in result.machines):
        mine = [each for each in result.machines if each.machine == machine]
        for each in mine:
            alone = machine_title(machine, each.section)
            name = alone if len(mine) == 1 else f"{machine} {each.section}"
            table.add_row(Text(name), *_percents(each.metrics, columns))
        if len(mine) > 1:
            names = [name for name in columns if all(name in each.metrics for each in mine)]
            means = dict(zip(names, machine_values(mine, result.year, names)[0], strict=True))
            table.add_row(Text(f"{machine} mean"), *_percents(means, columns), end_section=True)
    table.add_section()
    table.add_row("arithmetic mean", *_percents(result.arithmetic_mean, columns))
    table.add_row("harmonic mean", *_percents(result.harmonic_mean, columns))
    return table


def show_ranking(console: Output, ranking: Ranking) -> None:
    """Print several systems, the best first, and its differences to the others."""
    of_2020 = any(result.year == 2020 for result in ranking.evaluations)
    table = new_table([], [""])
    table.add_column("system", overflow="fold")
    names = dict.fromkeys(n for each in ranking.evaluations for n in each.machines[0].official)
    has_domains = not names or len(names) > 2
    names |= dict.fromkeys(f"f1_{d}" for d in (("source", "target") if has_domains else ("all",)))
    columns = {name: (_OFFICIAL | _DECISIONS)[name] for name in names}
    for heading in ("official", *columns.values()):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, result in enumerate(ranking.evaluations, 1):
        table.add_row(
            "-" if result.partial else str(place),
            Text(f"{result.system} (partial)" if result.partial else result.system),
            f"{result.official_score:.2f}",
            *_percents(result.arithmetic_mean if of_2020 else result.harmonic_mean, columns),
        )
    console.print(table)
    console.write(
        f"In percent. Columns are {'arithmetic' if of_2020 else 'harmonic'} means over the "
        "machines. Partial systems lack machines, so their scores are not comparable."
    )
    if any(result.interval for result in ranking.evaluations):
        _show_differences(console, ranking)
    for note in dict.fromkeys(note for result in ranking.evaluations for note in result.notes):
        console.write(f"- {note}")


def _show_differences(console: Output, ranking: Ranking) -> None:
    from daco.evaluation.intervals import too_few_machines
    from daco.experiments.tables import format_cell

    headings = ["95 % of its\nofficial score", "first\nminus it", "95 % of the\ndifference", "p"]
    table = new_table(["system"], headings)
    differences = {each.second: each for each in ranking.differences}
    for result in ranking.evaluations:
        cells = [Text(result.system), _ends(result.interval)]
        if (difference := differences.get(result.system)) is not None:
            cells += [Text(f"{difference.delta:+.2f}"), _ends(difference.interval)]
            cells.append(Text(format_cell(difference.p_value, "p")))
        table.add_row(*cells)
    console.print("", table)
    texts = ["The 95 % intervals are by a jackknife over machines with Student's t."]
    if differences:
        texts.append(
            "p is for one comparison, two-sided: the two systems exchange their results on each "
            "machine."
        )
        texts.append(too_few_machines(ranking.differences[0].n_machines) or "")
    console.write(" ".join(filter(None, texts)))


def _ends(interval: tuple[float, float] | None) -> Text:
    # Text, because the square brackets of an interval are no markup.
    return Text("-" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]")


def _percents(metrics: Mapping[str, float], columns: Mapping[str, str]) -> list[str]:
    values = (metrics.get(column) for column in columns)
    return ["-" if value is None else f"{value:.2f}" for value in values]
