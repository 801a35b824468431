"""Tables of a study: most are computed from the arrays of its machines.

A machine's arrays are those that `daco.experiments.machine` computes, without single clips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.detector.decision import ROUNDING
from daco.evaluation.metrics import NOMINAL_LEVELS, false_positive_rates, harmonic_mean
from daco.experiments import analysis
from daco.experiments.inputs import MachineData
from daco.experiments.study_tables import Arrays, MachineScores
from daco.experiments.thresholds import paper_threshold
from daco.experiments.veto import ROLES
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, RAW_CONFIG
from daco.text import name_list, quantity
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

MEGABYTE = 1_000_000


def grid_table(machines: Sequence[Arrays]) -> pd.DataFrame:
    """Official scores over the labelled machines of each split, and mean criteria."""
    import pandas as pd

    grid: dict[str, Any] = {"config": machines[0]["configs"].tolist()}
    by_split: dict[str, list[Arrays]] = {}
    for machine in machines:
        by_split.setdefault(str(machine["split"]), []).append(machine)
    for split, mine in by_split.items():
        metrics = [m["metrics"] for m in mine if not np.isnan(m["metrics"]).any()]
        if metrics:
            grid[f"{split}_omega"] = harmonic_mean(np.concatenate(metrics, axis=1), axis=1)
    for split, mine in by_split.items():
        if not np.isnan(mine[0]["balance"]).all():
            grid[f"crit_{split}"] = np.mean([m["balance"] for m in mine], axis=0)
    dev = by_split.get("dev", [])
    if dev and not np.isnan(dev[0]["paper_balance"]).all():
        grid["crit_paper"] = np.mean([m["paper_balance"] for m in dev], axis=0)
    return pd.DataFrame(grid)


def per_machine_table(machines: Sequence[Arrays]) -> pd.DataFrame:
    """Metrics, criterion, uniformity and separability of every machine and configuration."""
    return _concatenated(
        machines,
        lambda machine: {
            "config": machine["configs"],
            **dict(zip(machine["quantities"].tolist(), machine["metrics"].T, strict=True)),
            "balance_ks": machine["balance"],
            "uniform_ks": machine["uniformity"],
            "separability": float(machine["separability"]),
        },
    )


def baselines_table(
    machines: Sequence[Arrays], others: Iterable[Mapping[str, Any]] = ()
) -> pd.DataFrame:
    """E1: other scorers on the same embeddings, calibration with the true domains, and `others`."""
    import pandas as pd

    own = _concatenated(
        machines,
        lambda machine: {
            "backend": machine["backends"],
            **dict(zip(machine["quantities"].tolist(), machine["backend_metrics"].T, strict=True)),
        },
    )
    return pd.DataFrame([*own.to_dict("records"), *others], columns=own.columns)


def default_scores(machines: Sequence[Arrays]) -> dict[str, float]:
    """Official score of daco's default over the labelled machines of each split."""
    by_split: dict[str, list[Any]] = {}
    for machine in machines:
        own = machine["backend_metrics"][machine["backends"] == DEFAULT_CONFIG]
        if own.size and not np.isnan(own).any():
            by_split.setdefault(str(machine["split"]), []).append(own)
    return {f"{split}_omega": float(harmonic_mean(np.ravel(m))) for split, m in by_split.items()}


def resampled_criterion(machines: Sequence[Arrays]) -> Float64s | None:
    """Criterion in each resample, (C, R), mean over the development machines that have one.

    A small domain may have no clip in some resamples of its machine. None without a criterion.
    """
    mine = [each["resampled"] for each in machines if str(each["split"]) == "dev"]
    stacked = np.array([each for each in mine if each.shape[1]])
    if not len(stacked):
        return None
    known = np.isfinite(stacked)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, stacked, 0).sum(axis=0) / known.sum(axis=0))


def resamples_table(configs: Sequence[str], resampled: Float64s | None) -> pd.DataFrame:
    """The criterion of each configuration, with a column for each resample."""
    import pandas as pd

    values = np.empty((len(configs), 0)) if resampled is None else resampled
    table = pd.DataFrame(values, columns=[f"resample_{at}" for at in range(values.shape[1])])
    table.insert(0, "config", list(configs))
    return table


