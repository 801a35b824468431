"""Routes for what clients see and what people do; each action carries the name of its token."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse

from daco.errors import AudioError
from daco.monitoring import worker
from daco.monitoring.notify import send_test
from daco.monitoring.service import schemas
from daco.monitoring.service.context import (
    LARGEST_ID,
    Administrator,
    Operator,
    RowId,
    Service,
    TheMachine,
    TheService,
    Viewer,
    failures,
    in_utc,
)
from daco.monitoring.service.sounds import MEDIA_TYPES, normal_recording
from daco.monitoring.store import StoredClip
from daco.monitoring.store.records import Note

SAMPLE_RATE = 16000
"""Of pictures of clips whose machine has no model."""

router = APIRouter(responses=failures(400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 503))

Index = Annotated[int, PathParameter(ge=0, le=1_000_000, description="Row of the model.")]
PageSize = Annotated[int, Query(ge=1, le=1000)]
Before = Annotated[
    int | None, Query(ge=1, le=LARGEST_ID, description="Only smaller ids: the `next` of a page.")
]
Time = Annotated[datetime | None, Query(description="ISO 8601; UTC where no zone is given.")]

_AUDIO: dict[int | str, dict[str, Any]] = {
    200: {"content": {"audio/wav": {}, "audio/flac": {}}, "description": "The recording."},
    206: {"description": "The part of it that a `Range` asked for."},
    416: {"description": "It has no such range."},
}
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The table."}
}
_NOT_KEPT = {
    "anomalous": "only recordings that sound different are, and the oldest go first.",
    "all": "it was removed to make room for newer ones.",
    "none": "keep_audio is none in daco.toml.",
}
# A clip's recording never changes; only this browser may keep it.
_CACHED = {"Cache-Control": "private, max-age=3600"}
# A row of the model is another recording once the model has changed.
_NOT_CACHED = {"Cache-Control": "private, no-cache"}


@router.get("/v1/machines")
def list_machines(service: TheService, _: Viewer) -> schemas.Machines:
    """Every machine with its status, last clip, counts and problems; in the order of daco.toml."""
    last = service.store.changes().last
    return schemas.Machines(machines=service.overview.machines(), last=last)


@router.get("/v1/changes")
def list_changes(
    service: TheService,
    _: Viewer,
    after: Annotated[int, Query(ge=0, le=LARGEST_ID, description="The `last` of an answer.")],
) -> schemas.Changes:
    """The clips, alarms and machines that have changed after a number."""
    return service.overview.changes(after)


@router.get("/v1/machines/{machine}/history")
def list_clips(
    service: TheService,
    machine: TheMachine,
    _: Viewer,
    limit: PageSize = 100,
    before: Before = None,
    since: Time = None,
    until: Time = None,
) -> schemas.History:
    """A page of clips, the last received first; with `since` or `until` the last recorded."""
    clips = service.store.clips(
        machine.id, limit, before=before, since=in_utc(since), until=in_utc(until)
    )
    following = clips[-1].id if len(clips) == limit else None
    return schemas.History(clips=[service.overview.clip(each) for each in clips], next=following)


@router.get("/v1/machines/{machine}/history.csv", response_class=Response, responses=_CSV)
def export_clips(
    service: TheService, machine: TheMachine, _: Viewer, since: Time = None, until: Time = None
) -> Response:
    """The last 10,000 clips of a time as a table for spreadsheets, the last recorded first."""
    table = service.overview.table(machine.id, since=in_utc(since), until=in_utc(until))
    name = {"Content-Disposition": f'attachment; filename="{quote(machine.id)}.csv"'}
    return Response(table, media_type="text/csv; charset=utf-8", headers=name)


@router.get("/v1/machines/{machine}/trend", response_model=schemas.Trend)
def read_trend(
    service: TheService,
    machine: TheMachine,
    _: Viewer,
    period: Literal["hour", "day"] = "day",
    since: Time = None,
    until: Time = None,
) -> Any:
    """Oddness and counts by hour or day of recording (UTC), and the notes of people."""
    points = service.store.trend(machine.id, period, in_utc(since), in_utc(until))
    return {"points": points, "notes": service.store.notes(machine.id)}


@router.get("/v1/machines/{machine}/feedback")
def feedback(service: TheService, machine: TheMachine, _: Viewer) -> schemas.Feedback:
    """How often decisions of the present model were right, by the answers of people."""
    model = service.plant.models.get(machine.id)
    rates = model and service.store.rates(machine.id, model.info.sha256)
    return schemas.Feedback(sentences=rates.sentences() if rates else [])


@router.post("/v1/machines/{machine}/healthy")
def declare_healthy(
    service: TheService, machine: TheMachine, who: Operator, body: schemas.Declaration
) -> schemas.Adaptation:
    """Take the next recordings as those of a healthy machine: the alarm limit follows them."""
    info = service.plant.model(machine.id).info
    state = service.store.people.declare_healthy(
        machine.id, body.clips, who, model_sha256=info.sha256, rate=info.false_alarm_rate
    )
    return schemas.Adaptation(sentence=state.sentence(), left=state.left)


@router.post("/v1/machines/{machine}/reset", status_code=204, response_class=Response)
def reset(service: TheService, machine: TheMachine, who: Operator) -> None:
    """Forget what was learned about a machine: its model alone decides again."""
    service.store.people.reset(machine.id, who)


@router.post("/v1/machines/{machine}/service")
def out_of_service(
    service: TheService, machine: TheMachine, who: Administrator, body: schemas.Service
) -> schemas.OneMachine:
    """Take a machine out of service, or back: judged and stored, without alarms and messages."""
    service.store.people.set_out_of_service(machine.id, body.out, who, body.comment)
    (shown,) = service.overview.machines([machine.id])
    return schemas.OneMachine(machine=shown)


@router.post("/v1/machines/{machine}/notes", response_model=Note)
def add_note(service: TheService, machine: TheMachine, who: Operator, body: schemas.NewNote) -> Any:
    """Write a note about a machine at a time, such as 'bearing changed'."""
    return service.store.people.add_note(machine.id, body.text, who, at=in_utc(body.at))


@router.get("/v1/machines/{machine}/normals", response_model=schemas.Normals)
async def list_normals(
    service: TheService,
    machine: TheMachine,
    _: Viewer,
    limit: PageSize = 20,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Any:
    """A page of the model's healthy recordings, the most suspicious first.

    `row` is that of `/normals/{index}`; `p_value` the share of the condition's recordings that
    score as high; `warning` says what is suspicious. `daco update --remove` removes one.
    """
    rows = await service.judge(
        service.plant.judge.ask, service.plant.model(machine.id), worker.normals
    )
    end = offset + limit
    following = end if end < len(rows) else None
    return {"normals": rows[offset:end], "total": len(rows), "next": following}


@router.get(
    "/v1/machines/{machine}/normals/{index}/audio", response_class=FileResponse, responses=_AUDIO
)
def normal_audio(service: TheService, machine: TheMachine, index: Index, _: Viewer) -> FileResponse:
    """A healthy recording of the model, where `healthy` is set for the machine in daco.toml.

    It is sent only if its content is the same as when the model was made.
    """
    path = normal_recording(machine, service.plant.model(machine.id), index)
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()], headers=_NOT_CACHED)


@router.get("/v1/machines/{machine}/normals/{index}/picture", response_model=schemas.Picture)
async def normal_picture(service: TheService, machine: TheMachine, index: Index, _: Viewer) -> Any:
    """The spectrogram of a healthy recording, as numbers."""
    model = service.plant.model(machine.id)
    path = await service.judge(normal_recording, machine, model, index)
    return await _picture(service, path, machine.id)


@router.get("/v1/clips/{clip_id}")
def read_clip(service: TheService, clip_id: RowId, _: Viewer) -> schemas.OneClip:
    """A stored clip."""
    return schemas.OneClip(clip=service.overview.clip(_clip(service, clip_id)))


@router.delete("/v1/clips/{clip_id}", status_code=204, response_class=Response)
def delete_clip(service: TheService, clip_id: RowId, who: Administrator) -> None:
    """Delete a clip with its recording; who did it stays known."""
    service.plant.delete_clip(clip_id, who)


@router.post("/v1/clips/{clip_id}/answer")
def answer_clip(
    service: TheService, clip_id: RowId, who: Operator, body: schemas.GivenAnswer
) -> schemas.OneClip:
    """Record that a clip was a false alarm or has a fault; the last answer counts."""
    clip = service.store.people.answer_clip(clip_id, body.answer, who, body.comment)
    return schemas.OneClip(clip=service.overview.clip(clip))


@router.get("/v1/clips/{clip_id}/audio", response_class=FileResponse, responses=_AUDIO)
def clip_audio(service: TheService, clip_id: RowId, _: Viewer) -> FileResponse:
    """The recording as it arrived, where it was kept; ranges are supported."""
    path = _recording(service, _clip(service, clip_id))
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()], headers=_CACHED)


@router.get("/v1/clips/{clip_id}/picture", response_model=schemas.Picture)
async def clip_picture(service: TheService, clip_id: RowId, _: Viewer, response: Response) -> Any:
    """The spectrogram of a recording, as numbers."""
    clip = await service.judge(_clip, service, clip_id)
    path = await service.judge(_recording, service, clip)
    response.headers.update(_CACHED)
    return await _picture(service, path, clip.machine)


@router.get("/v1/alarms")
def list_alarms(
    service: TheService,
    _: Viewer,
    machine: Annotated[
        str | None, Query(pattern=r"^[\w.-]{1,100}$", description="Only of this machine.")
    ] = None,
    open_only: Annotated[
        bool, Query(alias="open", description="Without those that are over and acknowledged.")
    ] = False,
    limit: PageSize = 100,
    before: Before = None,
) -> schemas.Alarms:
    """Alarms, the newest first."""
    alarms = service.store.alarms(machine, listed_only=open_only, limit=limit, before=before)
    return schemas.Alarms(alarms=alarms)


@router.post("/v1/alarms/{alarm_id}/answer")
def answer_alarm(
    service: TheService, alarm_id: RowId, who: Operator, body: schemas.GivenAnswer
) -> schemas.OneAlarm:
    """Record that an alarm was false or a fault, for all of its clips; it is acknowledged."""
    alarm = service.store.people.answer_alarm(alarm_id, body.answer, who, body.comment)
    return schemas.OneAlarm(alarm=alarm)


@router.post("/v1/alarms/{alarm_id}/{action}")
def act(
    service: TheService,
    alarm_id: RowId,
    action: Literal["acknowledge", "shelve", "unshelve", "clear"],
    who: Operator,
    body: schemas.AlarmAction,
) -> schemas.OneAlarm:
    """Do something about an alarm.

    An acknowledged alarm stays open until its cause is over. A shelved one is active again after
    `minutes` if its cause lasts. One that is cleared by hand needs new recordings to open again.
    """
    people = service.store.people
    if action == "shelve":
        until = datetime.now(UTC) + timedelta(minutes=body.minutes)
        alarm = people.shelve(alarm_id, until, who, body.comment)
    elif action == "unshelve":
        alarm = people.unshelve(alarm_id, who)
    elif action == "acknowledge":
        alarm = people.acknowledge(alarm_id, who, body.comment)
    else:
        alarm = people.clear(alarm_id, who, body.comment)
    return schemas.OneAlarm(alarm=alarm)


@router.get("/v1/messages")
def list_messages(service: TheService, _: Viewer) -> schemas.Messages:
    """Messages that wait, by receiver, and those that were refused and set aside."""
    return service.overview.messages()


@router.post("/v1/messages/test")
def test_messages(service: TheService, who: Administrator) -> schemas.Tested:
    """Send a test message to every receiver, and say what became of it."""
    service.store.people.audit(who, "test message")
    results = {each.label: each.error for each in send_test(service.plant.config)}
    return schemas.Tested(results=results)


@router.post("/v1/messages/{message_id}/{action}", status_code=204, response_class=Response)
def settle_message(
    service: TheService,
    message_id: RowId,
    action: Literal["resend", "discard"],
    who: Administrator,
) -> None:
    """Send a message again that was set aside, or remove it."""
    outbox = service.store.outbox
    (outbox.resend if action == "resend" else outbox.discard)(message_id)
    service.store.people.audit(who, f"{action} message", f"message {message_id}")
    service.plant.notifier.wake()


@router.get("/v1/audit", response_model=schemas.Audit)
def list_audit(
    service: TheService, _: Administrator, limit: PageSize = 100, before: Before = None
) -> Any:
    """Who did what, the newest first."""
    return {"entries": service.store.audit(limit, before)}


def _clip(service: Service, clip_id: int) -> StoredClip:
    clip = service.store.clip(clip_id)
    if clip is None:
        raise HTTPException(404, f"There is no clip {clip_id}.")
    return clip


def _recording(service: Service, clip: StoredClip) -> Path:
    path = service.plant.audio(clip)
    if path is None or path.suffix.lower() not in MEDIA_TYPES:
        reason = _NOT_KEPT[service.config.keep_audio]
        raise HTTPException(404, f"The recording is not kept: {reason}")
    return path


async def _picture(service: Service, path: Path, machine: str) -> dict[str, Any]:
    known = machine in service.plant.config.machine
    model = service.plant.models.get(machine) if known else None
    try:
        return await service.draw(path, (model and model.info.sample_rate) or SAMPLE_RATE)
    except AudioError as error:
        detail = f"There is no picture of this recording: {error.reason}"
        raise HTTPException(404, detail) from None
    except FileNotFoundError:
        raise HTTPException(404, "The recording is no longer there.") from None
