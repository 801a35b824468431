"""Alarms against a sliding window written down as a textbook would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daco.errors import InputError
from daco.monitoring.alarms import (
    AlarmRule,
    AlarmState,
    Decision,
    Opening,
    Recovery,
    advance,
)

ACKNOWLEDGED = "acknowledged"

rules = st.builds(
    lambda n, k, recovery, every: AlarmRule(min(k, n), n, recovery, every),
    st.integers(1, 8),
    st.integers(1, 8),
    st.none() | st.integers(1, 8),
    st.booleans(),
)
histories = st.lists(st.sampled_from([True, True, False, False, ACKNOWLEDGED]), max_size=60)


def replay(rule, history):
    """Events of a history by the module; an acknowledgement starts from a new state."""
    state, events = AlarmState(), []
    for clip, happened in enumerate(history):
        if happened == ACKNOWLEDGED:
            state = AlarmState() if state.is_open else state
            continue
        state, event = advance(rule, state, Decision(clip, happened))
        events += [event] if event else []
    return events


def textbook(rule, history):
    """The same with the whole history at hand and no state but what is open and since when."""
    since, is_open, events = 0, False, []
    for clip, happened in enumerate(history):
        if happened == ACKNOWLEDGED:
            if is_open:
                since, is_open = clip + 1, False
            continue
        counted = [
            (index, each)
            for index, each in enumerate(history[: clip + 1])
            if index >= since and each != ACKNOWLEDGED
        ]
        loud = [index for index, anomalous in counted[-rule.n :] if anomalous]
        normals = rule.n if rule.recovery is None else rule.recovery
        last = [anomalous for _, anomalous in counted[-normals:]]
        if happened and len(loud) >= rule.k and (rule.every or not is_open):
            events.append(Opening(clip, tuple(loud)))
            since, is_open = clip + 1, True
        elif is_open and last == [False] * normals:
            events.append(Recovery(clip))
            since, is_open = clip + 1, False
    return events


@given(rules, histories)
def test_every_alarm_is_the_textbook_sliding_windows(rule, history):
    assert replay(rule, history) == textbook(rule, history)


@given(rules, histories)
def test_the_memory_of_a_rule_is_all_that_a_decision_needs(rule, history):
    """A state that is rebuilt from the last clips alone, as a database does, changes nothing."""
    state, events = AlarmState(), []
    for clip, happened in enumerate(each for each in history if each != ACKNOWLEDGED):
        kept = state.recent[len(state.recent) - min(len(state.recent), rule.memory) :]
        state, event = advance(rule, AlarmState(kept, state.is_open), Decision(clip, happened))
        assert len(state.recent) <= rule.memory + 1
        events += [event] if event else []
    assert events == textbook(rule, [each for each in history if each != ACKNOWLEDGED])


@given(st.lists(st.booleans(), max_size=60))
def test_off_makes_every_anomalous_clip_an_alarm_of_its_own(history):
    opened = [
        event for event in replay(AlarmRule.parse("off"), history) if isinstance(event, Opening)
    ]
    assert opened == [Opening(clip, (clip,)) for clip, loud in enumerate(history) if loud]


def test_after_an_acknowledgement_old_clips_do_not_open_it_again_but_new_ones_do():
    rule = AlarmRule(3, 5)
    assert replay(rule, [True] * 4 + [ACKNOWLEDGED] + [True] * 2) == [Opening(2, (0, 1, 2))]
    opened = replay(rule, [True] * 4 + [ACKNOWLEDGED] + [True] * 3)
    assert opened == [Opening(2, (0, 1, 2)), Opening(7, (5, 6, 7))]


@pytest.mark.parametrize("text", ["3/5", " 3 of 5 ", "3 / 5"])
def test_a_rule_is_read_as_written(text):
    assert AlarmRule.parse(text) == AlarmRule(3, 5)


@pytest.mark.parametrize("text", ["", "5/3", "0/5", "3", "3/5/7", "on", "1/1001", "-1/5", "٣/٥"])
def test_a_rule_that_makes_no_sense_is_refused(text):
    with pytest.raises(InputError, match="alarm rule"):
        AlarmRule.parse(text)


def test_a_recovery_of_no_clips_is_refused():
    with pytest.raises(InputError, match="recovery"):
        AlarmRule(3, 5, recovery=0)


@given(rules)
def test_a_written_rule_reads_back(rule):
    if rule == AlarmRule(1, 1, rule.recovery, every=True) or not rule.every:
        assert AlarmRule.parse(str(rule), recovery=rule.recovery) == rule
