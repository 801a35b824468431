"""The DCASE data sets: their Zenodo records, and the archives fetched and unpacked from them."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from daco.errors import DataError, DownloadError, InputError
from daco.files.archives import unpack
from daco.files.atomic import atomic_write, hold_lock
from daco.files.download import (
    LOCK_WAIT,
    HostUnreachableError,
    Progress,
    explain_write_errors,
    fetch,
    host_of,
    part_of,
    require_space,
    size_of,
    transfer,
)
from daco.text import suggestion

ZENODO_API = "https://zenodo.org/api"
ZENODO_API_VARIABLE = "DACO_ZENODO_API"
"""Environment variable with the address of a mirror of the API, for plants without internet."""

RECORDS: dict[int, dict[str, int]] = {
    2023: {"dev": 7882613, "train": 7830345, "test": 7860847},
    2024: {"dev": 10902294, "train": 11259435, "test": 11363076},
    2025: {"dev": 15097779, "train": 15392814, "test": 15519362},
    2026: {"dev": 19336329, "train": 20151556, "test": 20437238},
}
"""Zenodo records of DCASE Task 2: development, additional training, evaluation test."""

SPLITS = ("dev", "train", "test")
LICENCE = "CC BY-NC-SA 4.0"

_NAMES = {
    "dev": re.compile(r"dev_(?:data_)?(\w+?)(?:_r(\d+))?\.zip"),
    "train": re.compile(r"eval_data_(\w+?)_train(?:_r(\d+))?\.zip"),
    "test": re.compile(r"eval_data_(\w+?)_test(?:_r(\d+))?\.zip"),
}
_MD5 = re.compile(r"md5:[0-9a-f]{32}")


@dataclass(frozen=True)
class Archive:
    """An archive of a data set, and how much of it is in the folder ``root``.

    ``state`` is ``"complete"`` (unpacked), ``"archive"`` (to be unpacked), ``"part"`` (to be
    continued) or ``"missing"``.
    """

    name: str
    split: str
    machine: str
    revision: int
    size: int
    checksum: str
    url: str
    root: Path = Path()
    state: str = "missing"
    bytes_here: int = 0

    @property
    def file(self) -> Path:
        """The zip file."""
        return self.root / "archives" / self.name

    @property
    def target(self) -> Path:
        """Where it is unpacked: the layout of the DCASE baseline."""
        return self.root / ("dev_data" if self.split == "dev" else "eval_data") / "raw"

    @property
    def receipt(self) -> Path:
        """The list of the files that were unpacked from it, written last."""
        return self.root / ".daco" / f"{self.name}.json"


@dataclass(frozen=True)
class DatasetReport:
    """Archives unpacked now (``done``) or before (``present``); ``failed`` ones with reasons."""

    done: tuple[str, ...]
    present: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


def list_record(year: int, split: str) -> list[Archive]:
    """List the archives of one record; of each machine the last revision only."""
    if year not in RECORDS:
        known = ", ".join(map(str, RECORDS))
        raise InputError(f"The records of {year} are not known. Give one of the years {known}.")
    api = (os.environ.get(ZENODO_API_VARIABLE) or ZENODO_API).rstrip("/")
    url = f"{api}/records/{RECORDS[year][split]}"
    advice = (
        f"on a computer without internet, set {ZENODO_API_VARIABLE} to a mirror, or copy the "
        "unpacked folders to it"
    )
    with tempfile.TemporaryDirectory(prefix="daco-") as folder:
        file = Path(folder) / "record.json"
        transfer(url, file, url, advice=advice)
        try:
            document = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:
            raise DownloadError(f"The answer of {url} is not JSON ({error}).") from error
    entries = document.get("files") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise DownloadError(f"{url} lists no files. The record may be withdrawn or restricted.")
    archives = [each for entry in entries if (each := _read_entry(entry, split, api, url))]
    if not archives:
        raise DownloadError(f"{url} holds no archives of the {split!r} split that daco knows.")
    archives.sort(key=lambda each: (each.machine.casefold(), each.revision))
    return list({archive.machine: archive for archive in archives}.values())


def _read_entry(entry: Any, split: str, api: str, url: str) -> Archive | None:
    """An archive of the record, or None for a file that is something else."""
    try:
        name, size, checksum = entry["key"], entry["size"], entry["checksum"]
        address = entry["links"]["self"]
        match = _NAMES[split].fullmatch(name)
        valid = isinstance(size, int) and size >= 0 and _MD5.fullmatch(checksum)
        host_of(address)
    except (KeyError, TypeError, AttributeError, InputError) as error:
        raise DownloadError(
            f"{url} has an entry without name, size, checksum or address ({error!r}). Without its "
            "checksum nothing is fetched."
        ) from error
    if not valid:
        raise DownloadError(f"{url} has an entry of a wrong size or checksum: {name!r}.")
    if match is None:
        return None
    if address.startswith(ZENODO_API + "/"):  # a mirror may serve the record as it was copied
        address = api + address.removeprefix(ZENODO_API)
    return Archive(name, split, match[1], int(match[2] or 1), size, checksum, address)


def plan_dataset(
    year: int, folder: Path | str, machines: Sequence[str] = (), splits: Sequence[str] = SPLITS
) -> list[Archive]:
    """List the archives of a DCASE data set and how much of each is there.

    Only the lists of files are downloaded. The data set goes to ``<folder>/dcase<year>t2``, so that
    years do not mix; a folder that has this name already is used itself.

    Parameters
    ----------
    year : int
    folder : path
    machines : sequence of str
        By default all machines.
    splits : sequence of {"dev", "train", "test"}
        Development set, additional training clips, and evaluation test clips; by default all.

    Returns
    -------
    list of Archive
    """
    root = Path(folder).expanduser()
    if root.resolve().name != f"dcase{year}t2":
        root = root / f"dcase{year}t2"
    archives = [archive for split in dict.fromkeys(splits) for archive in list_record(year, split)]
    known = sorted({archive.machine for archive in archives}, key=str.casefold)
    for machine in machines:
        if machine not in known:
            raise InputError(
                f"There is no machine {machine!r} in {'/'.join(splits)} of {year}."
                f"{suggestion(machine, known)} There are {', '.join(known)}."
            )
    return [
        _with_state(replace(archive, root=root))
        for archive in archives
        if not machines or archive.machine in machines
    ]


def _with_state(archive: Archive) -> Archive:
    if _is_unpacked(archive):
        return replace(archive, state="complete", bytes_here=archive.size)
    if archive.file.is_file():
        return replace(archive, state="archive", bytes_here=size_of(archive.file))
    if part := size_of(part_of(archive.file)):
        return replace(archive, state="part", bytes_here=min(part, archive.size))
    return archive


def _is_unpacked(archive: Archive) -> bool:
    try:
        receipt = json.loads(archive.receipt.read_text(encoding="utf-8"))
        return receipt["checksum"] == archive.checksum and all(
            (archive.target / path).stat().st_size == size for path, size in receipt["files"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def download_dataset(
    plan: Sequence[Archive],
    keep_archives: bool = False,
    overwrite: bool = False,
    progress: Callable[[Archive, str, int, int | None], None] | None = None,
) -> DatasetReport:
    """Download, verify and unpack the archives of a plan that are not complete.

    An archive that fails does not stop the others, unless the host cannot be reached. A second call
    continues where the first ended.

    Parameters
    ----------
    plan : sequence of Archive
        What `plan_dataset` returned.
    keep_archives : bool
        Whether to keep the archives after they were unpacked.
    overwrite : bool
        Whether to replace files that differ from those of an archive.
    progress : callable, optional
        Called with the archive, ``"fetch"`` or ``"unpack"``, the bytes so far and the bytes in all.

    Returns
    -------
    DatasetReport
    """
    incomplete = [archive for archive in plan if archive.state != "complete"]
    present = tuple(archive.name for archive in plan if archive.state == "complete")
    if incomplete:
        root = incomplete[0].root
        with explain_write_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            # Recordings hardly compress: unpacked they take at least what the archives do.
            unpacked = sum(archive.size for archive in incomplete)
            beside = unpacked if keep_archives else max(archive.size for archive in incomplete)
            here = sum(archive.bytes_here for archive in incomplete)
            require_space(
                root, unpacked + beside - here, f"The data set ({len(incomplete)} archives)"
            )
    done: list[str] = []
    failed: list[tuple[str, str]] = []
    for archive in incomplete:
        try:
            _download(archive, keep_archives, overwrite, progress)
        except HostUnreachableError:
            raise
        except (DownloadError, DataError) as error:
            failed.append((archive.name, str(error)))
        else:
            done.append(archive.name)
    return DatasetReport(tuple(done), present, tuple(failed))


def _download(
    archive: Archive,
    keep_archive: bool,
    overwrite: bool,
    progress: Callable[[Archive, str, int, int | None], None] | None,
) -> None:
    def report(phase: str) -> Progress | None:
        return None if progress is None else partial(progress, archive, phase)

    advice = "what is complete stays, so run the same command again with a network"
    with explain_write_errors(archive.receipt):
        archive.receipt.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(archive.receipt, LOCK_WAIT):
            if _is_unpacked(archive):  # by another process, while this one waited
                return
            file, size = archive.file, archive.size
            fetch([archive.url], file, archive.checksum, size, report("fetch"), advice)
            files = unpack(file, archive.target, overwrite, report("unpack"))
            contents = {
                "archive": archive.name,
                "checksum": archive.checksum,
                "files": [[str(path), length] for path, length in files.items()],
            }
            with atomic_write(archive.receipt) as temporary:
                temporary.write_text(json.dumps(contents), encoding="utf-8")
            if not keep_archive:
                file.unlink()
                file.with_name(f"{file.name}.lock").unlink(missing_ok=True)
                with suppress(OSError):  # not empty: other archives are there
                    file.parent.rmdir()
