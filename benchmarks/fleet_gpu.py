"""The method for many machines on one GPU: seconds with transfer, and agreement with the CPU.

``PYTHONPATH=src python benchmarks/fleet_gpu.py`` prints a table of docs/evidence.md. Machines have
the paper's size: 990 + 10 normals, 200 test clips, 768-d, 51 configurations, 10 splits. Everything
starts and ends in ordinary host memory.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import daco
from daco.method.machines import MachineEvaluation, evaluate_machines

GRID = daco.paper_grid()
DOMAINS = np.array(["source"] * 990 + ["target"] * 10)
SPLITS = 10


def machines(count: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    """Normals and test clips: a common mean, a displaced target domain, faults in half the test."""
    generator = torch.Generator(device).manual_seed(0)
    X, tests = np.empty((count, 1000, 768), np.float32), np.empty((count, 200, 768), np.float32)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    for m in range(count):
        mean, shift, fault = 2 * normal(768), 0.3 * normal(768), 0.3 * normal(768)
        clips = mean + 0.5 * normal(1200, 768) + 0.2 * normal(1200, 6) @ normal(6, 768)
        clips[990:1100] += shift
        clips[1050:1150] += fault
        X[m], tests[m] = clips[:1000].cpu().numpy(), clips[1000:].cpu().numpy()
    return X, tests


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def timed(function: Callable[[], Any], device: str) -> float:
    wait(device)
    start = time.perf_counter()
    function()
    wait(device)
    return time.perf_counter() - start


def run(X: np.ndarray, tests: np.ndarray, device: str) -> list[MachineEvaluation]:
    return evaluate_machines(X, [DOMAINS] * len(X), tests, GRID, SPLITS, device=device)


def vote(X: np.ndarray, tests: np.ndarray, device: str) -> None:
    """Seconds of a vote of all machines, with its leave-one-out scores and without a criterion."""
    domains, sample = [DOMAINS] * len(X), [0, len(X) - 1]
    print()
    for name in ("vote-paper", "vote"):
        seconds = min(
            timed(lambda: evaluate_machines(X, domains, tests, name, None, device=device), device)  # noqa: B023
            for _ in range(2)
        )
        found = evaluate_machines(
            X[sample], [DOMAINS] * 2, tests[sample], name, None, device=device
        )
        errors = [
            np.abs(each.scores - daco.NormalBank(X[m], DOMAINS).score(tests[m], name)).max()
            for m, each in zip(sample, found, strict=True)
        ]
        print(f"{name}: {len(X):,} machines in {seconds:.2f} s; from the CPU's {max(errors):.1e}.")


def agreement(
    X: np.ndarray, tests: np.ndarray, found: list[MachineEvaluation], sample: list[int]
) -> None:
    worst = own = 0.0
    integers = differing = 0
    start = time.perf_counter()
    for m in sample:
        bank = daco.NormalBank(X[m], DOMAINS)
        expected = bank.score(tests[m], GRID)
        worst = max(worst, float((np.abs(found[m].scores - expected) / spread(expected)).max()))
        expected = bank.leave_one_out(GRID)
        own = max(own, float((np.abs(found[m].own - expected) / spread(expected)).max()))
        counts = bank.exact_balance(GRID, SPLITS).counts
        differing += int((found[m].balance.counts != counts).sum())
        integers += counts.size
    each = (time.perf_counter() - start) / len(sample)
    print(
        f"\n{len(sample)} machines against the CPU engine ({each:.2f} s each): scores differ by at "
        f"most {worst:.1e}, leave-one-out scores by {own:.1e} of a configuration's unit; "
        f"{differing} of {integers} KS integers differ."
    )


def spread(scores: np.ndarray) -> np.ndarray:
    """The golden vectors' unit of each configuration: 1 for quantiles, else the spread."""
    quantiles = [config.calibration == "conf" for config in GRID]
    return np.where(quantiles, 1.0, scores.std(axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--sample", type=int, default=10, help="machines compared with the CPU's")
    options = parser.parse_args()
    device, most = options.device, max(options.machines)
    X, tests = machines(most, device)
    name = torch.cuda.get_device_name() if device != "cpu" else "CPU"
    first = timed(lambda: run(X[:1], tests[:1], device), device)
    print(f"{name}, torch {torch.__version__}; first machine of a process: {first:.1f} s.\n")
    print("| machines | seconds with transfer | ms each | peak GiB |\n|---|---|---|---|")
    for count in options.machines:
        part = X[:count], tests[:count], device
        run(*part)
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        seconds = min(timed(lambda: run(*part), device) for _ in range(3))  # noqa: B023
        peak = torch.cuda.max_memory_allocated() / 2**30 if device != "cpu" else float("nan")
        each = 1000 * seconds / count
        print(f"| {count:,} | {seconds:.3f} | {each:.2f} | {peak:.1f} |", flush=True)
    if options.sample:
        sample = np.unique(np.linspace(0, most - 1, options.sample).astype(int)).tolist()
        agreement(X, tests, run(X, tests, device), sample)
    vote(X, tests, device)


if __name__ == "__main__":
    main()
