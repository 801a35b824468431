"""Both kinds of database, clips for a store, and a look at its tables past the store."""

from __future__ import annotations

from datetime import UTC, datetime

from postgres import new_database
from sqlalchemy import text

from daco.detector.verdict import Verdict
from daco.monitoring.alarms import AlarmRule
from daco.monitoring.store import NewClip, Person, Store
from daco.monitoring.store.database import open_database

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
KIM = Person("Kim", "operator")
BACKENDS = ["sqlite", "postgresql"]


def new_url(backend, folder):
    """The URL of a database that nobody has used yet."""
    return f"sqlite:///{folder}/daco.db" if backend == "sqlite" else new_database()


def opened(url, rule="2 of 3", receivers=("mail", "hook"), **options):
    """A store with one rule for all machines, whose receivers get every message."""
    return Store.open(
        url,
        rules=lambda machine: AlarmRule.parse(rule),
        receivers=lambda machine, kind: receivers,
        **options,
    )


def verdict(anomalous=False, **changed):
    """A verdict; its state may be given."""
    usual = {
        "name": "a.wav",
        "machine": "press",
        "score": 3.0 if anomalous else 1.0,
        "p_value": 0.01 if anomalous else 0.5,
        "oddness": 2.0 if anomalous else 0.301,
        "anomalous": anomalous,
        "threshold": 2.5,
        "domain_weights": {"source": 0.25, "target": 0.75},
        "nearest": "normal_7.wav",
        "nearest_distance": 0.125,
        "reasons": ("clipped",),
        "seconds": 10.0,
        "windows": 1,
        "worst_window": None,
        "model_sha256": "ab" * 32,
        "state": "anomalous" if anomalous else "normal",
    }
    return Verdict(**usual | changed)


def new_clip(anomalous=False, machine="press", at=START, **known):
    """A clip to store; the verdict's fields are given as a dict of that name."""
    return NewClip(verdict(anomalous, **known.pop("verdict", {})), machine, at, **known)


def add(store, anomalous=False, **known):
    """Store one clip."""
    return store.add(new_clip(anomalous, **known))


def rows(url, table):
    """All rows of a table."""
    database = open_database(url)
    try:
        with database.reading() as connection:
            return connection.execute(text(f"SELECT * FROM {table}")).mappings().all()
    finally:
        database.engine.dispose()
