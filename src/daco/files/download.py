"""Downloads that are verified and resumed: checkpoints of networks, and any file with a checksum.

pooch transfers the bytes. They are collected in ``<name>.part``, so that an interrupted download
goes on where it ended, and get their name once the checksum is right.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from daco.errors import DownloadError, InputError, WeightsError
from daco.files.atomic import atomic_write, hold_lock
from daco.text import quantity
from daco.version import __version__

if TYPE_CHECKING:
    import requests

WEIGHTS_DIR_VARIABLE = "DACO_WEIGHTS_DIR"
TIMEOUT = 30.0  # seconds without an answer after which a connection counts as broken
TRIES = 5  # attempts in a row that may fail; one that brought a mebibyte starts the count anew
LONGEST_WAIT = 120.0  # seconds that a server may ask to wait
LOCK_WAIT = 3600.0  # seconds to wait for another process that fetches the same file

Progress = Callable[[int, int | None], None]
"""Called with the bytes so far and, where known, the bytes in all."""

_CHUNK = 1 << 16  # of a broken connection, less than this is lost
_MUCH = 1 << 20
_BUSY = {408, 425, 429, 500, 502, 503, 504}
_FAILURES = {  # what requests says, and what to tell the user
    "Connection refused": "it refuses the connection",
    "Failed to resolve": "its name cannot be resolved",
    "imed out": "no answer in time",
}


class HostUnreachableError(DownloadError):
    """No connection to the host: further files from it would fail alike."""


@dataclass(frozen=True)
class Fetched:
    """A verified file; ``status`` is ``present``, ``fetched``, ``resumed`` or ``installed``."""

    path: Path
    size: int
    checksum: str
    status: str
    note: str | None = None


@dataclass(frozen=True)
class WeightSource:
    """A published checkpoint; ``urls`` are tried in order, and ``size`` is in bytes."""

    name: str
    file_name: str
    urls: tuple[str, ...]
    sha256: str
    licence: str
    size: int | None = None

    @property
    def checksum(self) -> str:
        """The checksum with its algorithm."""
        return f"sha256:{self.sha256}"

    @property
    def path(self) -> Path:
        """Where the checkpoint is stored."""
        return weights_dir() / self.name / self.file_name


def weights_dir() -> Path:
    """Return the folder of checkpoints: ``$DACO_WEIGHTS_DIR``, or a folder in the user's cache."""
    chosen = os.environ.get(WEIGHTS_DIR_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    cache = os.environ.get(variable)
    return (Path(cache) if cache else Path.home() / ".cache") / "daco" / "weights"


def download_weights(source: WeightSource, progress: Progress | None = None) -> Fetched:
    """Download a checkpoint into ``<weights folder>/<name>/``, unless it is there.

    A file directly in the weights folder, as in a mirror filled by hand, counts as well.

    Parameters
    ----------
    source : WeightSource
    progress : callable, optional
        Called with the bytes so far and, if known, the bytes in all.

    Returns
    -------
    Fetched

    Raises
    ------
    DownloadError
        The download failed; the same call continues it.
    """
    by_hand = weights_dir() / source.file_name
    if not source.path.exists() and _has_checksum(by_hand, source.checksum):
        return Fetched(by_hand, size_of(by_hand), source.checksum, "present")
    advice = (
        f"on a computer without internet, fetch {source.file_name} elsewhere and give it with "
        "--weights FILE, or put it into the folder that DACO_WEIGHTS_DIR names"
    )
    return fetch(source.urls, source.path, source.checksum, source.size, progress, advice)


def install_weights(source: WeightSource, file: Path) -> Fetched:
    """Copy a checkpoint that was fetched elsewhere into the weights folder, if it is the one."""
    path = source.path
    if not file.is_file():
        raise WeightsError(f"{file} is not a file. Give the path of {source.file_name}.")
    if _has_checksum(path, source.checksum):
        return Fetched(path, size_of(path), source.checksum, "present")
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        require_space(path.parent, size_of(file), source.file_name)
        with atomic_write(path) as temporary:
            shutil.copyfile(file, temporary)
            if (actual := _checksum(temporary, "sha256")) != source.checksum:
                raise WeightsError(
                    f"{file} is not the published {source.file_name}: expected {source.checksum}, "
                    f"got {actual}; nothing was installed. Fetch it again from {source.urls[0]}."
                )
    return Fetched(path, size_of(path), source.checksum, "installed")


def fetch(
    urls: Sequence[str],
    path: Path,
    checksum: str,
    size: int | None = None,
    progress: Progress | None = None,
    advice: str = "",
) -> Fetched:
    """Bring a file to `path`, from the first of several addresses that has it.

    One with another checksum (``"sha256:..."`` or ``"md5:..."``) is moved aside. `advice` says
    what to do without a network, as the last part of a sentence.
    """
    part, note = part_of(path), None
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(path, LOCK_WAIT):
            if _has_checksum(path, checksum):
                return Fetched(path, size_of(path), checksum, "present")
            if path.exists():
                os.replace(path, path.with_name(f"{path.name}.bad"))
                note = f"{path.name} was there without {checksum}; moved to {path.name}.bad."
            resumed, failures = size_of(part) > 0, []
            require_space(path.parent, (size or 0) - size_of(part), path.name)
            for url in urls:
                try:
                    _fetch_part(url, part, checksum, size, progress, advice)
                except DownloadError as error:
                    failures.append(error)
                    if not size_of(part):
                        part.unlink(missing_ok=True)
                    continue
                with part.open("rb+") as file:
                    os.fsync(file.fileno())
                os.replace(part, path)
                status = "resumed" if resumed else "fetched"
                return Fetched(path, size_of(path), checksum, status, note)
    if len(failures) == 1:
        raise failures[0]
    offline = all(isinstance(error, HostUnreachableError) for error in failures)
    raise (HostUnreachableError if offline else DownloadError)(
        f"{path.name} could not be fetched from any of {len(urls)} addresses: "
        f"{' '.join(map(str, failures))}"
    )


def _fetch_part(
    url: str, part: Path, checksum: str, size: int | None, progress: Progress | None, advice: str
) -> None:
    """Complete and verify the part; one that was put together of pieces gets a second chance."""
    name = part.name.removesuffix(".part")
    for _ in range(2):
        whole = transfer(url, part, name, size, progress, advice)
        if (actual := _checksum(part, checksum.partition(":")[0])) == checksum:
            return
        with part.open("rb") as file:
            page = file.read(512).lstrip().lower().startswith((b"<!doctype", b"<html"))
        part.unlink()
        if whole:
            break
    reason = (
        "What came is a web page, perhaps of a proxy that wants a login."
        if page
        else "Try again; if it stays like this, the address no longer has the expected file."
    )
    raise DownloadError(
        f"{name} from {host_of(url)} has the wrong checksum: expected {checksum}, got {actual}; it "
        f"was deleted and is not used. {reason}"
    )


def transfer(
    url: str,
    part: Path,
    name: str,
    size: int | None = None,
    progress: Progress | None = None,
    advice: str = "",
) -> bool:
    """Fetch what a file lacks, in several attempts; whether all of it came in one piece."""
    host, failures, whole = host_of(url), 0, size_of(part) == 0
    while size is None or size_of(part) < size:
        before = size_of(part)
        try:
            _request(url, part, size, progress)
            break
        except _BrokenError as error:
            failures = 1 if size_of(part) - before >= _MUCH else failures + 1
            whole = size_of(part) == 0
            if error.unreachable and whole:
                raise HostUnreachableError(
                    f"Cannot reach {host} for {name} ({error}): check the network or the proxy "
                    f"setting (HTTPS_PROXY){'; ' if advice else ''}{advice}."
                ) from None
            if failures == TRIES or error.wait > LONGEST_WAIT:
                rest = f" What came is kept in {part}." if size_of(part) else ""
                raise DownloadError(
                    f"Fetching {name} from {host} failed {quantity(failures, 'time')}, at last "
                    f"because {error}.{rest} Run the same command again later."
                ) from None
            sleep(max(error.wait, 2.0 ** (failures - 1)))
    return whole


class _BrokenError(Exception):
    """A request failed, but another may succeed, after `wait` seconds."""

    def __init__(self, reason: str, *, wait: float = 0.0, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.unreachable = wait, unreachable


def _request(url: str, out: Path, size: int | None, progress: Progress | None) -> None:
    """Append what a server has to a file, from the file's present length on."""
    import pooch
    import requests

    responses: list[requests.Response] = []

    def check(response: requests.Response, **options: Any) -> None:
        responses.append(response)
        if url.startswith("https:") and not response.url.startswith("https:"):
            raise DownloadError(f"{url} redirects to {response.url}, which is not secure.")
        if response.status_code == 200:  # the whole file, whatever was asked for
            file.truncate(0)

    with out.open("ab") as file:
        headers = {"User-Agent": f"daco/{__version__}", "Accept-Encoding": "identity"}
        if start := file.tell():
            headers["Range"] = f"bytes={start}-"
        bar = _ProgressBar(file, size, progress)
        options = {"headers": headers, "hooks": {"response": check}, "timeout": TIMEOUT}
        download = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK, **options)
        try:
            download(url, file, None)
        except requests.HTTPError as error:
            failed: Any = error.response
            if failed.status_code == 416:  # no more bytes: the checksum decides
                return
            if failed.status_code not in _BUSY:
                raise DownloadError(
                    f"{host_of(url)} answered {failed.status_code} ({failed.reason}) for "
                    f"{out.name.removesuffix('.part')}. Check the address {url}."
                ) from None
            asked = failed.headers.get("Retry-After", "")
            wait = float(asked) if asked.isdecimal() else 0.0
            raise _BrokenError(f"the server answered {failed.status_code}", wait=wait) from None
        except requests.exceptions.SSLError as error:
            raise DownloadError(
                f"The certificate of {host_of(url)} is not trusted ({error}). If a proxy inspects "
                "the traffic, set REQUESTS_CA_BUNDLE to its certificate."
            ) from None
        except (requests.TooManyRedirects, requests.exceptions.InvalidSchema) as error:
            raise DownloadError(f"{url} redirects to nowhere ({error}).") from None
        except requests.RequestException as error:
            known = (words for text, words in _FAILURES.items() if text in str(error))
            reason = "the connection broke off" if responses else next(known, str(error))
            raise _BrokenError(reason, unreachable=not responses) from None
        finally:
            for response in responses:
                response.close()


class _ProgressBar:
    """Passes the length of a growing file on, and stops a transfer that is too long."""

    total = 0

    def __init__(self, file: IO[bytes], size: int | None, progress: Progress | None) -> None:
        self._file, self._size, self._progress = file, size, progress
        self._start = file.tell()

    def update(self, chunk: int) -> None:
        have, limit = self._file.tell(), self._size or self._start + self.total
        if self._size is not None and have > self._size + _CHUNK:
            raise DownloadError(f"The server sends more than the {self._size} bytes of the file.")
        if self._progress is not None:
            self._progress(have, limit or None)

    def reset(self) -> None:
        """As of any progress bar."""

    close = reset


def host_of(url: str) -> str:
    """The host of an http or https address; an InputError for any other.

    >>> host_of("https://zenodo.org/api/records/7882613")
    'zenodo.org'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is not an http or https address with a host.")
    return parts.hostname


def _checksum(path: Path, algorithm: str) -> str:
    import pooch

    return f"{algorithm}:{pooch.file_hash(str(path), algorithm)}"


def _has_checksum(path: Path, checksum: str) -> bool:
    return path.is_file() and _checksum(path, checksum.partition(":")[0]) == checksum


def part_of(path: Path) -> Path:
    """Where an unfinished download of `path` is kept."""
    return path.with_name(path.name + ".part")


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def require_space(folder: Path, needed: int, what: str) -> None:
    """A DownloadError when the disk of an existing folder has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(
            f"{what} needs {needed / 1e9:.2f} GB, but {folder} has {free / 1e9:.2f} GB free. "
            "Free some space or choose another folder."
        )


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
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
