"""How long a study of the paper's size takes: 15 machines x 51 configurations.

    python benchmarks/study.py [--repeat 3]

Measured from the start of the process (imports included) on Parquet files, after one run that
fills the cache of compiled kernels: until ``grid.csv`` is there, until the further experiments
are, and until the report is. Beside it, in the same process, the two matrix products that no
implementation can do without: the ratio is comparable between machines, seconds are not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

from daco.synth_embeddings import synthetic_machine, synthetic_table

DEV, EVAL, DIM = 7, 8, 768


def write_tables(folder: Path) -> None:
    for role, count in (("dev", DEV), ("eval", EVAL)):
        machines = [synthetic_machine(f"{role}{i}", [i, count], dim=DIM) for i in range(count)]
        synthetic_table(machines).write(folder / f"{role}.parquet")


def floor() -> float:
    """Distances of 1,000 normals among themselves and to 200 test clips, for all machines."""
    rng = np.random.default_rng(0)
    normals = rng.normal(size=(1000, DIM)).astype(np.float32)
    test = rng.normal(size=(200, DIM)).astype(np.float32)
    started = time.perf_counter()
    for _ in range(DEV + EVAL):
        _ = normals @ normals.T, test @ normals.T
    return time.perf_counter() - started


def one_run(folder: Path, out: Path) -> tuple[float, float, float]:
    """Seconds to grid.csv, to run.json and to report.html."""
    command = [sys.executable, "-m", "daco.cli", "study", "--out", str(out)]
    command += ["--dev", str(folder / "dev.parquet"), "--eval", str(folder / "eval.parquet")]
    clock, wall = time.perf_counter(), time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    total = time.perf_counter() - clock
    to_grid = (out / "grid.csv").stat().st_mtime - wall
    to_tables = (out / "run.json").stat().st_mtime - wall
    return to_grid, to_tables, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        one_run(folder, folder / "warm")
        rows = []
        for i in range(repeat):
            products = floor()
            rows.append((*one_run(folder, folder / f"run{i}"), products))
    print(f"{DEV + EVAL} machines x 51 configurations, {DIM}-d, {os.cpu_count()} cores")
    print("to grid.csv   further experiments   report   in all   | two matrix products   ratio")
    for to_grid, to_tables, total, products in rows:
        print(
            f"{to_grid:9.2f} s {to_tables - to_grid:19.2f} s {total - to_tables:6.2f} s "
            f"{total:6.2f} s   | {products:17.2f} s   {to_grid / products:5.1f}"
        )


if __name__ == "__main__":
    main()
