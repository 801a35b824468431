"""Cost of the frontier grid on a banded readout, against the paper's grid at the same N.

``python benchmarks/frontier.py`` prints the table of RESULTS.md: one machine, 990 + 10 train,
200 test clips, 8 bands of 768; CPU time of scoring and of the criterion with 10 splits, one BLAS
thread, best of 5 with the variants taking turns. Votes are scored without a criterion.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

import time
from collections.abc import Callable

import numpy as np

import daco
from daco.method.config import ScoreConfig
from daco.method.kernels import use_kernels

BANDS, DIM = 8, 768
DOMAINS = np.array(["source"] * 990 + ["target"] * 10)


def clips(rng: np.random.Generator, count: int, shift: float) -> np.ndarray:
    """Banded vectors around one direction, as embeddings of one machine are."""
    centre = np.random.default_rng(1).normal(size=BANDS * DIM)
    return (centre + shift * rng.normal(size=(count, BANDS * DIM))).astype(np.float32)


def run(X: np.ndarray, X_test: np.ndarray, bands: int, grid: list[ScoreConfig]) -> None:
    bank = daco.NormalBank(X, DOMAINS, bands=bands)
    bank.score(X_test, grid)
    bank.balance(grid, n_splits=10)


def score(X: np.ndarray, X_test: np.ndarray, bands: int, grid: str | list[ScoreConfig]) -> None:
    daco.NormalBank(X, DOMAINS, bands=bands).score(X_test, grid)


def best_of(variants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    for function in variants.values():
        function()
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(repeats):
        for name, function in variants.items():
            start = time.process_time()
            function()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    rng = np.random.default_rng(0)
    X, X_test = clips(rng, 1000, 0.7), clips(rng, 200, 0.8)
    band, band_test = np.ascontiguousarray(X[:, :DIM]), np.ascontiguousarray(X_test[:, :DIM])
    paper, wide = daco.paper_grid(), daco.frontier_grid(BANDS)
    plain = daco.frontier_grid(1)

    def forced(name: str, *arguments: object) -> None:
        with use_kernels(name):
            run(*arguments)  # type: ignore[arg-type]

    best = best_of(
        {
            f"{len(paper)}, mean readout, 768-d": lambda: run(band, band_test, 1, paper),
            f"{len(paper)}, banded readout, 8 x 768": lambda: run(X, X_test, BANDS, paper),
            f"{len(plain)}, mean readout": lambda: run(band, band_test, 1, plain),
            f"{len(wide)}, banded readout": lambda: run(X, X_test, BANDS, wide),
            f"{len(wide)}, banded, NumPy alone": lambda: forced("numpy", X, X_test, BANDS, wide),
            "vote of 51": lambda: score(band, band_test, 1, "vote-paper"),
            "vote of 134": lambda: score(band, band_test, 1, "vote"),
            "vote of 210, banded": lambda: score(X, X_test, BANDS, "vote"),
            "51 without the criterion": lambda: score(band, band_test, 1, paper),
        },
        repeats,
    )
    base = next(iter(best.values()))
    print("| configurations | CPU ms | x the paper's grid |")
    print("|---|---|---|")
    for name, seconds in best.items():
        print(f"| {name} | {1e3 * seconds:.0f} | {seconds / base:.1f} |")
    print("\n| one clip against 1,000 normals | CPU ms | x raw-k1 |\n|---|---|---|")
    banks = {1: daco.NormalBank(band, DOMAINS), BANDS: daco.NormalBank(X, DOMAINS, bands=BANDS)}
    queries = {1: band_test[:1], BANDS: X_test[:1]}
    best = best_of(
        {
            f"{name}, {bands} band{'s' * (bands > 1)}": lambda n=name, b=bands: [
                banks[b].examine(queries[b], n) for _ in range(20)
            ]
            for name, bands in (("raw-k1", 1), ("vote-paper", 1), ("vote", 1), ("vote", BANDS))
        },
        repeats,
    )
    base = next(iter(best.values()))
    for name, seconds in best.items():
        print(f"| {name} | {1e3 * seconds / 20:.2f} | {seconds / base:.1f} |")


if __name__ == "__main__":
    main()
