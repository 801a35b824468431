"""When a recording was made: by the name of its file and folders, its tags, or its file."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import soundfile

_MOMENT = re.compile(
    r"""
    (?<!\d) (?P<year>(?:19|20)\d\d) (?P<dash>[-_.]?) (?P<month>0[1-9]|1[0-2]) (?P=dash)
    (?P<day>0[1-9]|[12]\d|3[01])
    [T_\ /-]?
    (?P<hour>[01]\d|2[0-3]) (?P<colon>[-_.:h]?) (?P<minute>[0-5]\d)
    (?: (?P=colon) (?P<second>[0-5]\d) )?
    (?:[.,]\d+)? (?P<utc>Z)? (?!\d)
    """,
    re.ASCII | re.VERBOSE,
)


def time_in_path(path: str) -> datetime | None:
    """The date and time of day in a path, of this computer's zone unless it ends with Z.

    The last one counts: a name says more than its folder.

    >>> time_in_path("fan/2026-03-01/12-30-05.wav").replace(tzinfo=None)
    datetime.datetime(2026, 3, 1, 12, 30, 5)
    >>> time_in_path("fan_20260301T123005Z.wav")
    datetime.datetime(2026, 3, 1, 12, 30, 5, tzinfo=datetime.timezone.utc)
    >>> time_in_path("fan_000123.wav")
    """
    found = list(_MOMENT.finditer(path))
    if not found:
        return None
    parts = found[-1]
    year, month, day, hour, minute = map(int, parts.group("year", "month", "day", "hour", "minute"))
    try:
        time = datetime(year, month, day, hour, minute, int(parts["second"] or 0))
        return time.replace(tzinfo=UTC) if parts["utc"] else time.astimezone()
    except (ValueError, OverflowError):  # the 31st of February
        return None


def tagged_time(recording: bytes | Path) -> datetime | None:
    """The date and time of day among the tags of a recording that can be decoded."""
    try:
        source = BytesIO(recording) if isinstance(recording, bytes) else recording
        with soundfile.SoundFile(source) as file:
            return time_in_path(file.copy_metadata().get("date", ""))
    except (soundfile.LibsndfileError, OSError):  # of a format that it does not read
        return None


def changed_at(path: Path | None) -> datetime | None:
    """When a file was last written to, by the clock of its file system."""
    if path is None:
        return None
    try:
        return datetime.fromtimestamp(path.stat().st_mtime_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):  # beyond the calendar, or removed
        return None
