"""Files that appear complete or not at all (temporary file, fsync, rename), and their locks."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from daco.errors import DataError
from daco.files.remote import Location, explain_errors

TEMPORARY = ".tmp"  # of unfinished files; a kill may leave one, which is never read
PREVIOUS = ".previous"
"""What is appended to the name of a file's version before the last one."""


@contextlib.contextmanager
def atomic_write(path: Location) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` when the block ends.

    Until then an older file stays as it is. A file that cannot be written raises a `DataError` that
    names it and the reason.

    Parameters
    ----------
    path : Path or UPath
        The file, as :func:`daco.files.remote.parse_location` returns it; not a string.

    Yields
    ------
    pathlib.Path
        In the folder of `path`; of a remote file, in a local temporary folder.
    """
    if not isinstance(path, Path):
        with tempfile.TemporaryDirectory(prefix="daco-") as folder:
            local = Path(folder) / path.name
            yield local
            with explain_errors(path, "written"):
                path.fs.put_file(str(local), path.path)
        return
    # tempfile.mkstemp would make a file that nobody else may read.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{TEMPORARY}")
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        if error.filename not in (None, str(path), str(path.parent), str(temporary)):
            raise  # of another file, such as a source that cannot be read
        raise write_error(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def replace_file(path: Path, content: bytes) -> Path | None:
    """Write a file; the one that it replaces is kept as ``<name>.previous``, which is returned."""
    previous = None
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
        if path.exists():
            previous = path.with_name(path.name + PREVIOUS)
            with atomic_write(previous) as kept:
                kept.write_bytes(path.read_bytes())
    return previous


def write_error(path: Location, error: OSError) -> DataError:
    """The error of a file or folder that the operating system refused to write."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return DataError(
        f"{path}: cannot be written ({reason}). Check that its folder exists, is writable and has "
        "room."
    )


def _sync(path: Path) -> None:
    """Ask for the file, or the names in a folder, to survive a power cut."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock file, or raise a `DataError` where another process holds it.

    The empty lock file stays; a process that ends, in whatever way, gives up its lock.
    """
    from filelock import FileLock, Timeout

    try:
        held = FileLock(path).acquire(timeout=0)
    except Timeout:
        raise DataError(f"Another process holds the lock {path}.") from None
    with held:
        yield
