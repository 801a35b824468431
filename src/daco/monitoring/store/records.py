"""The values that go into the store and come out of it.

A clip is a `daco.detector.verdict.Verdict` with an id, times and the recording it came from.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import Connection, Select, select

from daco.detector.verdict import Verdict
from daco.errors import InputError
from daco.monitoring.adaptation import Calibration
from daco.monitoring.store.schema import alarm_clips, alarms, clips, machines
from daco.validation import is_utf8


class MissingRowError(InputError):
    """There is no clip or alarm of that number."""


NAME, KEY, TEXT = 4096, 512, 4000
"""Characters of a name or path, of an indexed key (PostgreSQL takes 2.7 kB), of a comment."""

COLUMNS = tuple(each.name for each in fields(Verdict) if each.name not in ("machine", "alarm"))
"""Fields of a verdict that have a column of the same name; ``alarm`` is ``anomalous`` there."""

CLIPS = select(clips, clips.c.anomalous.label("alarm"), machines.c.name.label("machine")).join_from(
    clips, machines
)
ALARMS = select(alarms, machines.c.name.label("machine")).join_from(alarms, machines)

_LONGEST_DOCUMENT = 1 << 17


@dataclass(frozen=True)
class NewClip:
    """A judged recording to store.

    The same `source_key` with the same `audio_sha256` is the same recording and is stored once.
    """

    verdict: Verdict
    machine: str  #: whose clip it is: the stem of the model's file
    received_at: datetime  #: with its time zone, as `recorded_at`
    source_key: str | None = None  #: identifies the recording among those of the machine
    audio_sha256: str | None = None  #: of the recording's bytes
    audio_path: str | None = None  #: where the recording can be found
    recorded_at: datetime | None = None  #: when it was made, where that is known
    stamp: str | None = None  #: recognises an unchanged file without reading it
    #: that of the model, where the decision is to be adapted to the machine
    calibration: Calibration | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Checked here, so that one bad clip cannot spoil the transaction of many.
        if not self.machine:
            raise InputError("The machine of a clip needs a name.")
        longest = {"machine": KEY, "source_key": KEY, "stamp": KEY, "audio_sha256": 64}
        for name, most in (longest | {"audio_path": NAME}).items():
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name), most)
        for time in (self.received_at, self.recorded_at):
            if time is not None and time.tzinfo is None:
                raise InputError(f"The times of a clip need their time zone. Got {time!r}.")
        for name in ("name", "nearest", "model_sha256"):
            check_text(name, getattr(self.verdict, name), NAME)
        for name, value in vars(self.verdict).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"The {name} of a verdict must be a finite number. Got {value!r}.")
            if isinstance(value, dict | list | tuple):
                _check_json(name, value)

    def row(self, machine_id: int) -> dict[str, Any]:
        """Return the clip as a row of ``daco_clips``."""
        return {
            "machine_id": machine_id,
            "received_at": self.received_at,
            "recorded_at": self.recorded_at,
            "audio_sha256": self.audio_sha256,
            "audio_path": self.audio_path,
            "anomalous": self.verdict.alarm,
            **{name: getattr(self.verdict, name) for name in COLUMNS},
        }

    def stored_as(self, clip_id: int) -> StoredClip:
        """Return the clip as it is read from the store."""
        own = {"id": clip_id, "machine": self.machine, "alarm": self.verdict.alarm, "answer": None}
        return StoredClip.from_row({**self.row(0), **own})


@dataclass(frozen=True, kw_only=True)
class StoredClip(Verdict):
    """A stored clip: its verdict, times and answer; ``machine`` is the name in the store."""

    id: int
    received_at: datetime
    recorded_at: datetime | None
    audio_sha256: str | None
    audio_path: str | None = field(repr=False)
    answer: str | None = None  #: what a person said of it: ``"false alarm"`` or ``"fault"``

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> StoredClip:
        """Make the clip of a row of ``daco_clips``."""
        return cls(**{**{name: row[name] for name in _CLIP}, "reasons": tuple(row["reasons"])})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON for others, without paths of this computer."""
        document = super().to_dict()
        del document["audio_path"]
        return _plain(document)


