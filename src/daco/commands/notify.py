"""``daco notify``: who gets messages, what waits, and a test message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daco.commands.console import Output
from daco.commands.options import flag
from daco.commands.plant import PlantPath, monitor_packages
from daco.errors import InputError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.monitoring.config import PlantConfig

_NOBODY = "nobody gets messages. Add urls, mqtt or webhook below [notify]."
_SHOWN = 20


def notify(
    plant: PlantPath = Path("."),
    test: Annotated[bool, flag("--test", "Send a test message to every receiver.")] = False,
    resend: Annotated[bool, flag("--resend", "Send refused messages again.")] = False,
) -> None:
    """Show who gets messages and what waits for them, or send a test message.

    A receiver that refuses a message for good (an answer of 4xx) gets it no more: daco sets it
    aside and lists it here. After you have mended the address, --resend sends it again.

    Exit codes: 0 success, 3 a test message was not delivered, 2 a mistake in the call.
    """
    with monitor_packages():
        from daco.monitoring.config import PlantConfig
        from daco.monitoring.notify import send_test

    console = Output()
    config = PlantConfig.load(plant)
    if not test:
        _show_outbox(console, config, resend)
        return
    results = send_test(config)
    if not results:
        raise InputError(_NOBODY, path=plant)
    for result in results:
        how = "sent" if result.error is None else f"NOT SENT: {result.error}"
        console.write(f"{result.label}: {how}", wrap=False)
    if any(result.error is not None for result in results):
        raise typer.Exit(3)


def _show_outbox(console: Output, config: PlantConfig, resend: bool) -> None:
    """Receivers with the number of their messages, and the refused ones."""
    from daco.monitoring.notify.deliver import connect
    from daco.monitoring.store import Store

    labels = {each.name: each.label for each in connect(config)}
    if not labels:
        console.write(f"Here {_NOBODY}")
        return
    with Store.open(config.service.database) as store:
        waiting, refused = store.outbox.pending(), store.outbox.pending(refused=True)
        rows = [
            {"receiver": label, "waiting": waiting.get(name, 0), "refused": refused.get(name, 0)}
            for name, label in labels.items()
        ]
        console.table(rows, ["receiver"], ["waiting", "refused"])
        messages = store.outbox.refused(10_000)
        for message in messages[:_SHOWN]:
            when = f"{message.created_at.astimezone():%Y-%m-%d %H:%M}"
            label = labels.get(message.receiver, message.receiver)
            console.write(f"{when} {message.kind}: {label} {message.last_error}", wrap=False)
        if resend:
            for message in messages:
                store.outbox.resend(message.id)
            console.write(f"{quantity(messages, 'message')} will be sent again by daco serve.")
