"""``daco embed``: recordings to an embedding table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from daco.commands import options as shared
from daco.commands.console import Output, interruptible, progress_bars, show_skipped
from daco.commands.options import flag, option, require_folder
from daco.text import quantity


def embed(
    clips: shared.Clips,
    out: shared.OutTable,
    backbone: shared.Backbones = ["logmel"],  # noqa: B006
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    precision: shared.Precision = "fp32",
    readout: shared.Readouts = None,
    channel: shared.Channel = "0",
    batch_size: Annotated[int, option("Embed this many clips at once.", min=1)] = 32,
    workers: Annotated[int | None, option("Read files in this many threads.", min=1)] = None,
    on_error: shared.OnError = "skip",
    truth: shared.Truth = None,
    engine: shared.Engine = "local",
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    verify: Annotated[
        bool, flag("--verify", "Compare the contents of recordings, not their sizes and times.")
    ] = False,
    force: Annotated[bool, flag("--force", "Embed again, and replace a finished table.")] = False,
) -> None:
    """Embed recordings into a table with one row per clip.

    daco keeps interrupted work beside OUT, and the same command continues it. It leaves a finished
    table as it is, if the settings and the sizes and times of the recordings are the same.

    Exit codes: 0 success, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.audio.microphones import parse_channel
    from daco.compute import require_engine
    from daco.data.sources import read_clips
    from daco.embedding.embed import embed_clips, worker_device
    from daco.embedding.output import clips_left_out, parquet_file
    from daco.embedding.provenance import check_readouts, origin_of

    console, errors = Output(), Output(stderr=True)
    require_engine(engine)
    policy = parse_channel(channel)
    require_folder(out)
    parquet_file(out)
    table = read_clips(clips, truth=truth, machine_level=machine_level, domain_level=domain_level)
    errors.notes(table.remarks)
    net = load_network(errors, "+".join(backbone), engine, weights, device, precision)
    readouts = check_readouts(net, readout)
    place = net.device if engine == "local" else worker_device(net, device)
    skip = on_error == "skip"
    if not force:
        origin = origin_of(net, readouts, policy, place)
        with errors.status(f"comparing {out.name} with the recordings..."):
            left_out = clips_left_out(table, out, origin, skip=skip, verify=verify)
        if left_out is not None:
            less = f", {left_out} of them left out" if left_out else ""
            console.write(
                f"{out} is finished: {quantity(table.clips, 'clip')}{less}, the same recordings "
                "and settings. --force embeds them again.",
                wrap=False,
            )
            raise typer.Exit(shared.SKIPPED_EXIT if left_out else 0)
    advice = "Finished work is kept; the same command continues it."
    with interruptible(advice), progress_bars(errors) as report:
        result = embed_clips(
            table,
            net,
            out,
            readouts=readouts,
            channel=policy,
            batch_size=batch_size,
            workers=workers,
            on_error=on_error,
            progress=partial(report, "embedding"),
            engine=engine,
            weights=weights,
            device=device,
        )
    rate = f", {result.embedded / result.seconds:.1f} clips/s" if result.embedded else ""
    reused = f" ({result.reused} of an interrupted run)" if result.reused else ""
    counted = f"{quantity(result.clips, 'clip')}{reused} in {result.seconds:.1f} s{rate}"
    console.write(f"{result.out}: {counted}.", wrap=False)
    show_skipped(console, result.skipped, code=shared.SKIPPED_EXIT)


def load_network(
    errors: Output,
    backbone: str,
    engine: str,
    weights: Path | None,
    device: str,
    precision: str = "fp32",
) -> Any:
    """Load a network; workers of a cluster load it themselves, so that here it is on the CPU."""
    from daco.backbones import load

    with errors.status(f"loading {backbone}..."):
        here = device if engine == "local" else "cpu"
        return load(backbone, weights=weights, device=here, precision=precision)
