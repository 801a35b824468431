"""Files that appear complete or not at all (temporary file, fsync, rename), and their locks."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from daco.errors import DataError
from daco.files.remote import Location, explain_errors

TEMPORARY = ".tmp"  # of unfinished files; a kill may leave one, which is never read

_HINTS = {
    errno.ENOSPC: "Free some space and run it again.",
    errno.EDQUOT: "Your quota is used up: free some space and run it again.",
    errno.EACCES: "Choose a folder you may write to.",
    errno.EPERM: "Choose a folder you may write to.",
    errno.EROFS: "Choose a folder you may write to.",
    errno.ENOENT: "Create the folder first.",
    errno.EISDIR: "Choose the name of a file.",
}


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
    temporary = None
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary = _new_file(path)
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        temporary = None
        _sync(path.parent)
    except OSError as error:
        name = None if error.filename is None else str(error.filename)
        if name not in (None, str(path), str(path.parent)) and not str(name).endswith(TEMPORARY):
            raise  # of another file, such as a source that cannot be read
        raise write_error(path, error) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


PREVIOUS = ".previous"
"""What is appended to the name of a file's version before the last one."""


def replace_file(path: Path, content: bytes) -> Path | None:
    """Write a file; the one that it replaces is kept as ``<name>.previous``, which is returned."""
    before = path.read_bytes() if path.exists() else None
    previous = path.with_name(path.name + PREVIOUS)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
        if before is not None:
            with atomic_write(previous) as kept:
                kept.write_bytes(before)
    return None if before is None else previous


def write_error(path: Location, error: OSError) -> DataError:
    """One sentence for what the operating system refused."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    hint = _HINTS.get(error.errno or 0, "")
    return DataError(f"{path}: cannot be written ({reason}). {hint}".rstrip())


def _sync(path: Path) -> None:
    """Ask for the file, or the names in a folder, to survive a power cut."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _new_file(target: Path) -> Path:
    """A new empty file with the permissions that the process gives its files.

    `tempfile.mkstemp` makes private files, and the umask that says what others may do can only be
    read by setting it, for all threads at once.
    """
    path = target.with_name(f".{target.name}.{secrets.token_hex(8)}{TEMPORARY}")
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))
    return path


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
