"""The route for changes of a model: its healthy recordings, and the alarm limit."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from fastapi import APIRouter

from daco.detector.revision import undo
from daco.errors import DataError, InputError, ModelError, NotEnoughClipsError
from daco.files.atomic import replace_file
from daco.monitoring import worker
from daco.monitoring.service import schemas
from daco.monitoring.service.context import (
    Administrator,
    Service,
    TheMachine,
    TheService,
    failures,
)
from daco.monitoring.tables import MachineConfig

router = APIRouter(responses=failures(400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 503, 504))

_one_at_a_time = threading.Lock()


@router.post("/v1/machines/{machine}/model")
async def revise(
    service: TheService, machine: TheMachine, who: Administrator, body: schemas.Revision
) -> schemas.Revised:
    """Change the healthy recordings of a model, or set its alarm limit; `undo` goes back.

    `remove` takes the names of `normals`; `add` and `calibrate` the ids of `clips` whose sound was
    kept and that a person has heard to be healthy. The model before is kept beside the file.
    """
    done = await service.judge(_revise, service, machine, body)
    await service.judge(service.store.people.audit, who, f"{body.action}: model", done)
    return schemas.Revised(sentence=done)


def _revise(service: Service, machine: MachineConfig, body: schemas.Revision) -> str:
    with _one_at_a_time:
        if body.action == "undo":
            try:
                undo(machine.model)
            except ModelError:  # its text names a path
                raise InputError("The earlier version of the model is damaged") from None
            return "The model is the one before the last change."
        names, paths = list(body.normals), list[Path]()
        if body.action != "remove":
            names, paths = _recordings(service, machine.id, body.clips)
        if not names:
            raise InputError("Choose at least one recording")
        try:
            model = service.plant.model(machine.id)
            file, done = service.plant.judge.load(
                worker.revise, model.file_sha256, model.file, body.action, names, paths
            )
            replace_file(machine.model, file)
        except (DataError, ModelError, NotEnoughClipsError) as error:
            raise InputError(str(error)) from None
        return f"{machine.id}: {done}"


def _recordings(
    service: Service, machine: str, clips: Sequence[int]
) -> tuple[list[str], list[Path]]:
    """Names and files of clips of a machine; an error where one is a fault, or was not kept."""
    names, paths = [], []
    for number in dict.fromkeys(clips):
        clip = service.store.clip(number)
        if clip is None or clip.machine != machine:
            raise InputError(f"There is no recording {number} of this machine")
        if clip.answer == "fault":
            raise InputError(f"Somebody said that {clip.name} has a fault: daco never learns those")
        path = service.plant.audio(clip)
        if path is None:
            kept = "set keep_audio to all in daco.toml to keep those of a healthy machine"
            raise InputError(f"The sound of {clip.name} is not kept: {kept}")
        names.append(clip.name)
        paths.append(path)
    if len(set(names)) < len(names):
        names = [
            f"{name} ({number})" for name, number in zip(names, dict.fromkeys(clips), strict=True)
        ]
    return names, paths
