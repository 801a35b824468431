"""Every request passes the guard: host, token, origin, size, time, and headers on the way back."""

from __future__ import annotations

import asyncio
import json
from unittest.mock import patch

import httpx
import pytest
from starlette.responses import StreamingResponse

from daco.monitoring.service import middleware
from daco.monitoring.service.middleware import (
    COOKIE,
    SMALL_BODY,
    Guard,
    Metrics,
    new_session,
    session_cookie,
)
from daco.monitoring.service.settings import Settings

TOKEN = "a token of some length".replace(" ", "-")
with patch("time.time", return_value=0):
    ENDED = new_session(TOKEN)


SCOPE = {"type": "http", "method": "GET", "headers": [(b"host", b"localhost")]}


async def never(message=None):
    await asyncio.sleep(3600)


async def echo(scope, receive, send):
    """Reads the whole body and says its length; fails where it is told to."""
    if scope["path"] == "/v1/fail":
        raise RuntimeError("secret path /srv/models/press.daco")
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def guard(folder, **changed):
    settings = Settings(
        models=folder, database="sqlite:///x.db", clips=folder, **{"read_seconds": 5.0} | changed
    )
    return Guard(echo, settings, Metrics())


def ask(app, path="/v1/machines", method="GET", host="localhost:8477", headers=None, **options):
    async def one():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            given = {"Host": host, **(headers or {})}
            return await client.request(method, path, headers=given, **options)

    return asyncio.run(one())


OWN_NAMES = ("localhost", "localhost:8477", "127.0.0.1:1", "[::1]:8477", "LOCALHOST")
OTHER_NAMES = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1].evil")


@pytest.mark.parametrize("host", OWN_NAMES + OTHER_NAMES)
def test_only_this_computers_names_are_let_in(tmp_path, host):
    """Another site's name may be made to point here."""
    answer = ask(guard(tmp_path), host=host)
    assert answer.status_code == (200 if host in OWN_NAMES else 421)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_proxys_name_is_let_in_when_it_was_named(tmp_path):
    app = guard(tmp_path, allowed_hosts=("plant.example",), token=TOKEN)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(app, host="plant.example", headers=bearer).status_code == 200
    assert ask(app, host="other.example", headers=bearer).status_code == 421


def test_the_cookie_is_closed_to_scripts_and_other_sites():
    cookie = session_cookie(new_session(TOKEN), secure=True)
    flags = {"HttpOnly", "SameSite=Strict", "Secure", "Path=/", f"Max-Age={12 * 3600}"}
    assert flags <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert "Secure" not in session_cookie("x", secure=False)


