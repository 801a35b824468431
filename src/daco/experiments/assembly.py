"""Tables of a study, put together from the arrays of its machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.detector.thresholds import paper_threshold
from daco.evaluation.metrics import NOMINAL_LEVELS, QUANTITIES, false_positive_rates, harmonic_mean
from daco.experiments.inputs import MachineData
from daco.experiments.machine import Arrays
from daco.experiments.study_tables import MachineScores
from daco.experiments.veto import ROLES
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

MEGABYTE = 1_000_000


def main_tables(scored: Sequence[Arrays]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The grid table and the per-machine table.

    A score is over the machines whose test clips are labelled; a split without any has no
    such column.
    """
    import pandas as pd

    configs = scored[0]["configs"].tolist()
    grid: dict[str, Any] = {"config": configs}
    by_split: dict[str, list[Arrays]] = {}
    for machine in scored:
        by_split.setdefault(str(machine["split"]), []).append(machine)
    for split, machines in by_split.items():
        metrics = [m["metrics"] for m in machines if not np.isnan(m["metrics"]).any()]
        if metrics:
            grid[f"{split}_omega"] = harmonic_mean(np.concatenate(metrics, axis=1), axis=1)
    for split, machines in by_split.items():
        grid[f"crit_{split}"] = np.mean([m["balance"] for m in machines], axis=0)
    parts = [
        pd.DataFrame(
            {
                **_key(machine),
                "config": configs,
                **dict(zip(QUANTITIES, machine["metrics"].T, strict=True)),
                "balance_ks": machine["balance"],
                "uniform_ks": machine["uniformity"],
                "separability": float(machine["separability"]),
            }
        )
        for machine in scored
    ]
    return pd.DataFrame(grid), pd.concat(parts, ignore_index=True)


def baselines_table(
    scored: Sequence[Arrays],
    examined: Sequence[Arrays],
    others: Sequence[Mapping[str, Any]] = (),
) -> pd.DataFrame:
    """E1: other scorers on the same embeddings, calibration with the true domains, and `others`."""
    rows = [
        {**_key(machine), "backend": backend, **dict(zip(QUANTITIES, metrics, strict=True))}
        for machine, extra in zip(scored, examined, strict=True)
        for backend, metrics in zip(
            extra["backends"].tolist(), extra["backend_metrics"].tolist(), strict=True
        )
    ]
    return _frame([*rows, *others], ["split", "machine", "backend", *QUANTITIES])


def diagnostics_table(
    scored: Sequence[Arrays], examined: Sequence[Arrays], per_machine: pd.DataFrame
) -> pd.DataFrame:
    """E2: why calibration helps some machines and hurts others."""
    target = per_machine.set_index(["split", "machine", "config"])["auc_target"]
    rows = []
    for machine, extra in zip(scored, examined, strict=True):
        split, title = _key(machine).values()
        before, after = (
            target.get((split, title, config), np.nan) for config in (RAW_CONFIG, DEFAULT_CONFIG)
        )
        rows.append(
            {
                "machine": title,
                "split": split,
                "assignment_acc_test_normals": float(extra["assignment_accuracy"]),
                "separability_train": float(machine["separability"]),
                "pct_anom_above_tgt_max": float(extra["above_target_max"]),
                "pct_anom_above_src_q90": float(extra["above_source_q90"]),
                "target_auc_gain": after - before,
            }
        )
    return _frame(rows, [])


def coverage_table(scores: Sequence[MachineScores], chosen: str) -> pd.DataFrame:
    """Realised false-alarm rates by domain where one label-free threshold asked for a level."""
    systems = {"raw": RAW_CONFIG, "daco-m0": DEFAULT_CONFIG}
    if chosen not in systems.values():
        systems[chosen] = chosen
    rows = []
    for machine in scores:
        normal = set(machine.domains[machine.labels == 0].tolist())
        if not machine.labelled or normal != {"source", "target"}:
            continue
        for system, config in systems.items():
            if config not in machine.configs:
                continue
            own = machine.own_of(config)
            limits = [paper_threshold(config, own, level) for level in NOMINAL_LEVELS]
            rates = false_positive_rates(
                machine.of(config), machine.labels, machine.domains, limits
            )
            rows += [
                {
                    "split": machine.split,
                    "machine": machine.title,
                    "nominal_fpr": level,
                    "domain": domain,
                    "system": system,
                    "empirical_fpr": float(by_level[i]),
                }
                for i, level in enumerate(NOMINAL_LEVELS)
                for domain, by_level in rates.items()
            ]
    return _frame(rows, ["split", "machine", "nominal_fpr", "domain", "system", "empirical_fpr"])


