"""Recordings are read ahead, within bounds, and put into batches of one length."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_clips import FakeNet, make_clips

from daco.embed import embed_clips
from daco.loader import Loaded, batches, load_ahead
from daco.shards import Recording


def loaded(row, length):
    return Loaded(row, Recording(0, 0, 0, ""), np.zeros(length, np.float32))


@given(st.lists(st.integers(1, 6), max_size=60), st.integers(1, 8))
def test_batches_hold_every_clip_once_one_length_each(lengths, batch_size):
    given_clips = [loaded(row, length) for row, length in enumerate(lengths)]
    made = list(batches(iter(given_clips), batch_size))
    assert sorted(each.row for batch in made for each in batch) == list(range(len(lengths)))
    for batch in made:
        assert 1 <= len(batch) <= batch_size
        assert len({each.waveform.size for each in batch}) == 1


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


def test_long_clips_make_small_batches(monkeypatch):
    monkeypatch.setattr("daco.loader.MAX_SAMPLES", 1000)
    made = list(batches((loaded(row, 400) for row in range(6)), 32))
    assert [len(batch) for batch in made] == [2, 2, 2]


def test_reading_runs_ahead_of_the_network_but_not_without_bounds():
    begun, lock = [], threading.Lock()

    def load(row, path):
        with lock:
            begun.append(row)
        return loaded(row, 10)

    stream = load_ahead(((row, Path()) for row in range(100)), load, workers=2, ahead=5)
    assert next(stream).row == 0
    assert next(stream).row == 1
    deadline = time.monotonic() + 5
    while len(begun) < 2 + 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 7 <= len(begun) <= 2 + 7
    assert [each.row for each in stream] == list(range(2, 100))


def test_reading_overlaps_computing(tmp_path):
    table = make_clips(tmp_path / "clips", 12)
    reading, computing, overlaps = threading.Event(), threading.Event(), []

    class Watching(FakeNet):
        def embed_many(self, waveforms, readouts):
            computing.set()
            reading.clear()
            if len(overlaps) < 2:  # the last batch has nothing left to read
                overlaps.append(reading.wait(5))
            computing.clear()
            return super().embed_many(waveforms, readouts)

    import daco.embed

    real = daco.embed.read_audio

    def slow_read(*arguments, **options):
        time.sleep(0.05)
        if computing.is_set():
            reading.set()
        return real(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daco.embed.read_audio", slow_read)
        embed_clips(
            table, Watching(), tmp_path / "e.parquet", batch_size=4, workers=1, shard_size=4
        )
    assert overlaps == [True, True]
