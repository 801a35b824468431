"""Load on ``daco serve``: a real process on loopback, and a generator in a process of its own.

``python benchmarks/service.py`` serves one model as ``daco fit`` makes it by default (four views,
no network) of 200 normals and sends 10 s clips of 320 KB (16 kHz, PCM16):

- *paced*: clips at a fixed rate, whether or not earlier ones were answered; latency counts from
  the moment a clip was due, so that a stalled service cannot hide behind a stalled generator;
- *flat out*: as many as four connections get answered;
- *overload*: 64 connections that never wait, most of whom must be told 503 at once, and which
  send the next clip at once, whatever ``Retry-After`` says;
- *kill -9*: in the middle of the load, and every clip answered 200 must be in the database once.

Rows are counted in the database, memory is that of all the service's processes (their private
pages and their shares of common ones).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RATE, SECONDS = 16000, 10
SAMPLES = 16  # different clips; more would only fill the generator's memory
MACHINE = "press"


@dataclass(frozen=True)
class Answer:
    """One request: when it was due, how long until its answer, and what it said."""

    due: float
    seconds: float
    status: int
    clip_id: int | None
    retry_after: bool


def wav(waveform: np.ndarray) -> bytes:
    data = (np.clip(waveform, -1, 1) * 32767).astype("<i2").tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + form
    return head + b"data" + struct.pack("<I", len(data)) + data


def clip(rng: np.random.Generator) -> np.ndarray:
    """A humming machine: a few tones that waver, and noise."""
    time_axis = np.arange(RATE * SECONDS) / RATE
    tones = sum(
        rng.uniform(0.02, 0.05) * np.sin(2 * np.pi * f * (1 + rng.normal(0, 1e-3)) * time_axis)
        for f in (50, 100, 310, 930)
    )
    return tones * (1 + 0.2 * np.sin(2 * np.pi * 3 * time_axis)) + rng.normal(
        0, 0.02, len(time_axis)
    )


def make_model(path: Path, normals: int) -> None:
    """The model that ``daco fit`` makes by default of so many recordings."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(normals):
            (Path(folder) / f"normal_{number:04}.wav").write_bytes(wav(clip(rng)))
        command = [sys.executable, "-m", "daco.cli", "fit", folder, "--out", str(path)]
        subprocess.run(command, check=True, capture_output=True)


def requests() -> list[bytes]:
    rng = np.random.default_rng(1)
    head = (
        f"POST /v1/machines/{MACHINE}/score?name=clip.wav HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: audio/wav\r\nContent-Length: {}\r\n\r\n"
    )
    bodies = [wav(clip(rng)) for _ in range(SAMPLES)]
    return [head.format(len(body)).encode() + body for body in bodies]


class Client:
    """One connection that is opened again when it was closed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None

    async def ask(self, request: bytes) -> tuple[int, int | None, bool]:
        """Status, id of the clip, and whether it says when to come back."""
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            self.writer.write(request)
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
            body = await self.reader.readexactly(length)
        except BaseException:
            self.writer.close()
            self.reader = None
            raise
        status = int(head[9:12])
        number = json.loads(body)["clip"]["id"] if status == 200 else None
        return status, number, b"retry-after" in head.lower()


async def paced(port: int, seconds: float, rate: float) -> list[Answer]:
    loop, pool = asyncio.get_running_loop(), requests()
    free = [Client(port) for _ in range(64)]
    answers: list[Answer] = []
    start = loop.time() + 0.2

    async def one(due: float, request: bytes) -> None:
        client = free.pop() if free else Client(port)
        answers.append(await timed(client, request, due, start))
        free.append(client)

    tasks = []
    for number in range(int(seconds * rate)):
        due = start + number / rate
        await asyncio.sleep(max(0, due - loop.time()))
        tasks.append(asyncio.create_task(one(due, pool[number % SAMPLES])))
    await asyncio.gather(*tasks)
    return answers


async def flat_out(port: int, seconds: float, connections: float) -> list[Answer]:
    loop, pool = asyncio.get_running_loop(), requests()
    answers: list[Answer] = []
    start = loop.time()

    async def one(number: int) -> None:
        client = Client(port)
        while loop.time() < start + seconds:
            number += 1
            answer = await timed(client, pool[number % SAMPLES], loop.time(), start)
            answers.append(answer)
            if answer.status == 0:
                return

    await asyncio.gather(*(one(number) for number in range(int(connections))))
    return answers


async def timed(client: Client, request: bytes, due: float, start: float) -> Answer:
    try:
        status, number, retry_after = await client.ask(request)
    except (OSError, EOFError):
        status, number, retry_after = 0, None, False
    seconds = asyncio.get_running_loop().time() - due
    return Answer(due - start, seconds, status, number, retry_after)


def generate(kind: str, port: int, seconds: float, intensity: float, out: str) -> None:
    """The generator's process: its answers as JSON lines."""
    kinds = {"paced": paced, "flat_out": flat_out}
    answers = asyncio.run(kinds[kind](port, seconds, intensity))
    Path(out).write_text(json.dumps([vars(answer) for answer in answers]), "utf-8")


