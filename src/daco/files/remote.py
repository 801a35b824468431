"""Locations: local files, and files of remote file systems such as ``s3://bucket/folder``.

A local location is a `pathlib.Path`, a remote one a `daco.files.stores.RemotePath` with the same
interface. The libraries of the extra ``remote`` are imported when a URL is given.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import urlsplit

from daco.errors import DacoError, InputError, MissingExtraError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from daco.files.stores import RemotePath

Location: TypeAlias = "Path | RemotePath"
"""A local or remote path."""

REMOTE_THREADS = 16
"""Threads that read remote files at a time: a small one is mostly waiting for the answer."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)  # one letter is a drive


def parse_location(given: str | os.PathLike[str] | Location) -> Location:
    """Turn a path into a local location, or a URL into a remote one.

    Parameters
    ----------
    given : str or path
        A URL such as ``s3://bucket/folder/name``; everything else is a local path. After a ``?``
        come options of the file system, such as ``region``, or ``endpoint_override`` and
        ``scheme`` for a store of your own; they hold for everything below.

    Returns
    -------
    Path or RemotePath

    Examples
    --------
    >>> from daco.files.remote import parse_location
    >>> parse_location("clips/fan"), parse_location("file:///data/fan")
    (PosixPath('clips/fan'), PosixPath('/data/fan'))
    >>> parse_location("s3://plant/clips//fan/?region=eu-west-1") / "a.wav"
    RemotePath('s3://plant/clips/fan/a.wav')
    """
    match = _URL.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        return given if is_remote(given) else Path(cast(Any, given))
    protocol, rest = match[1].lower(), match[2]
    if protocol == "file":
        from urllib.request import url2pathname

        return Path(url2pathname(urlsplit(str(given)).path))
    try:
        from daco.files.stores import remote_path
    except ImportError:
        raise MissingExtraError(
            f'{protocol}:// needs the extra remote: pip install "daco-asd[remote]".'
        ) from None
    return remote_path(protocol, rest)


def is_url(text: str) -> bool:
    """Whether a text is a URL.

    >>> [is_url(text) for text in ("s3://plant", "plant", "C://plant")]
    [True, False, False]
    """
    return _URL.fullmatch(text) is not None


def is_remote(value: object) -> TypeIs[RemotePath]:
    """Tell whether a value is a remote path."""
    return hasattr(value, "bucket") and hasattr(value, "listing")


def missing_message(path: Location) -> str:
    """The sentence about a file or folder that does not exist, or whose bucket does not.

    >>> missing_message(Path("clips"))
    'clips does not exist.'
    """
    if not isinstance(path, Path) and not path.bucket.exists():
        path = path.bucket
    return f"{path} does not exist."


def require_local(given: Location | str, what: str) -> Path:
    """A local path; an InputError where `given` is remote.

    >>> require_local("run", "A study")
    PosixPath('run')
    """
    path = parse_location(given)
    if isinstance(path, Path):
        return path
    raise InputError(
        f"{what} can only be written to this computer. Got {path} instead: choose a local folder, "
        "and copy it when the command has finished."
    )


@contextlib.contextmanager
def open_location(path: Location) -> Iterator[Any]:
    """Return a local path as it is, and a remote file opened for reading."""
    if isinstance(path, Path):
        yield path
        return
    from daco.files.stores import store_error

    with contextlib.closing(path.open("rb")) as file:
        try:
            yield file
        except OSError as error:  # of the network: errors about the content are no OSError
            if isinstance(error, DacoError):
                raise
            raise store_error(path, error, "read") from None


def file_sizes(root: Location, paths: Iterable[str]) -> Iterator[int | None]:
    """Bytes of each file below `root`, None where there is none; remote ones in one listing."""
    if isinstance(root, Path):
        yield from (_local_size(os.path.join(root, path)) for path in paths)
        return
    paths = list(paths)
    known = listing_of(root, paths)
    for path in paths:
        yield known[path].st_size if path in known else None


def _local_size(path: str) -> int | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def listing_of(root: RemotePath, paths: Sequence[str]) -> dict[str, Any]:
    """Status of these files below `root`, in one listing of the folder that has them all."""
    normal = {path: (root / path).key for path in paths}
    folders = {key.rpartition("/")[0] for key in normal.values()}
    top = root.bucket / os.path.commonpath([f"/{each}" for each in folders])
    try:
        listed = top.listing()
    except FileNotFoundError:
        return {}
    start = len(top.key) + 1 if top.key else 0
    return {path: listed[key[start:]] for path, key in normal.items() if key[start:] in listed}
