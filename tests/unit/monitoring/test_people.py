"""What people say about clips, alarms and machines, and what follows from it in the store."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from stores import START, add, verdict

from daco.detector.decision import ReferenceScores
from daco.errors import InputError
from daco.monitoring.adaptation import FEWEST, SLOW, Calibration
from daco.monitoring.alarms import AlarmRule
from daco.monitoring.feedback import Rates
from daco.monitoring.store import NewClip, Store

MODEL = "ab" * 32
REFERENCE = ReferenceScores(np.arange(1.0, 101), np.repeat([0, 1], 50), ("source", "target"))
CALIBRATION = Calibration(REFERENCE, 0.1)
SURE = {"source": 0.0, "target": 1.0}


@pytest.fixture
def store(url):
    with Store.open(url, rule=AlarmRule(2, 3)) as opened:
        yield opened


def hear(store, score, **known):
    """A clip of the target domain that the model alone would call normal."""
    own = verdict(score=score, domain_weights=SURE, basis="from the training recordings")
    return store.add(NewClip(own, "press", START, calibration=CALIBRATION, **known))


# --- answers -------------------------------------------------------------------------------------


def test_an_answer_to_an_alarm_is_that_of_its_clips_and_closes_it(store):
    add(store, alarm=True)
    alarm = add(store, alarm=True).opened
    said = store.people.answer_alarm(alarm, "false alarm", "Kim", "forklift", at=START)
    assert (said.answer, said.closed_by, said.acknowledged_by) == (
        *("false alarm", "acknowledgement"),
        "Kim",
    )
    assert [clip.answer for clip in store.clips("press")] == ["false alarm"] * 2
    last = store.people.answers("press")[0]
    assert (last.clip_id, last.alarm_id, last.answer) == (2, alarm, "false alarm")
    assert (last.answered_by, last.comment, last.answered_at) == ("Kim", "forklift", START)
    assert store.people.answers("other") == []


def test_the_last_answer_counts_and_all_are_kept(store):
    clip = add(store, alarm=True).clip_id
    store.people.answer_clip(clip, "false alarm", "Kim")
    assert [each.id for each in store.people.false_alarms("press")] == [clip]
    assert store.people.answer_clip(clip, "fault", "Lee").answer == "fault"
    assert store.people.false_alarms("press") == []
    assert [each.answered_by for each in store.people.answers()] == ["Lee", "Kim"]
    store.prune(0)
    assert store.clip(clip) is None
    assert len(store.people.answers()) == 2


def test_a_wrong_answer_changes_nothing(store):
    clip = add(store, alarm=True).clip_id
    with pytest.raises(InputError, match="'false alarm' or 'fault'"):
        store.people.answer_clip(clip, "perhaps", "Kim")
    with pytest.raises(InputError, match="no clip 77"):
        store.people.answer_clip(77, "fault", "Kim")
    with pytest.raises(InputError, match="no alarm 77"):
        store.people.answer_alarm(77, "fault", "Kim")
    assert (store.clip(clip).answer, store.people.answers()) == (None, [])


def test_rates_are_those_of_one_model_and_leave_out_what_no_score_decided(store):
    for alarm, answer in [(False, None), (True, "false alarm"), (True, None), (False, "fault")]:
        clip = add(store, alarm=alarm).clip_id
        if answer:
            store.people.answer_clip(clip, answer, "Kim")
    add(store, verdict={"state": "off"})
    add(store, alarm=True, verdict={"model_sha256": "other"})
    assert store.people.rates("press", MODEL) == Rates(
        clips=3, false_alarms=1, unanswered=1, faults=1, found=0
    )


def test_a_rate_nobody_answered_for_is_not_stated():
    (sentence,) = Rates(clips=100, unanswered=10).sentences()
    assert sentence == (
        "No rate is known yet, because nobody has answered. Without an answer: 10 anomalous clips."
    )
    assert Rates().detection_rate == (0.0, 1.0)


# --- adaptation ----------------------------------------------------------------------------------


def test_the_stored_verdict_is_the_adapted_one_and_opens_the_alarm(store):
    outcome = [hear(store, score) for score in (99.5, 99.8)]
    assert outcome[1].opened == 1
    clip = store.clip(2)
    assert (clip.alarm, clip.state, clip.p_value <= 0.1) == (True, "anomalous", True)
    assert clip.score > clip.threshold > 90
    assert outcome[1].verdict.threshold == clip.threshold
    assert clip.basis.startswith("from the training recordings; hardly moved since ")
    state = store.people.adaptation("press")
    assert state.clips == 2
    assert state.shifts["target"] == pytest.approx(2 * SLOW * 0.9)


def test_nothing_is_learned_while_an_alarm_waits_for_a_person(store):
    alarm = [hear(store, score) for score in (99.5, 99.8)][1].opened
    waiting = store.people.adaptation("press")
    hear(store, 99.9)
    state = store.people.adaptation("press")
    assert (state.shifts, state.clips) == (waiting.shifts, waiting.clips)
    assert state.recent > waiting.recent
    store.acknowledge(alarm, "Kim")
    hear(store, 99.9)
    assert store.people.adaptation("press").clips == waiting.clips + 1


def test_other_states_are_stored_as_they_are_and_teach_nothing(store):
    own = verdict(score=500.0, domain_weights=SURE, state="off")
    store.add(NewClip(own, "press", START, calibration=CALIBRATION))
    assert (store.clip(1).alarm, store.clip(1).state, store.clip(1).threshold) == (
        *(False, "off"),
        own.threshold,
    )
    assert store.people.adaptation("press") is None


def test_batches_and_single_clips_are_adapted_alike(tmp_path):
    scores = np.random.default_rng(0).uniform(50, 120, 40)
    new = [
        NewClip(verdict(score=s, domain_weights=SURE), "press", START, calibration=CALIBRATION)
        for s in scores
    ]
    with (
        Store.open(f"sqlite:///{tmp_path}/a.db") as one,
        Store.open(f"sqlite:///{tmp_path}/b.db") as b,
    ):
        b.add_many(new)
        for clip in new:
            one.add(clip)
        assert one.clips("press") == b.clips("press")
        assert one.people.adaptation("press") == b.people.adaptation("press")


def test_a_machine_that_is_declared_healthy_is_judged_by_its_own_clips(store):
    store.people.declare_healthy("press", 20, "Kim", model_sha256=MODEL, rate=0.1)
    for score in np.linspace(150, 170, 20):
        hear(store, float(score))
    state = store.people.adaptation("press")
    assert (state.left, len(state.healthy)) == (0, 20)
    assert [each.clip for each in state.healthy] == list(range(1, 21))
    first, last = store.clip(1), store.clip(20)
    assert first.alarm  # judged before it is taken as healthy
    clip = store.clip(hear(store, 160.0).clip_id)
    assert not clip.alarm
    assert clip.basis.startswith("from 20 clips of the machine, declared healthy by Kim on ")
    assert last.threshold > 140
    assert store.people.reset("press")
    assert not store.people.reset("press")
    assert store.clip(hear(store, 160.0).clip_id).alarm


def test_few_healthy_clips_name_the_one_that_sets_the_threshold(store):
    """At a rate of 0.1 the highest of ten scores is the threshold, of 19 the second highest."""
    declare = partial(store.people.declare_healthy, "press", model_sha256=MODEL, rate=0.1)
    assert declare(10, "Kim").sentence() == (
        "The next 10 clips count as healthy. With fewer than 19 clips, the highest of their scores "
        "sets the threshold, so one odd clip can hide faults."
    )
    scores = [*np.linspace(150, 158, 9), 200.0]
    ids = [hear(store, float(score)).clip_id for score in scores]
    assert f"sets the threshold: 200, of clip {ids[-1]}." in (
        store.people.adaptation("press").sentence()
    )
    odd = store.clip(hear(store, 199.0).clip_id)
    assert not odd.alarm
    assert odd.threshold == pytest.approx(200, abs=1)
    store.people.reset("press")
    assert "fewer" not in declare(19, "Kim").sentence()
    for score in [*np.linspace(150, 167, 18), 200.0]:
        hear(store, float(score))
    assert "fewer" not in store.people.adaptation("press").sentence()
    assert store.clip(hear(store, 199.0).clip_id).alarm


def test_a_changed_model_begins_anew(store):
    hear(store, 99.5)
    own = verdict(score=99.5, domain_weights=SURE, model_sha256="cd" * 32)
    store.add(NewClip(own, "press", START, calibration=CALIBRATION))
    state = store.people.adaptation("press")
    assert (state.model_sha256, state.clips) == ("cd" * 32, 1)
    state = store.people.declare_healthy("press", FEWEST, "Kim", model_sha256=MODEL, rate=0.1)
    assert (state.model_sha256, state.clips) == (MODEL, 0)


def test_answers_reach_the_adaptation_once(store):
    clip = hear(store, 99.5).clip_id
    moved = store.people.adaptation("press").shifts["target"]
    store.people.answer_clip(clip, "fault", "Kim")
    state = store.people.adaptation("press")
    assert abs(state.shifts["target"]) < 1e-12 < moved
    store.people.answer_clip(clip, "fault", "Kim")
    assert store.people.adaptation("press") == state


def test_a_preview_is_what_would_be_stored_and_stores_nothing(store):
    hear(store, 99.5)
    own = verdict(score=99.9, domain_weights=SURE)
    new = NewClip(own, "press", START, calibration=CALIBRATION)
    shown = store.preview(new)
    assert store.machines_summary()[0].clips == 1
    assert store.add(new).verdict == shown


@pytest.mark.parametrize("clips", [0, FEWEST - 1, 501])
def test_a_number_of_healthy_clips_is_checked(store, clips):
    with pytest.raises(InputError, match="10 to 500 clips"):
        store.people.declare_healthy("press", clips, "Kim", model_sha256=MODEL, rate=0.1)
    assert store.people.adaptation("press") is None
