"""Writing: a clip, its source, its alarm and the messages about them, in one transaction.

A writer locks the machine's row first, so that the clips of a machine are written one after the
other: ids grow in the order of commits, and no alarm is opened twice.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from daco.detector.ranges import ANOMALOUS, NORMAL, STATES
from daco.detector.verdict import Verdict
from daco.monitoring.adaptation import JUDGED, Adaptation, for_model
from daco.monitoring.alarms import AlarmRule, AlarmState, Decision, Opening, advance, counts_for
from daco.monitoring.store.database import StoreError, chunks
from daco.monitoring.store.outbox import ALARM_OPENED, ALARM_RECOVERED, CLIP_SCORED, post
from daco.monitoring.store.records import ALARMS, Addition, NewClip, read_alarms
from daco.monitoring.store.schema import adaptations, alarm_clips, alarms, clips, machines, sources

MOST_AT_ONCE = 256
"""Clips that a `Writer` commits together."""

_DIALECTS: dict[str, ModuleType] = {"sqlite": sqlite, "postgresql": postgresql}

_Outcome = Addition | Exception | None
_Answer = asyncio.Future[Addition | None]

log = logging.getLogger("daco.monitoring.service")

# Built once: building a statement costs more than running it.
_MACHINE = select(machines).where(machines.c.name == bindparam("machine")).with_for_update()
_KNOWN = select(sources.c.source_key, sources.c.audio_sha256, sources.c.clip_id).where(
    sources.c.machine_id == bindparam("machine"),
    sources.c.source_key.in_(bindparam("keys", expanding=True)),
)
_NEW_CLIPS = insert(clips).returning(clips.c.id, sort_by_parameter_order=True)
_RECENT = (
    select(clips.c.id, clips.c.state)
    .where(clips.c.machine_id == bindparam("machine"), clips.c.id > bindparam("after"))
    .where(clips.c.id < bindparam("first"), clips.c.state.in_(bindparam("states", expanding=True)))
    .order_by(clips.c.id.desc())
    .limit(bindparam("memory"))
)
_STILL_OPEN = select(alarms.c.id, alarms.c.kind).where(
    alarms.c.machine_id == bindparam("machine"), alarms.c.closed_at.is_(None)
)
_NEW_ALARM = insert(alarms).returning(alarms.c.id)
_COUNT = (
    update(machines)
    .where(machines.c.id == bindparam("machine"))
    .values(
        clips=machines.c.clips + bindparam("more"),
        anomalous=machines.c.anomalous + bindparam("more_anomalous"),
        last_clip_id=bindparam("last"),
        counted_by_kind=bindparam("by_kind"),
    )
)


@cache
def _upsert(dialect: str, *changed: str) -> Any:
    """A statement that inserts a source's row or updates these columns of it."""
    new = _DIALECTS[dialect].insert(sources)
    return new.on_conflict_do_update(
        index_elements=[sources.c.machine_id, sources.c.source_key],
        set_={column: new.excluded[column] for column in changed},
    )


def save_sources(connection: Connection, rows: Sequence[dict[str, Any]], *changed: str) -> None:
    """Insert sources; of those that are known, update the columns that are `changed`."""
    connection.execute(_upsert(connection.dialect.name, *changed), rows)


def lock_machine(connection: Connection, name: str) -> Row[Any]:
    """The machine's row, created if necessary, locked until the transaction ends."""
    row = connection.execute(_MACHINE, {"machine": name}).first()
    if row is None:
        new = _DIALECTS[connection.dialect.name].insert(machines).on_conflict_do_nothing()
        connection.execute(new, {"name": name})
        row = connection.execute(_MACHINE, {"machine": name}).one()
    return row


def add_clips(
    connection: Connection, rule: AlarmRule, events: Collection[str], new: Sequence[NewClip]
) -> list[Addition | None]:
    """Store the clips that are not stored yet; the result has None for the others."""
    added: list[Addition | None] = [None] * len(new)
    # In the order of names, so that two writers of the same machines never deadlock.
    if len(new) > 1 and any(clip.calibration for clip in new):
        for index in sorted(range(len(new)), key=lambda index: new[index].machine):
            # One by one: each is decided on after what the ones before have changed.
            added[index] = add_clips(connection, rule, events, [new[index]])[0]
        return added
    for name in sorted({clip.machine for clip in new}):
        machine = lock_machine(connection, name)
        indices = [index for index, clip in enumerate(new) if clip.machine == name]
        indices = _not_stored_yet(connection, machine.id, new, indices)
        if not indices:
            continue
        fresh = [new[index] for index in indices]
        if fresh[0].calibration is not None:
            fresh, ids = _insert_adapted(connection, machine.id, fresh[0])
        else:
            ids = list(connection.scalars(_NEW_CLIPS, [clip.row(machine.id) for clip in fresh]))
        latest = {  # of two recordings with one key, the later counts
            clip.source_key: {
                "machine_id": machine.id,
                "source_key": clip.source_key,
                "audio_sha256": clip.audio_sha256,
                "stamp": clip.stamp,
                "clip_id": number,
                "reason": None,
            }
            for clip, number in zip(fresh, ids, strict=True)
            if clip.source_key is not None
        }
        if latest:
            changed = ("audio_sha256", "stamp", "clip_id", "reason")
            save_sources(connection, list(latest.values()), *changed)
        outcome = _raise_alarms(connection, rule, machine, fresh, ids)
        for index, each in zip(indices, outcome, strict=True):
            added[index] = each
        if events:
            _announce(connection, events, machine.id, fresh, outcome)
    return added


