"""The shift report: one page to print, with alarms, answers and availability."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from daco.monitoring.engine import Plant
from daco.monitoring.service.context import TheService, Viewer, failures
from daco.monitoring.store import StoredAlarm

_HOUR = timedelta(hours=1)

router = APIRouter(responses=failures(401, 403, 421, 422, 429, 503))

_HTML: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}}}


@router.get("/v1/report", response_class=Response, responses=_HTML)
def shift_report(
    service: TheService,
    _: Viewer,
    hours: Annotated[int, Query(ge=1, le=744, description="Length of the shift.")] = 8,
) -> Response:
    """One page about the last hours: alarms, answers, and how long each machine was heard."""
    now = datetime.now(UTC)
    page = report(service.plant, now - timedelta(hours=hours), now)
    return Response(page, media_type="text/html; charset=utf-8")


def report(plant: Plant, since: datetime, until: datetime) -> str:
    """The report of a time as HTML; times are in the zone of this computer."""
    titles = {name: machine.name for name, machine in plant.config.machine.items()}
    alarms = [
        each
        for each in reversed(plant.store.alarms(limit=1000))
        if each.opened_at < until and (each.cleared_at is None or each.cleared_at >= since)
    ]
    machines = []
    for name, title in titles.items():
        points = plant.store.trend(name, "hour", since.replace(minute=0, second=0), until)
        own = [each for each in alarms if each.machine == name]
        notes = [each for each in plant.store.notes(name) if since <= each.at < until]
        machines.append(
            {
                "title": title,
                "alarms": len(own),
                "notes": notes,
                "hours": sum(each.clips > 0 for each in points),
                "clips": sum(each.clips for each in points),
                "anomalous": sum(each.anomalous for each in points),
                "oddest": max((each.oddness_max or 0.0 for each in points), default=0.0),
            }
        )
    environment = Environment(
        loader=PackageLoader("daco.monitoring.service", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["local"] = _local
    return environment.get_template("report.html").render(
        since=since,
        until=until,
        written=datetime.now(UTC),
        hours=max(1, round((until - since) / _HOUR)),
        machines=machines,
        alarms=[_row(each, titles) for each in alarms],
    )


def _row(alarm: StoredAlarm, titles: dict[str, str]) -> dict[str, Any]:
    if alarm.cleared_at is not None:
        state = f"over since {_local(alarm.cleared_at)}"
    elif alarm.acknowledged_at is not None:
        state = f"open, acknowledged by {alarm.acknowledged_by}"
    else:
        state = "open, nobody has acknowledged it"
    return {
        "title": titles.get(alarm.machine or "", alarm.machine or "daco"),
        "alarm": alarm,
        "state": state,
    }


def _local(time: datetime) -> str:
    return f"{time.astimezone():%d %b %Y, %H:%M}"
