"""StudyResult: the tables of a study, in memory or in a run's folder.

A run's folder holds files a person can open; all tables are CSV, scores in percent::

    run.json          inputs, hashes, grid, seeds, versions; what is missing and why
    machines/         one .npz per machine: scores of all clips and configurations
    grid.csv          a row per configuration: config,dev_omega,eval_omega,crit_dev,crit_eval
    per_machine.csv   split,machine,config,auc_source,auc_target,pauc,balance_ks,...
    baselines.csv frontier.csv diagnostics.csv fpr_coverage.csv balances.csv stability.csv cost.csv
    selection.json    what each rule picked, and what was chosen
    stats.json        correlations, intervals, permutation tests

Only ``grid.csv`` and ``per_machine.csv`` are required, so a folder with published files of
those names is a run too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.atomic import atomic_write
from daco.errors import DataError, InputError

if TYPE_CHECKING:
    import pandas as pd

REQUIRED_TABLES = {"grid": "grid.csv", "per_machine": "per_machine.csv"}
OPTIONAL_TABLES = {
    "baselines": "baselines.csv",
    "frontier": "frontier.csv",
    "diagnostics": "diagnostics.csv",
    "coverage": "fpr_coverage.csv",
    "balances": "balances.csv",
    "stability": "stability.csv",
    "cost": "cost.csv",
}
DOCUMENTS = {"selection": "selection.json", "stats": "stats.json", "provenance": "run.json"}
MACHINES = "machines"


@dataclass(frozen=True, eq=False)
class MachineScores:
    """Every configuration's scores of one machine's clips; arrays as in the ``.npz`` file.

    Attributes
    ----------
    split : str
        ``"dev"`` or ``"eval"``.
    machine, section : str
    configs : tuple of str
        The columns of ``scores`` and ``own``.
    names : (n_test,) str
        File names of the test clips.
    labels : (n_test,) int
        1 anomaly, 0 normal, -1 unknown.
    domains : (n_test,) str
        The true domains, ``""`` where unknown.
    scores : (n_test, C) float64
    own_domains : (N,) str
        Domains of the training normals.
    own : (N, C) float64
        Leave-one-out scores of the training normals.
    """

    split: str
    machine: str
    section: str
    configs: tuple[str, ...]
    names: NDArray[np.str_]
    labels: NDArray[np.int_]
    domains: NDArray[np.str_]
    scores: NDArray[np.float64]
    own_domains: NDArray[np.str_]
    own: NDArray[np.float64]

    @property
    def labelled(self) -> bool:
        """Whether every test clip has its label and domain."""
        return len(self.labels) > 0 and bool(
            (self.labels >= 0).all() and (self.domains != "").all()
        )

    def of(self, config: str) -> NDArray[np.float64]:
        """Scores of the test clips under one configuration."""
        return self.scores[:, self._column(config)]

    def own_of(self, config: str) -> NDArray[np.float64]:
        """Leave-one-out scores of the training normals under one configuration."""
        return self.own[:, self._column(config)]

    def _column(self, config: str) -> int:
        if config not in self.configs:
            raise InputError(f"Machine {self.machine!r} was not scored with {config!r}.")
        return self.configs.index(config)


@dataclass(frozen=True, eq=False)
class StudyResult:
    """What a study found, as tidy tables.

    Attributes
    ----------
    grid : DataFrame
        ``config``, and as far as they are known ``dev_omega``, ``eval_omega`` (percent),
        ``crit_dev``, ``crit_eval``.
    per_machine : DataFrame
        ``split, machine, config, auc_source, auc_target, pauc, balance_ks, uniform_ks,
        separability``; metrics are nan for machines without labels.
    baselines, frontier, diagnostics, coverage, balances, stability, cost : DataFrame
        Experiments E1, E2, E3 and E6; empty when they were not run.
    selection, stats, provenance : dict
        The contents of the JSON files.
    folder : Path or None
        Where the run lies.
    """

    grid: pd.DataFrame
    per_machine: pd.DataFrame
    baselines: pd.DataFrame
    frontier: pd.DataFrame
    diagnostics: pd.DataFrame
    coverage: pd.DataFrame
    balances: pd.DataFrame
    stability: pd.DataFrame
    cost: pd.DataFrame
    selection: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @classmethod
    def read(cls, folder: Path | str) -> StudyResult:
        """The study in a run's folder."""
        import pandas as pd

        folder = Path(folder)
        tables: dict[str, Any] = {}
        for name, file in (REQUIRED_TABLES | OPTIONAL_TABLES).items():
            path = folder / file
            if path.is_file():
                tables[name] = read_csv_table(path)
            elif name in REQUIRED_TABLES:
                raise DataError(
                    f"{folder} is not a finished run: it has no {file}. Run 'daco study' with "
                    f"--out {folder}; an interrupted study goes on where it stopped."
                )
            else:
                tables[name] = pd.DataFrame()
        documents: dict[str, Any] = {
            name: read_json(folder / file) for name, file in DOCUMENTS.items()
        }
        return cls(**tables, **documents, folder=folder)

    @property
    def missing(self) -> list[str]:
        """What could not be computed and why, one sentence each."""
        return list(self.provenance.get("missing", []))

    def machine_scores(self) -> list[MachineScores]:
        """The scores of all machines, dev before eval; empty when the folder has none."""
        if self.folder is None:
            return []
        order = {"dev": 0, "eval": 1}
        found = [read_machine(path) for path in sorted((self.folder / MACHINES).glob("*.npz"))]
        return sorted(found, key=lambda m: (order.get(m.split, 2), m.machine, m.section))


def read_csv_table(path: Path) -> pd.DataFrame:
    """A CSV file of the run; text columns stay text, whatever they look like."""
    import pandas as pd

    text = {"machine": str, "config": str, "split": str, "section": str}
    try:
        return pd.read_csv(path, dtype=text)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a table: {error}.") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} must hold a JSON object.")
    return value


def write_csv_table(table: pd.DataFrame, path: Path) -> None:
    """Ten significant digits: equal values stay equal, and the file is readable."""
    with atomic_write(path) as temporary:
        table.to_csv(temporary, index=False, float_format="%.10g", lineterminator="\n")


def write_json(value: Mapping[str, Any], path: Path) -> None:
    """Sorted only where the writer sorted: the order of keys is the order of reading."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_machine(path: Path) -> MachineScores:
    """One machine's file of the folder ``machines``."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return MachineScores(
                split=str(file["split"]),
                machine=str(file["machine"]),
                section=str(file["section"]),
                configs=tuple(file["configs"].tolist()),
                names=file["names"],
                labels=file["labels"],
                domains=file["domains"],
                scores=file["scores"],
                own_domains=file["own_domains"],
                own=file["own"],
            )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} is not a machine of a run: {error}. Delete it and run the study again."
        ) from None
