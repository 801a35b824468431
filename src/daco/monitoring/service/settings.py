"""Settings of the service, checked before anything is started."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from daco.audio.formats import AudioLimits
from daco.errors import InputError
from daco.monitoring.alarms import AlarmRule

Keep = Literal["alarms", "all", "none"]

MACHINE_ID = re.compile(r"[\w.-]{1,100}")
"""What the stem of a model file must look like to be a machine's id."""

SHORTEST_TOKEN = 16
MEGABYTE = 1_000_000

_TOKEN = re.compile(r"[!-~]+", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]", re.ASCII)


def _number(default: float, low: float, high: float) -> Any:
    """A field that must be between two numbers."""
    return field(default=default, metadata={"range": (low, high)})


@dataclass(frozen=True)
class Settings:
    """Settings of the service; a setting that cannot work raises an `InputError`."""

    models: Path  #: folder of ``*.daco`` files
    database: str  #: URL, see `daco.monitoring.store`
    host: str = "127.0.0.1"  #: address to listen on; any but a loopback address needs a token
    port: int = _number(8477, 0, 65535)
    #: secret of the clients, at least 16 printable characters
    token: str | None = field(default=None, repr=False)
    #: names besides ``localhost`` on a loopback address, behind a proxy; they need a token
    allowed_hosts: tuple[str, ...] = ()
    clips: Path | None = None  #: folder of uploaded recordings
    keep_audio: Keep = "alarms"  #: which of them are kept: anomalous ones, all, or none
    audio_bytes: int = _number(2_000 * MEGABYTE, 0, 1 << 50)  #: the oldest are removed first
    keep_days: float | None = None  #: older clips and alarms are removed
    normals: Path | None = None  #: folder of the normals' recordings, to listen to
    watched: tuple[Path, ...] = ()  #: folders of ``daco watch`` on the same database, likewise
    rule: AlarmRule = field(default_factory=AlarmRule)
    adapt: bool = False  #: adapt decisions to each machine, see `daco.monitoring.adaptation`
    workers: int = _number(2, 1, 256)  #: processes that decode and score
    max_body: int = _number(32 * MEGABYTE, 1000, 1 << 30)  #: bytes of one upload
    #: checkpoint by name of network, where it was not downloaded
    weights: Mapping[str, str] = field(default_factory=dict)
    job_seconds: float = _number(20.0, 0.001, 3600)  #: for decoding and scoring one recording
    #: bytes that a job may take beyond what a worker has at its start
    job_memory: int = _number(1_000 * MEGABYTE, 1 << 20, 1 << 40)
    waiting: int = _number(16, 1, 10_000)  #: recordings that wait for a worker; the next gets a 503
    uploads: int = _number(64, 1, 10_000)  #: received or waiting at one time
    buffered_bytes: int = 256 * MEGABYTE  #: that these uploads may hold together
    read_seconds: float = _number(20.0, 0.01, 3600)  #: in which a request must have arrived
    connections: int = _number(512, 1, 100_000)  #: open at one time
    #: seconds without a clip after which a machine counts as silent
    silent_after: float = _number(3600.0, 1, 1e9)

    def __post_init__(self) -> None:
        if not self.models.is_dir():
            raise InputError(f"{self.models} is not a folder. Give the folder of your models.")
        for folder in (self.normals, *self.watched):
            if folder is not None and not folder.is_dir():
                raise InputError(f"{folder} is not a folder. Give one of recordings.")
        if self.keep_audio not in get_args(Keep):
            raise InputError(f"keep_audio must be alarms, all or none. Got {self.keep_audio!r}.")
        if self.keep_audio != "none" and self.clips is None:
            raise InputError("Keeping recordings needs a folder: set 'clips', or keep none.")
        _check_numbers(self)
        _check_access(self)

    @property
    def on_loopback(self) -> bool:
        """Whether only programs on this computer can connect."""
        return is_loopback(self.host)

    @property
    def audio_limits(self) -> AudioLimits:
        """The largest recording to accept: ten minutes, ``max_body`` bytes."""
        return AudioLimits(
            bytes=self.max_body, values=1 << 25, seconds=600.0, samples=1 << 25, max_rate=384_000
        )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this computer only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token in a file, or in ``$DACO_TOKEN``; None where neither is given."""
    if file is None:
        return environment.get("DACO_TOKEN") or None
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError(f"{file}: the token cannot be read ({reason}).") from None
    if not text:
        raise InputError(f"{file}: there is no token in it. Write one: openssl rand -hex 32.")
    return text


def _check_numbers(settings: Settings) -> None:
    for each in fields(settings):
        low, high = each.metadata.get("range", (None, None))
        value = getattr(settings, each.name)
        if low is not None and not low <= value <= high:
            raise InputError(
                f"{each.name} must be between {low} and {high}. Got {value!r} instead."
            )
    if settings.keep_days is not None and not 0 < settings.keep_days < 1e5:
        raise InputError(f"keep_days must be a number of days. Got {settings.keep_days!r}.")
    if settings.buffered_bytes < settings.max_body:
        raise InputError("buffered_bytes must hold at least one upload of max_body bytes.")
    if settings.job_memory < 4 * settings.max_body:
        raise InputError("job_memory must be at least four times max_body.")


def _check_access(settings: Settings) -> None:
    token = settings.token
    if token is not None and (len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token)):
        raise InputError(
            f"A token is at least {SHORTEST_TOKEN} printable characters without spaces. Make one "
            "with: openssl rand -hex 32."
        )
    for host in settings.allowed_hosts:
        if not _HOST.fullmatch(host):
            raise InputError(f"{host!r} is no host name. Give it without scheme and port.")
    for is_open, reason in (
        (not settings.on_loopback, f"Listening on {settings.host!r} lets others reach the service"),
        (bool(settings.allowed_hosts), "The service is reached under another name than localhost"),
    ):
        if token is None and is_open:
            raise InputError(
                f"{reason}, which needs a token: --token-file FILE or $DACO_TOKEN. Make one with: "
                "openssl rand -hex 32."
            )
