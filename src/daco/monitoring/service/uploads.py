"""Request bodies: read within bounds of size, time and memory, as one recording or several."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from daco.monitoring.service.problems import Problem, busy

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

LONGEST_NAME = 200
MOST_FILES = 16
UNNAMED = "upload"

_MOST_PARTS = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_AUDIO = re.compile(r"audio/[a-z0-9.+-]{1,64}|application/(octet-stream|ogg|x-flac)", re.ASCII)


@dataclass(frozen=True)
class Upload:
    """A recording as it was sent, and what the sender calls it."""

    name: str
    data: bytes = field(repr=False)


class Admission:
    """How many uploads are received or waiting, and how many bytes they hold together."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.uploads = 0
        self.bytes = 0
        self._most, self._most_bytes = most, most_bytes

    @contextmanager
    def one(self) -> Iterator[Share]:
        """A place for an upload; busy, at once, when all are taken."""
        if self.uploads >= self._most:
            raise busy()
        self.uploads += 1
        share = Share(self)
        try:
            yield share
        finally:
            self.uploads -= 1
            self.bytes -= share.bytes

    def has_room(self, more: int) -> bool:
        """Whether so many bytes more can be held."""
        return self.bytes + more <= self._most_bytes


class Share:
    """The bytes that one upload holds."""

    def __init__(self, admission: Admission) -> None:
        self.bytes = 0
        self._admission = admission

    def grow_to(self, size: int) -> None:
        """Hold `size` bytes; busy when others hold too many."""
        more = size - self.bytes
        if more > 0:
            if not self._admission.has_room(more):
                raise busy()
            self._admission.bytes += more
            self.bytes = size


def media_type(request: Request) -> str:
    """The type of a body that can hold recordings; a Problem for any other.

    It only tells bodies apart. What is in a recording is told by its content.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "Send the recording as it is, without a Content-Encoding.")
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != "multipart/form-data" and not _AUDIO.fullmatch(given):
        raise Problem(
            415,
            "Send the recording as audio/wav, audio/flac, application/octet-stream or the field "
            '"file" of multipart/form-data; curl: -H "Content-Type: audio/wav".',
        )
    return given


async def read_body(request: Request, share: Share, *, most: int, seconds: float) -> bytes:
    """The whole body; a Problem as soon as it is too large or too slow."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        if len(declared) > 18 or int(declared) > most:
            raise too_large(most)
        share.grow_to(int(declared))
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large(most)
                share.grow_to(len(body))
    except TimeoutError:
        raise Problem(
            408, f"The body did not arrive within {seconds:g} s.", {"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise Problem(400, "The connection ended before the body did.") from None
    return bytes(body)


def too_large(most: int) -> Problem:
    """The answer to a body of more than `most` bytes."""
    return Problem(413, f"At most {most / 1e6:g} MB are accepted. Cut the recording into clips.")


def recordings_of(request: Request, media: str, body: bytes, name: str | None) -> list[Upload]:
    """What a body holds: itself, or the files of a form."""
    if media != "multipart/form-data":
        return [Upload(display_name(name), body)]
    _, options = parse_options_header(request.headers["content-type"])
    uploads = parse_form(body, options.get(b"boundary", b""))
    if not uploads:
        raise Problem(400, 'The form has no file. Put the recordings into fields named "file".')
    if name is not None and len(uploads) == 1:
        return [Upload(display_name(name), uploads[0].data)]
    return uploads


def parse_form(body: bytes, boundary: bytes) -> list[Upload]:
    r"""The files in the fields ``file`` of a form; other fields are passed over.

    Examples
    --------
    >>> from daco.monitoring.service.uploads import parse_form
    >>> head = b'Content-Disposition: form-data; name="file"; filename="C:\\\\a\\\\b.wav"'
    >>> parse_form(b"--x\r\n" + head + b"\r\n\r\nRIFF\r\n--x--\r\n", b"x")[0].name
    'b.wav'
    """
    form = _Form()
    if not 0 < len(boundary) <= 70:
        raise Problem(400, "The form has no boundary, or too long a one.")
    try:
        parser = MultipartParser(boundary, form.callbacks())
        parser.write(body)
        parser.finalize()
    except MultipartParseError:
        raise Problem(400, "The form is damaged.") from None
    if not form.ended:
        raise Problem(400, "The form was cut off.")
    return form.uploads


class _Form:
    """Collects the files of a form while it is parsed, and gives up when there is too much."""

    def __init__(self) -> None:
        self.uploads: list[Upload] = []
        self.ended = False
        self._parts = 0
        self._begin()

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin_part,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._take_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._field = self._value = b""
        self._disposition = b""
        self._filename: bytes | None = None
        self._data: list[bytes] | None = None

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise Problem(413, f"A form may have {_MOST_PARTS} fields at most.")
        self._begin()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        if options.get(b"name") != b"file":
            return
        if len(self.uploads) >= MOST_FILES:
            raise Problem(413, f"At most {MOST_FILES} recordings in one request.")
        self._filename, self._data = options.get(b"filename", b""), []

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._data is not None:
            self._data.append(data[start:end])

    def _end_part(self) -> None:
        if self._data is not None:
            name = (self._filename or b"").decode("utf-8", "replace")
            self.uploads.append(Upload(display_name(name), b"".join(self._data)))
        self._data = None

    def _end(self) -> None:
        self.ended = True


def display_name(given: str | None) -> str:
    r"""What a client calls its recording, as a text to show: no folders, no control characters.

    Examples
    --------
    >>> from daco.monitoring.service.uploads import display_name
    >>> display_name("../../etc/passwd"), display_name("a\x00b\n.wav"), display_name("")
    ('passwd', 'ab.wav', 'upload')
    """
    text = _CONTROL.sub("", (given or "")[:4096]).replace("\\", "/").rsplit("/", 1)[-1].strip()
    return text[:LONGEST_NAME] or UNNAMED
