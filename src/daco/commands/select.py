"""``daco select``: a configuration for machines of which there are only normal recordings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from daco.commands import options as shared
from daco.commands.console import MANY, Output, new_table, print_json, progress_bars
from daco.commands.options import Location, location_argument, option, require_folder
from daco.text import name_list

if TYPE_CHECKING:
    from daco.experiments.select import MachineChoice, Selection


def select(
    table: Annotated[Location, location_argument("Use the training clips of this table.")],
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
) -> None:
    """Choose a configuration without labels, and show whether the choice exceeds the noise.

    The criterion is small when normal clips of all domains score alike. It does not measure what
    a configuration detects, so the candidates are nine that are known to work. The label-free veto
    excludes candidates that do not detect pseudo-anomalies made from the normals.
    """
    from daco.compute import require_engine
    from daco.embedding.normals import left_out
    from daco.experiments.grids import read_grid
    from daco.experiments.inputs import read_table
    from daco.experiments.select import select_label_free
    from daco.files.atomic import atomic_write

    errors = Output(stderr=True)
    require_folder(out)
    require_engine(engine)
    candidates = read_grid(grid)  # reports a mistake in it before the table is read
    clips = read_table(table, ("session",))
    pairs = zip(clips.columns["split"].tolist(), clips.columns["label"].tolist(), strict=True)
    errors.notes(left_out(pairs))
    with progress_bars(errors) as report:
        selection = select_label_free(
            clips,
            candidates,
            readout=readout,
            seed=seed,
            n_splits=splits,
            workers=workers,
            engine=engine,
            progress=partial(report, "balancing"),
        )
    if out is not None:
        with atomic_write(out) as temporary:
            text = json.dumps(selection.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")
    if as_json:
        print_json(selection.to_dict())
    else:
        _show(Output(), selection)


def _show(console: Output, selection: Selection) -> None:
    many = len(selection.machines) >= MANY
    common = selection.common if len(selection.machines) > 1 else None
    table = new_table(
        ["machine", "clips", "use"], ["criterion", "floor"], box=None, padding=(0, 2, 0, 0)
    )
    for each in selection.machines:
        clips = "+".join(str(n) for n in sorted(each.domains.values(), reverse=True))
        table.add_row(escape(each.machine), clips, *_cells(each))
    if common is not None:
        table.add_section()
        table.add_row(f"all {common.domains['machines']}", "", *_cells(common))
    console.print(table)
    if many:
        uses = _most_common(each.choice.config for each in selection.machines)
        console.print(f"Use {uses} machines. --json has the reasons.")
    for each in (*(() if many else selection.machines), *((common,) if common else ())):
        who = "One for all machines" if each is common else escape(each.machine)
        reason = escape(each.choice.reason)
        console.print(f"{who}: use [bold]{each.choice.config}[/bold]; {reason}.")
    console.notes([*_veto_lines(selection, many), *selection.notes])


def _cells(each: MachineChoice) -> list[str]:
    """The configuration, its criterion, and the floor of the criterion."""
    values = each.choice.criterion.get(each.choice.config), each.floor
    numbers = ("–" if value is None or isnan(value) else f"{value:.3f}" for value in values)
    return [each.choice.config, *numbers]


def _veto_lines(selection: Selection, many: bool) -> list[str]:
    """What the label-free veto excludes on each machine; one line where it is the same."""
    judged = [each for each in selection.machines if each.choice.pseudo is not None]
    excluded = Counter(name for each in judged for name in each.choice.vetoed)
    if judged and not excluded:
        return [f"The label-free veto excludes none of {len(selection.candidates)} candidates."]
    if many and judged:
        return [f"The label-free veto excludes most often {_most_common(excluded, 4)} machines."]
    return [
        f"The label-free veto excludes {name_list(each.choice.vetoed, 4) or 'nothing'} "
        f"for {each.machine}."
        for each in judged
    ]


def _most_common(names: Iterable[str], limit: int | None = None) -> str:
    return ", ".join(f"{name} for {n:,}" for name, n in Counter(names).most_common(limit))
