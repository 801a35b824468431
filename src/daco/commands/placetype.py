"""Arguments of commands that name a file or folder here or on a remote file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from daco.errors import InputError
from daco.files.remote import parse_location

if TYPE_CHECKING:
    from daco.files.remote import Location as Place
else:

    class Place:
        """Typer knows no unions; its parser makes either."""

    Place.__name__ = "path"  # which is what the help calls it

__all__ = ["Place", "as_place"]


def as_place(value: str) -> Place:
    """The parser of such an argument: typer's own would take a slash out of ``s3://``."""
    try:
        return parse_location(value)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
