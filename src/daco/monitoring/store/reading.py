"""Reading: pages of clips and alarms, what has changed, summaries and trends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, case, func, select

from daco.errors import InputError
from daco.monitoring.adaptation import Adaptation
from daco.monitoring.alarms import FAULT
from daco.monitoring.feedback import Rates
from daco.monitoring.store.database import Database, chunks
from daco.monitoring.store.records import (
    AuditEntry,
    Changes,
    MachineSummary,
    Note,
    Source,
    StoredAlarm,
    StoredClip,
    TrendPoint,
)
from daco.monitoring.store.schema import alarms, audit, clips, machines, notes, schema, sources
from daco.monitoring.store.schema import trends as sums

LARGEST_PAGE = 10_000
MOST_RATED = 10_000
"""The last clips of a machine among which rates are counted."""

CLIPS = select(clips, machines.c.name.label("machine")).join_from(clips, machines)
ALARMS = select(alarms, machines.c.name.label("machine")).outerjoin_from(alarms, machines)
UNFINISHED = alarms.c.cleared_at.is_(None) | alarms.c.acknowledged_at.is_(None)
"""Alarms whose cause has not cleared, or that nobody has acknowledged."""


def read_clips(connection: Connection, query: Select[Any]) -> list[StoredClip]:
    """The clips of a query on `CLIPS`."""
    return [StoredClip.from_row(row) for row in connection.execute(query).mappings()]


def read_alarms(connection: Connection, query: Select[Any]) -> list[StoredAlarm]:
    """The alarms of a query on `ALARMS`."""
    now = datetime.now(UTC)
    return [StoredAlarm.from_row(row, now) for row in connection.execute(query).mappings()]


@dataclass(frozen=True)
class Reader:
    """Queries that change nothing."""

    database: Database

    def _rows(self, query: Select[Any]) -> Sequence[Any]:
        with self.database.reading() as connection:
            return connection.execute(query).all()

    def clips(
        self,
        machine: str,
        limit: int = 100,
        *,
        before: int | None = None,
        after: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[StoredClip]:
        """Return a page of a machine's clips, the last received one first.

        The last id of a page is the `before` of the next; with `after` it is the first `limit`
        clips with larger ids. `since` and `until` are times of recording, or of arrival where that
        is not known; with them the last recorded clip is the first.
        """
        query = CLIPS.where(clips.c.machine_id == id_of(machine)).limit(_page(limit))
        if before is not None:
            query = query.where(clips.c.id < before)
        if since is not None:
            query = query.where(clips.c.time >= since)
        if until is not None:
            query = query.where(clips.c.time < until)
        with self.database.reading() as connection:
            if after is not None:
                query = query.where(clips.c.id > after).order_by(clips.c.id)
                return read_clips(connection, query)[::-1]
            by_time = since is not None or until is not None
            order = [clips.c.time.desc()] if by_time else []
            return read_clips(connection, query.order_by(*order, clips.c.id.desc()))

    def clip(self, clip_id: int) -> StoredClip | None:
        """Return a clip by its id, or None."""
        with self.database.reading() as connection:
            return next(iter(read_clips(connection, CLIPS.where(clips.c.id == clip_id))), None)

    def alarms(
        self,
        machine: str | None = None,
        *,
        open_only: bool = False,
        listed_only: bool = False,
        limit: int = 100,
        before: int | None = None,
    ) -> list[StoredAlarm]:
        """Return a page of alarms, the newest first; of all machines by default.

        `listed_only` leaves out those that have cleared and were acknowledged.
        """
        query = ALARMS.order_by(alarms.c.id.desc()).limit(_page(limit))
        if machine is not None:
            query = query.where(alarms.c.machine_id == id_of(machine))
        if open_only:
            query = query.where(alarms.c.cleared_at.is_(None))
        if listed_only:
            query = query.where(UNFINISHED)
        if before is not None:
            query = query.where(alarms.c.id < before)
        with self.database.reading() as connection:
            return read_alarms(connection, query)

    def alarm(self, alarm_id: int) -> StoredAlarm | None:
        """Return an alarm by its id, or None."""
        with self.database.reading() as connection:
            return next(iter(read_alarms(connection, ALARMS.where(alarms.c.id == alarm_id))), None)

    def open_causes(self) -> list[tuple[str | None, str, str]]:
        """Return machine, kind and cause of the open alarms that are not about clips."""
        query = select(machines.c.name, alarms.c.kind, alarms.c.cause)
        query = query.outerjoin_from(alarms, machines).order_by(alarms.c.id)
        rows = self._rows(query.where(alarms.c.cleared_at.is_(None), alarms.c.cause != ""))
        return [(name, kind, cause) for name, kind, cause in rows]

    def changes(self, after: int | None = None, limit: int = 1100) -> Changes:
        """Return the clips, alarms and machines that have changed after a number.

        Without `after` it returns the number of the last change only.
        """
        with self.database.reading() as connection:
            last = connection.scalar(select(schema.c.value).where(schema.c.name == "change")) or 0
            if after is None or after >= last:
                return Changes(last, [], [], [], more=False)

            def page(table: Any, query: Select[Any]) -> Select[Any]:
                changed = query.where(table.c.changed > after, table.c.changed <= last)
                return changed.order_by(table.c.changed, table.c.id).limit(_page(limit))

            some_clips = read_clips(connection, page(clips, CLIPS))
            some_alarms = read_alarms(connection, page(alarms, ALARMS))
            names = select(machines.c.name).where(machines.c.changed > after)
            some_machines = list(connection.scalars(names))
        # A full page may end amid a change: only up to the one before it is all there.
        ends = [some[-1].changed - 1 for some in (some_clips, some_alarms) if len(some) == limit]
        if not ends:
            return Changes(last, some_clips, some_alarms, some_machines, more=False)
        end = max(after + 1, min(ends))
        kept_clips = [each for each in some_clips if each.changed <= end]
        kept_alarms = [each for each in some_alarms if each.changed <= end]
        return Changes(end, kept_clips, kept_alarms, some_machines, more=True)

    def machines_summary(self) -> list[MachineSummary]:
        """Summarise every machine that has sent a recording, by name."""
        is_open = (alarms.c.machine_id == machines.c.id, alarms.c.cleared_at.is_(None))
        n_open = select(func.count()).select_from(alarms).where(*is_open).scalar_subquery()
        columns = [column for column in machines.c if column.name != "adaptation"]
        with self.database.reading() as connection:
            rows = connection.execute(select(*columns, n_open.label("n_open"))).all()
            last: dict[int, StoredClip] = {}
            for some in chunks([row.last_clip_id for row in rows if row.last_clip_id]):
                for clip in read_clips(connection, CLIPS.where(clips.c.id.in_(some))):
                    last[clip.id] = clip
        return [
            MachineSummary(
                machine=row.name,
                clips=row.clips,
                anomalous=row.anomalous,
                open_alarms=row.n_open,
                out_of_service_since=row.out_of_service_since,
                out_of_service_by=row.out_of_service_by,
                last=last.get(row.last_clip_id),
                changed=row.changed,
                evidence=row.evidence.get(FAULT, {}).get("value", 0.0),
            )
            for row in sorted(rows, key=lambda row: str(row.name))  # databases differ in order
        ]

    def counts_since(self, since: datetime) -> dict[str, tuple[int, int]]:
        """Count the clips since a time, and the anomalous ones, by machine."""
        anomalous = func.coalesce(func.sum(case((clips.c.anomalous, 1), else_=0)), 0)
        query = select(machines.c.name, func.count(), anomalous).join_from(machines, clips)
        rows = self._rows(query.where(clips.c.time >= since).group_by(machines.c.name))
        return {name: (int(number), int(odd)) for name, number, odd in rows}

    def trend(
        self,
        machine: str,
        period: str,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[TrendPoint]:
        """Return the clips of a machine summed up by 'hour' or 'day' (UTC), the oldest first."""
        query = select(sums).where(sums.c.machine_id == id_of(machine), sums.c.period == period)
        if since is not None:
            query = query.where(sums.c.start >= since)
        if until is not None:
            query = query.where(sums.c.start < until)
        return [
            TrendPoint(
                start=row.start,
                clips=row.clips,
                judged=row.judged,
                anomalous=row.anomalous,
                oddness_mean=row.oddness_sum / row.judged if row.judged else None,
                oddness_max=row.oddness_max,
            )
            for row in self._rows(query.order_by(sums.c.start))
        ]

    def notes(self, machine: str, limit: int = 1000) -> list[Note]:
        """Return what people wrote about a machine, the newest first."""
        query = select(notes.c.id, machines.c.name, notes.c.at, notes.c.text, notes.c.by)
        query = query.join_from(notes, machines).where(machines.c.name == machine)
        rows = self._rows(query.order_by(notes.c.at.desc()).limit(_page(limit)))
        return [Note(*row) for row in rows]

    def audit(self, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """Return who did what, the newest first."""
        query = _audit(limit)
        if before is not None:
            query = query.where(audit.c.id < before)
        return [AuditEntry(*row) for row in self._rows(query)]

    def answers(self, machine: str, limit: int = 100) -> list[AuditEntry]:
        """Return who answered what about a machine's clips and alarms, the newest first."""
        given = audit.c.machine == machine, audit.c.action.startswith("answer ")
        return [AuditEntry(*row) for row in self._rows(_audit(limit).where(*given))]

    def rates(self, machine: str, model_sha256: str) -> Rates:
        """Return the realised rates of one model, by the answers to the machine's last clips."""
        last = (
            select(clips.c.state, clips.c.answer, clips.c.model_sha256)
            .where(clips.c.machine_id == id_of(machine))
            .order_by(clips.c.id.desc())
            .limit(MOST_RATED)
            .subquery()
        )
        query = select(last.c.state, last.c.answer, func.count())
        query = query.where(last.c.model_sha256 == model_sha256)
        rows = self._rows(query.group_by(last.c.state, last.c.answer))
        return Rates.from_counts({(state, answer): number for state, answer, number in rows})

    def adaptations(self, *names: str) -> dict[str, Adaptation]:
        """Return what was learned about these machines, or about all, by their names."""
        query = select(machines.c.name, machines.c.adaptation)
        query = query.where(machines.c.adaptation.is_not(None))
        query = query.where(machines.c.name.in_(names)) if names else query
        return {name: Adaptation.from_dict(state) for name, state in self._rows(query)}

    def sources(self, machine: str, keys: Sequence[str]) -> list[Source]:
        """Return those of these sources of a machine that were processed before."""
        columns = [sources.c[name] for name in Source._fields]
        query = select(*columns).where(sources.c.machine_id == id_of(machine))
        with self.database.reading() as connection:
            return [
                Source(*row)
                for some in chunks(keys)
                for row in connection.execute(query.where(sources.c.source_key.in_(some)))
            ]


def id_of(machine: str) -> Any:
    """The id of a machine, as a part of a query."""
    return select(machines.c.id).where(machines.c.name == machine).scalar_subquery()


def _audit(limit: int) -> Select[Any]:
    columns = [audit.c[each.name] for each in fields(AuditEntry)]
    return select(*columns).order_by(audit.c.id.desc()).limit(_page(limit))


def _page(limit: int) -> int:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InputError(f"A page holds 1 to {LARGEST_PAGE:,} rows. Got {limit!r} instead.")
    return limit
