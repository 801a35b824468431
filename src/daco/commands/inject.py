"""``daco inject``: normal recordings with synthetic faults, embedded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daco.commands.modeltext import note, say
from daco.commands.options import DomainLevel
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.commands.progress import stages
from daco.errors import InputError


def inject(
    clips: Annotated[
        Place,
        typer.Argument(
            help="Normal recordings: a folder, DCASE data set or manifest.", parser=as_place
        ),
    ],
    out: Annotated[Place, typer.Option(help="The Parquet file to write.", parser=as_place)],
    backbone: Annotated[str, typer.Option(help="Frozen network, such as mn04.")] = "logmel",
    weights: Annotated[Path | None, typer.Option(help="Checkpoint, if not downloaded.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16.")] = "fp32",
    readout: Annotated[
        list[str] | None,
        typer.Option(help="How frames become a vector; repeat for more. Default: the network's."),
    ] = None,
    channel: Annotated[str, typer.Option(help="Channel, as for daco embed.")] = "0",
    per_domain: Annotated[
        int, typer.Option(help="Recordings of each machine and domain, at most.", min=1)
    ] = 20,
    level: Annotated[
        list[float] | None,
        typer.Option(help="Fault level in dB relative to the recording; repeat for more."),
    ] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="Kind of fault; repeat for more. Default: all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed that draws recordings and faults.", min=0)] = 0,
    domain_level: DomainLevel = None,
) -> None:
    """Add synthetic faults to normal recordings and embed both: what a detector should hear.

    Only training clips are taken, and none that is labelled an anomaly. The table has a row for
    each clean recording, followed by its faulted versions; the columns fault and level_db say
    which. It vetoes configurations that cannot hear, without a label.

    Exit codes: 0 all well, 2 a mistake in the call or the data.
    """
    from daco.audio.microphones import parse_channel
    from daco.backbones import load
    from daco.data.clips import read_clips
    from daco.embedding.output import parquet_file
    from daco.synthetic.faults import KINDS, LEVELS
    from daco.synthetic.injection import Plan, choose_recordings, inject_recordings
    from daco.text import quantity

    console, errors = Output(), Output(stderr=True)
    plan = Plan(tuple(fault or KINDS), tuple(level or LEVELS), seed)
    policy = parse_channel(channel)
    if isinstance(out, Path) and not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder. Create it, or choose another --out.")
    parquet_file(out)
    table = read_clips(clips, domain_level=domain_level)
    note(errors, table.remarks)
    chosen = choose_recordings(table, per_domain, seed)
    with errors.status(f"loading {backbone}..."):
        net = load(backbone, weights=weights, device=device, precision=precision)
    try:
        with stages(errors) as progress:
            faults = inject_recordings(
                chosen,
                net,
                plan,
                readouts=readout,
                channel=policy,
                progress=lambda done, total: progress("injecting", done, total),
            )
    except KeyboardInterrupt:
        errors.print("Interrupted. Nothing was written.")
        raise typer.Exit(130) from None
    faults.write(out)
    versions = quantity(len(plan.kinds) * len(plan.levels), "fault")
    recordings = quantity(len(chosen), "recording")
    say(console, f"{out}: {recordings}, each clean and with {versions}", wrap=False)
    levels = ", ".join(f"{each:g}" for each in plan.levels)
    say(console, f"{', '.join(plan.kinds)} at {levels} dB")
