"""Remote paths: UPaths on the file systems of pyarrow, or of fsspec where pyarrow has none.

pyarrow, which daco needs anyway, has S3, Google Cloud Storage, Azure and HDFS built in; UPath
alone would need another package for each. Failures of a store raise `DataError` with a remedy, a
missing file `FileNotFoundError`.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import functools
import os
import re
import stat
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from textwrap import shorten
from typing import Any, Self

import pyarrow as pa
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow import fs as arrow
from upath import UPath
from upath.extensions import ProxyUPath
from upath.implementations.cloud import CloudPath

from daco.errors import DacoError, DataError, InputError, MissingExtraError

BUILT_IN = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
"""Protocols of pyarrow; options such as ``?region=eu-west-1`` are understood by these alone."""

_RETRY = "retry_limit_seconds"  # of Google Cloud Storage, 15 minutes by default
_CAUSES = {  # what stores say, by what to tell the user
    "missing": r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist",
    "unreachable": r"NETWORK_CONNECTION|could ?n.t connect|connect call failed|resolve host"
    r"|connection refused|connection reset|timed? ?out|unreachable|name or service not known",
    "denied": r"ACCESS_DENIED|access.?denied|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN"
    r"|SIGNATURE_DOES_NOT|InvalidAccessKeyId|SignatureDoesNotMatch|UNRECOGNIZED_CLIENT"
    r"|EXPIRED_TOKEN|ExpiredToken|Unauthorized|Forbidden|permission|credential|HTTP status 40[13]",
}


class RemotePath(ProxyUPath):
    """A file or folder on a remote file system, with the interface of `pathlib.Path`.

    No connection is made before a file is accessed. A pickled path holds its address, so other
    computers connect with credentials of their own. Its text has neither credentials nor options.
    """

    def __str__(self) -> str:
        authority = self.storage_options.get("authority")
        if authority is None:
            host, text = self.storage_options.get("host"), str(self.__wrapped__)
            return text.replace(":///", f"://{host}/", 1) if host else text
        user, _, host = authority.rpartition("@")
        shown = host if ":" in user else authority
        return f"{self.protocol}://{shown}/{self.key}".rstrip("/")

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    @property
    def name(self) -> str:
        """The last part of the path; of a whole bucket its name."""
        return super().name or str(self).rpartition("/")[2]

    @property
    def key(self) -> str:
        """The path below the bucket."""
        path = self.path.strip("/")
        return path.partition("/")[2] if self.protocol in BUILT_IN[:-1] else path

    @property
    def bucket(self) -> Self:
        """The bucket, or the top of the file system."""
        return self.parents[-1] if self.key else self

    def __truediv__(self, other: Any) -> Self:
        """The path of a relative text, whose ``..`` may not lead out of the bucket."""
        names = str(other).split("/")
        if not {"", ".", ".."}.intersection(names):
            return super().__truediv__(str(other))
        parts = self.key.split("/") if self.key else []
        for name in names:
            if name == ".." and not parts:
                raise InputError(f"{self}/{other} leads out of the bucket. Correct the path.")
            if name == "..":
                parts.pop()
            elif name not in ("", "."):
                parts.append(name)
        return self.bucket.joinpath(*parts) if parts else self.bucket

    def exists(self, *, follow_symlinks: bool = True) -> bool:
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
            return int(self.stat().st_mode)
        except FileNotFoundError:
            return 0

    def fetch(self, limit: int | None = None) -> tuple[int, int, bytes]:
        """Size, time of the last change in ns and content, which is b"" beyond `limit` bytes.

        S3 sends size and time when a file is opened, which saves one request in three.
        """
        with self.open("rb") as file, explain_errors(self, "read"):
            headers: Any = getattr(file, "metadata", dict)() or {}
            try:
                changed = datetime.fromisoformat(headers["Last-Modified"].decode())
                size, time_ns = int(headers["Content-Length"]), round(changed.timestamp()) * 10**9
            except (KeyError, ValueError):
                status = self.stat()
                size, time_ns = status.st_size, status.st_mtime_ns
            return size, time_ns, file.read() if limit is None or size <= limit else b""

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: folders are created with their files."""

    def upload(self, file: Path) -> None:
        """Take the content of a local file; it appears complete or not at all."""
        with explain_errors(self, "written"):
            try:
                self.fs.put_file(str(file), self.path)
            except FileNotFoundError:  # of a file system that has real folders
                self.fs.makedirs(self.path.rpartition("/")[0], exist_ok=True)
                self.fs.put_file(str(file), self.path)

    def rmtree(self) -> None:
        """Delete the folder and all below."""
        with explain_errors(self, "deleted"), contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.path, recursive=True)

    def files(self, *, recursive: bool = True) -> Iterator[tuple[str, int]]:
        """The names of all files below, relative to this folder, and their bytes."""
        top = self.path.strip("/")
        with explain_errors(self, "listed"):
            infos = self.fs.find(self.path, maxdepth=None if recursive else 1, detail=True)
        for path, info in infos.items():
            yield path.strip("/")[len(top) + 1 if top else 0 :], info["size"]

    def glob(self, pattern: str, **options: Any) -> Iterator[Self]:
        """Files directly in this folder whose names match; none where there is no folder."""
        with contextlib.suppress(FileNotFoundError):
            for name, _ in self.files(recursive=False):
                if fnmatch.fnmatchcase(name, pattern):
                    yield self / name


@contextlib.contextmanager
def explain_errors(path: object, action: str) -> Iterator[None]:
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
        raise store_error(str(path), error, action) from None


