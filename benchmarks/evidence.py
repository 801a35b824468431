"""What each scorer is worth on labelled machines, and what a choice without labels would take.

::

    python benchmarks/evidence.py --embeddings mn04          # the real machines, ../shared
    python benchmarks/evidence.py TABLE [--readout R] [--faults FAULTS]

Prints two Markdown tables of a wide grid: the paper's, and every calibration of further scores.
Labels enter the figures and nothing else. ``--embeddings`` names files of the fan and the bearing
below DACO_SHARED: mn04, mn04_band or logmel_mod. FAULTS comes from ``daco inject``; without it,
pseudo-anomalies are normals that are moved in the embedding space.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import daco
from daco.data.dcase import parse_name
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.method.config import (
    DEFAULT_CONFIG,
    PAPER_CONFIG,
    RAW_CONFIG,
    ScoreConfig,
    blind_pool,
    calibrations_of,
)
from daco.method.criterion import Balance
from daco.method.selection import RESAMPLES, choose
from daco.method.viability import PseudoScores, moved_normals, pseudo_scores, viability_veto
from daco.synthetic.fault_tables import injected

SHARED = Path(os.environ.get("DACO_SHARED", Path(__file__).resolve().parents[2] / "shared"))
FURTHER = ("ldn-mean-K4", "ldn-mean-K16", "varmin-K1", "varmin-K4", "varmin-K16", "blend")


def wide_grid() -> list[ScoreConfig]:
    """The paper's 51 configurations, and the calibrations of further base scores."""
    bases = [ScoreConfig.parse(name).base for name in FURTHER]
    return daco.paper_grid() + [config for base in bases for config in calibrations_of(base)]


class Machine:
    """One machine under all configurations."""

    def __init__(self, table: daco.EmbeddingTable, readout: str, faults, grid) -> None:
        train, test = table.select(split="train"), table.select(split="test")
        X, domains = train.matrix(readout), train.column("domain")
        bank = daco.NormalBank(X, domains)
        scores = bank.score(test.matrix(readout), grid)
        self.metrics = grid_metrics(scores, test.column("label"), test.column("domain")).values
        self.balance: Balance = bank.exact_balance(grid, n_resamples=RESAMPLES)
        made = moved_normals(X, domains)
        if faults is not None:
            names = train.column("path").tolist()
            made = injected(faults, names, domains, readout=readout, X=X)
        self.pseudo: PseudoScores = pseudo_scores(X, domains, made, grid)

    def score(self, config: int) -> float:
        return 100 * float(harmonic_mean(self.metrics[config]))


def official(machines: dict[str, Machine], chosen: dict[str, int]) -> float:
    values = [machine.metrics[chosen[name]] for name, machine in machines.items()]
    return 100 * float(harmonic_mean(np.concatenate(values)))


def guarded(names: list[str], machines: list[Machine], pool: list[str], veto: bool = True) -> int:
    """The choice by daco's rule for these machines, from a pool."""
    rows = [names.index(name) for name in pool]
    excluded = viability_veto([machine.pseudo for machine in machines]).reasons if veto else {}
    table = {
        "config": pool,
        "criterion": np.mean([machine.balance.values[rows] for machine in machines], axis=0),
        "viable": [name not in excluded for name in pool],
    }
    resampled = np.mean([machine.balance.resampled[rows] for machine in machines], axis=0)
    return names.index(choose(table, resampled=resampled).config)


