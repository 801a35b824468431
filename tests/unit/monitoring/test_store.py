"""The store on a real SQLite file and a real PostgreSQL server: same statements, same behaviour."""

from __future__ import annotations

import json
import random
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import pytest
from stores import START, add, verdict

from daco.errors import InputError
from daco.monitoring.alarms import AlarmRule, AlarmState, Decision, Opening, advance
from daco.monitoring.store import NewClip, Store

DAY = timedelta(days=1)


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


# --- what is stored ------------------------------------------------------------------------------


def test_a_verdict_comes_back_as_it_was_given(store):
    given = verdict(True, windows=3, worst_window=4.5)
    at = datetime(2026, 3, 1, 13, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    new = NewClip(
        given,
        "press",
        at,
        recorded_at=at - timedelta(minutes=1),
        audio_sha256="cd" * 32,
        audio_path="/recordings/a.wav",
    )
    clip = store.clip(store.add(new).clip_id)
    assert {each.name: getattr(clip, each.name) for each in fields(given)} == vars(given)
    assert (clip.received_at, clip.received_at.tzinfo) == (at, UTC)
    assert clip.recorded_at == at - timedelta(minutes=1)
    assert (clip.audio_sha256, clip.audio_path) == ("cd" * 32, "/recordings/a.wav")
    document = json.loads(json.dumps(clip.to_dict(), allow_nan=False))
    assert document["received_at"] == "2026-03-01T07:30:00.123456Z"
    assert "/recordings" not in json.dumps(document)  # paths of this computer concern nobody else


@pytest.mark.parametrize(
    "name",
    [
        "'; DROP TABLE daco_clips; --",
        "Gehäuse №7 – 圧力 🛠.wav",
        "%s %(x)s :x ? {}",
        "\n\x1b[31m",
        "",
    ],
)
def test_text_is_stored_as_it_is(store, name):
    added = add(
        store, verdict={"name": name, "nearest": name}, machine=f"m {name}", source_key=name
    )
    clip = store.clip(added.clip_id)
    assert (clip.name, clip.nearest, clip.machine) == (name, name, f"m {name}")
    assert add(store, machine=f"m {name}", source_key=name) is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"verdict": {"name": "x" * 5000}}, "5,000 characters"),
        ({"verdict": {"name": "a\0b"}}, "NUL"),
        ({"verdict": {"name": "a\udc80"}}, "not Unicode"),
        ({"verdict": {"name": 7}}, "must be text"),
        ({"verdict": {"score": float("nan")}}, "finite"),
        ({"verdict": {"nearest_distance": float("inf")}}, "finite"),
        ({"verdict": {"domain_weights": {"source": float("nan")}}}, "JSON"),
        ({"verdict": {"reasons": ["x" * 200_000]}}, "too long"),
        ({"at": datetime(2026, 3, 1)}, "time zone"),
        ({"source_key": "k" * 513}, "512"),
        ({"machine": ""}, "machine"),
    ],
)
def test_what_no_database_could_hold_is_refused_before_it_gets_there(store, changed, message):
    with pytest.raises(InputError, match=message):
        add(store, **changed)
    assert store.machines_summary() == []


# --- exactly once --------------------------------------------------------------------------------


def test_the_same_key_and_content_is_one_recording(store):
    first = add(store, source_key="a.wav", audio_sha256="aa")
    assert add(store, source_key="a.wav", audio_sha256="aa") is None
    assert add(store, source_key="a.wav", audio_sha256="aa", machine="fan")  # another machine's
    second = add(store, source_key="a.wav", audio_sha256="bb")  # overwritten
    assert second.clip_id > first.clip_id
    again = add(store, source_key="a.wav", audio_sha256="aa")  # and recorded over again
    assert again.clip_id > second.clip_id
    assert add(store).clip_id != add(store).clip_id  # without a key, every clip is new


def test_a_batch_may_hold_a_recording_twice(store):
    add(store, source_key="old")
    keys = ["a", "b", "a", "old", None, None, "b"]
    added = store.add_many([NewClip(verdict(name=str(k)), "press", START, k) for k in keys])
    assert [each is None for each in added] == [False, False, True, True, False, False, True]
    stored = {clip.id: clip.name for clip in store.clips("press")}
    assert [stored[each.clip_id] for each in added if each] == ["a", "b", "None", "None"]


