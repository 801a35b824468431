"""Durations and hours of the day, as people write them in a configuration file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler
from pydantic_core import core_schema

_SECONDS = {
    "s": 1, "second": 1, "seconds": 1,
    "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "day": 86400, "days": 86400, "week": 604800, "weeks": 604800,
}  # fmt: skip
_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]+)", re.ASCII)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_PERIOD = re.compile(
    rf"(?:({'|'.join(_DAYS)})(?:-({'|'.join(_DAYS)}))?\s+)?(\d\d?):(\d\d)-(\d\d?):(\d\d)", re.ASCII
)
_LONGEST = timedelta(days=36500)
_DAY, _WEEK = 24 * 60, 7 * 24 * 60  # minutes


def parse_duration(text: object) -> timedelta:
    """A length of time from text.

    >>> parse_duration("10 min"), parse_duration("1.5 h")
    (datetime.timedelta(seconds=600), datetime.timedelta(seconds=5400))
    """
    if isinstance(text, timedelta):
        return text
    match = _AMOUNT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match and match[2] in _SECONDS:
        seconds = float(match[1]) * _SECONDS[match[2]]
        if 0 < seconds <= _LONGEST.total_seconds():
            return timedelta(seconds=seconds)
    raise ValueError(
        f"a duration is text such as '90 s', '10 min', '8 h' or '7 days', not {text!r}"
    )


def duration_text(duration: timedelta) -> str:
    """A duration in its largest whole unit.

    >>> duration_text(timedelta(minutes=30)), duration_text(timedelta(days=1))
    ('30 min', '1 day')
    """
    seconds = duration.total_seconds()
    for unit in ("days", "h", "min"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            count = int(seconds // _SECONDS[unit])
            return f"{count} {'day' if (unit, count) == ('days', 1) else unit}"
    return f"{seconds:g} s"


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]


@dataclass(frozen=True)
class Hours:
    """Hours of the day, of all days or of some; an end before the start is on the next day.

    Examples
    --------
    >>> shift = Hours.parse("mon-fri 6:00-22:00, sat 6:00-12:00")
    >>> datetime(2026, 11, 18, 21, 59) in shift, datetime(2026, 11, 21, 13, 0) in shift
    (True, False)
    >>> datetime(2026, 11, 18, 1, 0) in Hours.parse("22:00-6:00")
    True
    """

    text: str
    spans: tuple[tuple[int, int], ...]  #: minutes since Monday, from and to

    @classmethod
    def parse(cls, text: object) -> Hours:
        """Periods separated by commas, such as ``mon-fri 6:00-22:00``."""
        if isinstance(text, Hours):
            return text
        spans: list[tuple[int, int]] = []
        for part in text.lower().split(",") if isinstance(text, str) else [""]:
            match = _PERIOD.fullmatch(part.strip())
            if match is None:
                raise ValueError(
                    f"hours are text such as '6:00-22:00' or 'mon-fri 6:00-22:00', not {text!r}"
                )
            spans += _spans(match)
        return cls(str(text), tuple(spans))

    def __contains__(self, local: datetime) -> bool:
        return self.until(local) is not None

    def until(self, local: datetime) -> datetime | None:
        """When the hours that contain a local time end; None outside of them."""
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        monday = midnight - timedelta(days=local.weekday())
        minute = (local - monday) / timedelta(minutes=1)
        ends = [
            monday + timedelta(minutes=end - week)
            for start, end in self.spans
            for week in (0, _WEEK)  # Sunday night goes on into Monday
            if start <= minute + week < end
        ]
        return max(ends, default=None)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> Any:
        """How a configuration reads the text."""
        return core_schema.no_info_plain_validator_function(cls.parse)


def _spans(match: re.Match[str]) -> list[tuple[int, int]]:
    """The minutes of the week that a period covers, one span per day."""
    first, last, *numbers = match.groups()
    hour, minute, end_hour, end_minute = map(int, numbers)
    start, end = 60 * hour + minute, 60 * end_hour + end_minute
    if max(minute, end_minute) > 59 or start >= _DAY or end > _DAY:
        raise ValueError(f"{match[0]!r} has hours or minutes that no clock shows")
    day = _DAYS.index(first) if first else 0
    count = (_DAYS.index(last) - day) % 7 + 1 if last else 1 if first else 7
    days = [_DAY * ((day + step) % 7) for step in range(count)]
    return [(each + start, each + (end if end > start else end + _DAY)) for each in days]
