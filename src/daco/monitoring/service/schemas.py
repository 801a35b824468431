"""The shapes of what the service says, for the OpenAPI document and whoever reads it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_CLIP: dict[str, Any] = {
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
    "reasons": ["out of range: farther from every normal (0.0412) than any of them is (0.03)"],
    "seconds": 30.0,
    "windows": 3,
    "worst_window": 20.0,
    "model_sha256": "b60d893de481f10018f57a603c10a0a4ac9d06db4f9e8e8e9fe63ca0dbb90d02",
    "audio_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "has_audio": True,
    "alarm_id": 12,
}
_DRIFT: dict[str, Any] = {
    "n": 200,
    "nominal": 0.1,
    "realised": 0.21,
    "bound": 0.17,
    "by_domain": {
        "source": {"n": 160, "realised": 0.11, "bound": 0.1813, "stale": False},
        "target": {"n": 40, "realised": 0.6, "bound": 0.275, "stale": True},
    },
    "stale": True,
    "sentence": "calibration is stale: realised false-alarm rate 0.21 at nominal 0.10 over the "
    "last 200 clips",
    "remedy": "daco update press.daco NEW_NORMALS --domain target",
    "caution": "A rising rate may also be real faults: listen to the flagged clips before adding "
    "normals.",
}


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Detail(_Shape):
    """Why a request failed, in a sentence."""

    detail: str = Field(examples=["There is no machine 'press'."])


class Clip(_Shape):
    """A recording that was judged."""

    model_config = ConfigDict(
        extra="forbid", protected_namespaces=(), json_schema_extra={"examples": [_CLIP]}
    )

    id: int
    received_at: str = Field(description="UTC, ISO 8601.")
    recorded_at: str | None = None
    name: str = Field(description="What the sender called it; never a path.")
    machine: str = Field(description="Id of the machine.")
    score: float = Field(description="Higher is more anomalous.")
    p_value: float = Field(description="About the share of normals that score as high.")
    alarm: bool = Field(description="The score is above the threshold.")
    threshold: float
    domain_weights: dict[str, float]
    nearest: str | None = Field(description="The most similar normal.")
    nearest_index: int | None = Field(
        description="Its row in the machine's present model, for `/normals/{index}`."
    )
    nearest_distance: float | None
    reasons: list[str] = Field(description="What to know before trusting the score.")
    seconds: float | None
    windows: int | None
    worst_window: float | None
    model_sha256: str | None
    audio_sha256: str | None
    has_audio: bool = Field(description="The recording is kept and can be fetched.")
    alarm_id: int | None = Field(
        default=None, description="The alarm that this clip opened; told once, with its score."
    )


class Refused(_Shape):
    """A file of a multipart body that could not be judged."""

    name: str
    status: int = Field(
        description="What the file alone would have been answered with.", examples=[400]
    )
    detail: str = Field(examples=["The recording cannot be used: truncated."])
    retry: bool = Field(
        description="Send it again later: the service was busy, or a worker ended or took too "
        "long. If false, the same file will be refused again."
    )


class Scored(_Shape):
    """One recording's verdict, committed before it is told."""

    clip: Clip


class ScoredMany(_Shape):
    """Verdicts of a multipart body with several files, in their order."""

    clips: list[Clip]
    refused: list[Refused]


class DomainDrift(_Shape):
    """One domain's share of `Drift`."""

    n: int
    realised: float | None
    bound: float | None
    stale: bool


class Drift(_Shape):
    """How often recent clips were called anomalous, against how often normals should be."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_DRIFT]})

    n: int
    nominal: float
    realised: float
    bound: float = Field(description="More than this is not chance.")
    by_domain: dict[str, DomainDrift]
    stale: bool
    sentence: str
    remedy: str = Field(description="The command that mends it.")
    caution: str


class LastDay(_Shape):
    """Counts of the last 24 hours."""

    clips: int
    anomalous: int


class Machine(_Shape):
    """A machine at a glance."""

    id: str = Field(examples=["press"])
    machine: str
    config: str = Field(examples=["conf-soft-m0-k1"])
    threshold: float
    false_alarm_rate: float
    domains: dict[str, int] = Field(description="Normals per domain.")
    model_sha256: str
    backbone: str | None
    created: str | None
    problem: str | None = Field(description="Why a newer model file is not used.")
    status: Literal["ok", "alarm", "stale", "silent"]
    last: Clip | None
    open_alarms: int
    last_24h: LastDay
    drift: Drift | None


class Machines(_Shape):
    """All machines, and files that are none."""

    machines: list[Machine]
    problems: dict[str, str] = Field(
        description="Model files that cannot be used, and why.",
        examples=[{"old.daco": "truncated: ... Copy the file again."}],
    )


class History(_Shape):
    """A page of clips, the newest first."""

    clips: list[Clip]
    next: int | None = Field(description="The `before` of the next page; null at the end.")


class Alarm(_Shape):
    """k anomalous clips among the last n; open until acknowledged or recovered."""

    id: int
    machine: str
    rule: str = Field(examples=["3/5"])
    clip_id: int = Field(description="The clip that completed it.")
    clip_ids: list[int] = Field(description="All that contributed, oldest first.")
    opened_at: str
    closed_at: str | None
    closed_by: Literal["recovery", "acknowledgement"] | None
    acknowledged_at: str | None
    acknowledged_by: str | None
    comment: str | None


class Alarms(_Shape):
    """Alarms, the newest first."""

    alarms: list[Alarm]


class Acknowledged(_Shape):
    """An alarm after it was acknowledged; of several who do so, the first stays."""

    alarm: Alarm


class Acknowledgement(_Shape):
    """Who has seen to an alarm, and what they found."""

    by: str = Field(min_length=1, max_length=200, examples=["Kim"])
    comment: str = Field(default="", max_length=4000, examples=["Loose belt, tightened."])


class OneClip(_Shape):
    """A stored clip."""

    clip: Clip


class Health(_Shape):
    """Whether the process lives, and whether it can score."""

    live: bool
    ready: bool
    reason: str | None = Field(
        description="Why it is not ready.", examples=["The database cannot be used."]
    )


class Login(_Shape):
    """The token, once, for a session."""

    token: str = Field(min_length=1, max_length=1024)
