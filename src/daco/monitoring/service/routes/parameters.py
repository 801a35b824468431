"""Parameters that several routes share."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query

from daco.monitoring.service.context import Service
from daco.monitoring.service.machines import Machine
from daco.monitoring.service.problems import not_found
from daco.monitoring.service.settings import MACHINE_ID

LARGEST_ID = 2**63 - 1

MachineId = Annotated[
    str,
    Path(
        pattern=f"^{MACHINE_ID.pattern}$",
        description="The stem of the model's file.",
        examples=["press"],
    ),
]
RowId = Annotated[int, Path(ge=1, le=LARGEST_ID)]
Theme = Annotated[Literal["light", "dark"], Query(description="Of the page it is shown on.")]


def machine_of(service: Service, machine: str) -> Machine:
    """A machine that is served now, or the answer that there is none."""
    known = service.registry.get(machine)
    if known is None:
        raise not_found(f"There is no machine {machine!r}.")
    return known
