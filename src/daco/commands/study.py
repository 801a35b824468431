"""``daco study``: a grid of configurations over machines, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from daco.commands import options as shared
from daco.commands.console import Output, estimate_text, interruptible, progress_bars
from daco.commands.options import Location, location_option, option
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult

_SETS = {"dev": "development", "eval": "evaluation"}


def study(
    dev: Annotated[Location, location_option("Use these embeddings of development machines.")],
    out: Annotated[Location, location_option("Write results to this folder, or continue there.")],
    eval: Annotated[Location | None, location_option("Use these evaluation machines.")] = None,
    truth: shared.Truth = None,
    grid: shared.Grid = "51",
    system: shared.System = None,
    faults: Annotated[
        list[Location] | None,
        option(
            "Use this table of daco inject for the veto. Repeat it for more.",
            metavar="TABLE",
            parser=shared.as_location,
        ),
    ] = None,
    rule: Annotated[
        str, option("Choose by this rule: guarded, label-free, paper, criterion or dev.")
    ] = "guarded",
    readout: Annotated[str | None, option("Use this readout, or several (A+B).")] = None,
    seed: shared.Seed = 0,
    splits: shared.Splits = shared.SPLITS,
    false_alarm_rate: Annotated[float, option("Decide at this rate.")] = shared.FALSE_ALARM_RATE,
    workers: shared.Processes = None,
    report: Annotated[bool, option("Write the report.")] = True,
    export: Annotated[Path | None, option("Write figures and tables to this folder.")] = None,
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
    console = Output()
    show_study(console, result)
    if report:
        with errors.status("drawing the report..."):
            page = result.report()
        console.write(f"report: {page}", wrap=False)
    if export is not None:
        with errors.status("drawing figures..."):
            result.export(export)
        console.write(f"figures and tables: {export}", wrap=False)


def show_study(console: Output, result: StudyResult) -> None:
    """Print what every rule picks and scores, the choice with its reason, and cautions."""
    from daco.evaluation.intervals import too_few_machines

    rules = result.rules()
    machines = {"dev": "n_dev_machines", "eval": "n_machines"}
    known = [each for each in _SETS if rules[f"{each}_score"].notna().any()]
    for each in known:
        ends = rules[[f"{each}_score", f"{each}_low", f"{each}_high"]].itertuples(index=False)
        rules[each] = [estimate_text(*values) for values in ends]
    rules["picks"] = rules["configuration"].replace("", "(mean of all)")
    texts, scores = {"rule": "rule", "picks": "picks"}, {each: f"{each} score" for each in known}
    console.table(rules.to_dict("records"), texts, scores)
    if known:
        sizes = {each: int(rules[machines[each]].max()) for each in known}
        listed = " and ".join(f"{n} {each}" for each, n in sizes.items())
        text = f"Official scores in percent, with 95 % intervals over machines ({listed})."
        console.write(f"{text} {too_few_machines(min(sizes.values())) or ''}".rstrip())
    else:
        console.write("No machine has complete labels, so there are no scores.")
    choice = result.run["choice"]
    sets = result.clips.groupby("set", sort=False)["machine"].nunique()
    counts = [quantity(int(n), f"{_SETS[str(each)]} machine") for each, n in sets.items()]
    console.print(
        f"\n[bold]{escape(choice['config'])}[/bold] was chosen by the rule {choice['rule']} among "
        f"{quantity(len(result.candidates), 'configuration')} on {' and '.join(counts)}:"
    )
    console.write(f"{choice['reason']}.")
    if excluded := choice["vetoed"]:
        console.write(f"Vetoes exclude {name_list(excluded, 3)}.")
    console.notes(choice["warnings"], "warning")
    console.notes(result.run["notes"])
