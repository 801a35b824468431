"""Small models for the tests of the field commands."""

from __future__ import annotations

import numpy as np

from daco.detector.model import MachineModel
from daco.embedding.frontend import Frontend

LOGMEL = Frontend("logmel", "mod", 16000, 0, "fp32", "soxr", None, 10.0)
CREATED = {"created": "2026-01-02T03:04:05Z"}


def normals(seed=0, n_source=40, n_target=10, dim=8):
    """Two domains of different place and spread, and their labels."""
    rng = np.random.default_rng(seed)
    source = rng.normal(size=(n_source, dim)) * 0.3 + 1
    target = rng.normal(size=(n_target, dim)) * 0.5 + np.linspace(0.5, 2, dim)
    X = np.vstack([source, target]).astype(np.float32)
    return X, ["source"] * n_source + ["target"] * n_target


def small_model(seed=0, **options):
    """A model of 50 normals that is the same every time."""
    X, domains = normals(seed)
    names = [f"train/{domain}_{row:04}.wav" for row, domain in enumerate(domains)]
    given = {"machine": "press", "clip_names": names, "provenance": CREATED, **options}
    return MachineModel.fit(X, domains, **given)
