"""Alarms against a sliding window written down as a textbook would."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daco.errors import InputError
from daco.monitoring.alarms import (
    AlarmRule,
    AlarmState,
    Decision,
    Extension,
    Opening,
    Recovery,
    add_up,
    advance,
    counts_for,
    kind_of,
    state_of,
)
from daco.monitoring.evidence import Evidence
from daco.monitoring.evidence import advance as advance_evidence

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def replay(rule, history):
    """Events by the module, from no more than the memory that the rule needs."""
    state, events = AlarmState(), []
    for clip, happened in enumerate(history):
        kept = state.recent[max(0, len(state.recent) - rule.memory) :]
        state = AlarmState(kept, state.is_open)
        state, event = advance(rule, state, Decision(clip, happened))
        assert len(state.recent) <= rule.memory + 1
        events += [event] if event else []
    return events


def textbook(rule, history):
    """The same with the whole history at hand and no state but what is open and since when."""
    since, is_open, events = 0, False, []
    for clip, happened in enumerate(history):
        counted = list(enumerate(history))[since : clip + 1]
        loud = [index for index, anomalous in counted[-rule.n :] if anomalous]
        normals = rule.n if rule.recovery is None else rule.recovery
        if not is_open and happened and len(loud) >= rule.k and not rule.never:
            events.append(Opening(clip, tuple(loud)))
            since, is_open = clip + 1, True
        elif is_open and [each for _, each in counted[-normals:]] == [False] * normals:
            events.append(Recovery(clip))
            since, is_open = clip + 1, False
        elif is_open and happened:
            events.append(Extension(clip))
    return events


@pytest.mark.parametrize("recovery", [None, 1, 2, 3])
@pytest.mark.parametrize("text", ["every", "1/2", "2/2", "2/3", "3/3", "3/5", "4/8", "off"])
def test_every_history_of_nine_clips_is_the_textbooks(text, recovery):
    rule = AlarmRule.parse(text, recovery=recovery)
    assert AlarmRule.parse(str(rule), recovery=recovery) == rule
    for history in product([False, True], repeat=9):
        assert replay(rule, history) == textbook(rule, history)


@pytest.mark.parametrize("text", ["", "5/3", "0/5", "3", "3/5/7", "on", "1/1001", "-1/5", "٣/٥"])
def test_a_rule_that_makes_no_sense_is_refused(text):
    with pytest.raises(InputError, match="alarm rule"):
        AlarmRule.parse(text)


def test_a_rule_and_its_recovery_have_bounds():
    assert AlarmRule(1000, 1000, 1000).normals_to_clear == 1000
    for k, n, recovery in [(0, 5, None), (6, 5, None), (1, 1001, None), (3, 5, 0), (3, 5, 1001)]:
        with pytest.raises(InputError):
            AlarmRule(k, n, recovery)
    assert AlarmRule() == AlarmRule.parse("3 of 5")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3/5", AlarmRule(3, 5)),
        (" 2 OF 3 ", AlarmRule(2, 3)),
        ("Every", AlarmRule(1, 1)),
        ("off", AlarmRule(1, 1, never=True)),
        ("1 a day", AlarmRule(stated=(1, "day"))),
        ("12 an year", AlarmRule(stated=(12, "year"))),
    ],
)
def test_rules_are_read_as_people_write_them(text, expected):
    assert AlarmRule.parse(text) == expected
    assert AlarmRule.parse(text, recovery=7) == replace(expected, recovery=7)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("1 a day", 24), ("2 a week", 84), ("1 a month", 730.5), ("1 a year", 8766), ("3 a day", 8)],
)
def test_a_stated_rate_is_a_time_between_false_alarms(text, hours):
    rule = AlarmRule.parse(text)
    assert (rule.interval, rule.adds_up, str(rule)) == (timedelta(hours=hours), True, text)
    with pytest.raises(InputError, match="3 of 5"):
        _ = AlarmRule(3, 5).interval


def test_clips_raise_alarms_of_the_kind_of_their_state():
    states = ("normal", "anomalous", "off", "out of range", "recorder fault")
    assert [kind_of(state) for state in states] == [None, "fault", *states[2:]]
    for kind in ("fault", "trend"):  # only clips that could be judged count
        assert [counts_for(kind, state) for state in states] == [True, True, False, False, False]
    assert all(counts_for("off", state) for state in states)


@pytest.mark.parametrize(
    ("cleared", "acknowledged", "shelved", "state"),
    [
        (None, None, None, "active"),
        (None, NOW, None, "acknowledged"),
        (None, NOW, NOW + SECOND, "shelved"),
        (None, None, NOW, "active"),
        (NOW, NOW, NOW + SECOND, "cleared"),
    ],
)
def test_states_follow_from_what_happened(cleared, acknowledged, shelved, state):
    assert state_of(NOW, cleared, acknowledged, shelved) == state


@given(st.lists(st.floats(0, 1), max_size=80), st.floats(0.5, 5))
def test_evidence_opens_at_its_limit_extends_while_it_grows_and_clears_at_zero(p_values, limit):
    evidence, is_open = Evidence(), False
    for clip, p_value in enumerate(p_values):
        before, (evidence, event) = evidence, add_up(limit, evidence, is_open, clip, p_value)
        plain = advance_evidence(before, p_value)
        if not is_open:
            assert evidence == plain
            assert event == (Opening(clip, ()) if plain.value >= limit else None)
            is_open = event is not None
        elif plain.value == 0:
            assert (evidence, event) == (plain, Recovery(clip))
            is_open = False
        else:
            assert event == (Extension(clip) if plain.value > before.value else None)
            assert evidence == replace(plain, value=min(plain.value, limit))


def test_an_alarm_opens_when_the_evidence_is_exactly_its_limit_and_clears_at_zero():
    limit = advance_evidence(Evidence(), 0.01).value
    assert add_up(limit, Evidence(), False, 3, 0.01)[1] == Opening(3, ())
    assert add_up(limit + 1e-9, Evidence(), False, 3, 0.01)[1] is None
    assert add_up(3.0, Evidence(0.5, 2), True, 7, 0.9) == (Evidence(), Recovery(7))
