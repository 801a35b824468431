"""`read_clips`: one table of clips from a manifest, a DCASE data set or plain folders."""

from __future__ import annotations

import os
from pathlib import Path

from daco.audio.formats import READABLE, is_unreadable
from daco.data.clips import ClipTable, find_oddities
from daco.data.dcase_sets import inject_truth, read_tree
from daco.data.folders import list_audio, read_folder, unreadable_note
from daco.data.manifest import read_manifest
from daco.errors import DataError, InputError
from daco.files.remote import Location, missing_message, parse_location
from daco.text import name_list, quantity
from daco.validation import is_utf8


def read_clips(
    source: Location | str,
    *,
    truth: Path | str | None = None,
    year: int | None = None,
    domain_level: int | None = None,
) -> ClipTable:
    """The clips of a manifest or a folder, whichever `source` is.

    Parameters
    ----------
    source : path
        A manifest (CSV or Parquet) with at least a column ``path``; a DCASE Task 2 data set of
        2023 to 2026 at any level, from the folder of all years to one machine; or a plain folder:
        ``normal/<domain>/*.wav``, ``<domain>/*.wav``, or all in one folder for one domain.
        Recordings have the extensions of `daco.audio.formats.FORMATS`. All of them may be on a
        remote file system: ``s3://plant/clips``.
    truth : path, optional
        A checkout of the official evaluator of that year. Its labels, domains and attributes are
        given to the anonymous test clips by name, and must cover them completely.
    year : int, optional
        Of the data set, where folders and manifest do not say.
    domain_level : int, optional
        Which folders of a plain folder name the domains: 1 for those directly in it, 2 for those
        one level below, 0 for one domain. Folders such as ``normal`` and ``test``, which say label
        and split, do not count. By default 1, but 0 where all of these folders have dates for
        names.

    Returns
    -------
    ClipTable
        Sorted by path, or in the order of the manifest.
    """
    source = parse_location(source)
    if isinstance(source, Path):
        source = Path(os.path.abspath(source.expanduser()))
        if not is_utf8(str(source)):
            raise DataError(
                f"The name of {name_list([str(source)])} is not UTF-8. Rename the file or folder."
            )
    if domain_level is not None and domain_level < 0:
        raise InputError(f"The domain level must be 0 or more. Got {domain_level} instead.")
    root, note, layout = source, "", ""
    if source.is_dir():
        sizes, oddities = list_audio(source)
        if not sizes:
            raise DataError(_nothing_in(source, oddities))
        tree = read_tree(source, sizes, year=year, renamed=truth is None, oddities=oddities)
        if tree is None:
            clips, more, note = read_folder(source, list(sizes), year, domain_level)
            oddities += more
        else:
            clips, layout = tree, "DCASE clips in"
    elif source.is_file():
        layout, oddities = "manifest", []
        root, clips, sizes = read_manifest(source, year=year, oddities=oddities)
        oddities += unreadable_note([clip.path for clip in clips if is_unreadable(clip.path)])
    else:
        raise DataError(f"{missing_message(source)} Give a folder of recordings or a manifest.")
    if layout and domain_level is not None:
        raise InputError(
            f"A domain level is for plain folders; the domains of the {layout} {source} are given. "
            "Leave it out."
        )
    if truth is not None:
        clips = inject_truth(clips, truth, oddities=oddities)
    empty = [clip.path for clip in clips if not sizes[clip.path]]
    if empty:
        oddities.append(f"{quantity(empty, 'clip')} of zero bytes: {name_list(empty)}.")
    return ClipTable(root, tuple(clips), (*oddities, *find_oddities(clips)), note)


def _nothing_in(root: Location, oddities: list[str]) -> str:
    archives = sorted(each.name for each in root.glob("*.zip"))
    if archives:
        return f"{root} holds {quantity(archives, 'archive')} but no recording: unzip them first."
    hint = f" {' '.join(oddities)}" if oddities else ""
    return f"No recording ({READABLE}) in {root} or below.{hint}"
