"""``daco study``: a grid of configurations over machines, and the report."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape
from rich.table import Table

from daco.commands import options as shared
from daco.commands.console import Output, interruptible, new_table, progress_bars
from daco.commands.options import Location, location_option, option
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult

_SETS = {"dev": "development", "eval": "evaluation"}


def study(
    dev: Annotated[Location, location_option("Use these embeddings of development machines.")],
    out: Annotated[
        Location,
        location_option("Write the results to this folder, or continue a study there."),
    ],
    eval: Annotated[
        Location | None, location_option("Use these embeddings of evaluation machines.")
    ] = None,
    truth: shared.Truth = None,
    grid: shared.Grid = "51",
    system: Annotated[
        list[str] | None,
        option(
            "Add the scores of another system, as NAME=TABLE. Repeat it for more.",
            metavar="NAME=TABLE",
        ),
    ] = None,
    faults: Annotated[
        list[Location] | None,
        location_option("Use this table of daco inject for the veto. Repeat it for more."),
    ] = None,
    rule: Annotated[
        str,
        option("Choose by this rule: guarded, label-free, paper, criterion or dev."),
    ] = "guarded",
    readout: Annotated[
        str | None,
        option("Use this readout, or several joined with +. The default is the first."),
    ] = None,
    seed: shared.CriterionSeed = 0,
    splits: shared.Splits = shared.SPLITS,
    false_alarm_rate: Annotated[
        float, option("Decide for this false-alarm rate.")
    ] = shared.FALSE_ALARM_RATE,
    workers: shared.Processes = None,
    report: Annotated[bool, option("Write the report.")] = True,
    export: Annotated[
        Path | None, option("Write figures and tables for a publication to this folder.")
    ] = None,
    engine: shared.Engine = "local",
) -> None:
    """Evaluate a grid of configurations, choose one, and report how far to trust the choice.

    The choice never uses evaluation labels; only the metrics do. By default it excludes what
    detects too little, by dev scores and, without labels, by the pseudo-anomalies that it misses.
    The report also compares the other scorers of the paper. After an interruption the same command
    continues.
    """
    from daco.experiments.study import study as run_study

    errors = Output(stderr=True)
    advice = "Finished machines are kept; the same command continues."
    with interruptible(advice), progress_bars(errors) as progress:
        result = run_study(
            dev,
            eval,
            truth=truth,
            grid=grid,
            systems=shared.parse_systems(system or []),
            faults=faults or (),
            rule=rule,
            baselines=report or export is not None,
            readout=readout,
            out=str(out),
            seed=seed,
            n_splits=splits,
            false_alarm_rate=false_alarm_rate,
            workers=workers,
            engine=engine,
            progress=progress,
        )
    written = {}
    if report:
        with errors.status("drawing the report..."):
            written["report"] = result.report()
    if export is not None:
        result.export(export)
        written["figures and tables"] = export
    show_study(Output(), result)
    for what, path in written.items():
        Output().write(f"{what}: {path}", wrap=False)


def show_study(console: Output, result: StudyResult) -> None:
    """Print what every rule picks and scores, the choice with its reason, and cautions."""
    rules = result.rules()
    console.print(_rules_table(rules))
    console.write(_what_intervals_are_over(rules))
    choice = result.run["choice"]
    machines = result.clips.drop_duplicates(["set", "machine", "section"])
    sizes = machines.groupby("set", sort=False)["machine"].nunique()
    counts = [quantity(int(n), f"{_SETS[str(each)]} machine") for each, n in sizes.items()]
    console.print(
        f"\n[bold]{escape(choice['config'])}[/bold] was chosen by the rule {choice['rule']} among "
        f"{quantity(len(result.candidates), 'configuration')} on {' and '.join(counts)}:"
    )
    console.write(f"{choice['reason']}.")
    if excluded := choice["vetoed"]:
        console.write(f"Vetoes exclude {name_list(excluded, 3)}.")
    console.notes(choice["warnings"], "warning")
    console.notes(result.run["notes"])


def _rules_table(rules: Any) -> Table:
    """Rules below each other, their scores with intervals."""
    sets = [each for each in _SETS if rules[f"{each}_score"].notna().any()]
    table = new_table(["rule", "picks"], [f"{each} score" for each in sets])
    for row in rules.to_dict("records"):
        cells = [_score(row, each) for each in sets]
        table.add_row(row["rule"], row["configuration"] or "(mean of all)", *cells)
    return table


def _score(row: dict[str, Any], which: str) -> str:
    """A score with its interval; nan is unknown."""
    value, low, high = (row[f"{which}_{name}"] for name in ("score", "low", "high"))
    if isnan(value):
        return "-"
    interval = "" if low is None or isnan(low) else f" [{low:.1f}, {high:.1f}]"
    return f"{value:.1f}{interval}"


def _what_intervals_are_over(rules: Any) -> str:
    from daco.evaluation.intervals import too_few_machines

    columns = {"dev": "n_dev_machines", "eval": "n_machines"}
    known = {
        each: int(rules[column].max())
        for each, column in columns.items()
        if rules[f"{each}_score"].notna().any()
    }
    if not known:
        return "No machine has complete labels, so there are no scores."
    listed = " and ".join(f"{n} {each}" for each, n in known.items())
    text = f"Official scores in percent, with 95 % intervals over machines ({listed})."
    return f"{text} {too_few_machines(min(known.values())) or ''}".strip()
