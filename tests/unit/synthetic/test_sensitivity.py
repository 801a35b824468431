"""What a model catches: who is left out, how rates are counted, what is said of few clips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from field_models import LOGMEL, normals, small_model
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from daco.backbones.levels import levels_text
from daco.data.clips import Clip, ClipTable
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.detector.model import MachineModel
from daco.detector.ranges import learn_ranges
from daco.errors import DataError, NotEnoughClipsError
from daco.experiments.figures.models import plot_sensitivity
from daco.method.bank import NormalBank
from daco.synthetic import sensitivity
from daco.synthetic.sensitivity import (
    Rate,
    Sensitivity,
    detection_rates,
    of_machine,
    same_recordings,
)

LEVELS = (-12.0, -6.0, 0.0)


def result(caught, clips=(20, 10), **options):
    """Rates of two kinds in two domains."""
    defaults = {
        **{"kinds": ("impacts", "noise"), "domains": ("source", "target"), "levels": LEVELS},
        **{"caught": np.array(caught), "false_alarms": np.array([2, 1]), "clips": np.array(clips)},
        **{"detect": 0.9, "in_model": 30, "seed": 0},
        **{"by_score": np.array(caught), "by_ranges": np.zeros((2, 2, 3), int)},
    }
    return Sensitivity("press", "raw-k1", "0" * 64, 1.0, 0.1, **(defaults | options))


FOUND = [[[10, 18, 20], [9, 8, 9]], [[2, 2, 3], [1, 1, 1]]]


def test_caught_from_is_the_level_from_which_on_it_never_falls_short():
    found = result(FOUND)
    assert found.caught_from("impacts", "source") == -6
    assert found.caught_from("impacts", "target") == 0  # 9, 8, 9 of 10: -12 dB does not count
    assert found.caught_from("noise", "source") is None


def test_the_sentences_say_it():
    said = list(result(FOUND).sentences())
    assert said[0] == "impacts: caught from -6 dB in source; caught from 0 dB in target."
    assert said[1] == "noise: 15% caught at 0 dB in source; 10% caught at 0 dB in target."
    mixed = result([FOUND[0], [[20, 20, 20], [1, 1, 1]]])
    assert list(mixed.sentences())[1] == (
        "noise: caught from -12 dB in source; 10% caught at 0 dB in target."
    )


def test_what_notices_a_fault_is_said():
    scored = np.array([FOUND[0], [[0, 0, 3], [0, 0, 0]]])
    ranged = np.array([[[0, 0, 12], [0, 0, 9]], [[0, 0, 20], [0, 0, 9]]])
    caught = [FOUND[0], [[0, 0, 20], [0, 0, 9]]]
    found = result(caught, by_score=scored, by_ranges=ranged)
    assert [found.noticed_by(kind) for kind in ("impacts", "noise")] == ["both", "ranges"]
    assert (
        list(found.sentences())[1] == "noise: caught from 0 dB in source and target, by the levels."
    )
    rows = {(row["fault"], row["domain"], row["level_db"]): row for row in found.rows()}
    assert rows["noise", "target", 0.0]["by_ranges"] == 9
    nothing = np.zeros((2, 2, 3), int)
    assert result(nothing).noticed_by("noise") == "-"
    assert result(FOUND).noticed_by("impacts") == "score"


def test_few_clips_and_too_many_false_alarms_are_said():
    assert list(result(FOUND).warnings()) == [
        "Each rate in target comes from 10 recordings: if 10 of 10 are caught, the true rate may "
        "still be 0.69."
    ]
    loud = result(FOUND, false_alarms=np.array([9, 1]))
    assert "9 of 20 source recordings are caught without a fault" in list(loud.warnings())[1]


def test_recordings_of_another_machine_are_said_unless_some_are_in_the_model():
    other = result(FOUND, recorded=("pump (2024)",), in_model=0)
    said = next(other.warnings())
    assert said.startswith("The model is of press, but the recordings are of pump (2024).")
    assert said in other.to_dict()["warnings"]
    for same in (result(FOUND, recorded=("pump",), in_model=3), result(FOUND, in_model=0)):
        assert not any("The model is of" in each for each in same.warnings())


@pytest.mark.parametrize(
    ("machine", "year", "recorded"),
    [("press", 2024, ()), ("press", None, ()), ("fan", None, ("fan",)), ("fan", 7, ("fan (7)",))],
)
def test_the_name_of_the_machine_is_that_of_the_recordings(machine, year, recorded):
    table = faults_of(range(3), normals(seed=5)[0])
    n = len(table)
    columns = {
        **table.columns,
        "machine": np.array([machine] * n, object),
        "year": np.array([year] * n, object),
    }
    renamed = EmbeddingTable(columns, {"embedding": table.matrix()}, table.metadata)
    assert detection_rates(small_model(), renamed).recorded == recorded
    machine_title = small_model(machine="press (2024)")
    if (machine, year) == ("press", 2024):
        assert detection_rates(machine_title, renamed).recorded == ()


def test_a_model_that_cannot_do_without_a_normal_says_so():
    X, _ = normals()
    names = [f"{row}.wav" for row in range(40)]
    options = {"machine": "press", "frontend": LOGMEL, "config": "varmin-K4"}
    model = MachineModel.fit(X[:5], ["source"] * 5, **options, clip_names=names[:5])
    with pytest.raises(NotEnoughClipsError) as caught:
        detection_rates(model, faults_of(range(5), X))
    said = str(caught.value)
    assert "The recordings are in the model, which has 5 normals." in said
    assert "left out of it in turns, 1 at a time" in said
    assert "needs a bank of 5 clips" in said
    assert "Or give recordings that are not in the model." in said
    larger = MachineModel.fit(X[:6], ["source"] * 6, **options, clip_names=names[:6])
    assert detection_rates(larger, faults_of(range(6), X)).in_model == 6
    assert detection_rates(model, faults_of(range(10, 15), X)).in_model == 0


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_the_binomial_one(counts):
    caught, clips = counts
    low, high = Rate(caught, clips).interval
    assert low <= caught / clips <= high
    # At its ends, so many or more (fewer) are drawn once in forty times.
    if caught:
        assert binom.sf(caught - 1, clips, low) == pytest.approx(0.025)
    if caught < clips:
        assert binom.cdf(caught, clips, high) == pytest.approx(0.025)


def faults_of(rows, model_X, shift=0.0, names=None, versions=1):
    """A table of faults made of some normals; a fault is a shift of one feature."""
    paths, vectors, kinds, levels, domains = [], [], [], [], []
    for row in rows:
        name = f"new/{row}.wav" if names is None else names[row]
        for version in range(versions + 1):
            paths.append(name)
            moved = model_X[row].astype(np.float64).copy()
            moved[0] += version * shift
            vectors.append(moved)
            kinds.append("rub" if version else "")
            levels.append(f"{-6 * (versions - version)}" if version else None)
            domains.append("source" if row < 40 else "target")
    return EmbeddingTable.from_arrays(
        np.array(vectors), path=paths, fault=kinds, level_db=levels, domain=domains
    )


def alarm_without(model, row):
    """Whether the model alarms on one of its normals, which it does not have meanwhile."""
    stays = np.arange(len(model)) != row
    domains = np.array(model.domains)[model.clip_domains[stays]]
    bank = NormalBank(model.embeddings[stays], domains, views=model.views)
    found = bank.examine(model.embeddings[row : row + 1], model.config)
    p_value = model.reference.p_values(found.scores, found.weights)[0]
    return p_value <= model.false_alarm_rate


def test_a_recording_of_the_model_is_judged_without_itself():
    X, _ = normals()
    model = small_model(config="raw-k1", false_alarm_rate=0.1)
    made = detection_rates(model, faults_of(range(50), X))
    assert made.in_model == 50
    # Each left out, as for the model's reference scores: raw scores need no calibration.
    own = [alarm_without(model, row) for row in range(50)]
    expected = [sum(own[:40]), sum(own[40:])]
    assert made.false_alarms.tolist() == pytest.approx(expected, abs=2)
    alone = detection_rates(model, faults_of([3, 45], X))
    assert alone.false_alarms.tolist() == [int(own[3]), int(own[45])]


def test_the_only_recording_of_a_domain_is_judged_by_the_other_domains():
    X, domains = normals()
    domains = [*domains[:-1], "third"]
    names = [f"{row}.wav" for row in range(50)]
    model = MachineModel.fit(X, domains, machine="press", config="raw-k1", clip_names=names)
    made = detection_rates(model, faults_of([3, 49], X, names=names))
    assert made.in_model == 2
    others = NormalBank(X[:49], domains[:49]).examine(X[49:], "raw-k1")
    weights = np.append(others.weights, [[0.0]], axis=1)
    p_value = model.reference.p_values(others.scores, weights)[0]
    assert made.false_alarms[1] == (p_value <= model.false_alarm_rate)


def test_copies_are_found_by_sound_and_by_path():
    X, _ = normals()
    model = small_model()
    near = X[:3] * 2.5  # louder, the same direction
    far = X[:3] + np.random.default_rng(0).normal(0, 0.2, X[:3].shape)
    copies = same_recordings(model, near, ["a", "b", "c"])
    assert [rows.tolist() for rows in copies] == [[0], [1], [2]]
    found = same_recordings(model, far, ["a", model.clip_names[7], "c"])
    assert [rows.tolist() for rows in found] == [[], [7], []]


def test_at_most_a_tenth_of_a_domain_is_missing_at_a_time(monkeypatch):
    X, _ = normals()
    model = small_model()
    sizes = []

    class Watched(sensitivity.NormalBank):
        def __init__(self, bank, domains, **options):
            super().__init__(bank, domains, **options)
            sizes.append((int((domains == "source").sum()), int((domains == "target").sum())))

    monkeypatch.setattr(sensitivity, "NormalBank", Watched)
    detection_rates(model, faults_of(range(50), X))
    assert min(size for size, _ in sizes) >= 36
    assert min(size for _, size in sizes) >= 9
    assert sum(40 - source for source, _ in sizes) == 40
    assert sum(10 - target for _, target in sizes) == 10


def test_versions_outside_the_ranges_are_caught_whatever_their_score():
    usual = np.array([*[-40.0] * 9, 100, -5])
    model = replace(small_model(), ranges=learn_ranges(np.stack([usual] * 20)))
    table = faults_of(range(50), normals(seed=5)[0], versions=2)
    quiet = usual - [*[20.0] * 9, 0, 0]
    levels = [quiet if level == "0" else usual for level in table.columns["level_db"]]
    columns = {**table.columns, "levels": np.array(levels_text(np.array(levels)), object)}
    ranged = EmbeddingTable(columns, {"embedding": table.matrix()}, table.metadata)
    made, plain = detection_rates(model, ranged), detection_rates(model, table)
    assert made.by_ranges.tolist() == [[[0, 40], [0, 10]]]
    assert made.caught[0, :, 1].tolist() == [40, 10]
    assert made.caught[0, :, 0].tolist() == plain.caught[0, :, 0].tolist()
    assert plain.by_ranges.sum() == 0


def test_new_recordings_are_judged_by_the_model_itself():
    model = small_model()
    new = normals(seed=5)[0]
    made = detection_rates(model, faults_of(range(50), new, shift=4.0, versions=2))
    assert made.in_model == 0
    judged = model.score(new).alarms
    assert made.false_alarms.tolist() == [int(judged[:40].sum()), int(judged[40:].sum())]
    shifted = new.copy().astype(np.float64)
    shifted[:, 0] += 8
    caught = model.score(shifted).alarms
    assert made.caught[0, :, -1].tolist() == [int(caught[:40].sum()), int(caught[40:].sum())]
    assert made.levels == (-6, 0)


def test_a_table_that_lacks_a_version_is_refused():
    X, _ = normals()
    table = faults_of(range(4), X, versions=2)
    keep = np.arange(len(table)) != 5
    columns = {name: values[keep] for name, values in table.columns.items()}
    cut = EmbeddingTable(columns, {"embedding": table.matrix()[keep]}, table.metadata)
    with pytest.raises(DataError, match="lacks some versions"):
        detection_rates(small_model(), cut)


def test_the_recordings_of_the_models_machine_are_taken():
    clips = (Clip("a.wav", "fan", 2024), Clip("b.wav", "pump", 2024))
    table = ClipTable(Path(), clips)
    assert of_machine(table, "pump (2024)").clips == clips[1:]
    assert of_machine(table, "fan").clips == clips[:1]
    assert of_machine(ClipTable(Path(), clips[:1]), "press").clips == clips[:1]
    with pytest.raises(DataError, match=r"of press, the recordings are of fan \(2024\), pump"):
        of_machine(table, "press")


def test_views_of_the_model_reach_the_bank_without_the_recording():
    X, domains = normals()
    views = Views(("mod", "cep"), (X.shape[1] - 2, 2))
    model = MachineModel.fit(X, domains, machine="press", views=views)
    made = detection_rates(model, two_readouts(faults_of([3], X), views))
    assert made.false_alarms.tolist() == [int(alarm_without(model, 3))]


def two_readouts(table, views):
    """The same vectors as two readouts."""
    parts = zip(views.names, views.split(table.matrix()), strict=True)
    return EmbeddingTable(table.columns, {name: part.copy() for name, part in parts}, {})


def test_the_picture_shows_every_kind_and_names_the_clips():
    found = result(FOUND)
    figure = plot_sensitivity(found)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["impacts", "noise"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend[:2] == ["source (20)", "target (10)"]
    lines = [line for line in figure.axes[0].lines if line.get_label() == "source"]
    assert lines[0].get_ydata().tolist() == [50, 90, 100]
    many = replace(
        found,
        domains=tuple(f"line-{n}" for n in range(6)),
        caught=np.ones((2, 6, 3), int),
        clips=np.full(6, 3),
        false_alarms=np.zeros(6, int),
    )
    assert len(plot_sensitivity(many).axes) == 2
