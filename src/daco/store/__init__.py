"""Storage of judged clips and alarms in SQLite or PostgreSQL: ``Store.open`` a URL.

SQLAlchemy Core, no ORM. SQLite is for one computer (WAL does not work on network drives);
PostgreSQL needs its driver, ``pip install "psycopg[binary]"``.
"""

from __future__ import annotations

from daco.errors import MissingExtraError

try:
    import sqlalchemy  # noqa: F401
except ImportError:
    raise MissingExtraError(
        'Storing results needs SQLAlchemy: pip install "daco-asd[serve]".'
    ) from None

from daco.store.engine import StoreError
from daco.store.outbox import EVENTS, Delivery, Outbox
from daco.store.records import Added, MachineSummary, NewClip, Source, StoredAlarm, StoredClip
from daco.store.retention import Pruned
from daco.store.store import Store

__all__ = [
    "EVENTS",
    "Added",
    "Delivery",
    "MachineSummary",
    "NewClip",
    "Outbox",
    "Pruned",
    "Source",
    "Store",
    "StoreError",
    "StoredAlarm",
    "StoredClip",
]
