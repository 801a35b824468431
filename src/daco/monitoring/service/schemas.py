"""The shapes of the API's answers, which FastAPI validates, and the failures it answers with.

A clip is a `daco.detector.verdict.Verdict` with a few more fields; alarms and drift are the store's
and the drift module's own dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from daco.detector.gate import NormalRow
from daco.detector.verdict import Verdict
from daco.monitoring.adaptation import FEWEST, MOST, Answer
from daco.monitoring.drift import Drift
from daco.monitoring.feedback import Rates
from daco.monitoring.store import StoredAlarm
from daco.monitoring.store.people import StoredAnswer

RETRY_SECONDS = 1

_CLIP_EXAMPLE: dict[str, Any] = {
    "id": 4711,
    "received_at": "2026-03-01T11:00:00.250000Z",
    "recorded_at": "2026-03-01T10:59:50Z",
    "name": "press-0001.wav",
    "machine": "press",
    "score": 0.974,
    "p_value": 0.0132,
    "alarm": True,
    "threshold": 0.9313,
    "domain_weights": {"source": 0.21, "target": 0.79},
    "nearest": "train/section_00_target_train_normal_0007.wav",
    "nearest_index": 997,
    "nearest_distance": 0.0412,
    "reasons": [
        "far: farther from every normal (0.0412) than any of them is (0.03)",
        "views: rhythm up to 15 Hz: ordinary; repetition up to 500 Hz: 3.1 deviations above the "
        "normals",
    ],
    "seconds": 30.0,
    "windows": 3,
    "worst_window": 20.0,
    "model_sha256": "b60d893de481f10018f57a603c10a0a4ac9d06db4f9e8e8e9fe63ca0dbb90d02",
    "state": "anomalous",
    "basis": "from 25 new recordings of 12 May 2026",
    "views": {"mod": 0.4, "env": 3.1},
    "extrapolated": False,
    "supported_rate": 0.0099,
    "audio_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "answer": "fault",
    "has_audio": True,
    "alarm_id": 12,
}


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Detail(_Shape):
    """Why a request failed, in a sentence."""

    detail: str = Field(examples=["There is no machine 'press'."])


@dataclass(frozen=True, kw_only=True)
class Clip(Verdict):
    """A stored verdict. A higher score is more anomalous; times are UTC, ISO 8601.

    `name` is the sender's, never a path. `nearest_index` is the row of the most similar normal in
    the machine's present model, for `/normals/{index}`. `has_audio`: the recording can be fetched.
    `alarm_id` is the alarm that this clip opened; only the answer to the upload has it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [_CLIP_EXAMPLE]}
    )

    id: int
    received_at: str
    recorded_at: str | None
    nearest_index: int | None
    audio_sha256: str | None
    answer: str | None
    has_audio: bool
    alarm_id: int | None = None


class Refused(_Shape):
    """A file of a multipart body that could not be judged."""

    name: str
    status: int = Field(description="The answer's status for the file alone.", examples=[400])
    detail: str = Field(examples=["The recording cannot be used: truncated."])
    retry: bool = Field(
        description="Send it again later: the service was busy, or a worker ended or took too "
        "long. If false, the same file will be refused again."
    )


class OneClip(_Shape):
    """A stored clip; of a recording, it is committed before it is answered."""

    clip: Clip


class ScoredClips(_Shape):
    """Verdicts on a multipart body with several files, in their order."""

    clips: list[Clip]
    refused: list[Refused]


class LastDay(_Shape):
    """Counts of the last 24 hours."""

    clips: int
    anomalous: int


