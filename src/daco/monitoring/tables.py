"""The tables of ``daco.toml``: service, notify, machine, and tokens."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from daco.errors import InputError
from daco.monitoring.addresses import known_to_apprise, read_secret
from daco.monitoring.alarms import KINDS, AlarmRule
from daco.monitoring.units import Duration, Hours

MACHINE_ID = re.compile(r"[\w.-]{1,100}")
LIVE_SCHEMES = ("rtsp", "rtsps", "http", "https", "pcm")

AppriseAddress = Annotated[str, AfterValidator(known_to_apprise)]
Role = Literal["viewer", "operator", "administrator"]
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]", re.ASCII)


class _Table(BaseModel):
    """A table of the file; its values cannot be changed, unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Token(_Table):
    """A secret of one person or program, stored as a hash or in a file of its own."""

    role: Role
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    token_file: Path | None = None

    @model_validator(mode="after")
    def _one_secret(self) -> Token:
        if (self.sha256 is None) == (self.token_file is None):
            raise ValueError("give either sha256 or token_file")
        return self

    def digest(self) -> bytes:
        """The SHA-256 of the token."""
        if self.sha256 is not None:
            return bytes.fromhex(self.sha256)
        assert self.token_file is not None
        text = read_secret(self.token_file, "token")
        if len(text) < 16 or not text.isascii() or not text.isprintable() or " " in text:
            raise InputError(
                "A token is at least 16 printable characters without spaces. Make one with: "
                "openssl rand -hex 32.",
                path=self.token_file,
            )
        return hashlib.sha256(text.encode()).digest()


class ServiceConfig(_Table):
    """The ``[service]`` table: address, database, kept recordings, limits."""

    address: str = "127.0.0.1:8477"  #: host and port; port 0 takes a free one
    database: str = "sqlite:///daco.db"
    recordings: Path = Path("kept")  #: folder of kept audio
    keep_audio: Literal["anomalous", "all", "none"] = "anomalous"
    audio_size: ByteSize = "2 GB"  # type: ignore[assignment]
    keep: Duration = "400 days"  # type: ignore[assignment]
    workers: int = Field(default=2, ge=1, le=256)  #: processes that decode and score
    allowed_hosts: tuple[str, ...] = ()  #: further host names, such as a proxy's
    page: str | None = None  #: address of the page in messages; the default is http://address/
    tokens: dict[str, Token] = {}
    max_upload: ByteSize = "32 MB"  # type: ignore[assignment]
    adapt: bool = False
    weights: dict[str, Path] = {}  #: checkpoint files by name of network
    device: str = "cpu"
    time_limit: Duration = "20 s"  # type: ignore[assignment]
    memory_limit: ByteSize = "1 GB"  # type: ignore[assignment]
    waiting: int = Field(default=16, ge=1, le=10_000)  #: recordings that wait for a worker
    connections: int = Field(default=512, ge=8, le=100_000)
    connections_per_address: int = Field(default=64, ge=1, le=100_000)

    @field_validator("address")
    @classmethod
    def _address(cls, text: str) -> str:
        host, _, port = text.rpartition(":")
        if not _HOST.fullmatch(host) or not port.isdecimal() or int(port) > 65535:
            raise ValueError("an address is a host and a port, such as 127.0.0.1:8477")
        return text

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} is no host name; give it without scheme and port")
        return hosts

    @model_validator(mode="after")
    def _secured(self) -> ServiceConfig:
        if not self.tokens and (not self.on_loopback or self.allowed_hosts):
            raise ValueError(
                f"other computers can reach {self.address}, which needs a token: add a table "
                "[service.tokens.NAME] with role and sha256 or token_file"
            )
        if self.max_upload * 4 > self.memory_limit:
            raise ValueError("memory_limit must be at least four times max_upload")
        return self

    @property
    def host(self) -> str:
        """The host of the address, without brackets."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port of the address."""
        return int(self.address.rpartition(":")[2])

    @property
    def on_loopback(self) -> bool:
        """Whether only programs on this computer can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def page_url(self) -> str:
        """The address of the page, as messages name it."""
        return (self.page or f"http://{self.address}").rstrip("/") + "/"


class NotifyConfig(_Table):
    """The ``[notify]`` table: who gets messages, and when."""

    urls: tuple[AppriseAddress, ...] = ()  #: Apprise addresses: mail, Teams, Slack, ntfy, ...
    mqtt: str | None = None  #: mqtt:// or mqtts:// address of a broker
    webhook: str | None = None
    webhook_secret: SecretStr | None = None
    webhook_secret_file: Path | None = None
    events: Literal["alarms", "all"] = "alarms"  #: all: the webhook and MQTT get every clip, too
    cooldown: Duration = "30 min"  # type: ignore[assignment]
    first_of_day: bool = False  #: one message per machine, kind and day
    quiet_hours: Hours | None = None  #: messages wait until these hours end
    quiet_except: tuple[str, ...] = ()  #: kinds of alarms that do not wait, such as fault

    @field_validator("quiet_except")
    @classmethod
    def _kinds(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"{kind!r} is no kind of alarm: {', '.join(KINDS)}")
        return kinds

    @field_validator("mqtt", "webhook")
    @classmethod
    def _address(cls, url: str | None, info: Any) -> str | None:
        if url is None:
            return None
        schemes = ("mqtt", "mqtts") if info.field_name == "mqtt" else ("http", "https")
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in schemes or not url.isascii() or " " in url:
            raise ValueError(f"must be an address of {schemes[0]}:// or {schemes[1]}://")
        if parts.username is not None and info.field_name == "webhook":
            raise ValueError("must not contain a user name or password; it is signed instead")
        return url

    def secret(self) -> str | None:
        """The secret that signs the webhook's messages."""
        if self.webhook_secret_file is not None:
            return read_secret(self.webhook_secret_file, "secret")
        return self.webhook_secret.get_secret_value() if self.webhook_secret else None


