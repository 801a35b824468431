"""Events: all of them, in order, to all who listen; and nobody is waited for."""

from __future__ import annotations

import json
from contextlib import aclosing

import pytest

from daco.monitoring.service import overview
from daco.monitoring.service.overview import MOST_BEHIND, REMEMBERED, Hub

pytestmark = pytest.mark.anyio


@pytest.fixture
def hub():
    return Hub()


def parse(text):
    event = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return event["id"], event["event"], json.loads(event["data"])


async def take(stream, count):
    return [await anext(stream) for _ in range(count)]


async def listen(hub, last=None):
    """A stream as it is sent, after its greeting; it is left when it is closed."""

    async def events():
        stream = hub.open(last)
        try:
            async for event in hub.read(stream):
                yield event
        finally:
            hub.leave(stream)

    stream = events()
    assert (await anext(stream)).startswith("retry: ")
    return stream


async def test_everyone_gets_every_event_in_order(hub):
    async with aclosing(await listen(hub)) as one, aclosing(await listen(hub)) as two:
        assert hub.streams == 2
        for number in range(3):
            hub.publish("clip", {"id": number, "name": "a\nb: c"})
        first, second = await take(one, 3), await take(two, 3)
    assert hub.streams == 0
    assert first == second
    assert [parse(each)[1:] for each in first] == [
        ("clip", {"id": number, "name": "a\nb: c"}) for number in range(3)
    ]


async def test_whoever_comes_back_gets_what_was_missed(hub):
    for number in range(10):
        hub.publish("clip", {"id": number})
    async with aclosing(await listen(hub)) as stream:
        hub.publish("clip", {"id": 10})
        (event,) = await take(stream, 1)
    for number in range(11, 14):
        hub.publish("clip", {"id": number})
    missed = await take(await listen(hub, parse(event)[0]), 3)
    assert [parse(each)[2]["id"] for each in missed] == [11, 12, 13]


@pytest.mark.parametrize("last", ["another-run-5", "x", "-", "5", "00000000-99999999999999999999"])
async def test_an_id_that_is_not_known_asks_for_everything_anew(hub, last):
    hub.publish("clip", {"id": 1})
    (event,) = await take(await listen(hub, last), 1)
    assert parse(event)[1:] == ("reset", {})


async def test_what_is_forgotten_asks_for_everything_anew(hub):
    async with aclosing(await listen(hub)) as stream:
        hub.publish("clip", {})
        (first,) = await take(stream, 1)
    for _ in range(REMEMBERED + 1):
        hub.publish("clip", {})
    (event,) = await take(await listen(hub, parse(first)[0]), 1)
    assert parse(event)[1] == "reset"


async def test_a_slow_client_is_dropped_and_the_others_are_not():
    dropped = []
    hub = Hub(lambda: dropped.append(1))
    slow, quick = await listen(hub), await listen(hub)
    for number in range(MOST_BEHIND + 1):
        hub.publish("clip", {"id": number})
        await take(quick, 1)
    assert (hub.streams, dropped) == (1, [1])
    await take(slow, MOST_BEHIND)
    with pytest.raises(StopAsyncIteration):
        await anext(slow)
    hub.publish("clip", {"id": "last"})
    assert parse((await take(quick, 1))[0])[2] == {"id": "last"}


async def test_silence_is_broken_so_that_dead_connections_are_noticed(hub, monkeypatch):
    monkeypatch.setattr(overview, "HEARTBEAT_SECONDS", 0.01)
    assert await take(await listen(hub), 2) == [": still here\n\n"] * 2


async def test_streams_end_with_the_service(hub):
    stream = await listen(hub)
    hub.close()
    assert [event async for event in stream] == []