def _not_stored_yet(
    connection: Connection, machine: int, new: Sequence[NewClip], indices: Sequence[int]
) -> list[int]:
    """Indices of clips whose source is unknown, or has another recording by now."""
    keys = [key for index in indices if (key := new[index].source_key) is not None]
    known: dict[str, tuple[str | None, bool]] = {}
    for some in chunks(keys):
        rows = connection.execute(_KNOWN, {"machine": machine, "keys": some})
        known |= {key: (sha256, clip is not None) for key, sha256, clip in rows}
    fresh = []
    for index in indices:
        clip = new[index]
        if clip.source_key is not None:
            if known.get(clip.source_key) == (clip.audio_sha256, True):
                continue
            known[clip.source_key] = (clip.audio_sha256, True)
        fresh.append(index)
    return fresh


def _insert_adapted(
    connection: Connection, machine: int, clip: NewClip
) -> tuple[list[NewClip], list[int]]:
    """Decide on a clip by what was learned, store it, and learn from it."""
    state = read_adaptation(connection, machine)
    verdict = adapted_verdict(clip, state)
    clip = replace(clip, verdict=verdict)
    number = connection.scalars(_NEW_CLIPS, [clip.row(machine)]).one()
    if verdict.state in JUDGED:
        alarms_now = connection.execute(_STILL_OPEN, {"machine": machine})
        assert clip.calibration is not None
        state = for_model(state, verdict.model_sha256, clip.calibration.rate).after_clip(
            number,
            verdict.score,
            verdict.domain_weights,
            anomalous=verdict.alarm,
            alarm_is_open=any(row.kind == ANOMALOUS for row in alarms_now),
            at=clip.received_at,
        )
        save_adaptation(connection, machine, state)
    return [clip], [number]


def adapted_verdict(clip: NewClip, state: Adaptation | None) -> Verdict:
    """The verdict on a clip after what was learned about its machine."""
    if clip.calibration is None:
        return clip.verdict
    state = for_model(state, clip.verdict.model_sha256, clip.calibration.rate)
    return state.adapted(clip.verdict, clip.calibration.reference)


def read_adaptation(connection: Connection, machine: int) -> Adaptation | None:
    """The adaptation of a machine; None where there is none."""
    state = connection.scalar(
        select(adaptations.c.state).where(adaptations.c.machine_id == machine)
    )
    return None if state is None else Adaptation.from_dict(state)


def save_adaptation(connection: Connection, machine: int, state: Adaptation) -> None:
    """Store the adaptation of a machine."""
    values = {"model_sha256": state.model_sha256, "state": state.to_dict()}
    new = _DIALECTS[connection.dialect.name].insert(adaptations)
    new = new.on_conflict_do_update(index_elements=["machine_id"], set_=values)
    connection.execute(new, {"machine_id": machine, **values})