@dataclass(frozen=True)
class Addition:
    """A clip that was stored, the alarm that it opened, and the alarms that it closed.

    `verdict` is the one that was stored: the decision may have been adapted.
    """

    clip_id: int
    opened: int | None = None
    recovered: tuple[int, ...] = ()
    verdict: Verdict = field(kw_only=True, repr=False, compare=False)


@dataclass(frozen=True)
class StoredAlarm:
    """An alarm: the clip that completed it, all contributing clips, and how it ended.

    It is open until `closed_at`; `closed_by` is ``"recovery"`` or ``"acknowledgement"``. An alarm
    that recovered can still be acknowledged.
    """

    id: int
    machine: str
    rule: str
    clip_id: int
    clip_ids: tuple[int, ...]
    opened_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    comment: str | None
    kind: str = "anomalous"  #: the state of the clips that opened it
    answer: str | None = None  #: what a person said of it: ``"false alarm"`` or ``"fault"``

    # It is also a response model of the API, which allows no other fields.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    @property
    def is_open(self) -> bool:
        """Whether it has neither recovered nor been acknowledged."""
        return self.closed_at is None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return _plain(asdict(self))


@dataclass(frozen=True)
class MachineSummary:
    """Counts of the clips of a machine since the first one, pruned or not, and its last clip."""

    machine: str
    clips: int
    anomalous: int
    open_alarms: int
    last_answer: int | None  #: number of the last answer of a person
    last: StoredClip | None


@dataclass(frozen=True)
class Source:
    """A processed source: its clip, or the reason why there is none."""

    source_key: str
    stamp: str | None
    audio_sha256: str | None
    clip_id: int | None
    reason: str | None


@dataclass(frozen=True)
class Removal:
    """Counts of removed clips and alarms, and the audio paths of the removed clips."""

    clips: int
    alarms: int
    audio_paths: tuple[str, ...]


_CLIP = tuple(each.name for each in fields(StoredClip))
_ALARM = tuple(each.name for each in fields(StoredAlarm) if each.name != "clip_ids")


def read_clips(connection: Connection, query: Select[Any]) -> list[StoredClip]:
    """The clips of a query on `CLIPS`."""
    return [StoredClip.from_row(row) for row in connection.execute(query).mappings()]


def read_alarms(connection: Connection, query: Select[Any]) -> list[StoredAlarm]:
    """The alarms of a query on `ALARMS`, with the clips that contributed."""
    rows = connection.execute(query).mappings().all()
    members = select(alarm_clips).where(alarm_clips.c.alarm_id.in_([row["id"] for row in rows]))
    of_alarm: dict[int, list[int]] = defaultdict(list)
    for alarm, clip in connection.execute(members.order_by(alarm_clips.c.clip_id)):
        of_alarm[alarm].append(clip)
    return [
        StoredAlarm(clip_ids=tuple(of_alarm[row["id"]]), **{name: row[name] for name in _ALARM})
        for row in rows
    ]


def check_text(name: str, text: Any, most: int) -> None:
    """Raise an InputError for text that is too long or cannot be stored."""
    if not isinstance(text, str):
        raise InputError(f"The {name} must be text. Got {text!r} instead.")
    if len(text) > most:
        raise InputError(f"The {name} has {len(text):,} characters; {most:,} are allowed.")
    if not is_utf8(text):
        raise InputError(f"The {name} is not Unicode text: {text!r}.")
    if "\0" in text:
        raise InputError(f"The {name} holds a NUL, which no database can store: {text!r}.")


def _check_json(name: str, value: Any) -> None:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"The {name} of a verdict cannot be written as JSON ({error}).") from None
    if len(text) > _LONGEST_DOCUMENT or "\\u0000" in text:
        raise InputError(f"The {name} of a verdict cannot be stored: too long, or a NUL in it.")


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """Fields as JSON has them: times as text, tuples as lists."""
    for name, value in document.items():
        if isinstance(value, datetime):
            document[name] = iso(value)
        elif isinstance(value, tuple):
            document[name] = list(value)
    return document


def iso(time: datetime) -> str:
    """ISO 8601 in UTC.

    >>> from datetime import timedelta, timezone
    >>> iso(datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=1))))
    '2026-03-01T11:00:00Z'
    """
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
