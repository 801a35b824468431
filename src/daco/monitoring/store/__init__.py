"""Storage of judged clips and alarms in SQLite or PostgreSQL: ``Store.open`` a URL.

Read `records` (the values), `schema` (the tables), `writing` (one transaction per batch of
clips), `people` (what they say), then `store`. SQLAlchemy Core, no ORM. SQLite is for one computer
(WAL does not work on network drives); PostgreSQL needs ``pip install "psycopg[binary]"``.
"""

from daco.errors import MissingExtraError

try:
    import sqlalchemy  # noqa: F401
except ImportError:
    raise MissingExtraError(
        'Storing results needs SQLAlchemy: pip install "daco-asd[serve]".'
    ) from None

from daco.monitoring.store.database import StoreError
from daco.monitoring.store.outbox import CLIP_SCORED, EVENTS, Delivery, Outbox
from daco.monitoring.store.records import Addition, MachineSummary, NewClip, StoredAlarm, StoredClip
from daco.monitoring.store.store import Store

__all__ = [
    "CLIP_SCORED",
    "EVENTS",
    "Addition",
    "Delivery",
    "MachineSummary",
    "NewClip",
    "Outbox",
    "Store",
    "StoreError",
    "StoredAlarm",
    "StoredClip",
]