class AdaptationInfo(_Shape):
    """What the service learned about a machine; null where it does not adapt."""

    sentence: str
    left: int = Field(description="Clips that are still to be taken as healthy.")


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """A machine's model; `id` is the stem of its file, `domains` counts normals per domain.

    `thresholds` are those of clips that belong to one domain alone, adapted where the service
    adapts; `basis` says what the model's rest on.
    `problem` says why a newer model file is not used.
    """

    id: str
    machine: str
    config: str
    thresholds: dict[str, float]
    false_alarm_rate: float
    basis: str
    domains: dict[str, int]
    model_sha256: str
    backbone: str | None
    created: str | None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Machine(ModelInfo):
    """A machine at a glance: its model, status, last clip and drift."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    status: Literal["ok", "alarm", "stale", "silent"]
    last: Clip | None
    open_alarms: int
    last_24h: LastDay
    drift: Drift | None
    adaptation: AdaptationInfo | None


class Machines(_Shape):
    """All machines, and unusable model files."""

    machines: list[Machine]
    problems: dict[str, str] = Field(
        description="Model files that cannot be used, and why.",
        examples=[{"old.daco": "truncated: ... Copy the file again."}],
    )


class History(_Shape):
    """A page of clips, the newest first."""

    clips: list[Clip]
    next: int | None = Field(description="The `before` of the next page; null at the end.")


class Normals(_Shape):
    """A page of a model's normals, the most suspicious first."""

    normals: list[NormalRow]
    total: int
    next: int | None = Field(description="The `offset` of the next page; null at the end.")


class Alarms(_Shape):
    """Alarms, the newest first."""

    alarms: list[StoredAlarm]


class OneAlarm(_Shape):
    """An alarm; the first acknowledgement and the last answer stay."""

    alarm: StoredAlarm


class _Said(_Shape):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    by: str = Field(min_length=1, max_length=200, examples=["Kim"])


class Acknowledgement(_Said):
    """Who takes care of an alarm, and what they found."""

    comment: str = Field(default="", max_length=4000, examples=["Loose belt, tightened."])


class GivenAnswer(Acknowledgement):
    """What a clip or an alarm was."""

    answer: Answer


class Declaration(_Said):
    """Declares that the next clips of a machine are healthy, with the name of the person."""

    clips: int = Field(default=100, ge=FEWEST, le=MOST)


class Adapted(_Shape):
    """What the service has learned about a machine, and the thresholds that follow."""

    adaptation: AdaptationInfo
    thresholds: dict[str, float]


class Feedback(_Shape):
    """Realised rates by the answers of people, in words as well, and the last answers."""

    rates: Rates
    sentences: list[str]
    answers: list[StoredAnswer]


class Health(_Shape):
    """Whether the process runs, and whether it can score."""

    live: bool
    ready: bool
    reason: str | None = Field(
        description="Why it is not ready.", examples=["The database cannot be used."]
    )


class Login(_Shape):
    """The token, once, for a session."""

    token: str = Field(min_length=1, max_length=1024)


_MEANINGS = {
    400: "The recording or a parameter cannot be used; the detail says why.",
    401: "The token is missing or wrong.",
    403: "The request comes from another site's page.",
    404: "It does not exist, or is no longer kept.",
    408: "The body took too long to arrive.",
    409: "The recording was scored before under this key and is no longer kept.",
    413: "The body is too large.",
    415: "The body is not of a type that can be a recording.",
    422: "A parameter is not of the right form.",
    500: "The service failed on this recording; see its log.",
    502: "The workers that scored the recording ended. It may be sent again.",
    503: "The service is busy; try again after `Retry-After` seconds.",
    504: "Scoring the recording took too long. It may be sent again.",
}


class Problem(Exception):  # noqa: N818 - it is an answer, not an error of the program
    """The answer to a request that fails: a status and one sentence, no path, no trace."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers

    @property
    def retry(self) -> bool:
        """The same request may succeed later."""
        return self.status in (502, 503, 504)

    def response(self) -> JSONResponse:
        """The answer."""
        later = {"Retry-After": str(RETRY_SECONDS)} if self.retry else {}
        return JSONResponse({"detail": self.detail}, self.status, later | (self.headers or {}))


def busy(detail: str = "The service is busy. Try again in a moment.") -> Problem:
    """The answer of an overloaded service."""
    return Problem(503, detail)


def not_found(detail: str) -> Problem:
    """The answer for a missing thing."""
    return Problem(404, detail)


def too_large(most: int) -> Problem:
    """The answer to a body of more than `most` bytes."""
    return Problem(413, f"At most {most / 1e6:g} MB are accepted. Cut the recording into clips.")


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the OpenAPI document describes problems with these statuses."""
    return {status: {"description": _MEANINGS[status], "model": Detail} for status in statuses}
