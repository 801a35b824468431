"""Locations: local files, and files of remote file systems such as ``s3://bucket/folder``.

A local location is a `pathlib.Path`. A remote one is a `RemotePath` with as much of that interface
as reading recordings and models, and reading and writing tables need. pyarrow has S3, Google Cloud
Storage, Azure and HDFS built in, and takes the others from fsspec.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import functools
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, cast
from urllib.parse import urlsplit

from daco.errors import DacoError, DataError, InputError, MissingExtraError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

BUILT_IN = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
"""Protocols of pyarrow; options such as ``?region=eu-west-1`` are understood by these alone."""

REMOTE_THREADS = 16
"""Threads that read remote files at a time: a small one is mostly waiting for the answer."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)  # one letter is a drive
_CAUSES = {  # what stores say, by what to tell the user
    r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist": "{bucket}: there is no such bucket. "
    "Create it, or correct its name or the endpoint.",
    r"NETWORK_CONNECTION|connect|resolve host|timed? ?out|unreachable|name or service": "{bucket} "
    "cannot be reached ({reason}). Check the network and the endpoint{endpoint}.",
    r"DENIED|INVALID_|SIGNATURE|InvalidAccessKey|TOKEN|Unauthorized|Forbidden|permission"
    r"|credential|HTTP status 40[13]": "{path}: access denied, so it cannot be {action} from here. "
    "Give this computer credentials that allow it{credentials}.",
}
_OF_S3 = {
    "endpoint": " (AWS_ENDPOINT_URL, or ?endpoint_override=host:port)",
    "credentials": " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)",
}


class Status(NamedTuple):
    """Size and time of the last change of a remote file, 0 where the store does not tell it."""

    st_size: int
    st_mtime_ns: int
    st_mode: int


@dataclass(frozen=True)
class RemotePath:
    """A file or folder on a remote file system, with the interface of `pathlib.Path`.

    No connection is made before a file is accessed. A pickled path holds its address, so other
    computers connect with credentials of their own. Its text has neither credentials nor options.
    Failures of a store raise `DataError` with a remedy, a missing file `FileNotFoundError`.
    """

    protocol: str
    authority: str = field(repr=False)
    key: str
    query: str = field(default="", repr=False)

    def __str__(self) -> str:
        user, _, host = self.authority.rpartition("@")
        shown = host if ":" in user else self.authority
        return f"{self.protocol}://{shown}/{self.key}".rstrip("/")

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    @property
    def name(self) -> str:
        """The last part of the path; of a whole bucket its name."""
        return posixpath.basename(self.key) or str(self).rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The extension of the name."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> Self:
        """The folder; of a bucket itself."""
        return replace(self, key=posixpath.dirname(self.key))

    @property
    def bucket(self) -> Self:
        """The bucket, or the top of the file system."""
        return replace(self, key="")

    @property
    def parts(self) -> tuple[str, ...]:
        """The bucket and the names below it."""
        return (str(self.bucket), *filter(None, self.key.split("/")))

    def __truediv__(self, other: Any) -> Self:
        """The path of a relative text, whose ``..`` may not lead out of the bucket."""
        names = self.key.split("/") if self.key else []
        for name in str(other).split("/"):
            if name == ".." and not names:
                raise InputError(f"{self}/{other} leads out of the bucket. Correct the path.")
            if name == "..":
                names.pop()
            elif name not in ("", "."):
                names.append(name)
        return replace(self, key="/".join(names))

    def with_name(self, name: str) -> Self:
        """The file of another name in the same folder."""
        return self.parent / name

    def absolute(self) -> Self:
        """The path itself."""
        return self

    @property
    def _place(self) -> tuple[Any, str]:
        """The file system of pyarrow, and the path on it."""
        files = _file_system(self.protocol, self.authority, self.query)
        user, at, host = self.authority.rpartition("@")
        if self.protocol == "hdfs":
            return files, f"/{self.key}"
        bucket = user if at and self.protocol.startswith("abfs") else host
        return files, f"{bucket}/{self.key}".strip("/")

    def stat(self) -> Status:
        """Size and time."""
        with explain_errors(self, "read"):
            files, path = self._place
            return _status(files.get_file_info(path))

    def exists(self) -> bool:
        """Whether a file or folder of the name exists; a folder exists while it has files."""
        return self._mode() != 0

    def is_file(self) -> bool:
        """Whether it is a file."""
        return stat.S_ISREG(self._mode())

    def is_dir(self) -> bool:
        """Whether it is a folder, or a whole bucket."""
        return stat.S_ISDIR(self._mode())

    def _mode(self) -> int:
        try:
            return self.stat().st_mode
        except FileNotFoundError:
            return 0

    def open(self, mode: str = "rb") -> Any:
        """The file, opened for reading."""
        with explain_errors(self, "read"):
            files, path = self._place
            return files.open_input_file(path)

    def read_bytes(self) -> bytes:
        """The content."""
        with explain_errors(self, "read"), self.open() as file:
            return bytes(file.readall())

    def upload(self, file: Path) -> None:
        """Take the content of a local file; it appears complete or not at all."""
        from pyarrow import fs

        with explain_errors(self, "written"):
            files, path = self._place
            fs.copy_files(str(file), path, fs.LocalFileSystem(), files)

    def listing(self) -> dict[str, Status]:
        """All files below, by their names relative to this folder, in one request."""
        from pyarrow import fs

        with explain_errors(self, "listed"):
            files, path = self._place
            found = files.get_file_info(fs.FileSelector(path, recursive=True))
        start = len(path.strip("/")) + 1 if path.strip("/") else 0
        return {
            info.path.strip("/")[start:]: _status(info)
            for info in found
            if info.type == fs.FileType.File
        }

    def glob(self, pattern: str) -> Iterator[Self]:
        """Files directly in this folder whose names match; none where there is no folder."""
        with contextlib.suppress(FileNotFoundError):
            for name in self.listing():
                if "/" not in name and fnmatch.fnmatchcase(name, pattern):
                    yield self / name


