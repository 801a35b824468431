"""Locations: local files, and files of remote stores such as ``s3://bucket/folder``.

A local location is a `pathlib.Path`, a remote one a `upath.UPath` of universal_pathlib. Recordings
are read from both, and tables are read and written; everything else is local. Endpoint, region and
credentials of a store come from the environment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from daco.errors import DataError, InputError, MissingExtraError

if TYPE_CHECKING:
    from typing_extensions import TypeIs
    from upath import UPath

Location: TypeAlias = "Path | UPath"
"""A local or remote path."""

REMOTE_THREADS = 16
"""Threads that read remote files at a time: a small one is mostly waiting for the answer."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/]*)(.*)", re.DOTALL)  # one letter is a drive
_BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")  # fsspec remembers their listings
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
_HINT = (
    "Check its name, the network and the credentials (for S3, AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID "
    "and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)."
)


class Status(NamedTuple):
    """Size and time of the last change of a remote file, -1 and 0 where the store names none."""

    st_size: int
    st_mtime_ns: int


def parse_location(given: str | os.PathLike[str] | Location) -> Location:
    """Turn a path into a local location, or a URL into a remote one.

    Parameters
    ----------
    given : str or path
        A URL such as ``s3://bucket/folder/name``; everything else is a local path. A `UPath` stays
        as it is, with its storage options.

    Returns
    -------
    Path or UPath

    Raises
    ------
    InputError
        The URL has a password or no bucket.
    MissingExtraError
        universal_pathlib or the package of the protocol is not installed.

    Examples
    --------
    >>> from daco.files.remote import parse_location
    >>> parse_location("clips/fan"), parse_location("file:///data/fan")
    (PosixPath('clips/fan'), PosixPath('/data/fan'))
    >>> print(parse_location("s3://plant/clips//fan/") / "a.wav")
    s3://plant/clips/fan/a.wav
    """
    match = _URL.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        return given if is_remote(given) else Path(cast(Any, given))
    protocol, host, path = match[1].lower(), match[2], match[3]
    if protocol == "file":
        from urllib.request import url2pathname

        return Path(url2pathname(path))
    if ":" in re.sub(r":\d{1,5}$", "", host):  # everything after it may be secret
        raise InputError(
            f"{protocol}://... has a colon before the first slash. Set user and password in the "
            "environment, and give a URL without them."
        )
    if protocol in _BUCKETS and not host:
        raise InputError(f"{given}: name a bucket, such as {protocol}://plant/clips.")
    try:
        import fsspec
        from upath import UPath

        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:  # a ValueError where fsspec knows no package
        raise MissingExtraError(
            f"{protocol}:// needs another package ({error}). That of s3:// comes with "
            'pip install "daco-asd[remote]".'
        ) from None
    options: Any = {"use_listings_cache": False} if protocol in _BUCKETS else {}
    names = posixpath.normpath(f"/{path}").strip("/")
    return UPath(f"{protocol}://{host}/{names}", **options)


def is_url(text: str) -> bool:
    """Whether a text is a URL; ``C://plant`` is none."""
    return _URL.fullmatch(text) is not None


def is_remote(value: object) -> TypeIs[UPath]:
    """Tell whether a value is a remote path."""
    upath = sys.modules.get("upath")  # loaded by who made the path
    return upath is not None and isinstance(value, upath.UPath) and not isinstance(value, Path)


def bucket_of(path: UPath) -> UPath:
    """The bucket of a path, or the top of its file system."""
    return path.with_segments(path.anchor)


def name_of(path: Location) -> str:
    """The last part of a path; of a whole bucket its name."""
    return path.name or str(path).rstrip("/").rpartition("/")[2]


def require_local(given: Location | str, what: str) -> Path:
    """A local path; an InputError where `given` is remote."""
    path = parse_location(given)
    if isinstance(path, Path):
        return path
    raise InputError(
        f"{what} must be on this computer. Got {path} instead: give a local path, and copy what is "
        "there with the tools of the store."
    )


@contextlib.contextmanager
def explain_errors(path: Location, action: str = "read") -> Iterator[None]:
    """Turn failures of a store into a `DataError`: what could not be `action`, and what to do.

    A missing file stays a `FileNotFoundError`, and errors of local files stay as they are.
    """
    try:
        yield
    except Exception as error:
        # Each store has errors of its own beside those of Python.
        package = type(error).__module__.partition(".")[0]
        foreign = package not in ("builtins", "daco", "pyarrow", "pandas")
        if not is_remote(path) or not (foreign or isinstance(error, OSError)):
            raise
        if isinstance(error, FileNotFoundError) and action == "read":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        reason = str(error).strip().partition("\n")[0].rstrip(" .") or type(error).__name__
        raise DataError(f"{path}: cannot be {action} ({reason}). {_HINT}") from None


def is_folder(path: Location) -> bool:
    """Whether a location is a folder; a remote one exists while it has files."""
    with explain_errors(path):
        return path.is_dir()


def is_file(path: Location) -> bool:
    """Whether a location is a file."""
    with explain_errors(path):
        return path.is_file()


@contextlib.contextmanager
def open_location(path: Location) -> Iterator[Any]:
    """Yield a local path as it is, and a remote file opened for reading."""
    if isinstance(path, Path):
        yield path
        return
    with explain_errors(path), path.open("rb") as file:
        yield file


def list_files(folder: UPath) -> dict[str, Status]:
    """All files below a remote folder by their names relative to it, in one listing."""
    start = len(folder.path.rstrip("/")) + 1
    with explain_errors(folder, "listed"):
        found = cast(dict[str, Any], folder.fs.find(folder.path, detail=True))
    return {name[start:]: _status(facts) for name, facts in found.items() if not name.endswith("/")}


def _status(facts: dict[str, Any]) -> Status:
    time = next((facts[key] for key in _TIMES if facts.get(key) is not None), 0)
    seconds = time.timestamp() if hasattr(time, "timestamp") else time
    nanoseconds = int(seconds * 1e9) if isinstance(seconds, int | float) else 0
    size = facts.get("size")
    return Status(-1 if size is None else size, nanoseconds)


def statuses(root: Location, paths: Sequence[str]) -> list[Any]:
    """Size and time of each file below `root`, None where there is none.

    Remote files are found by one listing of the folder that has them all.
    """
    if isinstance(root, Path):
        return [_local_status(os.path.join(root, path)) for path in paths]
    common = posixpath.commonpath([f"/{posixpath.dirname(path)}" for path in paths]).strip("/")
    listed = list_files(root / common)
    start = len(common) + 1 if common else 0
    return [listed.get(path[start:]) for path in paths]


def _local_status(path: str) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None
