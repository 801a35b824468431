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
    Extension,
    Opening,
    Recovery,
    advance,
)

rules = st.builds(
    lambda n, k, recovery, never: AlarmRule(min(k, n), n, recovery, never),
    st.integers(1, 8),
    st.integers(1, 8),
    st.none() | st.integers(1, 8),
    st.booleans(),
)
histories = st.lists(st.booleans(), max_size=60)


def replay(rule, history, forget=False):
    """Events by the module; with `forget`, from no more than the memory that the rule needs."""
    state, events = AlarmState(), []
    for clip, happened in enumerate(history):
        if forget:
            kept = state.recent[max(0, len(state.recent) - rule.memory) :]
            state = AlarmState(kept, state.is_open)
        state, event = advance(rule, state, Decision(clip, happened))
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


@given(rules, histories)
def test_every_alarm_is_the_textbook_sliding_windows(rule, history):
    assert replay(rule, history) == replay(rule, history, forget=True) == textbook(rule, history)


@given(st.lists(st.booleans(), max_size=60))
def test_off_never_alarms_and_every_alarms_at_the_first_anomalous_clip(history):
    assert replay(AlarmRule.parse("off"), history) == []
    opened = [each for each in replay(AlarmRule.parse("every"), history) if type(each) is Opening]
    starts = [
        clip for clip, loud in enumerate(history) if loud and not (clip and history[clip - 1])
    ]
    assert opened == [Opening(clip, (clip,)) for clip in starts]


def test_a_lasting_fault_is_one_alarm():
    events = replay(AlarmRule(3, 5), [True] * 1000)
    assert [type(each) for each in events] == [Opening] + [Extension] * 997


@given(rules)
def test_a_written_rule_reads_back(rule):
    if not rule.never:
        assert AlarmRule.parse(str(rule), recovery=rule.recovery) == rule


@pytest.mark.parametrize("text", ["", "5/3", "0/5", "3", "3/5/7", "on", "1/1001", "-1/5", "٣/٥"])
def test_a_rule_that_makes_no_sense_is_refused(text):
    with pytest.raises(InputError, match="alarm rule"):
        AlarmRule.parse(text)
