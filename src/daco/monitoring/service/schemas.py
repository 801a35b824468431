"""The shapes of the API's answers and of the bodies that it takes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from daco.detector.gate import NormalRow
from daco.monitoring.adaptation import FEWEST, MOST, Answer
from daco.monitoring.drift import Drift
from daco.monitoring.store import StoredAlarm
from daco.monitoring.store.records import AuditEntry, Note, TrendPoint
from daco.monitoring.tables import Role

_TEXT = r"^[^\x00]*$"  # databases store no NUL
Comment = Annotated[str, Field(max_length=4000, pattern=_TEXT, examples=["Loose belt, tightened."])]


class _Shape(BaseModel):
    model_config = ConfigDict(protected_namespaces=(), from_attributes=True)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class Detail(_Shape):
    """Why a request failed, in a sentence."""

    detail: str = Field(examples=["There is no machine 'press'."])


class Clip(_Shape):
    """A judged recording. Times are UTC, ISO 8601.

    The limit of `oddness` is always 1; 2 is as unlikely as two false alarms in a row. `one_in` says
    that one in so many healthy recordings sounds as odd; with `extrapolated` it is only a lower
    bound. `state` is `normal`, `anomalous`, or why the sound was not judged: `off`, `out of range`,
    `recorder fault`. `time` is when it was recorded, or received where that is not known.
    `nearest_index` is the row of the most similar healthy recording, for `/normals/{index}`.
    `opened` and `cleared` are alarms, and only the answer to the upload has them. The clip of a
    trial has no `id`.
    """

    id: int | None = None
    machine: str
    name: str
    time: datetime
    received_at: datetime
    recorded_at: datetime | None
    state: str
    anomalous: bool
    oddness: float
    one_in: float
    p_value: float
    extrapolated: bool
    supported_rate: float
    score: float
    threshold: float
    basis: str
    domain_weights: dict[str, float]
    nearest: str
    nearest_index: int | None
    nearest_distance: float
    reasons: list[str]
    findings: list[dict[str, Any]] | None = None
    views: dict[str, float]
    seconds: float | None
    windows: int
    worst_window: float | None
    model_sha256: str
    audio_sha256: str | None = None
    answer: str | None = None
    has_audio: bool = False
    opened: list[int] = []
    cleared: list[int] = []


class OneClip(_Shape):
    """A clip; that of an upload is committed before it is answered, unless it was a trial."""

    clip: Clip


class History(_Shape):
    """A page of clips, the newest first."""

    clips: list[Clip]
    next: int | None = Field(description="The `before` of the next page; null at the end.")


class Alarms(_Shape):
    """Alarms, the newest first."""

    alarms: list[StoredAlarm]


class OneAlarm(_Shape):
    """An alarm as it is now."""

    alarm: StoredAlarm


class Counts(_Shape):
    """Clips, and how many of them are anomalous."""

    clips: int
    anomalous: int


class Adaptation(_Shape):
    """What was learned about a machine: an empty sentence where nothing was."""

    sentence: str
    left: int = Field(description="Recordings that are still to be taken as healthy.")


class Machine(_Shape):
    """A machine at a glance.

    `status` is `alarm`, `shelved`, `out of service`, `problem`, `stale` (the alarm limit is out of
    date), `silent` (nothing was recorded lately) or `ok`. `limit` is that of the oddness.
    `problems` are sentences about its model and its source.
    """

    id: str
    title: str
    status: str
    limit: float
    last: Clip | None
    open_alarms: int
    last_24h: Counts
    rule: str
    evidence: float | None = Field(description="Of a fault, where the alarm rule adds up.")
    evidence_limit: float | None = Field(description="The evidence at which it alarms.")
    source: str = Field(description="Where its recordings come from.")
    expect_every: float | None = Field(description="Seconds between two recordings.")
    out_of_service_since: datetime | None
    out_of_service_by: str | None
    problems: list[str]
    conditions: list[str] = Field([], description="Operating conditions of the normals.")
    normals: int = Field(0, description="Healthy recordings in the model.")
    sample_rate: int | None = None
    false_alarm_rate: float | None = None
    basis: str = Field("", description="What the alarm limit rests on.")
    model_sha256: str | None = None
    expectation: list[str] = Field(description="What the alarm rule will do, in words.")
    drift: Drift | None
    adaptation: Adaptation | None


class OneMachine(_Shape):
    """A machine as it is now."""

    machine: Machine


class Machines(_Shape):
    """All machines, and the number to ask `/v1/changes` with."""

    machines: list[Machine]
    last: int


class Changes(_Shape):
    """What has changed after a number; ask with `last` next, at once if there is `more`."""

    last: int
    more: bool
    clips: list[Clip]
    alarms: list[StoredAlarm]
    machines: list[Machine]


class Trend(_Shape):
    """Oddness by hour or day, and the notes of that time."""

    points: list[TrendPoint]
    notes: list[Note]


class Normals(_Shape):
    """A page of a model's healthy recordings, the most suspicious first."""

    normals: list[NormalRow]
    total: int
    next: int | None = Field(description="The `offset` of the next page; null at the end.")


