"""Store: what was heard, which alarms it raised, and what is still to be told to others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError
from daco.monitoring.alarms import AlarmRule
from daco.monitoring.store import history, retention, writing
from daco.monitoring.store.engine import Database, open_database
from daco.monitoring.store.migrations import migrate
from daco.monitoring.store.outbox import EVENTS, Outbox
from daco.monitoring.store.records import (
    Added,
    MachineSummary,
    NewClip,
    Source,
    StoredAlarm,
    StoredClip,
)


@dataclass(frozen=True)
class Store:
    """A database of judged clips and alarms; safe to share between threads and processes.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store.open(f"sqlite:///{folder.name}/daco.db", rule=AlarmRule(1, 2))
    >>> verdict = {"name": "a.wav", "score": 3.2, "p_value": 0.01, "threshold": 2.5, "alarm": True}
    >>> now = datetime(2026, 3, 1, tzinfo=UTC)
    >>> store.add(verdict, machine="press", received_at=now, source_key="a.wav")
    Added(clip_id=1, opened=1, recovered=())
    >>> store.add(verdict, machine="press", received_at=now, source_key="a.wav") is None
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
        """The store of a URL; its tables are made, or brought to this version's schema.

        Parameters
        ----------
        url : str
            ``sqlite:///daco.db`` (a local file; with ``?synchronous=FULL`` it also survives a
            power cut to the last clip) or ``postgresql://user@host/name``.
        rule : AlarmRule, optional
            When clips become an alarm: 3 of 5 where nothing is said.
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
        """A `StoreError` unless the database could be read and written now."""
        self.database.check()

    @property
    def outbox(self) -> Outbox:
        """Messages that are still to be delivered."""
        return Outbox(self.database)

    def add(
        self, verdict: dict[str, Any], *, machine: str, received_at: datetime, **known: Any
    ) -> Added | None:
        """Store one clip; None when its source was stored before. See `NewClip` for the rest."""
        return self.add_many([NewClip(verdict, machine, received_at, **known)])[0]

    def add_many(self, new: Sequence[NewClip]) -> list[Added | None]:
        """Store clips in one transaction: all of them or, if anything goes wrong, none.

        Alarms are opened and closed in the same transaction, by the clips in their order.
        """
        with self.database.writing() as connection:
            return writing.add_clips(connection, self.policy, new)

    def reject(
        self, machine: str, source_key: str, *, name: str, stamp: str, reason: str, at: datetime
    ) -> None:
        """Remember that a source is no usable recording while it has this stamp.

        `name` is what others are told it is called.
        """
        with self.database.writing() as connection:
            writing.reject_source(
                connection,
                self.policy,
                machine,
                source_key,
                name=name,
                stamp=stamp,
                reason=reason,
                at=at,
            )

    def restamp(self, machine: str, source_key: str, stamp: str) -> None:
        """Note another stamp for a source whose recording is still the same."""
        with self.database.writing() as connection:
            writing.restamp_source(connection, machine, source_key, stamp)

    def sources(self, machine: str, keys: Sequence[str]) -> list[Source]:
        """Those of a machine's sources that were dealt with."""
        with self.database.reading() as connection:
            return history.sources_of(connection, machine, keys)

    def forget_sources(self, machine: str, prefix: str, is_gone: Callable[[str], bool]) -> int:
        """Forget sources that are gone and have no clip any more; how many there were.

        Parameters
        ----------
        machine : str
        prefix : str
            Only keys that begin so.
        is_gone : callable
            Called with the key of a source without a clip. What is not gone must stay known, or
            it would be judged again.
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
            One that has no clips yet has an empty history.
        limit : int
            Of the page, at most 10,000.
        before : int, optional
            An id; the page continues with the next older clip. The last id of a page is the
            `before` of the next.
        after : int, optional
            An id; the page holds the first `limit` clips that came after it. None is ever
            missed: within a machine, ids become visible in their order.
        since : datetime, optional
            Clips that were received at that time or later.
        """
        with self.database.reading() as connection:
            return history.page_of_clips(
                connection, machine, limit, before=before, after=after, since=since
            )

    def clip(self, clip_id: int) -> StoredClip | None:
        """A clip by its id; None where there is no such clip."""
        with self.database.reading() as connection:
            return history.clips_by_id(connection, [clip_id]).get(clip_id)

    def clip_of(self, machine: str, source_key: str) -> StoredClip | None:
        """The clip that a source of a machine became; None where there is none, or no longer."""
        with self.database.reading() as connection:
            return history.clip_of_source(connection, machine, source_key)

    def machines_summary(self) -> list[MachineSummary]:
        """Every machine at a glance, by name."""
        with self.database.reading() as connection:
            return history.summaries(connection)

    def counts_since(self, since: datetime) -> dict[str, tuple[int, int]]:
        """By machine, how many clips were received since a time, and how many were anomalous."""
        with self.database.reading() as connection:
            return history.counts_since(connection, since)

    def recent_scores(
        self, machine: str, n: int, *, model_sha256: str | None = None
    ) -> NDArray[np.float64]:
        """Scores of the last n clips, oldest first; of them, those of one model if it is named."""
        with self.database.reading() as connection:
            return history.newest_scores(connection, machine, n, model_sha256)

    def alarms(
        self,
        machine: str | None = None,
        *,
        open_only: bool = False,
        limit: int = 100,
        before: int | None = None,
    ) -> list[StoredAlarm]:
        """A page of alarms, the newest first; of all machines where none is named."""
        with self.database.reading() as connection:
            return history.page_of_alarms(
                connection, machine, limit, open_only=open_only, before=before
            )

    def alarm(self, alarm_id: int) -> StoredAlarm | None:
        """An alarm by its id; None where there is no such alarm."""
        with self.database.reading() as connection:
            found = history.alarms_by_id(connection, [alarm_id])
        return found[0] if found else None

    def acknowledge(
        self, alarm_id: int, who: str, comment: str = "", *, at: datetime | None = None
    ) -> StoredAlarm:
        """Say that someone has seen to an alarm; it is closed if it is open.

        Of several who acknowledge, the first stays, and is what the others get back.
        """
        with self.database.writing() as connection:
            return writing.acknowledge_alarm(
                connection, alarm_id, who, comment, at or datetime.now(UTC)
            )

    def prune(
        self,
        *,
        keep_days: float | None = None,
        keep_clips: int | None = None,
        machine: str | None = None,
        now: datetime | None = None,
    ) -> retention.Pruned:
        """Remove old clips, with the alarms they completed and the messages about them.

        Open alarms stay, and so do their clips. That a source was dealt with stays known, so
        that no recording comes back as a new one, until `forget_sources`. Recordings on disk are
        not touched.

        Parameters
        ----------
        keep_days : float, optional
            Clips that were received earlier go, and messages too, delivered or not.
        keep_clips : int, optional
            Of each machine, more than the newest so many go.
        machine : str, optional
            Of this machine only.
        now : datetime, optional
            Instead of the computer's clock.
        """
        return retention.prune(
            self.database, keep_days=keep_days, keep_clips=keep_clips, machine=machine, now=now
        )
