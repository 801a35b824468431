"""``daco select``: a configuration for machines of which there are only normal recordings."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from daco.commands.progress import stages

if TYPE_CHECKING:
    from daco.experiments.labelfree import LabelFreeChoice, LabelFreeSelection


def select(
    train: Annotated[Path, typer.Option(help="Embedding table; only clips of split train count.")],
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
    seed: Annotated[int, typer.Option(help="Of the criterion's splits.", min=0)] = 0,
    splits: Annotated[int, typer.Option(help="Splits of the criterion.", min=1)] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")] = None,
) -> None:
    """Choose a configuration without labels, and say whether the choice means anything.

    The criterion is small when normal clips of all domains score alike. It cannot see what a
    configuration detects, so the candidates are nine that are known to work, unless --grid names
    others; --dev-grid then vetoes those that failed on labelled machines. The label-free veto is
    shown beside it: which candidates do not hear pseudo-anomalies made of the normals. It takes
    a candidate out of the choice where nothing else guards it.
    """
    from daco.experiments.gridfile import read_grid
    from daco.experiments.labelfree import select_label_free
    from daco.experiments.result import read_csv_table, write_json
    from daco.table import EmbeddingTable

    read_grid(grid)  # a mistake in it is told before the table is read
    guard = None if dev_grid is None else read_csv_table(dev_grid)
    table = EmbeddingTable.read(train)
    candidates = read_grid(grid, table.bands(readout))
    with stages(Console(stderr=True)) as progress:
        found = select_label_free(
            table,
            candidates,
            dev_grid=guard,
            readout=readout,
            seed=seed,
            n_splits=splits,
            progress=partial(progress, "balancing"),
        )
    if out is not None:
        write_json(found.to_dict(), out)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(Console(), found)


def _show(console: Console, found: LabelFreeSelection) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("machine", overflow="fold")
    table.add_column("clips", justify="right", overflow="fold")
    table.add_column("smallest criterion", overflow="fold")
    for name in ("", "default", "H0 floor"):
        table.add_column(name, justify="right", no_wrap=True)
    for choice in found.machines:
        clips = "+".join(str(n) for n in sorted(choice.domains.values(), reverse=True))
        table.add_row(escape(choice.machine), clips, *_cells(choice))
    if found.common is not None and len(found.machines) > 1:
        table.add_section()
        table.add_row(f"all {found.common.domains['machines']}", "", *_cells(found.common))
    console.print(table)
    say = console.print
    for choice in found.machines:
        say(
            f"{escape(choice.machine)}: use [bold]{choice.use}[/bold]; {escape(choice.advice)}.",
            highlight=False,
        )
    if found.common is not None and len(found.machines) > 1:
        say(
            f"One for all machines: use [bold]{found.common.use}[/bold]; {found.common.advice}.",
            highlight=False,
        )
    for line in _veto_lines(found):
        say(escape(line), highlight=False)
    for note in found.notes:
        say(f"[yellow]note:[/yellow] {escape(note)}", highlight=False)


def _veto_lines(found: LabelFreeSelection) -> list[str]:
    """What the label-free veto cuts, machine by machine; one line where it is the same."""
    from daco.clips import some

    judged = [choice for choice in found.machines if choice.pseudo_scores]
    if not judged:
        return []
    cuts = {choice.machine: tuple(choice.cut) for choice in judged}
    head = f"Label-free veto ({found.basis})"
    if not any(cuts.values()):
        return [f"{head}: cuts none of the {len(found.candidates)} candidates."]
    lines = [
        f"{head}, {machine}: cuts {some(cut, 4) if cut else 'none'}."
        for machine, cut in cuts.items()
    ]
    return [*lines, "It is a veto and no ranker: its scores say little about the rest."]


def _cells(choice: LabelFreeChoice) -> tuple[str, str, str, str]:
    floor = "" if choice.floor is None else f"{choice.floor.mean:.3f}±{choice.floor.sd:.3f}"
    own, default = (
        "–" if value is None else f"{value:.3f}"
        for value in (choice.criterion, choice.default_criterion)
    )
    return choice.pick, own, default, floor
