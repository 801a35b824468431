"""The values that go into the store and come out of it.

A clip is a `daco.detector.verdict.Verdict` with an id, times and the recording it came from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from daco.detector.verdict import Verdict
from daco.errors import DacoError, InputError
from daco.monitoring.adaptation import Calibration
from daco.monitoring.alarms import CLEARED, state_of
from daco.validation import is_utf8

NAME, KEY, TEXT = 4096, 512, 4000
"""Characters of a name or path, of an indexed key (PostgreSQL takes 2.7 kB), of a comment."""

AHEAD = timedelta(minutes=5)
"""How far a recorder's clock may be ahead; later times of recording are not believed."""

_LONGEST_DOCUMENT = 1 << 17


class StoreError(DacoError):
    """The database cannot be opened, reached or written; committed rows are still there."""


class MissingRowError(InputError):
    """There is no clip, alarm, machine or message of that number or name."""


class ConflictError(InputError):
    """The key of a recording was used before, for a recording with other content."""


class BusyError(DacoError):
    """Too many recordings are waiting; the same request may succeed in a few seconds."""


class Person(NamedTuple):
    """Who does something: the name of a token, and its role."""

    name: str
    role: str = "administrator"


@dataclass(frozen=True)
class Recording:
    """A recording to judge, as every source hands it over."""

    machine: str
    name: str  #: what people call it
    data: bytes | Path
    source_key: str | None = None  #: identifies the recording among those of the machine
    stamp: str | None = None  #: recognises an unchanged file; only files have one
    recorded_at: datetime | None = None  #: with its time zone
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True)
class NewClip:
    """A judged recording to store.

    The same `source_key` with the same `audio_sha256` is the same recording and is stored once.
    Other content is stored as another clip if there is a `stamp`, a file that was overwritten;
    without one it is a `ConflictError`.
    """

    verdict: Verdict
    machine: str  #: its id in ``daco.toml``
    received_at: datetime
    source_key: str | None = None
    audio_sha256: str | None = None
    audio_path: str | None = None  #: where a source keeps the recording
    recorded_at: datetime | None = None
    stamp: str | None = None
    #: that of the model; without it, what people declared and answered does not count
    calibration: Calibration | None = field(default=None, repr=False, compare=False)
    adapt: bool = False  #: whether the alarm limit also follows the machine on its own
    findings: list[dict[str, Any]] | None = None
    counts: bool = True  #: for alarms; a machine may be off as it should be
    evidence_limit: float | None = None  #: of a rule that adds up; without it, k of n count

    def __post_init__(self) -> None:
        # Checked here, so that one bad clip cannot spoil the transaction of many.
        limits = {"machine": KEY, "source_key": KEY, "stamp": KEY, "audio_sha256": 64}
        for name, most in (limits | {"audio_path": NAME}).items():
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name), most)
        for time in (self.received_at, self.recorded_at):
            if time is not None and time.tzinfo is None:
                raise InputError(f"The times of a clip need their time zone. Got {time!r}.")
        for name in ("name", "nearest", "model_sha256"):
            check_text(name, getattr(self.verdict, name), NAME)
        for name, value in (*vars(self.verdict).items(), ("findings", self.findings)):
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"The {name} of a verdict must be a finite number. Got {value!r}.")
            if isinstance(value, dict | list | tuple):
                _check_json(name, value)

    @property
    def time(self) -> datetime:
        """When it was recorded, or received where that is unknown or in the future."""
        if self.recorded_at is None or self.recorded_at > self.received_at + AHEAD:
            return self.received_at
        return self.recorded_at


