"""Studies for the tests of figures and report: small synthetic ones, and the published one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from real_tables import real_table
from shared_data import shared
from synthetic_machines import synthetic_machine, synthetic_table

import daco
from daco.data.table import EmbeddingTable
from daco.experiments.analysis import frontier_table
from daco.experiments.choose import study_choice
from daco.experiments.result import StudyResult
from daco.experiments.run import study
from daco.experiments.statistics import transfer_statistics
from daco.experiments.study_tables import write_csv_table, write_json
from daco.method.config import paper_grid

FIVE = ["raw-k1", "conf-soft-m0-k1", "conf-hard-m30-k2", "ratio-soft-k1", "zscore-hard-k1"]
EIGHT = [*FIVE, "conf-soft-m10-k1", "ldn-ratio-K1", "conf-soft-m0-ldnK1"]
NAUGHTY = '<script>alert("x")</script> & “Lüfter” $\\beta_1$ 風扇 -->'
"""A machine's name with everything in it that HTML, XML, LaTeX or Matplotlib might read."""


def small_study(
    out: Path | None = None,
    *,
    dev: Iterable[str] = ("fan", "gearbox"),
    eval: Iterable[str] = ("pump", "press"),
    labelled: Iterable[str] = ("dev", "eval"),
    grid: list[str] = EIGHT,
) -> StudyResult:
    """A real study of small synthetic machines, run by the engine."""
    tables: dict[str, EmbeddingTable | None] = {}
    for role, names in (("dev", tuple(dev)), ("eval", tuple(eval))):
        machines = [
            synthetic_machine(name, [at, *name.encode()], n_source=40, n_test=40, dim=12)
            for at, name in enumerate(names)
        ]
        table = synthetic_table(machines) if machines else None
        tables[role] = table if table is None or role in labelled else without_labels(table)
    assert tables["dev"] is not None
    return study(tables["dev"], tables["eval"], grid=grid, out=out, n_splits=10, workers=1)


def without_labels(table: EmbeddingTable) -> EmbeddingTable:
    """The same clips; nobody says what the test clips are."""
    test = table.column("split") == "test"
    columns = dict(table.columns)
    for name in ("label", "domain"):
        columns[name] = np.where(test, None, columns[name])
    return EmbeddingTable(columns, table.matrices, table.metadata)


def published_study(folder: Path, *, clips: bool = True) -> StudyResult:
    """The paper's main study (BEATs, 2025; 15 machines, 51 configurations) as a run's folder.

    Its clips are not published. With `clips`, every machine has those of a real fan or bearing:
    what the pictures of clips look like at this size, not what those machines sounded like.
    """
    tables = published_tables()
    for name, table in tables.items():
        write_csv_table(table, folder / f"{name}.csv")
    write_json(study_choice(tables["grid"], tables["per_machine"]), folder / "selection.json")
    stats = transfer_statistics(
        tables["grid"],
        tables["per_machine"],
        coverage=tables["fpr_coverage"],
        diagnostics=tables["diagnostics"],
        n_draws=500,
    )
    write_json(stats, folder / "stats.json")
    write_json(PROVENANCE, folder / "run.json")
    if clips:
        (folder / "machines").mkdir()
        (folder / "references").mkdir()
        places = tables["per_machine"][["split", "machine"]].drop_duplicates()
        for at, (split, machine) in enumerate(places.itertuples(index=False)):
            place = {"split": split, "machine": machine, "section": "00", "title": machine}
            name = f"{split}_{machine}_section_00.npz"
            arrays, decisions = real_machine(("fan", "bearing")[at % 2])
            np.savez(folder / "machines" / name, **place, **arrays)
            np.savez(folder / "references" / name, **decisions)
    return StudyResult.read(folder)


@cache
def published_tables() -> dict[str, pd.DataFrame]:
    """The published files in the shape of a run's."""
    grid = _published("e45_beats_grid.csv")
    per_machine = _published("e45_beats_per_machine.csv")
    diagnostics = _published("diagnostics.csv")
    target = per_machine.set_index(["machine", "config"])["auc_target"]
    diagnostics["target_auc_gain"] = [
        target[machine, "conf-soft-m0-k1"] - target[machine, "raw-k1"]
        for machine in diagnostics["machine"]
    ]
    coverage = _published("fpr_coverage.csv")
    splits = per_machine.drop_duplicates("machine").set_index("machine")["split"]
    coverage.insert(0, "split", coverage["machine"].map(splits))
    baselines = _published("e1_dev.csv")
    baselines.insert(0, "split", "dev")
    cost = pd.DataFrame(
        [
            ("embedding", 9.4, "ms/clip", "dev, BEATs on RTX 4070 Ti SUPER"),
            ("parameters", 90.3, "M", "dev, BEATs on RTX 4070 Ti SUPER"),
            ("one configuration cycle", 146.0, "ms", "scores, metrics, criterion"),
        ],
        columns=["quantity", "value", "unit", "note"],
    )
    return {
        "grid": grid,
        "per_machine": per_machine,
        "diagnostics": diagnostics,
        "fpr_coverage": coverage,
        "baselines": baselines,
        "frontier": frontier_table(per_machine),
        "cost": cost,
    }


PROVENANCE: dict[str, Any] = {
    "schema": 1,
    "daco_version": "0.1.0",
    "created": "2026-07-08T12:00:00+00:00",
    "inputs": [
        {
            "role": role,
            "path": f"{role}.parquet",
            "sha256": 8 * "0123abcd",
            "n_clips": n_clips,
            "machines": [],
            "metadata": {"backbone": "beats", "weights_sha256": 8 * "89abcdef"},
        }
        for role, n_clips in (("dev", 8400), ("eval", 9600))
    ],
    "grid": [config.name for config in paper_grid()],
    "readout": "mean",
    "seed": 0,
    "n_splits": 10,
    "false_alarm_rate": 0.1,
    "domains": {"source": "source", "target": "target"},
    "versions": {"python": "3.11.2", "numpy": "2.0.0"},
    "platform": "Linux x86_64",
    "missing": ["Mahalanobis and GMM were published for development machines only."],
    "artifacts": {"grid.csv": 8 * "fedcba98"},
}


@cache
def real_machine(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores of a real machine's clips under the paper's 51 configurations, and references."""
    table = real_table(name)
    train = table.column("split") == "train"
    X, domains = table.matrix(), table.column("domain").astype(str)
    bank = daco.NormalBank(X[train], domains[train])
    names = [config.name for config in paper_grid()]
    arrays = {
        "scored": np.array(names),
        "names": table.column("path")[~train].astype(str),
        "labels": table.column("label")[~train],
        "domains": domains[~train],
        "scores": bank.score(X[~train], names),
        "weights": bank.examine(X[~train], "raw-k1").weights,
        "own_domains": domains[train],
        "own": bank.leave_one_out(names),
    }
    references = np.stack([bank.examine_normals(each).scores for each in names], axis=1)
    return arrays, {"decided": np.array(names), "references": references}


def _published(name: str) -> pd.DataFrame:
    return pd.read_csv(shared("published", "daco-experiments", "results", name))
