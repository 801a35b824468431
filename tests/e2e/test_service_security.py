"""What the service withstands: each clause of SECURITY.md against a real process."""

from __future__ import annotations

import contextlib
import re
import socket
import threading

import httpx
import numpy as np
import pytest
from monitored_plant import PEOPLE
from service_process import faulty, humming, normal, wait_until, wav


def bearer(role):
    return {"Authorization": f"Bearer {PEOPLE[role]}"}


def post(body=b"", *headers):
    head = [
        b"POST /v1/machines/press/score HTTP/1.1",
        b"Host: localhost",
        b"Content-Type: audio/wav",
        b"Connection: close",
        *headers,
    ]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


class TestAccess:
    def test_without_a_token_there_is_nothing_but_the_page(self, locked):
        for path in ("/v1/machines", "/v1/changes?after=0", "/metrics", "/openapi.json"):
            assert locked.get(path).status_code == 401
        assert locked.score(normal()).status_code == 401
        assert locked.get("/").status_code == 200
        assert locked.get("/healthz").json() == {"live": True, "ready": True, "reason": None}

    @pytest.mark.parametrize(
        ("method", "path", "body", "role"),
        [
            ("GET", "/v1/machines", None, "viewer"),
            ("GET", "/metrics", None, "viewer"),
            ("POST", "/v1/alarms/99/acknowledge", {}, "operator"),
            ("POST", "/v1/alarms/99/shelve", {"minutes": 5}, "operator"),
            ("POST", "/v1/clips/99/answer", {"answer": "fault"}, "operator"),
            ("POST", "/v1/machines/press/notes", {"text": "oiled"}, "operator"),
            ("POST", "/v1/machines/press/score?record=false", None, "operator"),
            ("DELETE", "/v1/clips/99", None, "administrator"),
            ("POST", "/v1/machines/press/service", {"out": False}, "administrator"),
            ("POST", "/v1/messages/test", {}, "administrator"),
            ("GET", "/v1/audit", None, "administrator"),
        ],
    )
    def test_each_role_may_do_its_part_and_no_more(self, locked, method, path, body, role):
        may = False
        for name in PEOPLE:
            may = may or name == role
            with locked.client(headers=bearer(name)) as client:
                status = client.request(method, path, json=body).status_code
            assert (status != 403) == may, (name, status)

    def test_a_session_ends_at_logout_for_whoever_has_its_cookie(self, locked):
        own = {"Origin": locked.url}
        with locked.client() as client:
            token = {"token": PEOPLE["operator"]}
            opened = client.post("/login", json=token, headers=own)
            assert opened.status_code == 204
            cookie = opened.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert PEOPLE["operator"] not in cookie
            stolen = {"Cookie": cookie.split(";")[0]}
            assert client.get("/v1/session").json()["name"] == "operator"
            assert locked.get("/v1/machines", headers=stolen).status_code == 200
            path, evil = "/v1/alarms/99/acknowledge", {"Origin": "http://evil.example"}
            assert client.post(path, json={}, headers=own).status_code == 404
            assert client.post(path, json={}, headers=evil).status_code == 403
            assert client.post(path, json={}).status_code == 403
            assert client.post("/logout", headers=own).status_code == 204
        assert locked.get("/v1/machines", headers=stolen).status_code == 401

    def test_wrong_tokens_are_slowed_and_logged_and_right_ones_go_on(self, locked):
        def ask(token):  # as if through a proxy on this computer
            headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "192.0.2.7"}
            return locked.get("/v1/machines", headers=headers)

        assert ask(PEOPLE["viewer"]).status_code == 200
        answers = [ask(f"guess-number-{n}") for n in range(30)]
        told = [answer.status_code for answer in answers]
        assert set(told) == {401, 429}
        assert told.count(401) <= 15  # of 30 guesses only some were looked at
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert ask(PEOPLE["viewer"]).status_code == 200  # it was accepted here before
        assert locked.log.count("wrong tokens from 192.0.2.7") == 1

    def test_other_sites_neither_point_here_nor_send_recordings(self, service):
        for host in ("evil.example", f"evil.example:{service.port}"):
            assert service.get("/v1/machines", headers={"Host": host}).status_code == 421
        for origin in ("http://evil.example", "http://[", "null"):
            with service.client(headers={"Origin": origin, "Content-Type": "audio/wav"}) as client:
                answer = client.post("/v1/machines/press/score", content=normal())
            assert answer.status_code == 403

    def test_no_token_is_written_or_inherited(self, locked):
        for token in PEOPLE.values():
            assert token not in locked.log
        for path in ("daco.db", "daco.db-wal"):
            data = (locked.folder / path).read_bytes() if (locked.folder / path).exists() else b""
            assert not any(token.encode() in data for token in PEOPLE.values())
        assert (locked.folder / "daco.db").stat().st_mode & 0o077 == 0

    def test_answers_carry_the_headers_of_a_guarded_page(self, service):
        for path in ("/", "/v1/machines", "/static/app.js", "/nothing"):
            headers = service.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert "server" not in headers


