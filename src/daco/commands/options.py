"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

DomainLevel = Annotated[
    int | None,
    typer.Option(
        help="Folder level of a plain folder that names the domains; 0: one domain. Default: 1.",
        min=0,
    ),
]
"""Which folders are operating conditions, for every command that reads a folder."""
