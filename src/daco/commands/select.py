"""``daco select``: a configuration for machines of which there are only normal recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from daco.commands import options as shared
from daco.commands.console import MANY, Output, estimate_text, print_json, progress_bars
from daco.commands.options import Location, location_argument, option
from daco.text import name_list

if TYPE_CHECKING:
    from daco.experiments.select import MachineChoice, Selection


def select(
    table: Annotated[Location, location_argument("Use the training clips of this table.")],
    grid: shared.Grid = "9",
    readout: Annotated[str | None, option("Use this readout, not the first.")] = None,
    seed: shared.Seed = 0,
    splits: shared.Splits = shared.SPLITS,
    as_json: shared.AsJson = False,
    workers: shared.Processes = None,
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

    errors = Output(stderr=True)
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
    if as_json:
        print_json(selection.to_dict())
    else:
        _show(Output(), selection)


def _show(console: Output, selection: Selection) -> None:
    machines = selection.machines
    many = len(machines) >= MANY
    rows = [_row(each, each.machine, each.domains.values()) for each in machines]
    common = selection.common if len(machines) > 1 else None
    if common is not None:
        rows.append(_row(common, f"all {common.domains['machines']}", ()))
    console.table(rows, ["machine", "clips", "use"], ["criterion", "floor"])
    if many:
        uses = Counter(each.choice.config for each in machines).most_common()
        listed = ", ".join(f"{config} for {n:,}" for config, n in uses)
        console.print(f"Use {listed} machines. --json has the reasons.")
    for each in (*(() if many else machines), *((common,) if common else ())):
        who = "One for all machines" if each is common else escape(each.machine)
        reason = escape(each.choice.reason)
        console.print(f"{who}: use [bold]{each.choice.config}[/bold]; {reason}.")
    console.notes([*_veto_lines(selection), *selection.notes])


def _row(each: MachineChoice, machine: str, sizes: Iterable[int]) -> dict[str, str]:
    config = each.choice.config
    return {
        "machine": machine,
        "clips": "+".join(str(n) for n in sorted(sizes, reverse=True)),
        "use": config,
        "criterion": estimate_text(each.choice.criterion.get(config), form=".3f"),
        "floor": estimate_text(each.floor, form=".3f"),
    }


def _veto_lines(selection: Selection) -> Iterator[str]:
    """What the label-free veto excludes, and for which machines."""
    judged = [each for each in selection.machines if each.choice.pseudo is not None]
    excluded: dict[str, list[str]] = {}
    for each in judged:
        for name in each.choice.vetoed:
            excluded.setdefault(name, []).append(each.machine)
    for name, machines in excluded.items():
        yield f"The label-free veto excludes {name} for {name_list(machines, 3)}."
    if judged and not excluded:
        yield f"The label-free veto excludes none of {len(selection.candidates)} candidates."
