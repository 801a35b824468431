"""Zip archives from the net, unpacked whole or not at all, and only below the folder asked for."""

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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from daco.errors import DataError

Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 20
_LITTER = ("__MACOSX", ".DS_Store")
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?")
_ENCRYPTED = 0x1 | 0x40 | 0x2000  # traditional, strong, and hidden directory


@dataclass(frozen=True)
class ArchiveLimits:
    """What an archive may unpack to before it counts as a bomb.

    Parameters
    ----------
    total_bytes : int
        All members together, as declared and as they really are.
    members : int
        Files and folders.
    ratio : float
        Unpacked by packed bytes; recordings stay below 10, a bomb is at several hundred.
    ratio_from : int
        Unpacked bytes below which the ratio does not matter.
    """

    total_bytes: int = 64 << 30
    members: int = 200_000
    ratio: float = 100.0
    ratio_from: int = 256 << 20


@dataclass(frozen=True)
class Member:
    """A file in an archive: where it goes, relative to the target, and its unpacked bytes."""

    path: PurePosixPath
    size: int


def safe_path(name: str) -> PurePosixPath:
    """The relative path that a member's name stands for; DataError where it could lead elsewhere.

    Names are held to what every system understands alike: an archive that unpacks here unpacks
    to the same files on Windows.

    Examples
    --------
    >>> from daco.files.download.archives import safe_path
    >>> str(safe_path("./ToyCar//train/section_00.wav"))
    'ToyCar/train/section_00.wav'
    >>> safe_path("../etc/passwd")
    Traceback (most recent call last):
    daco.errors.DataError: the member '../etc/passwd' leads out of the folder
    """
    if not name or any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name):
        raise DataError(f"the member {name!r} has no printable name")
    if any(0xD800 <= ord(c) < 0xE000 for c in name):
        raise DataError(f"the member {name!r} has a name that is not text")
    if name.startswith("/") or "\\" in name or ":" in name:
        raise DataError(f"the member {name!r} has an absolute path, a drive or a backslash")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise DataError(f"the member {name!r} leads out of the folder")
    if not parts:
        raise DataError(f"the member {name!r} is the folder itself")
    for part in parts:
        if part[-1] in ". " or _DEVICES.fullmatch(part):
            raise DataError(f"the member {name!r} has a name that Windows reads as another")
        if len(part.encode()) > 255:
            raise DataError(f"the member {name[:40]!r}... has a name that is too long")
    return PurePosixPath(*parts)


def read_members(
    archive: zipfile.ZipFile, packed_bytes: int, limits: ArchiveLimits | None = None
) -> dict[zipfile.ZipInfo, Member]:
    """The files of an open archive, after every check that needs no unpacking."""
    limits = limits or ArchiveLimits()
    infos = archive.infolist()
    if len(infos) > limits.members:
        raise DataError(f"it has {len(infos)} members, more than {limits.members}")
    members: dict[zipfile.ZipInfo, Member] = {}
    files: set[str] = set()
    folders: set[str] = set()
    total = 0
    for info in infos:
        if "\0" in info.orig_filename:  # zipfile cuts the name there, other programs do not
            raise DataError(f"the member {info.orig_filename!r} has no printable name")
        path = safe_path(info.filename)
        _require_plain(info, path)
        total += info.file_size
        folders.update(_folded(parent) for parent in path.parents)
        if info.is_dir():
            folders.add(_folded(path))
            continue
        if _folded(path) in files:
            raise DataError(f"the member {info.filename!r} occurs twice")
        files.add(_folded(path))
        if not any(part in _LITTER for part in path.parts):
            members[info] = Member(path, info.file_size)
    if clash := sorted(files & folders):
        raise DataError(f"the member {clash[0]!r} is both a file and a folder")
    if total > limits.total_bytes:
        raise DataError(f"it would unpack to {total} bytes, more than {limits.total_bytes}")
    if total > limits.ratio_from and total > limits.ratio * packed_bytes:
        raise DataError(f"it would unpack {packed_bytes} bytes to {total}, like a zip bomb")
    return members


