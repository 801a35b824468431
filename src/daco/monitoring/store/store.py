"""Store: judged clips, the alarms they raised, and the messages still to be delivered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from sqlalchemy import Select, case, func, select

from daco.errors import InputError
from daco.monitoring.alarms import AlarmRule
from daco.monitoring.store import retention, writing
from daco.monitoring.store.database import Database, chunks, open_database
from daco.monitoring.store.outbox import EVENTS, Outbox
from daco.monitoring.store.records import (
    ALARMS,
    CLIPS,
    Added,
    MachineSummary,
    NewClip,
    Source,
    StoredAlarm,
    StoredClip,
    read_alarms,
    read_clips,
)
from daco.monitoring.store.schema import alarms, clips, machines, migrate, sources

LARGEST_PAGE = 10_000


@dataclass(frozen=True)
class Store:
    """A database of judged clips and alarms; safe to share between threads and processes.

    Examples
    --------
    >>> import tempfile
    >>> from daco.detector.verdict import Verdict
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store.open(f"sqlite:///{folder.name}/daco.db", rule=AlarmRule(1, 2))
    >>> verdict = Verdict(
    ...     name="a.wav", machine="press", score=3.2, p_value=0.01, alarm=True, threshold=2.5,
    ...     domain_weights={"source": 1.0}, nearest="normal.wav", nearest_distance=0.1,
    ...     reasons=(), seconds=10.0, windows=1, worst_window=None, model_sha256="ab12",
    ... )
    >>> new = NewClip(verdict, "press", datetime(2026, 3, 1, tzinfo=UTC), source_key="a.wav")
    >>> store.add(new)
    Added(clip_id=1, opened=1, recovered=())
    >>> store.add(new) is None
    True
    >>> [(clip.id, clip.score) for clip in store.clips("press")]
    [(1, 3.2)]
    >>> store.acknowledge(1, "Kim", "loose belt").closed_by
    'acknowledgement'
    >>> store.close(); folder.cleanup()
    """

    database: Database
    policy: writing.Policy

    @classmethod
    def open(cls, url: str, *, rule: AlarmRule | None = None, events: Collection[str] = ()) -> Self:
        """Open the store of a URL; its tables are created, or brought to this version's schema.

        Parameters
        ----------
        url : str
            ``sqlite:///daco.db`` (see `daco.monitoring.store.database` for ``synchronous``) or
            ``postgresql://user@host/name``.
        rule : AlarmRule, optional
            When clips become an alarm; 3 of 5 by default.
        events : collection of str
            Which of `EVENTS` are put into the outbox.
        """
        unknown = set(events) - set(EVENTS)
        if unknown:
            raise InputError(f"An event is one of {', '.join(EVENTS)}. Got {sorted(unknown)}.")
        database = open_database(url)
        try:
            migrate(database)
        except BaseException:
            database.engine.dispose()
            raise
        return cls(database, writing.Policy(rule or AlarmRule(), frozenset(events)))

    def close(self) -> None:
        """Close all connections."""
        self.database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Raise a `StoreError` unless the database can be read and written now."""
        self.database.check()

    @property
    def outbox(self) -> Outbox:
        """Messages that are still to be delivered."""
        return Outbox(self.database)

    def add(self, new: NewClip) -> Added | None:
        """Store one clip; None when its source was stored before."""
        return self.add_many([new])[0]

    def add_many(self, new: Sequence[NewClip]) -> list[Added | None]:
        """Store clips in one transaction: all of them or, if anything goes wrong, none.

        Alarms are opened and closed in the same transaction, by the clips in their order.
        """
        with self.database.writing() as connection:
            return writing.add_clips(connection, self.policy, new)

    def reject(
        self, machine: str, source_key: str, *, name: str, stamp: str, reason: str, at: datetime
    ) -> None:
        """Remember that a source is not a usable recording while it has this stamp.

        `name` is what messages call the recording.
        """
        with self.database.writing() as connection:
            source = {"source_key": source_key, "stamp": stamp, "reason": reason}
            writing.reject_source(connection, self.policy, machine, source, name=name, at=at)

    def restamp(self, machine: str, source_key: str, stamp: str) -> None:
        """Record another stamp for a source whose recording is unchanged."""
        with self.database.writing() as connection:
            writing.restamp_source(connection, machine, source_key, stamp)

    def sources(self, machine: str, keys: Sequence[str]) -> list[Source]:
        """Those of these sources of a machine that were processed."""
        columns = [sources.c[name] for name in Source.__dataclass_fields__]
        query = select(*columns).where(sources.c.machine_id == _id_of(machine))
        with self.database.reading() as connection:
            return [
                Source(*row)
                for some in chunks(keys)
                for row in connection.execute(query.where(sources.c.source_key.in_(some)))
            ]

    def forget_sources(self, machine: str, prefix: str, is_gone: Callable[[str], bool]) -> int:
        """Forget sources that are gone and have no clip any more; return how many.

        `is_gone` is called with each key that begins with `prefix` and has no clip. A source that
        still exists must stay known, or it would be judged again.
        """
        return retention.forget_sources(self.database, machine, prefix, is_gone)

    def clips(
        self,
        machine: str,
        limit: int = 100,
        *,
        before: int | None = None,
        after: int | None = None,
        since: datetime | None = None,
    ) -> list[StoredClip]:
        """A page of a machine's history, the newest first.

        Parameters
        ----------
        machine : str
        limit : int
            Clips of the page, at most 10,000.
        before : int, optional
            Only smaller ids; the last id of a page is the `before` of the next.
        after : int, optional
            The first `limit` clips with larger ids. None is missed: within a machine, ids become
            visible in their order.
        since : datetime, optional
            Only clips that were received at that time or later.
        """
        with self.database.reading() as connection:
            own = clips.c.machine_id == _id_of(machine)
            query = CLIPS.where(own).limit(_page(limit))
            if before is not None:
                query = query.where(clips.c.id < before)
            if since is not None:
                query = query.where(clips.c.received_at >= since)
            if after is not None:
                query = query.where(clips.c.id > after).order_by(clips.c.id)
                return read_clips(connection, query)[::-1]
            query = query.order_by(clips.c.id.desc())
            if since is None:
                return read_clips(connection, query)
            # The next clips by id hold enough clips of that time, unless it is nearly over. Then
            # the smallest id of that time, by the index on times, bounds the search.
            newest = select(clips.c.id).where(own).order_by(clips.c.id.desc())
            if before is not None:
                newest = newest.where(clips.c.id < before)
            edge = connection.scalar(newest.offset(4 * limit).limit(1))
            if edge is None:
                return read_clips(connection, query)
            page = read_clips(connection, query.where(clips.c.id >= edge))
            if len(page) == limit:
                return page
            first = select(func.min(clips.c.id)).where(own, clips.c.received_at >= since)
            return read_clips(connection, query.where(clips.c.id >= first.scalar_subquery()))

    def clip(self, clip_id: int) -> StoredClip | None:
        """A clip by its id; None where there is no such clip."""
        return self._first_clip(CLIPS.where(clips.c.id == clip_id))

    def clip_of(self, machine: str, source_key: str) -> StoredClip | None:
        """The clip of a source of a machine; None where there is none, or no longer."""
        clip_id = select(sources.c.clip_id).where(
            sources.c.machine_id == _id_of(machine), sources.c.source_key == source_key
        )
        return self._first_clip(CLIPS.where(clips.c.id == clip_id.scalar_subquery()))

    def _first_clip(self, query: Select[Any]) -> StoredClip | None:
        with self.database.reading() as connection:
            return next(iter(read_clips(connection, query)), None)

    def machines_summary(self) -> list[MachineSummary]:
        """A summary of every machine, by name."""
        count = select(alarms.c.machine_id, func.count()).where(alarms.c.closed_at.is_(None))
        with self.database.reading() as connection:
            # Sorted here: databases differ in how they order text.
            rows = sorted(connection.execute(select(machines)), key=lambda row: str(row.name))
            open_alarms: dict[int, int] = {
                row[0]: row[1] for row in connection.execute(count.group_by(alarms.c.machine_id))
            }
            last_ids = [row.last_clip_id for row in rows if row.last_clip_id]
            newest = read_clips(connection, CLIPS.where(clips.c.id.in_(last_ids)))
        last = {clip.id: clip for clip in newest}
        return [
            MachineSummary(
                row.name,
                row.clips,
                row.anomalous,
                open_alarms.get(row.id, 0),
                last.get(row.last_clip_id),
            )
            for row in rows
        ]

    def counts_since(self, since: datetime) -> dict[str, tuple[int, int]]:
        """By machine, how many clips were received since a time, and how many were anomalous."""
        anomalous = func.coalesce(func.sum(case((clips.c.anomalous, 1), else_=0)), 0)
        count = select(func.count(), anomalous).where(clips.c.received_at >= since)
        counts = {}
        with self.database.reading() as connection:
            for number, name in connection.execute(select(machines.c.id, machines.c.name)).all():
                # Machine by machine: the index on times starts with the machine.
                row = connection.execute(count.where(clips.c.machine_id == number)).one()
                counts[name] = (int(row[0]), int(row[1]))
        return counts

    def alarms(
        self,
        machine: str | None = None,
        *,
        open_only: bool = False,
        limit: int = 100,
        before: int | None = None,
    ) -> list[StoredAlarm]:
        """A page of alarms, the newest first; of all machines by default."""
        query = ALARMS.order_by(alarms.c.id.desc()).limit(_page(limit))
        if machine is not None:
            query = query.where(alarms.c.machine_id == _id_of(machine))
        if open_only:
            query = query.where(alarms.c.closed_at.is_(None))
        if before is not None:
            query = query.where(alarms.c.id < before)
        with self.database.reading() as connection:
            return read_alarms(connection, query)

    def alarm(self, alarm_id: int) -> StoredAlarm | None:
        """An alarm by its id; None where there is no such alarm."""
        with self.database.reading() as connection:
            query = ALARMS.where(alarms.c.id == alarm_id)
            return next(iter(read_alarms(connection, query)), None)

    def acknowledge(
        self, alarm_id: int, who: str, comment: str = "", *, at: datetime | None = None
    ) -> StoredAlarm:
        """Record that a person takes care of an alarm; it is closed if it is open.

        The first acknowledgement stays; later ones return it unchanged.
        """
        with self.database.writing() as connection:
            return writing.acknowledge_alarm(
                connection, alarm_id, who, comment, at or datetime.now(UTC)
            )

    def prune(
        self, keep_days: float, *, machine: str | None = None, now: datetime | None = None
    ) -> retention.Pruned:
        """Remove old clips, with the alarms they completed and the messages about them.

        Open alarms and their clips stay. Processed sources stay known until `forget_sources`, so
        that no recording is judged again. Recordings on disk are not touched.

        Parameters
        ----------
        keep_days : float
            Clips that were received earlier are removed, and so are messages, delivered or not.
        machine : str, optional
            Only this machine.
        now : datetime, optional
        """
        if keep_days < 0:
            raise InputError(f"The 'keep_days' of prune must be >= 0. Got {keep_days!r} instead.")
        oldest = (now or datetime.now(UTC)) - timedelta(days=keep_days)
        return retention.prune(self.database, oldest, machine)


def _id_of(machine: str) -> Any:
    return select(machines.c.id).where(machines.c.name == machine).scalar_subquery()


def _page(limit: int) -> int:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InputError(f"A page holds 1 to {LARGEST_PAGE:,} rows. Got {limit!r} instead.")
    return limit