class MachineConfig(_Table):
    """One ``[machine.<id>]`` table: a machine, its model and where its recordings come from."""

    id: str = Field(exclude=True)  #: the name of the table
    title: str = ""
    model: Path
    folder: Path | None = None  #: recordings that arrive as files
    stream: str | None = None  #: rtsp://, http(s):// through ffmpeg, or pcm:RATE on standard input
    microphone: str | None = None  #: name or number of an audio device, or 'default'
    healthy: Path | None = None  #: folder of healthy recordings, to listen to
    alarm: str = "3 of 5"
    recover: int | None = Field(default=None, ge=1, le=1000)  #: normal clips that clear an alarm
    expect_every: Duration | None = None
    hours: Hours | None = None  #: running hours
    off: Literal["normal", "alarm"] = "normal"
    notify: tuple[
        AppriseAddress, ...
    ] = ()  #: Apprise addresses in addition to those of all machines
    keep: Duration | None = None
    window: Duration | None = None  #: length of the pieces that are judged
    hop: Duration | None = None
    aggregate: str = "max"
    settle: Duration = "2 s"  # type: ignore[assignment]
    adapt: bool | None = None
    force: bool = False  #: accept a model that was made for another machine

    @field_validator("id")
    @classmethod
    def _id(cls, name: str) -> str:
        if not MACHINE_ID.fullmatch(name):
            raise ValueError("a machine's id has letters, digits, '.', '_' and '-' only")
        return name

    @field_validator("alarm")
    @classmethod
    def _alarm(cls, text: str) -> str:
        AlarmRule.parse(text)
        return text

    @field_validator("stream")
    @classmethod
    def _stream(cls, text: str | None) -> str | None:
        if text is not None and urlsplit(text).scheme not in LIVE_SCHEMES:
            raise ValueError("a stream begins with rtsp://, http:// or https://, or is pcm:RATE")
        return text

    @model_validator(mode="after")
    def _one_source(self) -> MachineConfig:
        sources = [self.folder, self.stream, self.microphone]
        if sum(each is not None for each in sources) > 1:
            raise ValueError("give one of folder, stream and microphone")
        return self

    @property
    def name(self) -> str:
        """The title for people."""
        return self.title or self.id

    @property
    def rule(self) -> AlarmRule:
        """The alarm rule."""
        return AlarmRule.parse(self.alarm, recovery=self.recover)

    def should_run(self, time: datetime) -> bool:
        """Whether being off at a time is worth an alarm."""
        return self.off == "alarm" and (self.hours is None or time.astimezone() in self.hours)
