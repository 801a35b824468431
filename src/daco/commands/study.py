"""``daco study``: a grid of configurations over machines, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.commands.progress import stages
from daco.detector.thresholds import FALSE_ALARM_RATE
from daco.errors import InputError
from daco.files.remote import require_local
from daco.method.config import DEFAULT_CONFIG
from daco.method.criterion import CHOICE_SPLITS
from daco.text import quantity

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult


def study(
    dev: Annotated[
        Place, typer.Option(help="Embeddings of the development machines.", parser=as_place)
    ],
    out: Annotated[
        Place, typer.Option(help="Folder for the results; resumes what it finds.", parser=as_place)
    ],
    eval: Annotated[
        Place | None, typer.Option(help="Embeddings of the evaluation machines.", parser=as_place)
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="Checkout of the official evaluator, for eval labels.")
    ] = None,
    baselines: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of score files of another system; repeat for more systems."),
    ] = None,
    grid: Annotated[
        str, typer.Option(help="51, 45, 9, frontier, or a file with one configuration per line.")
    ] = "51",
    faults: Annotated[
        list[Place] | None,
        typer.Option(
            help="Injected faults, of daco inject, for the label-free veto; repeatable.",
            parser=as_place,
        ),
    ] = None,
    veto: Annotated[
        str, typer.Option(help="What guards the choice: dev (scores), faults (no labels), both.")
    ] = "dev",
    readout: Annotated[
        list[str] | None,
        typer.Option(help="Which vectors; repeat to compare. Default: the table's first."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the criterion's random splits.", min=0)] = 0,
    splits: Annotated[int, typer.Option(help="Number of random splits.", min=1)] = CHOICE_SPLITS,
    false_alarm_rate: Annotated[
        float, typer.Option(help="False-alarm rate of thresholds.")
    ] = FALSE_ALARM_RATE,
    workers: Annotated[
        int | None, typer.Option(help="Processes. Default: one per core.", min=1)
    ] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(help="Write score files of this configuration; 'chosen', 'all', or a name."),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write the report.")] = True,
    engine: Annotated[
        str, typer.Option(help="Where machines are worked on: local, or ray for a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray cluster: auto, host:6379 or ray://host:10001.")
    ] = None,
    device: Annotated[
        str,
        typer.Option(help="cpu; or cuda, cuda:1: many machines at once on a GPU, engine local."),
    ] = "cpu",
) -> None:
    """Study a grid of configurations: choose one, and see how far to trust the choice.

    Evaluation labels enter metrics only, never a choice. A veto keeps configurations out that
    detect nothing: by dev scores, or without labels by what they hear of pseudo-anomalies; the
    report shows both. An interrupted study goes on where it was: run the same command again.
    """
    from daco.experiments.run import study as run_study

    console, errors = Output(), Output(stderr=True)
    results = require_local(out, "A study")
    if readout and len(readout) > 1:
        folders = {name: results / name for name in dict.fromkeys(readout)}
    else:
        folders = {readout[0] if readout else "": results}
    for name, folder in folders.items():
        try:
            with stages(errors) as progress:
                result = run_study(
                    dev,
                    eval,
                    truth=truth,
                    baselines=baselines or (),
                    grid=grid,
                    faults=faults or (),
                    veto=veto,
                    readout=name or None,
                    out=folder,
                    seed=seed,
                    n_splits=splits,
                    false_alarm_rate=false_alarm_rate,
                    workers=workers,
                    engine=engine,
                    address=address,
                    device=device,
                    progress=progress,
                )
        except KeyboardInterrupt:
            errors.print("Interrupted. Finished machines are kept; the same command goes on.")
            raise typer.Exit(130) from None
        _write_scores(result, scores or [], false_alarm_rate)
        page = None
        if report:
            with errors.status("drawing the report..."):
                page = result.report()
        show_study(console, result, page)
    if len(folders) > 1:
        _compare(console, folders, results)


def show_study(console: Console, result: StudyResult, page: Path | None) -> None:
    """What was chosen, what every rule picked, what is missing, and where to look."""
    from rich.table import Table

    chosen = result.selection["chosen"]
    counts = [quantity(n, f"{word} machine") for word, n in _machine_counts(result).items()]
    console.print(
        f"[bold]{escape(chosen['config'])}[/bold] chosen by {chosen['rule']} among "
        f"{quantity(len(result.grid), 'configuration')} on {' and '.join(counts)}.",
        highlight=False,
    )
    console.print(escape(chosen["reason"]), highlight=False)
    if result.selection.get("seeds"):
        console.print(_over_seeds(result), highlight=False)
    for sentence in result.selection.get("warnings") or ():
        console.print(f"[yellow]warning:[/yellow] {escape(sentence)}", highlight=False)
    table = Table(
        title="\nWhat each rule picks, its criterion and official score (%)",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("rule")
    table.add_column("picks")
    for heading in ("crit\ndev", "crit\neval", "score\ndev", "score\neval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.selection["rows"]:
        score = _number(row["eval_omega"], 2)
        spread = row.get("eval_sd")
        table.add_row(
            _short(row["rule"]),
            row["config"] or ("its own for each" if "machine" in row["rule"] else "-"),
            _number(row["crit_dev"], 3),
            _number(row["crit_eval"], 3),
            _number(row["dev_omega"], 2),
            score if spread is None else f"{score} ± {spread:.1f}",
        )
    console.print(table)
    for sentence in _veto_lines(result):
        console.print(escape(sentence), highlight=False)
    for sentence in result.missing:
        console.print(f"[yellow]missing:[/yellow] {escape(sentence)}", highlight=False)
    if page is not None:
        console.print(f"report: {page}", highlight=False, soft_wrap=True, markup=False)


def _over_seeds(result: StudyResult) -> str:
    """How often other seeds choose the same, and what the choices score on average."""
    seeds = result.selection["seeds"]
    line = f"Chosen with {seeds['same']} of {quantity(seeds['n_seeds'], 'seed')}"
    for column, word in (("eval_omega", "evaluation"), ("dev_omega", "development")):
        if seeds[column] is not None:
            own = result.grid.loc[result.grid["config"] == DEFAULT_CONFIG, column]
            default = f"; fixed default {own.iloc[0]:.2f}" if len(own) else ""
            return f"{line}. Mean {word} score over seeds: {seeds[column]:.2f}{default}."
    return f"{line}."


def _short(rule: str) -> str:
    """The name of a rule as it fits a terminal."""
    for long, short in (
        (" on evaluation normals", " on eval"),
        ("label-free veto", "label-free"),
        ("both vetoes", "both"),
    ):
        rule = rule.replace(long, short)
    return rule


def _veto_lines(result: StudyResult) -> list[str]:
    """What each of the two vetoes cuts, whichever of them was obeyed."""
    from daco.text import name_list

    lines = []
    veto, heard = result.selection.get("veto"), result.selection.get("label_free_veto")
    if veto is not None:
        lines.append(f"dev-score veto: cuts {name_list(veto['removed'], 3) or 'none'}")
    if heard is not None:
        said = name_list(heard["cut"], 3) or "none"
        said = f"cuts {said}" if heard["limit"] is not None else "abstains"
        lines.append(f"label-free veto ({heard['basis']}): {said}")
    return lines


def _machine_counts(result: StudyResult) -> dict[str, int]:
    words = {"dev": "development", "eval": "evaluation"}
    sizes = result.per_machine.groupby("split", sort=False)["machine"].nunique()
    return {words.get(str(split), str(split)): int(n) for split, n in sizes.items()}


def _write_scores(result: StudyResult, wanted: list[str], rate: float) -> None:
    from daco.experiments.submission import write_machine_scores

    if not wanted:
        return
    known = result.grid["config"].tolist()
    named = {"chosen": [result.selection["chosen"]["config"]], "all": known}
    configs = list(dict.fromkeys(c for name in wanted for c in named.get(name, [name])))
    for config in configs:
        if config not in known:
            raise InputError(
                f"--scores {config!r}: not in the grid. Give 'chosen', 'all', or one of its names."
            )
    assert result.folder is not None
    # What a challenge asks for lies in one folder, without development machines among it.
    judged = "eval" if (result.per_machine["split"] == "eval").any() else "dev"
    for machine in result.machine_scores():
        for config in configs:
            kind = "scores" if machine.split == judged else "scores_dev"
            folder = result.folder / kind / config
            folder.mkdir(parents=True, exist_ok=True)
            write_machine_scores(folder, machine, config, rate)


def _compare(console: Console, folders: dict[str, Path], out: Path) -> None:
    from daco.commands.compare import show_comparison
    from daco.experiments.comparison import compare_runs
    from daco.experiments.result import StudyResult

    comparison = compare_runs({name: StudyResult.read(folder) for name, folder in folders.items()})
    comparison.write(out / "comparison")
    show_comparison(console, comparison)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
