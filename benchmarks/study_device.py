"""A study of many machines of the paper's size, by the CPU engine and on a GPU.

    PYTHONPATH=src python benchmarks/study_device.py [--machines 200] [--device cuda]

Machines of 990 + 10 normals and 200 test clips, 768-d, in two Parquet files: half of them are
development machines. Each study is run from its files to its tables, in a process of its own,
with one worker process per core, after a small one that compiles the kernels of the CPU engine and
after the GPU has computed something. Printed are the seconds of each stage, the peak memory of the
process that leads, and how far the two studies agree. ``--device cpu:0`` takes the same way
without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

STAGES = ("until scoring", "scoring", "between", "examining", "statistics", "in all")


def write_machines(path: Path, role: str, count: int, size: dict[str, int]) -> None:
    """A table, machine after machine, so that this process holds one of them."""
    import pyarrow as pa
    from synthetic_machines import synthetic_machine, synthetic_table

    from daco.data.parquet import arrow_schema, parquet_writer, vector_array

    schema = arrow_schema({"embedding": size["dim"]}, {"backbone": "synthetic"})
    with parquet_writer(path, schema) as writer:
        for i in range(count):
            table = synthetic_table([synthetic_machine(f"{role}{i:05d}", [i, count], **size)])
            columns = {name: values.tolist() for name, values in table.columns.items()}
            columns["attributes"] = ["{}"] * len(table)
            arrays = [
                vector_array(table.matrix())
                if field.name == "embedding"
                else pa.array(columns[field.name], field.type)
                for field in schema
            ]
            writer.write_table(pa.table(arrays, schema=schema))


def one_study(folder: Path, device: str, workers: int | None) -> None:
    """In a process of its own: the study, and what it took as JSON."""
    import resource

    from daco.experiments.run import study

    if device != "cpu":  # a GPU's first work loads its libraries; once per process
        from daco.method.bank import NormalBank

        NormalBank(np.random.default_rng(0).normal(size=(60, 8)), device=device).leave_one_out(
            "raw-k1"
        )
    marks: dict[str, list[float]] = {}
    started = time.perf_counter()

    def progress(stage: str, done: int, total: int) -> None:
        now = time.perf_counter() - started
        marks.setdefault(stage, [now, now])[1] = now

    tables = [folder / "dev.parquet", folder / "eval.parquet"]
    study(*tables, out=folder / device, device=device, workers=workers, progress=progress)
    total = time.perf_counter() - started
    (a, b), (c, d) = marks["scoring"], marks["examining"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = dict(zip(STAGES, (a, b - a, c - b, d - c, total - d, total), strict=True))
    print(json.dumps({**seconds, "peak MB": peak}))


def run_apart(folder: Path, device: str, workers: int | None) -> dict[str, float]:
    command = [sys.executable, __file__, "--folder", str(folder), "--device", device]
    command += [] if workers is None else ["--workers", str(workers)]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(found.stdout.splitlines()[-1])


def show_agreement(folder: Path, device: str) -> None:
    from daco.experiments.result import StudyResult

    one, two = (StudyResult.read(folder / name) for name in ("cpu", device))
    for name, column in (
        ("per_machine", "balance_ks"),
        ("grid", "crit_eval"),
        ("grid", "eval_omega"),
    ):
        a, b = (getattr(result, name)[column].to_numpy() for result in (one, two))
        print(f"largest difference of {column} in {name}.csv: {np.abs(a - b).max():.1e}")
    largest = 0.0
    for first, second in zip(one.machine_scores(), two.machine_scores(), strict=True):
        for a, b in ((first.scores, second.scores), (first.own, second.own)):
            scale = np.maximum(np.abs(a).max(axis=0), 1e-300)
            largest = max(largest, float((np.abs(a - b) / scale).max()))
    print(f"largest difference of a score, in units of its configuration's largest: {largest:.1e}")
    picks = [
        {row["rule"]: row["config"] for row in result.selection["rows"]} for result in (one, two)
    ]
    print(f"what every rule picks: {'the same' if picks[0] == picks[1] else picks}")
    print(f"device in run.json: {two.provenance['device']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--normals", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder is not None:
        one_study(given.folder, given.device, given.workers)
        return
    size = {"n_source": given.normals - 10, "n_target": 10, "n_test": 200, "dim": given.dim}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for role in ("dev", "eval"):  # compiles the kernels, which are then found by both
            (folder / "warm").mkdir(exist_ok=True)
            write_machines(folder / "warm" / f"{role}.parquet", role, 2, size | {"n_source": 90})
        run_apart(folder / "warm", "cpu", 1)
        half = max(1, given.machines // 2)
        for role, count in (("dev", half), ("eval", max(1, given.machines - half))):
            write_machines(folder / f"{role}.parquet", role, count, size)
        found = {
            device: run_apart(folder, device, given.workers) for device in ("cpu", given.device)
        }
        print(
            f"{given.machines} machines of {given.normals} normals, {given.dim}-d, 51 "
            f"configurations; {given.workers or os.cpu_count()} worker processes"
        )
        for what in (*STAGES, "peak MB"):
            cells = "   ".join(f"{device} {found[device][what]:8.2f}" for device in found)
            print(f"{what:>14}   {cells}")
        show_agreement(folder, given.device)


if __name__ == "__main__":
    main()
