"""Zip archives of others: unpacked completely or not at all, and only below the target folder."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from daco.errors import DataError

MAX_BYTES = 64 << 30  # that an archive may unpack to
MAX_MEMBERS = 200_000
MAX_RATIO = 100.0  # unpacked by packed bytes; recordings stay below 10, a bomb has several hundred
RATIO_FROM = 256 << 20  # unpacked bytes below which the ratio does not matter

_LITTER = {"__MACOSX", ".DS_Store"}
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ENCRYPTED = 0x1 | 0x40 | 0x2000  # traditional, strong, and hidden directory


def safe_path(name: str) -> PurePosixPath:
    """The relative path that a member's name stands for; DataError where it could lead elsewhere.

    A name must mean the same on every system, so what Windows reads differently is refused, too.

    >>> str(safe_path("./ToyCar//train/section_00.wav"))
    'ToyCar/train/section_00.wav'
    >>> safe_path("../etc/passwd")
    Traceback (most recent call last):
    daco.errors.DataError: the member '../etc/passwd' leads out of the folder
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if _UNPRINTABLE.search(name):
        problem = "has no printable name"
    elif name.startswith("/") or "\\" in name or ":" in name:
        problem = "has an absolute path, a drive or a backslash"
    elif ".." in parts:
        problem = "leads out of the folder"
    elif not parts:
        problem = "is the folder itself"
    elif any(part[-1] in ". " or _DEVICES.fullmatch(part) for part in parts):
        problem = "has a name that Windows reads as another"
    elif any(len(part.encode()) > 255 for part in parts):
        problem = "has a name that is too long"
    else:
        return PurePosixPath(*parts)
    raise DataError(f"the member {name[:80]!r} {problem}")


def unpack(
    archive: Path,
    target: Path,
    overwrite: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[PurePosixPath, int]:
    """Unpack a zip archive into a folder, which is created where it does not exist.

    Members are unpacked into a hidden folder beside the destination and moved when all were read
    and their CRCs are right, so a kill leaves no half archive. Existing folders are merged; files
    of other content are an error, unless `overwrite`. An archive that is damaged, unsafe or in the
    way of existing files raises a `DataError`, and nothing was changed.

    Returns the relative path of each file and its bytes. `progress` is called with the bytes
    unpacked so far and in all.
    """
    target.mkdir(parents=True, exist_ok=True)
    staging = target / f".{archive.name}.unpacking"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _check_members(opened, archive.stat().st_size)
            files = {path: info.file_size for path, info in members.items()}
            total, free = sum(files.values()), shutil.disk_usage(target).free
            if total > free:
                raise DataError(
                    f"it unpacks to {total / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free"
                )
            staging.mkdir()
            done = 0
            for path, info in members.items():
                _extract(opened, info, staging / path)
                done += info.file_size
                if progress is not None:
                    progress(done, total)
        _check_collisions(staging, target, files, overwrite)
        _move(staging, target)
    except DataError as error:
        raise DataError(f"{archive} is not unpacked: {error}.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise DataError(
            f"{archive} is not unpacked: it is damaged or of an unknown kind ({error}). Delete it "
            "and fetch it again."
        ) from error
    except OSError as error:
        raise DataError(
            f"{archive} is not unpacked: {target} cannot be written ({error.strerror or error}). "
            "Free some space or choose another folder."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return files


def _check_members(archive: zipfile.ZipFile, packed: int) -> dict[PurePosixPath, zipfile.ZipInfo]:
    """The files of an archive, after every check that needs no unpacking."""
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise DataError(f"it has {len(infos)} members, more than {MAX_MEMBERS}")
    members: dict[PurePosixPath, zipfile.ZipInfo] = {}
    files: set[str] = set()
    folders: set[str] = set()
    for info in infos:
        path = safe_path(info.orig_filename)  # zipfile cuts `filename` at a NUL
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"the member {str(path)!r} is encrypted")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DataError(f"the member {str(path)!r} is a link or a device")
        folders.update(_folded(parent) for parent in path.parents)
        if info.is_dir():
            folders.add(_folded(path))
            continue
        if _folded(path) in files:
            raise DataError(f"the member {str(path)!r} occurs twice")
        files.add(_folded(path))
        if _LITTER.isdisjoint(path.parts):
            members[path] = info
    if clash := sorted(files & folders):
        raise DataError(f"the member {clash[0]!r} is both a file and a folder")
    total = sum(info.file_size for info in infos)
    if total > MAX_BYTES:
        raise DataError(f"it would unpack to {total} bytes, more than {MAX_BYTES}")
    if total > RATIO_FROM and total > MAX_RATIO * packed:
        raise DataError(f"it would unpack {packed} bytes to {total}, like a zip bomb")
    return members


def _folded(path: PurePosixPath) -> str:
    """Equal for names that Windows or macOS take for one."""
    return unicodedata.normalize("NFC", str(path).casefold())


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    left = info.file_size
    with archive.open(info) as source, path.open("xb") as out:
        while left >= 0 and (chunk := source.read(1 << 20)):
            left -= len(chunk)
            out.write(chunk)
    if left:
        raise DataError(
            f"the member {info.filename!r} does not have the {info.file_size} bytes it declares"
        )


def _check_collisions(
    staging: Path, target: Path, paths: dict[PurePosixPath, int], overwrite: bool
) -> None:
    for path in paths:
        existing = target / path
        if existing.is_dir():
            raise DataError(f"{existing} is a folder, where the archive has a file")
        if any((target / parent).is_file() for parent in path.parents):
            raise DataError(f"a file is in the way of {existing}")
        if overwrite or not existing.exists():
            continue
        if not filecmp.cmp(staging / path, existing, shallow=False):
            raise DataError(
                f"{existing} has other content. Move its folder away, or allow overwriting"
            )


def _move(source: Path, target: Path) -> None:
    """Move entries at the highest level possible: a new folder appears in one step."""
    for entry in sorted(source.iterdir()):
        existing = target / entry.name
        if entry.is_dir() and existing.is_dir():
            _move(entry, existing)
        else:
            os.replace(entry, existing)
