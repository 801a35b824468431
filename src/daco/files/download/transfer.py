"""One file over HTTP: resumed where it broke off, verified, never half there under its name.

What a server says about lengths is a hint. The size and the checksum that the caller knows
decide, and without a checksum a part is only continued when the server confirms by an
``If-Range`` validator that it still has the same file.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from daco.errors import DownloadError, InputError
from daco.files.download.web import (
    BrokenError,
    HostUnreachableError,
    Policy,
    RangeNotSatisfiableError,
    host_of,
    length_of,
    open_url,
    persist,
    reason_of,
)
from daco.files.lock import hold_lock

Progress = Callable[[int, int | None], None]
"""Called with the bytes there so far and, where known, the bytes in all."""

_DIGITS = {"md5": 32, "sha256": 64, "sha512": 128}
_CHUNK = 1 << 20
_LIMIT_WHEN_UNKNOWN = 64 << 30


@dataclass(frozen=True)
class Fetched:
    """A file that is there: its checksum, whether that one was expected, and how it came.

    ``status`` is ``"present"`` (nothing was fetched), ``"fetched"`` or ``"resumed"``.
    """

    path: Path
    size: int
    checksum: str
    verified: bool
    status: str
    note: str | None = None


@dataclass(frozen=True)
class _Job:
    path: Path
    size: int | None
    checksum: str | None
    policy: Policy
    progress: Progress | None
    advice: str

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def part(self) -> Path:
        return part_of(self.path)

    @property
    def validator(self) -> Path:
        return self.path.with_name(self.name + ".part.json")

    def have(self) -> int:
        return size_of(self.part)

    def discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.validator.unlink(missing_ok=True)

    def digest(self, path: Path) -> str:
        return digest(path, self.checksum.partition(":")[0] if self.checksum else "sha256")


def fetch(
    urls: str | Sequence[str],
    path: Path | str,
    *,
    size: int | None = None,
    checksum: str | None = None,
    policy: Policy | None = None,
    progress: Progress | None = None,
    advice: str = "",
) -> Fetched:
    """Bring a file to ``path``, from the first of ``urls`` that has it.

    A file that is there with the right checksum is not fetched again. What has arrived stays in
    ``<name>.part`` until it is complete and verified, and is continued by the next call.

    Parameters
    ----------
    urls : str or sequence of str
        Addresses of the same bytes; http and https only.
    path : path
        Where the file is to be.
    size : int, optional
        Its bytes, if known.
    checksum : str, optional
        Such as ``"sha256:..."`` or ``"md5:..."``. Without one the result is not ``verified``.
    policy : Policy, optional
        Timeouts and retries.
    progress : callable, optional
        Called with bytes so far and bytes in all.
    advice : str
        What to do without a network, as the last part of a sentence.
    """
    checksum = parse_checksum(checksum) if checksum is not None else None
    job = _Job(Path(path), size, checksum, policy or Policy(), progress, advice)
    addresses = (urls,) if isinstance(urls, str) else tuple(urls)
    if not addresses:
        raise InputError(f"No address is known for {job.name}. Give at least one URL.")
    for url in addresses:
        host_of(url)
    with writing(job.path):
        job.path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(job.path, job.policy.lock_wait):
            return _fetch_locked(addresses, job)


def _fetch_locked(urls: tuple[str, ...], job: _Job) -> Fetched:
    note = None
    if job.path.exists():
        size, got = size_of(job.path), job.digest(job.path)
        if got == job.checksum if job.checksum else job.size in (None, size):
            return Fetched(job.path, size, got, job.checksum is not None, "present")
        aside = job.path.with_name(job.name + ".bad")
        os.replace(job.path, aside)
        expected = job.checksum or f"{job.size} bytes"
        found = got if job.checksum else f"{size} bytes"
        note = f"{job.name} was there with {found} instead of {expected}; moved to {aside.name}."
    if job.size is not None:
        require_space(job.path.parent, job.size - job.have(), job.name)
    failures: list[DownloadError] = []
    for url in urls:
        try:
            resumed, got = _complete_part(url, job)
        except DownloadError as error:
            failures.append(error)
            continue
        with job.part.open("rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(job.part, job.path)
        job.validator.unlink(missing_ok=True)
        status = "resumed" if resumed else "fetched"
        return Fetched(job.path, size_of(job.path), got, job.checksum is not None, status, note)
    if len(failures) == 1:
        raise failures[0]
    offline = all(isinstance(error, HostUnreachableError) for error in failures)
    kind = HostUnreachableError if offline else DownloadError
    raise kind(f"None of {len(urls)} addresses gave {job.name}: " + " ".join(map(str, failures)))


def _complete_part(url: str, job: _Job) -> tuple[bool, str]:
    """Fill and verify the part; whether older bytes were of use, and its checksum."""
    resumed = job.have() > 0
    pieces = _fill_part(url, job)
    got = job.digest(job.part)
    if job.checksum not in (None, got) and pieces > 1:
        # The pieces may stem from two versions of the file: once more, in one piece.
        job.discard()
        resumed = False
        _fill_part(url, job)
        got = job.digest(job.part)
    if job.checksum in (None, got):
        return resumed, got
    with job.part.open("rb") as handle:
        page = handle.read(512).lstrip().lower().startswith((b"<!doctype", b"<html"))
    job.discard()
    reason = (
        "What came is a web page, perhaps of a proxy that wants a login."
        if page
        else "Try again; if it stays like this, the address no longer has the expected file."
    )
    raise DownloadError(
        f"{job.name} from {host_of(url)} has the wrong checksum: expected {job.checksum}, got "
        f"{got}; it was deleted and is not used. {reason}"
    )


def _fill_part(url: str, job: _Job) -> int:
    """Request until the part is complete; the number of pieces it was put together from."""
    pieces = [0] if job.have() else []
    kept = f"What came is kept in {job.part}: run the same command again to continue."
    persist(
        lambda: _append_answer(url, job, pieces),
        job.have,
        job.name,
        url,
        job.policy,
        advice=job.advice,
        kept=kept,
    )
    return len(pieces)


def _append_answer(url: str, job: _Job, pieces: list[int]) -> None:
    """One request, its answer appended to the part and its first byte to ``pieces``."""
    have = job.have()
    if job.size is not None and have > job.size:
        job.discard()
        have = 0
    if have and have == job.size:
        return
    headers = {}
    validator = _read_validator(job, url)
    if have and (validator or job.checksum):
        headers["Range"] = f"bytes={have}-"
        if validator:
            headers["If-Range"] = validator
    try:
        response = open_url(url, headers, job.policy, job.name)
    except RangeNotSatisfiableError:
        if job.checksum is not None:
            return  # nothing left to send: the checksum will tell
        job.discard()
        raise BrokenError("the file on the server has changed") from None
    with response:
        start, total = _announced(response)
        if start not in (0, have):
            job.discard()
            raise BrokenError(f"the server continued at byte {start} instead of {have}")
        if job.checksum is None and job.size is not None and total not in (None, job.size):
            raise DownloadError(
                f"{job.name} should have {job.size} bytes, but {host_of(url)} announces {total}; "
                "nothing was fetched. Check the address."
            )
        if job.size is None and total is not None:
            require_space(job.path.parent, total - start, job.name)
        total = total if job.size is None else job.size
        _write_validator(job, url, response.headers)
        pieces[:] = [*pieces, start] if start else [0]
        with job.part.open("ab" if start else "wb") as out:
            _copy(response, out, start, total, job)
    if total is not None and job.have() < total:
        raise BrokenError(f"the connection broke off after {job.have()} of {total} bytes")


def _announced(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """The first byte of an answer and, where the server tells, the length of the whole file."""
    length = length_of(response.headers.get("Content-Length"))
    if response.status == 200:
        return 0, length
    stated = re.fullmatch(
        r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip()
    )
    if stated is None:
        return -1, None
    start = int(stated[1])
    if stated[2] != "*":
        return start, int(stated[2])
    return start, None if length is None else start + length


def _copy(
    response: http.client.HTTPResponse, out: IO[bytes], have: int, total: int | None, job: _Job
) -> None:
    limit = _LIMIT_WHEN_UNKNOWN if total is None else total
    window, came = time.monotonic(), 0
    while have < limit:
        try:
            # read1 returns what is there; read would wait on a trickle without ever timing out.
            chunk = response.read1(min(_CHUNK, limit - have))
        except (OSError, http.client.HTTPException) as error:
            raise BrokenError(reason_of(error)) from error
        if not chunk:
            return
        out.write(chunk)
        have += len(chunk)
        came += len(chunk)
        if job.progress is not None:
            job.progress(have, total)
        elapsed = time.monotonic() - window
        if elapsed >= job.policy.timeout:
            if came < job.policy.slowest * elapsed:
                raise BrokenError(f"only {came} bytes came in {elapsed:.1f} s")
            window, came = time.monotonic(), 0


def _write_validator(job: _Job, url: str, headers: Any) -> None:
    etag = headers.get("ETag")
    # A weak ETag promises the same meaning, not the same bytes.
    strong = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")
    job.validator.write_text(json.dumps({"url": url, "if_range": strong}), encoding="utf-8")


def _read_validator(job: _Job, url: str) -> str | None:
    try:
        stored = json.loads(job.validator.read_text(encoding="utf-8"))
        value = stored["if_range"] if stored["url"] == url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) and value.isprintable() and value.isascii() else None


def parse_checksum(checksum: str) -> str:
    """A checksum as ``algorithm:hex``; a bare one is told by its length.

    Examples
    --------
    >>> from daco.files.download.transfer import parse_checksum
    >>> parse_checksum("D41D8CD98F00B204E9800998ECF8427E")
    'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    algorithm, _, value = checksum.strip().lower().rpartition(":")
    algorithm = algorithm or {n: a for a, n in _DIGITS.items()}.get(len(value), "")
    if _DIGITS.get(algorithm) != len(value) or not re.fullmatch(r"[0-9a-f]+", value):
        raise InputError(
            f"{checksum!r} is not a checksum. Give 'algorithm:hex' with {', '.join(_DIGITS)}."
        )
    return f"{algorithm}:{value}"


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file, as ``algorithm:hex``."""
    with path.open("rb") as handle:
        return f"{algorithm}:{hashlib.file_digest(handle, algorithm).hexdigest()}"


def part_of(path: Path) -> Path:
    """Where an unfinished transfer of ``path`` is kept."""
    return path.with_name(path.name + ".part")


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def require_space(folder: Path, needed: int, what: str) -> None:
    """A DownloadError when the disk of an existing folder has less than ``needed`` bytes free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(
            f"{what} needs {needed / 1e9:.2f} GB, but {folder} has {free / 1e9:.2f} GB free. "
            "Free some space or choose another folder."
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure of the file system into a DownloadError that names the file."""
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"Cannot write {path}: {error.strerror or error}. Choose a folder that is writable "
            "and has room."
        ) from error