def test_ids_follow_the_order_of_a_batch_and_belong_to_their_clips(store):
    """Thousands, so that the rows travel in several statements; machines are mixed."""
    new = [NewClip(verdict(name=str(i)), f"m{i % 3}", START, f"k{i}") for i in range(1500)]
    added = store.add_many(new)
    for machine in range(3):
        mine = [each.clip_id for each in added[machine::3]]
        assert mine == sorted(mine)
        names = {clip.id: clip.name for clip in store.clips(f"m{machine}", 1000)}
        assert [names[each] for each in mine] == [str(i) for i in range(machine, 1500, 3)]
    assert store.add_many(new) == [None] * 1500


def test_a_rejected_source_is_remembered_and_its_recording_is_stored_when_it_becomes_one(store):
    store.reject("press", "/d/a.wav", name="b.wav", stamp="1", reason="truncated", at=START)
    store.reject("press", "/d/a.wav", name="b.wav", stamp="2", reason="truncated", at=START)
    (source,) = store.sources("press", ["/d/a.wav"])
    assert (source.stamp, source.reason, source.clip_id) == ("2", "truncated", None)
    added = add(store, source_key="/d/a.wav", audio_sha256="aa", stamp="3")
    (source,) = store.sources("press", ["/d/a.wav"])
    assert (source.stamp, source.reason, source.clip_id) == ("3", None, added.clip_id)
    # Unreadable for a while and then the same again: it is still the recording it was.
    store.reject("press", "/d/a.wav", name="b.wav", stamp="4", reason="permission denied", at=START)
    assert add(store, source_key="/d/a.wav", audio_sha256="aa") is None
    store.restamp("press", "/d/a.wav", "5")
    (source,) = store.sources("press", ["/d/a.wav"])
    assert (source.stamp, source.reason, source.clip_id) == ("5", None, added.clip_id)


def test_sources_are_found_by_their_keys(store):
    for key in ("/d/a.wav", "/d/ä.wav", "/D/a.wav", "/d%/a.wav"):
        add(store, source_key=key)
    asked = ["/d/ä.wav", "/d/a.wav", *(f"/d/{number}.wav" for number in range(1200)), "/d%/a.wav"]
    keys = {each.source_key for each in store.sources("press", asked)}
    assert keys == {"/d/a.wav", "/d/ä.wav", "/d%/a.wav"}
    assert store.sources("unknown", ["/d/a.wav"]) == store.sources("press", []) == []


# --- alarms --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", [AlarmRule(2, 3), AlarmRule(3, 5, recovery=2), AlarmRule.parse("off")]
)
def test_alarms_are_those_of_the_rule_however_the_clips_are_batched(url, rule):
    dice = random.Random(str(rule))
    decisions = [dice.random() < 0.45 for _ in range(120)]
    opened, recovered = {}, set()
    with Store.open(url, rule=rule) as store:
        place, ids = 0, []
        while place < len(decisions):
            size = dice.choice([1, 1, 2, 7])
            batch = [
                NewClip(verdict(each), "press", START + timedelta(seconds=place))
                for each in decisions[place : place + size]
            ]
            for added in store.add_many(batch):
                ids.append(added.clip_id)
                if added.opened is not None:
                    opened[added.clip_id] = added.opened
                recovered |= set(added.recovered)
            place += size
            if dice.random() < 0.5:
                add(store, True, machine="another")  # whose clips have nothing to do with it
        state, expected = AlarmState(), []
        for clip, each in zip(ids, decisions, strict=True):
            state, event = advance(rule, state, Decision(clip, each))
            expected += [event] if isinstance(event, Opening) else []
        stored = store.alarms("press", limit=1000)[::-1]
        assert [(each.clip_id, each.clip_ids) for each in stored] == expected
        assert {each.clip_id: each.id for each in stored} == opened
        assert {each.id for each in stored if each.closed_by == "recovery"} == recovered
        assert bool(store.alarms("press", open_only=True)) == state.is_open
        assert {each.rule for each in stored} == {str(rule)}


def add_state(store, state, **known):
    return add(store, state == "anomalous", verdict={"state": state}, **known)


@pytest.mark.parametrize(
    "rule", [AlarmRule(2, 3), AlarmRule(2, 4, recovery=1), AlarmRule.parse("off")]
)
def test_every_kind_of_alarm_follows_the_rule_by_itself(url, rule):
    """As if each kind had a store of its own, with the clips that count for it."""
    dice = random.Random(str(rule))
    states = [dice.choice(["normal", "anomalous", "off", "recorder fault"]) for _ in range(120)]
    with Store.open(url, rule=rule) as store:
        ids, place = [], 0
        while place < len(states):
            some = states[place : place + dice.choice([1, 1, 2, 7])]
            new = [verdict(state == "anomalous", state=state) for state in some]
            added = store.add_many([NewClip(each, "press", START) for each in new])
            ids += [each.clip_id for each in added]
            place += len(some)
        stored = store.alarms("press", limit=1000)[::-1]
        for kind in ("anomalous", "off", "recorder fault"):
            state, opened, is_open = AlarmState(), [], 0
            for clip, found in zip(ids, states, strict=True):
                if kind == "anomalous" and found not in ("normal", "anomalous"):
                    continue
                state, event = advance(rule, state, Decision(clip, found == kind))
                opened += [event] if isinstance(event, Opening) else []
            mine = [each for each in stored if each.kind == kind]
            assert [(each.clip_id, each.clip_ids) for each in mine] == opened
            is_open = any(each.closed_at is None for each in mine)
            assert is_open == state.is_open


