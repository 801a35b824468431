"""What a model catches: who is left out, how rates are counted, what is said of few clips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from field_models import LOGMEL, normals, small_model

from daco.backbones.levels import levels_text
from daco.data.clips import Clip, ClipTable
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.detector.model import MachineModel
from daco.detector.ranges import learn_ranges
from daco.errors import DataError, NotEnoughClipsError
from daco.evaluation.intervals import share_interval
from daco.method.bank import NormalBank
from daco.synthetic.sensitivity import (
    caught_from,
    detection_rates,
    of_machine,
    sentences,
    warnings,
)

LEVELS = (-12.0, -6.0, 0.0)


def rates_of(counts, false_alarms=(2, 1), clips=(20, 10), ranges=(), in_model=1):
    """The table of one count per fault, domain and level; all by the score, some by ranges too."""
    domains = ("source", "target")
    rows = [("", domain, np.nan, n) for domain, n in zip(domains, false_alarms, strict=True)]
    for fault, of_domains in counts.items():
        for domain, of_levels in zip(domains, of_domains, strict=True):
            rows += [(fault, domain, *each) for each in zip(LEVELS, of_levels, strict=True)]
    table = pd.DataFrame(rows, columns=["fault", "domain", "level_db", "caught"])
    table["clips"] = table["domain"].map(dict(zip(domains, clips, strict=True)))
    table["rate"] = table["caught"] / table["clips"]
    pairs = zip(table["caught"], table["clips"], strict=True)
    table[["low", "high"]] = [share_interval(*pair) for pair in pairs]
    by_ranges = table["fault"].isin(ranges)
    table["by_score"] = table["caught"].where(~by_ranges, 0)
    table["by_ranges"] = table["caught"].where(by_ranges, 0)
    return table.assign(in_model=in_model)


COUNTS = {"impacts": ([10, 18, 20], [9, 8, 9]), "noise": ([2, 2, 3], [1, 1, 1])}


def test_caught_from_is_the_level_from_which_on_it_never_falls_short():
    found = caught_from(rates_of(COUNTS)).set_index(["fault", "domain"])
    assert found.loc[("impacts", "source"), "from_db"] == -6
    assert found.loc[("impacts", "target"), "from_db"] == 0  # 9, 8, 9 of 10: -12 dB does not count
    assert found.loc["noise", "from_db"].isna().all()
    assert caught_from(rates_of(COUNTS), 0.1)["from_db"].tolist() == [-12, -12, -12, -12]


def test_the_sentences_tell_level_domains_and_what_catches_the_fault():
    impacts, noise = sentences(rates_of(COUNTS))
    assert "(-6 dB) in source; " in impacts
    assert "15% caught" in noise
    off = rates_of({"off": ([0, 0, 20], [0, 0, 9])}, ranges=["off"])
    (sentence,) = sentences(off)
    assert sentence.endswith("(0 dB) in source and target, by the levels.")
    assert caught_from(off)["by"].tolist() == ["ranges", "ranges"]


def recordings(machine="press", year=None):
    return ClipTable(Path(), (Clip("a.wav", machine, year),))


def test_few_clips_and_too_many_false_alarms_are_said():
    model = small_model(false_alarm_rate=0.1)
    assert warnings(rates_of(COUNTS), model, recordings()) == [
        "Each rate in target comes from 10 recordings: if 10 of 10 are caught, the true rate may "
        "still be 0.69."
    ]
    loud = warnings(rates_of(COUNTS, false_alarms=(9, 1)), model, recordings())
    assert "9 of 20 source recordings are caught without a fault" in loud[0]


@pytest.mark.parametrize(
    ("machine", "year", "in_model", "is_said"),
    [("press", 2024, 0, False), ("fan", 7, 0, True), ("fan", 7, 1, False)],
)
def test_recordings_of_another_machine_are_said_unless_some_are_in_the_model(
    machine, year, in_model, is_said
):
    told = warnings(rates_of(COUNTS, in_model=in_model), small_model(), recordings(machine, year))
    words = "The model is of press, but the recordings are of fan (7)."
    assert any(words in each for each in told) == is_said


def faults_of(rows, model_X, shift=0.0, names=None, versions=1):
    """A table of faults made of some normals; a fault is a shift of one feature."""
    paths, vectors, kinds, levels, domains = [], [], [], [], []
    for row in rows:
        for version in range(versions + 1):
            paths.append(f"new/{row}.wav" if names is None else names[row])
            vectors.append(
                model_X[row].astype(np.float64) + version * shift * np.eye(1, model_X.shape[1])[0]
            )
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
    weights = np.zeros((1, len(model.domains)))
    weights[:, [model.domains.index(name) for name in bank.domains]] = found.weights
    return model.reference.p_values(found.scores, weights)[0] <= model.false_alarm_rate


@pytest.mark.parametrize("config", ["raw-k1", "conf-soft-m0-k1"])
def test_a_recording_of_the_model_is_judged_without_itself(config):
    X, _ = normals()
    model = small_model(config=config, false_alarm_rate=0.1)
    rates = detection_rates(model, faults_of(range(50), X))
    assert rates["in_model"].tolist() == [40, 10] * 2
    own = [alarm_without(model, row) for row in range(50)]
    expected = [sum(own[:40]), sum(own[40:])]
    assert rates["caught"].tolist() == expected * 2  # the fault has no size


def test_the_only_recording_of_a_domain_is_judged_by_the_other_domains():
    X, domains = normals()
    names = [f"{row}.wav" for row in range(50)]
    options = {"machine": "press", "config": "raw-k1", "clip_names": names}
    model = MachineModel.fit(X, [*domains[:-1], "third"], **options)
    rates = detection_rates(model, faults_of([3, 49], X, names=names))
    assert rates["caught"].tolist()[:2] == [alarm_without(model, 3), alarm_without(model, 49)]


def test_views_of_the_model_reach_the_bank_without_the_recording():
    X, domains = normals()
    views = Views(("mod", "cep"), (X.shape[1] - 2, 2))
    model = MachineModel.fit(X, domains, machine="press", views=views)
    faults = faults_of([3], X)
    parts = zip(views.names, views.split(faults.matrix()), strict=True)
    faults = EmbeddingTable(faults.columns, {name: part.copy() for name, part in parts}, {})
    assert detection_rates(model, faults)["caught"].tolist()[0] == alarm_without(model, 3)


def test_new_recordings_are_judged_by_the_model_itself():
    model, new = small_model(), normals(seed=5)[0]
    rates = detection_rates(model, faults_of(range(50), new, shift=4.0, versions=2))
    assert not rates["in_model"].any()
    assert rates["level_db"].tolist()[2:] == [-6, 0, -6, 0]
    shifted = new + 8 * np.eye(1, new.shape[1])
    expected = [model.score(X).anomalous for X in (new, shifted)]
    top = rates[~(rates["level_db"] < 0)].sort_values(["fault", "domain"])
    assert top["caught"].tolist() == [n for a in expected for n in (a[:40].sum(), a[40:].sum())]


def test_versions_outside_the_ranges_are_caught_whatever_their_score():
    usual = np.array([*[-40.0] * 9, 100, -5])
    model = replace(small_model(), ranges=learn_ranges(np.stack([usual] * 20)))
    table = faults_of(range(50), normals(seed=5)[0], versions=2)
    quiet = usual - [*[20.0] * 9, 0, 0]
    levels = [quiet if level == "0" else usual for level in table.columns["level_db"]]
    columns = {**table.columns, "levels": np.array(levels_text(np.array(levels)), object)}
    ranged = EmbeddingTable(columns, {"embedding": table.matrix()}, table.metadata)
    found, plain = (detection_rates(model, each) for each in (ranged, table))
    assert found["by_ranges"].tolist() == [0, 0, 0, 40, 0, 10]
    assert found["caught"].tolist()[3::2] == [40, 10]
    assert found["by_score"].tolist() == plain["by_score"].tolist() == plain["caught"].tolist()


def test_a_model_that_cannot_do_without_a_normal_says_so():
    X, _ = normals()
    names = [f"{row}.wav" for row in range(40)]
    options = {"machine": "press", "frontend": LOGMEL, "config": "varmin-K4"}
    model = MachineModel.fit(X[:5], ["source"] * 5, **options, clip_names=names[:5])
    with pytest.raises(NotEnoughClipsError, match=r"has 5 normals.*needs a bank of 5 clips"):
        detection_rates(model, faults_of(range(5), X))
    assert not detection_rates(model, faults_of(range(10, 15), X))["in_model"].any()


def test_the_recordings_of_the_models_machine_are_taken():
    clips = (Clip("a.wav", "fan", 2024), Clip("b.wav", "pump", 2024))
    table = ClipTable(Path(), clips)
    assert of_machine(table, "pump (2024)").clips == clips[1:]
    assert of_machine(table, "fan").clips == clips[:1]
    assert of_machine(ClipTable(Path(), clips[:1]), "press").clips == clips[:1]
    with pytest.raises(DataError, match=r"of press, the recordings are of fan"):
        of_machine(table, "press")
