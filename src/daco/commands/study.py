"""``daco study``: a grid of configurations over machines, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape
from rich.table import Table

from daco.commands import options as shared
from daco.commands.console import Output, interruptible, new_table, progress_bars
from daco.commands.options import Location, location_option, option
from daco.errors import InputError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult

_SHORT = {
    " on evaluation normals": " on eval",
    "label-free veto": "label-free",
    "both vetoes": "both",
}
"""Parts of the names of rules, as they fit a terminal."""


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
    baselines: Annotated[
        list[Path] | None,
        option("Compare with score files in this folder. Repeat it for more systems."),
    ] = None,
    grid: shared.Grid = "51",
    system: Annotated[
        list[str] | None,
        option("Add the scores of this system to the grid, as NAME=PATH. Repeat it for more."),
    ] = None,
    faults: Annotated[
        list[Location] | None,
        location_option("Use this table of daco inject for the veto. Repeat it for more."),
    ] = None,
    veto: Annotated[
        str,
        option(
            "Exclude configurations by dev scores (dev), without labels (faults), or by both. "
            "The paper's own choice is paper."
        ),
    ] = "both",
    readout: Annotated[
        list[str] | None,
        option(
            "Use this readout, or several joined with +. Repeat it to compare. The default is the "
            "first of the table."
        ),
    ] = None,
    seed: shared.CriterionSeed = 0,
    splits: shared.Splits = shared.SPLITS,
    false_alarm_rate: Annotated[
        float, option("Set thresholds for this false-alarm rate.")
    ] = shared.FALSE_ALARM_RATE,
    workers: shared.Processes = None,
    scores: Annotated[
        list[str] | None,
        option("Write score files of this configuration: chosen, all, blend, or a name."),
    ] = None,
    report: Annotated[bool, option("Write the report.")] = True,
    engine: shared.Engine = "local",
    address: shared.Address = None,
) -> None:
    """Evaluate a grid of configurations, choose one, and report how far to trust the choice.

    The choice never uses evaluation labels; only the metrics do. A veto excludes configurations
    that detect nothing, either by their dev scores or, without labels, by the pseudo-anomalies
    that they miss. The report shows both. After an interruption the same command continues.
    """
    from daco.commands.compare import show_comparison
    from daco.experiments.compare import compare_runs
    from daco.experiments.result import StudyResult
    from daco.experiments.run import study as run_study
    from daco.files.remote import require_local

    console, errors = Output(), Output(stderr=True)
    results = require_local(out, "A study")
    wanted = list(dict.fromkeys(scores or ()))
    names = list(dict.fromkeys(readout or [""]))
    folders = {name: results / name if len(names) > 1 else results for name in names}
    for name, folder in folders.items():
        advice = "Finished machines are kept; the same command continues."
        with interruptible(advice), progress_bars(errors) as progress:
            result = run_study(
                dev,
                eval,
                truth=truth,
                baselines=baselines or (),
                grid=grid,
                systems=_systems(system or []),
                faults=faults or (),
                veto=veto,
                decide=[each for each in wanted if each != "chosen"],
                readout=name or None,
                out=folder,
                seed=seed,
                n_splits=splits,
                false_alarm_rate=false_alarm_rate,
                workers=workers,
                engine=engine,
                address=address,
                progress=progress,
            )
        _write_scores(result, wanted, false_alarm_rate)
        page = None
        if report:
            with errors.status("drawing the report..."):
                page = result.report()
        show_study(console, result, page)
    if len(folders) > 1:
        comparison = compare_runs({name: StudyResult.read(at) for name, at in folders.items()})
        comparison.write(results / "comparison")
        show_comparison(console, comparison)


def show_study(console: Output, result: StudyResult, page: Path | None) -> None:
    """Print the choice, the pick of every rule, what is missing, and the path of the report."""
    from daco.experiments.veto import ROLES

    chosen = result.selection["chosen"]
    sizes = result.per_machine.groupby("split", sort=False)["machine"].nunique()
    counts = [quantity(int(n), f"{ROLES[str(s)]} machine") for s, n in sizes.items()]
    console.print(
        f"[bold]{escape(chosen['config'])}[/bold] was chosen by {chosen['rule']} among "
        f"{quantity(len(result.grid), 'configuration')} on {' and '.join(counts)}."
    )
    console.write(chosen["reason"])
    if resamples := result.selection.get("resamples"):
        share = f"{resamples['agreement']:.0%} of {quantity(resamples['n'], 'resample')}"
        console.write(f"{share} of splits and clips pick it.")
    console.notes(result.selection.get("warnings") or (), "warning")
    console.print(_rules_table(result))
    for sentence in _veto_lines(result):
        console.write(sentence)
    console.notes(result.missing, "missing")
    if page is not None:
        console.write(f"report: {page}", wrap=False)


def _rules_table(result: StudyResult) -> Table:
    table = new_table(
        ["rule", "picks"],
        ["crit\ndev", "crit\neval", "score\ndev", "score\neval"],
        title="\nThe pick of each rule, with its criterion and official score (%)",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.columns[0].overflow = "ellipsis"
    digits = {"crit_dev": 3, "crit_eval": 3, "dev_omega": 2, "eval_omega": 2}
    for row in result.selection["rows"]:
        rule = row["rule"]
        for long, short in _SHORT.items():
            rule = rule.replace(long, short)
        cells = ["-" if row[name] is None else f"{row[name]:.{n}f}" for name, n in digits.items()]
        if row.get("eval_sd") is not None:
            cells[-1] += f" ± {row['eval_sd']:.1f}"
        each_its_own = "one for each" if "machine" in row["rule"] else "-"
        table.add_row(rule, row["config"] or each_its_own, *cells)
    return table


def _veto_lines(result: StudyResult) -> list[str]:
    """What each of the two vetoes excludes, whichever of them was used."""
    lines = []
    dev, label_free = result.selection.get("veto"), result.selection.get("label_free_veto")
    if dev is not None:
        lines.append(f"The dev-score veto excludes {name_list(dev['removed'], 3) or 'nothing'}.")
    if label_free is not None:
        effect = f"excludes {name_list(label_free['cut'], 3) or 'nothing'}"
        effect = "abstains" if label_free["limit"] is None else effect
        lines.append(f"The label-free veto ({label_free['basis']}) {effect}.")
    return lines


def _systems(given: list[str]) -> dict[str, str]:
    """Paths of score tables by the names of systems."""
    pairs = [text.partition("=") for text in given]
    named = {name: path for name, _, path in pairs}
    if len(named) < len(pairs) or not all(path for *_, path in pairs):
        raise InputError(f"--system takes NAME=PATH, each name once. Got {name_list(given)}.")
    return named


def _write_scores(result: StudyResult, wanted: list[str], rate: float) -> None:
    from daco.experiments.submission import write_machine_scores

    groups = {
        "chosen": [result.selection["chosen"]["config"]],
        "all": result.grid["config"].tolist(),
    }
    configs = list(dict.fromkeys(c for name in wanted for c in groups.get(name, [name])))
    assert result.folder is not None
    # A challenge asks for one folder that has no development machines in it.
    submitted = "eval" if (result.per_machine["split"] == "eval").any() else "dev"
    for machine in result.machine_scores() if configs else ():
        for config in configs:
            kind = "scores" if machine.split == submitted else "scores_dev"
            folder = result.folder / kind / config
            folder.mkdir(parents=True, exist_ok=True)
            write_machine_scores(folder, machine, config, rate)
