"""Cost of the store: clips per second going in, and pages out of a history of a million clips.

``python benchmarks/store.py`` prints the tables for SQLite and, where it is installed,
PostgreSQL, both with their durability as shipped.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

import numpy as np
from postgres import postgres_server

from daco.detector.verdict import Verdict
from daco.monitoring.store import NewClip, Store
from daco.monitoring.store.retention import prune

START = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 1000


def new_clip(number: int, alarm: bool, machine: str = "press") -> NewClip:
    """A clip every ten seconds, as long as a real one in the database."""
    verdict = Verdict(
        name=f"2026/press_{number:08d}.wav",
        machine=machine,
        score=1.0 + (number % 997) / 997,
        p_value=0.5,
        threshold=2.0,
        oddness=0.301,
        anomalous=alarm,
        domain_weights={"source": 0.123456789, "target": 0.876543211},
        nearest=f"section_00_source_train_normal_{number % 990:04d}_strength_1.wav",
        nearest_distance=0.123456789,
        reasons=(),
        seconds=10.0,
        windows=1,
        worst_window=None,
        model_sha256="ab" * 32,
        state="anomalous" if alarm else "normal",
    )
    at = START + timedelta(seconds=10 * number)
    path = f"/srv/recordings/{verdict.name}"
    return NewClip(verdict, machine, at, path, f"{number:064x}", path, at, f"320044:{number}")


def rate(function: Callable[[], object], count: int) -> str:
    start = time.perf_counter()
    function()
    return f"{count / (time.perf_counter() - start):,.0f} clips/s"


def timed(function: Callable[[], object], repeats: int = 30) -> str:
    """Median and worst in milliseconds, the first (cold) call included."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        took.append(1000 * (time.perf_counter() - start))
    return f"{statistics.median(took):.1f} ms (worst {max(took):.1f})"


def measure(name: str, url: str, clips: int, size: Callable[[], int]) -> None:
    rng = np.random.default_rng(0)
    with Store.open(url, receivers=lambda machine, kind: ["webhook"]) as store:
        singles = [new_clip(i, False, "fan") for i in range(1000)]
        print(
            f"{name}: add, one transaction each, with messages",
            rate(lambda: [store.add_many([clip]) for clip in singles], 1000),
            sep=" | ",
        )
    with Store.open(url) as store:
        singles = [new_clip(i, False, "saw") for i in range(1000)]
        print(
            f"{name}: add, one transaction each",
            rate(lambda: [store.add_many([clip]) for clip in singles], 1000),
            sep=" | ",
        )
        alarms = rng.random(clips) < 0.1

        def fill() -> None:
            for start in range(0, clips, BATCH):
                store.add_many([new_clip(i, bool(alarms[i])) for i in range(start, start + BATCH)])

        print(f"{name}: add_many, {BATCH} at a time", rate(fill, clips), sep=" | ")
    with Store.open(url) as store:  # a new connection: nothing is cached by us
        last = store.clips("press", 1)[0].id
        now = START + timedelta(seconds=10 * clips)
        for what, query in {
            "newest 100": lambda: store.clips("press", 100),
            "100 in the middle": lambda: store.clips("press", 100, before=last // 2),
            "oldest 100": lambda: store.clips("press", 100, before=2200),
            "since a day, 100": lambda: store.clips("press", 100, since=now - timedelta(days=1)),
            "since the beginning, 100": lambda: store.clips("press", 100, since=START),
            "newest 1000": lambda: store.clips("press", 1000),
            "after, 100": lambda: store.clips("press", 100, after=last - 100),
            "one clip": lambda: store.clip(last // 2),
            "machines": store.machines_summary,
            "newest 100 alarms": lambda: store.alarms("press", limit=100),
            "open alarms": lambda: store.alarms(open_only=True),
            "all days": lambda: store.trend("press", "day"),
            "all hours": lambda: store.trend("press", "hour"),
            "nothing new": lambda: store.changes(store.changes().last),
        }.items():
            print(f"{name}: {what}", timed(query), sep=" | ")
        start = time.perf_counter()
        keys = [new_clip(i, False).source_key for i in range(clips)]
        known = len(store.sources("press", keys))
        print(f"{name}: all {known:,} sources", f"{time.perf_counter() - start:.1f} s", sep=" | ")
        print(f"{name}: size", f"{size() / clips:.0f} bytes/clip", sep=" | ")
        start = time.perf_counter()
        keep = timedelta(days=9 * clips / 86400)
        pruned = prune(store.database, lambda machine: keep, now=now).clips
        print(f"{name}: prune {pruned:,}", f"{time.perf_counter() - start:.1f} s", sep=" | ")


@contextmanager
def places(only: str | None):
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        if only in (None, "sqlite"):
            path = Path(folder) / "daco.db"
            found["SQLite"] = (f"sqlite:///{path}", lambda: path.stat().st_size)
        if only in (None, "postgresql"):
            with postgres_server(options="") as server:
                data = server.folder / "data" / "base"
                size = lambda: sum(f.stat().st_size for f in data.rglob("*") if f.is_file())  # noqa: E731
                found["PostgreSQL"] = (server.new_database(), size)
                yield found
        else:
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    chosen = parser.parse_args()
    with places(chosen.only) as found:
        for name, (url, size) in found.items():
            measure(name, url, chosen.clips, size)


if __name__ == "__main__":
    main()
