"""A real ``daco serve`` for tests: its process, a model it can serve, and clips to send."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import httpx
import numpy as np

from daco.detector.model import MachineModel
from daco.embedding.frontend import Frontend, Listener

RATE = 16000
PATIENCE = 120.0  # of a busy computer with two cores; nothing waits this long unless it is broken
FRONTEND = Frontend("logmel", "mod", RATE, 0, "fp32", "soxr", None, 1.0)


def wav(waveform: np.ndarray, rate: int = RATE) -> bytes:
    """A waveform as a plain 16-bit WAV file."""
    data = (np.clip(waveform, -1, 1) * 32767).astype("<i2").tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16)
    head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + form
    return head + b"data" + struct.pack("<I", len(data)) + data


def humming(seed: int, seconds: float = 1.0) -> np.ndarray:
    """A machine as it should sound; every seed is another clip of it."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(RATE * seconds)) / RATE
    tones = sum(a * np.sin(2 * np.pi * f * t) for a, f in ((0.1, 100), (0.05, 300), (0.02, 900)))
    return tones * (1 + 0.1 * rng.normal()) + rng.normal(0, 0.01, len(t))


def normal(seed: int = 5) -> bytes:
    """A clip that is no alarm: the model knows those of seeds 0 to 39."""
    return wav(humming(seed))


def faulty(seed: int = 2000) -> bytes:
    """A clip that is one: a squeal that no normal has."""
    rng = np.random.default_rng(seed)
    t = np.arange(RATE) / RATE
    return wav(0.3 * np.sin(2 * np.pi * 5000 * t) * (t % 0.1 < 0.05) + rng.normal(0, 0.05, RATE))


@cache
def model(machine: str = "press", normals: int = 40, seed: int = 0) -> MachineModel:
    """A small model of `humming`, in two domains."""
    listener = Listener(FRONTEND)
    waves = [humming(seed + row).astype(np.float32) for row in range(normals)]
    X = np.concatenate([listener.embed_waveform(wave, RATE).embeddings for wave in waves])
    names = [f"train/{machine}_{row:03}.wav" for row in range(normals)]
    hashes = [hashlib.sha256(wav(humming(seed + row))).hexdigest() for row in range(normals)]
    domains = ["source"] * (normals - 10) + ["target"] * 10
    return MachineModel.fit(
        X,
        domains,
        machine=machine,
        frontend=FRONTEND,
        clip_names=names,
        config="conf-soft-m0-k1",
        false_alarm_rate=0.1,
        provenance={"created": "2026-03-01T00:00:00Z"},
        clip_sha256=hashes,
    )


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Until it holds; an assertion when it does not in time."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"{condition} did not come true in {seconds:g} s"
        time.sleep(0.02)


def write_plant(
    folder: Path, machines: dict[str, dict], changed: dict | None = None, **tables: dict
) -> Path:
    """A ``daco.toml`` with tables of machines and others; each gets a model with fields changed."""
    (folder / "models").mkdir(exist_ok=True)
    lines = []
    for name, table in tables.items():
        inner = {key: each for key, each in table.items() if isinstance(each, dict)}
        lines += _table(name, {key: table[key] for key in table if key not in inner})
        for key, nested in inner.items():
            for entry, values in nested.items():
                lines += _table(f"{name}.{key}.{entry}", values)
    for name, table in machines.items():
        path = folder / "models" / f"{name}.daco"
        if not path.exists() and "model" not in table:
            replace(model(), machine=name, **(changed or {})).save(path)
        lines += _table(f"machine.{name}", table)
    (folder / "daco.toml").write_text("\n".join(lines), "utf-8")
    return folder / "daco.toml"


def _table(name: str, values: dict) -> list[str]:
    return [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]


class ServiceProcess:
    """``daco serve`` on a free port, in a process group of its own; use with ``with``.

    Parameters
    ----------
    folder : Path
        Of its ``daco.toml``, models and database.
    machines : dict
        Their tables; one `press` by default.
    service, notify : dict
        The other tables.
    """

    def __init__(
        self,
        folder: Path,
        machines: dict[str, dict] | None = None,
        service: dict | None = None,
        notify: dict | None = None,
    ):
        self.folder = folder
        self.database = (service or {}).get("database", f"sqlite:///{folder}/daco.db")
        tables = {"service": {"address": "127.0.0.1:0"} | (service or {}), "notify": notify or {}}
        write_plant(folder, {"press": {}} if machines is None else machines, **tables)
        self.log_path = folder / "log.txt"

    def __enter__(self) -> ServiceProcess:
        with self.log_path.open("ab") as log:
            start = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "daco.cli", "serve", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        wait_until(lambda: self._is_up(start))
        return self

    def _is_up(self, start: int) -> bool:
        text = self.log_path.read_bytes()[start:].decode()
        assert self.process.poll() is None, f"the service ended: {text}"
        found = re.search(r"http://\S+:(\d+)/", text)
        if found:
            self.port = int(found[1])
        return found is not None and "startup complete" in text

    def __exit__(self, *_: object) -> None:
        self.end()
        # Nobody of its group may be left, and none is: they end with their connections.
        wait_until(lambda: not self.pids(), 30)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8")

    def client(self, **options: object) -> httpx.Client:
        """A client that ignores proxies of the environment, and loads no certificates."""
        options = {"timeout": PATIENCE, "trust_env": False, "verify": False, **options}
        return httpx.Client(base_url=self.url, **options)

    def score(self, data: bytes, machine: str = "press", **query: str) -> httpx.Response:
        """Send one recording."""
        with self.client() as client:
            return client.post(
                f"/v1/machines/{machine}/score",
                content=data,
                params=query,
                headers={"Content-Type": "audio/wav"},
            )

    def get(self, path: str, **options: object) -> httpx.Response:
        with self.client() as client:
            return client.get(path, **options)

    def raw(self, *pieces: bytes) -> bytes:
        """All that comes back for bytes that are sent as they are, until the connection ends."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            with suppress(OSError):  # the other side has heard enough
                for piece in pieces:
                    connection.sendall(piece)
            answer = b""
            with suppress(ConnectionResetError):
                while chunk := connection.recv(65536):
                    answer += chunk
            return answer

    def pids(self) -> list[int]:
        """Processes of its group that are alive: the service, the server, the workers."""
        return pids_of_group(self.process.pid)

    def workers(self) -> list[int]:
        """Those of the processes that judge: children of the fork server."""
        found = []
        for pid in self.pids():
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"forkserver" in command and _status(pid)[1] != str(self.process.pid):
                    found.append(pid)
        return found


def pids_of_group(group: int) -> list[int]:
    """Processes of a process group that are alive."""
    found = []
    for pid in sorted(int(entry.name) for entry in Path("/proc").glob("[0-9]*")):
        with suppress(OSError):
            state, _, group_of_pid, *_ = _status(pid)
            if int(group_of_pid) == group and state != "Z":
                found.append(pid)
    return found


def _status(pid: int) -> list[str]:
    """State, parent, group and more of a process."""
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
