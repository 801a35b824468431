"""``daco embed``: recordings to an embedding table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daco.commands import options as shared
from daco.commands.console import Output, interruptible, progress_bars, show_skipped
from daco.commands.options import Location, OnError, flag, option, require_folder
from daco.errors import InputError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.data.clips import ClipTable


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
    workers: Annotated[
        int | None,
        option("Read files in this many threads, by default at most 6, or 16 remotely.", min=1),
    ] = None,
    on_error: shared.OnErrorOption = OnError.fail,
    truth: shared.Truth = None,
    engine: shared.Engine = "local",
    address: shared.Address = None,
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    force: Annotated[bool, flag("--force", "Embed again, and replace a finished table.")] = False,
) -> None:
    """Embed recordings into a table with one row per clip.

    daco keeps interrupted work beside OUT, and the same command continues it. It leaves a finished
    table of the same recordings and settings as it is.

    Exit codes: 0 success, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.audio.microphones import parse_channel
    from daco.compute import require_engine
    from daco.data.sources import read_clips
    from daco.embedding.cost import write_cost
    from daco.embedding.embed import embed_clips
    from daco.embedding.provenance import check_readouts, origin_of

    console, errors = Output(), Output(stderr=True)
    require_engine(engine, address)
    policy = parse_channel(channel)
    require_folder(out)
    table = read_clips(clips, truth=truth, machine_level=machine_level, domain_level=domain_level)
    errors.notes(table.remarks)
    net, cluster = load_network(
        errors,
        "+".join(backbone),
        engine,
        weights,
        device,
        precision,
        address=address,
        threads=workers,
    )
    readouts = check_readouts(net, readout)
    origin = origin_of(net, readouts, policy, None if cluster is None else cluster.device)
    if not force and _is_finished(console, errors, table, out, origin, on_error):
        return
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
            on_error=on_error.value,
            progress=partial(report, "embedding"),
            engine=cluster,
        )
    if cluster is None:  # the time of many workers is not the cost of a clip
        write_cost(result, net)
    rate = f", {result.embedded / result.seconds:.1f} clips/s" if result.embedded else ""
    reused = f" ({result.reused} of an interrupted run)" if result.reused else ""
    counted = f"{quantity(result.clips, 'clip')}{reused} in {result.seconds:.1f} s{rate}"
    console.write(f"{result.out}: {counted}.", wrap=False)
    rest = "; the table's metadata daco.skipped lists all"
    show_skipped(console, result.skipped, rest, code=shared.SKIPPED_EXIT)


def load_network(
    errors: Output,
    backbone: str,
    engine: str,
    weights: Path | None,
    device: str,
    precision: str = "fp32",
    **cluster_options: Any,
) -> tuple[Any, Any]:
    """Load a network, and prepare the Ray cluster on which it runs; None for this computer."""
    from daco.backbones import load

    with errors.status(f"loading {backbone}..."):
        # The workers of a cluster load the network themselves; here it is only described.
        local_device = device if engine == "local" else "cpu"
        net = load(backbone, weights=weights, device=local_device, precision=precision)
    if engine == "local":
        return net, None
    from daco.embedding.cluster import RayEmbedding

    return net, RayEmbedding(net, weights=weights, device=device, **cluster_options)


def _is_finished(
    console: Output,
    errors: Output,
    table: ClipTable,
    out: Location,
    origin: dict[str, str],
    on_error: OnError,
) -> bool:
    """Whether OUT is what embedding would write; an error where it is something else."""
    from daco.embedding.output import changes_since, parquet_file

    with errors.status(f"comparing {out.name} with the recordings..."):
        parquet_file(out)
        changes = changes_since(table, out, origin, skip=on_error is OnError.skip)
    if changes is None:
        return False
    differences, left_out = changes
    if differences:
        raise InputError(
            f"{out} was made from something else: {'; '.join(differences)}. Choose another --out, "
            "or replace the table with --force."
        )
    less = f", {left_out} of them left out" if left_out else ""
    console.write(
        f"{out} is finished: {quantity(table.clips, 'clip')}{less}, the same recordings and "
        "settings. --force embeds them again.",
        wrap=False,
    )
    if left_out:
        raise typer.Exit(shared.SKIPPED_EXIT)
    return True