def test_a_machine_that_is_off_is_neither_faulty_nor_recovered(store):
    for state in ["anomalous", "off", "off", "anomalous", "off"]:
        added = add_state(store, state)
    (off,) = store.alarms(open_only=True)
    assert (off.kind, off.clip_id) == ("off", added.clip_id)
    fault = add_state(store, "anomalous")  # the third of the clips that could be judged
    assert store.alarm(fault.opened).kind == "anomalous"
    for _ in range(5):
        add_state(store, "off")
    assert {each.kind for each in store.alarms(open_only=True)} == {"anomalous", "off"}
    for _ in range(5):
        last = add_state(store, "normal")
    assert set(last.recovered) == {off.id, fault.opened}
    assert store.machines_summary()[0].anomalous == 3


def test_an_acknowledged_alarm_of_a_kind_needs_new_clips_of_that_kind(store):
    for state in ["anomalous", "anomalous", "off", "off", "off", "off"]:
        add_state(store, state)
    (alarm,) = store.alarms(open_only=True)
    store.acknowledge(alarm.id, "Kim")
    assert add_state(store, "off").opened is None
    assert store.alarm(add_state(store, "anomalous").opened).kind == "anomalous"
    assert [add_state(store, "off").opened is None for _ in range(2)] == [True, False]


def test_a_clock_set_back_changes_no_alarm(store):
    for hour, alarm in enumerate([True, False, True, False, True]):
        added = add(store, alarm, at=START - timedelta(hours=hour))
    assert added.opened is not None


def test_an_acknowledged_alarm_is_closed_and_needs_new_clips_to_come_back(store):
    for _ in range(4):
        add(store, True)
    (alarm,) = store.alarms(open_only=True)
    seen = store.acknowledge(alarm.id, "Kim <b>", "loose belt; ordered", at=START)
    assert (seen.closed_by, seen.acknowledged_by, seen.comment) == (
        "acknowledgement",
        "Kim <b>",
        "loose belt; ordered",
    )
    assert store.alarms(open_only=True) == []
    assert [add(store, True).opened is None for _ in range(3)] == [True, True, False]
    assert len(store.alarms()) == 2


def test_who_acknowledges_first_stays_and_a_recovered_alarm_can_be_acknowledged(store):
    for alarm in [True] * 3 + [False] * 5:
        add(store, alarm)
    (alarm,) = store.alarms()
    assert (alarm.closed_by, alarm.acknowledged_at) == ("recovery", None)
    first = store.acknowledge(alarm.id, "Kim")
    assert (first.closed_by, first.acknowledged_by) == ("recovery", "Kim")
    assert store.acknowledge(alarm.id, "Lee", "me too") == first == store.alarm(alarm.id)
    with pytest.raises(InputError, match="no alarm 999"):
        store.acknowledge(999, "Kim")
    with pytest.raises(InputError, match="comment has 4,001"):
        store.acknowledge(alarm.id, "Kim", "x" * 4001)


# --- reading -------------------------------------------------------------------------------------


def test_pages_hold_every_clip_once_whatever_the_clock_did(store):
    dice = random.Random(1)
    times = [START + timedelta(seconds=dice.randrange(-1000, 1000)) for _ in range(97)]
    ids = []
    for at in times:
        ids.append(add(store, at=at).clip_id)
        add(store, at=at, machine="fan")
    pages, before = [], None
    while page := store.clips("press", 10, before=before):
        pages += [clip.id for clip in page]
        before = page[-1].id
    assert pages == ids[::-1]
    after = 0
    followed = []
    while page := store.clips("press", 10, after=after):
        followed += [clip.id for clip in reversed(page)]
        after = page[0].id
    assert followed == ids
    for since, size in product((START, START + timedelta(seconds=900), START - DAY), (3, 10, 1000)):
        pages, before = [], None
        while page := store.clips("press", size, before=before, since=since):
            pages += [clip.id for clip in page]
            before = page[-1].id
        assert pages[::-1] == [each for each, at in zip(ids, times, strict=True) if at >= since]
    assert store.clips("press", since=START + DAY) == store.clips(
        "press", after=0, since=START + DAY
    )
    assert store.clips("press", since=START + DAY) == []
    assert store.clips("unknown") == []
    assert store.clip(10**9) is None


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_page_is_bounded(store, limit):
    with pytest.raises(InputError, match="page"):
        store.clips("press", limit)


