"""What the service withstands: each clause of SECURITY.md against a real process."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException

import httpx
import numpy as np
import pytest
import soundfile
from service_process import PATIENCE, RATE, ServiceProcess, faulty, model, normal, wait_until, wav

TOKEN = "correct-horse-battery-staple"
CONNECTIONS = 40


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Open on loopback, with small bounds."""
    settings = {
        "read_seconds": 2.0,
        "max_body": 1_000_000,
        "waiting": 4,
        "connections": CONNECTIONS,
        "workers": 2,
    }
    with ServiceProcess(tmp_path_factory.mktemp("open"), settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """On every address, with a token."""
    folder = tmp_path_factory.mktemp("locked")
    with ServiceProcess(folder, "--host", "0.0.0.0", DACO_TOKEN=TOKEN) as running:
        yield running


def post(service, body=b"", *headers):
    head = [
        b"POST /v1/machines/press/score HTTP/1.1",
        b"Host: localhost",
        b"Content-Type: audio/wav",
        b"Connection: close",
        *headers,
    ]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


class TestAccess:
    def test_it_does_not_start_on_another_address_without_a_token(self, tmp_path):
        environment = {name: value for name, value in os.environ.items() if name != "DACO_TOKEN"}
        done = subprocess.run(
            [sys.executable, "-m", "daco.cli", "serve", str(tmp_path), "--host", "0.0.0.0"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 2
        assert "needs a token" in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.iterdir())

    def test_by_default_it_listens_to_this_computer_only(self, service):
        with pytest.raises(OSError, match=r"refused|unreachable"):
            socket.create_connection((_own_address(), service.port), timeout=5).close()

    def test_without_the_token_there_is_nothing_but_the_page(self, locked):
        for path in (
            "/v1/machines",
            "/v1/events",
            "/metrics",
            "/openapi.json",
            "/v1/clips/1/audio",
        ):
            assert locked.get(path).status_code == 401
        assert locked.score(normal()).status_code == 401
        assert locked.get("/").status_code == 200
        assert locked.get("/healthz").json() == {"live": True, "ready": True, "reason": None}

    def test_with_it_there_is_all(self, locked):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "audio/wav"}
        with locked.client(headers=headers) as client:
            assert client.get("/v1/machines").status_code == 200
            answer = client.post("/v1/machines/press/score", content=normal())
            assert answer.status_code == 200

    def test_other_sites_neither_point_here_nor_send_recordings(self, service):
        for host in ("evil.example", f"evil.example:{service.port}"):
            assert service.get("/v1/machines", headers={"Host": host}).status_code == 421
        with service.client(headers={"Origin": "http://evil.example"}) as client:
            answer = client.post("/v1/machines/press/score", files={"file": ("a.wav", normal())})
        assert answer.status_code == 403

    def test_a_session_lasts_until_it_is_ended(self, locked):
        own = {"Origin": locked.url}
        with locked.client() as client:
            assert client.post("/login", json={"token": "wrong"}, headers=own).status_code == 401
            opened = client.post("/login", json={"token": TOKEN}, headers=own)
            assert opened.status_code == 204
            cookie = opened.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert TOKEN not in cookie
            assert client.get("/v1/machines").status_code == 200
            body = {"by": "Kim"}
            path = "/v1/alarms/1/acknowledge"
            assert client.post(path, json=body, headers=own).status_code == 404
            evil = {"Origin": "http://evil.example"}
            assert client.post(path, json=body, headers=evil).status_code == 403
            assert client.post(path, json=body).status_code == 403
            assert client.post("/logout", headers=own).status_code == 204
            assert client.get("/v1/machines").status_code == 401

    def test_the_token_is_written_nowhere(self, locked):
        assert TOKEN not in locked.log
        for pid in locked.pids():
            if pid != locked.process.pid:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    assert TOKEN.encode() not in file.read()


def _own_address() -> str:
    """An address of this computer that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this computer has no other address")
        return probe.getsockname()[0]


class TestBounds:
    @pytest.mark.parametrize("asking", [(), (b"Expect: 100-continue",)])
    def test_a_body_that_says_it_is_too_large_is_refused_unread(self, service, asking):
        answer = service.raw(post(service, b"", b"Content-Length: 1000001", *asking))
        assert answer.startswith(b"HTTP/1.1 413")

    def test_a_body_that_does_not_say_is_stopped_at_the_bound(self, service):
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        sent = post(service, b"", b"Transfer-Encoding: chunked")
        answer = service.raw(sent, *[chunk] * 200)
        assert answer.startswith(b"HTTP/1.1 413")

    def test_a_body_that_does_not_arrive_is_given_up(self, service):
        answer = service.raw(post(service, b"RIFF", b"Content-Length: 1000"))
        assert answer.startswith(b"HTTP/1.1 408")

    def test_a_head_that_does_not_arrive_is_given_up(self, service):
        assert service.raw(b"GET /healthz HTTP/1.1\r\n") == b""
        assert service.raw(b"") == b""
        drops = [b"GET /healthz HTTP/1.1\r\n", *[b"X: y\r\n"] * 40]
        assert service.raw(*drops, pause=0.25) == b""

    def test_a_connection_may_be_idle_between_requests(self, service):
        with service.client() as client:
            assert client.get("/healthz").status_code == 200
            time.sleep(3)  # longer than a head may take
            (connection,) = client._transport._pool.connections
            assert client.get("/healthz").status_code == 200
            assert client._transport._pool.connections == [connection]

    def test_a_body_nobody_reads_is_not_listened_to_for_ever(self, service):
        head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = service.raw(head, *[b"1\r\nx\r\n"] * 60, pause=0.25)
        assert answer.startswith(b"HTTP/1.1 200")

    def test_a_head_that_is_too_long_is_refused(self, service):
        answer = service.raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400") or answer == b""

    def test_two_lengths_are_no_request(self, service):
        both = post(service, b"0\r\n\r\n", b"Content-Length: 5", b"Transfer-Encoding: chunked")
        twice = post(service, b"x", b"Content-Length: 1", b"Content-Length: 2")
        assert service.raw(twice).startswith(b"HTTP/1.1 400")
        assert service.raw(both)[9:12] in (b"400", b"413")

    def test_connections_are_bounded_and_told_so(self, service):
        with contextlib.ExitStack() as held:  # connections that stay open between two requests
            for _ in range(CONNECTIONS):
                wait_until(lambda: _holds(service, held))  # those of earlier tests may still close
            refused = service.raw(b"")
            assert refused.startswith(b"HTTP/1.1 503")
            assert b"Retry-After: 1" in refused
            body = refused.partition(b"\r\n\r\n")[2]
            assert f"Content-Length: {len(body)}".encode() in refused
        wait_until(lambda: _answers(service))

    def test_more_than_can_be_done_is_503_at_once(self, service):
        wait_until(lambda: len(service.workers()) == 2)
        workers = service.workers()
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(12) as threads:
                jobs = [threads.submit(service.score, normal()) for _ in range(12)]
                wait_until(lambda: sum(job.done() for job in jobs) >= 6)
                for pid in workers:
                    os.kill(pid, signal.SIGCONT)
                answers = [job.result() for job in jobs]
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
        told = [answer.status_code for answer in answers]
        assert told.count(200) == 6  # two at work, four waiting
        assert told.count(503) == 6
        for answer in answers:
            if answer.status_code == 503:
                assert answer.headers["retry-after"] == "1"
                assert "busy" in answer.json()["detail"]

    def test_a_form_of_too_many_parts_is_refused(self, service):
        files = [("file", (f"{n}.wav", b"RIFF")) for n in range(17)]
        with service.client() as client:
            answer = client.post("/v1/machines/press/score", files=files)
        assert answer.status_code == 413

    @pytest.mark.parametrize("given", ["text/html", "application/json", None])
    def test_what_is_sent_as_something_else_is_415(self, service, given):
        with service.client() as client:
            headers = {} if given is None else {"Content-Type": given}
            answer = client.post("/v1/machines/press/score", content=normal(), headers=headers)
        assert answer.status_code == 415


def _holds(service, held) -> bool:
    """Whether one more connection was answered, and stays open."""
    connection = HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
    held.callback(connection.close)
    try:
        connection.request("GET", "/healthz")
        with connection.getresponse() as answer:
            return bool(answer.read()) and answer.status == 200
    except (OSError, HTTPException):
        return False


def _answers(service) -> bool:
    try:
        return service.get("/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def hour_of_silence() -> bytes:
    """A small file that would be a large recording."""
    packed = io.BytesIO()
    with soundfile.SoundFile(packed, "w", 8000, 1, format="FLAC") as sound:
        for _ in range(60):
            sound.write(np.zeros(60 * 8000, np.int16))
    return packed.getvalue()


def header(rate: int = RATE, channels: int = 1, bits: int = 16, size: int = 32000) -> bytes:
    """A WAV file whose header says what it likes."""
    block = channels * bits // 8 & 0xFFFF
    form = struct.pack("<HHIIHH", 1, channels, rate, (rate * block) & 0xFFFFFFFF, block, bits)
    return (
        b"RIFF" + struct.pack("<I", 36 + size & 0xFFFFFFFF) + b"WAVEfmt " + struct.pack("<I", 16)
        + form + b"data" + struct.pack("<I", size) + bytes(32000)
    )  # fmt: skip


class TestRecordings:
    @pytest.mark.parametrize(
        "data",
        [
            hour_of_silence(),
            header(rate=4_000_000_000),
            header(rate=1),
            header(rate=0),
            header(channels=65535),
            header(channels=0),
            header(bits=0),
            header(size=0xFFFFFFF0),
            header(size=0),
            b"fLaC" + bytes(1000),
            b"OggS" + bytes(1000),
            b"FORM" + b"\xff" * 1000,
            b"ID3" + bytes(1000),
        ],
        ids=lambda data: f"{data[:4]!r}-{len(data)}",
    )
    def test_files_that_lie_are_400(self, service, data):
        answer = service.score(data)
        assert answer.status_code in (400, 413)
        assert answer.json()["detail"]

    def test_a_name_is_never_a_path(self, service):
        clip = service.score(faulty(), name="../../../evil\x00.wav").json()["clip"]
        assert clip["name"] == "evil.wav"
        assert len(service.score(normal(), name="x" * 5000).json()["clip"]["name"]) <= 200
        kept = [path for path in (service.folder / "clips").rglob("*") if path.is_file()]
        assert kept
        for path in kept:
            assert re.fullmatch(r"[0-9a-f]{64}\.wav", path.name)
        assert not list(service.folder.rglob("evil*"))

    def test_damaged_uploads_tell_no_paths_and_stop_nobody(self, service):
        """Many damaged ones, while others send good ones: all of these are judged."""
        wait_until(lambda: len(service.workers()) == 2)
        workers = service.workers()
        rng = random.Random(0)
        packed = io.BytesIO()
        soundfile.write(packed, np.random.default_rng(0).normal(0, 0.1, RATE), RATE, format="FLAC")
        seeds = [normal(), packed.getvalue()]
        ended = threading.Event()
        good: list[int] = []

        def send_good():
            with service.client(headers={"Content-Type": "audio/wav"}) as client:
                while not ended.is_set():
                    answer = client.post("/v1/machines/press/score", content=normal())
                    good.append(answer.status_code)

        sender = threading.Thread(target=send_good)
        sender.start()
        try:
            with service.client(headers={"Content-Type": "audio/wav"}) as client:
                for _ in range(150):
                    data = bytearray(rng.choice(seeds))
                    for _ in range(rng.randint(1, 20)):
                        place = rng.randrange(min(len(data), 2000))
                        data[place] = rng.randrange(256)
                    if rng.random() < 0.3:
                        del data[rng.randrange(len(data)) :]
                    answer = client.post("/v1/machines/press/score", content=bytes(data))
                    assert answer.status_code in (200, 400)
                    if answer.status_code == 400:
                        assert "/tmp" not in answer.text
                        assert str(service.folder) not in answer.text
                        assert "Traceback" not in answer.text
        finally:
            ended.set()
            sender.join()
        assert set(good) == {200}
        assert service.workers() == workers

    def test_a_worker_that_is_killed_is_replaced_unnoticed(self, service):
        wait_until(lambda: len(service.workers()) == 2)
        before = service.workers()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert service.score(normal()).status_code == 200
        wait_until(lambda: len(set(service.workers()) - set(before)) == 2)
        assert "daco_worker_restarts_total 2.0" in service.get("/metrics").text


class TestAnswers:
    @pytest.mark.parametrize(
        "path",
        [
            b"/static/../service/app.py",
            b"/static/../../../../../../etc/passwd",
            b"/static/%2e%2e/index.html",
            b"/static/..%2f..%2fapp.py",
            b"/static//etc/passwd",
            b"/static/%00",
            b"/../etc/passwd",
        ],
    )
    def test_files_outside_of_the_page_are_not_served(self, service, path):
        answer = service.raw(
            b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert answer[9:12] in (b"404", b"400")
        assert b"root:" not in answer
        assert b"Traceback" not in answer

    def test_what_was_sent_wrongly_is_not_sent_back(self, service):
        answer = service.get("/v1/machines/press/history", params={"limit": "<script>"})
        assert answer.status_code == 422
        assert "<script>" not in answer.text

    def test_every_kind_of_answer_has_the_headers(self, service):
        clip = service.score(faulty()).json()["clip"]["id"]
        for path in (
            "/",
            "/static/app.js",
            "/v1/machines",
            f"/v1/clips/{clip}/audio",
            f"/v1/clips/{clip}/spectrogram.png",
            "/nothing",
            "/v1/clips/x",
        ):
            headers = service.get(path).headers
            policy = headers["content-security-policy"]
            for rule in ("default-src 'none'", "frame-ancestors 'none'", "script-src 'self'"):
                assert rule in policy, path
            assert "unsafe" not in policy, path
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["referrer-policy"] == "no-referrer", path
            assert headers["x-frame-options"] == "DENY", path
            assert "server" not in headers, path

    def test_the_page_needs_no_more_than_its_policy_allows(self, service):
        page = service.get("/").text
        assert not re.search(r"<script(?![^>]*\bsrc=)", page)
        assert "style=" not in page
        assert not re.search(r"\son\w+=", page)
        assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)


def test_what_a_model_says_leads_to_no_other_file(tmp_path):
    from dataclasses import replace

    (tmp_path / "secret.wav").write_bytes(wav(np.zeros(RATE)))
    (tmp_path / "normals").mkdir()
    (tmp_path / "models").mkdir()
    names = ("../secret.wav", "/etc/passwd", str(tmp_path / "secret.wav"), *model().clip_names[3:])
    replace(model(), clip_names=names).save(tmp_path / "models" / "press.daco")
    with ServiceProcess(tmp_path, "--normals", str(tmp_path / "normals")) as service:
        for index in range(4):
            for what in ("audio", "spectrogram.png"):
                answer = service.get(f"/v1/machines/press/normals/{index}/{what}")
                assert answer.status_code == 404
                assert str(tmp_path) not in answer.text