def diagnostics_table(machines: Sequence[Arrays], per_machine: pd.DataFrame) -> pd.DataFrame:
    """E2: why calibration helps some machines and hurts others; empty for one domain."""
    import pandas as pd

    if "auc_target" not in per_machine:
        return analysis.gain_table(per_machine)
    gains = analysis.gain_table(per_machine).set_index(["split", "machine"])["target_auc_gain"]
    rows = []
    for machine in machines:
        split, title = _key(machine).values()
        rows.append(
            {
                "machine": title,
                "split": split,
                "assignment_acc_test_normals": float(machine["assignment_accuracy"]),
                "separability_train": float(machine["separability"]),
                "pct_anom_above_tgt_max": float(machine["above_target_max"]),
                "pct_anom_above_src_q90": float(machine["above_source_q90"]),
                "target_auc_gain": gains.get((split, title), np.nan),
            }
        )
    return pd.DataFrame(rows)


def coverage_table(scores: Sequence[MachineScores]) -> pd.DataFrame:
    """Realised false-alarm rates by domain at some nominal rates.

    ``raw`` and ``daco-m0`` decide by the paper's one threshold for all domains, the others by
    p-values.
    """
    import pandas as pd

    rows: list[tuple[Any, ...]] = []
    for machine in scores:
        normal = set(machine.domains[machine.labels == 0].tolist())
        if not machine.labelled or normal != {"source", "target"}:
            continue
        for system, rates in _realised_rates(machine).items():
            rows += [
                (machine.split, machine.title, level, domain, system, float(by_level[i]))
                for i, level in enumerate(NOMINAL_LEVELS)
                for domain, by_level in rates.items()
            ]
    columns = ["split", "machine", "nominal_fpr", "domain", "system", "empirical_fpr"]
    return pd.DataFrame(rows, columns=columns)


def _realised_rates(machine: MachineScores) -> dict[str, dict[str, Any]]:
    """By system and domain the share of test normals that are anomalous at each nominal rate."""
    truth = machine.labels, machine.domains
    found = {}
    for system, config in (("raw", RAW_CONFIG), ("daco-m0", PAPER_CONFIG)):
        if config in machine.configs:
            own = machine.own_of(config)
            limits = [paper_threshold(config, own, level) for level in NOMINAL_LEVELS]
            found[system] = false_positive_rates(machine.of(config), *truth, limits)
    for config in machine.decided:
        # Above minus the p-value: p is at most the level, up to rounding.
        limits = [-level * (1 + ROUNDING) for level in NOMINAL_LEVELS]
        found[config] = false_positive_rates(-machine.p_values(config), *truth, limits)
    return found


def cost_table(
    machines: Sequence[Arrays], seconds_to_grid: float, embedding: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """E6: time and memory of this run, and of the embedding as it was noted beside the table."""
    import pandas as pd

    count, n_configs = len(machines), len(machines[0]["configs"])
    # The median, because a worker's first machine pays for loading compiled code.
    typical = 1000 * float(np.median([float(machine["seconds"]) for machine in machines]))
    peak = max(int(machine["peak_memory"]) for machine in machines)
    sizes = [int(machine["n_normals"]) for machine in machines]
    low, high = min(sizes), max(sizes)
    bank = quantity(low, "normal") if low == high else f"{low} to {high} normals"
    rows = [
        ("machines x configurations", count * n_configs, "", f"{count} x {n_configs}"),
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
    return pd.DataFrame(rows, columns=["quantity", "value", "unit", "note"])


def missing_parts(machines: Sequence[MachineData], has_eval: bool) -> list[str]:
    """Sentences about results that a study of these machines lacks, and what to add."""
    sentences = []
    if not any(machine.balanced for machine in machines):
        sentences.append(
            "The machines have one domain: there is no balance criterion, and so no choice by it, "
            "no AUC of each domain and no comparison of their false alarms. The score is the "
            "harmonic mean of AUC and pAUC; daco evaluate takes the arithmetic mean for 2020."
        )
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


def _concatenated(
    machines: Iterable[Arrays], columns: Callable[[Arrays], dict[str, Any]]
) -> pd.DataFrame:
    """The columns of every machine, below each other, after its split and name."""
    import pandas as pd

    parts = [pd.DataFrame({**_key(machine), **columns(machine)}) for machine in machines]
    return pd.concat(parts, ignore_index=True)
