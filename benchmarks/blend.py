"""What the blend finds on real machines: views, members, and how many normals it needs.

::

    python benchmarks/blend.py               # all tables, about 20 seconds
    python benchmarks/blend.py --draws 1     # fewer draws of normals and of splits

Official scores in percent: the harmonic mean of AUC source, AUC target and pAUC, of one machine or
over several. Views and labels are read below DACO_SHARED (default ../shared); labels enter the
figures and nothing else. The MIMII fans have another microphone as their second domain; a draw
shuffles the normal recordings: 55 % are the bank, from channel 0 (source), the next ten are its
target normals, from channel 4, and the rest are test clips of the two channels in turn.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import daco
from daco.data.dcase import parse_name
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.method.config import BLEND_MEMBERS, PAPER_CONFIG, RAW_CONFIG

SHARED = Path(os.environ.get("DACO_SHARED", Path(__file__).resolve().parents[2] / "shared"))
FOLDER = SHARED / "real" / "embeddings"
FILES = {"mod": "logmel_mod", "mod60": "mod60", "env": "env", "cep": "cep", "mn04": "mn04"}
NO_NETWORK = ("mod", "mod60", "env", "cep")
ALL_VIEWS = (*NO_NETWORK, "mn04")
TARGET = 10  # target normals
SOURCES = (10, 20, 40, 100, 300, 990)


class Machine(NamedTuple):
    """Views of the normals and of labelled test clips."""

    normals: dict[str, np.ndarray]
    domains: np.ndarray
    clips: dict[str, np.ndarray]
    clip_domains: np.ndarray
    labels: np.ndarray

    def metrics(self, views: Sequence[str], grid: Sequence[str]) -> np.ndarray:
        """AUC source, AUC target and pAUC of each configuration, (C, 3)."""
        bank = daco.NormalBank({view: self.normals[view] for view in views}, self.domains)
        scores = bank.score({view: self.clips[view] for view in views}, grid)
        return grid_metrics(scores, self.labels, self.clip_domains).values

    def few(self, n_source: int, rng: np.random.Generator) -> Machine:
        """With so many source normals, drawn at random, and all target normals."""
        source = np.flatnonzero(self.domains == "source")
        kept = np.append(
            rng.choice(source, n_source, replace=False), np.flatnonzero(self.domains == "target")
        )
        normals = {view: each[kept] for view, each in self.normals.items()}
        return self._replace(normals=normals, domains=self.domains[kept])


def dcase_machine(name: str) -> Machine:
    views = {}
    for view, file in FILES.items():
        arrays = np.load(FOLDER / f"{name}_{file}.npz")
        key = next(key for key in arrays.files if key != "file_name")
        views[view] = arrays[key].astype(np.float32)
        names = [parse_name(each) for each in arrays["file_name"].tolist()]
    train = np.array([each.split == "train" for each in names])
    domains = np.array([each.domain for each in names])
    return Machine(
        {view: each[train] for view, each in views.items()},
        domains[train],
        {view: each[~train] for view, each in views.items()},
        domains[~train],
        np.array([each.label for each in names])[~train],
    )


def mimii_machine(name: str, seed: int) -> Machine:
    arrays = np.load(FOLDER / f"mimii_fan_{name}.npz")
    rows = {key: row for row, key in enumerate(zip(arrays["path"], arrays["ch"], strict=True))}
    label_of = dict(zip(arrays["path"].tolist(), arrays["label"].tolist(), strict=True))
    normal = np.array(sorted(path for path, label in label_of.items() if label == 0))
    anomalous = sorted(path for path, label in label_of.items() if label == 1)
    normal = np.random.default_rng(seed).permutation(normal)
    n_source = int(0.55 * len(normal))
    bank = [(path, 0) for path in normal[:n_source]]
    bank += [(path, 4) for path in normal[n_source : n_source + TARGET]]
    tests = [(path, 4 * (i % 2)) for i, path in enumerate(normal[n_source + TARGET :])]
    n_normal = len(tests)
    tests += [(path, 4 * (i % 2)) for i, path in enumerate(anomalous)]
    views = {view: arrays["mean" if view == "mn04" else view].astype(np.float32) for view in FILES}

    def select(clips: list) -> tuple[dict[str, np.ndarray], np.ndarray]:
        chosen = [rows[clip] for clip in clips]
        domains = np.array(["source" if channel == 0 else "target" for _, channel in clips])
        return {view: each[chosen] for view, each in views.items()}, domains

    labels = (np.arange(len(tests)) >= n_normal) * 1
    return Machine(*select(bank), *select(tests), labels)


def official(metrics: Sequence[np.ndarray]) -> np.ndarray:
    """Official score of each configuration over machines, from their metrics (C, 3)."""
    return 100 * harmonic_mean(np.concatenate(metrics, axis=1), axis=1)


def show(header: Sequence[str], rows: Sequence[Sequence]) -> None:
    print(f"\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        cells = [each if isinstance(each, str) else f"{each:.1f}" for each in row]
        print(f"| {' | '.join(cells)} |", flush=True)


def show_views(machines: dict[str, list[Machine]]) -> None:
    """The blend against single configurations on one view, by machine (mean over draws)."""
    rows = []
    for views, config in (
        (("mn04",), RAW_CONFIG),
        (("mn04",), PAPER_CONFIG),
        (("mod",), PAPER_CONFIG),
        *(((view,), "blend") for view in ALL_VIEWS),
        (NO_NETWORK, "blend"),
        (NO_NETWORK, "conf-soft-m0-blend"),
        (ALL_VIEWS, "blend"),
        (ALL_VIEWS, "conf-soft-m0-blend"),
    ):
        metrics = {
            name: [draw.metrics(views, [config]) for draw in draws]
            for name, draws in machines.items()
        }
        scores = [float(np.mean([official([each]) for each in m])) for m in metrics.values()]
        both = float(official([metrics["fan"][0], metrics["bearing"][0]])[0])
        rows.append([f"`{config}`, {' + '.join(views)}", *scores, both])
    show(["", *machines, "fan and bearing"], rows)


def show_members(machines: dict[str, list[Machine]]) -> None:
    """A blend of one member only: the mean over views of its normal scores."""
    rows = []
    for views in (NO_NETWORK, ALL_VIEWS):
        for member in (base.name for base in BLEND_MEMBERS):
            metrics = []
            for name in ("fan", "bearing"):
                metrics.append(one_member(machines[name][0], views, member))
            rows.append([f"`{member}` alone", f"{len(views)} views", float(official(metrics)[0])])
    show(["fan and bearing", "", "official"], rows)


def one_member(machine: Machine, views: Sequence[str], member: str) -> np.ndarray:
    from daco.method.blend import normal_scores

    parts = []
    for view in views:
        bank = daco.NormalBank(machine.normals[view], machine.domains)
        ascending = np.sort(bank.leave_one_out(member).T, axis=1)
        parts.append(normal_scores(ascending, bank.score(machine.clips[view], member).T)[0])
    scores = np.mean(parts, axis=0)[:, None]
    return grid_metrics(scores, machine.labels, machine.clip_domains).values


def show_few_normals(machines: dict[str, list[Machine]], draws: int) -> None:
    """Official score over fan and bearing with few source and ten target normals."""
    cases = [(NO_NETWORK, "blend"), (ALL_VIEWS, "blend"), (("mn04",), PAPER_CONFIG)]
    rows = []
    for n_source in SOURCES:
        scores = []
        for seed in range(1 if n_source == max(SOURCES) else draws):
            rng = np.random.default_rng([seed, n_source])
            few = [machines[name][0].few(n_source, rng) for name in ("fan", "bearing")]
            scores.append([official([each.metrics(v, [c]) for each in few])[0] for v, c in cases])
        rows.append([f"{n_source} + {TARGET}", *np.mean(scores, axis=0)])
    header = [f"`{config}`, {len(views)} views" for views, config in cases[:2]]
    show(["normals", *header, f"`{PAPER_CONFIG}`, mn04"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10)
    draws = parser.parse_args().draws
    if not FOLDER.is_dir():
        parser.error("Set DACO_SHARED to the folder with the recordings' embeddings.")
    machines = {name: [dcase_machine(name)] for name in ("fan", "bearing")}
    for name in ("02", "04"):
        machines[f"MIMII fan {name}"] = [mimii_machine(name, seed) for seed in range(draws)]
    show_views(machines)
    show_members(machines)
    show_few_normals(machines, draws)


if __name__ == "__main__":
    main()