class TestToken:
    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Authorization": "Bearer"},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": f"Bearer {TOKEN[:-1]}"},
            {"Authorization": f"Bearer {TOKEN.upper()}"},
            {"Authorization": b"Bearer \xff"},
            {"Cookie": f"{COOKIE}=1.2"},
            {"Cookie": f"{COOKIE}=99999999999.{'0' * 64}"},
            {"Cookie": f"{COOKIE}={TOKEN}"},
            {"Cookie": f"{COOKIE}={ENDED}"},
            {"Cookie": f"{COOKIE}={new_session(TOKEN + 'x')}"},
            {"Cookie": b"\x80=;;;"},
        ],
    )
    def test_without_it_there_is_401_and_nothing_else(self, tmp_path, headers):
        answer = ask(guard(tmp_path, token=TOKEN, host="0.0.0.0"), headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json() == {"detail": "The token is missing or wrong."}

    def test_with_it_or_a_session_there_is_an_answer(self, tmp_path):
        app = guard(tmp_path, token=TOKEN, host="0.0.0.0")
        for headers in (
            {"Authorization": f"Bearer {TOKEN}"},
            {"Authorization": f"bearer {TOKEN}"},
            {"Cookie": f"other=1; {COOKIE}={new_session(TOKEN)}"},
        ):
            assert ask(app, headers=headers, host="any.example").status_code == 200

    def test_a_wrong_token_is_not_saved_by_a_session(self, tmp_path):
        headers = {"Authorization": "Bearer x", "Cookie": f"{COOKIE}={new_session(TOKEN)}"}
        assert ask(guard(tmp_path, token=TOKEN), headers=headers).status_code == 401

    @pytest.mark.parametrize(
        ("paths", "status"),
        [
            (["/", "/healthz", "/static/app.js"], 200),
            (["/metrics", "/openapi.json", "/v1/events", "/healthz/", "/staticx"], 401),
        ],
    )
    def test_the_page_itself_is_open_and_all_else_is_not(self, tmp_path, paths, status):
        app = guard(tmp_path, token=TOKEN)
        assert {ask(app, path).status_code for path in paths} == {status}


class TestOrigin:
    OWN = ({"Origin": "http://localhost:8477"}, {"Sec-Fetch-Site": "same-origin"})
    OTHERS = (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "http://localhost:8477", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    )

    @pytest.mark.parametrize("headers", [*OWN, {}])
    def test_our_page_and_programs_may_change_things(self, tmp_path, headers):
        assert ask(guard(tmp_path), method="POST", headers=headers).status_code == 200

    @pytest.mark.parametrize("headers", OTHERS)
    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
    def test_pages_of_others_may_not(self, tmp_path, headers, method):
        assert ask(guard(tmp_path), method=method, headers=headers).status_code == 403

    @pytest.mark.parametrize("headers", [*OTHERS, {}])
    def test_a_session_needs_the_word_of_a_browser(self, tmp_path, headers):
        session = {"Cookie": f"{COOKIE}={new_session(TOKEN)}"}
        app = guard(tmp_path, token=TOKEN)
        assert ask(app, method="POST", headers=headers | session).status_code == 403
        for own in self.OWN:
            assert ask(app, method="POST", headers=own | session).status_code == 200

    def test_whoever_shows_the_token_is_no_page(self, tmp_path):
        headers = {"Authorization": f"Bearer {TOKEN}", "Origin": "http://tool.example"}
        assert ask(guard(tmp_path, token=TOKEN), method="POST", headers=headers).status_code == 200

    @pytest.mark.parametrize("headers", OTHERS)
    def test_reading_changes_nothing(self, tmp_path, headers):
        answer = ask(guard(tmp_path), headers=headers)
        assert answer.status_code == 200
        # ... and a page of others cannot read the answer.
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_a_failure_tells_nothing_but_where_the_log_says_more(tmp_path, caplog):
    answer = ask(guard(tmp_path), "/v1/fail")
    assert answer.status_code == 500
    assert "srv" not in answer.text
    assert "Traceback" not in answer.text
    number = answer.json()["detail"].split()[-1].rstrip(".")
    assert number in caplog.text
    assert "RuntimeError" in caplog.text


class TestBody:
    async def _chunks(self, sizes):
        for size in sizes:
            yield b"x" * size

    def test_a_small_one_passes(self, tmp_path):
        answer = ask(guard(tmp_path), method="POST", content=b"x" * SMALL_BODY)
        assert answer.text == str(SMALL_BODY)

    def test_a_large_one_does_not_with_or_without_its_length(self, tmp_path):
        for content in (b"x" * (SMALL_BODY + 1), self._chunks([40_000, 40_000])):
            assert ask(guard(tmp_path), method="POST", content=content).status_code == 413

    def test_one_that_does_not_arrive_is_given_up(self, tmp_path):
        sent = []

        async def send(message):
            sent.append(message)

        scope = SCOPE | {"method": "POST", "path": "/v1/alarms/1/acknowledge"}
        asyncio.run(guard(tmp_path, read_seconds=0.05)(scope, never, send))
        assert sent[0]["status"] == 408
        assert "0.05 s" in json.loads(sent[1]["body"])["detail"]


def test_a_client_that_takes_no_answer_is_given_up(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(middleware, "WRITE_SECONDS", 0.05)

    async def endless():
        while True:
            yield b"x" * 1000

    settings = Settings(models=tmp_path, database="sqlite:///x.db", clips=tmp_path)
    app = Guard(StreamingResponse(endless()), settings, Metrics())
    asyncio.run(app(SCOPE | {"path": "/v1/events"}, never, never))
    assert not caplog.text


def test_websockets_are_closed(tmp_path):
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(guard(tmp_path)({"type": "websocket"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_requests_are_counted_with_few_labels(tmp_path):
    metrics = Metrics()
    settings = Settings(models=tmp_path, database="sqlite:///x.db", clips=tmp_path)
    app = Guard(echo, settings, metrics)
    for number in range(50):
        ask(app, f"/nobody/knows/{number}", method="BREW")
    text = metrics.text().decode()
    assert text.count("daco_http_requests_total{") == 1
    for number in range(300):
        metrics.count_clip(f"machine-{number}", anomalous=False)
    assert metrics.text().decode().count("daco_clips_scored_total{") == 201
