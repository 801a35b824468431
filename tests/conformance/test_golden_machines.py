"""Many machines at once against the golden vectors, on the CPU and, where there is one, a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from golden_machines import MACHINES, Machine, scaled_error
from tolerances import of_distances

import daco
from daco.method.criterion import PAPER_SPLITS
from daco.method.machines import evaluate_machines

torch = pytest.importorskip("torch")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["f32", "f64"])
def machines(request):
    return [Machine(name, request.param) for name in MACHINES]


@pytest.fixture(scope="module", params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="module")
def found(machines, device):
    """All golden machines at once: they have several shapes."""
    return evaluate_machines(
        [machine.X for machine in machines],
        [machine.domains for machine in machines],
        [machine.X_test for machine in machines],
        daco.paper_grid(),
        n_splits=PAPER_SPLITS,
        device=device,
    )


def test_scores(machines, found):
    for machine, each in zip(machines, found, strict=True):
        error = scaled_error(each.scores.T, machine["scores"], machine.names).max()
        assert error < machine.score_tolerance


def test_criterion_of_every_split(machines, found):
    for machine, each in zip(machines, found, strict=True):
        machine.assert_same_splits(each.balance)


def test_uniformity_and_separability(machines, found):
    for machine, each in zip(machines, found, strict=True):
        tolerance = machine.tolerance("uniform_ks", 1e-6)
        np.testing.assert_allclose(each.uniformity, machine["uniform_ks"], atol=tolerance)
        assert each.separability == pytest.approx(float(machine.golden["separability"]))


def test_leave_one_out_scores(machines, found):
    if machines[0].prefix:
        return  # stored in float32 only
    for machine, each in zip(machines, found, strict=True):
        for row, k in enumerate((1, 2, 4)):
            got = each.own[:, machine.names.index(f"raw-k{k}")]
            tolerance = of_distances(machine.X.shape[1])
            np.testing.assert_allclose(got, machine.golden["loo_knn"][row], atol=tolerance)
