"""``daco serve``: the scoring service and its monitoring page."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from daco.commands.options import AlarmRuleOption, Database, KeepDays, argument, flag, option
from daco.errors import InputError, MissingExtraError


class KeepAudio(StrEnum):
    """Which uploaded recordings are kept."""

    alarms = "alarms"
    all = "all"
    none = "none"


def serve(
    models: Annotated[Path, argument("Serve the model files (*.daco) in this folder.")],
    db: Database = None,
    host: Annotated[
        str, option("Listen on this address. If other computers can reach it, a token is needed.")
    ] = "127.0.0.1",
    port: Annotated[int, option("Listen on this port. 0 takes a free one.")] = 8477,
    token_file: Annotated[
        Path | None,
        option("Read the access token from this file instead of the variable DACO_TOKEN."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option("Allow requests to this host name, such as a proxy's. Repeat it for more."),
    ] = None,
    clips: Annotated[
        Path | None, option("Keep uploads in this folder. The default is clips beside the models.")
    ] = None,
    keep_audio: Annotated[
        KeepAudio, option("Keep anomalous uploads (alarms), all of them, or none.")
    ] = KeepAudio.alarms,
    audio_mb: Annotated[
        int, option("Keep at most this many megabytes of uploads, the newest.", min=1)
    ] = 2000,
    keep_days: KeepDays = None,
    normals: Annotated[
        Path | None, option("Play the normal recordings of this folder on the page.")
    ] = None,
    watched: Annotated[
        list[Path] | None,
        option("Play the recordings of this folder, which daco watch scores. Repeat it for more."),
    ] = None,
    alarm: AlarmRuleOption = "3/5",
    adapt: Annotated[
        bool, flag("--adapt", "Adapt the threshold to each machine, slowly and as people answer.")
    ] = False,
    workers: Annotated[
        int | None, option("Score in this many processes. The default is one per core.", min=1)
    ] = None,
    max_body: Annotated[int, option("Refuse uploads above this size in MB.", min=1, max=1000)] = 32,
    weights: Annotated[
        list[str] | None,
        option(
            "Use this checkpoint instead of the downloaded one, as NETWORK=FILE. Repeat it for "
            "more."
        ),
    ] = None,
) -> None:
    """Score recordings over HTTP, store the results, raise alarms, and show a monitoring page.

    daco prints the address of the page. It loads models again when their files change. Ctrl-C or
    SIGTERM ends the service after the work in progress.

    Exit codes: 130 after Ctrl-C, 143 after SIGTERM, 2 a mistake in the call or the settings.
    """
    import logging

    from daco.commands.console import Output
    from daco.compute.processes import usable_cores
    from daco.detector.modelfile import SUFFIX
    from daco.monitoring.alarms import AlarmRule

    if os.name != "posix":
        raise InputError("daco serve needs Linux or macOS: it limits its workers with Unix calls.")
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
        adapt=adapt,
        workers=workers or usable_cores(),
        max_body=max_body * MEGABYTE,
        buffered_bytes=max(256, max_body) * MEGABYTE,
        job_memory=max(1000, 8 * max_body) * MEGABYTE,
        weights=_parse_weights(weights or []),
    )
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    listener = listening_socket(host, port)
    address = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{address}:{listener.getsockname()[1]}/", err=True)
    if not any(models.glob(f"*{SUFFIX}")):
        errors, command = Output(stderr=True), "daco fit RECORDINGS --out"
        errors.notes(
            [f"{models} holds no model yet. The service loads a model as soon as you make one:"]
        )
        errors.write(f"  {command} {models / f'NAME{SUFFIX}'}", wrap=False)
    run(settings, listener)


def _parse_weights(given: list[str]) -> dict[str, str]:
    """Checkpoint files by the name of their network."""
    from daco.backbones.installed import network_names

    files, known = {}, network_names() if given else ()
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or name not in known or not Path(path).is_file():
            raise InputError(
                f"Give --weights as NETWORK=FILE, such as beats=BEATs.pt, with one of "
                f"{', '.join(known)} and a file that exists. Got {text!r} instead."
            )
        files[name] = path
    return files
