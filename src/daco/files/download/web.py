"""Requests over HTTP with bounded patience: timeouts, retries, redirects, plain words for failures.

Only ``http`` and ``https`` are spoken, also after a redirect.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import urlsplit

from daco.errors import DownloadError, InputError
from daco.version import __version__

_PASSING = {408, 425, 429, 500, 502, 503, 504}
_ENOUGH_PROGRESS = 1 << 20
_JSON_LIMIT = 8 << 20


@dataclass(frozen=True)
class Policy:
    """How patient a transfer is.

    Parameters
    ----------
    timeout : float
        Seconds without an answer, and the window in which ``slowest`` is judged.
    tries : int
        Attempts in a row that may fail; one that brought a mebibyte starts the count anew.
    backoff : float
        Seconds before the second attempt; doubled for each further one.
    longest_wait : float
        The longest pause a server may ask for before the transfer is given up.
    redirects : int
        How many may follow one another.
    slowest : float
        Bytes per second below which a connection counts as broken.
    lock_wait : float
        Seconds to wait for another process that is fetching the same file.
    sleep : callable
        Replaced in tests.
    """

    timeout: float = 30.0
    tries: int = 5
    backoff: float = 1.0
    longest_wait: float = 120.0
    redirects: int = 5
    slowest: float = 1024.0
    lock_wait: float = 3600.0
    sleep: Callable[[float], None] = time.sleep


class HostUnreachableError(DownloadError):
    """No connection to the host at all: further files from it would fail alike."""


class BrokenError(Exception):
    """An attempt failed in a way that another may not; never leaves the package."""

    def __init__(self, reason: str, *, wait: float = 0.0, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.wait, self.unreachable = reason, wait, unreachable


class RangeNotSatisfiableError(Exception):
    """The server has no bytes from the asked position on; never leaves the package."""


def host_of(url: str) -> str:
    """The host of an http or https address; an InputError for any other.

    Examples
    --------
    >>> from daco.files.download.web import host_of
    >>> host_of("https://zenodo.org/api/records/7882613")
    'zenodo.org'
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{url!r} is not an address: {error}.") from None
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not host or not plain:
        raise InputError(f"{url!r} is not an http or https address with a host, in plain ASCII.")
    return host


def open_url(
    url: str, headers: Mapping[str, str], policy: Policy, what: str
) -> http.client.HTTPResponse:
    """An answer with status 200, or 206 where a range was asked for; the caller closes it."""
    opener = urllib.request.OpenerDirector()  # bare: no handler for file:, ftp: or data:
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(policy.redirects),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    headers = {"User-Agent": f"daco/{__version__}", **headers}
    try:
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=policy.timeout)
    except urllib.error.HTTPError as error:
        with error:
            _raise_for_status(error, url, what, "Range" in headers)
    except (OSError, http.client.HTTPException) as error:
        _raise_for_connection(error, url)
    assert isinstance(response, http.client.HTTPResponse)
    if response.status != 200 and not (response.status == 206 and "Range" in headers):
        response.close()
        raise DownloadError(
            f"{host_of(url)} answered {response.status} for {what}, which has no file in it. "
            f"Check the address {url}."
        )
    return response


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, most: int) -> None:
        self.left = most

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        self.left -= 1
        if self.left < 0:
            raise urllib.error.HTTPError(req.full_url, code, "too often", headers, fp)
        scheme = urlsplit(newurl).scheme
        if scheme != "https" and scheme != req.type:
            reason = f"from {req.type} to {scheme}"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _raise_for_status(error: urllib.error.HTTPError, url: str, what: str, ranged: bool) -> NoReturn:
    if error.code == 416 and ranged:
        raise RangeNotSatisfiableError from None
    if error.code in _PASSING:
        wait = _wait_asked_for(error.headers)
        raise BrokenError(f"the server answered {error.code}", wait=wait) from None
    if 300 <= error.code < 400:
        reason = str(error.reason)
        way = "in a circle" if "infinite loop" in reason else reason
        raise DownloadError(
            f"{host_of(url)} redirects {what} {way}, which is not followed. "
            f"Check the address {url}."
        ) from None
    raise DownloadError(
        f"{host_of(url)} answered {error.code} ({error.reason}) for {what}. "
        f"Check the address {url}."
    ) from None


