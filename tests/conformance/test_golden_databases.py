"""Databases that an earlier version wrote are read with what was put into them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from postgres import new_database
from sqlalchemy import create_engine
from stores import BACKENDS, START, add, opened

from daco.monitoring.store import Store
from daco.monitoring.store.records import Source

GOLDEN = Path(__file__).parent.parent / "golden" / "databases"
MINUTE = timedelta(minutes=1)


def loaded(backend, folder):
    """The URL of a database with the content of a golden file."""
    dump = (GOLDEN / f"{backend}.sql").read_text()
    if backend == "sqlite":
        with closing(sqlite3.connect(folder / "daco.db")) as connection:
            connection.executescript(dump)
        return f"sqlite:///{folder}/daco.db"
    url = new_database()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(dump.replace("%", "%%"))
    engine.dispose()
    return url


@pytest.fixture(params=BACKENDS)
def url(request, tmp_path):
    return loaded(request.param, tmp_path)


def test_every_table_is_read_as_it_was_written(url):
    with Store.open(url, create=False) as store:
        fan, press = store.machines_summary()
        assert (fan.machine, fan.out_of_service_by) == ("fan", "Kim")
        assert (fan.clips, fan.open_alarms) == (1, 0)
        assert (press.clips, press.anomalous, press.open_alarms) == (7, 3, 2)
        clips = store.clips("press")[::-1]
        assert [clip.name for clip in clips] == [f"{row}.wav" for row in range(6)] + ["a.wav"]
        odd = clips[3]
        assert (odd.state, odd.answer, odd.anomalous) == ("anomalous", "fault", True)
        assert (odd.score, odd.p_value, odd.oddness, odd.threshold) == (3.0, 0.01, 2.0, 2.5)
        assert odd.domain_weights == {"source": 0.25, "target": 0.75}
        assert (odd.views, odd.basis, odd.reasons) == ({"mod": 1.5}, "of 60 normals", ("clipped",))
        assert odd.findings == [{"kind": "tone", "text": "A tone at 5 kHz."}]
        assert (odd.received_at, odd.recorded_at) == (START + 3 * MINUTE, START - 57 * MINUTE)
        assert clips[2].findings is None
        assert store.clips("fan")[0].seconds is None
        whole, silent, fault = store.alarms()
        assert (fault.kind, fault.rule) == ("fault", "2 of 3")
        assert (fault.clip_ids, fault.n_clips) == ((3, 4), 3)
        assert (fault.answer, fault.acknowledged_by, fault.comment) == ("fault", "Kim", "bearing 2")
        assert (silent.machine, silent.detail) == ("press", "Nothing came.")
        assert (whole.machine, whole.kind) == (None, "daco")
        assert store.open_causes() == [
            ("press", "no recordings", "recordings"),
            (None, "daco", "disk"),
        ]
        assert store.sources("press", ["in/x.wav", "in/0.wav"]) == [
            Source("in/0.wav", "0:1:1", f"{0:064x}", 1, None),
            Source("in/x.wav", "9:9:9", None, None, "It is empty."),
        ]
        (note,) = store.notes("press")
        assert note.text == "bearing changed: Lager getauscht \u2013 100 \u00b5m"
        assert note.at == START
        actions = ["declare healthy", "out of service", "note", "answer fault", "acknowledge"]
        assert [each.action for each in store.audit()] == actions
        assert [point.clips for point in store.trend("press", "hour")] == [6, 1]
        learned = store.adaptations()["press"]
        assert (learned.left, learned.declared_by, learned.model_sha256) == (19, "Kim", "ab" * 32)
        assert store.outbox.pending() == {"hook": 11, "mail": 10}
        (refused,) = store.outbox.refused()
        assert (refused.kind, refused.last_error) == ("alarm.opened", "answered 410")


def test_it_goes_on_where_it_ended(url):
    with opened(url) as store:
        last = store.changes().last
        assert add(store, source_key="in/3.wav", audio_sha256=f"{3:064x}", stamp="3:1:1").known
        outcome = add(store, True, source_key="new.wav")
        assert outcome.clip.id == 9
        assert [clip.id for clip in store.changes(last).clips] == [9]
        store.check()
