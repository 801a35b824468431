"""What the method costs: one machine of the paper's size, one clip, and a bank that grows.

::

    python benchmarks/engine.py                          # everything
    python benchmarks/engine.py --only machine clip      # some parts
    python benchmarks/engine.py --sizes 1000 16000       # banks of these sizes

CPU time of one BLAS thread, best of ``--repeats`` (9) with the variants taking turns, so that other
work on the computer meets all of them alike. Ratios within one run are comparable between
computers, milliseconds are not.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from synthetic_machines import SyntheticMachine, synthetic_machine

import daco
from daco.detector.model import MachineModel
from daco.detector.verdict import judge_embeddings
from daco.evaluation.metrics import grid_metrics
from daco.method import paper
from daco.method.config import PAPER_CONFIG, blind_pool
from daco.method.distances import unit_rows
from daco.method.selection import RESAMPLES

GRID = daco.paper_grid()
POOL = blind_pool()
DIM = 768
VIEWS = {"mod": 112, "mod60": 192, "env": 640, "cep": 40, "mn04": 384}
PARTS = ("machine", "clip", "calls", "process", "fleet", "growth")


def everything(machine: SyntheticMachine, n_splits: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Metrics and criterion of one machine: everything the paper does with it."""
    bank = daco.NormalBank(machine.X, machine.domains)
    scores = bank.score(machine.X_test, GRID)
    metrics = grid_metrics(scores, machine.labels, machine.test_domains).values
    return metrics, bank.balance(GRID, n_splits)


def everything_literally(machine: SyntheticMachine) -> tuple[np.ndarray, np.ndarray]:
    """The same by `daco.method.paper`, one configuration at a time."""
    codes, test_codes = ((x == "target") * 1 for x in (machine.domains, machine.test_domains))
    bank, clips = paper.unit_rows(machine.X), paper.unit_rows(machine.X_test)
    d_bank, d = paper.cosine_distances(bank, bank), paper.cosine_distances(clips, bank)
    metrics, criterion = [], []
    for config in GRID:
        scores = paper.score(config, d_bank, d, codes)
        metrics.append(paper.machine_metrics(scores, machine.labels, test_codes))
        criterion.append(paper.criterion(config, d_bank, codes, 10, seed=0).mean())
    return np.array(metrics), np.array(criterion)


def products(unit: np.ndarray, query: np.ndarray) -> None:
    """The two similarity products alone (a matrix with its own transpose takes half)."""
    unit @ unit.T
    query @ unit.T


