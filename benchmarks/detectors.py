"""What the calibrations do for detectors of other libraries, on the two real machines.

``python benchmarks/detectors.py [--splits 20]`` reads embeddings of a fan and a bearing below
DACO_SHARED or ../shared. It needs PyOD. Labels enter the official scores, never a choice.

``python benchmarks/detectors.py --study`` measures a study of both machines with two detectors in
its grid and 5 splits: seconds of wall clock, and CPU seconds with those of the processes.
"""

from __future__ import annotations

import argparse
import os
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

from pathlib import Path

import numpy as np
from pyod.models.ecod import ECOD
from pyod.models.knn import KNN
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import OneClassSVM

import daco
from daco.data.dcase import parse_name
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.method.config import PAPER_CONFIG, ScoreConfig, calibrations_of
from daco.method.selection import RESAMPLES, choose

DETECTORS = {
    "IsolationForest": IsolationForest(),
    "LocalOutlierFactor": LocalOutlierFactor(),
    "OneClassSVM": make_pipeline(Normalizer(), OneClassSVM(gamma="scale")),
    "ECOD": ECOD(),
    "KNN": KNN(),
}
PYOD = ("ECOD", "KNN")
SHARED = Path(os.environ.get("DACO_SHARED", Path(__file__).parents[2] / "shared"))


def machine(name: str) -> tuple:
    arrays = np.load(SHARED / "real" / "embeddings" / f"{name}_mn04.npz")
    names = [parse_name(each) for each in arrays["file_name"].tolist()]
    train = np.array([each.split == "train" for each in names])
    domains = np.array([each.domain for each in names])
    labels = np.array([each.label for each in names])
    X = arrays["embedding"].astype(np.float64)
    return X[train], domains[train], X[~train], domains[~train], labels[~train]


def time_study() -> None:
    tables = {}
    for name in ("fan", "bearing"):
        X, domains, clips, clip_domains, labels = machine(name)
        tables[name] = daco.EmbeddingTable.from_arrays(
            np.concatenate([X, clips]),
            machine=name,
            split=["train"] * len(X) + ["test"] * len(clips),
            domain=[*domains.tolist(), *clip_domains.tolist()],
            label=[0] * len(X) + labels.tolist(),
        )
    pair = {name: DETECTORS[name] for name in ("IsolationForest", "OneClassSVM")}
    grid = ["raw-k1", "conf-soft-m0-k1", pair]
    started, cpu = time.perf_counter(), sum(os.times()[:4])
    daco.study(tables["fan"], tables["bearing"], grid=grid, n_splits=5)
    print(
        f"two detectors, two machines, 5 splits: {time.perf_counter() - started:.1f} s, "
        f"{sum(os.times()[:4]) - cpu:.1f} s CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--study", action="store_true")
    given = parser.parse_args()
    if given.study:
        time_study()
        return
    splits = given.splits
    machines = {name: machine(name) for name in ("fan", "bearing")}
    print(
        f"{'detector':20} {'machine':8} {'raw':>6} {'conf m0':>8} {'zscore':>7} {'chosen':>7}  by"
    )
    for label, detector in {"k nearest normals": None, **DETECTORS}.items():
        for name, (X, domains, clips, clip_domains, labels) in machines.items():
            scorers = {} if detector is None else {label: detector}
            started = time.process_time()
            higher = True if label in PYOD else None  # scikit-learn's classes tell
            bank = daco.NormalBank(X, domains, scorers=scorers, scorer_higher_is_anomalous=higher)
            base = ScoreConfig.parse("raw-k1" if detector is None else f"ext-{label}").base
            grid = calibrations_of(base)
            names = [config.name for config in grid]
            metrics = grid_metrics(bank.score(clips, grid), labels, clip_domains).values
            scores = dict(zip(names, 100 * harmonic_mean(metrics, axis=1), strict=True))
            scored = time.process_time() - started
            balance = bank.exact_balance(grid, splits, n_resamples=RESAMPLES)
            default = PAPER_CONFIG.replace("k1", base.code)
            table = {"config": names, "criterion": balance.values}
            choice = choose(table, resampled=balance.resampled, default=default)
            shown = [scores[names[0]], scores[default], scores[names[-1]], scores[choice.config]]
            chosen = choice.config.removesuffix("-" + base.code)
            cells = " ".join(f"{each:7.2f}" for each in shown)
            took = f"{scored:.1f} s + {time.process_time() - started - scored:.0f} s"
            print(f"{label:20} {name:8} {cells}  {chosen}  {took}")


if __name__ == "__main__":
    main()
