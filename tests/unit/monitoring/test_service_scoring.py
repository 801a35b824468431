"""Bodies: what is too large, too slow, too many or damaged ends in a Problem, never in more."""

from __future__ import annotations

import asyncio
import contextlib
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from daco.monitoring.service.context import Admission
from daco.monitoring.service.schemas import Problem
from daco.monitoring.service.scoring import (
    LONGEST_NAME,
    MOST_FILES,
    display_name,
    media_type,
    read_body,
    read_form,
)


def request(chunks=(), pause=0.0, **headers):
    chunks = list(chunks)

    async def receive():
        await asyncio.sleep(pause)
        if not chunks:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "headers": raw}, receive)


def read(chunks, *, most=1000, seconds=5.0, admission=None, **options):
    async def one():
        with (admission or Admission(1, 10_000)).one() as reserve:
            body = read_body(request(chunks, **options), reserve, most=most, seconds=seconds)
            return b"".join([chunk async for chunk in body])

    return asyncio.run(one())


def parse_form(body, boundary="x", name=None):
    """The files of a form that arrives in two pieces."""

    async def pieces():
        yield body[: len(body) // 2]
        yield body[len(body) // 2 :]

    asked = request(content_type=f"multipart/form-data; boundary={boundary}")
    return asyncio.run(read_form(asked, pieces(), name))


def form(*parts, boundary=b"x", end=True):
    body = b"".join(
        b"--" + boundary + b"\r\n" + head + b"\r\n\r\n" + data + b"\r\n" for head, data in parts
    )
    return body + (b"--" + boundary + b"--\r\n" if end else b"")


def file(name=b"a.wav", field=b"file"):
    return b'Content-Disposition: form-data; name="' + field + b'"; filename="' + name + b'"'


class TestReading:
    def test_a_body_arrives_in_pieces(self):
        assert read([b"ab", b"", b"cd"]) == b"abcd"

    @pytest.mark.parametrize("length", ["9" * 30, str(2**64)])
    def test_an_absurd_length_is_too_large(self, length):
        with pytest.raises(Problem) as caught:
            read([b"x"], content_length=length)
        assert caught.value.status == 413

    def test_one_that_ends_early_is_refused(self):
        with pytest.raises(Problem, match="ended before") as caught:
            read([])
        assert caught.value.status == 400

    def test_all_uploads_together_are_bounded_in_number_and_bytes(self):
        admission = Admission(2, 1000)
        with admission.one() as first, admission.one() as second:
            with pytest.raises(Problem) as caught, admission.one():
                pass
            answer = caught.value.response()
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            first(800)
            with pytest.raises(Problem):
                second(201)
            second(200)
        assert (admission.uploads, admission.bytes) == (0, 0)


class TestTypes:
    @pytest.mark.parametrize(
        "given", ["audio/wav", "audio/x-wav; rate=1", "AUDIO/FLAC", "application/octet-stream"]
    )
    def test_what_can_be_a_recording(self, given):
        assert media_type(request(content_type=given))

    def test_packed_bodies_are_not_unpacked(self):
        with pytest.raises(Problem) as caught:
            media_type(request(content_type="audio/wav", content_encoding="gzip"))
        assert caught.value.status == 415


class TestForms:
    def test_files_are_found_among_other_fields(self):
        body = form(
            (file(b"one.wav"), b"1\r\n--xy\r\n1"),
            (b'Content-Disposition: form-data; name="comment"', b"hello"),
            (file(b"", field=b"file"), b""),
        )
        assert [(each.name, each.data) for each in parse_form(body)] == [
            ("one.wav", b"1\r\n--xy\r\n1"),
            ("upload", b""),
        ]

    def test_a_name_that_was_given_goes_before_that_of_the_form(self):
        assert parse_form(form((file(b"one.wav"), b"1")), name="two.wav")[0].name == "two.wav"

    def test_a_form_without_a_file_is_refused(self):
        with pytest.raises(Problem, match="no file"):
            parse_form(form((file(field=b"other"), b"1")))

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (form(*[(file(), b"1")] * (MOST_FILES + 1)), 413),
            (form(*[(file(field=b"other"), b"")] * 10_000), 413),
            (form((b"X: " + b"y" * 100_000 + b"\r\n" + file(), b"1")), 400),
            (form((b"X-" + b"y" * 100_000 + b": 1", b"1")), 400),
            (form((file(), b"1"), end=False), 400),
            (form((file(), b"1"))[:20], 400),
            (b"", 400),
            (b"no form at all", 400),
            (b"--x\r\n" * 100_000, 400),
        ],
    )
    def test_bombs_and_damage_end_at_once(self, body, status):
        started = time.process_time()
        with pytest.raises(Problem) as caught:
            parse_form(body)
        assert caught.value.status == status
        assert time.process_time() - started < 5

    def test_a_boundary_is_needed(self):
        with pytest.raises(Problem) as caught:
            parse_form(form((file(), b"1")), boundary="")
        assert caught.value.status == 400

    @given(st.binary(max_size=300), st.integers(0, 10_000))
    def test_damage_anywhere_is_a_problem_or_a_form(self, noise, place):
        good = form((file(b"one.wav"), b"12345"), (file(b"two.wav"), b"x" * 50))
        at = place % len(good)
        for body in (noise, good[:at] + noise + good[at:], good[:at] + noise):
            with contextlib.suppress(Problem):
                assert len(parse_form(body)) <= MOST_FILES


class TestNames:
    @given(st.text(max_size=500))
    def test_a_name_is_a_short_printable_text_and_no_path(self, given_name):
        name = display_name(given_name)
        assert 0 < len(name) <= LONGEST_NAME
        assert "/" not in name
        assert "\\" not in name
        assert all(unicodedata.category(char) not in ("Cc", "Cs") for char in name)

    @pytest.mark.parametrize(
        ("given_name", "shown"),
        [
            ("press 1.wav", "press 1.wav"),
            ("../../../etc/passwd", "passwd"),
            ("C:\\Users\\kim\\a.wav", "a.wav"),
            ("Lüfter.wav", "Lüfter.wav"),
            ("<script>alert(1)</script>.wav", "script>.wav"),
            ("evil\u202egnp.wav", "evilgnp.wav"),
            (None, "upload"),
            ("/", "upload"),
        ],
    )
    def test_names_as_they_are_shown(self, given_name, shown):
        assert display_name(given_name) == shown
