"""Files on other file systems than the local one: ``s3://``, ``gs://``, ``memory://`` and others.

One class stands for all of them. pyarrow has the large stores built in (S3 and what speaks its
protocol, Google Cloud Storage, Azure, HDFS); fsspec, where it is installed, knows the rest. Local
paths stay `pathlib.Path`. What goes wrong out there is a `DataError`, but that something is not
there is a FileNotFoundError, as of any file.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from io import BufferedReader
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from daco.errors import DacoError, InputError
from daco.files.filesystems import BUILT_IN, explained, filesystem, told

REMOTE_THREADS = 16
"""That read objects at a time: a small one is mostly waiting for the answer."""

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)  # one letter is a drive


class Status(NamedTuple):
    """As of `os.stat`; the time is 0 where the file system does not tell it."""

    st_mode: int
    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, order=True, repr=False)
class RemotePath:
    """A file or folder on a remote file system, used like a `pathlib.Path`.

    Nothing is opened until something is asked; it can be sent to other computers, which connect
    with credentials of their own. As text it has neither credentials nor options.

    Examples
    --------
    >>> from daco.files.remote import parse_location
    >>> clips = parse_location("s3://plant/clips?region=eu-west-1")
    >>> str(clips / "fan" / "a.wav"), (clips / "fan").parent == clips
    ('s3://plant/clips/fan/a.wav', True)
    >>> (clips / "a.wav").uri
    's3://plant/clips/a.wav?region=eu-west-1'
    """

    protocol: str
    authority: str
    key: str = ""
    query: str = ""

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __str__(self) -> str:
        user, at, host = self.authority.rpartition("@")
        shown = host if at and ":" in user else self.authority  # a password is nobody's business
        return f"{self.protocol}://{shown}{'/' if self.key else ''}{self.key}"

    @property
    def uri(self) -> str:
        """All of it, as `place` reads it."""
        slash = "/" if self.key else ""
        return f"{self.protocol}://{self.authority}{slash}{self.key}{self.query}"

    @property
    def parts(self) -> tuple[str, ...]:
        """Protocol, bucket, folders, name; as of a path, the first is where all begin."""
        _, *names = str(self).removeprefix(f"{self.protocol}:/").split("/")
        return (f"{self.protocol}://", *filter(None, names))

    @property
    def name(self) -> str:
        """The last part; of a whole bucket the bucket's."""
        return self.parts[-1] if len(self.parts) > 1 else ""

    @property
    def suffix(self) -> str:
        """The ending of the name with its dot."""
        return PurePosixPath(self.name).suffix if self.key else ""

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return self.name.removesuffix(self.suffix)

    @property
    def parent(self) -> RemotePath:
        """The folder; a bucket is its own."""
        return replace(self, key=self.key.rpartition("/")[0])

    def with_name(self, name: str) -> RemotePath:
        """Another file of the same folder."""
        if not self.key or not name or "/" in name:
            raise InputError(f"{self} cannot be called {name!r}.")
        return self.parent / name

    def with_suffix(self, suffix: str) -> RemotePath:
        """The same name with another ending."""
        return self.with_name(self.stem + suffix)

    def __truediv__(self, below: str) -> RemotePath:
        return replace(self, key=_joined(self, below))

    def absolute(self) -> RemotePath:
        """Itself, as of all whole paths."""
        return self

    resolve = expanduser = absolute

    def stat(self) -> Status:
        """Kind, size and time of the last change."""
        from pyarrow import fs

        with told(str(self), "read"):
            system, path = self._where()
            info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return _status(info)

    def exists(self) -> bool:
        """Whether a file or folder of the name is there; a folder is there while it has files."""
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

    def open(self, mode: str = "rb") -> BufferedReader:
        """The file for reading at any position; what is read is fetched, and no more."""
        if mode != "rb":
            raise InputError(f"{self} can be opened with mode 'rb' only. Got {mode!r} instead.")
        with told(str(self), "read"):
            system, path = self._where()
            return cast(BufferedReader, system.open_input_file(path))

    def read_bytes(self) -> bytes:
        """The content."""
        return self.fetch()[1]

    def fetch(self, limit: int | None = None) -> tuple[Status, bytes]:
        """What is known of a file, and the content that it then had; b"" of one beyond `limit`.

        S3 tells size and time with the opening, which saves one request in three.
        """
        with told(str(self), "read"):
            system, path = self._where()
            with system.open_input_stream(path, compression=None) as file:
                status = _said(file) or self.stat()
                wanted = limit is None or status.st_size <= limit
                return status, bytes(file.read()) if wanted else b""

    def read_text(self, encoding: str = "utf-8") -> str:
        """The content as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Write a small file; it appears whole."""
        with told(str(self), "written"):
            self._put(lambda system, path: _write(system, path, content))

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: folders come with their files."""

    def upload(self, file: Path) -> None:
        """Take the content of a local file; it appears whole.

        One call does all of it, because a stream that Python closes after an interruption would
        leave the first half as if it were the file.
        """
        from pyarrow import fs

        def put(system: Any, path: str) -> None:
            here = fs.LocalFileSystem()
            fs.copy_files(str(file), path, source_filesystem=here, destination_filesystem=system)

        with told(str(self), "written"):
            self._put(put)

    def _put(self, put: Any) -> None:
        system, path = self._where()
        try:
            put(system, path)
        except FileNotFoundError:  # where folders are more than a part of the name
            system.create_dir(path.rpartition("/")[0], recursive=True)
            put(system, path)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file."""
        with told(str(self), "deleted"):
            system, path = self._where()
            try:
                system.delete_file(path)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def rmtree(self) -> None:
        """Delete the folder and all below."""
        with told(str(self), "deleted"):
            system, path = self._where()
            with contextlib.suppress(FileNotFoundError):
                system.delete_dir(path)

    def files(self, *, recursive: bool = True) -> Iterator[tuple[str, Status]]:
        """Names of all files below, relative to this folder, and what is known of each."""
        from pyarrow import fs

        with told(str(self), "listed"):
            system, path = self._where()
            found = system.get_file_info(fs.FileSelector(path, recursive=recursive))
        start = len(path.strip("/")) + 1 if path.strip("/") else 0
        for info in found:
            if info.type == fs.FileType.File:
                yield info.path.strip("/")[start:], _status(info)

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Files right in this folder whose names fit; none where there is no folder."""
        with contextlib.suppress(FileNotFoundError):
            for name, _ in self.files(recursive=False):
                if fnmatch.fnmatchcase(name, pattern):
                    yield self / name

    def arrow(self) -> tuple[Any, str]:
        """The file system and the path in it, as pyarrow's own functions take them."""
        with told(str(self), "opened"):
            return self._where()

    def _where(self) -> tuple[Any, str]:
        system, base = filesystem(self.protocol, self.authority, self.query)
        return system, f"{base.rstrip('/')}/{self.key}" if self.key else base


