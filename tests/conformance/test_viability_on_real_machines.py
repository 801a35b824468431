"""The label-free veto on real machines: faults in real recordings, real networks.

The bank is made of all 1,000 training clips of a machine, embedded by others; the faults are
injected here into some of its recordings. True scores are read only to say what was cut.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from real_tables import real_table
from shared_data import shared

import daco
from daco.backbones import load
from daco.data.clips import stem_of
from daco.data.sources import read_clips
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.method.viability import moved_normals, pseudo_scores, viability_veto
from daco.synthetic.fault_tables import injected
from daco.synthetic.injection import Plan, choose_recordings, inject_recordings

GRID = [config.name for config in daco.paper_grid()]
DEGENERATE = "ldn-diff-K16"
MACHINES = ("fan", "bearing")


@cache
def normals(machine, embeddings):
    table = real_table(machine, embeddings=embeddings).select(split="train")
    return table.matrix(), table.column("domain").astype(str), table.column("path").tolist()


def net_of(embeddings):
    if embeddings == "logmel_mod":
        return load("logmel")
    pytest.importorskip("torch")
    return load("mn04", weights=shared("real", "mn04_as_mAP_432.pt"))


@cache
def fault_scores(machine, embeddings, per_domain, levels):
    """Pseudo scores of injected faults, and how the clean embeddings compare with the given."""
    X, domains, names = normals(machine, embeddings)
    clips = choose_recordings(read_clips(shared("real", "audio", machine)), per_domain)
    faults = inject_recordings(clips, net_of(embeddings), Plan(levels=levels))
    made = injected(faults, names, domains, X=X)
    assert [stem_of(names[row]) for row in made.rows] == [stem_of(clip.path) for clip in clips]
    assert np.allclose(made.clean, X[made.rows], atol=2e-5)
    return pseudo_scores(X, domains, made, GRID)


@pytest.mark.parametrize(
    ("machine", "embeddings", "per_domain", "levels"),
    [
        ("fan", "logmel_mod", 10, (-18.0, -10.0, -4.0)),
        ("bearing", "logmel_mod", 10, (-18.0, -10.0, -4.0)),
        ("fan", "mn04", 8, (-10.0,)),
    ],
)
def test_injected_faults_cut_the_degenerate_configuration_alone(
    machine, embeddings, per_domain, levels
):
    found = fault_scores(machine, embeddings, per_domain, levels)
    veto = viability_veto(found)
    assert veto.excluded == (DEGENERATE,)
    assert veto.basis == "injected faults"
    advantage = (veto.score - 0.5) / (min(veto.median, veto.plain) - 0.5)
    cut = GRID.index(DEGENERATE)
    assert advantage[cut] < 0.76
    assert np.delete(advantage, cut).min() > 0.83


def test_the_modulation_embedding_does_not_hold_steady_faults():
    for machine in MACHINES:
        found = fault_scores(machine, "logmel_mod", 10, (-18.0, -10.0, -4.0))
        assert found.detectable == ("impacts", "tones", "rub", "modulation")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("embeddings", ["mn04", "logmel_mod"])
def test_the_fallback_without_recordings_cuts_it_too(machine, embeddings):
    X, domains, _ = normals(machine, embeddings)
    veto = viability_veto(pseudo_scores(X, domains, moved_normals(X, domains), GRID))
    assert veto.excluded == (DEGENERATE,)
    assert veto.basis == "embedding-space pseudo-anomalies"
    advantage = (veto.score - 0.5) / (min(veto.median, veto.plain) - 0.5)
    assert advantage[GRID.index(DEGENERATE)] < 0.3
    assert np.delete(advantage, GRID.index(DEGENERATE)).min() > 0.8


def test_it_is_no_ranker():
    """The best by pseudo score is not the best by true score, and often is not even good."""
    correlations = []
    for machine in MACHINES:
        table = real_table(machine, embeddings="logmel_mod")
        X, domains, _ = normals(machine, "logmel_mod")
        tests = table.select(split="test")
        scores = daco.NormalBank(X, domains).score(tests.matrix(), GRID)
        true = grid_metrics(scores, tests.column("label"), tests.column("domain").astype(str))
        official = harmonic_mean(true.values, axis=1)
        pseudo = fault_scores(machine, "logmel_mod", 10, (-18.0, -10.0, -4.0)).score
        ranks = [np.argsort(np.argsort(each)) for each in (pseudo, official)]
        correlations.append(np.corrcoef(*ranks)[0, 1])
    assert max(correlations) < 0.6
