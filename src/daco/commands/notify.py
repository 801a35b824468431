"""``daco notify``: who gets messages, what waits, and a test message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daco.commands.console import Output, new_table
from daco.commands.options import argument, flag
from daco.errors import InputError, MissingExtraError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.monitoring.config import PlantConfig


def notify(
    plant: Annotated[Path, argument("Use this daco.toml, or the one in this folder.")] = Path("."),
    test: Annotated[bool, flag("--test", "Send a test message to every receiver.")] = False,
    resend: Annotated[
        bool, flag("--resend", "Send messages again that a receiver has refused.")
    ] = False,
) -> None:
    """Show who gets messages and what waits for them, or send a test message.

    A receiver that refuses a message for good (an answer of 4xx) gets it no more: daco sets it
    aside and lists it here. After you have mended the address, --resend sends it again.

    Exit codes: 0 success, 3 a test message was not delivered, 2 a mistake in the call.
    """
    try:
        from daco.monitoring.config import PlantConfig
        from daco.monitoring.notify import send_test
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f'Messages need more packages ({error.name}): pip install "daco-asd[serve]".'
        ) from None

    console = Output()
    config = PlantConfig.load(plant)
    if test:
        results = send_test(config)
        if not results:
            raise InputError(_NOBODY, path=plant)
        for result in results:
            how = "sent" if result.error is None else f"NOT SENT: {result.error}"
            console.write(f"{result.label}: {how}", wrap=False)
        if any(result.error is not None for result in results):
            raise typer.Exit(3)
        return
    _show_outbox(console, config, resend)


_NOBODY = "nobody gets messages. Add urls, mqtt or webhook below [notify]."


def _show_outbox(console: Output, config: PlantConfig, resend: bool) -> None:
    """Receivers with the number of their messages, and the refused ones."""
    from daco.monitoring.notify.deliver import connect
    from daco.monitoring.store import Store

    labels = {each.name: each.label for each in connect(config)}
    if not labels:
        console.write(f"Here {_NOBODY}")
        return
    with Store.open(config.service.database) as store:
        pending, refused = store.outbox.pending(), store.outbox.pending(refused=True)
        table = new_table(["receiver"], ["waiting", "refused"], pad_edge=False)
        for name, label in labels.items():
            table.add_row(label, str(pending.get(name, 0)), str(refused.get(name, 0)))
        console.print(table)
        messages = store.outbox.refused(10_000)
        for message in messages[:20]:
            when = f"{message.created_at.astimezone():%Y-%m-%d %H:%M}"
            label = labels.get(message.receiver, message.receiver)
            console.write(f"{when} {message.kind}: {label} {message.last_error}", wrap=False)
        if resend:
            for message in messages:
                store.outbox.resend(message.id)
            console.write(f"{quantity(messages, 'message')} will be sent again by daco serve.")
