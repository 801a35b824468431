"""The one label-free rule, and that every way to a choice follows it."""

from __future__ import annotations

import numpy as np
import pytest
from real_tables import real_table
from scipy.stats import ks_2samp
from shared_data import shared

import daco
from daco.detector.fit import fit_machines
from daco.detector.model import MachineModel
from daco.detector.normals import Normals
from daco.experiments.inputs import read_table
from daco.experiments.labelfree import select_label_free
from daco.method.choice import choose, choose_config
from daco.method.config import blind_pool
from daco.method.criterion import Floor
from daco.method.viability import Viability

DEFAULT = "conf-soft-m0-k1"
POOL = [DEFAULT, "raw-k1", "raw-k2"]


def veto(excluded=(), limit=0.7):
    names = tuple(POOL)
    kept = np.array([name not in excluded for name in names])
    reasons = dict.fromkeys(excluded, "below the limit")
    return Viability(names, kept, np.full(3, 0.8), 0.8, 0.8, limit, "injected faults", reasons)


@pytest.mark.parametrize(
    ("criterion", "noise", "excluded", "config", "smallest", "reason"),
    [
        ([0.40, 0.41, 0.45], 0.05, (), DEFAULT, DEFAULT, "smallest balance criterion of 3: 0.400"),
        ([0.40, 0.41, 0.38], 0.05, (), DEFAULT, "raw-k2", "is within the noise of the smallest"),
        ([0.40, 0.41, 0.38], 0.01, (), "raw-k2", "raw-k2", "the default has 0.400"),
        ([0.40, 0.41, 0.38], 0.05, ("raw-k2",), DEFAULT, DEFAULT, "the veto excludes raw-k2"),
        ([0.40, 0.41, 0.38], 0.05, (DEFAULT, "raw-k2"), "raw-k1", "raw-k1", "excludes the default"),
        ([0.40, 0.30, 0.30], 0.05, (), "raw-k1", "raw-k1", "the default has"),  # a tie
    ],
)
def test_the_default_stays_within_the_noise(criterion, noise, excluded, config, smallest, reason):
    choice = choose(POOL, criterion, Floor(0.3, noise), veto(excluded))
    assert (choice.config, choice.smallest) == (config, smallest)
    assert reason in choice.reason
    assert f"floor 0.300, noise {noise:.3f}" in choice.reason


def test_a_veto_that_abstains_excludes_nothing():
    for abstaining in (None, veto(limit=float("nan"))):
        assert choose(POOL, [0.5, 0.6, 0.1], Floor(0.1, 0.1), abstaining).config == "raw-k2"
        assert choose(POOL, [0.5, 0.6, 0.1], None, abstaining).config == DEFAULT  # noise unknown


def machine(seed, n_source=60, n_target=12, shift=1.0, spread=1.0, dim=16):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_source + n_target, dim))
    X[n_source:] = spread * X[n_source:] + shift * rng.normal(size=dim)
    return (X + 2).astype(np.float32), ["source"] * n_source + ["target"] * n_target


def real_machine():
    shared("real", "embeddings", "fan_mn04.npz")
    train = real_table("fan").select(split="train")
    return train.matrix(), train.column("domain").astype(str).tolist()


MACHINES = {
    "alike": lambda: machine(0, shift=0.0),
    "shifted": lambda: machine(1, shift=1.5),
    "one centre, two spreads": lambda: machine(2, 200, 100, shift=0.0, spread=2.0),
    "far": lambda: machine(3, 80, 20, shift=8.0),
    "too few for a veto": lambda: machine(4, 30, 3),
    "one target clip": lambda: machine(5, 30, 1),
    "real fan: the noise decides": real_machine,
}


