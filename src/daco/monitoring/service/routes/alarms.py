"""Alarms, and those who answer for them."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from daco.errors import InputError
from daco.monitoring.service.context import service_of
from daco.monitoring.service.problems import Problem, as_responses, not_found
from daco.monitoring.service.routes.parameters import LARGEST_ID, RowId
from daco.monitoring.service.schemas import Acknowledged, Acknowledgement, Alarms
from daco.monitoring.service.settings import MACHINE_ID

router = APIRouter(tags=["alarms"])


@router.get(
    "/v1/alarms",
    summary="Alarms",
    response_model=Alarms,
    responses=as_responses(401, 422, 503),
)
def alarms(
    request: Request,
    machine: Annotated[
        str | None, Query(pattern=f"^{MACHINE_ID.pattern}$", description="Only of this machine.")
    ] = None,
    open_only: Annotated[
        bool, Query(alias="open", description="Only those nobody has dealt with.")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        int | None, Query(ge=1, le=LARGEST_ID, description="Only with a smaller id.")
    ] = None,
) -> JSONResponse:
    """Alarms, the newest first."""
    store = service_of(request).store
    found = store.alarms(machine, open_only=open_only, limit=limit, before=before)
    return JSONResponse({"alarms": [alarm.to_dict() for alarm in found]})


@router.post(
    "/v1/alarms/{alarm_id}/acknowledge",
    summary="Acknowledge an alarm",
    response_model=Acknowledged,
    responses=as_responses(400, 401, 403, 404, 422, 503),
)
async def acknowledge(request: Request, alarm_id: RowId, said: Acknowledgement) -> JSONResponse:
    """Say that someone has seen to it; an open alarm is closed, and a new one needs new clips."""
    service = service_of(request)
    if await asyncio.to_thread(service.store.alarm, alarm_id) is None:
        raise not_found(f"There is no alarm {alarm_id}.")
    try:
        alarm = await asyncio.to_thread(
            service.store.acknowledge, alarm_id, said.by.strip(), said.comment
        )
    except InputError as error:
        raise Problem(400, str(error)) from None
    service.feed.wake()
    return JSONResponse({"alarm": alarm.to_dict()})
