"""Tables about machines: their metrics, balance, false-alarm rates, stability and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.experiments.analysis import metrics_of
from daco.experiments.highlights import (
    compared_configs,
    imbalances,
    limit_machines,
    limit_note,
)
from daco.experiments.report.table import SPLIT_WORDS, ReportTable, columns_from, columns_of
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

_METRICS = dict(zip(QUANTITIES, ("source", "target", "pAUC"), strict=True))
_BACKENDS = {
    "knn1": "nearest neighbour (k = 1)",
    "sel-maha": "selective Mahalanobis",
    "gmm2": "Gaussian mixture (2)",
    "conf-oracle-m30-k1": "quantile maps with true domains (m = 30)",
    "vote": "vote of all configurations",
    "ae-mse": "simple autoencoder",
    "ae-maha": "selective Mahalanobis autoencoder, as published",
    "ae-maha-row": "selective Mahalanobis autoencoder, distance of the textbook",
}


def per_machine_table(result: StudyTables) -> ReportTable:
    """AUC of both domains and pAUC of every labelled machine under the compared configurations."""
    table = limit_machines(result).per_machine.dropna(subset=list(QUANTITIES))
    places = list(table[["split", "machine"]].drop_duplicates().itertuples(index=False, name=None))
    by_config = {
        name: part.set_index(["split", "machine"]) for name, part in table.groupby("config")
    }
    labelled = result.per_machine.dropna(subset=list(QUANTITIES))
    splits = list(dict.fromkeys(labelled["split"]))  # also of machines that are not shown
    columns: dict[Any, Any] = {
        "machine": [*(machine for _, machine in places), *["all machines"] * len(splits)],
        "split": [*(split for split, _ in places), *splits],
    }
    titles: dict[Any, str] = {"split": "set"}
    formats: dict[Any, str] = {}
    for config in compared_configs(result):
        if config not in by_config:
            continue
        metrics = by_config[config][list(QUANTITIES)].reindex(places).to_numpy(dtype=float)
        every = [metrics_of(labelled, split, [config])[:, 0] for split in splits]
        for at, (name, title) in enumerate(_METRICS.items()):
            key = (config, name)
            columns[key] = [*metrics[:, at].tolist(), *(_mean(values[:, at]) for values in every)]
            titles[key], formats[key] = title, ".1f"
        key = (config, "score")
        columns[key] = [_mean(values) for values in [*metrics, *every]]
        formats[key] = ".2f"
    caption = (
        "Each machine’s AUC in the source and the target domain, its partial AUC, and the harmonic "
        "mean of the three (%; 50 is chance). All machines: harmonic means over the machines of a "
        "set; the last is the official score. "
    )
    return ReportTable(
        "per_machine",
        (caption + limit_note(result)).rstrip(),
        columns,
        titles=titles,
        formats=formats,
        heat=frozenset(formats),
    )


def _mean(values: Float64s) -> float | None:
    """The harmonic mean of metrics; None where one is not known."""
    known = len(values) > 0 and bool(np.isfinite(values).all())
    return float(harmonic_mean(values)) if known else None


def frontier_table(result: StudyTables) -> ReportTable:
    """Balance along the prior strength."""
    table = result.frontier
    if not table.empty:
        table = table.assign(split=table["split"].replace(SPLIT_WORDS))
    names = ["mean_auc_source", "mean_auc_target", "signed_gap", "absolute_gap", "median_gap"]
    return ReportTable(
        "frontier",
        "Mean AUC by domain along the prior strength m (%), and gaps between them (source less "
        "target, points): mean, mean of absolute gaps, median.",
        columns_of(table, ("split", "variant", *names, "omega")),
        titles={
            "split": "machines",
            "signed_gap": "mean gap",
            "absolute_gap": "absolute gap",
            "median_gap": "median gap",
            "omega": "score",
        },
        formats=dict.fromkeys(("signed_gap", "median_gap"), "+.2f"),
    )


def diagnostics_table(result: StudyTables) -> ReportTable:
    """Why calibration helps some machines and hurts others."""
    titles = {
        "machine": "machine",
        "split": "set",
        "separability_train": "separability",
        "assignment_acc_test_normals": "domain found",
        "pct_anom_above_tgt_max": "above target max (%)",
        "pct_anom_above_src_q90": "above source 90 % (%)",
        "target_auc_gain": "target AUC gain",
    }
    caption = (
        "Per machine: how well a training normal’s neighbour predicts its domain (separability), "
        "share of test normals whose domain is found, share of anomalies whose raw score is "
        "above all target normals or above 90 % of source normals, and the gain in target AUC "
        "(points) of full calibration over raw scores. "
    )
    return ReportTable(
        "diagnostics",
        (caption + limit_note(result)).rstrip(),
        columns_of(limit_machines(result).diagnostics, list(titles)),
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
    titles = {
        "n_splits": "splits S",
        "seed": "seed",
        "criterion_pick": "criterion picks",
        "guarded_pick": "guarded criterion picks",
        "guarded_eval_omega": "its eval score",
        "blind_eval_omega": "per-machine blind",
        "rho_criterion": "ρ of criterion",
    }
    if not table.empty:
        table = table.drop_duplicates(["seed", "n_splits"])
    return ReportTable(
        "stability",
        "The same choice with other random splits of the normal clips.",
        columns_of(table, list(titles)),
        titles=titles,
        formats={"rho_criterion": "+.2f"},
    )


def baselines_table(result: StudyTables) -> ReportTable:
    """E1: other scorers on the same embeddings, and other systems; means over machines."""
    table = result.baselines
    rows = []
    sources = result.provenance.get("baselines") or ()
    # Runs of older versions list the systems of a file.
    others = {str(name) for each in sources for name in each.get("systems", [each.get("system")])}
    for key, part in table.groupby(["split", "backend"], sort=False) if len(table) else ():
        split, backend = map(str, key)
        values = part[list(QUANTITIES)].to_numpy(dtype=float)
        if np.isfinite(values).all():
            name = _BACKENDS.get(backend, backend) + (" *" if backend in others else "")
            means = values.mean(axis=0).tolist()
            score = float(harmonic_mean(values))
            rows.append([SPLIT_WORDS.get(split, split), name, len(part), *means, score])
    caption = (
        "Other scorers on the same embeddings: mean AUC and partial AUC over machines, and the "
        "official score (%)."
    )
    if others:
        caption += (
            " * Not on the embeddings: another system’s scores of the same clips, which took part "
            "in no choice."
        )
    return ReportTable(
        "baselines",
        caption,
        columns_from(rows, ("split", "backend", "machines", *QUANTITIES, "score")),
        titles={"split": "machines", "machines": "count", "backend": "scorer"},
    )


def cost_table(result: StudyTables) -> ReportTable:
    """E6: what the study took."""
    table = result.cost
    names = ("quantity", "value", "unit", "note")
    columns = {} if table.empty else {name: table[name].tolist() for name in names}
    return ReportTable("cost", "Measured in this run.", columns, formats={"value": ".4g"})