def test_machines_at_a_glance(store):
    assert store.machines_summary() == []
    for alarm in [True] * 3:
        add(store, alarm)
    last = add(store, machine="fan")
    fan, press = store.machines_summary()
    assert (press.machine, press.clips, press.anomalous, press.open_alarms) == ("press", 3, 3, 1)
    assert (fan.machine, fan.clips, fan.anomalous, fan.open_alarms) == ("fan", 1, 0, 0)
    assert fan.last == store.clip(last.clip_id)


def test_clips_of_a_time_are_counted_by_machine(store):
    for hours, alarm in enumerate([True, False, True, False]):
        add(store, alarm, at=START - timedelta(hours=hours))
    add(store, machine="fan", at=START - 2 * DAY)
    assert store.counts_since(START - timedelta(hours=2)) == {"press": (3, 2), "fan": (0, 0)}


def test_a_source_leads_to_its_clip(store):
    first, second = (add(store, source_key="a", audio_sha256=each) for each in ("aa", "bb"))
    assert store.clip_of("press", "a") == store.clip(second.clip_id) != store.clip(first.clip_id)
    store.reject("press", "b", name="b.wav", stamp="1", reason="truncated", at=START)
    assert store.clip_of("press", "b") is None
    assert store.clip_of("fan", "a") is None
    store.prune(keep_days=0)
    assert store.clip_of("press", "a") is None


# --- forgetting ----------------------------------------------------------------------------------


def test_pruning_by_days_keeps_open_alarms_and_never_forgets_what_was_dealt_with(store):
    for number, alarm in enumerate([True] * 3 + [False] * 6 + [True] * 3):
        add(store, alarm, at=START + number * DAY, source_key=str(number), audio_path=f"/{number}")
    closed, still_open = store.alarms()[::-1]
    assert (closed.is_open, still_open.is_open) == (False, True)
    now = START + 11.5 * DAY  # the last is half a day old
    pruned = store.prune(keep_days=1, now=now)
    assert (pruned.clips, pruned.alarms) == (9, 1)
    assert set(pruned.audio_paths) == {f"/{number}" for number in range(9)}
    assert [clip.id for clip in store.clips("press")][::-1] == list(still_open.clip_ids)
    assert store.alarms() == [still_open]
    assert len(store.sources("press", [str(number) for number in range(12)])) == 12
    assert add(store, source_key="0") is None
    assert store.machines_summary()[0].clips == 12
    assert store.prune(keep_days=1, now=now).clips == 0


def test_sources_are_forgotten_when_they_are_gone_and_their_clips_are(store, monkeypatch):
    monkeypatch.setattr("daco.monitoring.store.store._STEP", 7)  # more steps than one
    keys = [f"/d/{number:02}" for number in range(20)]
    for number, key in enumerate([*keys, "/d2/00", "http:00"]):
        add(store, source_key=key, at=START - (number < 17) * DAY)
    add(store, source_key="/d/00", machine="fan")
    store.reject("press", "/d/bad", name="bad", stamp="1", reason="no sound", at=START)
    assert store.forget_sources("press", "/d/", lambda key: True) == 1  # the others have clips
    store.prune(keep_days=1, now=START + DAY / 2)
    kept = {"/d/03", "/d/04"}
    assert store.forget_sources("press", "/d/", lambda key: key not in kept) == 15
    left = {each.source_key for each in store.sources("press", [*keys, "/d2/00", "http:00"])}
    assert left == {*kept, *keys[17:], "/d2/00", "http:00"}
    assert len(store.sources("fan", keys)) == 1
    assert store.forget_sources("unknown", "/d/", lambda key: True) == 0
    assert add(store, source_key="/d/03") is None
    assert add(store, source_key="/d/00") is not None


def test_pruning_may_be_of_one_machine_and_gives_no_id_twice(store):
    for number in range(20):
        add(store, machine=f"m{number % 2}")
    assert store.prune(keep_days=0, machine="m0").clips == 10
    assert [len(store.clips(f"m{machine}")) for machine in (0, 1)] == [0, 10]
    assert store.prune(keep_days=0).clips == 10
    assert [each.last for each in store.machines_summary()] == [None, None]
    assert add(store, machine="m0").clip_id > 20
    with pytest.raises(InputError, match="keep_days"):
        store.prune(keep_days=-1)
