"""Machines of a study that are computed together on a device are those of the CPU engine."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_products import same_products

import daco
from daco.data.table import EmbeddingTable
from daco.experiments import device
from daco.experiments.inputs import machines_of, name_domains
from daco.experiments.machine import Settings, other_criteria, score_machine

torch = pytest.importorskip("torch")

FRONTIER = ["varmin-K2", "conf-hard-m10-varmin-K2"]
NAMES = [*(config.name for config in daco.paper_grid() if config.base.neighbours <= 4), *FRONTIER]
DIM = 5


@st.composite
def plants(draw):
    """Machines of ragged shapes, their clips in any order, some without labels or test clips."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = []
    for machine in range(draw(st.integers(1, 4))):
        n_source, n_target = draw(st.sampled_from([(12, 4), (9, 5), (4, 10), (12, 4), (20, 2)]))
        n_test = draw(st.sampled_from([0, 1, 8, 13]))
        labelled = draw(st.booleans())
        name = f"m{machine}"
        rows += [(name, "train", "source", 0)] * n_source + [
            (name, "train", "target", 0)
        ] * n_target
        for i in range(n_test):
            domain, label = ("source", "target")[i % 2], i // 2 % 2
            rows.append((name, "test", *((domain, label) if labelled else (None, None))))
    order = rng.permutation(len(rows)) if draw(st.booleans()) else np.arange(len(rows))
    machine, split, domain, label = zip(*(rows[at] for at in order), strict=True)
    vectors = rng.normal(size=(len(rows), DIM)) + 2
    return EmbeddingTable.from_arrays(
        vectors.astype(np.float32),
        machine=list(machine),
        split=list(split),
        domain=list(domain),
        label=list(label),
    )


@settings(max_examples=15, deadline=None)
@given(
    plant=plants(),
    grid=st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True),
    group=st.sampled_from([1, 4000, 2**20]),
    seed=st.integers(0, 20),
)
def test_any_plant_and_any_grid_give_the_same_machines(plant, grid, group, seed):
    asked = Settings(tuple(grid), seed=seed, n_splits=2)
    machines = machines_of(plant, "dev", name_domains([plant]))
    with mock.patch.object(device, "GROUP", group), same_products():
        prepare = device.on_device(device.scores_of_machines, "cpu:0")
        prepared = list(prepare(enumerate(machines), asked))
        criteria = device.criteria_of_machines(machines, asked, "cpu:0")
    assert [at for at, _ in prepared] == list(range(len(machines)))
    for data, (_, arguments), other in zip(machines, prepared, criteria, strict=True):
        here, there = score_machine(data, asked), score_machine(*arguments)
        assert here.keys() == there.keys()
        for name in ("scores", "own", "metrics", "uniformity", "separability"):
            np.testing.assert_allclose(here[name], there[name], rtol=1e-4, atol=1e-5)
        for name in ("split", "title", "names", "labels", "domains", "own_domains", "balance"):
            np.testing.assert_array_equal(here[name], there[name])
        bank = daco.NormalBank(data.X, data.domains)
        np.testing.assert_array_equal(other, other_criteria(bank, grid, asked))
