"""``daco serve``: scoring over HTTP, alarms, and the page to look at."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from daco.errors import InputError, MissingExtraError


class KeepAudio(StrEnum):
    """Which uploaded recordings are kept."""

    alarms = "alarms"
    all = "all"
    none = "none"


def serve(
    models: Annotated[Path, typer.Argument(help="Folder of model files, *.daco.")],
    db: Annotated[
        str | None, typer.Option(help="Database URL. Default: daco.db beside the models.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this computer's needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8477,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token; else $DACO_TOKEN.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Name under which a proxy on this computer is reached; repeat."),
    ] = None,
    clips: Annotated[
        Path | None, typer.Option(help="Where uploads are kept. Default: clips beside the models.")
    ] = None,
    keep_audio: Annotated[
        KeepAudio, typer.Option(help="Which uploads are kept: anomalous ones, all, none.")
    ] = KeepAudio.alarms,
    audio_mb: Annotated[
        int, typer.Option(help="Megabytes of uploads to keep; the oldest go first.", min=1)
    ] = 2000,
    keep_days: Annotated[
        float | None, typer.Option(help="Forget clips and alarms that are older.")
    ] = None,
    normals: Annotated[
        Path | None, typer.Option(help="Folder of the normals' recordings, to listen to.")
    ] = None,
    watched: Annotated[
        list[Path] | None, typer.Option(help="Folder of daco watch, to listen to; repeat.")
    ] = None,
    alarm: Annotated[
        str, typer.Option(help="k/n: k anomalous of the last n clips; off: every one.")
    ] = "3/5",
    workers: Annotated[
        int | None, typer.Option(help="Processes that score. Default: one per core.", min=1)
    ] = None,
    max_body: Annotated[int, typer.Option(help="Megabytes of one upload.", min=1, max=1000)] = 32,
    weights: Annotated[
        list[str] | None,
        typer.Option(help="NETWORK=FILE, a checkpoint that was not downloaded; repeat."),
    ] = None,
) -> None:
    """Score recordings over HTTP, keep what was found, raise alarms, show it at /.

    Models are loaded again when their files change. SIGTERM ends it after the work in progress.
    """
    import logging

    from daco.monitoring.alarms import AlarmRule

    if os.name != "posix":
        raise InputError("daco serve confines its workers by means of Unix: use Linux or macOS.")
    try:
        from daco.monitoring.service.app import listening_socket
        from daco.monitoring.service.app import serve as run
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f'The service needs more packages ({error.name}): pip install "daco-asd[serve]".'
        ) from None
    from daco.monitoring.service.settings import MEGABYTE, Settings, read_token

    settings = Settings(
        models=models,
        database=db or f"sqlite:///{models.absolute() / 'daco.db'}",
        host=host,
        port=port,
        token=read_token(token_file),
        allowed_hosts=tuple(allow_host or ()),
        clips=None if keep_audio is KeepAudio.none else clips or models / "clips",
        keep_audio=keep_audio.value,
        audio_bytes=audio_mb * MEGABYTE,
        keep_days=keep_days,
        normals=normals,
        watched=tuple(watched or ()),
        rule=AlarmRule.parse(alarm),
        workers=workers or _cores(),
        max_body=max_body * MEGABYTE,
        buffered_bytes=max(256, max_body) * MEGABYTE,
        job_memory=max(1000, 8 * max_body) * MEGABYTE,
        weights=_weights(weights or []),
    )
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    listener = listening_socket(host, port)
    address = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{address}:{listener.getsockname()[1]}/", err=True)
    run(settings, listener)


def _cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _weights(given: list[str]) -> dict[str, str]:
    """Checkpoints by the name of their network."""
    from daco.backbones import NAMES

    found = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or name not in NAMES or not Path(path).is_file():
            raise InputError(
                f"Weights are given as NETWORK=FILE, such as beats=BEATs.pt, with one of "
                f"{', '.join(NAMES)}. Got {text!r} instead."
            )
        found[name] = path
    return found
