"""Recording sessions: which clips were recorded together, by folders, times or attributes.

Clips of one session are more alike than those of two: the same hall, microphone and run of the
machine. A false-alarm rate that holds in a new session is measured with whole sessions left out.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from daco.data.clips import ONE_DOMAIN, Clip
from daco.data.folders import meaning_of_folders
from daco.errors import DataError, InputError
from daco.files.remote import Location, statuses
from daco.text import name_list, quantity

_RULE = re.compile(
    r"folder:[1-9]|gap:[1-9]\d{0,5}(s|min|h)|gap:[1-9]\d{0,3}d|attribute:.+", re.ASCII
)
_FEW = 6  # with fewer sessions, the realised rate may be several times the nominal one
_DAY = r"(?P<day>0?[1-9]|[12]\d|3[01])"
_MONTH = r"(?P<month>0?[1-9]|1[0-2])"
_DIGITS = r"(?P<month>0[1-9]|1[0-2])(?P=dash)(?P<day>0[1-9]|[12]\d|3[01])"
_MINUTE = r"(?P<hour>[01]\d|2[0-3])(?P<colon>[-_.:h]?)(?P<minute>[0-5]\d)"
_SECOND = r"(?P=colon)(?P<second>[0-5]\d)"
_MAYBE = rf"(?:[T_ -]{{0,3}}{_MINUTE}(?:{_SECOND})?(?!\d))?"
_TIMES = [
    re.compile(rf"(?<!\d){pattern}(?!\d)", re.ASCII)
    for pattern in (  # 20260512_083000 or 2026-05-12; 12.05.2026; 260512_083000, with all digits
        rf"(?P<year>(?:19|20)\d\d)(?P<dash>[-_. ]?){_DIGITS}{_MAYBE}",
        rf"{_DAY}(?P<dash>[-_. ]){_MONTH}(?P=dash)(?P<year>(?:19|20)\d\d){_MAYBE}",
        rf"(?P<year>\d\d)(?P<dash>){_DIGITS}[_-]{_MINUTE}{_SECOND}",
    )
]
_FIELDS = ("year", "month", "day", "hour", "minute", "second")


def find_sessions(
    machines: Mapping[str, Sequence[Clip]],
    rule: str | None,
    root: Location | None = None,
    *,
    several: bool = True,
) -> tuple[dict[str, list[Clip]], list[str]]:
    """Find the recording sessions of the clips of each machine.

    Parameters
    ----------
    machines : {str: sequence of Clip}
        Clips by the name of their machine.
    rule : str or None
        ``folder:2``: the folders at that level, counted as `domain_level` of
        :func:`daco.data.sources.read_clips`. ``gap:30min``: a new session after so long (s, min,
        h, d) without a clip, by the times in names or, if no name has one, by the last change of
        the files. ``attribute:speed`` or ``attribute:speed+load``: clips with the same values.
        None keeps the sessions that the clips have.
    root : path, optional
        Folder of the clips; without it no file is looked at.
    several : bool
        Whether a rule must find more than one session, and one that has more than one clip.

    Returns
    -------
    clips : {str: list of Clip}
        The same clips with their sessions.
    notes : list of str
        Sentences about what was found.

    Examples
    --------
    >>> times = ("20260512_083000", "20260512_084000", "20260512_220000")
    >>> clips = [Clip(f"{time}.wav", "fan", domain="old") for time in times]
    >>> found, notes = find_sessions({"fan": clips}, "gap:30min")
    >>> [clip.session for clip in found["fan"]]
    ['2026-05-12 08:30:00', '2026-05-12 08:30:00', '2026-05-12 22:00:00']
    >>> notes[0]
    'Recording sessions by gap:30min (times in names): fan 2 in old (1 to 2 clips).'
    """
    if rule is not None and _RULE.fullmatch(rule) is None:
        raise InputError(
            "--session-by must be folder:2, gap:30min (or s, h, d) or attribute:speed. Got "
            f"{rule!r} instead."
        )
    found: dict[str, list[Clip]] = {}
    counts: dict[str, list[str]] = defaultdict(list)
    fewest = _FEW
    for title, clips in machines.items():
        names = [clip.session for clip in clips]
        how, hint = "the column 'session'", "Name it for all clips, or for none."
        if rule is not None:
            names, how, hint = _apply(rule, clips, root)
        missing = [clip.path for clip, name in zip(clips, names, strict=True) if not name]
        found[title] = [replace(c, session=name) for c, name in zip(clips, names, strict=True)]
        if rule is None and len(missing) == len(clips):
            continue
        if missing:
            raise DataError(
                f"{title}: {quantity(missing, 'clip')} of {len(clips):,} without a session by "
                f"{how}: {name_list(missing, 3)}. {hint}"
            )
        if rule is not None and several and len(set(names)) in (1, len(clips)):
            which = "one session" if len(set(names)) == 1 else "a session each"
            raise DataError(
                f"{title}: all {quantity(clips, 'clip')} are {which} by {how}. Calibration leaves "
                "out one session of several clips at a time: choose another rule, or none."
            )
        sizes: dict[str, Counter[str | None]] = defaultdict(Counter)
        for clip in found[title]:
            sizes[clip.domain or ONE_DOMAIN][clip.session] += 1
        fewest = min(fewest, *map(len, sizes.values()))
        words = [f"{len(each):,} in {domain} ({_span(each)})" for domain, each in sizes.items()]
        counts[how].append(f"{title} {' and '.join(words)}")
    notes = [f"Recording sessions by {how}: {name_list(c, 3)}." for how, c in counts.items()]
    if several and fewest < _FEW:
        notes.append(
            f"Fewer than {_FEW} sessions of a domain do not predict the next one well: record on "
            "more days, or calibrate the model with new recordings."
        )
    return found, notes


def _span(sizes: Counter[str | None]) -> str:
    low, high = min(sizes.values()), max(sizes.values())
    return (f"{low:,} to " if low < high else "") + quantity(high, "clip")


def _apply(
    rule: str, clips: Sequence[Clip], root: Location | None
) -> tuple[list[str | None], str, str]:
    """The session of each clip; how they were found, and what to do where one has none."""
    kind, _, value = rule.partition(":")
    if kind == "folder":
        names = [meaning_of_folders(clip.path).names.get(int(value)) for clip in clips]
        return names, rule, "Choose another rule."
    if kind == "attribute":
        known = name_list(dict.fromkeys(key for clip in clips for key in clip.attributes), 10)
        hint = f"The clips have the attributes {known}." if known else "They have no attributes."
        return [_values(clip, value.split("+")) for clip in clips], rule, hint
    times, how = [recording_time(clip.path) for clip in clips], "times in names"
    if root is not None and not any(times):
        how = "times of last change, which copying may alter"
        files = statuses(root, [clip.path for clip in clips])
        times = [None if file is None else _time_of_change(file.st_mtime_ns) for file in files]
    hint = "Names such as 20260512_083000.wav show when a clip was recorded."
    return _runs(times, value), f"{rule} ({how})", hint


def _time_of_change(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds // 10**9, UTC).replace(tzinfo=None)


def _values(clip: Clip, keys: Sequence[str]) -> str:
    """The values of these attributes, as far as the clip has them."""
    return ", ".join(f"{key} {clip.attributes[key]}" for key in keys if key in clip.attributes)


def _runs(times: Sequence[datetime | None], gap: str) -> list[str | None]:
    """The start of the run of each time; a run ends where none follows within the gap."""
    import pandas as pd

    ordered = pd.Series(np.array(times, dtype="datetime64[s]")).sort_values()
    is_start = ~(ordered.diff() <= pd.Timedelta(gap.replace("d", "D")))
    starts = ordered.where(is_start).ffill().where(ordered.notna()).sort_index()
    return [None if pd.isna(start) else str(start) for start in starts]


def recording_time(path: str) -> datetime | None:
    """The time in the name of a recording, else in that of the nearest folder with a date.

    A date alone is the beginning of its day. Time zones and fractions of seconds are not read.

    >>> print(recording_time("AM1_20260512_083000T.WAV"), recording_time("2026-05-12/08-30.wav"))
    2026-05-12 08:30:00 2026-05-12 08:30:00
    >>> print(recording_time("fan/2026/05/12/0830.wav"))
    2026-05-12 08:30:00
    >>> recording_time("section_00_source_train_normal_0001.wav")
    """
    *folders, name = path.replace("\\", "/").split("/")
    nested = ["-".join(folders[at : at + 3]) for at in range(len(folders) - 2)]
    for folder in ("", *reversed(folders), *reversed(nested)):
        text = f"{folder} {name}".lstrip()
        for match in (match for pattern in _TIMES for match in pattern.finditer(text)):
            known = match.groupdict("0")
            fields: list[Any] = [int(known.get(each, 0)) for each in _FIELDS]
            fields[0] += 2000 if fields[0] < 100 else 0
            with contextlib.suppress(ValueError):  # 31 February
                return datetime(*fields)
    return None