Location: TypeAlias = Path | RemotePath
"""A local or remote path."""


def _status(info: Any) -> Status:
    from pyarrow import fs

    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError
    mode = stat.S_IFREG if info.type == fs.FileType.File else stat.S_IFDIR
    size = -1 if info.size is None else info.size  # unknown, hence not empty
    return Status(size, info.mtime_ns or 0, mode)


@functools.cache
def _file_system(protocol: str, authority: str, query: str) -> Any:
    """The file system of pyarrow for an address."""
    import pyarrow as pa
    from pyarrow import fs

    if protocol not in BUILT_IN:
        import fsspec

        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(protocol)))
    if protocol in ("gs", "gcs") and "retry_limit_seconds" not in query:  # 15 minutes by default
        query = f"{query}&retry_limit_seconds=20" if query else "?retry_limit_seconds=20"
    try:
        return fs.FileSystem.from_uri(f"{protocol}://{authority}{query}")[0]
    except pa.ArrowInvalid as error:
        host = authority.rpartition("@")[2]
        reason = _first_line(error).replace(authority, host)  # it quotes the secret, too
        advice = "Correct the address or its options."
        raise InputError(f"{protocol}://{host}: {reason}. {advice}") from None


@contextlib.contextmanager
def explain_errors(path: RemotePath, action: str) -> Iterator[None]:
    """Say what went wrong where a file could not be `action` ("read"), and what to do."""
    try:
        yield
    except DacoError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except ImportError as error:
        raise MissingExtraError(f"{path} needs another package: {error}.") from None
    except Exception as error:  # each file system of fsspec has kinds of its own
        reason = _first_line(error)[-200:]
        hints = _OF_S3 if path.protocol == "s3" else dict.fromkeys(_OF_S3, "")
        facts = {"path": path, "bucket": path.bucket, "reason": reason, "action": action, **hints}
        for pattern, message in _CAUSES.items():
            if re.search(pattern, f"{type(error).__name__}: {error}", re.IGNORECASE):
                raise DataError(message.format(**facts)) from None
        raise DataError(f"{path}: cannot be {action} ({reason}).") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(" .") or type(error).__name__


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
    if protocol not in BUILT_IN:
        _require_protocol(protocol)
        authority, _, key = rest.partition("/")
        return RemotePath(protocol, authority, "") / key
    rest, mark, options = rest.partition("?")
    authority, _, key = rest.partition("/")
    if protocol == "s3" and ":" in authority and "@" not in authority:  # what follows is secret
        raise InputError(
            "s3://...: the name of a bucket cannot contain a colon. In a secret, write / as %2F "
            "and ? as %3F, or better, set the credentials in the environment."
        )
    if not authority:
        raise InputError(f"{protocol}:///{key}: name a bucket, such as {protocol}://plant/clips.")
    return RemotePath(protocol, authority, "", mark + options if options else "") / key


def _require_protocol(protocol: str) -> None:
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(
            f'{protocol}:// needs the extra remote: pip install "daco-asd[remote]".'
        ) from None
    if protocol not in fsspec.available_protocols():
        raise InputError(
            f"{protocol}:// is not a known file system. pyarrow has {', '.join(BUILT_IN)}; "
            "packages for fsspec add others."
        )


def is_url(text: str) -> bool:
    """Whether a text is a URL; ``C://plant`` is none."""
    return _URL.fullmatch(text) is not None


def is_remote(value: object) -> TypeIs[RemotePath]:
    """Tell whether a value is a remote path."""
    return isinstance(value, RemotePath)


def missing_message(path: Location) -> str:
    """The sentence about a file or folder that does not exist, or whose bucket does not."""
    if is_remote(path) and not path.bucket.exists():
        path = path.bucket
    return f"{path} does not exist."


def require_local(given: Location | str, what: str) -> Path:
    """A local path; an InputError where `given` is remote."""
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
    with contextlib.closing(path.open()) as file:
        yield file


def statuses(root: Location, paths: Iterable[str]) -> list[Any]:
    """Size and time of each file below `root`, None where there is none.

    Remote files are found by one listing of the folder that has them all.
    """
    if isinstance(root, Path):
        return [_local_status(os.path.join(root, path)) for path in paths]
    keys = [(root / path).key for path in paths]
    top = os.path.commonpath([f"/{posixpath.dirname(key)}" for key in keys])
    folder = root.bucket / top
    try:
        listed = folder.listing()
    except FileNotFoundError:
        return [None] * len(keys)
    start = len(folder.key) + 1 if folder.key else 0
    return [listed.get(key[start:]) for key in keys]


def _local_status(path: str) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None
