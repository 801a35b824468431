"""What a Ray cluster costs and brings: the same work by one worker and by two.

    python benchmarks/fleet.py [--clips 600] [--machines 1 10] [--weights mn04_as_mAP_432.pt]

A cluster of one and of two nodes with one CPU each is started on this computer. Seconds are those
of the whole call on a cluster that is up, with the connection and the loading of daco on every
worker; beside it the same call of the engine local with one thread or process. Efficiency is the
speed-up over one worker, divided by the workers. Every result is compared with the local one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import soundfile

from daco.backbones import load
from daco.clips import read_clips
from daco.embed import embed_clips
from daco.engines.embedding import RayEmbedding
from daco.experiments.run import study
from daco.synth_embeddings import synthetic_machine, synthetic_table

WORKERS = (1, 2)
NODE = {"num_cpus": 1, "object_store_memory": 200 * 2**20}


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            made.add_node(**NODE)
        made.wait_for_nodes()
        yield made.address
    finally:
        made.shutdown()


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def show(what: str, amount: int, times: dict[str, float]) -> None:
    for who, spent in times.items():
        workers = int(who.split()[1]) if who.startswith("ray") else 1
        gain = f"{times['ray 1'] / spent / workers:8.0%}" if who.startswith("ray") else " " * 8
        print(f"{what:24} {who:8} {spent:8.1f} s {amount / spent:8.1f}/s {gain}", flush=True)


def bench_embedding(folder: Path, count: int, backbone: str, weights: Path | None) -> None:
    clips = folder / f"clips{count}"
    if not clips.exists():
        clips.mkdir()
        rng = np.random.default_rng(0)
        for index in range(count):
            wave = 0.1 * rng.normal(size=160_000)
            soundfile.write(clips / f"{index:06d}.wav", wave, 16_000, subtype="PCM_16")
    table, net = read_clips(clips), load(backbone, weights)
    if weights is not None:
        import torch

        torch.set_num_threads(1)
    size = max(1, count // 16)
    out = folder / "local.parquet"
    times = {"local": seconds(lambda: embed_clips(table, net, out, workers=1, shard_size=size))}
    for workers in WORKERS:
        there = folder / f"ray{workers}.parquet"
        with cluster(workers) as address:
            place = RayEmbedding(net, weights=weights, address=address)
            times[f"ray {workers}"] = seconds(
                lambda p=place, o=there: embed_clips(table, net, o, engine=p, shard_size=size)
            )
        assert there.read_bytes() == out.read_bytes()
    show(f"{count} clips, {backbone}", count, times)


def bench_study(folder: Path, count: int) -> None:
    dev = folder / f"dev{count}.parquet"
    synthetic_table([synthetic_machine(f"m{i}", [i, count], dim=768) for i in range(count)]).write(
        dev
    )
    found = []
    times = {"local": seconds(lambda: found.append(study(dev, workers=1)))}
    for workers in WORKERS:
        with cluster(workers) as address:
            times[f"ray {workers}"] = seconds(
                lambda a=address: found.append(study(dev, engine="ray", address=a))
            )
    assert all(each.per_machine.equals(found[0].per_machine) for each in found)
    show(f"{count} machines, 51 names", count, times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=600)
    parser.add_argument("--machines", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--weights", type=Path, help="of mn04, which is then embedded with too")
    options = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench_embedding(folder, options.clips, "logmel", None)
        if options.weights is not None:
            bench_embedding(folder, options.clips, "mn04", options.weights)
        for count in options.machines:
            bench_study(folder, count)


if __name__ == "__main__":
    main()
