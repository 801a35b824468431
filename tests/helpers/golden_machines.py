"""The golden machines of the method: made by their recipes, checked by their hashes."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache, cached_property

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


def make_machine(
    seed,
    n_src=990,
    n_tgt=10,
    n_test=200,
    dim=768,
    offset=4.0,
    n_clusters=1,
    spread=0.0,
    sig=1.0,
    shift=1.0,
    sig_t=1.0,
    test_drift=0.2,
    anom=1.0,
    anom_frac=0.25,
    heavy=False,
    order="block",
):
    """The inputs of a golden machine, equal in every bit on every computer.

    All draws come from one generator in the order of the statements, and all arithmetic is
    elementwise addition, multiplication, division or a square root.
    """
    rng = np.random.default_rng(seed)
    common = offset * rng.standard_normal(dim)
    centres = common + spread * rng.standard_normal((n_clusters, dim))
    target_centre = common + shift * rng.standard_normal(dim)
    drift = test_drift * rng.standard_normal(dim)

    def noise(n, scale):
        drawn = scale * rng.standard_normal((n, dim))
        return drawn / np.sqrt(rng.uniform(0.02, 1.0, size=(n, 1))) if heavy else drawn

    def source(n):
        return centres[rng.integers(0, n_clusters, size=n)] + noise(n, sig)

    def target(n):
        return target_centre + noise(n, sig_t)

    X = np.concatenate([source(n_src), target(n_tgt)])
    domains = np.repeat(["source", "target"], [n_src, n_tgt])
    quarter = n_test // 4
    sizes = [n_test - 3 * quarter, quarter, quarter, quarter]
    changed = rng.uniform(size=dim) < anom_frac
    fault = anom * rng.standard_normal((2, dim)) * changed
    parts = [source(sizes[0]), target(quarter)]
    parts += [source(quarter) + fault[0], target(quarter) + fault[1]]
    X_test = np.concatenate(parts) + drift
    test_domains = np.repeat(["source", "target", "source", "target"], sizes)
    labels = np.repeat([0, 0, 1, 1], sizes)
    shuffled = rng.permutation(n_test)
    X_test, test_domains, labels = X_test[shuffled], test_domains[shuffled], labels[shuffled]
    if order == "mixed":
        shuffled = rng.permutation(n_src + n_tgt)
        X, domains = X[shuffled], domains[shuffled]
    return X.astype(np.float32), domains, X_test.astype(np.float32), test_domains, labels


@cache
def golden_machine(name: str, dtype: type) -> Machine:
    """The machine, made once in a process."""
    return Machine(name, dtype)


class Machine:
    def __init__(self, name: str, dtype: type) -> None:
        with np.load(shared("golden", "method", f"{name}.npz")) as file:
            self.golden = dict(file)
        X, domains, X_test, test_domains, labels = make_machine(
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

    def assert_same_splits(self, balance) -> None:
        """The KS distance of each configuration and split is the golden one, and so is their mean.

        It is a fraction of two counts, so that rounding moves it only where two scores tie within
        the rounding error. Where the golden float32 and float64 values are all equal, as they are
        for the small machines, there is no such tie, and none may differ; elsewhere up to
        `SPREAD` times as many as differ there, by at most `SPREAD` times as much.
        """
        single, double = (self.golden[f"{p}balance_ks_splits"] for p in ("", "f64_"))
        ties = np.zeros(1) if self.prefix else np.abs(single - double)
        differences = np.abs(balance.splits - self["balance_ks_splits"])
        assert np.count_nonzero(differences > 1e-9) <= SPREAD * np.count_nonzero(ties > 1e-9)
        assert differences.max() <= SPREAD * ties.max() + 1e-9
        means = np.abs(balance.values - self["balance_ks"])
        assert (means <= differences.mean(axis=1) + 1e-12).all()

    @cached_property
    def bank(self) -> daco.NormalBank:
        return daco.NormalBank(self.X, self.domains)


def scaled_error(got, expected, names):
    """Absolute for quantiles, in units of the row's spread for the rest (golden README)."""
    conformal = np.array([bool(CONFORMAL.match(name)) for name in names])
    unit = np.where(conformal, 1.0, expected.std(axis=1))
    return np.abs(got - expected).max(axis=1) / unit
