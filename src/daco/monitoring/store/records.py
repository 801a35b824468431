"""What goes into the store and what comes out of it, as values.

Text from outside is kept as it is, but bounded, and refused where no database could hold it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from daco.errors import InputError

NAME, KEY, TEXT = 4096, 512, 4000
"""Characters of a name or path, of what is indexed (PostgreSQL takes 2.7 kB), of a comment."""

VERDICT = (
    "name",
    "score",
    "p_value",
    "threshold",
    "domain_weights",
    "nearest",
    "nearest_distance",
    "reasons",
    "seconds",
    "windows",
    "worst_window",
    "model_sha256",
)
"""The keys of a verdict that have a column of the same name; ``alarm`` is ``anomalous`` there."""

_JSON = 1 << 17
_ELSEWHERE = {*VERDICT, "alarm", "machine"}


@dataclass(frozen=True)
class NewClip:
    """A judged recording that is to be stored.

    Parameters
    ----------
    verdict : mapping
        What `daco.detector.verdict` said, as its dict: ``name``, ``score``, ``p_value``,
        ``threshold`` and ``alarm`` at least.
    machine : str
        Whose clip it is.
    received_at : datetime
        With its time zone.
    source_key : str, optional
        What tells this recording from others of the machine. The same key with the same
        `audio_sha256` is the same recording, and is stored once.
    audio_sha256 : str, optional
        Of the recording's bytes.
    audio_path : str, optional
        Where the recording can be found.
    recorded_at : datetime, optional
        When it was made, where that is known.
    stamp : str, optional
        A note beside the source key by which its owner sees without reading that nothing changed.
    """

    verdict: Mapping[str, Any]
    machine: str
    received_at: datetime
    source_key: str | None = None
    audio_sha256: str | None = None
    audio_path: str | None = None
    recorded_at: datetime | None = None
    stamp: str | None = None
    columns: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not checked_text("machine", self.machine, KEY):
            raise InputError("The machine of a clip needs a name.")
        for name, text, most in (
            ("source_key", self.source_key, KEY),
            ("audio_sha256", self.audio_sha256, 64),
            ("audio_path", self.audio_path, NAME),
            ("stamp", self.stamp, KEY),
        ):
            if text is not None:
                checked_text(name, text, most)
        for time in (self.received_at, self.recorded_at):
            if time is not None and time.tzinfo is None:
                raise InputError(f"The times of a clip need their time zone. Got {time!r}.")
        object.__setattr__(self, "columns", _columns(self.verdict))


def _columns(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict as columns; checked here, so that one bad clip cannot spoil a transaction."""
    missing = {"name", "score", "p_value", "threshold", "alarm"} - set(verdict)
    if missing:
        raise InputError(f"A verdict needs {', '.join(sorted(missing))}.")
    columns = {name: verdict.get(name) for name in VERDICT}
    checked_text("name", columns["name"], NAME)
    for name in ("score", "p_value", "threshold"):
        columns[name] = _finite(name, columns[name])
    for name in ("nearest_distance", "seconds", "worst_window"):
        if columns[name] is not None:
            columns[name] = _finite(name, columns[name])
    for name in ("nearest", "model_sha256"):
        if columns[name] is not None:
            checked_text(name, columns[name], NAME)
    columns["domain_weights"] = dict(columns["domain_weights"] or {})
    columns["reasons"] = list(columns["reasons"] or ())
    columns["anomalous"] = bool(verdict["alarm"])
    columns["more"] = {key: verdict[key] for key in verdict if key not in _ELSEWHERE} or None
    for name in ("domain_weights", "reasons", "more"):
        _checked_json(name, columns[name])
    return columns


def checked_text(name: str, text: Any, most: int) -> str:
    """The text itself; an InputError for what is too long or cannot be stored at all."""
    if not isinstance(text, str):
        raise InputError(f"The {name} must be text. Got {text!r} instead.")
    if len(text) > most:
        raise InputError(f"The {name} has {len(text):,} characters; {most:,} are allowed.")
    try:
        text.encode()
    except UnicodeEncodeError:  # a file name that is not UTF-8
        raise InputError(f"The {name} is not Unicode text: {text!r}.") from None
    if "\0" in text:
        raise InputError(f"The {name} holds a NUL, which no database can store: {text!r}.")
    return text


def _finite(name: str, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise InputError(f"The {name} of a verdict must be a finite number. Got {value!r}.")
    return number


def _checked_json(name: str, value: Any) -> None:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"The {name} of a verdict cannot be written as JSON ({error}).") from None
    if len(text) > _JSON or "\\u0000" in text:
        raise InputError(f"The {name} of a verdict cannot be stored: too long, or a NUL in it.")


@dataclass(frozen=True)
class Added:
    """A clip that was stored, the alarm that it opened, and those that ended with it."""

    clip_id: int
    opened: int | None = None
    recovered: tuple[int, ...] = ()


@dataclass(frozen=True)
class StoredClip:
    """A clip of the history; `verdict` is what was stored, and ``anomalous`` its decision."""

    id: int
    machine: str
    received_at: datetime
    recorded_at: datetime | None
    verdict: Mapping[str, Any]
    audio_sha256: str | None
    audio_path: str | None = field(repr=False)

    @property
    def anomalous(self) -> bool:
        """The decision of this clip alone."""
        return bool(self.verdict["alarm"])

    @property
    def score(self) -> float:
        """Higher is more anomalous."""
        return float(self.verdict["score"])

    def to_dict(self) -> dict[str, Any]:
        """As JSON says it to others: the verdict with an id and times, no path of this computer."""
        return {
            "id": self.id,
            "received_at": iso(self.received_at),
            "recorded_at": iso(self.recorded_at),
            **self.verdict,
            "audio_sha256": self.audio_sha256,
        }


@dataclass(frozen=True)
class StoredAlarm:
    """An alarm: the clip that completed it, all that contributed, and what became of it.

    It is open until `closed_at`: closed by ``"recovery"`` or ``"acknowledgement"``. One that
    recovered by itself can still be acknowledged.
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

    @property
    def is_open(self) -> bool:
        """Neither recovered nor acknowledged."""
        return self.closed_at is None

    def to_dict(self) -> dict[str, Any]:
        """As JSON says it to others."""
        return {
            "id": self.id,
            "machine": self.machine,
            "rule": self.rule,
            "clip_id": self.clip_id,
            "clip_ids": list(self.clip_ids),
            "opened_at": iso(self.opened_at),
            "closed_at": iso(self.closed_at),
            "closed_by": self.closed_by,
            "acknowledged_at": iso(self.acknowledged_at),
            "acknowledged_by": self.acknowledged_by,
            "comment": self.comment,
        }


@dataclass(frozen=True)
class MachineSummary:
    """A machine at a glance; `clips` and `anomalous` count all that ever came, pruned or not."""

    machine: str
    clips: int
    anomalous: int
    open_alarms: int
    last: StoredClip | None


@dataclass(frozen=True)
class Source:
    """A source that was dealt with: a clip, or the reason why there is none."""

    source_key: str
    stamp: str | None
    audio_sha256: str | None
    clip_id: int | None
    reason: str | None


def iso(time: datetime | None) -> str | None:
    """ISO 8601 in UTC.

    >>> from datetime import timedelta, timezone
    >>> iso(datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=1))))
    '2026-03-01T11:00:00Z'
    """
    if time is None:
        return None
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
