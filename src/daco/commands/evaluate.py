"""``daco evaluate``: the official metrics of the scores of any system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from daco.commands.console import Output, print_json
from daco.commands.options import AsJson, Truth, Year, argument, flag, option
from daco.errors import DataError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.evaluation.evaluate import Evaluation

_MEANINGS = {
    2020: "The evaluator of 2020 gives no score of all machines. This is the arithmetic mean of "
    "AUC and pAUC over the ids of a machine, and then over the machines.",
    2021: "AUC and pAUC of a domain use its clips only. The score is the harmonic mean of these "
    "four over all machines and sections.",
}
_MEANING = (
    "An AUC compares one domain's normal clips with all anomalies. The score is the harmonic mean "
    "of AUC source, AUC target and pAUC over all machines and sections."
)


def evaluate(
    scores: Annotated[Path, argument("Read this folder of score files, or of systems.")],
    truth: Truth = None,
    year: Year = None,
    partial: Annotated[bool, flag("--partial", "Ignore machines without scores.")] = False,
    out: Annotated[Path | None, option("Write all metrics to this CSV file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the official AUC, pAUC, score and F1 of score files.

    daco matches clips by their names. It ranks several systems (SCORES/<team>/<system>) and
    compares the first with each other one on the same machines. A table of scores or a run folder
    can be given, too. Unlike the official evaluator, daco ends with exit code 2 when rows or
    machines are wrong, missing or doubled.
    """
    from daco.evaluation.evaluate import EvaluationError, evaluate_scores
    from daco.files.atomic import atomic_write

    console = Output()
    result = evaluate_scores(scores, truth, year=year, partial=partial)
    if out is not None:
        with atomic_write(out) as file:
            result.machines.to_csv(file, index=False)
    if as_json:
        print_json(result.to_dict())
    else:
        if len(result.systems):
            several = len(result.systems) + len(result.failures) > 1
            (_show_ranking if several else _show_system)(console, result)
            _show_notes(console, result)
        if out is not None:
            console.write(f"Written: {out}", wrap=False)
    for name, problems in result.failures.items():
        Output(stderr=True).print(Text(str(EvaluationError(scores / name, problems))))
    if result.failures:
        raise DataError(
            f"{quantity(result.failures, 'system')} could not be evaluated. The reasons are above."
        )


def _show_system(console: Output, result: Evaluation) -> None:
    """Print the metrics of each machine of one system, and its score."""
    from daco.evaluation.metrics import rule_of
    from daco.evaluation.scorefiles import machine_title

    (system,) = result.systems.to_dict("records")
    alone = result.machines["machine"].is_unique
    rows: list[dict[Any, Any]] = [
        row | {"machine": machine_title(row["machine"], row["section"], alone)}
        for row in result.machines.to_dict("records")
    ]
    rows.append(system | {"machine": f"{rule_of(result.year).mean} mean"})
    names = [str(name) for name in result.machines.columns[4:]]
    decided = [name for name in names if name.startswith(("precision_", "recall_", "f1_"))]
    _show_metrics(console, rows, ["machine"], [name for name in names if name not in decided])
    _show_metrics(console, rows, ["machine"], decided)
    label = "Mean of AUC and pAUC" if result.year == 2020 else "Official score"
    if system["missing"]:
        noun = "machine" if system["n_machines"] == len(result.machines) else "section"
        label = f"Partial score of {quantity(len(result.machines), noun)}, NOT COMPARABLE"
    console.write(f"{label}: {system['official_score']:.2f}", style="bold")
    if system["n_machines"] > 1:
        ends = f"{system['low']:.2f} to {system['high']:.2f}"
        console.write(f"95 % interval over {system['n_machines']} machines: {ends}")


def _show_ranking(console: Output, result: Evaluation) -> None:
    """Print the systems, the best first, and its differences to the others."""
    rows = result.systems.to_dict("records")
    for place, row in enumerate(rows, 1):
        row["system"] += " (partial)" if row["missing"] else ""
        row[""] = "-" if row["missing"] else place
    names = ["official_score", "low", "high", *result.official]
    _show_metrics(console, rows, ["", "system"], names)
    f1 = [name for name in ("f1_source", "f1_target", "f1_all") if name in result.systems]
    _show_metrics(console, rows, ["", "system"], f1)
    console.write(
        "low and high: 95 % interval of the official score over machines (jackknife, Student's t). "
        "Metrics are means over machines. Partial scores are not comparable."
    )
    if len(result.differences):
        rows = result.differences.to_dict("records")
        for row in rows:
            row["p"] = f"{row['p_value']:.3f}"
        _show_metrics(console, rows, ["second"], ["delta", "low", "high", "p"])
        console.write(
            f"delta: {rows[0]['first']} minus the system, paired over machines. p is for one "
            "comparison, two-sided: the two systems exchange their results on each machine."
        )


def _show_metrics(
    console: Output,
    rows: Iterable[Mapping[Any, Any]],
    texts: Sequence[str],
    names: Sequence[str],
) -> None:
    """Print these metrics, if there are any."""
    headings = [name.replace("auc", "AUC").replace("f1", "F1").replace("_", "\n") for name in names]
    if names:
        console.table(rows, texts, dict(zip(names, headings, strict=True)))


def _show_notes(console: Output, result: Evaluation) -> None:
    from daco.evaluation.intervals import too_few_machines

    console.write(f"In percent. {_MEANINGS.get(result.year or 0, _MEANING)}")
    caution = too_few_machines(result.systems["n_machines"].max())
    rows = result.systems.to_dict("records")
    missing = [(row["system"], ", ".join(row["missing"])) for row in rows if row["missing"]]
    notes = [f"{system} has no scores for {names}." for system, names in missing]
    notes += [caution] if caution else []
    console.write(*(f"- {note}" for note in (*notes, *result.notes)))