class Picture(_Shape):
    """A spectrogram: `levels` are `bands` x `columns` bytes in base64, the lowest band first.

    A byte is decibels above -128 dB; `hertz` are the centres of the bands.
    """

    seconds: float
    bands: int
    columns: int
    hertz: list[float]
    levels: str
    loudness: float = Field(description="Root mean square in dB of full scale.")


class Message(_Shape):
    """A message that a receiver refused and that was set aside."""

    id: int
    receiver: str
    machine: str | None
    kind: str
    created_at: datetime
    refused_at: datetime | None
    attempts: int
    error: str | None


class Messages(_Shape):
    """Messages that wait, by receiver, and those that were refused."""

    pending: dict[str, int]
    refused: list[Message]
    receivers: list[str]


class Tested(_Shape):
    """What became of test messages, by receiver; null where it was delivered."""

    results: dict[str, str | None]


class Audit(_Shape):
    """Actions of people, the newest first."""

    entries: list[AuditEntry]


class Revised(_Shape):
    """What was done to a model, in words."""

    sentence: str


class Feedback(_Shape):
    """How often decisions were right by the answers of people, in words."""

    sentences: list[str]


class Session(_Shape):
    """Who asks: the name of the token and its role."""

    name: str
    role: Role
    needs_token: bool


class Health(_Shape):
    """Whether the process runs, and whether it can judge and store."""

    live: bool
    ready: bool
    reason: str | None = Field(
        description="Why it is not ready.", examples=["The database cannot be used."]
    )


class Remark(_Body):
    """What a person found or did."""

    comment: Comment = ""


class AlarmAction(Remark):
    """What a person does about an alarm; `minutes` are those on the shelf."""

    minutes: int = Field(default=60, ge=1, le=60 * 24 * 31, examples=[120])


class GivenAnswer(Remark):
    """What a clip or an alarm was."""

    answer: Answer


class Declaration(_Body):
    """How many of the next recordings of a machine are those of a healthy one."""

    clips: int = Field(default=100, ge=FEWEST, le=MOST)


class Service(Remark):
    """Whether a machine is out of service: judged and stored, without alarms and messages."""

    out: bool


class Revision(_Body):
    """A change of a model: normals to remove, or kept clips to add or to calibrate with."""

    action: Literal["remove", "add", "calibrate", "undo"]
    normals: list[str] = Field(default=[], max_length=1000)
    clips: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(default=[], max_length=500)


class NewNote(_Body):
    """A note about a machine, by default at this moment."""

    text: str = Field(
        min_length=1,
        max_length=4000,
        pattern=r"^[^\x00]*\S[^\x00]*$",
        examples=["Bearing changed."],
    )
    at: datetime | None = None


class Login(_Body):
    """The token, once, for a session."""

    token: str = Field(min_length=1, max_length=1024)
