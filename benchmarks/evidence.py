"""What each scorer is worth on labelled machines, and what a choice without labels would take.

``python benchmarks/evidence.py TABLE [--readout R] [--faults FAULTS]`` prints two Markdown tables
of the frontier grid on a table of embeddings. Labels enter the figures and nothing else.
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
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, blind_pool
from daco.method.criterion import Balance
from daco.method.pseudo_anomalies import injected, moved_normals
from daco.method.viability import PseudoScores, pseudo_scores, viability_veto


class Machine:
    """One machine under all configurations."""

    def __init__(self, table: daco.EmbeddingTable, readout: str, faults, grid) -> None:
        train, test = table.select(split="train"), table.select(split="test")
        bands = table.bands(readout)
        domains = train.column("domain")
        bank = daco.NormalBank(train.matrix(readout), domains, bands=bands)
        scores = bank.score(test.matrix(readout), grid)
        self.metrics = grid_metrics(scores, test.column("label"), test.column("domain")).values
        self.balance: Balance = bank.exact_balance(grid)
        made = moved_normals(train.matrix(readout), domains)
        if faults is not None:
            names = train.column("path").tolist()
            made = injected(faults, names, domains, readout=readout, X=train.matrix(readout))
        X = train.matrix(readout)
        self.pseudo: PseudoScores = pseudo_scores(X, domains, made, grid, bands=bands)

    def score(self, config: int) -> float:
        return 100 * float(harmonic_mean(self.metrics[config]))


def smallest(criterion: np.ndarray, allowed: np.ndarray) -> int:
    return int(np.argmin(np.where(allowed, criterion, np.inf)))


def official(machines: dict[str, Machine], chosen: dict[str, int]) -> float:
    values = [machine.metrics[chosen[name]] for name, machine in machines.items()]
    return 100 * float(harmonic_mean(np.concatenate(values)))


def choices(grid, machines: dict[str, Machine]) -> dict[str, dict[str, int]]:
    """A configuration for each machine by each rule; only the last two read a label."""
    names = [config.name for config in grid]
    criterion = np.mean([machine.balance.values for machine in machines.values()], axis=0)
    everything = np.ones(len(grid), bool)
    kept = viability_veto([machine.pseudo for machine in machines.values()]).kept
    own = {name: viability_veto(machine.pseudo).kept for name, machine in machines.items()}
    pool = np.isin(names, [config.name for config in blind_pool()])

    def all_the_same(index: int) -> dict[str, int]:
        return dict.fromkeys(machines, index)

    def by_machine(allowed: dict[str, np.ndarray]) -> dict[str, int]:
        return {n: smallest(m.balance.values, allowed[n]) for n, m in machines.items()}

    omega = np.array([official(machines, all_the_same(i)) for i in range(len(grid))])
    best = {
        name: int(np.argmax([machine.score(i) for i in range(len(grid))]))
        for name, machine in machines.items()
    }
    return {
        "nearest neighbours": all_the_same(names.index(RAW_CONFIG)),
        "the paper's default": all_the_same(names.index(DEFAULT_CONFIG)),
        "VarMin": all_the_same(
            names.index("beam-varmin-K4" if "beam-varmin-K4" in names else "varmin-K4")
        ),
        "criterion": all_the_same(smallest(criterion, everything)),
        "criterion, label-free veto": all_the_same(smallest(criterion, kept)),
        "criterion in the paper's pool": all_the_same(smallest(criterion, pool)),
        "criterion of each machine": by_machine(dict.fromkeys(machines, everything)),
        "criterion of each machine, veto": by_machine(own),
        "median of the grid": all_the_same(int(np.argsort(omega)[len(omega) // 2])),
        "best with labels, one for all": all_the_same(int(np.argmax(omega))),
        "best with labels, each machine": best,
    }


def show_choices(grid, machines: dict[str, Machine]) -> None:
    print("| chosen by | configuration | " + " | ".join(machines) + " | official |")
    print("|---|---|" + "---|" * (len(machines) + 1))
    for rule, chosen in choices(grid, machines).items():
        names = list(dict.fromkeys(f"`{grid[i].name}`" for i in chosen.values()))
        said = ", ".join(names) if len(names) <= 2 else f"{len(names)} different"
        cells = [f"{machine.score(chosen[name]):.1f}" for name, machine in machines.items()]
        print(f"| {rule} | {said} | {' | '.join(cells)} | {official(machines, chosen):.1f} |")


def show_bases(grid, machines: dict[str, Machine]) -> None:
    """Every base score as it is, and the range of its calibrations."""
    print("| base score | " + " | ".join(machines) + " | official | calibrated, official | veto |")
    print("|---|" + "---|" * (len(machines) + 3))
    veto = viability_veto([machine.pseudo for machine in machines.values()])
    for base in dict.fromkeys(config.base for config in grid):
        mine = [i for i, config in enumerate(grid) if config.base == base]
        raw = [i for i in mine if grid[i].calibration is None]
        rest = [official(machines, dict.fromkeys(machines, i)) for i in mine if i not in raw]
        span = f"{min(rest):.1f} to {max(rest):.1f}" if rest else ""
        cells = [f"{machine.score(raw[0]):.1f}" for machine in machines.values()]
        omega = official(machines, dict.fromkeys(machines, raw[0]))
        cut = (
            f"cuts {int((~veto.kept[mine]).sum())} of {len(mine)}"
            if not veto.kept[mine].all()
            else ""
        )
        print(f"| `{base.name}` | {' | '.join(cells)} | {omega:.1f} | {span} | {cut} |")
    excluded = ", ".join(veto.excluded) or "none"
    print(f"\nVeto ({veto.basis}): limit {100 * veto.limit:.1f}; excluded: {excluded}")
    for name, kept in (("excluded", ~veto.kept), ("kept", veto.kept)):
        if kept.any():
            low, high = 100 * veto.score[kept].min(), 100 * veto.score[kept].max()
            print(f"Pseudo scores of the {name}: {low:.1f} to {high:.1f}")
    for name, machine in machines.items():
        true = [machine.score(i) for i in range(len(grid))]
        found = spearmanr(machine.pseudo.score, true).statistic
        print(f"Rank correlation of pseudo and official score, {name}: {found:+.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--readout")
    parser.add_argument("--faults", type=Path)
    options = parser.parse_args()
    table = daco.EmbeddingTable.read(options.table)
    readout = options.readout or table.readouts[0]
    faults = daco.EmbeddingTable.read(options.faults) if options.faults else None
    grid = daco.frontier_grid(table.bands(readout))
    machines = {}
    for name in table.machines:
        mine = None if faults is None else faults.select(machine=name)
        machines[name] = Machine(table.select(machine=name), readout, mine, grid)
    print(f"{options.table.stem}, {readout}: {len(grid)} configurations\n")
    show_choices(grid, machines)
    print()
    show_bases(grid, machines)


if __name__ == "__main__":
    main()
