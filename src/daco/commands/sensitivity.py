"""``daco sensitivity``: from which fault level on a model raises its alarm."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from daco.commands.modeltext import note, printable, say
from daco.commands.options import DomainLevel
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.commands.progress import stages
from daco.errors import InputError

if TYPE_CHECKING:
    from daco.synthetic.sensitivity import Sensitivity

_COLUMNS = 9
"""Levels that fit beside the names in 80 columns."""


def sensitivity(
    model: Annotated[Path, typer.Argument(help="A model made by daco fit.")],
    normals: Annotated[
        Place,
        typer.Argument(help="Normal recordings of its machine, as for daco fit.", parser=as_place),
    ],
    out: Annotated[Path | None, typer.Option(help="Write all rates to this JSON file.")] = None,
    as_csv: Annotated[
        Path | None, typer.Option("--csv", help="Write all rates to this CSV file.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the rates: a .png or .svg file.")
    ] = None,
    levels: Annotated[
        str | None, typer.Option(help="Fault levels in dB, such as -24,-12,0. Default: by 3 dB.")
    ] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="Kind of fault; repeat for more. Default: all.")
    ] = None,
    detect: Annotated[float, typer.Option(help="Share of recordings that counts as caught.")] = 0.9,
    per_domain: Annotated[
        int, typer.Option(help="Recordings of each domain, at most.", min=1)
    ] = 20,
    rate: Annotated[
        float | None, typer.Option(help="Another false-alarm rate than the model's; no refit.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint, if not downloaded.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Seed that draws recordings and faults.", min=0)] = 0,
    domain_level: DomainLevel = None,
) -> None:
    """Measure what a model catches: synthetic faults in normal recordings, by kind and level.

    A level is that of the fault relative to the recording: at -20 dB a fault has a tenth of its
    RMS. Recordings that are in the model are judged by the model without them.

    Exit codes: 0 all well, 2 a mistake in the call or the data.
    """
    from daco.data.clips import read_clips
    from daco.detector.model import MachineModel
    from daco.embedding.frontend import Listener
    from daco.synthetic.faults import KINDS
    from daco.synthetic.injection import Plan
    from daco.synthetic.sensitivity import LEVELS, measure_sensitivity, require_frontend

    console, errors = Output(), Output(stderr=True)
    given = LEVELS if levels is None else _parse_levels(levels)
    Plan(tuple(fault or KINDS), given, seed)  # a mistake is said before any work
    for path in (out, as_csv, picture):
        _require_place(path)
    if picture is not None and picture.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"{picture}: a picture is .svg or .png. Give it one of these endings.")
    loaded = MachineModel.load(model)
    require_frontend(loaded)
    loaded = loaded if rate is None else loaded.at_rate(rate)
    table = read_clips(normals, domain_level=domain_level)
    note(errors, table.remarks)
    with errors.status("loading the network..."):
        listener = Listener(loaded.frontend, weights=weights, device=device)
    try:
        with stages(errors) as progress:
            found = measure_sensitivity(
                loaded,
                table,
                listener,
                kinds=fault or KINDS,
                levels=given,
                per_domain=per_domain,
                detect=detect,
                seed=seed,
                progress=lambda done, total: progress("injecting", done, total),
            )
    except KeyboardInterrupt:
        errors.print("Interrupted. Nothing was written.")
        raise typer.Exit(130) from None
    show(console, found)
    _write(console, found, out, as_csv, picture)


def show(console: Console, found: Sensitivity) -> None:
    """The table of rates, what it says in words, and what it rests on."""
    from rich import box
    from rich.table import Table

    say(console, found.machine, style="bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("fault", no_wrap=True)
    table.add_column("domain", overflow="fold")
    table.add_column("from", justify="right", no_wrap=True)
    table.add_column("none", justify="right", no_wrap=True, style="dim")
    shown = _shown(found.levels)
    for heading in shown:
        table.add_column(f"{heading:g}", justify="right", no_wrap=True)
    for kind in found.kinds:
        table.add_section()
        for at, domain in enumerate(found.domains):
            level = found.caught_from(kind, domain)
            rates = [found.false_alarm(domain)]
            rates += [found.rate(kind, domain, each) for each in shown]
            table.add_row(
                kind if at == 0 else "",
                escape(printable(domain)),
                "-" if level is None else f"{level:g}",
                *(f"{100 * rate.share:.0f}" for rate in rates),
            )
    console.print(table)
    clips = ", ".join(
        f"{count} of {name}" for name, count in zip(found.domains, found.clips, strict=True)
    )
    known = ""
    if found.in_model:
        verbs = ("is", "was") if found.in_model == 1 else ("are", "were")
        known = f"; {found.in_model} {verbs[0]} in the model and {verbs[1]} left out of it"
    say(
        console,
        "Percent of recordings above the threshold: without a fault, then by fault level in dB "
        f"relative to the recording; from which level at least {100 * found.detect:g} % are "
        f"caught. Recordings: {clips}{known}. "
        f"The model's false-alarm rate is {found.false_alarm_rate:g}.",
    )
    for sentence in found.sentences():
        say(console, sentence)
    note(console, found.cautions(), "caution")


def _write(
    console: Console,
    found: Sensitivity,
    out: Path | None,
    as_csv: Path | None,
    picture: Path | None,
) -> None:
    from daco.files.atomic import atomic_write

    if out is not None:
        text = json.dumps(found.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        with atomic_write(out) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        say(console, f"all rates: {out}", wrap=False)
    if as_csv is not None:
        rows = list(found.rows())
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with atomic_write(as_csv) as temporary:
            temporary.write_text(stream.getvalue(), encoding="utf-8")
        say(console, f"all rates: {as_csv}", wrap=False)
    if picture is not None:
        from daco.experiments.figures.models import plot_sensitivity
        from daco.experiments.figures.style import save_picture

        save_picture(plot_sensitivity(found), picture)
        say(console, f"picture: {picture}", wrap=False)


def _shown(levels: Sequence[float]) -> list[float]:
    """The levels of the table: all, or every second, third, ... down from the highest."""
    step = -(-len(levels) // _COLUMNS)
    return list(levels)[::-1][::step][::-1]


def _parse_levels(text: str) -> tuple[float, ...]:
    """Numbers separated by commas.

    >>> _parse_levels("-24, -12,0")
    (-24.0, -12.0, 0.0)
    """
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(
            f"--levels are numbers of decibels with commas, such as -24,-12,0. Got {text!r}."
        ) from None


def _require_place(path: Path | None) -> None:
    if path is not None and not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder. Create it, or choose another file.")
