"""The golden machines of the method: made by their recipes, checked by their hashes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re

import numpy as np
from shared_data import shared
from tolerances import SPREAD, between_processors

import daco

MACHINES = [
    *(f"paper_{kind}" for kind in ("separated", "overlap", "tighttarget", "multicluster")),
    *(
        f"small_{kind}"
        for kind in (
            "separated",
            "overlap",
            "tighttarget",
            "mixedorder",
            "heavytail",
            "oddsizes",
            "nooffset",
        )
    ),
]
CONFORMAL = re.compile("conf-")


class Machine:
    def __init__(self, name: str, dtype: type) -> None:
        folder = shared("golden", "method")
        with np.load(folder / f"{name}.npz") as file:
            self.golden = dict(file)
        spec = importlib.util.spec_from_file_location("recipe", folder / "recipe.py")
        recipe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(recipe)
        X, domains, X_test, test_domains, labels = recipe.make_machine(
            **json.loads(str(self.golden["recipe_json"]))
        )
        for array, field in ((X, "sha256_X_train"), (X_test, "sha256_X_test")):
            digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
            assert digest == str(self.golden[field])
        self.X, self.X_test = X.astype(dtype), X_test.astype(dtype)
        self.domains, self.test_domains, self.labels = domains, test_domains, labels
        self.names = [str(name) for name in self.golden["config_names"]]
        self.prefix = "" if dtype is np.float32 else "f64_"

    def __getitem__(self, field: str):
        return self.golden[self.prefix + field]

    @property
    def score_tolerance(self) -> float:
        """Of scores, in the units of `scaled_error`."""
        if self.prefix:
            return 1e-9
        error = scaled_error(self.golden["scores"], self.golden["f64_scores"], self.names)
        return SPREAD * float(error.max())

    def tolerance(self, field: str, least: float) -> float:
        """Of another result, by how its float32 and float64 values differ in the golden file."""
        if self.prefix:
            return least
        return max(least, between_processors(self.golden[field], self.golden["f64_" + field]))

    def assert_same_splits(self, splits) -> None:
        """The KS distance of each configuration and split is the golden one.

        It is a fraction of two counts, so that rounding moves it only where two scores tie within
        the rounding error. Where the golden float32 and float64 values are all equal, as they are
        for the small machines, there is no such tie, and none may differ; elsewhere up to
        `SPREAD` times as many as differ there.
        """
        single, double = (self.golden[f"{p}balance_ks_splits"] for p in ("", "f64_"))
        ties = 0 if self.prefix else np.count_nonzero(np.abs(single - double) > 1e-9)
        differing = np.abs(splits - self["balance_ks_splits"]) > 1e-9
        assert np.count_nonzero(differing) <= SPREAD * ties

    def bank(self, **options) -> daco.NormalBank:
        return daco.NormalBank(self.X, self.domains, **options)


def scaled_error(got, expected, names):
    """Absolute for quantiles, in units of the row's spread for the rest (golden README)."""
    conformal = np.array([bool(CONFORMAL.match(name)) for name in names])
    unit = np.where(conformal, 1.0, expected.std(axis=1))
    return np.abs(got - expected).max(axis=1) / unit
