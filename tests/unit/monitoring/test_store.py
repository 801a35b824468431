"""Clips, alarms, people and messages in both kinds of database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from stores import KIM, START, add, new_clip, opened, verdict

from daco.detector.decision import ReferenceScores
from daco.errors import InputError
from daco.monitoring.adaptation import FEWEST, Calibration
from daco.monitoring.store import ConflictError, NewClip

MINUTE = timedelta(minutes=1)


@pytest.fixture
def store(url):
    with opened(url) as opened_store:
        yield opened_store


def kinds(store, receiver="mail", now=None):
    """The kinds of the messages of a receiver, in the order of delivery."""
    found = []
    while delivery := store.outbox.take(receiver, 7200, now):
        found.append(delivery.kind)
    return found


def test_a_clip_comes_back_as_it_was_stored(store):
    late = START - timedelta(days=2)
    finding = {"kind": "tone", "text": "A tone at 5 kHz."}
    known = {"recorded_at": late, "source_key": "k", "audio_sha256": "cd" * 32, "at": START}
    clip = add(store, True, findings=[finding], **known).clip
    (found,) = store.clips("press")
    assert found == clip
    assert (found.oddness, found.reasons, found.findings) == (2.0, ("clipped",), [finding])
    assert (found.time, found.received_at) == (late, START)
    document = found.to_dict()
    assert document["time"] == "2026-02-27T12:00:00Z"
    assert "audio_path" not in document
    assert store.clip(clip.id + 1) is None
    future = add(store, recorded_at=START + timedelta(days=30)).clip
    assert future.time == START  # a time in the future is not believed


def test_the_same_key_is_one_clip_and_other_content_is_a_conflict_or_a_changed_file(store):
    first = add(store, source_key="k", audio_sha256="aa")
    again = add(store, source_key="k", audio_sha256="aa")
    assert (again.known, again.clip.id) == (True, first.clip.id)
    with pytest.raises(ConflictError):
        add(store, source_key="k", audio_sha256="bb")
    changed = add(store, source_key="k", audio_sha256="bb", stamp="2:2:2")
    assert (changed.known, changed.clip.id) == (False, first.clip.id + 1)
    touched = add(store, source_key="k", audio_sha256="bb", stamp="3:3:3")
    assert touched.known
    assert store.sources("press", ["k"])[0].stamp == "3:3:3"
    assert store.machines_summary()[0].clips == 2


def test_one_bad_clip_does_not_spoil_the_transaction_of_others(store):
    outcomes = store.add_many(
        [new_clip(source_key="k", audio_sha256=sha) for sha in ("aa", "bb", "aa")]
    )
    assert not outcomes[0].known
    assert isinstance(outcomes[1], ConflictError)
    assert outcomes[2].known


# --- alarms --------------------------------------------------------------------------------------


def test_a_lasting_fault_stays_one_alarm_until_the_machine_recovers(store):
    add(store, True)
    (number,) = add(store, True, at=START + MINUTE).opened
    for minute in range(2, 30):
        assert add(store, True, at=START + minute * MINUTE).opened == ()
    store.people.acknowledge(number, KIM, "ordered a bearing")
    add(store, True, at=START + 30 * MINUTE)
    (alarm,) = store.alarms("press")
    assert (alarm.id, alarm.state, alarm.n_clips) == (number, "acknowledged", 31)
    assert (alarm.opened_at, alarm.last_at) == (START + MINUTE, START + 30 * MINUTE)
    outcomes = [add(store, at=START + (31 + row) * MINUTE) for row in range(3)]
    assert [each.cleared for each in outcomes] == [(), (), (number,)]
    assert store.alarm(number).state == "cleared"
    assert store.alarms(listed_only=True) == []
    assert kinds(store)[:2] == ["alarm.opened", "alarm.cleared"]


def test_a_cleared_alarm_that_nobody_saw_stays_listed(store):
    for anomalous in (True, True, False, False, False):
        add(store, anomalous)
    (alarm,) = store.alarms(listed_only=True)
    assert (alarm.state, alarm.cleared_by, alarm.acknowledged_at) == ("cleared", "recovery", None)
    store.people.acknowledge(alarm.id, KIM)
    assert store.alarms(listed_only=True) == []


def test_kinds_of_alarms_are_counted_apart_and_what_does_not_count_is_left_out(store):
    for _ in range(2):
        add(store, verdict={"state": "out of range"})
        add(store, True)
    assert [(each.kind, each.n_clips) for each in store.alarms()] == [
        ("fault", 2),
        ("out of range", 2),
    ]
    for _ in range(9):  # a machine that may be off
        add(store, machine="fan", verdict={"state": "off"}, counts=False)
    add(store, True, machine="fan")
    add(store, machine="fan", verdict={"state": "off"}, counts=False)
    assert store.alarms("fan") == []
    assert add(store, True, machine="fan").opened != ()  # both anomalous clips count


def test_a_shelved_alarm_is_silent_and_comes_back_if_its_cause_lasts(store):
    add(store, True)
    (number,) = add(store, True).opened
    kinds(store)
    until = datetime.now(UTC) + timedelta(hours=1)
    assert store.people.shelve(number, until, KIM, "known").state == "shelved"
    add(store, True)
    assert store.return_from_shelf() == []
    assert store.return_from_shelf(until) == [number]
    assert store.alarm(number).state == "active"
    assert kinds(store, now=until) == ["alarm.opened", "clip.scored"]
    with pytest.raises(InputError, match="future"):
        store.people.shelve(number, START, KIM)
    store.people.shelve(number, until, KIM)
    assert store.people.unshelve(number, KIM).state == "active"
    store.people.clear(number, KIM)
    with pytest.raises(InputError, match="cleared"):
        store.people.shelve(number, until, KIM)


def test_out_of_service_is_judged_and_stored_without_alarms_and_messages(store):
    add(store, True)
    add(store, True)
    kinds(store)
    store.people.set_out_of_service("press", True, KIM, "overhaul")
    for _ in range(5):
        assert add(store, True).opened == ()
    store.raise_alarm("press", "daco", "model", "The model cannot be read.")
    assert store.clear_alarm("press", "daco", "model") is not None
    assert kinds(store) == []
    summary = store.machines_summary()[0]
    assert (summary.clips, summary.open_alarms, summary.out_of_service_by) == (7, 0, "Kim")
    store.people.set_out_of_service("press", False, KIM)
    assert add(store, True).opened == ()  # clips from before do not count
    assert len(add(store, True).opened) == 1


def test_a_problem_is_one_alarm_until_it_is_over(store):
    first = store.raise_alarm(None, "daco", "disk", "The disk is full.")
    assert store.raise_alarm(None, "daco", "disk", "The disk is full.") == first
    assert store.raise_alarm(None, "daco", "disk", "The disk is fuller.") == first
    other = store.raise_alarm("press", "no recordings", "recordings", "Nothing came.")
    assert store.open_causes() == [
        (None, "daco", "disk"),
        ("press", "no recordings", "recordings"),
    ]
    assert store.alarm(first).detail == "The disk is fuller."
    assert store.clear_alarm("press", "no recordings", "recordings") == other
    assert store.clear_alarm("press", "no recordings", "recordings") is None
    assert kinds(store) == ["alarm.opened"] * 2 + ["alarm.cleared"]
    add(store)  # a clip does not clear it
    assert store.alarm(first).is_open


# --- people --------------------------------------------------------------------------------------


def test_everything_that_people_do_is_in_the_audit(store):
    add(store, True)
    (number,) = add(store, True).opened
    add(store, True)
    people = store.people
    people.acknowledge(number, KIM, "seen")
    people.answer_alarm(number, "false alarm", KIM, "forklift")
    people.clear(number, KIM)
    people.add_note("press", "bearing changed", KIM, at=START)
    people.declare_healthy("press", 20, KIM, model_sha256="ab" * 32, rate=0.1)
    people.reset("press", KIM)
    people.delete_clip(1, KIM)
    entries = store.audit()
    assert {(each.who, each.role) for each in entries} == {KIM}
    assert [each.action for each in entries][::-1] == [
        "acknowledge",
        "answer false alarm",
        "clear",
        "note",
        "declare healthy",
        "reset adaptation",
        "delete clip",
    ]
    assert [each.answer for each in store.clips("press")] == ["false alarm"] * 2
    (answer,) = store.answers("press")
    assert (answer.target, answer.detail) == (f"alarm {number}", "forklift")
    assert [(each.text, each.at) for each in store.notes("press")] == [("bearing changed", START)]
    assert store.alarm(number).clip_ids == (2,)
    assert [each.action for each in store.audit(limit=2, before=entries[0].id)] == [
        "reset adaptation",
        "declare healthy",
    ]


def test_a_machine_declared_healthy_is_judged_by_its_own_recordings_with_or_without_adapt(store):
    reference = ReferenceScores(np.arange(1.0, 101), np.zeros(100, int), ("source",))
    calibration = Calibration(reference, 0.1)

    def hear(score):
        own = verdict(True, score=score, domain_weights={"source": 1.0})
        return store.add(NewClip(own, "press", START, calibration=calibration)).clip

    assert hear(150.0).anomalous
    store.people.declare_healthy("press", 2 * FEWEST, KIM, model_sha256="ab" * 32, rate=0.1)
    for row in range(2 * FEWEST):
        hear(150.0 + row % 7)
    assert store.adaptations()["press"].is_commissioned
    clip = hear(151.0)
    assert (clip.state, clip.oddness < 1) == ("normal", True)
    assert hear(500.0).anomalous
    state = store.adaptations()["press"]
    assert (state.left, state.clips) == (0, 2 * FEWEST - FEWEST)  # it does not follow on its own


# --- reading -------------------------------------------------------------------------------------


def test_pages_follow_ids_or_times(store):
    for row in range(10):
        add(store, at=START + row * MINUTE, recorded_at=START - row * MINUTE)
    ids = [clip.id for clip in store.clips("press")]
    assert ids == list(range(10, 0, -1))
    assert [clip.id for clip in store.clips("press", 3, before=8)] == [7, 6, 5]
    assert [clip.id for clip in store.clips("press", 3, after=8)] == [10, 9]
    # The first was recorded last.
    since = [clip.id for clip in store.clips("press", since=START - 2 * MINUTE)]
    assert since == [1, 2, 3]
    assert store.counts_since(START - 2 * MINUTE) == {"press": (3, 0)}
    with pytest.raises(InputError):
        store.clips("press", 0)


def test_changes_are_complete_however_they_are_paged(store):
    seen_clips, seen_alarms, number = {}, {}, store.changes().last
    assert store.changes(number).clips == []
    for row in range(12):
        add(store, row % 4 < 2)
    store.people.answer_clip(3, "fault", KIM)
    store.raise_alarm(None, "daco", "disk", "full")
    store.people.acknowledge(1, KIM)
    for _ in range(20):
        some = store.changes(number, limit=4)
        seen_clips |= {clip.id: clip for clip in some.clips}
        seen_alarms |= {alarm.id: alarm for alarm in some.alarms}
        number = some.last
        if not some.more:
            break
    assert seen_clips == {clip.id: clip for clip in store.clips("press")}
    assert seen_alarms == {alarm.id: alarm for alarm in store.alarms()}
    assert "press" in store.changes(0).machines
    assert store.changes(number) == store.changes()


def test_trends_add_up_by_hours_and_days_of_recording(store):
    hours = [0, 0, 1, 25]
    for row, hour in enumerate(hours):
        recorded = START + timedelta(hours=hour - 48)
        add(store, row == 0, at=START, recorded_at=recorded)
    add(store, at=START, recorded_at=START - timedelta(hours=48), verdict={"state": "off"})
    first, second, third = store.trend("press", "hour")
    assert (first.clips, first.judged, first.anomalous, first.oddness_max) == (3, 2, 1, 2.0)
    assert first.oddness_mean == pytest.approx((2.0 + 0.301) / 2)
    assert (second.start - first.start, third.clips) == (timedelta(hours=1), 1)
    assert [point.clips for point in store.trend("press", "day")] == [4, 1]
    assert store.trend("press", "day", since=START) == []
    india = timezone(timedelta(hours=5, minutes=30))
    add(store, machine="fan", recorded_at=datetime(2026, 3, 1, 1, 15, tzinfo=india))
    (day,), (hour,) = store.trend("fan", "day"), store.trend("fan", "hour")
    assert (day.start.day, hour.start.hour) == (28, 19)  # of February, in UTC


# --- messages ------------------------------------------------------------------------------------


def test_alarms_go_first_and_a_refused_message_blocks_nothing(store):
    for _ in range(5):
        add(store)
    add(store, True)
    add(store, True)
    outbox = store.outbox
    first = outbox.take("mail", 60)
    assert (first.kind, first.body["data"]["clip"]["id"]) == ("alarm.opened", 7)
    assert first.body["data"]["alarm"]["clip_ids"] == [6, 7]
    outbox.refuse(first, "410 Gone")
    second = outbox.take("mail", 60)
    assert second.kind == "clip.scored"
    outbox.discard(second.id)
    assert outbox.pending() == {"mail": 6, "hook": 8}
    assert outbox.pending(refused=True) == {"mail": 1}
    (refused,) = outbox.refused()
    assert (refused.key, refused.last_error) == (first.key, "410 Gone")
    outbox.resend(refused.id)
    assert outbox.take("mail", 60).key == first.key
    assert outbox.take("hook", 60).key != first.key


def test_a_message_is_one_takers_until_its_time_is_over_and_no_wait_overflows(store):
    add(store)
    outbox = store.outbox
    first = outbox.take("mail", 60, now=START)
    assert outbox.take("mail", 60, now=START + timedelta(seconds=59)) is None
    again = outbox.take("mail", 60, now=START + timedelta(seconds=60))
    assert (again.key, again.attempts) == (first.key, 2)
    for wait in (99999999999999.0, float("inf"), float("nan"), -1.0):
        outbox.retry(again, "503", wait, now=START)
        assert outbox.take("mail", 60, now=START + timedelta(hours=24)) is not None
    # A clock that is set back by a year does not hold it back for a year.
    assert outbox.take("mail", 60, now=START - timedelta(days=365)).key == first.key