def cpu(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def best_times(variants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The smallest CPU time of each; they take turns, after one run that compiles and caches."""
    for run in variants.values():
        run()
    times = dict.fromkeys(variants, float("inf"))
    for _ in range(repeats):
        for name, run in variants.items():
            times[name] = min(times[name], cpu(run))
    return times


def one_machine(repeats: int) -> None:
    machine = synthetic_machine("machine", 0, dim=DIM)
    unit, query = unit_rows(machine.X), unit_rows(machine.X_test)

    def new_bank() -> daco.NormalBank:
        return daco.NormalBank(machine.X, machine.domains)

    times = best_times(
        {
            "the two matrix products": lambda: products(unit, query),
            "everything the paper does with it": lambda: everything(machine),
            "its scores alone": lambda: new_bank().score(machine.X_test, GRID),
            "its 10 splits alone": lambda: new_bank().balance(GRID, 10),
            "200 splits, 51 configurations": lambda: new_bank().balance(GRID, 200),
            "200 splits, 9 configurations": lambda: new_bank().balance(POOL, 200),
            f"the same with {RESAMPLES} resamples": lambda: new_bank().exact_balance(
                POOL, 200, n_resamples=RESAMPLES
            ),
        },
        repeats,
    )
    limits = {
        "everything the paper does with it": "4 x",
        "200 splits, 51 configurations": "250 ms",
        "200 splits, 9 configurations": "250 ms",
    }
    fast, expected = everything(machine), everything_literally(machine)
    times["everything by daco.method.paper"] = cpu(lambda: everything_literally(machine))
    agree = all(np.abs(a - b).max() < 1e-3 for a, b in zip(fast, expected, strict=True))
    base = times["the two matrix products"]
    print("One machine: 990 + 10 normals, 200 test clips, 768 values, 51 configurations, 10 splits")
    print(f"and metrics. `daco.method.paper` and the bank agree within 1e-3: {agree}\n")
    print("| | CPU ms | x the products | limit |\n|---|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {1e3 * seconds:.1f} | {seconds / base:.1f} | {limits.get(name, '')} |")


def clips_of_views(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    return {name: (rng.normal(size=(n, dim)) + 1).astype(np.float32) for name, dim in VIEWS.items()}


def one_clip(repeats: int) -> None:
    """A clip against a bank of five views, and how soon a new bank can judge."""
    rng = np.random.default_rng(0)
    X, domains = clips_of_views(rng, 1000), ["source"] * 990 + ["target"] * 10
    clip, first = clips_of_views(rng, 1), next(iter(VIEWS))
    five, one = daco.NormalBank(X, domains), daco.NormalBank(X[first], domains)
    model = MachineModel.fit(X, domains, machine="press")

    def often(work: Callable[[], object]) -> Callable[[], object]:
        return lambda: [work() for _ in range(20)]

    def ready() -> None:
        daco.NormalBank(X, domains).examine(clip, "blend")

    times = best_times(
        {
            "one clip, `raw-k1`, one view": often(lambda: one.score(clip[first], "raw-k1")),
            "one clip, `blend`": often(lambda: five.score(clip, "blend")),
            "one clip, `blend` and weights": often(lambda: five.examine(clip, "blend")),
            "one clip, verdict": often(lambda: list(judge_embeddings(model, clip, ["clip"]))),
            "bank ready to judge (first clip included)": ready,
            "model fitted": lambda: MachineModel.fit(X, domains, machine="press"),
        },
        repeats,
    )
    limits = {"one clip, verdict": "4", "bank ready to judge (first clip included)": "150"}
    print(f"\n990 + 10 normals in five views of {', '.join(map(str, VIEWS.values()))} values.\n")
    print("| | CPU ms | limit |\n|---|---|---|")
    for name, seconds in times.items():
        each = 50 * seconds if name.startswith("one clip") else 1e3 * seconds
        print(f"| {name} | {each:.2f} | {limits.get(name, '')} |")


def calls() -> None:
    """Python calls and modules of one clip, from its vector to the verdict."""
    rng = np.random.default_rng(0)
    X, clip = rng.normal(size=(60, 16)) + 1, rng.normal(size=(1, 16))
    print("\nOne clip from vector to verdict:\n")
    print("| | calls | modules | of `daco.method` | limit |\n|---|---|---|---|---|")
    for config in (PAPER_CONFIG, "raw-k1", "blend"):
        model = MachineModel.fit(
            X, ["source"] * 50 + ["target"] * 10, machine="press", config=config
        )
        list(judge_embeddings(model, clip, ["clip"]))
        count: Counter[str] = Counter()

        def record(frame, event, _, count=count) -> None:
            if event == "call":
                count[frame.f_globals.get("__name__", "")] += 1

        sys.setprofile(record)
        list(judge_embeddings(model, clip, ["clip"]))
        sys.setprofile(None)
        used = {name: n for name, n in count.items() if name.startswith("daco.")}
        inside = sum(name.startswith("daco.method.") for name in used)
        limit = "120, 12, 8" if config == PAPER_CONFIG else ""
        print(f"| `{config}` | {sum(used.values())} | {len(used)} | {inside} | {limit} |")


def fresh_process() -> None:
    """Import and first call of a new process, compiled code already on disk."""
    code = (
        f"import sys, time; sys.path.insert(0, {str(ROOT / 'tests' / 'helpers')!r})\n"
        "start = time.perf_counter()\n"
        "import daco; from synthetic_machines import synthetic_machine\n"
        "imported = time.perf_counter()\n"
        "machine = synthetic_machine('m', 0, dim=768); made = time.perf_counter()\n"
        "bank = daco.NormalBank(machine.X, machine.domains)\n"
        "bank.score(machine.X_test, daco.paper_grid()); bank.balance(daco.paper_grid(), 10)\n"
        "print(imported - start, time.perf_counter() - made)"
    )
    runs = [
        list(map(float, subprocess.check_output([sys.executable, "-c", code]).split()))
        for _ in range(3)
    ]
    imported, first = np.min(runs, axis=0)
    print(
        f"\nNew process, elapsed: import daco {imported:.2f} s, first scores and criterion "
        f"{first:.2f} s."
    )


def _warm(_: int) -> None:
    everything(synthetic_machine("warm", 1, 60, 10, 40, 8))
    time.sleep(0.5)  # so that every worker takes one


def fleet(n_machines: int = 15) -> None:
    machines = [synthetic_machine(f"machine {i}", i, dim=DIM) for i in range(n_machines)]
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(_warm, range(workers)))
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            list(pool.map(everything, machines))
            best = min(best, time.perf_counter() - start)
    print(
        f"\n{n_machines} machines x {len(GRID)} configurations, {workers} processes after warm-up, "
        f"transfer included, elapsed: {best:.2f} s."
    )


def growth(sizes: list[int]) -> None:
    """Each size in its own process: the peak of memory never falls."""
    print("\nA growing bank (1 % target clips, 200 test clips, 51 configurations, 10 splits):")
    print("\n| normals | scores, CPU s | criterion, CPU s | extra memory, MiB | limit |")
    print("|---|---|---|---|---|")
    for size in sizes:
        command = [sys.executable, __file__, "--one-size", str(size)]
        row = json.loads(subprocess.check_output(command))
        limit = "30 s, 400 MiB" if size == 16000 else ""
        cells = f"{row['score']:.2f} | {row['balance']:.2f} | {row['extra']:.0f} | {limit}"
        print(f"| {size:,} | {cells} |", flush=True)


def peak_mib() -> float:
    """Peak resident memory; getrusage would report the parent's peak in a child process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def one_size(n: int) -> None:
    n_target = max(10, n // 100)
    rng = np.random.default_rng(0)
    X = np.empty((n, DIM), np.float32)  # filled in place: no peak before the measured one
    for rows in np.array_split(np.arange(n), -(-n // 1000)):
        rng.standard_normal(out=X[rows[0] : rows[-1] + 1], dtype=np.float32)
    X += 2
    X[-n_target:] += 0.3
    domains = np.array(["source"] * (n - n_target) + ["target"] * n_target)
    X_test = rng.standard_normal((200, DIM), dtype=np.float32) + 2
    everything(synthetic_machine("warm", 1, 60, 10, 40, 8))
    before = peak_mib()
    start = time.process_time()
    bank = daco.NormalBank(X, domains)
    bank.score(X_test, GRID)
    scored = time.process_time()
    bank.balance(GRID, n_splits=10)
    done = time.process_time()
    extra = peak_mib() - before
    result = {"score": scored - start, "balance": done - scored, "extra": extra}
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 4000, 16000])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--one-size", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one_size:
        one_size(given.one_size)
        return
    runs: dict[str, Callable[[], None]] = {
        "machine": lambda: one_machine(given.repeats),
        "clip": lambda: one_clip(given.repeats),
        "calls": calls,
        "process": fresh_process,
        "fleet": fleet,
        "growth": lambda: growth(given.sizes),
    }
    for part in given.only:
        runs[part]()


if __name__ == "__main__":
    main()
