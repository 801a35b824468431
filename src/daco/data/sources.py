"""`read_clips`: one table of clips from a manifest, a DCASE data set or plain folders.

Recordings of a folder are listed by `scan_folder`; names of plain folders say split and domain.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from daco.audio.formats import READABLE, is_readable, is_unreadable
from daco.data.clips import ONE_DOMAIN, SPLITS, Clip, ClipTable, find_oddities
from daco.data.dcase_sets import read_tree
from daco.data.dcase_truth import inject_truth
from daco.data.manifest import read_manifest
from daco.errors import DataError, InputError
from daco.files.remote import (
    Location,
    explain_errors,
    is_file,
    is_folder,
    list_files,
    missing_message,
    name_of,
    parse_location,
)
from daco.text import name_list, quantity
from daco.validation import is_utf8

_FEW = 20  # machines that are listed
_YMD = r"(19|20)\d\d([-_. ]?)(0[1-9]|1[0-2])(\2(0[1-9]|[12]\d|3[01]))?"
_DMY = r"(0?[1-9]|[12]\d|3[01])([-_. ])(0?[1-9]|1[0-2])\7(19|20)\d\d"
_DATE = re.compile(rf"(?:{_YMD}|{_DMY})([T_ -]?\d\d([-_.:h]?\d\d){{0,2}})?", re.ASCII)
_LABELS = {"normal": 0, "anomaly": 1, "anomalous": 1, "abnormal": 1}


def read_clips(
    source: Location | str,
    *,
    truth: Path | str | None = None,
    year: int | None = None,
    machine_level: int | None = None,
    domain_level: int | None = None,
) -> ClipTable:
    """List the clips of a manifest or a folder.

    Parameters
    ----------
    source : path or URL
        A manifest (CSV or Parquet) with at least a column ``path``; a DCASE Task 2 data set of
        2020 to 2026 at any level, from the folder of all years to one machine; or a plain folder:
        ``<machine>/<domain>/*.wav``, ``<domain>/*.wav``, or all in one folder for one domain.
        All of them may be on a remote file system, such as ``s3://plant/clips``.
    truth : path, optional
        A checkout of the official evaluator of that year, or its list ``eval_data_list.csv``. The
        anonymous test clips get its labels, domains and attributes by name. It must cover all of
        them.
    year : int, optional
        The year of the data set, if folders and manifest do not name it.
    machine_level, domain_level : int, optional
        Which folders of a plain folder name the machines and the domains: 1 for those directly in
        it, 2 for those one level below, 0 for one machine or one domain. Folders such as ``normal``
        and ``test``, which give label and split, do not count. By default, the folders of a tree
        with one level are domains of one machine, and a tree with more has machines and their
        domains; folders named by dates do not count then.

    Returns
    -------
    ClipTable
        Sorted by path, or in the order of the manifest.

    Raises
    ------
    DataError
        There are no recordings, or the manifest or data set is not as expected.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("slow/a.wav", "fast/b.wav"):
    ...         (Path(folder) / name).parent.mkdir()
    ...         _ = (Path(folder) / name).write_bytes(b"")
    ...     [(clip.path, clip.domain) for clip in read_clips(folder).clips]
    [('fast/b.wav', 'fast'), ('slow/a.wav', 'slow')]
    """
    source = parse_location(source)
    if isinstance(source, Path):
        source = Path(os.path.abspath(source.expanduser()))
        if not is_utf8(str(source)):
            raise DataError(
                f"The name of {name_list([str(source)])} is not UTF-8. Rename the file or folder."
            )
    levels = machine_level, domain_level
    if min(level or 0 for level in levels) < 0:
        raise InputError(f"Levels of folders must be 0 or more. Got {min(filter(None, levels))}.")
    root, note, layout = source, "", ""
    if is_folder(source):
        sizes, oddities = list_audio(source)
        if not sizes:
            raise DataError(_nothing_in(source, oddities))
        tree = read_tree(source, sizes, year=year, renamed=truth is None, oddities=oddities)
        if tree is None:
            clips, more, note = read_folder(source, list(sizes), year, *levels)
            oddities += more
        else:
            clips, layout = tree, "DCASE clips in"
    elif is_file(source):
        layout, oddities = "manifest", []
        root, clips, sizes = read_manifest(source, year=year, oddities=oddities)
        oddities += unreadable_note([clip.path for clip in clips if is_unreadable(clip.path)])
    else:
        raise DataError(f"{missing_message(source)} Give a folder of recordings or a manifest.")
    if layout and levels != (None, None):
        raise InputError(
            "Levels of folders are for plain folders only. Leave them out: the domains of the "
            f"{layout} {source} are known."
        )
    if truth is not None:
        clips = inject_truth(clips, truth, oddities=oddities)
    empty = [clip.path for clip in clips if not sizes[clip.path]]
    if empty:
        oddities.append(f"{quantity(empty, 'clip')} of zero bytes: {name_list(empty)}.")
    return ClipTable(root, tuple(clips), (*oddities, *find_oddities(clips)), note)


def _nothing_in(root: Location, oddities: list[str]) -> str:
    with explain_errors(root):
        archives = sorted(each.name for each in root.glob("*.zip"))
    if archives:
        return f"{root} holds {quantity(archives, 'archive')} but no recording: unzip them first."
    hint = f" {' '.join(oddities)}" if oddities else ""
    return f"There is no recording ({READABLE}) in {root} or its subfolders.{hint} Check the path."


class FolderScan(NamedTuple):
    """The files below a folder, by path relative to it, and what was left out."""

    files: dict[str, Any]
    """Status of each recording, as of `os.stat`."""
    closed: list[str]
    broken: list[str]
    misnamed: list[str]
    unreadable: list[str]

    def problems(self) -> list[str]:
        """A sentence for each kind of problem."""
        sentences = [
            (self.closed, "folder", "could not be opened"),
            (self.broken, "link", "left out, broken"),
            (self.misnamed, "name", "left out, not UTF-8 or with an empty part, . or .."),
        ]
        return [
            f"{quantity(names, noun)} {text}: {name_list(sorted(names))}."
            for names, noun, text in sentences
            if names
        ] + unreadable_note(sorted(self.unreadable))


def scan_folder(root: Location) -> FolderScan:
    """All recordings below a folder.

    Hidden files and what macOS adds to archives are left out; links to folders are followed once.
    """
    scan = FolderScan({}, [], [], [], [])
    if not isinstance(root, Path):
        for path, found in list_files(root).items():
            if not any(_is_hidden(name) for name in path.split("/") if name not in (".", "..")):
                _add_file(scan, path, found)
        return scan
    entered: set[tuple[int, int]] = set()
    pending = [("", os.fspath(root))]
    while pending:
        prefix, folder = pending.pop()
        below = []
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in entered:
                continue
            entered.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                for entry in entries:
                    path = prefix + entry.name
                    if _is_hidden(entry.name):
                        continue
                    try:
                        if entry.is_dir():
                            below.append((path + "/", entry.path))
                        elif is_readable(path) or is_unreadable(path):
                            _add_file(scan, path, entry.stat())
                    except OSError:  # broken, in a circle, or removed in this moment
                        if is_readable(path):
                            scan.broken.append(path)
        except OSError:
            scan.closed.append(prefix or os.fspath(root))
        # In the order of names: of two links to one folder, the same is followed everywhere.
        pending.extend(sorted(below, reverse=True))
    return scan


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _add_file(scan: FolderScan, path: str, status: Any) -> None:
    if is_unreadable(path):
        scan.unreadable.append(path)
    elif is_readable(path):
        # Names with such parts are two names of one file elsewhere, and two objects in a store.
        if not is_utf8(path) or {"", ".", ".."}.intersection(path.split("/")):
            scan.misnamed.append(path)
        else:
            scan.files[path] = status


def unreadable_note(paths: Sequence[str]) -> list[str]:
    """The sentence about recordings whose format is not read, if there are any."""
    if not paths:
        return []
    return [
        f"{quantity(paths, 'file')} that daco cannot read: {name_list(paths)}. Convert "
        f"to {READABLE}."
    ]


def list_audio(root: Location) -> tuple[dict[str, int], list[str]]:
    """List recordings below a folder as {relative path: bytes}, and the oddities."""
    scan = scan_folder(root)
    sizes = {path: file.st_size for path, file in sorted(scan.files.items())}
    return sizes, scan.problems()


def read_folder(
    root: Location,
    paths: Sequence[str],
    year: int | None,
    machine_level: int | None = None,
    domain_level: int | None = None,
) -> tuple[list[Clip], list[str], str]:
    """List the clips of plain folders, with oddities and a note about what was understood.

    Folders named ``train``, ``normal`` and the like say split and label; the others name machines
    and domains.
    """
    places = {path: meaning_of_folders(path) for path in paths}
    asked = machine_level is not None or domain_level is not None
    if not asked:
        places = {
            path: ([name for name in folders if not _DATE.fullmatch(name)], split, label)
            for path, (folders, split, label) in places.items()
        }
    outside, deep, clips = [], [], []
    has_normal = any(label == 0 for _, _, label in places.values())
    if has_normal:
        # Files elsewhere may be anything, and the bank must hold normal clips only.
        outside = [path for path, (_, *known) in places.items() if known == [None, None]]
        for path in outside:
            del places[path]
    depths = {path: len(folders) for path, (folders, *_) in places.items()}
    for level in (machine_level, domain_level):
        if level is not None and level > max(depths.values()):
            raise InputError(
                f"No recording of {root} lies {quantity(level, 'folder')} deep. Choose another "
                "level, or 0."
            )
    machines, domains = _levels(set(depths.values()), machine_level, domain_level)
    # A machine without folders for its domains has one domain.
    deepest = max(machines, domains)
    divided = {
        tuple(names[:machines])
        for names, *_ in places.values()
        if domains and len(names) >= deepest
    }
    for path, (names, named_split, label) in places.items():
        split = named_split or ("test" if label == 1 else "train")
        is_divided = tuple(names[:machines]) in divided
        missing = depths[path] < (deepest if is_divided else machines)
        if missing and (split == "train" or depths[path] < machines):
            outside.append(path)
            continue
        machine = names[machines - 1] if machines else name_of(root)
        domain: str | None = ONE_DOMAIN
        if is_divided:
            domain = None if missing else names[domains - 1]
        if depths[path] > deepest > 0:
            deep.append(path)
        clips.append(Clip(path, machine, year, domain=domain, split=split, label=label))
    oddities = []
    if outside:
        inside = "normal/" if has_normal else "the folders of the domains"
        oddities.append(
            f"{quantity(outside, 'clip')} left out, not inside {inside}: {name_list(outside)}."
        )
    if deep:
        oddities.append(
            f"{quantity(deep, 'clip')} in subfolders of a domain, read as clips of that domain: "
            f"{name_list(deep)}."
        )
    folders = {name for path in paths for name in path.split("/")[:-1]}
    dates = [] if asked else sorted(filter(_DATE.fullmatch, folders))
    return clips, oddities, _understood(clips, machines, domains, dates)


def _levels(
    depths: set[int], machine_level: int | None, domain_level: int | None
) -> tuple[int, int]:
    """The folder levels of machines and domains, 0 for none."""
    if machine_level is None and domain_level is None:
        inside = depths - {0} or {0}  # a stray recording says nothing about the folders
        return (1, 2) if min(inside) > 1 else (0, min(1, max(depths)))
    if domain_level is None:
        below = (machine_level or 0) + 1
        return machine_level or 0, below if below <= max(depths) else 0
    return machine_level or 0, domain_level


def _understood(clips: Sequence[Clip], machines: int, domains: int, dates: Sequence[str]) -> str:
    """Which folders name machines and domains, and how to change that; empty if it is plain."""
    counts: dict[str, Counter[str]] = {}
    for clip in clips:
        if clip.split == "train":
            counts.setdefault(clip.machine, Counter())[clip.domain or ONE_DOMAIN] += 1
    named = {domain for own in counts.values() for domain in own}
    lines: list[str] = []
    if machines:
        listed = [f"{machine}: {_sizes(own)}" for machine, own in counts.items()]
        shown = [*listed[:_FEW], f"and {len(listed) - _FEW} more"] if len(listed) > _FEW else listed
        lines.append(f"Read as {quantity(counts, 'machine')} with these operating conditions:")
        lines += [f"  {line}" for line in shown]
        lines.append(
            "If these are conditions of one machine, use --domain-level 1; if they are neither, a "
            "manifest."
        )
    elif domains and not named <= {"source", "target"}:
        for machine, own in counts.items():
            lines.append(f"Read as one machine, {machine}, in these operating conditions:")
            lines.append(f"  {_sizes(own)}")
        lines.append(
            "If these are machines, use --machine-level 1; if they are neither, --domain-level 0 "
            "or a manifest."
        )
    if dates:
        lines.append(
            f"Folders named by dates ({name_list(dates, 3)}) do not count. If they are operating "
            "conditions, use --domain-level."
        )
    return "\n".join(lines)


def _sizes(counts: Counter[str]) -> str:
    return name_list((f"{name} ({quantity(count, 'clip')})" for name, count in counts.items()), 8)


def meaning_of_folders(path: str) -> tuple[list[str], str | None, int | None]:
    """Folders of a path that may name domains, and the split and label that others name."""
    split = label = None
    rest = []
    for folder in path.split("/")[:-1]:
        word = folder.lower()
        if word in _LABELS and label is None:
            label = _LABELS[word]
        elif word in SPLITS and split is None:
            split = word
        else:
            rest.append(folder)
    return rest, split, label