def _explained(name: str, action: str) -> Callable[..., Any]:
    method = getattr(ProxyUPath, name)

    @functools.wraps(method)
    def call(self: RemotePath, *args: Any, **options: Any) -> Any:
        with explain_errors(self, action):
            return method(self, *args, **options)

    return call


for _name in ("stat", "open", "read_bytes", "read_text"):
    setattr(RemotePath, _name, _explained(_name, "read"))
for _name, _action in (("write_bytes", "written"), ("unlink", "deleted")):
    setattr(RemotePath, _name, _explained(_name, _action))


class _ArrowStore(ArrowFSWrapper):  # type: ignore[misc]
    """A file system of pyarrow with the interface of fsspec."""

    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.rstrip("/") or "/"

    def _make_entry(self, info: Any) -> dict[str, Any]:
        size = -1 if info.size is None else info.size  # unknown, hence not empty
        return {**super()._make_entry(info), "size": size, "mtime_ns": info.mtime_ns or 0}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        # The file of pyarrow itself, which its own readers use without a detour.
        if mode == "rb":
            return self.fs.open_input_file(path)
        return self.fs.open_output_stream(path, compression=None)

    def find(self, path: str, maxdepth: int | None = None, **options: Any) -> dict[str, Any]:
        # In one listing; fsspec's own has one per folder.
        selector = arrow.FileSelector(self._strip_protocol(path), recursive=maxdepth is None)
        files = (i for i in self.fs.get_file_info(selector) if i.type == arrow.FileType.File)
        return {info.path: self._make_entry(info) for info in files}

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        # In one call: a stream that is interrupted would leave the first half as the file.
        local = arrow.LocalFileSystem()
        arrow.copy_files(lpath, rpath, source_filesystem=local, destination_filesystem=self.fs)


class _ArrowPath(CloudPath):
    """A UPath on a file system of pyarrow, which is opened by the whole address."""

    __slots__ = ()

    def __new__(cls, *args: Any, **options: Any) -> Self:
        return object.__new__(cls)  # UPath would look for the fsspec package of the protocol

    @classmethod
    def _fs_factory(cls, urlpath: str, protocol: str, storage_options: Any) -> Any:
        return _arrow_store(protocol, storage_options["authority"], storage_options["query"])


@functools.cache
def _arrow_store(protocol: str, authority: str, query: str) -> _ArrowStore:
    if protocol in ("gs", "gcs") and _RETRY not in query:
        query = f"{query}&{_RETRY}=20" if query else f"?{_RETRY}=20"
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
        try:
            return RemotePath._from_upath(UPath(f"{protocol}://{rest}"))
        except ValueError as error:
            if "nsupported" not in str(error):
                raise
            raise InputError(
                f"{protocol}:// is not a known file system. pyarrow has {', '.join(BUILT_IN)}; "
                "packages for fsspec add others."
            ) from None
    rest, mark, options = rest.partition("?")
    authority, _, key = rest.partition("/")
    if protocol == "s3" and ":" in authority and "@" not in authority:  # what follows is secret
        raise InputError(
            "s3://...: the name of a bucket cannot contain a colon. In a secret, write / as %2F "
            "and ? as %3F, or better, set the credentials in the environment."
        )
    if not authority:
        raise InputError(f"{protocol}:///{key}: name a bucket, such as {protocol}://plant/clips.")
    user, at, host = authority.rpartition("@")
    bucket = user if at and protocol.startswith("abfs") else host
    path = _ArrowPath(
        f"{protocol}://{bucket}/",
        protocol=protocol,
        authority=authority,
        query=mark + options if options else "",
    )
    return RemotePath._from_upath(path) / key


def store_error(where: str, error: BaseException, action: str) -> DataError:
    """What went wrong with a remote file that could not be `action` ("read"), and what to do.

    >>> error = OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body.")
    >>> print(store_error("gs://plant/a.wav", error, "read"))  # doctest: +NORMALIZE_WHITESPACE
    gs://plant/a.wav: access denied, so it cannot be read from here. Give this computer
    credentials that allow it.
    """
    text = f"{type(error).__name__}: {error}"
    matches = (c for c, pattern in _CAUSES.items() if re.search(pattern, text, re.IGNORECASE))
    cause = next(matches, "denied" if isinstance(error, PermissionError) else "")
    # The last thing that the store's message says, without what names the request.
    reason = re.sub(r"\s*\(Request ID: [^)]*\)", "", _first_line(error))
    reason = reason.rpartition("Details: ")[2].rpartition(" operation: ")[2]
    reason = reason.partition(" error_info=")[0].rpartition("a last message of ")[2]
    reason = shorten(reason, 200, placeholder="...").rstrip(". ")
    bucket = "/".join(where.split("/")[:3])
    endpoint = " (AWS_ENDPOINT_URL, or ?endpoint_override=host:port)"
    credentials = " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)"
    if not where.startswith("s3://"):
        endpoint = credentials = ""
    messages = {
        "missing": f"{bucket}: there is no such bucket. Create it, or correct its name or the "
        "endpoint",
        "unreachable": f"{bucket} cannot be reached ({reason}). Check the network and the "
        f"endpoint{endpoint}",
        "denied": f"{where}: access denied, so it cannot be {action} from here. Give this "
        f"computer credentials that allow it{credentials}",
    }
    return DataError(f"{messages.get(cause, f'{where}: cannot be {action} ({reason})')}.")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__
