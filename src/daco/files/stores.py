"""Remote paths on the file systems of pyarrow, or of fsspec where pyarrow has none.

pyarrow, which daco needs anyway, has S3, Google Cloud Storage, Azure and HDFS built in. Failures of
a store raise `DataError` with a remedy, a missing file `FileNotFoundError`.
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
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self

import fsspec
import pyarrow as pa
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow import fs as arrow

from daco.errors import DacoError, DataError, InputError, MissingExtraError

BUILT_IN = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
"""Protocols of pyarrow; options such as ``?region=eu-west-1`` are understood by these alone."""

_CAUSES = {  # what stores say, by what to tell the user
    r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist": "{bucket}: there is no such bucket. "
    "Create it, or correct its name or the endpoint.",
    r"NETWORK_CONNECTION|connect|resolve host|timed? ?out|unreachable|name or service": "{bucket} "
    "cannot be reached ({reason}). Check the network and the endpoint{endpoint}.",
    r"DENIED|INVALID_|SIGNATURE|InvalidAccessKey|TOKEN|Unauthorized|Forbidden|permission"
    r"|credential|HTTP status 40[13]": "{path}: access denied, so it cannot be {action} from here. "
    "Give this computer credentials that allow it{credentials}.",
}
_S3_ENDPOINT = " (AWS_ENDPOINT_URL, or ?endpoint_override=host:port)"
_S3_CREDENTIALS = " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)"


class Status(NamedTuple):
    """Size and time of the last change of a remote file, 0 where the store does not tell it."""

    st_size: int
    st_mtime: float
    st_mode: int

    @property
    def st_mtime_ns(self) -> int:
        """The time in nanoseconds."""
        return round(self.st_mtime * 1e9)


@dataclass(frozen=True)
class RemotePath:
    """A file or folder on a remote file system, with the interface of `pathlib.Path`.

    No connection is made before a file is accessed. A pickled path holds its address, so other
    computers connect with credentials of their own. Its text has neither credentials nor options.
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

    # --- names ---

    @property
    def name(self) -> str:
        """The last part of the path; of a whole bucket its name."""
        return posixpath.basename(self.key) or str(self).rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The extension of the name."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its extension."""
        return PurePosixPath(self.name).stem

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

    def with_suffix(self, suffix: str) -> Self:
        """The file with another extension."""
        return self.with_name(self.stem + suffix)

    def resolve(self) -> Self:
        """The path itself."""
        return self

    absolute = resolve

    # --- files ---

    @property
    def _place(self) -> tuple[Any, str]:
        """The file system, and the path on it."""
        fs = _file_system(self.protocol, self.authority, self.query)
        if self.protocol not in BUILT_IN:
            return fs, f"{self.protocol}://{self.authority}/{self.key}"
        user, at, host = self.authority.rpartition("@")
        bucket = user if at and self.protocol.startswith("abfs") else host
        return fs, f"/{self.key}" if self.protocol == "hdfs" else f"{bucket}/{self.key}".rstrip("/")

    def stat(self) -> Status:
        """Size and time."""
        with explain_errors(self, "read"):
            fs, path = self._place
            return _status(fs.info(path))

    def exists(self) -> bool:
        """Whether a file or folder of the name exists; a folder exists while it has files."""
        return self._mode() != 0

    def _mode(self) -> int:
        try:
            return self.stat().st_mode
        except FileNotFoundError:
            return 0

    def is_file(self) -> bool:
        """Whether it is a file."""
        return stat.S_ISREG(self._mode())

    def is_dir(self) -> bool:
        """Whether it is a folder, or a whole bucket."""
        return stat.S_ISDIR(self._mode())

    def open(self, mode: str = "rb") -> Any:
        """The file, opened for reading."""
        with explain_errors(self, "read"):
            fs, path = self._place
            return fs.open(path, mode)

    def read_bytes(self) -> bytes:
        """The content."""
        with explain_errors(self, "read"):
            fs, path = self._place
            return bytes(fs.cat_file(path))

    def read_text(self, encoding: str = "utf-8") -> str:
        """The content as text."""
        return self.read_bytes().decode(encoding)

    def fetch(self, limit: int) -> tuple[int, bytes]:
        """Size and content, which is b"" beyond `limit` bytes."""
        size = self.stat().st_size
        return size, self.read_bytes() if size <= limit else b""

    def write_bytes(self, content: bytes) -> None:
        """Replace the file."""
        with explain_errors(self, "written"):
            fs, path = self._place
            fs.pipe_file(path, content)

    def upload(self, file: Path) -> None:
        """Take the content of a local file; it appears complete or not at all."""
        with explain_errors(self, "written"):
            fs, path = self._place
            fs.put_file(str(file), path)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file."""
        with explain_errors(self, "deleted"):
            fs, path = self._place
            if not missing_ok or fs.exists(path):
                fs.rm_file(path)

    def rmtree(self) -> None:
        """Delete the folder and all below."""
        with explain_errors(self, "deleted"), contextlib.suppress(FileNotFoundError):
            fs, path = self._place
            fs.rm(path, recursive=True)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: folders are created with their files."""

    def listing(self) -> dict[str, Status]:
        """All files below, by their names relative to this folder."""
        with explain_errors(self, "listed"):
            fs, path = self._place
            found = fs.find(path, detail=True)
        parts = len(path.partition("://")[2].strip("/") if "://" in path else path.strip("/"))
        return {
            name.strip("/")[parts + 1 if parts else 0 :]: _status(info)
            for name, info in found.items()
        }

    def files(self) -> Iterator[tuple[str, int]]:
        """The names of all files below, relative to this folder, and their bytes."""
        for name, status in self.listing().items():
            yield name, status.st_size

    def glob(self, pattern: str) -> Iterator[Self]:
        """Files directly in this folder whose names match; none where there is no folder."""
        with contextlib.suppress(FileNotFoundError):
            for name in self.listing():
                if "/" not in name and fnmatch.fnmatchcase(name, pattern):
                    yield self / name


