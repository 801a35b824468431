"""The DCASE data sets: their Zenodo records, and the archives fetched and unpacked from them."""

from __future__ import annotations

import json
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daco.errors import DownloadError, InputError
from daco.files.atomic import atomic_write
from daco.files.download import fetch
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
    "dev": r"dev_(?:data_)?(\w+?)(?:_r(\d+))?\.zip",
    "train": r"eval_data_(\w+?)_train(?:_r(\d+))?\.zip",
    "test": r"eval_data_(\w+?)_test(?:_r(\d+))?\.zip",
}


@dataclass(frozen=True)
class Archive:
    """An archive of a data set in the folder ``root``; ``size`` is in bytes."""

    name: str
    split: str
    machine: str
    size: int
    checksum: str
    url: str
    root: Path

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

    @property
    def is_unpacked(self) -> bool:
        """Whether all files of this archive are there."""
        try:
            receipt = json.loads(self.receipt.read_text(encoding="utf-8"))
            sizes = {path: (self.target / path).stat().st_size for path in receipt["files"]}
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return bool(receipt == {"checksum": self.checksum, "files": sizes})


def list_record(year: int, split: str, root: Path) -> list[Archive]:
    """List the archives of one record; of each machine the last revision only."""
    if year not in RECORDS:
        known = ", ".join(map(str, RECORDS))
        raise InputError(f"The records of {year} are not known. Give one of the years {known}.")
    api = (os.environ.get(ZENODO_API_VARIABLE) or ZENODO_API).rstrip("/")
    url = f"{api}/records/{RECORDS[year][split]}"
    advice = (
        f"On a computer without internet, set {ZENODO_API_VARIABLE} to a mirror, or copy the "
        "unpacked folders to it."
    )
    with tempfile.TemporaryDirectory(prefix="daco-") as folder:
        record = fetch(url, Path(folder) / "record.json", None, advice=advice).read_bytes()
    newest: dict[str, tuple[int, Archive]] = {}
    try:
        for entry in json.loads(record)["files"]:
            match = re.fullmatch(_NAMES[split], entry["key"])
            if match is None:
                continue
            machine, revision = match[1], int(match[2] or 1)
            # A mirror may serve the record as it was copied.
            link = str(entry["links"]["self"]).replace(f"{ZENODO_API}/", f"{api}/", 1)
            size, checksum = int(entry["size"]), str(entry["checksum"])
            if not re.fullmatch(r"md5:[0-9a-f]{32}", checksum):  # pooch takes any file for ""
                raise ValueError(f"{checksum!r} is not an MD5 checksum")
            if machine not in newest or revision > newest[machine][0]:
                archive = Archive(entry["key"], split, machine, size, checksum, link, root)
                newest[machine] = revision, archive
    except (KeyError, TypeError, ValueError) as error:
        raise DownloadError(f"{url} is not a record that daco can read ({error!r}).") from None
    if not newest:
        raise DownloadError(f"{url} holds no archives of the {split!r} split that daco knows.")
    return [newest[machine][1] for machine in sorted(newest, key=str.casefold)]


def plan_dataset(
    year: int, folder: Path | str, machines: Sequence[str] = (), splits: Sequence[str] = SPLITS
) -> list[Archive]:
    """List the archives of a DCASE data set, without fetching them.

    The data set goes to ``<folder>/dcase<year>t2``, so that years do not mix; a folder that has
    this name already is used itself.

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
    archives = [each for split in dict.fromkeys(splits) for each in list_record(year, split, root)]
    known = sorted({archive.machine for archive in archives}, key=str.casefold)
    for machine in machines:
        if machine not in known:
            raise InputError(
                f"There is no machine {machine!r} in {'/'.join(splits)} of {year}."
                f"{suggestion(machine, known)} There are {', '.join(known)}."
            )
    return [each for each in archives if not machines or each.machine in machines]


def download_dataset(
    plan: Sequence[Archive], progress: Callable[[Archive, int, int | None], None] | None = None
) -> dict[str, str]:
    """Download, verify and unpack the archives of a plan that are not there.

    An archive that fails does not stop the others, and a second call fetches what is missing.

    Parameters
    ----------
    plan : sequence of Archive
        What `plan_dataset` returned.
    progress : callable, optional
        Called with the archive, the bytes so far and the bytes in all.

    Returns
    -------
    dict of str to str
        The archives that failed, with the reasons.
    """
    failed: dict[str, str] = {}
    for archive in plan:
        if archive.is_unpacked:
            continue
        report = None if progress is None else partial(progress, archive)
        try:
            fetch(archive.url, archive.file, archive.checksum, report)
            _unpack(archive)
        except DownloadError as error:
            failed[archive.name] = str(error)
    return failed


def _unpack(archive: Archive) -> None:
    """Unpack an archive, list its files when all are there, and remove it."""
    import pooch

    try:
        with zipfile.ZipFile(archive.file) as content:
            sizes = {each.filename: each.file_size for each in content.infolist()}
        unpack = pooch.Unzip(extract_dir=str(archive.target))
        unpack(str(archive.file), "download", None)
        files = {name: size for name, size in sizes.items() if not name.endswith("/")}
        archive.receipt.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(archive.receipt) as temporary:
            receipt = {"checksum": archive.checksum, "files": files}
            temporary.write_text(json.dumps(receipt), encoding="utf-8")
        archive.file.unlink()
        if not any(archive.file.parent.iterdir()):
            archive.file.parent.rmdir()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DownloadError(f"{archive.file} cannot be unpacked: {error}.") from None
