"""Tables about machines: their metrics, balance, false-alarm rates, stability and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.experiments.aggregate import metrics_of
from daco.experiments.highlights import (
    compared_configs,
    imbalances,
    limit_machines,
    limit_note,
)
from daco.experiments.report.table import Columns, ReportTable, columns_from, without_unknown
from daco.experiments.tables import Key
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

SPLIT_WORDS = {"dev": "development", "eval": "evaluation"}
_METRICS: dict[Key, str] = dict(zip(QUANTITIES, ("source", "target", "pAUC"), strict=True))
_BACKENDS = {
    "knn1": "nearest neighbour (k = 1)",
    "sel-maha": "selective Mahalanobis",
    "gmm2": "Gaussian mixture (2)",
    "conf-oracle-m30-k1": "quantile maps with true domains (m = 30)",
    "ae-mse": "simple autoencoder",
    "ae-maha": "selective Mahalanobis autoencoder, as published",
    "ae-maha-row": "selective Mahalanobis autoencoder, distance of the textbook",
}
_FROM_OUTSIDE = (
    " * Not on the embeddings: another system’s scores of the same clips, which took part in no "
    "choice."
)


def per_machine_table(result: StudyTables) -> ReportTable:
    """AUC of both domains and pAUC of every labelled machine under the shown configurations."""
    table = limit_machines(result).per_machine.dropna(subset=list(QUANTITIES))
    places = list(table[["split", "machine"]].drop_duplicates().itertuples(index=False, name=None))
    by_config = {
        name: part.set_index(["split", "machine"]) for name, part in table.groupby("config")
    }
    labelled = result.per_machine.dropna(subset=list(QUANTITIES))
    splits = list(dict.fromkeys(labelled["split"]))  # also of machines that are not shown
    columns: Columns = {
        "machine": [*(machine for _, machine in places), *["all machines"] * len(splits)],
        "split": [*(split for split, _ in places), *splits],
    }
    titles: dict[Key, str] = {"split": "set"}
    formats: dict[Key, str] = {}
    for config in compared_configs(result):
        if config not in by_config:
            continue
        metrics = by_config[config][list(QUANTITIES)].reindex(places).to_numpy(dtype=float)
        every = [metrics_of(labelled, split, [config])[:, 0] for split in splits]
        for at, (quantity, title) in enumerate(_METRICS.items()):
            key = (config, str(quantity))
            columns[key] = [*metrics[:, at].tolist(), *(_mean(values[:, at]) for values in every)]
            titles[key], formats[key] = title, ".1f"
        key = (config, "score")
        columns[key] = [_mean(values) for values in [*metrics, *every]]
        formats[key] = ".2f"
    return ReportTable(
        "per_machine",
        "Each machine’s AUC in the source and the target domain, its partial AUC, and the harmonic "
        "mean of the three (%; 50 is chance). All machines: harmonic means over the machines of a "
        "set; the last is the official score." + f" {limit_note(result)}".rstrip(),
        columns,
        titles=titles,
        formats=formats,
        heat=frozenset(formats),
    )


def frontier_table(result: StudyTables) -> ReportTable:
    """Balance along the prior strength."""
    table = result.frontier
    names = ["mean_auc_source", "mean_auc_target", "signed_gap", "absolute_gap", "median_gap"]
    columns: Columns = {}
    if not table.empty:
        columns = {"split": _words(table["split"]), "variant": table["variant"].tolist()}
        columns |= {name: table[name].tolist() for name in [*names, "omega"]}
    return ReportTable(
        "frontier",
        "Mean AUC by domain along the prior strength m (%), and gaps between them (source less "
        "target, points): mean, mean of absolute gaps, median.",
        columns,
        titles={
            "split": "machines",
            "mean_auc_source": "AUC source",
            "mean_auc_target": "AUC target",
            "signed_gap": "mean gap",
            "absolute_gap": "absolute gap",
            "median_gap": "median gap",
            "omega": "score",
        },
        formats=dict.fromkeys(("signed_gap", "median_gap"), "+.2f"),
    )


def diagnostics_table(result: StudyTables) -> ReportTable:
    """Why calibration helps some machines and hurts others."""
    table = limit_machines(result).diagnostics
    titles: dict[Key, str] = {
        "machine": "machine",
        "split": "set",
        "separability_train": "separability",
        "assignment_acc_test_normals": "domain found",
        "pct_anom_above_tgt_max": "above target max (%)",
        "pct_anom_above_src_q90": "above source 90 % (%)",
        "target_auc_gain": "target AUC gain",
    }
    columns = without_unknown(
        {name: table[name].tolist() for name in titles if not table.empty and name in table}
    )
    return ReportTable(
        "diagnostics",
        "Per machine: how well a training normal’s neighbour tells its domain (separability), "
        "share of test normals whose domain is found, share of anomalies whose raw score lies "
        "above all target normals or above 90 % of source normals, and the gain in target AUC "
        "(points) of full calibration over raw scores." + f" {limit_note(result)}".rstrip(),
        columns,
        titles=titles,
        formats={
            "pct_anom_above_tgt_max": ".0f",
            "pct_anom_above_src_q90": ".0f",
            "target_auc_gain": "+.2f",
        },
    )


def coverage_table(result: StudyTables) -> ReportTable:
    """Nominal against realised false-alarm rates."""
    table = result.coverage
    rows = []
    for split, part in table.groupby("split", sort=False) if len(table) else ():
        keys = ["system", "nominal_fpr", "domain"]
        rates = part.groupby(keys, sort=False)["empirical_fpr"].mean().to_dict()
        for system, by_level in imbalances(part).items():
            for level, imbalance in by_level.items():
                pair = [rates.get((system, level, domain)) for domain in ("source", "target")]
                rows.append([SPLIT_WORDS.get(str(split), split), system, level, *pair, imbalance])
    return ReportTable(
        "coverage",
        "False-alarm rate asked for and realised on test normals, mean over machines; the "
        "imbalance is the mean difference between the two domains of a machine.",
        columns_from(rows, ("split", "system", "nominal", "source", "target", "imbalance")),
        titles={"split": "machines"},
    )


def stability_table(result: StudyTables) -> ReportTable:
    """Other seeds and numbers of splits."""
    table = result.stability
    titles: dict[Key, str] = {
        "n_splits": "splits S",
        "seed": "seed",
        "criterion_pick": "criterion picks",
        "guarded_pick": "guarded criterion picks",
        "guarded_eval_omega": "its eval score",
        "blind_eval_omega": "per-machine blind",
        "rho_criterion": "ρ of criterion",
    }
    columns: Columns = {}
    if not table.empty:
        table = table.drop_duplicates(["seed", "n_splits"])
        columns = without_unknown({name: table[name].tolist() for name in titles if name in table})
    return ReportTable(
        "stability",
        "The same choice with other random splits of the normal clips.",
        columns,
        titles=titles,
        formats={"rho_criterion": "+.2f"},
    )


def baselines_table(result: StudyTables) -> ReportTable:
    """E1: other scorers on the same embeddings, and systems from outside; means over machines."""
    table = result.baselines
    rows = []
    noted = result.provenance.get("baselines") or ()
    # Runs of older versions list the systems of a file.
    others = {str(name) for each in noted for name in each.get("systems", [each.get("system")])}
    if not table.empty:
        for (split, backend), part in table.groupby(["split", "backend"], sort=False):
            values = part[list(QUANTITIES)].to_numpy(dtype=float)
            if np.isfinite(values).all():
                name = _BACKENDS.get(str(backend), str(backend))
                if backend in others:
                    name += " *"
                means = values.mean(axis=0).tolist()
                score = float(harmonic_mean(values))
                rows.append([SPLIT_WORDS.get(str(split), split), name, len(part), *means, score])
    return ReportTable(
        "baselines",
        "Other scorers on the same embeddings: mean AUC and partial AUC over machines, and the "
        "official score (%)." + (_FROM_OUTSIDE if others else ""),
        columns_from(rows, ("split", "backend", "machines", *QUANTITIES, "score")),
        titles={
            "split": "machines",
            "machines": "count",
            "backend": "scorer",
            "auc_source": "AUC source",
            "auc_target": "AUC target",
            "pauc": "pAUC",
        },
    )


def cost_table(result: StudyTables) -> ReportTable:
    """E6: what the study took."""
    table = result.cost
    names: tuple[Key, ...] = ("quantity", "value", "unit", "note")
    columns = {} if table.empty else {name: table[name].tolist() for name in names}
    return ReportTable("cost", "Measured in this run.", columns, formats={"value": ".4g"})


def _mean(values: Float64s) -> float | None:
    """The harmonic mean of metrics; None where one is not known."""
    known = len(values) > 0 and bool(np.isfinite(values).all())
    return float(harmonic_mean(values)) if known else None


def _words(splits: Any) -> list[str]:
    return [SPLIT_WORDS.get(str(split), str(split)) for split in splits]
