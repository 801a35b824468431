"""Machines and their histories."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from daco.monitoring.service.context import service_of
from daco.monitoring.service.problems import as_responses, not_found
from daco.monitoring.service.routes.parameters import LARGEST_ID, MachineId, RowId, machine_of
from daco.monitoring.service.schemas import History, Machines, OneClip

router = APIRouter(tags=["machines"])


@router.get(
    "/v1/machines",
    summary="All machines at a glance",
    response_model=Machines,
    responses=as_responses(401, 503),
)
def machines(request: Request) -> JSONResponse:
    """Every machine with its model, status, last clip, counts and drift; ordered by id."""
    service = service_of(request)
    problems = dict(service.registry.snapshot.problems)
    return JSONResponse({"machines": service.overview.machines(), "problems": problems})


@router.get(
    "/v1/machines/{machine}/history",
    summary="Clips of a machine",
    response_model=History,
    responses=as_responses(401, 404, 422, 503),
)
def history(
    request: Request,
    machine: MachineId,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        int | None, Query(ge=1, le=LARGEST_ID, description="The `next` of the last page.")
    ] = None,
    since: Annotated[
        datetime | None,
        Query(description="ISO 8601; UTC where no zone is given.", examples=["2026-03-01T00:00Z"]),
    ] = None,
) -> JSONResponse:
    """A page of clips, the newest first."""
    service = service_of(request)
    machine_of(service, machine)
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    found = service.store.clips(machine, limit, before=before, since=since)
    page: dict[str, Any] = {
        "clips": [service.overview.clip(clip) for clip in found],
        "next": found[-1].id if len(found) == limit else None,
    }
    return JSONResponse(page)


@router.get(
    "/v1/clips/{clip_id}",
    summary="One clip",
    response_model=OneClip,
    responses=as_responses(401, 404, 422, 503),
)
def clip(request: Request, clip_id: RowId) -> JSONResponse:
    """A stored clip."""
    service = service_of(request)
    stored = service.store.clip(clip_id)
    if stored is None:
        raise not_found(f"There is no clip {clip_id}.")
    return JSONResponse({"clip": service.overview.clip(stored)})