def _raise_alarms(
    connection: Connection,
    rule: AlarmRule,
    machine: Row[Any],
    fresh: Sequence[NewClip],
    ids: Sequence[int],
) -> list[Addition]:
    """Apply the alarm rule to the clips, by kind; store the alarms it opens and closes."""
    still_open: dict[str, list[int]] = defaultdict(list)
    for alarm, kind in connection.execute(_STILL_OPEN, {"machine": machine.id}):
        still_open[kind].append(alarm)
    kinds = {*still_open, *(clip.verdict.state for clip in fresh)} - {NORMAL} | {ANOMALOUS}
    counted = dict(machine.counted_by_kind)
    alarm_states = {}
    for kind in kinds:
        states = [state for state in STATES if counts_for(kind, state)]
        window = {"after": counted.get(kind, machine.counted_after), "first": ids[0]}
        window |= {"machine": machine.id, "states": states, "memory": rule.memory}
        rows = connection.execute(_RECENT, window)
        recent = tuple(Decision(number, state == kind) for number, state in rows)[::-1]
        alarm_states[kind] = AlarmState(recent, bool(still_open[kind]))
    added = []
    for clip, number in zip(fresh, ids, strict=True):
        opened, recovered, found = None, [], clip.verdict.state
        for kind in [kind for kind in kinds if counts_for(kind, found)]:
            decision = Decision(number, found == kind)
            alarm_states[kind], event = advance(rule, alarm_states[kind], decision)
            if event:
                counted[kind] = number
            if isinstance(event, Opening):
                row = {"machine_id": machine.id, "rule": str(rule), "clip_id": number}
                row |= {"opened_at": clip.received_at, "kind": kind}
                opened = connection.scalars(_NEW_ALARM, row).one()
                members = [{"alarm_id": opened, "clip_id": each} for each in event.contributing]
                connection.execute(insert(alarm_clips), members)
                still_open[kind].append(opened)
            elif event:
                recovered += still_open.pop(kind)
        if recovered:
            closing = {"closed_at": clip.received_at, "closed_by": "recovery"}
            connection.execute(update(alarms).where(alarms.c.id.in_(recovered)).values(closing))
        closed = tuple(sorted(recovered))
        added.append(Addition(number, opened, closed, verdict=clip.verdict))
    counts = {"machine": machine.id, "more": len(fresh), "last": ids[-1], "by_kind": counted}
    anomalous = sum(clip.verdict.alarm for clip in fresh)
    connection.execute(_COUNT, {**counts, "more_anomalous": anomalous})
    return added


def _announce(
    connection: Connection,
    events: Collection[str],
    machine: int,
    fresh: Sequence[NewClip],
    outcome: Sequence[Addition],
) -> None:
    """Post messages about the stored clips and the alarms they opened and closed."""
    changed = [each.opened for each in outcome if each.opened is not None]
    changed += [alarm for each in outcome for alarm in each.recovered]
    alarm_of = {
        alarm.id: alarm.to_dict()
        for some in chunks(changed)
        for alarm in read_alarms(connection, ALARMS.where(alarms.c.id.in_(some)))
    }
    messages = []
    for new, each in zip(fresh, outcome, strict=True):
        if CLIP_SCORED not in events and each.opened is None and not each.recovered:
            continue
        about = {"clip": new.stored_as(each.clip_id).to_dict()}
        of_alarms = [(ALARM_OPENED, each.opened)] if each.opened is not None else []
        of_alarms += [(ALARM_RECOVERED, alarm) for alarm in each.recovered]
        messages.append((CLIP_SCORED, new.received_at, about))
        for kind, alarm in of_alarms:
            messages.append((kind, new.received_at, {"alarm": alarm_of[alarm], **about}))
    post(connection, machine, [each for each in messages if each[0] in events])


class Writer:
    """A thread that commits all waiting clips together, by `add_many` of a store.

    `on_commit` is called in the event loop that the writer was made in. A request is answered only
    after its clip was committed, so that a 200 survives the death of the process. Committing many
    clips at once makes that affordable.
    """

    def __init__(
        self,
        add_many: Callable[[Sequence[NewClip]], list[Addition | None]],
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._add_many, self._on_commit = add_many, on_commit
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[NewClip, _Answer] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Clips that wait to be committed."""
        return self._queue.qsize()

    async def add(self, clip: NewClip) -> Addition | None:
        """Commit a clip; None if it was stored before, a StoreError if it was not committed."""
        answer: _Answer = self._loop.create_future()
        self._queue.put((clip, answer))
        return await answer

    async def close(self) -> None:
        """Commit what is waiting, then end."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = [self._queue.get()]
            while len(batch) < MOST_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get())
            waiting = [each for each in batch if each is not None]
            ended = len(waiting) < len(batch)
            if waiting:
                outcome = self._commit([clip for clip, _ in waiting])
                answers = [answer for _, answer in waiting]
                self._loop.call_soon_threadsafe(self._answer, answers, outcome)

    def _commit(self, clips: Sequence[NewClip]) -> list[_Outcome]:
        try:
            return list(self._add_many(clips))
        except StoreError as error:
            log.error("clips could not be stored: %s", error)
            return [error] * len(clips)
        except Exception as error:
            log.exception("clips could not be stored")
            if len(clips) == 1:
                return [error]
        # One of them is at fault: store the others one by one.
        return [outcome for clip in clips for outcome in self._commit([clip])]

    def _answer(self, answers: Sequence[_Answer], outcome: Sequence[_Outcome]) -> None:
        for answer, result in zip(answers, outcome, strict=True):
            if answer.done():  # the client has gone; the clip is stored
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
        self._on_commit()
