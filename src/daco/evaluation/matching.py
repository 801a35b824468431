"""Which row of a score file is which clip: by name, or it is an error.

The truth of an evaluation set has two names for a clip, the anonymous one of the recording and
one with label and attributes; a score file may use either.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import Clip, stem_of
from daco.data.dcase import parse_name, read_csv
from daco.data.dcase_sets import inject_truth
from daco.errors import DataError
from daco.evaluation.scorefiles import ScoreFile
from daco.text import name_list, quantity

Key = tuple[str, str]
"""A machine and a section."""

_SHOWN = 5  # names of a kind that are listed before the rest is counted
_TRUTH_FILE = re.compile(r"ground_truth_(.+)_section_(\d+)_test\.csv")


@dataclass(frozen=True)
class MachineTruth:
    """Label and domain of one machine's test clips, by name without ending.

    ``others`` leads from the other names of a clip (those with label and attributes) to the
    one in ``clips``.
    """

    clips: Mapping[str, tuple[int, str]]
    others: Mapping[str, str]


def read_truth(
    truth: Path | str, *, year: int | None = None, oddities: list[str]
) -> dict[Key, MachineTruth]:
    """Labels and domains of all machines in a checkout of the official evaluator, of `year`.

    Oddities are appended.
    """
    root = Path(truth).expanduser()
    if root.name.startswith("ground_truth_"):
        root = root.parent
    clips = [
        Clip(row[0].strip(), match[1], year, match[2], split="test")
        for path in sorted((root / "ground_truth_data").glob("ground_truth_*.csv"))
        if (match := _TRUTH_FILE.fullmatch(path.name))
        for row in read_csv(path)
    ]
    # The truth is given to the very clips it names: that checks its files against each other.
    known = inject_truth(clips, root, oddities=oddities)
    if not known:
        raise DataError(f"{root / 'ground_truth_data'} has no ground_truth_<machine>_... file.")
    by_machine: dict[Key, dict[str, tuple[int, str]]] = defaultdict(dict)
    for clip in known:
        label_and_domain = cast(tuple[int, str], (clip.label, clip.domain))  # the truth has both
        by_machine[clip.machine, clip.section][stem_of(clip.path)] = label_and_domain
    return {
        key: MachineTruth(clips, _other_names(root, key, clips))
        for key, clips in by_machine.items()
    }


def truth_in_names(names: Iterable[str]) -> MachineTruth | None:
    """What the names of labelled clips say; None where one of them says nothing.

    >>> truth_in_names(["section_00_source_test_normal_0000_vel_8"]).clips
    {'section_00_source_test_normal_0000_vel_8': (0, 'source')}
    >>> truth_in_names(["section_00_0000"]) is None
    True
    """
    clips: dict[str, tuple[int, str]] = {}
    for name in names:
        parsed = parse_name(name)
        if parsed is None or parsed.label is None or parsed.domain is None:
            return None
        clips[name] = parsed.label, parsed.domain
    return MachineTruth(clips, {})


def values_by_clip(
    file: ScoreFile, truth: MachineTruth, problems: list[str]
) -> NDArray[np.float64] | None:
    """The values in the order of the truth's clips, by name; None where names do not fit."""
    rows: dict[str, int] = {}
    wrong: list[str] = []
    twice: list[str] = []
    for row, name in enumerate(file.names):
        stem = name if name in truth.clips else truth.others.get(name)
        if stem is None:
            wrong.append(name)
        elif stem in rows:
            twice.append(f"{file.names[rows[stem]]} = {name}")
        else:
            rows[stem] = row
    absent = [stem for stem in truth.clips if stem not in rows]
    for names, noun, what in (
        (wrong, "row", "with a name that is no clip's"),
        (twice, "row", "of a clip that was there under another name"),
        (absent, "clip", "without a row"),
    ):
        if names:
            listed = name_list(names, _SHOWN)
            problems.append(f"{file.path.name}: {quantity(names, noun)} {what}: {listed}.")
    if wrong or twice or absent:
        return None
    return file.values[[rows[stem] for stem in truth.clips]]


def _other_names(root: Path, key: Key, clips: Mapping[str, object]) -> dict[str, str]:
    path = root / "ground_truth_attributes" / f"ground_truth_{key[0]}_section_{key[1]}_test.csv"
    others: dict[str, set[str]] = defaultdict(set)
    for name, *labelled in read_csv(path) if path.is_file() else ():
        for other in labelled:
            others[stem_of(other.strip())].add(stem_of(name.strip()))
    return {
        other: stems.pop()
        for other, stems in others.items()
        if other not in clips and len(stems) == 1
    }
