"""Messages between the service and its processes: a JSON header and bytes, each with its length."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_LENGTHS = struct.Struct("<IQ")
_MOST_HEADER = 1 << 22
_MOST_PAYLOAD = 1 << 32

Message = tuple[dict[str, Any], bytes]


def pack(header: dict[str, Any], payload_size: int = 0) -> bytes:
    """The bytes that go before a payload.

    Examples
    --------
    >>> from daco.monitoring.service.wire import pack
    >>> pack({"job": "score"}, 3)[12:]
    b'{"job":"score"}'
    """
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    return _LENGTHS.pack(len(text), payload_size) + text


def _lengths(prefix: bytes) -> tuple[int, int]:
    header, payload = _LENGTHS.unpack(prefix)
    if header > _MOST_HEADER or payload > _MOST_PAYLOAD:
        raise ConnectionError("a message of impossible length")
    return header, payload


def send(sock: socket.socket, header: dict[str, Any], payload: bytes = b"") -> None:
    """Send a message on a blocking socket."""
    sock.sendall(pack(header, len(payload)))
    if payload:
        sock.sendall(payload)


def receive(sock: socket.socket) -> Message | None:
    """The next message of a blocking socket; None when the other side has gone."""
    prefix = _exactly(sock, _LENGTHS.size)
    if prefix is None:
        return None
    header_size, payload_size = _lengths(prefix)
    header, payload = _exactly(sock, header_size), _exactly(sock, payload_size)
    if header is None or payload is None:
        return None
    return json.loads(header), payload


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        count = sock.recv_into(view[done:])
        if not count:
            return None
        done += count
    return bytes(buffer)


def parse(got: bytearray) -> Message | None:
    """The one message in what has arrived; None while some of it is missing."""
    if len(got) < _LENGTHS.size:
        return None
    header_size, payload_size = _lengths(bytes(got[: _LENGTHS.size]))
    middle = _LENGTHS.size + header_size
    if len(got) < middle + payload_size:
        return None
    return json.loads(got[_LENGTHS.size : middle]), bytes(got[middle:])
