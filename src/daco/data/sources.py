"""`read_clips`: one table of clips from a manifest, a DCASE data set or plain folders.

Recordings of a folder are listed by `scan_folder`; names of plain folders say split and domain.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from daco.audio.formats import READABLE, is_readable, is_unreadable
from daco.data.clips import ClipTable, find_oddities
from daco.data.dcase import read_tree
from daco.data.dcase_truth import inject_truth
from daco.data.folders import read_folder
from daco.data.manifest import read_manifest
from daco.errors import DataError, InputError
from daco.files.remote import (
    Location,
    explain_errors,
    is_file,
    is_folder,
    list_files,
    parse_location,
)
from daco.text import name_list, quantity
from daco.validation import is_utf8


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
        anonymous test clips get its labels and domains by name. It must cover all of them.
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
        tree = read_tree(source, list(sizes), year=year, oddities=oddities)
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
        raise DataError(f"{source} does not exist. Give a folder of recordings or a manifest.")
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
    entered: set[str] = set()
    for folder, folders, names in os.walk(
        root, onerror=lambda error: scan.closed.append(error.filename), followlinks=True
    ):
        real = os.path.realpath(folder)
        # In the order of names: of two links to one folder, the same is followed everywhere.
        folders[:] = [] if real in entered else sorted(f for f in folders if not _is_hidden(f))
        if real in entered:
            continue
        entered.add(real)
        prefix = os.path.relpath(folder, root).replace(os.sep, "/") + "/"
        for name in names:
            path = (prefix + name).removeprefix("./")
            if not _is_hidden(name) and (is_readable(name) or is_unreadable(name)):
                try:
                    _add_file(scan, path, os.stat(os.path.join(folder, name)))
                except OSError:  # broken, in a circle, or removed in this moment
                    scan.broken.append(path)
    return scan


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _add_file(scan: FolderScan, path: str, status: Any) -> None:
    if not is_readable(path):
        if is_unreadable(path):
            scan.unreadable.append(path)
    # Names with such parts are two names of one file elsewhere, and two objects in a store.
    elif not is_utf8(path) or {"", ".", ".."}.intersection(path.split("/")):
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
