"""``daco serve``: the monitor of a plant with its page."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from daco.commands.options import argument, flag, option
from daco.commands.plant import monitor_packages
from daco.errors import InputError


def serve(
    plant: Annotated[
        Path, argument("Use this daco.toml, its folder, or a folder of models (*.daco).")
    ] = Path("."),
    address: Annotated[str | None, option("Listen on this host and port.")] = None,
    database: Annotated[str | None, option("Store results at this database URL.")] = None,
    workers: Annotated[int | None, option("Judge in this many processes.", min=1)] = None,
    check: Annotated[bool, flag("--check", "Print every value and its origin.")] = False,
) -> None:
    """Monitor a plant: judge recordings, store results, raise alarms, send messages, show a page.

    daco prints the address of the page. It loads models again when their files change. Ctrl-C or
    SIGTERM ends the monitor after the work in progress.

    Exit codes: 130 after Ctrl-C, 143 after SIGTERM, 2 a mistake in the call or in daco.toml.
    """
    if os.name != "posix":
        raise InputError("daco serve needs Linux or macOS: it limits its workers with Unix calls.")
    with monitor_packages():
        from daco.monitoring.config import PlantConfig
        from daco.monitoring.engine import Plant
        from daco.monitoring.service.app import listening_socket
        from daco.monitoring.service.app import serve as run

    given = {"address": address, "database": database, "workers": workers}
    config = PlantConfig.load(plant, service=given)
    if check:
        rows = config.origins()
        width = max(len(row.key) for row in rows)
        for row in rows:
            typer.echo(f"{row.key:<{width}}  {row.value}  ({row.origin})")
        return
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    listener = listening_socket(config.service)
    host = f"[{config.service.host}]" if ":" in config.service.host else config.service.host
    monitor = Plant(config)
    typer.echo(f"http://{host}:{listener.getsockname()[1]}/", err=True)
    run(monitor, listener)
