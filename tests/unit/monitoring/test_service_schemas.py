"""One record from the model to the database and the API, and answers that are really validated."""

from __future__ import annotations

import asyncio
from dataclasses import fields

import httpx
import pytest
from fastapi import FastAPI
from fastapi.exceptions import ResponseValidationError
from stores import START, verdict

from daco.detector.verdict import Verdict
from daco.monitoring.service.schemas import Clip, OneClip
from daco.monitoring.store import NewClip, StoredClip
from daco.monitoring.store.schema import clips


def names(record):
    return {each.name for each in fields(record)}


def test_a_clip_is_a_verdict_in_the_database_and_in_the_api():
    assert names(Verdict) < names(StoredClip)
    assert names(Verdict) < names(Clip)
    renamed = {"alarm": "anomalous", "machine": "machine_id"}
    assert {renamed.get(name, name) for name in names(Verdict)} <= {each.name for each in clips.c}
    assert set(NewClip(verdict(), "press", START).row(1)) <= {each.name for each in clips.c}


@pytest.mark.parametrize(
    "change",
    [{"more": 1}, {"score": "high"}, {"machine": None}, {"windows": 1.5}, {"alarm_id": "x"}],
)
def test_an_answer_with_a_wrong_field_is_an_error(change):
    stored = NewClip(verdict(), "press", START).stored_as(7).to_dict()
    good = {**stored, "nearest_index": 7, "has_audio": False, "alarm_id": None}
    app = FastAPI()
    answers = {"good": good, "missing": stored, "wrong": good | change}

    @app.get("/{kind}", response_model=OneClip)
    def answer(kind: str) -> dict:
        return {"clip": answers[kind]}

    async def ask(kind):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(kind)

    assert asyncio.run(ask("good")).json() == {"clip": good}
    for kind in ("missing", "wrong"):
        with pytest.raises(ResponseValidationError):
            asyncio.run(ask(kind))
