"""False-alarm rates in recording sessions that a model has never met, by simulation."""

from __future__ import annotations

import numpy as np

from daco.detector.model import MachineModel

SESSIONS, CLIPS, DIM = 10, 12, 16


def record(rng, sessions, clips):
    """Clips of sessions that differ more from each other than the clips of one do."""
    places = rng.normal(size=(sessions, DIM)) * 0.5 + 3
    return np.repeat(places, clips, axis=0) + rng.normal(size=(sessions * clips, DIM)) * 0.3


def realised(seed, groups):
    rng = np.random.default_rng(seed)
    normals, new = record(rng, SESSIONS, CLIPS), record(rng, 60, 3)
    domains = ["all"] * len(normals)
    model = MachineModel.fit(normals, domains, machine="fan", config="raw-k1", groups=groups)
    return model.score(new.astype(np.float32)).anomalous.mean()


def test_the_rate_holds_in_new_sessions_where_those_of_the_normals_are_known():
    names = np.repeat(np.arange(SESSIONS), CLIPS).astype(str).tolist()
    rates = [realised(seed, names) for seed in range(20)]
    # The rate of one model has a standard deviation of 0.05 over draws of ten sessions.
    assert abs(np.mean(rates) - 0.1) < 0.04
    assert max(rates) < 0.3
