"""The bank against the golden vectors of the method."""

from __future__ import annotations

import numpy as np
import pytest
from golden_machines import MACHINES, golden_machine, scaled_error
from tolerances import of_distances

import daco
from daco.evaluation.metrics import grid_metrics
from daco.experiments.baselines import gaussian_mixture, selective_mahalanobis


@pytest.fixture(scope="module", params=MACHINES)
def name(request):
    return request.param


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["f32", "f64"])
def machine(name, request):
    return golden_machine(name, request.param)


def test_scores_and_metrics(machine):
    assert [config.name for config in daco.paper_grid()] == machine.names
    scores = machine.bank.score(machine.X_test, machine.names)
    error = scaled_error(scores.T, machine["scores"], machine.names)
    assert error.max() < machine.score_tolerance
    got = grid_metrics(scores, machine.labels, machine.test_domains).values
    # A single swap of two clips that differ by rounding moves an AUC by 1/(n_d * n_a) at most.
    tolerance = machine.tolerance("metrics", 1e-9 if machine.prefix else 1e-3)
    np.testing.assert_allclose(got, machine["metrics"], atol=tolerance)
    assert machine.bank.separability() == pytest.approx(float(machine.golden["separability"]))


def test_criterion_of_every_split(machine):
    machine.assert_same_splits(machine.bank.exact_balance(machine.names, 10, seed=0))


@pytest.mark.parametrize("small", [name for name in MACHINES if name.startswith("small")])
def test_criterion_with_another_seed_and_number_of_splits(small):
    machine = golden_machine(small, np.float32)
    got = machine.bank.balance(machine.names, n_splits=5, seed=7)
    np.testing.assert_allclose(got, machine.golden["balance_ks_seed7_S5"], atol=1e-3)


def test_domain_weights(name):
    machine = golden_machine(name, np.float32)
    bank = machine.bank
    assert bank.domains == ("source", "target")
    soft = bank.domain_weights(machine.X_test, "conf-soft-m0-k1")[:, 1]
    # A weight is a logistic function, of slope 1/4 at most, of two distances over a temperature.
    tolerance = of_distances(machine.X.shape[1]) / float(machine.golden["temp_k1"]) / 2
    np.testing.assert_allclose(soft, machine.golden["w_target_soft_k1"], atol=tolerance)
    hard = bank.domain_weights(machine.X_test, "conf-hard-m0-k1")[:, 1]
    clear = np.abs(machine.golden["w_target_soft_k1"] - 0.5) > tolerance  # no tie of two domains
    assert clear.mean() > 0.95
    assert (hard == machine.golden["w_target_hard"])[clear].all()


def test_other_scorers(name):
    machine = golden_machine(name, np.float64)
    maha = selective_mahalanobis(machine.X, machine.domains, machine.X_test)
    np.testing.assert_allclose(maha, machine["maha"], rtol=1e-9)
    if bool(machine.golden["gmm_converged"]):
        mixture = gaussian_mixture(machine.X, machine.X_test)
        np.testing.assert_allclose(mixture, machine["gmm"], rtol=1e-6)
    nearest = machine.bank.score(machine.X_test, "raw-k1")[:, 0]
    np.testing.assert_allclose(nearest, machine.golden["knn1_sklearn"], atol=1e-6)