@dataclass(frozen=True, kw_only=True)
class StoredClip(Verdict):
    """A stored clip: its verdict, times and answer; ``machine`` is the id in ``daco.toml``."""

    id: int
    time: datetime  #: when it was recorded, or received where that is not known
    received_at: datetime
    recorded_at: datetime | None
    audio_sha256: str | None
    audio_path: str | None = field(repr=False)
    answer: str | None = None  #: what a person said of it: ``"false alarm"`` or ``"fault"``
    findings: list[dict[str, Any]] | None = None
    changed: int = 0  #: the number of its last change, of all changes in the store

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> StoredClip:
        """Make the clip of a row of ``daco_clips`` with the name of its machine."""
        return cls(**{**{name: row[name] for name in _CLIP}, "reasons": tuple(row["reasons"])})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON for others, without paths of this computer."""
        document = super().to_dict()
        del document["audio_path"]
        return _plain(document)


@dataclass(frozen=True)
class StoredAlarm:
    """An alarm, its evidence, and who did what about it."""

    id: int
    machine: str | None  #: None where it is about daco as a whole
    kind: str
    state: str
    rule: str
    clip_id: int | None  #: the clip that completed it
    clip_ids: tuple[int, ...]  #: those that contributed to its opening
    n_clips: int  #: anomalous clips since it began
    opened_at: datetime
    last_at: datetime
    cleared_at: datetime | None = None
    cleared_by: str | None = None  #: ``"recovery"``, or the name of a person
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    shelved_until: datetime | None = None
    comment: str | None = None
    answer: str | None = None
    detail: str | None = None  #: a sentence, for alarms that are not about clips
    changed: int = 0

    @property
    def is_open(self) -> bool:
        """Whether its cause has not cleared."""
        return self.state != CLEARED

    @classmethod
    def from_row(cls, row: Mapping[Any, Any], now: datetime) -> StoredAlarm:
        """Make the alarm of a row of ``daco_alarms`` with the name of its machine."""
        times = row["cleared_at"], row["acknowledged_at"], row["shelved_until"]
        values = {name: row[name] for name in _ALARM}
        return cls(**{**values, "clip_ids": tuple(row["clip_ids"]), "state": state_of(now, *times)})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return _plain(asdict(self))


@dataclass(frozen=True)
class Outcome:
    """What became of a recording."""

    clip: StoredClip | None = None
    opened: tuple[int, ...] = ()  #: alarms
    cleared: tuple[int, ...] = ()
    known: bool = False  #: it was stored before; the clip is that one
    refused: str | None = None  #: why it is not a usable recording


class Source(NamedTuple):
    """A processed source: its clip, or the reason why there is none."""

    source_key: str
    stamp: str | None
    audio_sha256: str | None
    clip_id: int | None
    reason: str | None


@dataclass(frozen=True)
class MachineSummary:
    """Counts of the clips of a machine since the first one, pruned or not, and its last clip."""

    machine: str
    clips: int = 0
    anomalous: int = 0
    open_alarms: int = 0
    out_of_service_since: datetime | None = None
    out_of_service_by: str | None = None
    last: StoredClip | None = None
    changed: int = 0
    evidence: float = 0.0  #: of a fault, where the alarm rule adds up


@dataclass(frozen=True)
class TrendPoint:
    """The clips of an hour or a day; `judged` are those whose sound could be judged."""

    start: datetime
    clips: int
    judged: int
    anomalous: int
    oddness_mean: float | None
    oddness_max: float | None


@dataclass(frozen=True)
class Changes:
    """What has changed after a number; `last` is the number to ask with next.

    `more` says that there are more changes than were returned: ask again at once.
    """

    last: int
    clips: list[StoredClip]
    alarms: list[StoredAlarm]
    machines: list[str]  #: with changed counts, service or notes
    more: bool


@dataclass(frozen=True)
class Note:
    """What a person wrote about a machine at a time: 'bearing changed'."""

    id: int
    machine: str
    at: datetime
    text: str
    by: str


@dataclass(frozen=True)
class AuditEntry:
    """Who did what, when."""

    id: int
    at: datetime
    who: str
    role: str
    action: str
    machine: str | None
    target: str | None
    detail: str | None


_CLIP = tuple(each.name for each in fields(StoredClip))
_ALARM = tuple(each.name for each in fields(StoredAlarm) if each.name != "state")
VERDICT = tuple(each.name for each in fields(Verdict) if each.name != "machine")
"""Fields of a verdict that have a column of the same name."""


def check_text(name: str, text: Any, most: int) -> None:
    """Raise an InputError for text that is too long or cannot be stored."""
    if not isinstance(text, str):
        raise InputError(f"The {name} must be text. Got {text!r} instead.")
    if len(text) > most:
        raise InputError(f"The {name} has {len(text):,} characters; {most:,} are allowed.")
    if not is_utf8(text) or "\0" in text:
        raise InputError(f"The {name} is not text that can be stored: {text!r}.")


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