def _raise_for_connection(error: Exception, url: str) -> NoReturn:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise DownloadError(
            f"The certificate of {host_of(url)} is not trusted ({cause.verify_message}). If a "
            "proxy inspects the traffic, set SSL_CERT_FILE to its certificate."
        ) from error
    # A server that hangs up or talks nonsense was reached; anything else means no connection.
    reached = isinstance(cause, http.client.HTTPException | ConnectionResetError)
    raise BrokenError(reason_of(cause), unreachable=not reached) from error


def reason_of(error: object) -> str:
    """A failure of a connection in words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "it refuses the connection"
    if isinstance(error, http.client.IncompleteRead | ConnectionResetError):
        return "the connection broke off"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error)


def _wait_asked_for(headers: Any) -> float:
    """Seconds of ``Retry-After`` (a number or a date) or of Zenodo's ``X-RateLimit-Reset``."""
    asked = (headers.get("Retry-After") or "").strip()
    if asked.isdecimal():
        return float(asked)
    if asked:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(asked).timestamp() - time.time())
        except (TypeError, ValueError, OverflowError):
            return 0.0
    reset = (headers.get("X-RateLimit-Reset") or "").strip()
    spent = (headers.get("X-RateLimit-Remaining") or "").strip() == "0"
    return max(0.0, float(reset) - time.time()) if spent and reset.isdecimal() else 0.0


def persist(
    attempt: Callable[[], object],
    received: Callable[[], int],
    what: str,
    url: str,
    policy: Policy,
    *,
    advice: str = "",
    kept: str = "",
) -> None:
    """Call ``attempt`` until it succeeds or patience ends.

    Parameters
    ----------
    attempt : callable
        Raises BrokenError when another attempt may do better.
    received : callable
        Bytes that have arrived so far, over all attempts.
    what, url : str
        For messages.
    policy : Policy
        The patience.
    advice : str
        What to do without a network, as the last part of a sentence.
    kept : str
        A sentence about what is kept of an unfinished transfer.
    """
    failures, anything, host = 0, False, host_of(url)
    while True:
        before = received()
        try:
            attempt()
            return
        except BrokenError as broken:
            gained = received() - before
            anything = anything or gained > 0
            failures = 1 if gained >= _ENOUGH_PROGRESS else failures + 1
            # Nobody wants to wait half a minute to learn that there is no network.
            patience = min(2, policy.tries) if broken.unreachable and not anything else policy.tries
            if broken.wait > policy.longest_wait:
                raise DownloadError(
                    f"{host} asks to wait {broken.wait:.0f} s before {what} is fetched "
                    f"({broken.reason}). Run the same command again after that."
                ) from broken
            if failures >= patience and broken.unreachable:
                raise HostUnreachableError(
                    f"Cannot reach {host} for {what} ({broken.reason}): check the network or the "
                    f"proxy setting (HTTPS_PROXY){'; ' if advice else ''}{advice}."
                ) from broken
            if failures >= patience:
                raise DownloadError(
                    f"Fetching {what} from {host} failed {failures} times in a row, at last "
                    f"because {broken.reason}. {(received() and kept) or 'Try again later.'}"
                ) from broken
            policy.sleep(max(broken.wait, policy.backoff * 2.0 ** (failures - 1)))


def fetch_json(url: str, *, policy: Policy | None = None, advice: str = "") -> Any:
    """A small JSON document from ``url``."""
    policy = policy or Policy()
    answer = b""

    def attempt() -> None:
        nonlocal answer
        with open_url(url, {"Accept": "application/json"}, policy, url) as response:
            claimed = length_of(response.headers.get("Content-Length"))
            try:
                answer = response.read(_JSON_LIMIT + 1)
            except (OSError, http.client.HTTPException) as error:
                raise BrokenError(reason_of(error)) from error
        if claimed is not None and len(answer) < min(claimed, _JSON_LIMIT):
            raise BrokenError(f"the connection broke off after {len(answer)} of {claimed} bytes")

    persist(attempt, lambda: 0, url, url, policy, advice=advice)
    if len(answer) > _JSON_LIMIT:
        raise DownloadError(f"The answer of {url} is longer than {_JSON_LIMIT} bytes.")
    try:
        return json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise DownloadError(f"The answer of {url} is not JSON ({error}).") from error


def length_of(header: str | None) -> int | None:
    """A ``Content-Length``, or None where there is none that is a number."""
    return int(header) if header is not None and header.strip().isdecimal() else None
