"""How long a study of the paper's size takes: 15 machines x 51 configurations.

    python benchmarks/study.py [--repeat 3] [--splits 10 200]

Measured from the start of the process (imports included) on Parquet files, after one run that
fills the cache of compiled loops: with the paper's 10 splits until the tables are written, with
more splits until the report is, and the CPU time of it all, workers included. Beside it the two
matrix products that no implementation can do without: the ratio of CPU times is comparable between
computers. On a busy computer only CPU times are.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

from synthetic_machines import synthetic_machine, synthetic_table

from daco.method.criterion import CHOICE_SPLITS, PAPER_SPLITS

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
    started = time.process_time()
    for _ in range(DEV + EVAL):
        _ = normals @ normals.T, test @ normals.T
    return time.process_time() - started


def one_run(folder: Path, out: Path, splits: int) -> tuple[dict[str, float], float, float]:
    """Seconds of the stages, of all, and CPU seconds; the paper's splits have no report."""
    command = [sys.executable, "-m", "daco.cli", "study", "--out", str(out)]
    command += ["--dev", str(folder / "dev.parquet"), "--eval", str(folder / "eval.parquet")]
    command += ["--splits", str(splits)]
    command += ["--no-report"] if splits == PAPER_SPLITS else []
    before, clock = cpu_of_children(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    total = time.perf_counter() - clock
    return json.loads((out / "run.json").read_text())["times"], total, cpu_of_children() - before


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--splits", type=int, nargs="+", default=[PAPER_SPLITS, CHOICE_SPLITS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        one_run(folder, folder / "warm", given.splits[0])
        rows = []
        for i in range(given.repeat):
            for splits in given.splits:
                products = floor()
                out = folder / f"run{i}-{splits}"
                rows.append((splits, *one_run(folder, out, splits), products))
    print(f"{DEV + EVAL} machines x 51 configurations, {DIM}-d, {os.cpu_count()} cores")
    print("splits    read   score  choose   write  report   in all      CPU | products, CPU  ratio")
    for splits, times, total, cpu, products in rows:
        stages = ("read", "score", "choose", "write", "report")
        cells = " ".join(f"{times.get(stage, 0.0):5.1f} s" for stage in stages)
        print(
            f"{splits:6} {cells} {total:6.1f} s {cpu:6.1f} s | {products:11.2f} s "
            f"{cpu / products:6.0f}"
        )


if __name__ == "__main__":
    main()
