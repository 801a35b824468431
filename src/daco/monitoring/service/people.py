"""Routes for what people say and do; each is recorded with the name of their token."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from fastapi import APIRouter
from starlette.responses import Response

from daco.monitoring.config import MachineConfig
from daco.monitoring.service import schemas
from daco.monitoring.service.context import (
    Administrator,
    Operator,
    RowId,
    Service,
    TheMachine,
    TheService,
    Viewer,
)
from daco.monitoring.service.problems import Problem, busy, failures, in_utc

router = APIRouter(
    tags=["people"],
    responses=failures(400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 503),
)


@router.post("/v1/alarms/{alarm_id}/answer", response_model=schemas.OneAlarm)
async def answer_alarm(
    service: TheService, alarm_id: RowId, who: Operator, body: schemas.GivenAnswer
) -> dict[str, Any]:
    """Record that an alarm was false or a fault, for all of its clips; it is acknowledged."""
    record = service.people.answer_alarm
    return await _alarm(service, record, alarm_id, body.answer, who, body.comment)


@router.post("/v1/alarms/{alarm_id}/{action}", response_model=schemas.OneAlarm)
async def act(
    service: TheService,
    alarm_id: RowId,
    action: Literal["acknowledge", "shelve", "unshelve", "clear"],
    who: Operator,
    body: schemas.AlarmAction,
) -> dict[str, Any]:
    """Do something about an alarm.

    An acknowledged alarm stays open until its cause is over. A shelved one is active again after
    `minutes` if its cause lasts. One that is cleared by hand needs new recordings to open again.
    """
    people = service.people
    if action == "shelve":
        until = datetime.now(UTC) + timedelta(minutes=body.minutes)
        return await _alarm(service, people.shelve, alarm_id, until, who, body.comment)
    if action == "unshelve":
        return await _alarm(service, people.unshelve, alarm_id, who)
    record = people.acknowledge if action == "acknowledge" else people.clear
    return await _alarm(service, record, alarm_id, who, body.comment)


@router.post("/v1/clips/{clip_id}/answer", response_model=schemas.OneClip)
async def answer_clip(
    service: TheService, clip_id: RowId, who: Operator, body: schemas.GivenAnswer
) -> dict[str, Any]:
    """Record that a clip was a false alarm or has a fault; the last answer counts."""
    record = service.people.answer_clip
    clip = await service.run(record, clip_id, body.answer, who, body.comment)
    return {"clip": await service.run(service.overview.clip, clip)}


@router.delete("/v1/clips/{clip_id}", status_code=204, response_class=Response)
async def delete_clip(service: TheService, clip_id: RowId, who: Administrator) -> Response:
    """Delete a clip with its recording; who did it stays known."""
    await service.run(service.plant.delete_clip, clip_id, who)
    return Response(status_code=204)


@router.get("/v1/machines/{machine}/feedback", response_model=schemas.Feedback)
async def feedback(service: TheService, machine: TheMachine, _: Viewer) -> dict[str, Any]:
    """How often decisions of the present model were right, by the answers of people."""
    model = await service.run(service.plant.models.get, machine.id)
    if model is None:
        return {"sentences": []}
    rates = await service.run(service.store.rates, machine.id, model.info.sha256)
    return {"sentences": rates.sentences()}


@router.post("/v1/machines/{machine}/healthy", response_model=schemas.Adaptation)
async def declare_healthy(
    service: TheService, machine: TheMachine, who: Operator, body: schemas.Declaration
) -> dict[str, Any]:
    """Take the next recordings as those of a healthy machine: the alarm limit follows them."""
    _require_adapting(service, machine)
    model = await service.run(service.plant.models.get, machine.id)
    if model is None:
        raise busy("The model of this machine cannot be used at the moment.")
    of_model = {"model_sha256": model.info.sha256, "rate": model.info.false_alarm_rate}
    record = service.people.declare_healthy
    state = await service.run(record, machine.id, body.clips, who, **of_model)
    return {"sentence": state.sentence(), "left": state.left}


@router.post("/v1/machines/{machine}/reset", status_code=204, response_class=Response)
async def reset(service: TheService, machine: TheMachine, who: Operator) -> Response:
    """Forget what was learned about a machine: its model alone decides again."""
    _require_adapting(service, machine)
    await service.run(service.people.reset, machine.id, who)
    return Response(status_code=204)


@router.post("/v1/machines/{machine}/service", response_model=schemas.OneMachine)
async def out_of_service(
    service: TheService, machine: TheMachine, who: Administrator, body: schemas.Service
) -> dict[str, Any]:
    """Take a machine out of service, or back: judged and stored, without alarms and messages."""
    record = service.people.set_out_of_service
    await service.run(record, machine.id, body.out, who, body.comment)
    (document,) = await service.run(service.overview.machines, [machine.id])
    return {"machine": document}


@router.get("/v1/machines/{machine}/notes", response_model=schemas.Notes)
async def list_notes(service: TheService, machine: TheMachine, _: Viewer) -> dict[str, Any]:
    """What people wrote about a machine, the newest first."""
    return {"notes": await service.run(service.store.notes, machine.id)}


@router.post("/v1/machines/{machine}/notes", response_model=schemas.Note)
async def add_note(
    service: TheService, machine: TheMachine, who: Operator, body: schemas.NewNote
) -> Any:
    """Write a note about a machine at a time, such as 'bearing changed'."""
    at = None if body.at is None else in_utc(body.at)
    return await service.run(service.people.add_note, machine.id, body.text, who, at=at)


@router.get("/v1/messages", response_model=schemas.Messages)
async def list_messages(service: TheService, _: Viewer) -> dict[str, Any]:
    """Messages that wait, by receiver, and those that were refused and set aside."""
    return await service.run(service.overview.messages)


@router.post("/v1/messages/test", response_model=schemas.Tested)
async def send_test(service: TheService, who: Administrator) -> dict[str, Any]:
    """Send a test message to every receiver, and say what became of it."""
    await service.run(service.people.audit, who, "test message")
    return {"results": await service.run(service.overview.send_test)}


@router.post("/v1/messages/{message_id}/{action}", status_code=204, response_class=Response)
async def settle_message(
    service: TheService,
    message_id: RowId,
    action: Literal["resend", "discard"],
    who: Administrator,
) -> Response:
    """Send a message again that was set aside, or remove it."""
    await service.run(getattr(service.store.outbox, action), message_id)
    await service.run(service.people.audit, who, f"{action} message", f"message {message_id}")
    service.plant.notifier.wake()
    return Response(status_code=204)


def _require_adapting(service: Service, machine: MachineConfig) -> None:
    adapts = service.config.adapt if machine.adapt is None else machine.adapt
    if not adapts:
        raise Problem(
            409, "The alarm limit of this machine is not adapted: set adapt = true in daco.toml."
        )


async def _alarm(service: Service, record: Any, *values: Any) -> dict[str, Any]:
    return {"alarm": await service.run(record, *values)}
