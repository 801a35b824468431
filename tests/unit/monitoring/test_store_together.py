"""Several processes and threads at one store, and processes that are killed while they write."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import stores
from stores import START, add, rows, verdict

from daco.monitoring.store import NewClip, Store

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(stores.__file__).parent)}

WRITER = """
import random, sys
from datetime import UTC, datetime
from daco.monitoring.store import NewClip, Store
from stores import verdict

given = verdict(True)
numbers = list(range(60))
random.Random(int(sys.argv[2])).shuffle(numbers)
added = 0
with Store.open(sys.argv[1], events=("alarm.opened",)) as store:
    while numbers:
        three, numbers = numbers[:3], numbers[3:]
        batch = [NewClip(given, f"m{i % 2}", datetime.now(UTC), str(i)) for i in three]
        added += sum(each is not None for each in store.add_many(batch))
print(added)
"""


def test_processes_that_store_the_same_recordings_store_each_once(url):
    """They also open the database at once, while it is still empty."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(seed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for seed in range(3)
    ]
    finished = [writer.communicate(timeout=60) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], finished
    assert sum(int(out) for out, _ in finished) == 60
    with Store.open(url) as store:
        assert [(each.clips, each.anomalous) for each in store.machines_summary()] == [(30, 30)] * 2
        assert len({clip.id for name in ("m0", "m1") for clip in store.clips(name)}) == 60
        for machine in ("m0", "m1"):  # whose clips never were normal: one alarm that stays open
            (alarm,) = store.alarms(machine)
            clips = [clip.id for clip in store.clips(machine)][::-1]
            assert alarm.clip_ids == tuple(clips[:3])
        assert store.outbox.pending() == 2


def test_threads_share_one_store(url):
    errors = []

    def work(seed):
        try:
            for number in random.Random(seed).sample(range(40), 40):
                add(store, source_key=str(number), at=START + timedelta(seconds=number))
                store.clips("press", 5)
        except Exception as error:
            errors.append(error)

    with Store.open(url) as store:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert [each.clips for each in store.machines_summary()] == [40]
        assert len(store.clips("press")) == 40


BATCHES = """
import sys
from datetime import UTC, datetime
from daco.monitoring.alarms import AlarmRule
from daco.monitoring.store import EVENTS, NewClip, Store

from stores import verdict

store = Store.open(sys.argv[1], rule=AlarmRule.parse("off"), events=EVENTS)
for batch in range(1000):
    given = verdict(True, name=f"{sys.argv[2]}-{batch}")
    keys = [f"{given.name}-{i}" for i in range(100)]
    store.add_many([NewClip(given, "press", datetime.now(UTC), key) for key in keys])
    print(batch, flush=True)
"""


def test_a_kill_in_the_middle_of_a_batch_leaves_all_of_it_or_nothing(url):
    Store.open(url).close()
    moments = random.Random(0)
    for kill in range(4):
        arguments = [sys.executable, "-c", BATCHES, url, str(kill)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=ENVIRONMENT) as writer:
            for _ in range(1 + kill):
                assert writer.stdout.readline()
            time.sleep(moments.uniform(0, 0.1))  # into the next batch
            writer.kill()
    clips = rows(url, "daco_clips")
    counts = Counter(clip["name"] for clip in clips)
    assert counts  # some batches had been finished
    assert set(counts.values()) == {100}
    assert len(rows(url, "daco_sources")) == len(clips)
    assert len(rows(url, "daco_alarms")) == len(clips)
    assert len(rows(url, "daco_outbox")) == 2 * len(clips)
    with Store.open(url) as store:
        assert [each.clips for each in store.machines_summary()] == [len(clips)]


def test_two_takers_never_hold_the_same_message(url):
    with Store.open(url, events=["clip.scored"]) as store:
        store.add_many([NewClip(verdict(), "press", START) for _ in range(60)])
        taken = []

        def work():
            while delivery := store.outbox.take(60):
                taken.append(delivery.key)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == len(set(taken)) == 60