def choices(grid, machines: dict[str, Machine]) -> dict[str, dict[str, int]]:
    """A configuration for each machine by each rule; only the last two read a label."""
    names = [config.name for config in grid]
    pool, everyone = [config.name for config in blind_pool()], list(machines.values())
    criterion = np.mean([machine.balance.values for machine in everyone], axis=0)

    def all_the_same(index: int) -> dict[str, int]:
        return dict.fromkeys(machines, index)

    omega = np.array([official(machines, all_the_same(i)) for i in range(len(grid))])
    best = {
        name: int(np.argmax([machine.score(i) for i in range(len(grid))]))
        for name, machine in machines.items()
    }
    return {
        "nobody: nearest neighbours": all_the_same(names.index(RAW_CONFIG)),
        "nobody: the paper's default": all_the_same(names.index(PAPER_CONFIG)),
        "nobody: VarMin": all_the_same(names.index("varmin-K4")),
        "nobody: the blend of this view": all_the_same(names.index(DEFAULT_CONFIG)),
        "smallest criterion": all_the_same(int(np.argmin(criterion))),
        "`choose`, whole grid": all_the_same(guarded(names, everyone, names)),
        "`choose`, whole grid, no veto": all_the_same(guarded(names, everyone, names, False)),
        "`choose`, the paper's pool": all_the_same(guarded(names, everyone, pool)),
        "`choose`, whole grid, each machine": {
            name: guarded(names, [machine], names) for name, machine in machines.items()
        },
        "`choose`, the paper's pool, each machine": {
            name: guarded(names, [machine], pool) for name, machine in machines.items()
        },
        "median of the grid": all_the_same(int(np.argsort(omega)[len(omega) // 2])),
        "best with labels, one for all": all_the_same(int(np.argmax(omega))),
        "best with labels, each machine": best,
    }


def show_choices(grid, machines: dict[str, Machine]) -> None:
    print("| chosen by | configuration | " + " | ".join(machines) + " | official |")
    print("|---|---|" + "---|" * (len(machines) + 1))
    for rule, chosen in choices(grid, machines).items():
        names = list(dict.fromkeys(f"`{grid[i].name}`" for i in chosen.values()))
        shown = ", ".join(names) if len(names) <= 2 else f"{len(names)} different"
        cells = [f"{machine.score(chosen[name]):.1f}" for name, machine in machines.items()]
        print(f"| {rule} | {shown} | {' | '.join(cells)} | {official(machines, chosen):.1f} |")


def show_bases(grid, machines: dict[str, Machine]) -> None:
    """Every base score as it is, and the range of its calibrations."""
    print("| base score | " + " | ".join(machines) + " | official | calibrated, official | veto |")
    print("|---|" + "---|" * (len(machines) + 3))
    veto = viability_veto([machine.pseudo for machine in machines.values()])
    kept = np.array([config.name not in veto.reasons for config in grid])
    for base in dict.fromkeys(config.base for config in grid):
        mine = [i for i, config in enumerate(grid) if config.base == base]
        raw = [i for i in mine if grid[i].calibration is None]
        rest = [official(machines, dict.fromkeys(machines, i)) for i in mine if i not in raw]
        span = f"{min(rest):.1f} to {max(rest):.1f}" if rest else ""
        cells = [f"{machine.score(raw[0]):.1f}" for machine in machines.values()]
        omega = official(machines, dict.fromkeys(machines, raw[0]))
        cut = "" if kept[mine].all() else f"cuts {int((~kept[mine]).sum())} of {len(mine)}"
        print(f"| `{base.name}` | {' | '.join(cells)} | {omega:.1f} | {span} | {cut} |")
    excluded = ", ".join(veto.reasons) or "none"
    print(f"\nVeto: limit {100 * veto.limit:.1f}; excluded: {excluded}")
    for name, rows in (("excluded", ~kept), ("kept", kept)):
        if rows.any():
            low, high = 100 * veto.score[rows].min(), 100 * veto.score[rows].max()
            print(f"Pseudo scores of the {name}: {low:.1f} to {high:.1f}")
    for name, machine in machines.items():
        true = [machine.score(i) for i in range(len(grid))]
        found = spearmanr(machine.pseudo.score, true).statistic
        print(f"Rank correlation of pseudo and official score, {name}: {found:+.2f}")


def real_table(embeddings: str) -> daco.EmbeddingTable:
    """All clips of the fan and the bearing; a vector for each band is one long vector."""
    names: list[str] = []
    vectors = []
    for machine in ("fan", "bearing"):
        arrays = np.load(SHARED / "real" / "embeddings" / f"{machine}_{embeddings}.npz")
        key = next(key for key in arrays.files if key != "file_name")
        vectors.append(arrays[key].reshape(len(arrays[key]), -1).astype(np.float32))
        names += arrays["file_name"].tolist()
    parts = [parse_name(name) for name in names]
    sizes = [len(each) for each in vectors]
    return daco.EmbeddingTable.from_arrays(
        np.concatenate(vectors),
        machine=np.repeat(["fan", "bearing"], sizes).tolist(),
        domain=[part.domain for part in parts],
        split=[part.split for part in parts],
        label=[part.label for part in parts],
        path=names,
        metadata={"backbone": embeddings},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--embeddings", default="mn04")
    parser.add_argument("--readout")
    parser.add_argument("--faults", type=Path)
    given = parser.parse_args()
    table = daco.EmbeddingTable.read(given.table) if given.table else real_table(given.embeddings)
    readout = given.readout or table.readouts[0]
    faults = daco.EmbeddingTable.read(given.faults) if given.faults else None
    grid = wide_grid()
    machines = {}
    for name in table.machines:
        mine = None if faults is None else faults.select(machine=name)
        machines[name] = Machine(table.select(machine=name), readout, mine, grid)
    title = f"{given.table.stem}, {readout}" if given.table else given.embeddings
    print(f"{title}: {len(grid)} configurations\n")
    show_choices(grid, machines)
    print()
    show_bases(grid, machines)


if __name__ == "__main__":
    main()
