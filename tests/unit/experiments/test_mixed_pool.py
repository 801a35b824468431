"""Studies with detectors of other libraries and with scores of other systems in the grid."""

from __future__ import annotations

import csv
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.svm import OneClassSVM
from study_tables import machine_bank, rows_of
from synthetic_machines import small_table

import daco
from daco.errors import ConfigError, InputError
from daco.experiments import grids
from daco.experiments.grids import mixed_grid
from daco.method.criterion import held_out_halves

GRID = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1"]
SPLITS = 3
DETECTOR = OneClassSVM(nu=0.3)
study = partial(daco.study, n_splits=SPLITS, workers=1)


def write_scores(path, tables, score):
    """A score table of what ``score(bank, X_test)`` returns, in an order of its own."""
    rows = []
    for table in tables:
        for name in dict.fromkeys(table.columns["machine"]):
            bank, X_test, train, test = machine_bank(table, name)
            for at, split, values in zip(
                (train, test), ("train", "test"), score(bank, X_test), strict=True
            ):
                clips = zip(
                    table.columns["path"][at], table.columns["domain"][at], values, strict=True
                )
                rows += [(clip, name, domain, split, value) for clip, domain, value in clips]
    with path.open("w", newline="") as opened:
        csv.writer(opened).writerows([("path", "machine", "domain", "split", "score"), *rows[::-1]])
    return path


def nearest(bank, X_test):
    """What raw-k1 says."""
    return bank.leave_one_out("raw-k1")[:, 0], bank.score(X_test, "raw-k1")[:, 0]


@pytest.fixture(scope="module")
def tables():
    return small_table("fan", "pump"), small_table("valve", "saw")


@pytest.fixture(scope="module")
def with_table(tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("systems")
    path = write_scores(folder / "mine.csv", tables, nearest)
    grid = [*GRID, "blend+mine"]
    return study(*tables, grid=grid, systems={"mine": path}, out=folder / "run")


def splits_of(result, machine, config):
    rows = result.criteria[result.criteria["machine"] == machine]
    rows = rows[(rows["configuration"] == config) & (rows["measure"] == "balance")]
    return rows["value"].to_numpy()


def test_a_system_is_a_base_score_with_its_calibrations(with_table):
    names = with_table.candidates
    assert names[:4] == [*GRID, "blend+mine"]
    assert names[4:6] == ["ext-mine", "conf-soft-m0-ext-mine"]
    assert names[-1] == "zscore-soft-ext-mine"
    assert len(names) == 11
    assert with_table.test_clips[names].notna().all(axis=None)
    assert with_table.grid().drop(columns=["pseudo_score"]).notna().all(axis=None)
    assert with_table.run["inputs"][-1]["name"] == "mine"
    for machine in ("fan", "saw"):  # the rows of the table have an order of their own
        test = rows_of(with_table, machine)
        np.testing.assert_array_equal(test["ext-mine"], test["raw-k1"])


def test_the_criterion_of_a_table_compares_its_held_out_scores(tables, with_table):
    own = rows_of(with_table, "fan", "train")
    parts = [own[own["domain"] == each]["raw-k1"].to_numpy() for each in ("source", "target")]
    ends, grouped = np.cumsum([0, *map(len, parts)]), np.concatenate(parts)
    expected = [
        ks_2samp(*(grouped[a:b][held[a:b]] for a, b in pairwise(ends))).statistic
        for held in held_out_halves(list(map(len, parts)), SPLITS, 0)
    ]
    np.testing.assert_allclose(splits_of(with_table, "fan", "ext-mine"), expected, rtol=1e-12)


def test_the_label_free_veto_does_not_judge_tables(with_table):
    measures = with_table.criteria["measure"].str.startswith("pseudo")
    judged = set(with_table.criteria[measures]["configuration"])
    assert judged == set(GRID)  # and not the blend that needs the table
    assert any("does not judge other systems" in note for note in with_table.run["notes"])


def test_a_detector_takes_part_in_scores_criterion_and_veto(tables, tmp_path):
    dev = tables[0]
    result = study(dev, grid=[*GRID, {"svm": DETECTOR}, "blend+svm"], out=tmp_path / "run")
    for machine in ("fan", "pump"):
        bank, X_test, train, _ = machine_bank(dev, machine)
        domains = dev.columns["domain"][train]
        given = daco.NormalBank(dev.matrix()[train], domains, scorers={"svm": DETECTOR})
        names = ["conf-soft-m0-ext-svm", "blend+svm"]
        found = rows_of(result, machine)
        np.testing.assert_allclose(found[names], given.score(X_test, names), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found["blend"], bank.score(X_test, "blend")[:, 0])
        criterion = given.exact_balance(["ext-svm"], SPLITS, 0).splits[0]
        np.testing.assert_allclose(splits_of(result, machine, "ext-svm"), criterion, rtol=1e-12)
    assert result.grid()["pseudo_score"].notna().all()
    assert "OneClassSVM(nu=0.3" in result.run["settings"]["detectors"]["svm"]


def test_installed_scorers_are_found_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(grids, "installed_scorer", lambda label: {"svm": DETECTOR}[label])
    path = tmp_path / "grid.txt"
    path.write_text("raw-k1\nconf-soft-m0-ext-svm")
    configs, detectors = mixed_grid(path)
    assert [config.name for config in configs] == ["raw-k1", "conf-soft-m0-ext-svm"]
    assert detectors == {"svm": DETECTOR}
    assert mixed_grid("raw-k1,ext-svm")[1] == {"svm": DETECTOR}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"grid": ["ext-nobody"]}, ConfigError, "no scorer 'nobody'"),
        ({"grid": [{"mine": np.zeros(48)}]}, InputError, "as files, systems="),
        ({"systems": {"no name": "x.csv"}}, ConfigError, "name of a system"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_computed(tables, options, kind, message):
    with pytest.raises(kind, match=message):
        study(tables[0], **{"grid": GRID, **options})
