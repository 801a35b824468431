"""Rule 2 of the design, for the veto: no label and nothing of a test clip can change it."""

from __future__ import annotations

import inspect

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_machines import synthetic_machine

from daco.data.table import EmbeddingTable
from daco.experiments import veto as study_veto
from daco.method import pseudo_anomalies as pseudo
from daco.method import viability
from daco.method.pseudo_anomalies import injected, moved_normals
from daco.method.viability import pseudo_scores, viability_veto
from daco.synthetic import injection

GRID = ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K1", "ldn-diff-K16"]
FORBIDDEN = ("label", "truth", "eval", "y_true", "test")


def test_the_veto_has_no_argument_for_a_label():
    for module in (pseudo, viability, injection, study_veto):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__:
                continue
            for parameter in inspect.signature(function).parameters:
                assert not any(word in parameter for word in FORBIDDEN), (name, parameter)


def veto_of(table, faults, readout=None):
    """The veto as a caller gets it from a table of train and test clips."""
    train = table.select(split="train")
    X, domains = train.matrix(), train.column("domain").astype(str)
    names = train.column("path").tolist()
    made = moved_normals(X, domains) if faults is None else injected(faults, names, domains)
    veto = viability_veto(pseudo_scores(X, domains, made, GRID))
    return {name: repr(value) for name, value in vars(veto).items()}


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_permuting_labels_and_domains_of_test_clips_changes_nothing(seed, label_seed):
    made = synthetic_machine("m", seed, 40, 8, 40, 6)
    rng, mixed = np.random.default_rng(seed), np.random.default_rng(label_seed)
    n, n_test = len(made.X), len(made.X_test)
    faulted = np.vstack([made.X[:12], made.X[:12] + rng.normal(0, 0.5, (12, made.X.shape[1]))])
    paths = [f"{row}.wav" for row in range(12)]
    vetoes = []
    for shuffled in (False, True):
        order = mixed.permutation(n_test) if shuffled else np.arange(n_test)
        table = EmbeddingTable.from_arrays(
            np.vstack([made.X, made.X_test[order[::-1]] if shuffled else made.X_test]),
            domain=[*made.domains, *np.asarray(made.test_domains)[order]],
            split=["train"] * n + ["test"] * n_test,
            label=[0] * n + np.asarray(made.labels)[order].tolist(),
            path=[f"{row}.wav" for row in range(n + n_test)],
        )
        faults = EmbeddingTable.from_arrays(
            faulted,
            path=paths * 2,
            fault=[""] * 12 + ["rub"] * 12,
            domain="source",
            label=mixed.integers(0, 2, 24).tolist() if shuffled else [0] * 12 + [1] * 12,
        )
        vetoes.append([veto_of(table, None), veto_of(table, faults)])
    assert vetoes[0] == vetoes[1]