def _folded(path: PurePosixPath) -> str:
    # Windows and macOS take names for equal that differ in case or composition.
    return unicodedata.normalize("NFC", str(path).casefold())


def _require_plain(info: zipfile.ZipInfo, path: PurePosixPath) -> None:
    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"the member {str(path)!r} is encrypted")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        name = "a link" if kind == stat.S_IFLNK else "neither a file nor a folder"
        raise DataError(f"the member {str(path)!r} is {name}")


def unpack(
    archive: Path,
    target: Path,
    *,
    limits: ArchiveLimits | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[Member, ...]:
    """Unpack a zip archive into a folder, and return its files.

    Everything is unpacked into a hidden folder beside the destination first and moved when all
    members were read and their CRCs found right, so a kill leaves no half archive behind. Folders
    that are there already are merged; a file that is there with other content is an error.

    Parameters
    ----------
    archive : Path
        The zip file.
    target : Path
        Created where it does not exist.
    limits : ArchiveLimits, optional
        Against zip bombs.
    overwrite : bool
        Replace files that are there with other content.
    progress : callable, optional
        Called with bytes unpacked so far and bytes in all.

    Raises
    ------
    DataError
        The archive is damaged or unsafe, or collides with what is there; nothing was changed.
    """
    target.mkdir(parents=True, exist_ok=True)
    staging = target / f".{archive.name}.unpacking"
    if staging.exists():
        shutil.rmtree(staging)
    try:
        with zipfile.ZipFile(archive) as opened:
            members = read_members(opened, archive.stat().st_size, limits)
            total = sum(member.size for member in members.values())
            free = shutil.disk_usage(target).free
            if total > free:
                raise DataError(
                    f"it unpacks to {total / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free"
                )
            staging.mkdir()
            done = 0
            for info, member in members.items():
                done = _extract(opened, info, staging / member.path, done, total, progress)
        _merge(staging, target, [member.path for member in members.values()], overwrite)
    except DataError as error:
        raise DataError(f"{archive} is not unpacked: {error}.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise DataError(
            f"{archive} is not unpacked: it is damaged or of an unknown kind ({error}). Delete it "
            "and fetch it again."
        ) from error
    except RuntimeError as error:  # zipfile's answer to encryption
        raise DataError(f"{archive} is not unpacked: {error}.") from error
    except OSError as error:
        raise DataError(
            f"{archive} is not unpacked: {target} cannot be written ({error.strerror or error}). "
            "Free some space or choose another folder."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return tuple(members.values())


def _extract(
    opened: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    path: Path,
    done: int,
    total: int,
    progress: Progress | None,
) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with opened.open(info) as source, path.open("xb") as out:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > info.file_size:
                break
            out.write(chunk)
            if progress is not None:
                progress(done + written, total)
    if written != info.file_size:
        raise DataError(
            f"the member {info.filename!r} does not have the {info.file_size} bytes it declares"
        )
    return done + written


def _merge(staging: Path, target: Path, paths: list[PurePosixPath], overwrite: bool) -> None:
    for path in paths:
        there = target / path
        if there.is_dir():
            raise DataError(f"{there} is a folder, where the archive has a file")
        if any((target / parent).is_file() for parent in path.parents):
            raise DataError(f"a file is in the way of {there}")
        same = not there.exists() or filecmp.cmp(staging / path, there, shallow=False)
        if not same and not overwrite:
            raise DataError(
                f"{there} is there with other content. Move its folder away, or allow to overwrite"
            )
    _move(staging, target)


def _move(source: Path, target: Path) -> None:
    """Move entries at the highest level possible: a folder that is new appears in one step."""
    for entry in sorted(source.iterdir()):
        there = target / entry.name
        if entry.is_dir() and there.is_dir():
            _move(entry, there)
        else:
            os.replace(entry, there)
