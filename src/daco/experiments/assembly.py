"""Tables of a study: most are computed from the arrays of its machines.

A machine's arrays are those that `daco.experiments.machine` computes, without single clips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.detector.thresholds import paper_threshold
from daco.evaluation.metrics import NOMINAL_LEVELS, false_positive_rates, harmonic_mean
from daco.evaluation.statistics import spearman
from daco.experiments import analysis
from daco.experiments.decision import GUARDS, decide
from daco.experiments.inputs import MachineData
from daco.experiments.study_tables import Arrays, MachineScores
from daco.experiments.veto import ROLES
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, VOTE_CONFIG
from daco.method.criterion import Floor
from daco.method.selection import select_by_criterion
from daco.method.viability import Viability
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

MEGABYTE = 1_000_000
STABILITY = (
    *("kind", "seed", "n_splits", "criterion_pick", "guarded_pick"),
    *("guarded_eval_omega", "blind_eval_omega", "rho_criterion"),
)


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


def vote_scores(machines: Sequence[Arrays]) -> dict[str, float]:
    """Official score of the vote over the labelled machines of each split."""
    by_split: dict[str, list[Any]] = {}
    for machine in machines:
        own = machine["backend_metrics"][machine["backends"] == VOTE_CONFIG]
        if own.size and not np.isnan(own).any():
            by_split.setdefault(str(machine["split"]), []).append(own)
    return {f"{split}_omega": float(harmonic_mean(np.ravel(m))) for split, m in by_split.items()}


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


def coverage_table(scores: Sequence[MachineScores], chosen: str) -> pd.DataFrame:
    """Realised false-alarm rates by domain where one label-free threshold asked for a level."""
    import pandas as pd

    systems = {"raw": RAW_CONFIG, "daco-m0": DEFAULT_CONFIG}
    if chosen not in systems.values():
        systems[chosen] = chosen
    rows: list[tuple[Any, ...]] = []
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
                (machine.split, machine.title, level, domain, system, float(by_level[i]))
                for i, level in enumerate(NOMINAL_LEVELS)
                for domain, by_level in rates.items()
            ]
    columns = ["split", "machine", "nominal_fpr", "domain", "system", "empirical_fpr"]
    return pd.DataFrame(rows, columns=columns)


def balances_table(machines: Sequence[Arrays]) -> pd.DataFrame:
    """The criterion of every machine and configuration under other seeds and split numbers."""
    return _concatenated(
        machines,
        lambda machine: {
            "config": np.tile(machine["configs"], len(machine["seeds"])),
            "seed": np.repeat(machine["seeds"], len(machine["configs"])),
            "n_splits": np.repeat(machine["n_splits"], len(machine["configs"])),
            "balance_ks": machine["balances"].ravel(),
        },
    )


def stability_table(
    per_machine: pd.DataFrame,
    balances: pd.DataFrame,
    *,
    guard: str = "dev",
    viability: Viability | None = None,
    floor: Floor | None = None,
) -> pd.DataFrame:
    """Picks under the seeds and numbers of splits of `balances`, and their scores.

    ``kind`` is ``seeds`` for other seeds at one number of splits, ``splits`` for the reverse.
    Scores are empty where labels are missing; the criterion of `per_machine` is not read.
    """
    import pandas as pd

    if balances.empty:
        return pd.DataFrame(columns=list(STABILITY))
    names = list(dict.fromkeys(balances["config"]))
    dev, evaluation = (
        analysis.official_scores(per_machine, split, names) for split in ("dev", "eval")
    )
    rows: dict[tuple[Any, Any], tuple[Any, ...]] = {}
    for (seed, n_splits), part in balances.groupby(["seed", "n_splits"]):
        criterion = analysis.mean_criterion(part, "dev", names)
        pick = None if np.isnan(criterion).all() else select_by_criterion(names, criterion)
        known_dev = None if np.isnan(dev).any() else dev
        decision = decide(
            names, criterion, known_dev, guard=guard, viability=viability, floor=floor
        )
        guarded = decision.config if decision.rule == GUARDS[guard] else None
        score = np.nan if guarded is None else evaluation[names.index(guarded)]
        choices = analysis.blind_choices(part, analysis.pool_within(names), "eval")
        blind = analysis.blind_score(per_machine, choices, "eval")
        known = np.isfinite(criterion) & np.isfinite(evaluation)
        rho = spearman(-criterion[known], evaluation[known]) if known.any() else np.nan
        rows[seed, n_splits] = (pick, guarded, analysis.plain(score), blind, analysis.plain(rho))
    # The settings that were held while the other one changed.
    [(base_seed, _)] = Counter(seed for seed, _ in rows).most_common(1)
    [(base_splits, _)] = Counter(n_splits for _, n_splits in rows).most_common(1)
    table = [("seeds", *key, *rows[key]) for key in rows if key[1] == base_splits]
    table += [("splits", *key, *rows[key]) for key in rows if key[0] == base_seed]
    return pd.DataFrame(table, columns=list(STABILITY))


def choice_over_seeds(
    stability: pd.DataFrame, grid: pd.DataFrame, config: str, rule: str | None
) -> dict[str, Any] | None:
    """How often other seeds choose `config` too, and the mean scores of their choices.

    None where the criterion did not choose; a mean is None where scores are missing.
    """
    if stability.empty or rule not in GUARDS.values():
        return None
    table = stability[stability["kind"] == "seeds"].dropna(subset=["guarded_pick"])
    if table.empty:
        return None
    picks = table["guarded_pick"].tolist()
    names = grid["config"].tolist()
    rows = [names.index(pick) for pick in picks]
    known = {name: analysis.complete_column(grid, name) for name in ("dev_omega", "eval_omega")}
    return {
        "n_seeds": len(picks),
        "n_splits": int(table["n_splits"].iloc[0]),
        "same": picks.count(config),
        "picks": dict(Counter(picks).most_common()),
        **{name: None if v is None else float(v[rows].mean()) for name, v in known.items()},
    }


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
