"""A plant under load for as long as you like, while its parts are killed at random.

``python benchmarks/soak.py --minutes 30`` serves 20 machines on PostgreSQL, sends five clips a
second (one in ten is no recording), and every few seconds kills a worker, the service (kill -9),
the database server or the MQTT broker. Each machine sends its clips one after the other and sends
a clip again, under the same key, until it is answered. At the end:

- every clip that was answered is stored once, and no clip that was not sent;
- the alarms in the database are those that the stored verdicts must raise, in their order;
- a webhook has heard of every alarm, and nothing waits in the outbox;
- the processes take no more memory than at the start, and 99 of 100 clips were answered within
  0.3 s, outside of the seconds in which a killed part was missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from postgres import postgres_server
from receiver import receiving
from receivers import broker
from service_process import ServiceProcess, faulty, normal, wait_until

from daco.monitoring.alarms import AlarmRule, AlarmState, Decision, Opening, advance
from daco.monitoring.store import Store

RULE = "2 of 3"
PARTS = ("worker", "worker", "broker", "database", "service")
"""What is killed, in a random order; workers twice as often."""

FAILURES = ("lost", "doubled", "unexpected", "wrong_alarms", "alarms_without_message",
            "messages_left")  # fmt: skip
"""Figures that must be 0."""

AFTER = 2.0
"""Seconds after a part is back that still count as a kill: what was waiting is answered."""


@dataclass
class Sent:
    """What became of one recording."""

    machine: str
    key: str
    due: float
    answered: float = 0.0
    status: int = 0
    clip_id: int | None = None
    attempts: int = 0


@dataclass
class Report:
    """What a run has shown."""

    seconds: float = 0.0
    sent: list[Sent] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    windows: list[tuple[float, float]] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # seconds, MB
    lost: int = 0
    doubled: int = 0
    unexpected: int = 0
    alarms: int = 0
    wrong_alarms: int = 0
    untold_alarms: int = 0
    left_messages: int = 0

    def quiet_seconds(self) -> list[float]:
        """Times to the answer of clips that no kill touched."""
        return sorted(
            each.answered - each.due
            for each in self.sent
            if each.status == 200
            and not any(begin <= each.answered and each.due <= end for begin, end in self.windows)
        )

    def figures(self) -> dict[str, object]:
        """The report in numbers."""
        quiet = self.quiet_seconds()
        third = max(1, len(self.memory) // 3)
        used = [mb for _, mb in self.memory]
        return {
            "minutes": round(self.seconds / 60, 1),
            "clips_answered": sum(each.status == 200 for each in self.sent),
            "refused_as_no_recording": sum(each.status == 400 for each in self.sent),
            "sent_again": sum(each.attempts > 1 for each in self.sent),
            "kills": dict(self.kills),
            "lost": self.lost,
            "doubled": self.doubled,
            "unexpected": self.unexpected,
            "alarms": self.alarms,
            "wrong_alarms": self.wrong_alarms,
            "alarms_without_message": self.untold_alarms,
            "messages_left": self.left_messages,
            "p50_s": round(quiet[len(quiet) // 2], 4) if quiet else None,
            "p99_s": round(quiet[int(0.99 * (len(quiet) - 1))], 4) if quiet else None,
            "clips_outside_kills": len(quiet),
            "memory_first_third_mb": round(statistics.median(used[:third])) if used else None,
            "memory_last_third_mb": round(statistics.median(used[-third:])) if used else None,
        }


class Soak:
    """A plant, its senders and its misfortunes."""

    def __init__(
        self, folder: Path, *, machines: int, rate: float, kill_every: float, database: str
    ) -> None:
        self.folder, self.rate, self.kill_every = folder, rate, kill_every
        self.names = [f"machine-{n:02}" for n in range(machines)]
        self.database_kind = database
        self.report = Report()
        self._random = random.Random(0)

    def run(self, minutes: float) -> Report:
        """Run for a while, and look at what is left."""
        with ExitStack() as stack:
            self.server = None
            url = f"sqlite:///{self.folder}/daco.db"
            if self.database_kind == "postgresql":
                # Durable, as it comes: what it has answered outlives its crash.
                self.server = stack.enter_context(postgres_server("-c max_connections=60"))
                url = self.server.new_database()
            self.broker = stack.enter_context(broker(self.folder))
            receiver = stack.enter_context(receiving())
            self.service = ServiceProcess(
                self.folder,
                {name: {"alarm": RULE, "recover": 2} for name in self.names},
                {"database": url},
                {"mqtt": self.broker.url, "webhook": receiver.url},
            )
            self.service.__enter__()
            stack.callback(lambda: self.service.__exit__())
            begun = time.monotonic()
            self.end_at = begun + 60 * minutes
            asyncio.run(self._live())
            self.report.seconds = time.monotonic() - begun
            with Store.open(url) as store, suppress(AssertionError):
                wait_until(lambda: not store.outbox.pending(), 60)
            self._examine(url, [json.loads(body) for _, body in receiver.accepted])
        return self.report

    async def _live(self) -> None:
        limits = httpx.Limits(max_connections=len(self.names) + 4)
        async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as client:
            self._client = client
            senders = [asyncio.create_task(self._send(n)) for n in range(len(self.names))]
            others = [asyncio.create_task(each) for each in (self._kill(), self._measure())]
            await asyncio.gather(*senders)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _send(self, number: int) -> None:
        """The clips of one machine: healthy ones, and now and then some with a fault."""
        rng = random.Random(number)
        name, spacing = self.names[number], len(self.names) / self.rate
        due = time.monotonic() + spacing * number / len(self.names)
        place, fault_until = 0, -1
        while due < self.end_at:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if place > fault_until + 6 and rng.random() < 0.1:
                fault_until = place + rng.randint(2, 5)
            data = faulty(place) if place <= fault_until else normal(place % 40)
            if rng.random() < 0.1:
                data = data[: rng.randint(10, 400)]
            await self._deliver(Sent(name, f"{name}-{place}", due), data)
            place += 1
            due = max(due + spacing, time.monotonic() - spacing)

    async def _deliver(self, sent: Sent, data: bytes) -> None:
        """Send until it is answered for good, with growing pauses; the order is kept."""
        headers = {"Content-Type": "audio/wav", "Idempotency-Key": sent.key}
        self.report.sent.append(sent)
        while sent.status not in (200, 400):
            sent.attempts += 1
            with suppress(httpx.HTTPError):
                path = f"{self.service.url}/v1/machines/{sent.machine}/score"
                answer = await self._client.post(path, content=data, headers=headers)
                sent.status, sent.answered = answer.status_code, time.monotonic()
                if sent.status == 200:
                    sent.clip_id = answer.json()["clip"]["id"]
                    return
            if sent.status != 400:
                await asyncio.sleep(min(2.0, 0.2 * sent.attempts))

    async def _kill(self) -> None:
        """Kill every part once, for which the end waits, and then more until the end is near."""
        planned, self.end_at = self.end_at, math.inf
        try:
            await self._kill_each()
        finally:
            self.end_at = max(planned, time.monotonic() + 2 * self.kill_every)
        while time.monotonic() < self.end_at - 2 * self.kill_every:
            await self._kill_each()

    async def _kill_each(self) -> None:
        for part in self._random.sample(PARTS, len(PARTS)):
            await asyncio.sleep(self.kill_every * self._random.uniform(0.7, 1.3))
            if time.monotonic() > self.end_at - 2 * self.kill_every:
                return
            begin = time.monotonic()
            await asyncio.to_thread(self._kill_part, part)
            self.report.windows.append((begin - 0.5, time.monotonic() + AFTER))

    def _kill_part(self, part: str) -> None:
        if part == "database" and self.server is None:
            return
        self.report.kills[part] += 1
        if part == "worker":
            workers = self.service.workers()
            if workers:
                os.kill(self._random.choice(workers), signal.SIGKILL)
        elif part == "broker":
            self.broker.kill()
            time.sleep(1.0)
            self.broker.start()
        elif part == "database":
            self.server.stop()
            time.sleep(1.0)
            self.server.start()
        else:
            port = self.service.port
            self.service.end(signal.SIGKILL)
            wait_until(lambda: not self.service.pids())
            text = (self.folder / "daco.toml").read_text("utf-8")
            address = f'address = "127.0.0.1:{port}"'
            (self.folder / "daco.toml").write_text(
                text.replace('address = "127.0.0.1:0"', address), "utf-8"
            )
            self.service.__enter__()
        self._wait_ready()

    def _wait_ready(self) -> None:
        def is_ready() -> bool:
            with suppress(httpx.HTTPError):
                return self.service.get("/healthz").status_code == 200
            return False

        wait_until(is_ready)

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(5.0)
            used = await asyncio.to_thread(lambda: sum(map(_megabytes, self.service.pids())))
            self.report.memory.append((time.monotonic(), used))

    def _examine(self, url: str, messages: list[dict]) -> None:
        report = self.report
        answered = [each for each in report.sent if each.status == 200]
        with Store.open(url) as store:
            clips = {name: _all_clips(store, name) for name in self.names}
            alarms = [alarm for name in self.names for alarm in store.alarms(name, limit=10_000)]
            report.left_messages = sum(store.outbox.pending().values())
        stored = Counter(clip.id for some in clips.values() for clip in some)
        ids = Counter(each.clip_id for each in answered)
        report.lost = sum(number not in stored for number in ids)
        report.doubled = sum(n > 1 for n in (*stored.values(), *ids.values()))
        report.unexpected = len(stored) - len(set(stored) & set(ids))
        expected = {(name, *each) for name, some in clips.items() for each in _openings(some)}
        found = {(each.machine, each.clip_id, each.clip_ids) for each in alarms if each.clip_id}
        report.alarms = len(found)
        report.wrong_alarms = len(expected ^ found)
        told = {each["data"]["alarm"]["id"] for each in messages if each["type"] == "alarm.opened"}
        report.untold_alarms = sum(each.id not in told for each in alarms)


def _all_clips(store: Store, machine: str) -> list:
    """The clips of a machine in the order of their arrival."""
    found: list = []
    while page := store.clips(machine, 10_000, after=found[-1].id if found else 0):
        found += reversed(page)
    return found


def _openings(clips: list) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The alarms that clips must raise by the rule: the last clip, and all that contribute."""
    rule, state = AlarmRule.parse(RULE, recovery=2), AlarmState()
    for clip in clips:
        if clip.state in ("normal", "anomalous"):
            state, event = advance(rule, state, Decision(clip.id, clip.anomalous))
            if isinstance(event, Opening):
                yield event.clip, event.contributing


def _megabytes(pid: int) -> float:
    """Private memory of a process and its share of common pages."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def soak(minutes: float, say: Callable[[str], None] = print, **options: object) -> Report:
    """Run a soak in a temporary folder, and tell its figures."""
    usual = {"machines": 20, "rate": 5.0, "kill_every": 20.0, "database": "postgresql"}
    with tempfile.TemporaryDirectory(prefix="daco-soak-") as folder:
        report = Soak(Path(folder), **usual | options).run(minutes)
    for name, value in report.figures().items():
        say(f"{name}: {value}")
    return report


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--rate", type=float, default=5.0, help="clips per second in all")
    parser.add_argument("--kill-every", type=float, default=20.0, help="seconds, on average")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="postgresql")
    given = vars(parser.parse_args())
    figures = soak(given.pop("minutes"), **given).figures()
    sys.exit(any(figures[name] for name in FAILURES))


if __name__ == "__main__":
    main()