def _status(info: dict[str, Any]) -> Status:
    changed: Any = info.get("mtime") or info.get("LastModified") or info.get("created")
    time = changed.timestamp() if hasattr(changed, "timestamp") else 0.0
    size = -1 if info["size"] is None else info["size"]  # unknown, hence not empty
    return Status(size, time, stat.S_IFREG if info["type"] == "file" else stat.S_IFDIR)


class _ArrowStore(ArrowFSWrapper):  # type: ignore[misc]
    """A file system of pyarrow with the interface of fsspec."""

    cachable = False

    def find(self, path: str, maxdepth: int | None = None, **options: Any) -> dict[str, Any]:
        # In one listing; fsspec's own has one per folder.
        infos = self.fs.get_file_info(arrow.FileSelector(path, recursive=True))
        return {
            info.path: {"size": info.size, "mtime": info.mtime, "type": "file"}
            for info in infos
            if info.type == arrow.FileType.File
        }

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        # In one call: a stream that is interrupted would leave the first half as the file.
        local = arrow.LocalFileSystem()
        arrow.copy_files(lpath, rpath, source_filesystem=local, destination_filesystem=self.fs)


@functools.cache
def _file_system(protocol: str, authority: str, query: str) -> Any:
    if protocol not in BUILT_IN:
        return fsspec.filesystem(protocol)
    if protocol in ("gs", "gcs") and "retry_limit_seconds" not in query:  # 15 minutes by default
        query = f"{query}&retry_limit_seconds=20" if query else "?retry_limit_seconds=20"
    host = authority.rpartition("@")[2]
    try:
        return _ArrowStore(arrow.FileSystem.from_uri(f"{protocol}://{authority}{query}")[0])
    except pa.ArrowInvalid as error:
        reason = _first_line(error).replace(authority, host)  # it quotes the secret, too
        raise InputError(
            f"{protocol}://{host}: {reason}. Correct the address or its options."
        ) from None


def remote_path(protocol: str, rest: str) -> RemotePath:
    """The path of the URL ``protocol://rest``."""
    if protocol not in BUILT_IN:
        if protocol not in fsspec.available_protocols():
            raise InputError(
                f"{protocol}:// is not a known file system. pyarrow has {', '.join(BUILT_IN)}; "
                "packages for fsspec add others."
            )
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


@contextlib.contextmanager
def explain_errors(path: RemotePath, action: str) -> Iterator[None]:
    """Turn the errors of a file system into a DataError; a missing file stays what it is."""
    try:
        yield
    except DacoError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except ImportError as error:
        raise MissingExtraError(f"{path} needs another package: {error}.") from None
    except Exception as error:  # each file system of fsspec has kinds of its own
        raise store_error(path, error, action) from None


def store_error(path: RemotePath, error: BaseException, action: str) -> DataError:
    """What went wrong with a remote file that could not be `action` ("read"), and what to do."""
    text = f"{type(error).__name__}: {error}"
    reason = _first_line(error)[-200:]
    on_s3 = path.protocol == "s3"
    for pattern, message in _CAUSES.items():
        if re.search(pattern, text, re.IGNORECASE):
            return DataError(
                message.format(
                    path=path,
                    bucket=path.bucket,
                    reason=reason,
                    action=action,
                    endpoint=_S3_ENDPOINT if on_s3 else "",
                    credentials=_S3_CREDENTIALS if on_s3 else "",
                )
            )
    return DataError(f"{path}: cannot be {action} ({reason}).")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__
