"""``daco embed``: recordings to an embedding table."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from daco.commands import options as shared
from daco.commands.console import Output, interruptible, progress_bars, show_skipped
from daco.commands.options import flag, option
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
    table as it is, if the settings and the sizes and times of the recordings are the same, and
    replaces another one with --force only.

    Exit codes: 0 success, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.backbones import load
    from daco.data.sources import read_clips
    from daco.embedding.embed import embed_clips

    console, errors = Output(), Output(stderr=True)
    table = read_clips(clips, truth=truth, machine_level=machine_level, domain_level=domain_level)
    errors.notes(table.remarks)
    here = device if engine == "local" else "cpu"  # workers of a cluster load the network, too
    net = load("+".join(backbone), weights, here, precision)
    advice = "Finished work is kept; the same command continues it."
    with interruptible(advice), progress_bars(errors) as report:
        result = embed_clips(
            table,
            net,
            out,
            readouts=readout,
            channel=channel,
            batch_size=batch_size,
            workers=workers,
            progress=partial(report, "embedding"),
            engine=engine,
            weights=weights,
            device=device,
            verify=verify,
            force=force,
        )
    counted = quantity(result.clips, "clip")
    if result.embedded:
        reused = f" ({result.reused} of an interrupted run)" if result.reused else ""
        rate = result.embedded / result.seconds
        text = f"{out}: {counted}{reused} in {result.seconds:.1f} s, {rate:.1f} clips/s."
    else:
        text = (
            f"{out} is finished: {counted}, the same recordings and settings. --force embeds them "
            "again."
        )
    console.write(text, wrap=False)
    show_skipped(console, result.skipped, code=shared.SKIPPED_EXIT)
