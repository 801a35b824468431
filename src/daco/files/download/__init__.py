"""Weights by their pins, and the DCASE data sets by the checksums of their Zenodo records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from daco.errors import DataError, DownloadError, InputError, WeightsError
from daco.files.atomic import atomic_write
from daco.files.download.archives import ArchiveLimits, unpack
from daco.files.download.checkpoints import WeightSource, weights_dir
from daco.files.download.transfer import (
    Fetched,
    Progress,
    digest,
    fetch,
    part_of,
    require_space,
    size_of,
    writing,
)
from daco.files.download.web import HostUnreachableError, Policy
from daco.files.download.zenodo import SPLITS, RecordFile, list_record
from daco.files.lock import hold_lock
from daco.text import suggestion


def download_weights(
    source: WeightSource,
    folder: Path | str | None = None,
    *,
    policy: Policy | None = None,
    progress: Progress | None = None,
) -> Fetched:
    """Fetch a checkpoint into ``folder/<name>/``, unless it is there with the pinned hash.

    Parameters
    ----------
    source : WeightSource
        Its addresses and pins.
    folder : path, optional
        The weights folder; by default ``$DACO_WEIGHTS_DIR`` or the user's cache. A file directly
        in it, as in a mirror filled by hand, counts as well.
    policy, progress
        As for :func:`daco.files.download.transfer.fetch`.
    """
    path, checksum = _place(source, folder)
    by_hand = path.parent.parent / path.name
    if checksum and not path.exists() and by_hand.is_file():
        with writing(by_hand):
            got = digest(by_hand, checksum.partition(":")[0])
        if got == checksum:
            return Fetched(by_hand, size_of(by_hand), got, True, "present")
    return fetch(
        source.urls,
        path,
        size=source.size,
        checksum=checksum,
        policy=policy,
        progress=progress,
        advice=(
            f"on a machine without internet, fetch {source.file_name} elsewhere and give it with "
            "--weights FILE, or put it into the folder that DACO_WEIGHTS_DIR names"
        ),
    )


def install_weights(
    source: WeightSource, file: Path | str, folder: Path | str | None = None
) -> Fetched:
    """Copy a checkpoint that was carried here by hand into the weights folder, if it is the one.

    Parameters
    ----------
    source : WeightSource
        The pins that the file must meet.
    file : path
        The checkpoint; it stays where it is.
    folder : path, optional
        The weights folder, as for :func:`download_weights`.
    """
    file = Path(file)
    path, checksum = _place(source, folder)
    if not file.is_file():
        raise WeightsError(f"{file} is not a file. Give the path of {source.file_name}.")
    if checksum is not None and path.is_file() and digest(path, _algorithm(checksum)) == checksum:
        return Fetched(path, size_of(path), checksum, True, "present")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        require_space(path.parent, size_of(file), source.file_name)
        with atomic_write(path) as temporary:
            shutil.copyfile(file, temporary)
            # The copy is what will be used, so the copy is what is verified.
            got = digest(temporary, _algorithm(checksum))
            if checksum not in (None, got):
                raise WeightsError(
                    f"{file} is not the published {source.file_name}: expected {checksum}, got "
                    f"{got}; nothing was installed. Fetch it again from {source.urls[0]}."
                )
    return Fetched(path, size_of(path), got, checksum is not None, "installed")


def _place(source: WeightSource, folder: Path | str | None) -> tuple[Path, str | None]:
    root = weights_dir() if folder is None else Path(folder).expanduser()
    pins = (("sha256", source.sha256), ("md5", source.md5))
    checksum = next((f"{name}:{pin}" for name, pin in pins if pin), None)
    return root / source.name / source.file_name, checksum


def _algorithm(checksum: str | None) -> str:
    return checksum.partition(":")[0] if checksum else "sha256"


@dataclass(frozen=True)
class PlannedFile:
    """What there is to do for an archive, in a data set at ``root``.

    ``state`` is ``"complete"`` (unpacked, every file there), ``"archive"`` (only to be verified
    and unpacked), ``"part"`` (to be continued) or ``"missing"``.
    """

    file: RecordFile
    root: Path
    state: str
    bytes_here: int

    @property
    def archive(self) -> Path:
        """Where the zip file is put."""
        return self.root / "archives" / self.file.name

    @property
    def target(self) -> Path:
        """Where it is unpacked: the layout of the DCASE baseline."""
        return self.root / ("dev_data" if self.file.split == "dev" else "eval_data") / "raw"

    @property
    def receipt(self) -> Path:
        """What was unpacked from it, written last."""
        return self.root / ".daco" / f"{self.file.name}.json"


DatasetProgress = Callable[[PlannedFile, str, int, int | None], None]
"""Called with the archive, ``"fetch"`` or ``"unpack"``, bytes so far and bytes in all."""


@dataclass(frozen=True)
class DatasetReport:
    """Archives that are unpacked now, archives that were before, and failures with their reason."""

    done: tuple[str, ...]
    present: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


def plan_dataset(
    year: int,
    folder: Path | str,
    *,
    machines: Sequence[str] = (),
    splits: Sequence[str] = SPLITS,
    api: str | None = None,
    policy: Policy | None = None,
) -> list[PlannedFile]:
    """The archives of a year and what is there of each; nothing is fetched but the lists.

    Parameters
    ----------
    year : int
        2023 to 2026.
    folder : path
        The data set comes into ``<folder>/dcase<year>t2``, so years do not mix; a folder of that
        name is taken itself.
    machines : sequence of str
        Only these; empty means all.
    splits : sequence of {"dev", "train", "test"}
        Development, additional training, evaluation test.
    api, policy
        As for :func:`list_record`.
    """
    root = Path(folder).expanduser()
    if root.resolve().name != f"dcase{year}t2":
        root = root / f"dcase{year}t2"
    files = [
        file
        for split in dict.fromkeys(splits)
        for file in list_record(year, split, api=api, policy=policy)
    ]
    known = sorted({file.machine for file in files}, key=str.casefold)
    for machine in machines:
        if machine not in known:
            raise InputError(
                f"There is no machine {machine!r} in {'/'.join(splits)} of {year}."
                f"{suggestion(machine, known)} There are {', '.join(known)}."
            )
    return [_plan(file, root) for file in files if not machines or file.machine in machines]


def _plan(file: RecordFile, root: Path) -> PlannedFile:
    planned = PlannedFile(file, root, "missing", 0)
    if _is_unpacked(planned):
        return PlannedFile(file, root, "complete", file.size)
    if planned.archive.is_file():
        return PlannedFile(file, root, "archive", size_of(planned.archive))
    if part := size_of(part_of(planned.archive)):
        return PlannedFile(file, root, "part", min(part, file.size))
    return planned


def _is_unpacked(planned: PlannedFile) -> bool:
    try:
        receipt = json.loads(planned.receipt.read_text(encoding="utf-8"))
        return receipt["checksum"] == planned.file.checksum and all(
            (planned.target / path).stat().st_size == size for path, size in receipt["files"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def download_dataset(
    plan: Sequence[PlannedFile],
    *,
    keep_archives: bool = False,
    overwrite: bool = False,
    limits: ArchiveLimits | None = None,
    policy: Policy | None = None,
    progress: DatasetProgress | None = None,
) -> DatasetReport:
    """Fetch, verify and unpack what a plan says is not complete.

    One archive that fails does not stop the others, unless the host cannot be reached. A second
    call continues where the first ended.

    Parameters
    ----------
    plan : sequence of PlannedFile
        From :func:`plan_dataset`.
    keep_archives : bool
        Leave the zip files in ``archives/`` after unpacking.
    overwrite : bool
        Replace files that are there with other content.
    limits : ArchiveLimits, optional
        Against zip bombs.
    policy : Policy, optional
        Timeouts and retries.
    progress : callable, optional
        Called with the archive, ``"fetch"`` or ``"unpack"``, bytes so far and bytes in all.
    """
    todo = [planned for planned in plan if planned.state != "complete"]
    present = tuple(planned.file.name for planned in plan if planned.state == "complete")
    if todo:
        root = todo[0].root
        with writing(root):
            root.mkdir(parents=True, exist_ok=True)
            # Recordings hardly compress: unpacked they take at least what the archives do.
            unpacked = sum(planned.file.size for planned in todo)
            beside = max(planned.file.size for planned in todo)
            needed = unpacked + (unpacked if keep_archives else beside)
            here = sum(planned.bytes_here for planned in todo)
            require_space(root, needed - here, f"The data set ({len(todo)} archives)")
    done: list[str] = []
    failed: list[tuple[str, str]] = []
    for planned in todo:
        try:
            _bring(planned, keep_archives, overwrite, limits, policy or Policy(), progress)
        except HostUnreachableError:
            raise
        except (DownloadError, DataError) as error:
            failed.append((planned.file.name, str(error)))
        else:
            done.append(planned.file.name)
    return DatasetReport(tuple(done), present, tuple(failed))


def _bring(
    planned: PlannedFile,
    keep_archive: bool,
    overwrite: bool,
    limits: ArchiveLimits | None,
    policy: Policy,
    progress: DatasetProgress | None,
) -> None:
    def report(phase: str) -> Progress | None:
        if progress is None:
            return None
        return lambda have, total: progress(planned, phase, have, total)

    file = planned.file
    with writing(planned.receipt):
        planned.receipt.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(planned.receipt, policy.lock_wait):
            if _is_unpacked(planned):  # by another process, while this one waited
                return
            fetch(
                file.url,
                planned.archive,
                size=file.size,
                checksum=file.checksum,
                policy=policy,
                progress=report("fetch"),
                advice="what is complete stays, so run the same command again with a network",
            )
            members = unpack(
                planned.archive,
                planned.target,
                limits=limits,
                overwrite=overwrite,
                progress=report("unpack"),
            )
            contents = {
                "archive": file.name,
                "checksum": file.checksum,
                "files": [[str(member.path), member.size] for member in members],
            }
            with atomic_write(planned.receipt) as temporary:
                temporary.write_text(json.dumps(contents), encoding="utf-8")
            if not keep_archive:
                planned.archive.unlink()
                with suppress(OSError):  # not empty: other archives are there
                    planned.archive.parent.rmdir()