Location = Path | RemotePath
"""Where something is, on this computer or elsewhere."""


def parse_location(given: str | os.PathLike[str] | Location) -> Location:
    """A local path, or the remote one that a URI names.

    Parameters
    ----------
    given : str or path
        ``s3://bucket/folder/name`` and the like; all else is a local path. Behind a ``?`` stand
        options of the file system, such as ``region``, or ``endpoint_override`` and ``scheme``
        for a store of your own; they hold for everything below.

    Examples
    --------
    >>> from daco.files.remote import parse_location
    >>> parse_location("clips/fan"), parse_location("file:///data/fan")
    (PosixPath('clips/fan'), PosixPath('/data/fan'))
    >>> parse_location("s3://plant/clips//fan/").key
    'clips/fan'
    """
    if isinstance(given, RemotePath):
        return given
    found = _URI.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        return Path(given)
    protocol, rest = found[1].lower(), found[2]
    if protocol == "file":
        return Path(url2pathname(urlsplit(str(given)).path))
    query = ""
    if protocol in BUILT_IN:
        rest, mark, options = rest.partition("?")
        query = mark + options if options else ""
    authority, _, key = rest.partition("/")
    if protocol == "s3" and ":" in authority and "@" not in authority:  # what follows is secret
        raise InputError(
            "s3://...: a bucket's name has no colon, and a secret in an address no plain / or ?: "
            "write %2F and %3F, or better, give credentials by the environment."
        )
    if not authority and protocol in BUILT_IN:
        raise InputError(f"{protocol}:///{key}: name a bucket, such as {protocol}://plant/clips.")
    return RemotePath(protocol, authority, query=query) / key