class Service:
    """A running ``daco serve``."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "daco.cli", "serve", str(folder / "models")]
        command += ["--database", f"sqlite:///{folder}/daco.db", "--address", "127.0.0.1:0"]
        command += options
        self.log = (folder / "log").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            command, stderr=self.log, stdout=self.log, cwd=folder, start_new_session=True
        )
        self.port = self._port()

    def _port(self) -> int:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            text = (self.folder / "log").read_text("utf-8")
            if "startup complete" in text:
                return int(re.search(r"http://[^:]+:(\d+)/", text)[1])
            time.sleep(0.1)
        raise RuntimeError(text)

    def megabytes(self) -> float:
        """Proportional set size of all its processes."""
        total = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                stat = (folder / "stat").read_text("utf-8").rsplit(")", 1)[1].split()
                if int(stat[2]) != os.getpgid(self.process.pid):
                    continue
                rollup = (folder / "smaps_rollup").read_text("utf-8")
            except OSError:
                continue
            total += int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1])
        return total / 1024

    def cpu_seconds(self) -> float:
        """Processor time of all its processes; other work on the computer does not change it."""
        ticks = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                stat = (folder / "stat").read_text("utf-8").rsplit(")", 1)[1].split()
                command = (folder / "cmdline").read_text("utf-8")
            except OSError:
                continue
            is_ours = int(stat[2]) == os.getpgid(self.process.pid)
            if is_ours and ("daco.cli" in command or "forkserver" in command):
                ticks += int(stat[11]) + int(stat[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def rows(self) -> list[int]:
        """Ids of all stored clips."""
        with sqlite3.connect(self.folder / "daco.db") as database:
            return [row[0] for row in database.execute("SELECT id FROM daco_clips ORDER BY id")]

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it with a signal."""
        self.process.send_signal(number)
        self.process.wait(60)
        self.log.close()


def load(
    service: Service, kind: str, seconds: float, intensity: float, watch: tuple[float, ...] = ()
) -> tuple[list[Answer], list[float]]:
    """Answers of a load, and the service's memory at some moments of it."""
    out = str(service.folder / "answers.json")
    process = multiprocessing.get_context("spawn").Process(
        target=generate, args=(kind, service.port, seconds, intensity, out)
    )
    process.start()
    begun, memory = time.monotonic() + 1.5, []  # the generator makes its clips first
    for moment in watch:
        time.sleep(max(0, begun + moment - time.monotonic()))
        memory.append(service.megabytes())
    process.join()
    return [Answer(**each) for each in json.loads(Path(out).read_text("utf-8"))], memory


def row(name: str, answers: list[Answer], seconds: float) -> str:
    scored = [each for each in answers if each.status == 200]
    refused = [each for each in answers if each.status == 503]
    other = len(answers) - len(scored) - len(refused)
    wait = np.array([each.seconds for each in scored]) * 1e3
    p50, p99, most = np.percentile(wait, [50, 99, 100]) if len(wait) else [np.nan] * 3
    told = f"{np.percentile([each.seconds * 1e3 for each in refused], 99):.0f}" if refused else ""
    return (
        f"| {name} | {len(scored) / seconds:.1f} | {p50:.0f} | {p99:.0f} | {most:.0f} "
        f"| {len(refused)} | {told} | {other} |"
    )


def count(service: Service, answers: list[Answer], before: set[int]) -> str:
    """Every 200 is one row, and every row a 200."""
    told = [each.clip_id for each in answers if each.status == 200]
    rows = [each for each in service.rows() if each not in before]
    lost, twice = set(told) - set(rows), len(told) - len(set(told))
    return f"{len(rows)} rows for {len(told)} answers of 200, {len(lost)} lost, {twice} twice"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=40)
    parser.add_argument("--normals", type=int, default=200)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="daco-bench-"))
    (folder / "models").mkdir()
    make_model(folder / "models" / f"{MACHINE}.daco", arguments.normals)
    seconds = arguments.seconds
    print(f"{os.cpu_count()} cores, load average before: {os.getloadavg()[0]:.2f}")
    print(
        "| load | scored/s | p50 ms | p99 ms | max ms | 503 | p99 of 503, ms | other |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    notes = []
    service = Service(folder)
    load(service, "paced", 3, arguments.rate)
    for name, kind, length, intensity in (
        (f"paced, {arguments.rate:g}/s", "paced", seconds, arguments.rate),
        ("flat out, 4 connections", "flat_out", seconds / 3, 4),
        ("overload, 64 connections", "flat_out", seconds / 3, 64),
    ):
        before, cpu = set(service.rows()), service.cpu_seconds()
        moments = (length / 6, length) if kind == "paced" else (length,)
        answers, memory = load(service, kind, length, intensity, moments)
        print(row(name, answers, length), flush=True)
        megabytes = ", ".join(f"{each:.0f}" for each in memory)
        scored = sum(each.status == 200 for each in answers)
        cpu = 1e3 * (service.cpu_seconds() - cpu) / max(1, scored)
        notes.append(
            f"{name}: {count(service, answers, before)}; memory {megabytes} MiB; "
            f"{cpu:.1f} ms of processor time per clip"
        )
        if any(each.status == 503 and not each.retry_after for each in answers):
            notes.append(f"{name}: a 503 without Retry-After")
    before = set(service.rows())
    victim = service.process
    timer = multiprocessing.get_context("spawn").Process(target=kill_later, args=(victim.pid, 5.0))
    timer.start()
    answers, _ = load(service, "flat_out", 10, 4)
    timer.join()
    service.stop(signal.SIGKILL)
    notes.append(f"kill -9: {count(service, answers, before)}")
    print("\n".join(notes))
    print(f"load average after: {os.getloadavg()[0]:.2f}")


def kill_later(pid: int, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
