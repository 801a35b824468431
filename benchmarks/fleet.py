"""What many machines and many clips cost: by machines, by workers, here and on a Ray cluster.

    python benchmarks/fleet.py [--machines 1 10 100 1000] [--studies 1 10] [--workers 1 2]
        [--clips 600] [--weights mn04_as_mAP_432.pt] [--device cuda]

Machines have the paper's size: 990 + 10 normals, 200 test clips, 768-d. "grid" scores 51
configurations and their criterion over 10 splits; "study" adds the further experiments and all
tables. Vectors lie in a Parquet file. Local workers are processes; with Ray, a cluster of so many
nodes with one CPU each on this computer. Seconds are those of the whole call, with the start of
the workers, on a cluster that is up. Efficiency is the gain over one worker of the same engine,
divided by the workers; the last column is the CPU time of the process that asks. Every result is
compared with that of one local worker, and must be equal.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import pandas as pd
import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

from synthetic_machines import synthetic_machine, synthetic_table

import daco
from daco.backbones import load
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding import parts
from daco.embedding.embed import embed_clips
from daco.experiments.inputs import DomainNames, read_table
from daco.experiments.machine import Settings
from daco.experiments.machine_data import machines_of
from daco.experiments.study import score_machines, study
from daco.method.criterion import PAPER_SPLITS

NODE = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
DIM = 768
CONFIGS = tuple(config.name for config in daco.paper_grid())


@contextmanager
def cluster(nodes: int, **head: Any) -> Iterator[str]:
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True, head_node_args={**NODE, "include_dashboard": False, **head}
    )
    try:
        for _ in range(nodes - 1):
            made.add_node(**NODE)
        made.wait_for_nodes()
        yield made.address
    finally:
        made.shutdown()


@contextmanager
def place(engine: str, workers: int) -> Iterator[dict[str, Any]]:
    if engine == "local":
        yield {"engine": "local", "workers": workers}
        return
    with cluster(workers) as address:
        os.environ["RAY_ADDRESS"] = address
        try:
            yield {"engine": "ray", "workers": None}
        finally:
            import_module("ray").shutdown()
            del os.environ["RAY_ADDRESS"]


def measure(
    what: str,
    amount: int,
    workers: Sequence[int],
    work: Callable[..., Any],
    same: Callable[[Any, Any], bool],
    engines: Sequence[str] = ("local", "ray"),
) -> None:
    first, alone = None, {}
    for engine in engines:
        for count in workers:
            with place(engine, count) as options:
                started, cpu = time.perf_counter(), time.process_time()
                found = work(**options)
                spent, cpu = time.perf_counter() - started, time.process_time() - cpu
            first = found if first is None else first
            assert same(first, found), f"{engine} {count} differs"
            alone.setdefault(engine, spent * workers[0])
            gain = alone[engine] / spent / count
            print(
                f"{what:22} {engine:6} {count:3} {spent:8.2f} s {1000 * spent / amount:9.2f} ms "
                f"{gain:6.0%} {1000 * cpu / amount:9.2f} ms",
                flush=True,
            )


def write_machines(folder: Path, count: int) -> Path:
    """A table of so many machines, a piece at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, pieces = folder / f"machines{count}.parquet", []
    for start in range(0, count, 50):
        ids = range(start, min(start + 50, count))
        piece = folder / f"piece{start}.parquet"
        made = [synthetic_machine(f"m{i:06d}", [i, 0], dim=DIM) for i in ids]
        synthetic_table(made).write(piece)
        pieces.append(piece)
    with pq.ParquetWriter(path, pq.read_schema(pieces[0]), compression="none") as writer:
        for piece in pieces:
            table: pa.Table = pq.read_table(piece)
            writer.write_table(table, row_group_size=4096)
            piece.unlink()
    return path