def balances_table(scored: Sequence[Arrays], examined: Sequence[Arrays]) -> pd.DataFrame:
    """The criterion of every machine and configuration under other seeds and split numbers."""
    import pandas as pd

    parts = []
    for machine, extra in zip(scored, examined, strict=True):
        variants, n_configs = extra["balances"].shape
        parts.append(
            pd.DataFrame(
                {
                    **_key(machine),
                    "config": np.tile(machine["configs"], variants),
                    "seed": np.repeat(extra["seeds"], n_configs),
                    "n_splits": np.repeat(extra["n_splits"], n_configs),
                    "balance_ks": extra["balances"].ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def cost_table(
    scored: Sequence[Arrays], seconds_to_grid: float, embedding: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """E6: time and memory of this run, and of the embedding as it was noted beside the table."""
    n_configs = len(scored[0]["configs"])
    # The median, because a worker's first machine pays for loading compiled code.
    typical = 1000 * float(np.median([float(machine["seconds"]) for machine in scored]))
    peak = max(int(machine["peak_memory"]) for machine in scored)
    sizes = [int(machine["n_normals"]) for machine in scored]
    low, high = min(sizes), max(sizes)
    bank = f"{quantity(low, 'normal')}" if low == high else f"{low} to {high} normals"
    rows = [
        ("machines x configurations", len(scored) * n_configs, "", f"{len(scored)} x {n_configs}"),
        ("tables to grid", seconds_to_grid, "s", "wall clock, all processes"),
        ("one machine, all configurations", typical, "ms", f"median; {bank}"),
        ("one configuration cycle", typical / n_configs, "ms", "scores, metrics, criterion"),
        ("peak memory of a process", peak / MEGABYTE, "MB", ""),
    ]
    for cost in embedding:
        where = f"{cost['role']}, {cost.get('backbone', 'unknown')} on {cost.get('device', '?')}"
        rows.append(("embedding", float(cost["ms_per_clip"]), "ms/clip", where))
        if cost.get("parameters") is not None:
            rows.append(("parameters", float(cost["parameters"]) / 1e6, "M", where))
        if cost.get("peak_memory"):
            rows.append(("peak memory of embedding", cost["peak_memory"] / MEGABYTE, "MB", where))
    return _frame(
        [dict(zip(("quantity", "value", "unit", "note"), row, strict=True)) for row in rows], []
    )


def missing_parts(machines: Sequence[MachineData], has_eval: bool) -> list[str]:
    """Sentences about results that a study of these machines lacks, and what to add."""
    sentences = []
    if not has_eval:
        sentences.append(
            "No evaluation machines were given, so there is no transfer to measure. Pass an eval "
            "table."
        )
    lost = {
        "dev": "dev scores and with them the veto of broken configurations are missing.",
        "eval": "evaluation scores, the oracle, and how the criterion predicts them are missing. "
        "Pass the ground truth when it is out.",
    }
    for split, word in ROLES.items():
        mine = [machine for machine in machines if machine.split == split]
        without = [machine.title for machine in mine if not machine.labelled]
        if without:
            others = len(mine) - len(without)
            rest = f"official scores are over the other {others}." if others else lost[split]
            which = f"{quantity(without, f'{word} machine')} ({name_list(without, 4)})"
            sentences.append(f"{which} without complete labels: {rest}")
    return sentences


def _key(machine: Arrays) -> dict[str, str]:
    return {"split": str(machine["split"]), "machine": str(machine["title"])}


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows)) if rows else pd.DataFrame(columns=list(columns))
