"""The DCASE data sets: their Zenodo records, and the archives fetched and unpacked from them."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zipfile import BadZipFile

from daco.errors import DownloadError, InputError
from daco.files.atomic import atomic_write
from daco.files.download import fetch
from daco.text import suggestion

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
    def target(self) -> Path:
        """Where it is fetched and unpacked: the layout of the DCASE baseline."""
        return self.root / ("dev_data" if self.split == "dev" else "eval_data") / "raw"

    @property
    def receipt(self) -> Path:
        """A file with its checksum beside what was unpacked from it, written last."""
        return self.target / self.machine / f".{self.name}.md5"

    @property
    def is_unpacked(self) -> bool:
        """Whether this archive was unpacked, and the folder was not removed since."""
        return self.receipt.is_file() and self.receipt.read_text("utf-8") == self.checksum


def list_record(year: int, split: str, root: Path) -> list[Archive]:
    """List the archives of one record; of each machine the last revision only."""
    if year not in RECORDS:
        known = ", ".join(map(str, RECORDS))
        raise InputError(f"The records of {year} are not known. Give one of the years {known}.")
    api = os.environ.get(ZENODO_API_VARIABLE) or "https://zenodo.org/api"
    url = f"{api.rstrip('/')}/records/{RECORDS[year][split]}"
    advice = (
        f"On a computer without internet, set {ZENODO_API_VARIABLE} to a mirror, or copy the "
        "unpacked folders to it."
    )
    with tempfile.TemporaryDirectory(prefix="daco-") as folder:
        record = fetch(url, Path(folder) / "record.json", None, advice=advice).read_bytes()
    revisions: list[tuple[int, Archive]] = []
    try:
        for entry in json.loads(record)["files"]:
            name = entry["key"]
            match = re.fullmatch(_NAMES[split], name)
            if match is not None:
                size, checksum = int(entry["size"]), str(entry["checksum"])
                if not re.fullmatch(r"md5:[0-9a-f]{32}", checksum):  # pooch takes any file for ""
                    raise ValueError(f"{checksum!r} is not an MD5 checksum")
                link = f"{url}/files/{name}/content"
                archive = Archive(name, split, match[1], size, checksum, link, root)
                revisions.append((int(match[2] or 1), archive))
    except (KeyError, TypeError, ValueError) as error:
        raise DownloadError(f"{url} is not a record that daco can read ({error!r}).") from None
    if not revisions:
        raise DownloadError(f"{url} holds no archives of the {split!r} split that daco knows.")
    revisions.sort(key=lambda each: each[0])
    newest = {archive.machine: archive for _, archive in revisions}
    return sorted(newest.values(), key=lambda archive: archive.machine.casefold())


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
    known = list(dict.fromkeys(archive.machine for archive in archives))
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
            file = fetch(archive.url, archive.target / archive.name, archive.checksum, report)
            _unpack(archive, file)
        except DownloadError as error:
            failed[archive.name] = str(error)
    return failed


def _unpack(archive: Archive, file: Path) -> None:
    """Unpack an archive, note that it is complete, and remove its file."""
    import pooch

    unpack = pooch.Unzip(extract_dir=str(archive.target))
    try:
        unpack(str(file), "download", None)
        archive.receipt.parent.mkdir(exist_ok=True)
        with atomic_write(archive.receipt) as temporary:
            temporary.write_text(archive.checksum, "utf-8")
        file.unlink()
    except (OSError, BadZipFile, ValueError, NotImplementedError) as error:
        raise DownloadError(f"{file} cannot be unpacked: {error}.") from None
