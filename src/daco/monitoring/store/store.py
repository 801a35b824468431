"""Store: judged clips, the alarms they raised, and the messages still to be delivered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from sqlalchemy import Select, case, delete, exists, func, select, update

from daco.detector.verdict import Verdict
from daco.errors import InputError
from daco.monitoring.alarms import AlarmRule
from daco.monitoring.store.database import Database, chunks, open_database
from daco.monitoring.store.outbox import EVENTS, RECORDING_UNREADABLE, Outbox, post
from daco.monitoring.store.people import People, acknowledge
from daco.monitoring.store.records import (
    ALARMS,
    CLIPS,
    KEY,
    NAME,
    TEXT,
    Addition,
    MachineSummary,
    NewClip,
    Removal,
    Source,
    StoredAlarm,
    StoredClip,
    check_text,
    read_alarms,
    read_clips,
)
from daco.monitoring.store.schema import (
    alarm_clips,
    alarms,
    answers,
    clips,
    machines,
    migrate,
    outbox,
    sources,
)
from daco.monitoring.store.writing import adapted_verdict, add_clips, lock_machine, save_sources

LARGEST_PAGE = 10_000

_STEP = 5_000  # rows removed in one transaction, so that other writers wait for milliseconds only


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
    ...     state="anomalous",
    ... )
    >>> new = NewClip(verdict, "press", datetime(2026, 3, 1, tzinfo=UTC), source_key="a.wav")
    >>> store.add(new)
    Addition(clip_id=1, opened=1, recovered=())
    >>> store.add(new) is None
    True
    >>> [(clip.id, clip.score) for clip in store.clips("press")]
    [(1, 3.2)]
    >>> store.acknowledge(1, "Kim", "loose belt").closed_by
    'acknowledgement'
    >>> store.close(); folder.cleanup()
    """

    database: Database
    rule: AlarmRule
    events: frozenset[str]

    @classmethod
    def open(cls, url: str, *, rule: AlarmRule | None = None, events: Collection[str] = ()) -> Self:
        """Open the store of a URL; its tables are created, or updated to this version.

        Parameters
        ----------
        url : str
            ``sqlite:///daco.db`` (see `daco.monitoring.store.database` for ``synchronous``) or
            ``postgresql://user@host/name``.
        rule : AlarmRule, optional
            When clips become an alarm; 3 of 5 by default.
        events : collection of str
            Which of `EVENTS` are put into the outbox, for webhooks.
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
        return cls(database, rule or AlarmRule(), frozenset(events))

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

    @property
    def people(self) -> People:
        """The answers and notes of people about clips, alarms and machines."""
        return People(self.database)

    def preview(self, new: NewClip) -> Verdict:
        """Judge a clip as if it was stored now, adapted if it has a calibration."""
        return adapted_verdict(new, self.people.adaptation(new.machine))

    def add(self, new: NewClip) -> Addition | None:
        """Store one clip; return None if its source was stored before."""
        return self.add_many([new])[0]

    def add_many(self, new: Sequence[NewClip]) -> list[Addition | None]:
        """Store clips in one transaction: all of them or, if anything goes wrong, none.

        Alarms are opened and closed in the same transaction, by the clips in their order.
        """
        with self.database.writing() as connection:
            return add_clips(connection, self.rule, self.events, new)

    def reject(
        self, machine: str, source_key: str, *, name: str, stamp: str, reason: str, at: datetime
    ) -> None:
        """Remember that a source is not a usable recording while it has this stamp.

        Its last clip stays known. `name` is what messages call the recording.
        """
        check_text("source_key", source_key, KEY)
        check_text("name", name, NAME)
        check_text("reason", reason, TEXT)
        with self.database.writing() as connection:
            number = lock_machine(connection, machine).id
            row = {"machine_id": number, "source_key": source_key, "stamp": stamp, "reason": reason}
            save_sources(connection, [row], "stamp", "reason")
            if RECORDING_UNREADABLE in self.events:
                about = {"machine": machine, "name": name, "reason": reason}
                post(connection, number, [(RECORDING_UNREADABLE, at, about)])

    def restamp(self, machine: str, source_key: str, stamp: str) -> None:
        """Record another stamp for a source whose recording is unchanged."""
        with self.database.writing() as connection:
            own = sources.c.machine_id == lock_machine(connection, machine).id
            source = update(sources).where(own, sources.c.source_key == source_key)
            connection.execute(source.values(stamp=stamp, reason=None))

    def sources(self, machine: str, keys: Sequence[str]) -> list[Source]:
        """Return those of these sources of a machine that were processed before."""
        columns = [sources.c[name] for name in Source.__dataclass_fields__]
        query = select(*columns).where(sources.c.machine_id == _id_of(machine))
        with self.database.reading() as connection:
            return [
                Source(*row)
                for some in chunks(keys)
                for row in connection.execute(query.where(sources.c.source_key.in_(some)))
            ]

    def clips(
        self,
        machine: str,
        limit: int = 100,
        *,
        before: int | None = None,
        after: int | None = None,
        since: datetime | None = None,
    ) -> list[StoredClip]:
        """Return a page of a machine's history, the newest clip first.

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
        own = [clips.c.machine_id == _id_of(machine)]
        if before is not None:
            own.append(clips.c.id < before)
        query = CLIPS.where(*own).limit(_page(limit))
        if since is not None:
            query = query.where(clips.c.received_at >= since)
        newest_first = clips.c.id.desc()
        with self.database.reading() as connection:
            if after is not None:
                query = query.where(clips.c.id > after).order_by(clips.c.id)
                return read_clips(connection, query)[::-1]
            query = query.order_by(newest_first)
            if since is None:
                return read_clips(connection, query)
            # The next clips by id hold enough clips of that time, unless it is nearly over. Then
            # the smallest id of that time, by the index on times, bounds the search.
            ids = select(clips.c.id).where(*own).order_by(newest_first)
            edge = connection.scalar(ids.offset(4 * limit).limit(1))
            page = read_clips(connection, query.where(clips.c.id >= (edge or 0)))
            if edge is None or len(page) == limit:
                return page
            first = select(func.min(clips.c.id)).where(own[0], clips.c.received_at >= since)
            return read_clips(connection, query.where(clips.c.id >= first.scalar_subquery()))

    def clip(self, clip_id: int) -> StoredClip | None:
        """Return a clip by its id, or None."""
        return self._first_clip(CLIPS.where(clips.c.id == clip_id))

    def clip_of(self, machine: str, source_key: str) -> StoredClip | None:
        """Return the clip of a source of a machine, or None if there is none any more."""
        clip_id = select(sources.c.clip_id).where(
            sources.c.machine_id == _id_of(machine), sources.c.source_key == source_key
        )
        return self._first_clip(CLIPS.where(clips.c.id == clip_id.scalar_subquery()))

    def _first_clip(self, query: Select[Any]) -> StoredClip | None:
        with self.database.reading() as connection:
            return next(iter(read_clips(connection, query)), None)

    def machines_summary(self) -> list[MachineSummary]:
        """Summarise every machine, by name."""
        is_open = (alarms.c.machine_id == machines.c.id, alarms.c.closed_at.is_(None))
        n_open = select(func.count()).select_from(alarms).where(*is_open).scalar_subquery()
        own_answers = answers.c.machine_id == machines.c.id
        answer = select(func.max(answers.c.id)).where(own_answers).scalar_subquery()
        counts = (machines.c.clips, machines.c.anomalous, n_open, answer)
        with self.database.reading() as connection:
            query = select(machines.c.last_clip_id, machines.c.name, *counts)
            # Sorted here: databases differ in how they order text.
            rows = sorted(connection.execute(query), key=lambda row: str(row.name))
            last_ids = [row.last_clip_id for row in rows if row.last_clip_id]
            newest = read_clips(connection, CLIPS.where(clips.c.id.in_(last_ids)))
        last = {clip.id: clip for clip in newest}
        return [MachineSummary(*row[1:], last.get(row.last_clip_id)) for row in rows]

    def counts_since(self, since: datetime) -> dict[str, tuple[int, int]]:
        """Count the clips received since a time, and the anomalous ones, by machine."""
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
        """Return a page of alarms, the newest first; of all machines by default."""
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
        """Return an alarm by its id, or None."""
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
            return acknowledge(connection, alarm_id, who, comment, at or datetime.now(UTC))

    def prune(
        self, keep_days: float, *, machine: str | None = None, now: datetime | None = None
    ) -> Removal:
        """Remove clips that were received more than `keep_days` ago, of one machine or of all.

        The alarms they completed and messages of that time, delivered or not, go with them. Open
        alarms and their clips stay. Processed sources stay known until `forget_sources`, so that
        no recording is judged again. Recordings on disk are not touched.
        """
        if keep_days < 0:
            raise InputError(f"The 'keep_days' of prune must be >= 0. Got {keep_days!r} instead.")
        oldest = (now or datetime.now(UTC)) - timedelta(days=keep_days)
        own = select(machines.c.id)
        if machine is not None:
            own = own.where(machines.c.name == machine)
        with self.database.reading() as connection:
            numbers = list(connection.scalars(own))
        n_alarms, paths = 0, []
        for number in numbers:
            old = (clips.c.machine_id == number, clips.c.received_at < oldest)
            # A closed alarm goes with its completing clip; an open one stays, with its clips.
            closed = delete(alarms).where(
                alarms.c.machine_id == number,
                alarms.c.closed_at.is_not(None),
                alarms.c.clip_id.in_(select(clips.c.id).where(*old)),
            )
            with self.database.writing() as connection:
                n_alarms += connection.execute(closed).rowcount
            free = clips.c.id.not_in(select(alarm_clips.c.clip_id))
            some = select(clips.c.id).where(*old, free).order_by(clips.c.id).limit(_STEP)
            step = delete(clips).where(clips.c.id.in_(some)).returning(clips.c.audio_path)
            size = _STEP
            while size == _STEP:
                with self.database.writing() as connection:
                    removed = list(connection.scalars(step))
                paths += removed
                size = len(removed)
        messages = outbox.c.created_at < oldest, outbox.c.machine_id.in_(numbers)
        with self.database.writing() as connection:
            connection.execute(delete(outbox).where(*messages))
        return Removal(len(paths), n_alarms, tuple(path for path in paths if path is not None))

    def forget_sources(self, machine: str, prefix: str, is_gone: Callable[[str], bool]) -> int:
        """Forget sources that are gone and have no clip any more; return how many.

        `is_gone` is called with each key that begins with `prefix` and has no clip. A source that
        still exists must stay known, or it would be judged again.
        """
        unused = (
            sources.c.machine_id == _id_of(machine),
            func.substr(sources.c.source_key, 1, len(prefix)) == prefix,
            ~exists().where(clips.c.id == sources.c.clip_id),
        )
        forgotten, last, size = 0, "", _STEP
        while size == _STEP:
            step = select(sources.c.source_key).where(*unused, sources.c.source_key > last)
            with self.database.reading() as connection:
                keys = list(connection.scalars(step.order_by(sources.c.source_key).limit(_STEP)))
            for some in chunks([key for key in keys if is_gone(key)]):
                named = sources.c.source_key.in_(some)
                with self.database.writing() as connection:
                    # Only sources still without a clip: another watcher may have stored one.
                    forgotten += connection.execute(delete(sources).where(*unused, named)).rowcount
            size, last = len(keys), keys[-1] if keys else last
        return forgotten


def _id_of(machine: str) -> Any:
    return select(machines.c.id).where(machines.c.name == machine).scalar_subquery()


def _page(limit: int) -> int:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InputError(f"A page holds 1 to {LARGEST_PAGE:,} rows. Got {limit!r} instead.")
    return limit