class TestBounds:
    @pytest.mark.parametrize("asking", [(), (b"Expect: 100-continue",)])
    def test_a_body_that_says_it_is_too_large_is_refused_unread(self, service, asking):
        answer = service.raw(post(b"", b"Content-Length: 1000001", *asking))
        assert answer.startswith(b"HTTP/1.1 413")

    def test_a_body_that_does_not_say_is_stopped_at_the_bound(self, service):
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        answer = service.raw(post(b"", b"Transfer-Encoding: chunked"), *[chunk] * 200)
        assert answer.startswith(b"HTTP/1.1 413")

    def test_a_head_that_is_too_long_and_two_lengths_are_no_request(self, service):
        answer = service.raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400") or answer == b""
        twice = post(b"x", b"Content-Length: 1", b"Content-Length: 2")
        assert service.raw(twice).startswith(b"HTTP/1.1 400")
        both = post(b"0\r\n\r\n", b"Content-Length: 5", b"Transfer-Encoding: chunked")
        assert service.raw(both)[9:12] in (b"400", b"413")

    @pytest.mark.parametrize("given", ["text/html", "multipart/form-data", None])
    def test_what_is_sent_as_something_else_is_415(self, service, given):
        with service.client() as client:
            headers = {} if given is None else {"Content-Type": given}
            answer = client.post("/v1/machines/press/score", content=normal(), headers=headers)
        assert answer.status_code == 415

    def test_half_open_connections_leave_others_of_any_address_unharmed(self, service):
        """900 of one address that send half a head; 100 a second are renewed."""
        ended, opened = threading.Event(), []

        def attack():
            held = []
            while not ended.wait(0.01 if len(opened) > 900 else 0):
                with contextlib.suppress(OSError):
                    one = socket.create_connection(
                        ("127.0.0.1", service.port), 10, ("127.0.0.9", 0)
                    )
                    one.sendall(b"POST /v1/machines/press/score HTTP/1.1\r\nHost: loc")
                    held.append(one)
                opened.append(None)
                if len(held) > 900:
                    held.pop(0).close()
            for each in held:
                each.close()

        attacker = threading.Thread(target=attack)
        attacker.start()
        try:
            wait_until(lambda: len(opened) >= 900)
            told = {"127.0.0.1": [], "127.0.0.9": []}
            for address, statuses in told.items():
                for _ in range(20):
                    own = httpx.HTTPTransport(local_address=address)
                    with (
                        contextlib.suppress(httpx.HTTPError),
                        service.client(transport=own) as client,
                    ):
                        statuses.append(client.get("/v1/machines/press/history").status_code)
            told["127.0.0.1"] += [service.score(normal()).status_code for _ in range(5)]
        finally:
            ended.set()
            attacker.join()
        assert told["127.0.0.1"].count(200) >= 24  # of 25
        assert told["127.0.0.9"].count(200) >= 18  # of 20: a young one may end among the others
        assert service.log.count("127.0.0.9 has") == 1

    def test_long_files_of_one_client_do_not_deny_others(self, locked):
        long_one = wav(humming(1, seconds=120.0))
        path, ended, judged = "/v1/machines/{}/score", threading.Event(), []

        def client(role):
            return locked.client(headers=bearer(role) | {"Content-Type": "audio/wav"})

        def send_long():
            with client("administrator") as sender:
                while not ended.is_set():
                    judged.append(sender.post(path.format("fan"), content=long_one))

        crowd = [threading.Thread(target=send_long) for _ in range(4)]
        for each in crowd:
            each.start()
        try:
            wait_until(lambda: judged)
            with client("operator") as other:
                answers = [other.post(path.format("press"), content=normal()) for _ in range(5)]
        finally:
            ended.set()
            for each in crowd:
                each.join()
        assert [answer.status_code for answer in answers] == [200] * 5


class TestRecordings:
    @pytest.mark.parametrize(
        "data",
        [
            normal()[:22] + b"\xff" * 2 + normal()[24:],  # 65,535 channels
            normal()[:24] + b"\xff" * 4 + normal()[28:],  # at 4 GHz
            normal()[:34] + bytes(2) + normal()[36:],  # of no bits
            normal()[:40] + b"\xf0" + b"\xff" * 3 + normal()[44:],  # of 4 GB
            b"",
            b"hello, this is no sound at all",
            normal()[:-100],
            wav(np.zeros(100)),
            b"fLaC" + bytes(1000),
            b"ID3" + bytes(1000),
        ],
        ids=lambda data: f"{data[:4]!r}-{len(data)}",
    )
    def test_what_is_no_recording_is_400_with_a_reason_and_no_path(self, service, data):
        answer = service.score(data)
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("The recording cannot be used")
        assert str(service.folder) not in answer.text

    def test_a_name_is_never_a_path(self, service):
        clip = service.score(faulty(), name="../../../evil\x00.wav").json()["clip"]
        assert clip["name"] == "evil.wav"
        assert len(service.score(normal(), name="x" * 5000).json()["clip"]["name"]) <= 200
        kept = [path for path in (service.folder / "kept").rglob("*") if path.is_file()]
        assert kept
        for path in kept:
            assert re.fullmatch(r"[0-9a-f]{64}\.(wav|flac)", path.name)
            assert path.stat().st_mode & 0o077 == 0
        assert not list(service.folder.rglob("evil*"))
