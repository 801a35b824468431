"""Storage of judged clips and alarms in SQLite or PostgreSQL: ``Store.open`` a URL.

Read `records` (the values), `schema` (the tables), `database`, `reading`, `writing` (clips and
their alarms), `people` (what they do), `outbox` (messages), `retention`, then `store`. SQLAlchemy
Core, no ORM. SQLite is for one computer (WAL does not work on network drives).
"""

from daco.errors import MissingExtraError

try:
    import sqlalchemy  # noqa: F401
except ImportError:
    raise MissingExtraError(
        'Storing results needs SQLAlchemy: pip install "daco-asd[serve]".'
    ) from None

from daco.monitoring.store.outbox import Delivery, Outbox
from daco.monitoring.store.records import (
    BusyError,
    Changes,
    ConflictError,
    MachineSummary,
    MissingRowError,
    NewClip,
    Outcome,
    Person,
    Recording,
    StoredAlarm,
    StoredClip,
    StoreError,
)
from daco.monitoring.store.store import Store

__all__ = [
    "BusyError",
    "Changes",
    "ConflictError",
    "Delivery",
    "MachineSummary",
    "MissingRowError",
    "NewClip",
    "Outbox",
    "Outcome",
    "Person",
    "Recording",
    "Store",
    "StoreError",
    "StoredAlarm",
    "StoredClip",
]
