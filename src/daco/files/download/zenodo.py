"""What the Zenodo records of the DCASE data sets hold, as their API tells."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from daco.errors import DownloadError, InputError
from daco.files.download.transfer import parse_checksum
from daco.files.download.web import Policy, fetch_json, host_of

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


@dataclass(frozen=True)
class RecordFile:
    """An archive of a record: whose recordings it holds, its size, checksum and address."""

    name: str
    split: str
    machine: str
    revision: int
    size: int
    checksum: str
    url: str


def list_record(
    year: int, split: str, *, api: str | None = None, policy: Policy | None = None
) -> list[RecordFile]:
    """The archives of one record, as its API lists them; of a machine only the last revision.

    Parameters
    ----------
    year : int
        2023 to 2026.
    split : {"dev", "train", "test"}
        Development, additional training or evaluation test.
    api : str, optional
        The API's address; by default ``$DACO_ZENODO_API`` or Zenodo itself.
    policy : Policy, optional
        Timeouts and retries.
    """
    if year not in RECORDS:
        known = ", ".join(map(str, RECORDS))
        raise InputError(f"The records of {year} are not known. Give one of the years {known}.")
    if split not in SPLITS:
        raise InputError(f"The split must be one of {', '.join(SPLITS)}. Got {split!r} instead.")
    api = (api or os.environ.get(ZENODO_API_VARIABLE) or ZENODO_API).rstrip("/")
    url = f"{api}/records/{RECORDS[year][split]}"
    advice = (
        f"on a machine without internet, set {ZENODO_API_VARIABLE} to a mirror, or carry the "
        "unpacked folders there"
    )
    document = fetch_json(url, policy=policy, advice=advice)
    entries = document.get("files") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise DownloadError(f"{url} lists no files. The record may be withdrawn or restricted.")
    newest: dict[str, RecordFile] = {}
    for entry in entries:
        file = _read_entry(entry, split, api, url)
        if file and (file.machine not in newest or newest[file.machine].revision < file.revision):
            newest[file.machine] = file
    if not newest:
        raise DownloadError(f"{url} holds no archives of the {split!r} split that daco knows.")
    return sorted(newest.values(), key=lambda file: file.machine.casefold())


def _read_entry(entry: Any, split: str, api: str, url: str) -> RecordFile | None:
    """An archive of the record, or None for a file that is something else."""
    try:
        name, size = entry["key"], entry["size"]
        checksum, address = parse_checksum(entry["checksum"]), entry["links"]["self"]
        match = _NAMES[split].fullmatch(name)
        sound = isinstance(size, int) and size >= 0 and bool(host_of(address))
    except (KeyError, TypeError, AttributeError, InputError) as error:
        raise DownloadError(
            f"{url} has an entry without name, size, checksum or address ({error!r}). Without its "
            "checksum nothing is fetched."
        ) from error
    if not sound:
        raise DownloadError(f"{url} has an entry of a wrong size: {name!r}.")
    if match is None:
        return None
    if address.startswith(ZENODO_API + "/"):  # a mirror may serve the record as it was copied
        address = api + address.removeprefix(ZENODO_API)
    return RecordFile(name, split, match[1], int(match[2] or 1), size, checksum, address)
