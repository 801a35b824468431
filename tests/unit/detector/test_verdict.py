"""Verdict: what a person is told, and many windows in one answer."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest
import soundfile
from field_models import LOGMEL, small_model

from daco.data.views import Views
from daco.detector.model import MachineModel
from daco.detector.ranges import learn_ranges
from daco.detector.verdict import (
    STANDS_OUT,
    ScoreOptions,
    Verdict,
    judge,
    judge_embeddings,
    parse_aggregate,
    verdict_of,
    views_in_words,
)
from daco.embedding.frontend import EmbeddedRecording, Listener
from daco.errors import InputError


@pytest.fixture(scope="module")
def model():
    return small_model(config="conf-soft-m0-k1")


def embedded(embeddings, reasons=()):
    starts = 10.0 * np.arange(len(embeddings))
    return EmbeddedRecording(embeddings, starts, 10.0 * len(embeddings), 16000, reasons)


@pytest.fixture(scope="module")
def windows(model):
    """Four normals of the bank, one of them turned round: the third window is the worst."""
    clips = np.array(model.embeddings[[3, 44, 7, 12]])
    clips[2] = -clips[2]
    return clips


def test_one_window_is_the_decision_of_the_model(model):
    clip = model.embeddings[44:45] * 1.01
    scored = model.score(clip)
    verdict = verdict_of(model, embedded(clip, ("note: 1%",)), name="today.wav")
    assert (verdict.name, verdict.machine) == ("today.wav", "press")
    assert (verdict.score, verdict.p_value) == (scored.scores[0], scored.p_values[0])
    assert (verdict.anomalous, verdict.state) == (False, "normal")
    assert verdict.threshold == model.reference.threshold(scored.weights[0], 0.1)
    assert verdict.nearest == model.clip_names[44]
    assert verdict.nearest_distance == pytest.approx(0, abs=1e-6)
    assert list(verdict.domain_weights.values()) == pytest.approx(scored.weights[0])
    assert verdict.reasons == ("note: 1%",)
    assert (verdict.windows, verdict.worst_window, verdict.seconds) == (1, None, 10.0)
    assert (verdict.model_sha256, verdict.basis) == (model.sha256, model.basis_sentence)
    assert verdict.views == {}


def test_as_json_it_is_plain_and_complete(model, windows):
    document = verdict_of(model, embedded(windows), name="a.wav").to_dict()
    assert set(document) == {each.name for each in fields(Verdict)}
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize(
    ("aggregate", "count"), [("max", 1), ("top1", 1), ("top2", 2), ("top99", 4), ("mean", 4)]
)
def test_of_many_windows_the_worst_are_averaged(model, windows, aggregate, count):
    scored = model.score(windows)
    taken = np.argsort(-scored.scores)[:count]
    verdict = verdict_of(model, embedded(windows), name="a", aggregate=aggregate)
    weights = scored.weights[taken].mean(axis=0)
    assert verdict.score == pytest.approx(scored.scores[taken].mean())
    assert verdict.p_value == pytest.approx(model.reference.p_values(verdict.score, weights))
    assert list(verdict.domain_weights.values()) == pytest.approx(weights)
    assert verdict.anomalous == (count == 1) == (verdict.state == "anomalous")
    assert (verdict.windows, verdict.worst_window) == (4, 20.0)


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("config", ["blend", "conf-soft-m0-k1"])
def test_alarm_threshold_and_p_value_agree_at_every_rate(config, rate):
    model = small_model(config=config, false_alarm_rate=rate)
    clips = np.vstack([model.embeddings * 1.1 + 0.1, np.roll(model.embeddings, 1, axis=1)])
    found = list(judge_embeddings(model, clips, [str(row) for row in range(len(clips))]))
    for each in found:
        above = each.score > each.threshold
        assert each.anomalous == (each.p_value <= rate * (1 + 1e-9)) == above == (each.oddness >= 1)
        assert each.extrapolated == (each.p_value < each.supported_rate * (1 - 1e-9))
        assert 1 / 51 <= each.supported_rate <= 1 / 11 + 1e-9
    assert len({each.threshold for each in found}) > 1  # it is that of the clip's weights


class TestViews:
    VIEWS = Views(("mod", "env"), (5, 3))

    def test_explain_an_anomalous_clip_and_one_view_that_stands_out(self):
        model = small_model(views=self.VIEWS)
        X = np.array(model.embeddings)
        both, one = -X[:1], X[:1].copy()
        one[:, 5:] *= -1
        for clip in (X[:1], both, one):
            scored = model.score(clip)
            (verdict,) = judge_embeddings(model, clip, ["a"])
            assert verdict.views == dict(zip(("mod", "env"), scored.by_view[0], strict=True))
            assert verdict.score == pytest.approx(np.mean(list(verdict.views.values())))
            explained = [reason for reason in verdict.reasons if reason.startswith("views: ")]
            stands_out = verdict.anomalous or max(verdict.views.values()) >= STANDS_OUT
            assert explained == [f"views: {views_in_words(verdict.views)}"] * stands_out
        assert "rhythm up to 15 Hz: ordinary" in explained[0]
        assert "repetition up to 500 Hz: " in explained[0]


def test_what_is_unlike_every_normal_is_far(model):
    verdict = verdict_of(model, embedded(-model.embeddings[:1], ("note: x",)), name="a")
    assert verdict.state == "anomalous"
    first, second = verdict.reasons
    assert first == "note: x"
    assert second.startswith("far: ")
    assert f"{model.reach:.3g}" in second
    assert f"{verdict.nearest_distance:.3g}" in second


USUAL = np.array([*[-40.0] * 9, 100, -5], np.float32)
QUIET, HISS = USUAL - np.float32(20), USUAL.copy()
HISS[-1] = 0


def with_levels(model, clips, levels):
    ranges = learn_ranges(np.stack([USUAL] * 20), [16000])
    return replace(model, ranges=ranges), replace(embedded(clips), levels=np.stack(levels))


class TestSound:
    @pytest.mark.parametrize("reason", ["silent: x", "clipped: 1%", "short: 1 s", "long: 60 s"])
    def test_a_recorder_fault_is_no_machine_fault(self, model, reason):
        verdict = verdict_of(model, embedded(-model.embeddings[:1], (reason,)), name="a")
        assert (verdict.state, verdict.anomalous) == ("recorder fault", False)
        assert verdict.score > verdict.threshold
        assert verdict.reasons[0] == reason

    def test_levels_outside_the_ranges_replace_the_decision(self, model):
        clip = -model.embeddings[:1]
        for levels, state, code in [
            (USUAL, "anomalous", "far"),
            (QUIET, "off", "off"),
            (USUAL + np.float32(20), "out of range", "range"),
            (HISS, "out of range", "range"),
        ]:
            verdict = verdict_of(*with_levels(model, clip, [levels]), name="a")
            assert (verdict.state, verdict.anomalous) == (state, state == "anomalous")
            assert verdict.reasons[0].startswith(f"{code}: ")
            assert (state == "out of range") == verdict.reasons[-1].startswith("score: ")

    def test_windows_of_a_machine_that_pauses_are_left_out_of_the_score(self, model, windows):
        verdict = verdict_of(*with_levels(model, windows, [USUAL, USUAL, QUIET, USUAL]), name="a")
        assert verdict.state == "normal"
        assert verdict.score == model.score(windows[[0, 1, 3]]).scores.max()
        assert verdict.reasons[0].startswith("off: ")
        assert verdict.reasons[0].endswith("(1 of 4 windows, not judged)")
        verdict = verdict_of(*with_levels(model, windows, [USUAL, QUIET, QUIET, QUIET]), name="a")
        assert verdict.state == "off"

    @pytest.mark.parametrize(
        ("rows", "aggregate", "state"),
        [
            ([0, 1, 3, 3], "max", "out of range"),
            ([0, 1, 3, 3], "top2", "normal"),
            ([0, 1, 3, 3], "mean", "normal"),
            ([0, 1, 2, 3], "max", "anomalous"),
        ],
    )
    def test_a_window_out_of_range_counts_unless_another_is_anomalous(
        self, model, windows, rows, aggregate, state
    ):
        given = with_levels(model, windows[rows], [USUAL, HISS, USUAL, USUAL])
        verdict = verdict_of(*given, name="a", aggregate=aggregate)
        assert (verdict.state, verdict.anomalous) == (state, state == "anomalous")
        assert verdict.reasons[0].startswith("range: flatness")


def test_embeddings_are_judged_row_by_row(model, windows):
    found = list(judge_embeddings(model, windows, ["a", "b", "c", "d"]))
    assert [each.name for each in found] == ["a", "b", "c", "d"]
    assert [each.score for each in found] == pytest.approx(model.score(windows).scores.tolist())
    assert [each.anomalous for each in found] == [False, False, True, False]
    assert (found[0].seconds, found[0].windows) == (None, 1)
    levels = np.stack([USUAL, QUIET, USUAL, USUAL])
    ranged = with_levels(model, windows, levels)[0]
    states = [each.state for each in judge_embeddings(ranged, windows, "abcd", levels)]
    assert states == ["normal", "off", "anomalous", "normal"]


@pytest.mark.parametrize("text", ["min", "top", "top0", "top-1", "topx", "Top3", "top1000000", ""])
def test_other_words_for_windows_are_refused(text):
    with pytest.raises(InputError, match="aggregate"):
        parse_aggregate(text)


def test_a_recording_is_embedded_and_judged(tmp_path):
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
    assert verdict.state == "recorder fault"  # 2 s, and the normals have 10 s
    options = ScoreOptions(window=0.5, aggregate="top2")
    cut = judge(model, listener, path.read_bytes(), name="b", options=options)
    assert (cut.windows, cut.seconds) == (4, 2.0)
    with pytest.raises(InputError, match="listener"):
        judge(small_model(), listener, path, name="a")
