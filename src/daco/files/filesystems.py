"""The file system behind a URI, of pyarrow or else of fsspec, and what to say where it refuses."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from functools import cache
from textwrap import shorten
from typing import Any

from daco.errors import DacoError, DataError, InputError, MissingExtraError

BUILT_IN = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Of pyarrow; options such as ``?region=eu-west-1`` are understood by these alone."""

_USUAL = dict.fromkeys(("gs", "gcs"), "retry_limit_seconds=20")  # its own limit is 15 minutes
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"NETWORK_CONNECTION|could ?n.t connect|connect call failed|resolve host|connection refused"
    r"|connection reset|timed? ?out|unreachable|name or service not known",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"ACCESS_DENIED|access.?denied|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE_DOES_NOT"
    r"|InvalidAccessKeyId|SignatureDoesNotMatch|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|ExpiredToken"
    r"|Unauthorized|Forbidden|permission|credential|HTTP status 40[13]",
    re.IGNORECASE,
)


@cache
def filesystem(protocol: str, authority: str, query: str = "") -> tuple[Any, str]:
    """A file system with pyarrow's interface, and the path of the bucket in it."""
    import pyarrow as pa
    from pyarrow import fs

    usual = _USUAL.get(protocol, "")
    if usual and usual.partition("=")[0] not in query:
        query = f"{query}&{usual}" if query else f"?{usual}"
    uri = f"{protocol}://{authority}{query}"
    if protocol in BUILT_IN:
        try:
            system, base = fs.FileSystem.from_uri(uri)
            return system, base
        except pa.ArrowInvalid as error:
            host = authority.rpartition("@")[2]
            said = _first_line(error).replace(authority, host)  # it quotes the secret, too
            raise InputError(
                f"{protocol}://{host}: {said}. Correct the address or its options."
            ) from None
        except pa.ArrowNotImplementedError:
            pass  # a pyarrow that was built without it
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(
            f"{protocol}:// needs fsspec: pip install fsspec, and its package for {protocol}."
        ) from None
    try:
        known, base = fsspec.url_to_fs(uri)
    except ImportError as error:
        raise MissingExtraError(f"{protocol}:// needs one more package: {error}.") from None
    except ValueError as error:
        if "not known" not in str(error):
            raise
        raise InputError(
            f"{protocol}:// is no file system that is known here. Those of pyarrow are "
            f"{', '.join(BUILT_IN)}; fsspec has others."
        ) from None
    return fs.PyFileSystem(fs.FSSpecHandler(known)), base


@contextlib.contextmanager
def told(where: str, done: str) -> Iterator[None]:
    """Turns what a file system says into one sentence; that nothing is there stays as it is."""
    try:
        yield
    except DacoError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from None
    except Exception as error:  # each of fsspec's file systems has kinds of its own
        raise explained(where, error, done) from None


def explained(where: str, error: BaseException, done: str) -> DataError:
    """What went wrong at a place that could not be `done`, and what to do.

    >>> error = OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body.")
    >>> print(explained("gs://plant/a.wav", error, "read"))  # doctest: +NORMALIZE_WHITESPACE
    gs://plant/a.wav: access denied, it cannot be read from here. Give this computer credentials
    that may.
    """
    text = f"{type(error).__name__}: {error}"
    bucket, s3 = "/".join(where.split("/")[:3]), where.startswith("s3://")
    if _NO_BUCKET.search(text):
        return DataError(
            f"{bucket}: there is no such bucket. Create it, or correct its name or the endpoint."
        )
    if _UNREACHABLE.search(text):
        hint = " (AWS_ENDPOINT_URL, or ?endpoint_override=host:port)" if s3 else ""
        return DataError(
            f"{bucket}: cannot be reached ({_reason(error)}). Check the network and the "
            f"endpoint{hint}."
        )
    if _DENIED.search(text) or isinstance(error, PermissionError):
        hint = " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)" if s3 else ""
        return DataError(
            f"{where}: access denied, it cannot be {done} from here. Give this computer "
            f"credentials that may{hint}."
        )
    return DataError(f"{where}: cannot be {done} ({_reason(error)}).")


def _reason(error: BaseException) -> str:
    """The last thing that is said, without what names the request."""
    text = re.sub(r"\s*\(Request ID: [^)]*\)", "", _first_line(error))
    text = text.rpartition("Details: ")[2].rpartition(" operation: ")[2]
    text = text.partition(" error_info=")[0].rpartition("a last message of ")[2]
    return shorten(text, 200, placeholder="...").rstrip(". ")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__
