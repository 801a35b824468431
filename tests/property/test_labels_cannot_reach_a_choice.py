"""Rule 2 of the design: no choice depends on an evaluation label or on an anomaly.

All that chooses is run twice, and labels, domains and vectors of test clips are changed in between.
Every call of these functions must get and return the same; changes that may matter show in calls.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial, wraps

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from synthetic_machines import small_table

import daco
from daco.detector.search import LabelFreeSearch
from daco.experiments import run
from daco.experiments.labelfree import select_label_free
from daco.experiments.rules import grid_choice
from daco.method import criterion, selection, viability
from daco.method.bank import NormalBank
from daco.method.config import PAPER_CONFIG

VETO = (viability.viability_veto, viability.pseudo_scores, viability.moved_normals)
FUNCTIONS = (selection.choose, selection.choose_config, *VETO)
METHODS = ("balance", "exact_balance", "balance_and_uniformity")
GRID = ["raw-k1", PAPER_CONFIG, "ldn-ratio-K1", "ratio-soft-k1", "ldn-diff-K16"]
study = partial(run.study, grid=GRID, n_splits=3, workers=1)
SEEDS = st.integers(0, 10**6)
FEW = settings(max_examples=4, phases=[Phase.generate])  # a seed has no simpler one


def plain(value):
    if isinstance(value, NormalBank):
        value = [value.domains, value.clip_domains, *(view.unit for view in value._banks)]
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, hash(value.tobytes())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(each) for each in value]
    return repr(value)


def calls_during(action):
    """What every call got and returned, and the result of the action."""
    calls = []

    def recorded(function):
        @wraps(function)
        def call(*args, **options):
            given = plain(args), plain(options)
            returned = function(*args, **options)
            calls.append((function.__name__, *given, plain(returned)))
            return returned

        return call

    with pytest.MonkeyPatch.context() as patch:
        for function in FUNCTIONS:
            for module in [each for name, each in sys.modules.items() if name.startswith("daco.")]:
                if vars(module).get(function.__name__) is function:
                    patch.setattr(module, function.__name__, recorded(function))
        for name in METHODS:
            patch.setattr(NormalBank, name, recorded(getattr(NormalBank, name)))
        result = action()
    return calls, result


def changed(table, seed, vectors=True):
    """Other labels and domains of the test clips, and other vectors."""
    rng = np.random.default_rng(seed)
    test = np.flatnonzero(table.columns["split"] == "test")
    columns = {name: values.copy() for name, values in table.columns.items()}
    for name in ("label", "domain"):
        columns[name][test] = rng.permutation(columns[name][test])
    X = table.matrix().copy()
    if vectors:
        X[test] = rng.normal(size=X[test].shape)
    known = {name: columns[name].tolist() for name in ("machine", "domain", "split", "label")}
    return daco.EmbeddingTable.from_arrays(X, **known)


def machine(name, seed):
    return small_table(name, seed=seed, n_target=10)


@FEW
@given(SEEDS, SEEDS)
def test_nothing_of_an_evaluation_clip_reaches_the_choice_of_a_study(seed, other):
    dev, evaluation = machine("fan", seed), machine("pump", seed)
    calls, result = calls_during(lambda: study(dev, evaluation))
    again, second = calls_during(lambda: study(dev, changed(evaluation, other)))
    assert again == calls
    assert second.selection["chosen"]["config"] == result.selection["chosen"]["config"]
    assert not second.grid["eval_omega"].equals(result.grid["eval_omega"])
    assert {"choose", "viability_veto", "balance_and_uniformity"} <= {name for name, *_ in calls}


@FEW
@given(SEEDS, SEEDS)
def test_labels_of_development_clips_reach_it_as_dev_scores_alone(seed, other):
    table = machine("fan", seed)
    before, _ = calls_during(lambda: study(table, None))
    after, _ = calls_during(lambda: study(changed(table, other, vectors=False), None))
    assume(after != before)
    for one, two in zip(before, after, strict=True):
        if one[0] == "choose":
            one, two = (call[1][0] | {"dev_score": None} for call in (one, two))
        assert one == two


@FEW
@given(SEEDS, SEEDS)
def test_no_test_clip_and_no_y_reaches_a_label_free_choice(seed, other):
    table = machine("fan", seed)
    normals = table.select(split="train")
    y = np.random.default_rng(other).integers(0, 2, len(normals))

    def choices(clips, y, shift=0):
        search = LabelFreeSearch(GRID, n_splits=3)
        search.fit(normals.matrix() + shift, y, domains=normals.column("domain"))
        return select_label_free(clips, GRID, n_splits=3), search.choice_.to_dict()

    calls, result = calls_during(lambda: choices(table, None))
    assert calls_during(lambda: choices(changed(table, other), y)) == (calls, result)
    assert calls_during(lambda: choices(table, None, shift=1))[0] != calls


def test_a_choice_reads_no_evaluation_column():
    class Columns(dict):
        def __getitem__(self, name):
            assert "eval" not in name
            return super().__getitem__(name)

    names = ("dev_omega", "crit_dev", "crit_paper", "viable", "eval_omega", "crit_eval")
    table = Columns({"config": GRID} | dict.fromkeys(names, np.arange(5.0)))
    for veto in ("both", "dev", "faults", "paper"):
        assert grid_choice(table, veto).config in GRID
    for function in (*FUNCTIONS, criterion.held_out_halves):
        parameters = " ".join(inspect.signature(function).parameters)
        assert not any(word in parameters for word in ("label", "truth", "eval", "test", "y_"))
