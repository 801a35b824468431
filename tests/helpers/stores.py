"""Both kinds of database, clips for a store, and a look at its tables past the store."""

from __future__ import annotations

from datetime import UTC, datetime

from postgres import new_database
from sqlalchemy import text

from daco.detector.verdict import Verdict
from daco.monitoring.store import NewClip
from daco.monitoring.store.database import open_database

START = datetime(2026, 3, 1, 12, tzinfo=UTC)

BACKENDS = ["sqlite", "postgresql"]


def new_url(backend, folder):
    """The URL of a database that nobody has used yet."""
    return f"sqlite:///{folder}/daco.db" if backend == "sqlite" else new_database()


def verdict(alarm=False, **changed):
    usual = {
        "name": "a.wav",
        "machine": "press",
        "score": 3.0 if alarm else 1.0,
        "p_value": 0.01 if alarm else 0.5,
        "alarm": alarm,
        "threshold": 2.5,
        "domain_weights": {"source": 0.25, "target": 0.75},
        "nearest": "normal_7.wav",
        "nearest_distance": 0.125,
        "reasons": ("clipped",),
        "seconds": 10.0,
        "windows": 1,
        "worst_window": None,
        "model_sha256": "ab" * 32,
        "state": "anomalous" if alarm else "normal",
    }
    return Verdict(**usual | changed)


def add(store, alarm=False, machine="press", at=START, **known):
    changed = known.pop("verdict", {})
    return store.add(NewClip(verdict(alarm, **changed), machine, at, **known))


def rows(url, table):
    database = open_database(url)
    try:
        with database.reading() as connection:
            return connection.execute(text(f"SELECT * FROM {table}")).mappings().all()
    finally:
        database.engine.dispose()
