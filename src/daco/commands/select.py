"""``daco select``: a configuration for machines of which there are only normal recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from daco.commands import options as shared
from daco.commands.console import Output, new_table, print_json, progress_bars
from daco.commands.options import Location, location_option, option, require_folder
from daco.text import name_list

if TYPE_CHECKING:
    from daco.experiments.labelfree import LabelFreeChoice, LabelFreeSelection

_SHOWN = 4


def select(
    train: Annotated[Location, location_option("Use the training clips of this embedding table.")],
    dev_grid: Annotated[
        Path | None,
        option("Exclude candidates that failed in the labelled study of this grid.csv."),
    ] = None,
    grid: shared.Grid = "9",
    readout: Annotated[
        str | None, option("Use this readout of the table. The default is the first.")
    ] = None,
    seed: shared.CriterionSeed = 0,
    splits: shared.Splits = shared.SPLITS,
    as_json: shared.AsJson = False,
    out: Annotated[Path | None, option("Write the JSON to this file, too.")] = None,
    workers: shared.FleetProcesses = None,
    engine: shared.Engine = "local",
    address: shared.Address = None,
) -> None:
    """Choose a configuration without labels, and show whether the choice exceeds the noise.

    The criterion is small when normal clips of all domains score alike. It does not measure what
    a configuration detects, so the candidates are nine that are known to work. If --grid names
    others, --dev-grid excludes candidates that failed on labelled machines. The label-free veto
    excludes candidates that do not detect pseudo-anomalies made from the normals.
    """
    from daco.compute import require_engine
    from daco.embedding.normals import left_out
    from daco.experiments.grids import read_grid
    from daco.experiments.inputs import read_table
    from daco.experiments.labelfree import select_label_free
    from daco.experiments.study_tables import read_csv_table, write_json

    errors = Output(stderr=True)
    require_folder(out)
    require_engine(engine, address)
    candidates = read_grid(grid)  # reports a mistake in it before the table is read
    guard = None if dev_grid is None else read_csv_table(dev_grid)
    table = read_table(train, ("session",))
    pairs = zip(table.columns["split"].tolist(), table.columns["label"].tolist(), strict=True)
    errors.notes(left_out(pairs))
    with progress_bars(errors) as report:
        selection = select_label_free(
            table,
            candidates,
            dev_grid=guard,
            readout=readout,
            seed=seed,
            n_splits=splits,
            workers=workers,
            engine=engine,
            address=address,
            progress=partial(report, "balancing"),
        )
    if out is not None:
        write_json(selection.to_dict(), out)
    if as_json:
        print_json(selection.to_dict())
    else:
        _show(Output(), selection)


def _show(console: Output, selection: LabelFreeSelection) -> None:
    from daco.compute.processes import MANY

    many = len(selection.machines) >= MANY
    common = selection.common if len(selection.machines) > 1 else None
    table = new_table(["machine"], ["clips"], box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[1].no_wrap = False
    table.add_column("use")
    for name in ("criterion", "agreement", "floor"):
        table.add_column(name, justify="right", no_wrap=True)
    for choice in selection.machines:
        clips = "+".join(str(n) for n in sorted(choice.domains.values(), reverse=True))
        table.add_row(escape(choice.machine), clips, *_cells(choice))
    if common is not None:
        table.add_section()
        table.add_row(f"all {common.domains['machines']}", "", *_cells(common))
    console.print(table)
    advice = [] if many else [(escape(choice.machine), choice) for choice in selection.machines]
    if common is not None:
        advice.append(("One for all machines", common))
    for name, choice in advice:
        console.print(f"{name}: use [bold]{choice.use}[/bold]; {escape(choice.reason)}.")
    if many:
        uses = _most_common(choice.use for choice in selection.machines)
        console.print(f"Use {uses} machines. --json has the reasons.")
    for line in _veto_lines(selection, many):
        console.write(line)
    console.notes(selection.notes)


def _veto_lines(selection: LabelFreeSelection, many: bool) -> list[str]:
    """What the label-free veto excludes on each machine; one line where it is the same."""
    excluded = {
        each.machine: tuple(each.vetoed) for each in selection.machines if each.pseudo_scores
    }
    if not excluded:
        return []
    head = f"The label-free veto ({selection.basis}) excludes"
    if not any(excluded.values()):
        return [f"{head} none of the {len(selection.candidates)} candidates."]
    if many:
        names = _most_common((name for names in excluded.values() for name in names), _SHOWN)
        return [f"{head} most often {names} machines."]
    lines = [
        f"{head} {name_list(names, _SHOWN) or 'nothing'} for {machine}."
        for machine, names in excluded.items()
    ]
    return [*lines, "The veto does not rank the other candidates."]


def _most_common(names: Iterable[str], limit: int | None = None) -> str:
    return ", ".join(f"{name} for {n:,}" for name, n in Counter(names).most_common(limit))


def _cells(choice: LabelFreeChoice) -> tuple[str, str, str, str]:
    """The configuration, its criterion, the share of resamples that agree, and the floor."""
    criterion = choice.criterion.get(choice.use)
    share = "–" if choice.agreement is None else f"{choice.agreement:.0%}"
    own, floor = ("–" if value is None else f"{value:.3f}" for value in (criterion, choice.floor))
    return choice.use, own, share, floor
