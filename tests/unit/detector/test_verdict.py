"""Verdict: what a person is told, and many windows in one answer."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from field_models import LOGMEL, small_model

from daco.detector.model import MachineModel
from daco.detector.ranges import learn_ranges
from daco.detector.verdict import ScoreOptions, judge, judge_embeddings, parse_aggregate, verdict_of
from daco.embedding.frontend import EmbeddedRecording, Listener
from daco.errors import InputError

KEYS = {
    "name",
    "machine",
    "score",
    "p_value",
    "alarm",
    "threshold",
    "domain_weights",
    "nearest",
    "nearest_distance",
    "reasons",
    "seconds",
    "windows",
    "worst_window",
    "model_sha256",
    "basis",
    "state",
}


@pytest.fixture(scope="module")
def model():
    return small_model(config="conf-soft-m0-k1")


def heard(embeddings, reasons=()):
    starts = 10.0 * np.arange(len(embeddings))
    return EmbeddedRecording(embeddings, starts, 10.0 * len(embeddings), 16000, reasons, 0.5, 0.1)


@pytest.fixture(scope="module")
def windows(model):
    """Three normals of the bank, one of them turned round: the third window is the worst."""
    clips = np.array(model.embeddings[[3, 44, 7, 12]])
    clips[2] = -clips[2]
    return clips


def test_one_window_is_the_score_of_the_model(model):
    clip = model.embeddings[44:45] * 1.01
    scored = model.score(clip)
    verdict = verdict_of(model, heard(clip, ("note: 1%",)), name="today.wav")
    assert verdict.score == scored.scores[0]
    assert verdict.p_value == pytest.approx(scored.p_values[0])
    assert verdict.alarm is False
    assert verdict.nearest == model.clip_names[44] == "train/target_0044.wav"
    assert verdict.nearest_distance == pytest.approx(0, abs=1e-6)
    assert verdict.domain_weights == pytest.approx(
        {"source": scored.weights[0, 0], "target": scored.weights[0, 1]}
    )
    assert sum(verdict.domain_weights.values()) == pytest.approx(1)
    assert verdict.reasons == ("note: 1%",)
    assert (verdict.windows, verdict.worst_window, verdict.seconds) == (1, None, 10.0)
    assert (verdict.name, verdict.machine) == ("today.wav", "press")
    assert verdict.threshold == model.reference.thresholds(scored.weights, 0.1)[0]
    assert verdict.state == "normal"
    assert verdict.basis == "from the training recordings only, so it may be far off"
    assert verdict.model_sha256 == model.sha256


def test_as_json_it_is_plain_and_complete(model, windows):
    document = verdict_of(model, heard(windows), name="a.wav").to_dict()
    assert set(document) == KEYS
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert isinstance(document["reasons"], list)


@pytest.mark.parametrize(
    ("aggregate", "count"), [("max", 1), ("top1", 1), ("top2", 2), ("top99", 4), ("mean", 4)]
)
def test_of_many_windows_the_worst_are_averaged(model, windows, aggregate, count):
    scores = model.score(windows).scores
    worst = np.sort(scores)[::-1][:count]
    verdict = verdict_of(model, heard(windows), name="a", aggregate=aggregate)
    assert verdict.score == pytest.approx(worst.mean())
    assert verdict.alarm == (verdict.p_value <= model.false_alarm_rate)
    assert verdict.alarm == (verdict.score > verdict.threshold) == (verdict.state == "anomalous")
    assert verdict.windows == 4
    assert verdict.worst_window == 20.0
    weights = model.score(windows).weights[np.argsort(-scores)[:count]].mean(axis=0)
    assert list(verdict.domain_weights.values()) == pytest.approx(weights.tolist())
    assert verdict.p_value == pytest.approx(float(model.reference.p_values(verdict.score, weights)))


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.05, 0.01, 0.001])
def test_alarm_threshold_and_p_value_agree_at_every_rate(model, rate):
    """No alarm with a p-value above the rate, and none below it without an alarm."""
    clips = np.vstack([model.embeddings * 1.1 + 0.1, np.roll(model.embeddings, 1, axis=1)])
    names = [str(row) for row in range(len(clips))]
    found = list(judge_embeddings(model.at_rate(rate), clips, names))
    for each in found:
        assert each.alarm == (each.p_value <= rate) == (each.score > each.threshold)
    assert len({each.threshold for each in found}) > 1  # it is the clip's own


def test_one_bad_window_alarms_by_max_and_not_by_mean(model, windows):
    assert verdict_of(model, heard(windows), name="a").alarm
    assert not verdict_of(model, heard(windows), name="a", aggregate="mean").alarm


def test_what_is_unlike_every_normal_is_far(model):
    verdict = verdict_of(model, heard(-model.embeddings[:1], ("note: x",)), name="a")
    assert verdict.alarm
    assert verdict.state == "anomalous"
    first, second = verdict.reasons
    assert first == "note: x"
    assert second.startswith("far: farther from every normal (")
    assert f"{model.reach:.3g}" in second
    assert f"{verdict.nearest_distance:.3g}" in second


@pytest.mark.parametrize("reason", ["silent: -inf dB", "clipped: 1%", "short: 1 s", "long: 60 s"])
def test_a_recorder_fault_is_no_machine_fault(model, reason):
    verdict = verdict_of(model, heard(-model.embeddings[:1], (reason,)), name="a")
    assert (verdict.state, verdict.alarm) == ("recorder fault", False)
    assert verdict.score > verdict.threshold
    assert verdict.reasons[0] == reason


USUAL = np.array([*[-40.0] * 9, 100, -5], np.float32)
QUIET, HISS = USUAL - np.float32(20), USUAL.copy()
HISS[-1] = 0


def with_levels(model, clips, levels):
    ranges = learn_ranges(np.stack([USUAL] * 20), [16000])
    return replace(model, ranges=ranges), replace(heard(clips), levels=np.stack(levels))


def test_levels_outside_the_ranges_replace_the_decision(model):
    clip = -model.embeddings[:1]
    for levels, state, code in [
        (USUAL, "anomalous", "far"),
        (QUIET, "off", "off"),
        (USUAL + np.float32(20), "out of range", "range"),
        (HISS, "out of range", "range"),
    ]:
        verdict = verdict_of(*with_levels(model, clip, [levels]), name="a")
        assert verdict.state == state
        assert verdict.alarm == (state == "anomalous")
        assert verdict.reasons[0].startswith(f"{code}: ")
        assert (state == "out of range") == verdict.reasons[-1].startswith("score: anomalous as")


def test_windows_of_a_machine_that_pauses_are_left_out_of_the_score(model, windows):
    verdict = verdict_of(*with_levels(model, windows, [USUAL, USUAL, QUIET, USUAL]), name="a")
    assert verdict.state == "normal"
    assert verdict.score == model.score(windows[[0, 1, 3]]).scores.max()
    assert verdict.reasons[0].startswith("off: ")
    assert verdict.reasons[0].endswith("(1 of 4 windows, not judged)")
    verdict = verdict_of(*with_levels(model, windows, [USUAL, QUIET, QUIET, QUIET]), name="a")
    assert verdict.state == "off"


def test_a_window_out_of_range_is_told_unless_another_is_anomalous(model, windows):
    calm = windows[[0, 1, 3, 3]]
    for clips, aggregate, state in [
        (calm, "max", "out of range"),
        (calm, "top2", "normal"),
        (calm, "mean", "normal"),
        (windows, "max", "anomalous"),
    ]:
        model_and_clip = with_levels(model, clips, [USUAL, HISS, USUAL, USUAL])
        verdict = verdict_of(*model_and_clip, name="a", aggregate=aggregate)
        assert (verdict.state, verdict.alarm) == (state, state == "anomalous")
        assert verdict.reasons[0].startswith("range: flatness")
    mixed = with_levels(model, calm, [HISS, QUIET, QUIET, HISS])
    assert verdict_of(*mixed, name="a", aggregate="mean").state == "out of range"


def test_a_lower_sample_rate_is_a_recorder_fault_and_a_higher_one_is_not(model):
    usable, recording = with_levels(replace(model, frontend=LOGMEL), model.embeddings[:1], [USUAL])
    low = verdict_of(usable, replace(recording, sample_rate=8000), name="a")
    assert low.state == "recorder fault"
    assert low.reasons[0] == "rate: 8000 Hz, the normals have 16000 Hz"
    assert verdict_of(usable, replace(recording, sample_rate=48000), name="a").state == "normal"


def test_embeddings_are_judged_row_by_row(model, windows):
    found = list(judge_embeddings(model, windows, ["a", "b", "c", "d"]))
    assert [each.name for each in found] == ["a", "b", "c", "d"]
    assert [each.score for each in found] == pytest.approx(model.score(windows).scores.tolist())
    assert [each.alarm for each in found] == [False, False, True, False]
    assert found[0].seconds is None
    assert found[0].windows == 1


@pytest.mark.parametrize("text", ["min", "top", "top0", "top-1", "topx", "Top3", "top1000000", ""])
def test_other_words_for_windows_are_refused(text):
    with pytest.raises(InputError, match="The aggregate must be"):
        parse_aggregate(text)


def test_a_recording_is_heard_and_judged(tmp_path):
    rng = np.random.default_rng(0)
    listener = Listener(LOGMEL)
    waves = rng.normal(0, 0.1, size=(12, 32000)).astype(np.float32)
    X = np.vstack([listener.embed_waveform(wave, 16000).embeddings for wave in waves])
    model = MachineModel.fit(X, machine="fan", frontend=LOGMEL, config="raw-k1")
    path = tmp_path / "a.wav"
    soundfile.write(path, waves[0], 16000, subtype="FLOAT")
    verdict = judge(model, listener, path, name="a.wav")
    assert verdict.score == pytest.approx(0, abs=1e-6)
    assert verdict.nearest == "0"
    assert verdict.reasons == ("short: 2 s, the normals have 10 s",)
    options = ScoreOptions(window=0.5, aggregate="top2")
    cut = judge(model, listener, path.read_bytes(), name="b", options=options)
    assert cut.windows == 4
    assert cut.seconds == 2.0
    with pytest.raises(InputError, match="aggregate"):
        judge(model, listener, path, name="a", options=ScoreOptions(aggregate="most"))
    with pytest.raises(InputError, match="as the normals of this model were"):
        judge(small_model(), listener, path, name="a")
