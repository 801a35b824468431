"""Events: all of them, in order, to all who listen; and nobody is waited for."""

from __future__ import annotations

import asyncio
import json

import pytest

from daco.monitoring.service import overview
from daco.monitoring.service.overview import MOST_BEHIND, REMEMBERED, Hub


def parsed(text):
    said = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return said["id"], said["event"], json.loads(said["data"])


async def take(stream, count):
    return [await anext(stream) for _ in range(count)]


def listen(hub, last=None):
    """A stream as it is sent; it is left when it is closed."""

    async def events():
        stream = hub.open(last)
        try:
            async for event in hub.read(stream):
                yield event
        finally:
            hub.leave(stream)

    return events()


def test_everyone_gets_every_event_in_order():
    async def scenario():
        hub = Hub()
        one, two = listen(hub), listen(hub)
        await take(one, 1), await take(two, 1)  # the greeting: now they listen
        assert hub.streams == 2
        for number in range(3):
            hub.publish("clip", {"id": number, "name": "a\nb: c"})
        first, second = await take(one, 3), await take(two, 3)
        await one.aclose(), await two.aclose()
        assert hub.streams == 0
        return first, second

    first, second = asyncio.run(scenario())
    assert first == second
    assert [parsed(each)[1:] for each in first] == [
        ("clip", {"id": number, "name": "a\nb: c"}) for number in range(3)
    ]


def test_whoever_comes_back_gets_what_was_missed():
    async def scenario():
        hub = Hub()
        for number in range(10):
            hub.publish("clip", {"id": number})
        stream = listen(hub)
        await take(stream, 1)
        hub.publish("clip", {"id": 10})
        (event,) = await take(stream, 1)
        await stream.aclose()
        for number in range(11, 14):
            hub.publish("clip", {"id": number})
        again = listen(hub, parsed(event)[0])
        return (await take(again, 4))[1:]

    assert [parsed(each)[2]["id"] for each in asyncio.run(scenario())] == [11, 12, 13]


@pytest.mark.parametrize("last", ["another-run-5", "x", "-", "5", "00000000-99999999999999999999"])
def test_an_id_that_is_not_known_asks_for_everything_anew(last):
    async def scenario():
        hub = Hub()
        hub.publish("clip", {"id": 1})
        return (await take(listen(hub, last), 2))[1]

    assert parsed(asyncio.run(scenario()))[1:] == ("reset", {})


def test_what_is_forgotten_asks_for_everything_anew():
    async def scenario():
        hub = Hub()
        stream = listen(hub)
        await take(stream, 1)
        hub.publish("clip", {})
        first = parsed((await take(stream, 1))[0])[0]
        await stream.aclose()
        for _ in range(REMEMBERED + 1):
            hub.publish("clip", {})
        return (await take(listen(hub, first), 2))[1]

    assert parsed(asyncio.run(scenario()))[1] == "reset"


def test_a_slow_client_is_dropped_and_the_others_are_not():
    async def scenario():
        dropped = []
        hub = Hub(lambda: dropped.append(1))
        slow, quick = listen(hub), listen(hub)
        await take(slow, 1), await take(quick, 1)
        for number in range(MOST_BEHIND + 1):
            hub.publish("clip", {"id": number})
            await take(quick, 1)
        assert (hub.streams, dropped) == (1, [1])
        await take(slow, MOST_BEHIND)
        with pytest.raises(StopAsyncIteration):
            await anext(slow)
        hub.publish("clip", {"id": "last"})
        return (await take(quick, 1))[0]

    assert parsed(asyncio.run(scenario()))[2] == {"id": "last"}


def test_silence_is_broken_so_that_dead_connections_are_noticed(monkeypatch):
    monkeypatch.setattr(overview, "HEARTBEAT_SECONDS", 0.01)

    async def scenario():
        return (await take(listen(Hub()), 3))[1:]

    assert asyncio.run(scenario()) == [": still here\n\n"] * 2


def test_streams_end_with_the_service():
    async def scenario():
        hub = Hub()
        stream = listen(hub)
        await take(stream, 1)
        hub.close()
        return [event async for event in stream]

    assert asyncio.run(scenario()) == []
