"""Routes for what people say: answers to clips and alarms, and that a machine is healthy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from daco.errors import InputError
from daco.monitoring.service import schemas
from daco.monitoring.service.context import Service, TheMachine, TheService
from daco.monitoring.service.routes import RowId
from daco.monitoring.service.schemas import Problem, failures
from daco.monitoring.store.records import MissingRowError

router = APIRouter(tags=["people"], responses=failures(400, 401, 403, 404, 422, 503))


@router.post("/v1/alarms/{alarm_id}/acknowledge", response_model=schemas.OneAlarm)
async def acknowledge(
    service: TheService, alarm_id: RowId, body: schemas.Acknowledgement
) -> dict[str, Any]:
    """Record who takes care of it; an open alarm is closed, and a new one needs new clips."""
    alarm = await _store(service.store.acknowledge, alarm_id, body.by, body.comment)
    return await _publish(service, alarm.machine, alarm=alarm.to_dict())


@router.post("/v1/alarms/{alarm_id}/answer", response_model=schemas.OneAlarm)
async def answer_alarm(
    service: TheService, alarm_id: RowId, body: schemas.GivenAnswer
) -> dict[str, Any]:
    """Record that an alarm was false or a fault, for all of its clips; it is acknowledged."""
    record = service.store.people.answer_alarm
    alarm = await _store(record, alarm_id, body.answer, body.by, body.comment)
    return await _publish(service, alarm.machine, alarm=alarm.to_dict())


@router.post("/v1/clips/{clip_id}/answer", response_model=schemas.OneClip)
async def answer_clip(
    service: TheService, clip_id: RowId, body: schemas.GivenAnswer
) -> dict[str, Any]:
    """Record that a clip was a false alarm or has a fault; the last answer counts."""
    record = service.store.people.answer_clip
    clip = await _store(record, clip_id, body.answer, body.by, body.comment)
    return await _publish(service, clip.machine, clip=service.overview.clip(clip))


@router.get("/v1/machines/{machine}/feedback", response_model=schemas.Feedback)
def feedback(service: TheService, machine: TheMachine) -> dict[str, Any]:
    """The realised rates of the present model, by the answers of people, and these."""
    people = service.store.people
    rates = people.rates(machine.id, machine.model_sha256)
    return {"rates": rates, "sentences": rates.sentences(), "answers": people.answers(machine.id)}


@router.post("/v1/machines/{machine}/healthy", response_model=schemas.Adapted)
async def declare_healthy(
    service: TheService, machine: TheMachine, body: schemas.Declaration
) -> dict[str, Any]:
    """Take the next clips as those of a healthy machine: decisions follow them fast."""
    _require_adapting(service)
    model = {"model_sha256": machine.model_sha256, "rate": machine.false_alarm_rate}
    record = service.store.people.declare_healthy
    state = await _store(record, machine.id, body.clips, body.by, **model)
    await _publish(service, machine.id)
    return service.overview.adapted(machine, state)


@router.post("/v1/machines/{machine}/reset", response_model=schemas.Adapted)
async def reset(service: TheService, machine: TheMachine) -> dict[str, Any]:
    """Forget what was learned about a machine: its model alone decides again."""
    _require_adapting(service)
    await _store(service.store.people.reset, machine.id)
    await _publish(service, machine.id)
    return service.overview.adapted(machine, None)


def _require_adapting(service: Service) -> None:
    if not service.settings.adapt:
        raise Problem(400, "The service does not adapt decisions: start it with --adapt.")


async def _store(record: Callable[..., Any], *values: Any, **known: Any) -> Any:
    try:
        return await asyncio.to_thread(record, *values, **known)
    except InputError as error:
        status = 404 if isinstance(error, MissingRowError) else 400
        raise Problem(status, str(error)) from None


async def _publish(service: Service, machine: str, **changed: dict[str, Any]) -> dict[str, Any]:
    """Publish what has changed, and the machine as it is now."""
    for each in await asyncio.to_thread(service.overview.machines, [machine]):
        service.hub.publish("machine", each)
    for kind, document in changed.items():
        service.hub.publish(kind, document)
    return changed