def is_url(text: str) -> bool:
    """Whether a text is a URI.

    >>> [is_url(text) for text in ("s3://plant", "plant", "C://plant")]
    [True, False, False]
    """
    return _URI.fullmatch(text) is not None


def missing_message(path: Location) -> str:
    """A sentence about a file or folder that was looked for in vain.

    >>> missing_message(Path("clips"))
    'clips does not exist.'
    """
    if isinstance(path, RemotePath) and path.key and not replace(path, key="").exists():
        return f"{replace(path, key='')} does not exist."
    return f"{path} does not exist."


def require_local(given: Location | str, what: str) -> Path:
    """A path of this computer; an error where what needs one got a remote one.

    >>> require_local("run", "A study")
    PosixPath('run')
    """
    found = parse_location(given)
    if isinstance(found, RemotePath):
        raise InputError(
            f"{what} is written to this computer only. Got {found}: choose a folder here, and copy "
            "it there when all is done."
        )
    return found


@contextlib.contextmanager
def open_location(path: Location) -> Iterator[Any]:
    """What readers of files take: the path of a local one; a remote one opened, then closed."""
    if isinstance(path, Path):
        yield path
        return
    with contextlib.closing(path.open()) as file:
        try:
            yield file
        except OSError as error:  # of the network: what is wrong with the content is no OSError
            if isinstance(error, DacoError):
                raise
            raise explained(str(path), error, "read") from None


def file_sizes(root: RemotePath, paths: Iterable[str]) -> Iterator[int | None]:
    """Bytes of each file below `root`, several asked for at a time; None where there is none."""
    from concurrent.futures import ThreadPoolExecutor

    def size(path: str) -> int | None:
        try:
            status = (root / path).stat()
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    waiting = iter(paths)
    with ThreadPoolExecutor(REMOTE_THREADS, thread_name_prefix="daco-places") as pool:
        while some := list(
            islice(waiting, 64 * REMOTE_THREADS)
        ):  # or a million would be waiting at once
            yield from pool.map(size, some)


def _joined(start: RemotePath, below: str) -> str:
    parts = start.key.split("/") if start.key else []
    for part in below.split("/"):
        if part == "..":
            if not parts:
                raise InputError(f"{start}/{below} leads out of it. Correct the path.")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _status(info: Any) -> Status:
    from pyarrow import fs

    mode = stat.S_IFREG if info.type == fs.FileType.File else stat.S_IFDIR
    size = -1 if info.size is None else info.size  # not told: not empty, then
    return Status(mode, size if mode == stat.S_IFREG else 0, info.mtime_ns or 0)


def _said(file: Any) -> Status | None:
    """What the answer to the request tells, if it is all of it."""
    told = file.metadata() or {}
    try:
        changed = datetime.fromisoformat(told["Last-Modified"].decode())
        size = int(told["Content-Length"])
    except (KeyError, ValueError):
        return None
    return Status(stat.S_IFREG, size, round(changed.timestamp()) * 10**9)


def _write(system: Any, path: str, content: bytes) -> None:
    with system.open_output_stream(path, compression=None) as file:
        file.write(content)
