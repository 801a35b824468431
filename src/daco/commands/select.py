"""``daco select``: a configuration for machines of which there are only normal recordings."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from daco.commands.modeltext import note
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.commands.progress import stages
from daco.method.criterion import CHOICE_SPLITS

_SHOWN = 4

if TYPE_CHECKING:
    from daco.experiments.balanced import LabelFreeChoice
    from daco.experiments.labelfree import LabelFreeSelection


def select(
    train: Annotated[
        Place,
        typer.Option(help="Embedding table; only clips of split train count.", parser=as_place),
    ],
    dev_grid: Annotated[
        Path | None,
        typer.Option(help="grid.csv of a study of labelled machines, to veto broken candidates."),
    ] = None,
    grid: Annotated[
        str,
        typer.Option(help="Candidates: 9, 45, 51, frontier, or a file with one name per line."),
    ] = "9",
    readout: Annotated[
        str | None, typer.Option(help="Which vectors of the table. Default: its first.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the criterion's random splits.", min=0)] = 0,
    splits: Annotated[int, typer.Option(help="Number of random splits.", min=1)] = CHOICE_SPLITS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes. Default: one per core from 40 machines on.", min=1),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where machines are worked on: local, or ray for a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray cluster: auto, host:6379 or ray://host:10001.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu; or cuda, cuda:1 for the criterion, with the engine local.")
    ] = "cpu",
) -> None:
    """Choose a configuration without labels, and say whether the choice means anything.

    The criterion is small when normal clips of all domains score alike. It cannot see what a
    configuration detects, so the candidates are nine that are known to work, unless --grid names
    others; --dev-grid then vetoes those that failed on labelled machines. The label-free veto
    takes those out that do not detect pseudo-anomalies made of the normals.
    """
    from daco.compute import require_engine
    from daco.detector.normals import left_out
    from daco.experiments.device import require_device
    from daco.experiments.gridfile import read_grid
    from daco.experiments.inputs import read_table
    from daco.experiments.labelfree import select_label_free
    from daco.experiments.study_tables import read_csv_table, write_json

    require_engine(engine, address)
    require_device(device, engine)
    read_grid(grid)  # a mistake in it is told before the table is read
    guard = None if dev_grid is None else read_csv_table(dev_grid)
    table = read_table(train)
    pairs = zip(table.columns["split"].tolist(), table.columns["label"].tolist(), strict=True)
    note(Output(stderr=True), left_out(pairs, "select"))
    candidates = read_grid(grid, table.bands(readout))
    with stages(Output(stderr=True)) as progress:
        found = select_label_free(
            table,
            candidates,
            dev_grid=guard,
            readout=readout,
            seed=seed,
            n_splits=splits,
            workers=workers,
            engine=engine,
            address=address,
            device=device,
            progress=partial(progress, "balancing"),
        )
    if out is not None:
        write_json(found.to_dict(), out)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(Output(), found)


def _show(console: Console, found: LabelFreeSelection) -> None:
    from rich.table import Table

    from daco.compute.processes import MANY

    many = len(found.machines) >= MANY
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("machine", overflow="fold")
    table.add_column("clips", justify="right")
    table.add_column("use" if many else "smallest criterion")
    for name in ("smallest" if many else "", "default", "H0 floor"):
        table.add_column(name, justify="right", no_wrap=True)
    for choice in found.machines:
        clips = "+".join(str(n) for n in sorted(choice.domains.values(), reverse=True))
        table.add_row(escape(choice.machine), clips, *_cells(choice, used=many))
    if found.common is not None and len(found.machines) > 1:
        table.add_section()
        table.add_row(
            f"all {found.common.domains['machines']}", "", *_cells(found.common, used=many)
        )
    console.print(table)
    say = console.print
    for choice in () if many else found.machines:
        say(
            f"{escape(choice.machine)}: use [bold]{choice.use}[/bold]; {escape(choice.advice)}.",
            highlight=False,
        )
    if found.common is not None and len(found.machines) > 1:
        say(
            f"One for all machines: use [bold]{found.common.use}[/bold]; {found.common.advice}.",
            highlight=False,
        )
    if many:
        counts = Counter(choice.use for choice in found.machines).most_common()
        said = ", ".join(f"{name} for {count:,}" for name, count in counts)
        say(f"To use: {said} machines. --json tells the reasons.", highlight=False)
    for line in _veto_lines(found, many):
        say(escape(line), highlight=False)
    note(console, found.notes)


def _veto_lines(found: LabelFreeSelection, many: bool) -> list[str]:
    """What the label-free veto cuts, machine by machine; one line where it is the same."""
    from daco.text import name_list

    judged = [choice for choice in found.machines if choice.pseudo_scores]
    if not judged:
        return []
    cuts = {choice.machine: tuple(choice.cut) for choice in judged}
    head = f"Label-free veto ({found.basis})"
    if not any(cuts.values()):
        return [f"{head}: cuts none of the {len(found.candidates)} candidates."]
    if many:
        times = Counter(name for cut in cuts.values() for name in cut).most_common(_SHOWN)
        said = ", ".join(f"{name} for {count:,}" for name, count in times)
        return [f"{head}: cuts most often {said} machines."]
    lines = [
        f"{head}, {machine}: cuts {name_list(cut, _SHOWN) if cut else 'none'}."
        for machine, cut in cuts.items()
    ]
    return [*lines, "It is a veto and no ranker: its scores say little about the rest."]


def _cells(choice: LabelFreeChoice, *, used: bool) -> tuple[str, str, str, str]:
    floor = "" if choice.floor is None else f"{choice.floor.mean:.3f}±{choice.floor.sd:.3f}"
    own, default = (
        "–" if value is None else f"{value:.3f}"
        for value in (choice.criterion, choice.default_criterion)
    )
    return choice.use if used else choice.pick, own, default, floor
