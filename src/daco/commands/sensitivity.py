"""``daco sensitivity``: from which fault level on a model notices it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from daco.commands import options as shared
from daco.commands.console import Output, interruptible, new_table, progress_bars
from daco.commands.options import Location, location_argument, option, require_folder
from daco.errors import InputError
from daco.text import printable

if TYPE_CHECKING:
    from daco.synthetic.sensitivity import Sensitivity

_COLUMNS = 8
"""Levels that fit beside the names in 80 columns."""


def sensitivity(
    model: shared.ModelPath,
    normals: Annotated[
        Location, location_argument("Use these normal recordings of the model's machine.")
    ],
    out: Annotated[Path | None, option("Write all rates to this JSON file.")] = None,
    as_csv: Annotated[
        Path | None, typer.Option("--csv", help="Write all rates to this CSV file.")
    ] = None,
    picture: Annotated[Path | None, option("Draw the rates to this .png or .svg file.")] = None,
    levels: Annotated[
        str | None,
        option("Use these fault levels in dB, such as -24,-12,0. The default has 3 dB steps."),
    ] = None,
    fault: shared.Faults = None,
    detect: Annotated[
        float, option("Count a fault as caught if this share of the recordings is caught.")
    ] = 0.9,
    per_domain: shared.PerDomain = 20,
    rate: shared.Rate = None,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    seed: shared.FaultSeed = 0,
    domain_level: shared.DomainLevel = None,
) -> None:
    """Measure which faults a model catches, by kind and level.

    daco adds synthetic faults to normal recordings and scores them. The level of a fault is
    relative to the recording: at -20 dB it has a tenth of the amplitude. A fault is caught when
    the clip is anomalous or outside the usual range of levels. If the model has a recording, daco
    leaves it out of the model while it scores it.

    Exit codes: 0 success, 2 a mistake in the call or the data.
    """
    from daco.data.sources import read_clips
    from daco.detector.model import MachineModel
    from daco.embedding.frontend import Listener
    from daco.synthetic.faults import ALL_KINDS
    from daco.synthetic.injection import Plan
    from daco.synthetic.sensitivity import LEVELS, measure_sensitivity, require_frontend

    console, errors = Output(), Output(stderr=True)
    decibels = LEVELS if levels is None else _parse_levels(levels)
    Plan(tuple(fault or ALL_KINDS), decibels, seed)  # reports a mistake before any work
    require_folder(out, as_csv, picture)
    if picture is not None and picture.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"{picture}: The name of a picture must end in .svg or .png.")
    loaded = MachineModel.load(model)
    require_frontend(loaded)
    loaded = loaded if rate is None else loaded.at_rate(rate)
    table = read_clips(normals, domain_level=domain_level)
    errors.notes(table.remarks)
    with errors.status("loading the network..."):
        listener = Listener(loaded.frontend, weights=weights, device=device)
    with interruptible("Nothing was written."), progress_bars(errors) as report:
        result = measure_sensitivity(
            loaded,
            table,
            listener,
            kinds=fault or ALL_KINDS,
            levels=decibels,
            per_domain=per_domain,
            detect=detect,
            seed=seed,
            progress=partial(report, "injecting"),
        )
    _show(console, result)
    _write(console, result, out, as_csv, picture)


def _show(console: Output, result: Sensitivity) -> None:
    """Print the table of rates, the sentences about it, and what it rests on."""
    console.write(result.machine, style="bold")
    step = -(-len(result.levels) // _COLUMNS)
    shown = list(result.levels)[::-1][::step][::-1]  # every so many, down from the highest
    headings = ["by", "from", "none", *(f"{level:g}" for level in shown)]
    table = new_table(["fault", "domain"], headings, pad_edge=False, show_edge=True)
    table.columns[0].no_wrap, table.columns[1].overflow = True, "fold"
    table.columns[4].style = "dim"
    for kind in result.kinds:
        table.add_section()
        for at, domain in enumerate(result.domains):
            level = result.caught_from(kind, domain)
            rates = [result.false_alarm(domain)]
            rates += [result.rate(kind, domain, each) for each in shown]
            table.add_row(
                kind if at == 0 else "",
                escape(printable(domain)),
                result.noticed_by(kind) if at == 0 else "",
                "-" if level is None else f"{level:g}",
                *(f"{100 * rate.share:.0f}" for rate in rates),
            )
    console.print(table)
    clips = ", ".join(
        f"{count} of {name}" for name, count in zip(result.domains, result.clips, strict=True)
    )
    known = ""
    if result.in_model:
        verbs = ("is", "was") if result.in_model == 1 else ("are", "were")
        known = f"; {result.in_model} {verbs[0]} in the model and {verbs[1]} left out of it"
    console.write(
        "The table shows the percentage of recordings that the model catches, without a fault "
        "(none) and at each fault level in dB relative to the recording. 'from' is the level from "
        f"which it catches at least {100 * result.detect:g} %, 'by' tells whether the score or the "
        f"usual range of levels catches them. Recordings: {clips}{known}. "
        f"The model's false-alarm rate is {result.false_alarm_rate:g}."
    )
    for sentence in result.sentences():
        console.write(sentence)
    console.notes(result.warnings(), "warning")


def _write(
    console: Output,
    result: Sensitivity,
    out: Path | None,
    as_csv: Path | None,
    picture: Path | None,
) -> None:
    if out is not None:
        from daco.experiments.study_tables import write_json

        write_json(result.to_dict(), out)
        console.write(f"all rates: {out}", wrap=False)
    if as_csv is not None:
        import pandas as pd

        from daco.files.atomic import atomic_write

        with atomic_write(as_csv) as temporary:
            pd.DataFrame(list(result.rows())).to_csv(temporary, index=False, lineterminator="\n")
        console.write(f"all rates: {as_csv}", wrap=False)
    if picture is not None:
        from daco.experiments.figures.models import plot_sensitivity
        from daco.experiments.figures.style import save_picture

        save_picture(plot_sensitivity(result), picture)
        console.write(f"picture: {picture}", wrap=False)


def _parse_levels(text: str) -> tuple[float, ...]:
    """Numbers separated by commas.

    >>> _parse_levels("-24, -12,0")
    (-24.0, -12.0, 0.0)
    """
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(
            f"Give --levels in dB, separated by commas, such as -24,-12,0. Got {text!r}."
        ) from None
