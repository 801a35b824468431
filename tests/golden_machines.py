"""The golden machines of the method: made by their recipes, checked by their hashes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re

import numpy as np
from shared_data import shared

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
        self.golden = np.load(folder / f"{name}.npz")
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

    def bank(self, **options) -> daco.NormalBank:
        return daco.NormalBank(self.X, self.domains, **options)


def scaled_error(got, expected, names):
    """Absolute for quantiles, in units of the row's spread for the rest (golden README)."""
    conformal = np.array([bool(CONFORMAL.match(name)) for name in names])
    unit = np.where(conformal, 1.0, expected.std(axis=1))
    return np.abs(got - expected).max(axis=1) / unit
