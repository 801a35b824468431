"""Recordings are read ahead, within bounds, and put into batches of one length."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_clips import FakeNet, make_clips

from daco.audio.decode import read_each
from daco.embedding.embed import embed_clips
from daco.embedding.loader import BatchBuffers, Loaded, batches, load_ahead, prefetch
from daco.embedding.shards import Recording, write_shard

PATIENCE = 60.0  # seconds; nothing waits this long unless it is broken


def loaded(row, length):
    return Loaded(row, Recording(0, 0, 0, ""), (np.zeros(length, np.float32),))


@given(st.lists(st.integers(1, 6), max_size=60), st.integers(1, 8))
def test_batches_hold_every_clip_once_one_length_each(lengths, batch_size):
    given_clips = [loaded(row, length) for row, length in enumerate(lengths)]
    made = list(batches(iter(given_clips), batch_size))
    assert sorted(each.row for batch in made for each in batch) == list(range(len(lengths)))
    for batch in made:
        assert 1 <= len(batch) <= batch_size
        assert len({each.waveforms[0].size for each in batch}) == 1


def test_long_clips_make_small_batches(monkeypatch):
    monkeypatch.setattr("daco.embedding.loader.MAX_SAMPLES", 1000)
    made = list(batches((loaded(row, 400) for row in range(6)), 32))
    assert [len(batch) for batch in made] == [2, 2, 2]


def test_few_clips_wait_where_every_length_is_another():
    waiting = most = 0

    def stream():
        nonlocal waiting, most
        for row in range(500):
            waiting += 1
            most = max(most, waiting)
            yield loaded(row, row + 1)

    for batch in batches(stream(), 8):
        waiting -= len(batch)
    assert most <= 4 * 8


def test_reading_runs_ahead_of_the_network_but_not_without_bounds():
    begun, lock = [], threading.Lock()

    def load(row, path):
        with lock:
            begun.append(row)
        return loaded(row, 10)

    items = ((row, Path()) for row in range(200))
    stream = load_ahead(items, load, workers=2, ahead=10, stop=threading.Event())
    assert next(stream).row == 0
    assert len(begun) <= 2  # they may be long
    assert next(stream).row == 1
    deadline = time.monotonic() + PATIENCE
    while len(begun) < 2 * 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 2 * 10 <= len(begun) <= 2 + 2 * 10 + 2
    assert [each.row for each in stream] == list(range(2, 200))


def test_few_long_recordings_are_read_ahead(monkeypatch):
    monkeypatch.setattr("daco.embedding.loader.MAX_SAMPLES", 1000)
    begun = []

    def load(row, path):
        begun.append(row)
        return loaded(row, 300)

    items = ((row, Path()) for row in range(50))
    stream = load_ahead(items, load, workers=2, ahead=10, stop=threading.Event())
    for taken in range(1, 51):
        next(stream)
        assert len(begun) <= taken + 3
    assert next(stream, None) is None


def test_a_set_stop_ends_the_reading():
    stop = threading.Event()
    items = ((row, Path()) for row in range(10_000))
    stream = load_ahead(items, lambda row, _: loaded(row, 10), workers=2, ahead=5, stop=stop)
    next(stream)
    stop.set()
    assert len(list(stream)) == 0
    assert not [each for each in threading.enumerate() if each.name.startswith("daco")]


def int16(values):
    return np.array(values, np.int16)


def test_16_bits_stay_as_they_are_or_are_scaled_like_the_others():
    plain = [int16([-32768, 1]), int16([32767, 0])]
    kept = BatchBuffers(int16=True).stack(plain)
    assert kept.dtype == np.int16
    assert kept.tolist() == [[-32768, 1], [32767, 0]]
    scaled = BatchBuffers(int16=False).stack(plain)
    assert scaled.dtype == np.float32
    assert scaled.tolist() == [[-1, 1 / 32768], [32767 / 32768, 0]]
    mixed = BatchBuffers(int16=True).stack([*plain, np.zeros(2, np.float32)])
    assert mixed.tolist() == [*scaled.tolist(), [0, 0]]


def test_a_batch_outlives_the_next_one():
    buffers = BatchBuffers(int16=True)
    before = buffers.stack([int16([0])])
    for value in range(1, 6):
        made = buffers.stack([int16([value] * (1 + value % 4))])
        assert before.tolist() == [[value - 1] * (1 + (value - 1) % 4)]
        before = made


def test_prefetched_items_come_in_order_and_then_the_error():
    def stream():
        yield from range(5)
        raise ValueError("the sixth")

    stop = threading.Event()
    found = prefetch(stream(), stop)
    assert [next(found) for _ in range(5)] == list(range(5))
    assert not stop.is_set()
    with pytest.raises(ValueError, match="the sixth"):
        next(found)
    assert stop.is_set()
    assert not [each for each in threading.enumerate() if each.name.startswith("daco")]


def test_reading_overlaps_computing(tmp_path):
    """The third batch is read while the first is computed: each waits for the other."""
    table = make_clips(tmp_path / "clips", 12)
    reading, computing, overlaps = threading.Event(), threading.Event(), []

    class Watching(FakeNet):
        def embed_many(self, waveforms, readouts):
            computing.set()
            overlaps.append(reading.wait(PATIENCE))
            return super().embed_many(waveforms, readouts)

    reads = itertools.count(1)

    def watched_read(*arguments, **options):
        if next(reads) == 9:
            assert computing.wait(PATIENCE)
            reading.set()
        return read_each(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daco.embedding.embed.read_each", watched_read)
        embed_clips(
            table, Watching(), tmp_path / "e.parquet", batch_size=4, workers=1, shard_size=4
        )
    assert overlaps == [True] * 3


def test_computing_goes_on_while_a_shard_is_written(tmp_path, monkeypatch):
    table = make_clips(tmp_path / "clips", 12)
    second_shard_begun, waited = threading.Event(), []

    class Watching(FakeNet):
        def embed_many(self, waveforms, readouts):
            if self.seen >= 4:
                second_shard_begun.set()
            return super().embed_many(waveforms, readouts)

    def slow_write(folder, shard):
        waited.append(second_shard_begun.wait(PATIENCE))
        write_shard(folder, shard)

    monkeypatch.setattr("daco.embedding.embed.write_shard", slow_write)
    embed_clips(table, Watching(), tmp_path / "e.parquet", batch_size=4, shard_size=4)
    assert waited == [True] * 3