def bench_grid(folder: Path, counts: Sequence[int], workers: Sequence[int]) -> None:
    path = write_machines(folder, max(counts))
    print(f"bytes per clip in the table: {path.stat().st_size / (1200 * max(counts)):.0f}")
    names, settings = DomainNames("source", "target"), Settings(CONFIGS, n_splits=PAPER_SPLITS)
    for count in counts:
        machines = machines_of(read_table(path), "dev", names)[:count]

        def grid(machines: Any = machines, workers: int = 1, engine: str = "local") -> Any:
            found = score_machines(machines, settings, workers, engine)
            return pd.concat([each.clips for each in found.values()])

        measure(f"grid, {count} machines", count, workers, grid, lambda a, b: a.equals(b))


def bench_study(folder: Path, counts: Sequence[int], workers: Sequence[int]) -> None:
    for count in counts:
        path = write_machines(folder, count)

        def whole(path: Path = path, **options: Any) -> Any:
            return study(path, **options).clips

        measure(f"study, {count} machines", count, workers, whole, lambda a, b: a.equals(b))


def write_clips(folder: Path, count: int) -> Path:
    clips = folder / "clips"
    clips.mkdir()
    sound = (0.1 * np.random.default_rng(0).normal(size=160_000 + count)).astype(np.float32)

    def write(index: int) -> None:
        wave = sound[index : index + 160_000]
        soundfile.write(clips / f"{index:06d}.wav", wave, 16_000, subtype="PCM_16")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(count)))
    return clips


def bench_embedding(
    folder: Path, clips: Path, backbone: str, weights: Path | None, workers: Sequence[int]
) -> None:
    table, net = read_clips(clips), load(backbone, weights)
    if weights is not None:
        import torch

        torch.set_num_threads(1)
    parts.PART_SIZE = max(1, min(256, len(table) // 16))

    def embed(engine: str, workers: int | None) -> bytes:
        out = folder / "e.parquet"
        out.unlink(missing_ok=True)
        embed_clips(table, net, out, workers=workers, engine=engine, weights=weights)
        return out.read_bytes()

    # Local threads only read recordings: one network, one thread.
    what = f"{len(table)} clips, {backbone}"
    measure(what, len(table), workers[:1], embed, bytes.__eq__, ("local",))
    measure(what, len(table), workers, embed, bytes.__eq__, ("ray",))
    found = EmbeddingTable.read(folder / "e.parquet")
    print(f"bytes per clip in the table: {(folder / 'e.parquet').stat().st_size / len(found):.0f}")


def bench_gpu(folder: Path, clips: Path, weights: Path) -> None:
    """One worker with a GPU against the same here; twice, because the first warms caches up."""
    table = read_clips(clips)
    here, driver = load("mn04", weights, "cuda"), load("mn04", weights)
    made = []
    for turn in range(2):
        for engine in ("local", "ray"):
            out = folder / f"{engine}{turn}.parquet"
            with cluster(1, num_cpus=8, num_gpus=1) as address:
                os.environ["RAY_ADDRESS"] = address
                started = time.perf_counter()
                if engine == "ray":
                    there = {"engine": "ray", "weights": weights, "device": "cuda"}
                    embed_clips(table, driver, out, batch_size=128, **there)
                else:
                    embed_clips(table, here, out, workers=6, batch_size=128)
                spent = time.perf_counter() - started
            made.append(out.read_bytes())
            print(
                f"{len(table)} clips, mn04 fp32 GPU  {engine:6} {spent:6.2f} s "
                f"{1000 * spent / len(table):6.2f} ms",
                flush=True,
            )
    assert all(each == made[0] for each in made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, nargs="*", default=[1, 10, 100, 1000])
    parser.add_argument("--studies", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--clips", type=int, default=600)
    parser.add_argument("--weights", type=Path, help="of mn04, which is then embedded with too")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.clips:
            clips = write_clips(folder, options.clips)
            bench_embedding(folder, clips, "logmel", None, options.workers)
            if options.weights is not None:
                bench_embedding(folder, clips, "mn04", options.weights, options.workers)
                if options.device == "cuda":
                    bench_gpu(folder, clips, options.weights)
        if options.machines:
            bench_grid(folder, options.machines, options.workers)
        bench_study(folder, options.studies, options.workers)


if __name__ == "__main__":
    main()