@pytest.mark.filterwarnings("ignore:A false-alarm rate")
@pytest.mark.parametrize("name", MACHINES)
def test_fit_select_study_and_search_agree_on_identical_clips(name):
    X, domains = MACHINES[name]()
    names = tuple(f"{row}.wav" for row in range(len(X)))
    model = MachineModel.fit(X, domains, machine="fan")
    ((_, fitted),) = fit_machines([Normals("fan", X, tuple(domains), names, None, {})])
    search = daco.LabelFreeSearch().fit(X, domains=domains)
    table = daco.EmbeddingTable.from_arrays(X, machine="fan", domain=domains)
    selected = select_label_free(table)
    (choice,) = selected.machines
    picks = [model.config, fitted.config, search.best_config_, choice.use]
    criteria = [
        {row["config"]: row["criterion"] for row in model.provenance["selection"]["pool"]},
        choice.criteria,
    ]
    if "one target clip" not in name:  # which a study refuses
        studies = [
            daco.study(table, grid="9", veto=guard, workers=1) for guard in ("dev", "faults")
        ]
        picks += [study.selection["chosen"]["config"] for study in studies]
        picks.append(selected.common.use)
        criteria.append(
            dict(zip(studies[0].grid["config"], studies[0].grid["crit_dev"], strict=True))
        )
        criteria.append(
            dict(zip(search.results_["config"], search.results_["criterion"], strict=True))
        )
    assert len(set(picks)) == 1, picks
    for other in criteria[1:]:
        assert other == pytest.approx(criteria[0], abs=1e-12)
    assert model.reason == search.reason_ == choice.advice


def test_the_machines_above_cover_both_sides_of_the_noise():
    picks = {}
    for name in ("one centre, two spreads", "real fan: the noise decides"):
        X, domains = MACHINES[name]()
        picks[name] = choose_config(X, domains)
    real = picks["real fan: the noise decides"]
    assert real.config == DEFAULT != real.smallest
    other = picks["one centre, two spreads"]
    assert other.config == other.smallest != DEFAULT
    assert {config.name for config in blind_pool()} == set(other.criterion)


def test_clips_of_one_session_are_on_the_same_side_of_every_split(tmp_path):
    """Copies in the other half would be neighbours at distance 0, and all criteria equal."""
    X, domains = machine(6, 40, 16, shift=1.5)
    X, domains = np.repeat(X, 4, axis=0), [each for each in domains for _ in range(4)]
    X += 1e-3 * np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    groups = [f"recording {row // 4}" for row in range(len(X))]
    search = daco.LabelFreeSearch().fit(X, domains=domains, groups=groups)
    of_search = dict(zip(search.results_["config"], search.results_["criterion"], strict=True))
    # A textbook version: whole recordings are drawn, and raw-k1 of the held-out half.
    rng, distances = np.random.default_rng(1), []
    Z, target = X / np.linalg.norm(X, axis=1, keepdims=True), np.array(domains) == "target"
    for _ in range(200):
        drawn = np.concatenate([rng.permutation(40)[:20], 40 + rng.permutation(16)[:8]])
        held = np.isin(np.arange(len(X)) // 4, drawn)
        score = (1 - Z[held] @ Z[~held].T).min(axis=1)
        distances.append(ks_2samp(score[~target[held]], score[target[held]]).statistic)
    # 200 splits each: five standard errors of the difference of two means.
    noise = 5 * np.std(distances) / 10
    assert of_search["raw-k1"] == pytest.approx(np.mean(distances), abs=noise)
    blind = daco.LabelFreeSearch().fit(X, domains=domains).results_["criterion"]
    assert abs(blind[search.results_["config"] == "raw-k1"].item() - np.mean(distances)) > noise
    model = MachineModel.fit(X, domains, machine="fan", groups=groups)
    daco.EmbeddingTable.from_arrays(X, machine="fan", domain=domains, session=groups).write(
        tmp_path / "fan.parquet"
    )
    (choice,) = select_label_free(read_table(tmp_path / "fan.parquet", ("session",))).machines
    pool = model.provenance["selection"]["pool"]
    assert choice.criteria == of_search == {row["config"]: row["criterion"] for row in pool}
    assert search.reason_ == model.reason == choice.advice
