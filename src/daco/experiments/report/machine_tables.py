"""Tables about machines: their metrics, balance, false-alarm rates and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from daco.evaluation.metrics import harmonic_mean
from daco.experiments.analysis import metrics_of, quantities_in, quantity_title
from daco.experiments.highlights import compared_configs, imbalances, limit_machines, limit_note
from daco.experiments.report.table import TEXTS, ReportTable, known_columns
from daco.experiments.veto import ROLES
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables


def per_machine_table(result: StudyTables) -> ReportTable:
    """The metrics of every labelled machine under the compared configurations."""
    keys = ["split", "machine"]
    table, labelled = limit_machines(result).labelled, result.labelled
    quantities = quantities_in(table)
    places = table[keys].drop_duplicates()
    splits = list(dict.fromkeys(labelled["split"]))  # also of machines that are not shown
    columns: dict[Any, list[Any]] = {
        "machine": [*places["machine"], *["all machines"] * len(splits)],
        "split": [*places["split"], *splits],
    }
    titles: dict[Any, str] = {}
    formats: dict[Any, str] = {}
    for config in compared_configs(result):
        rows = table[table["config"] == config]
        if rows.empty:
            continue
        metrics = places.merge(rows, on=keys, how="left")[quantities].to_numpy(dtype=float)
        every = [metrics_of(labelled, split, [config])[:, 0] for split in splits]
        for at, name in enumerate(quantities):
            key = (config, name)
            columns[key] = [*metrics[:, at], *(_mean(values[:, at]) for values in every)]
            titles[key], formats[key] = quantity_title(name.removeprefix("auc_")), ".1f"
        columns[config, "score"] = [_mean(values) for values in [*metrics, *every]]
        formats[config, "score"] = ".2f"
    frame = pd.DataFrame(dict(enumerate(columns.values())))
    frame.columns = pd.Index(list(columns), tupleize_cols=False)
    note = limit_note(result)
    return ReportTable("per_machine", frame, note, titles, formats, frozenset(formats))


def _mean(values: Float64s) -> float | None:
    """The harmonic mean of metrics; None where one is not known."""
    known = len(values) > 0 and bool(np.isfinite(values).all())
    return float(harmonic_mean(values)) if known else None


def frontier_table(result: StudyTables) -> ReportTable:
    """Balance along the prior strength."""
    names = ["split", "variant", "mean_auc_source", "mean_auc_target"]
    names += ["signed_gap", "absolute_gap", "median_gap", "omega"]
    frame = known_columns(result.frontier, names).replace({"split": ROLES})
    return ReportTable("frontier", frame)


def diagnostics_table(result: StudyTables) -> ReportTable:
    """Why calibration helps some machines and hurts others."""
    names = ["machine", *TEXTS["diagnostics"]["titles"]]
    frame = known_columns(limit_machines(result).diagnostics, names)
    return ReportTable("diagnostics", frame, limit_note(result))


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
                rows.append([ROLES.get(str(split), split), system, level, *pair, imbalance])
    names = ["split", "system", "nominal", "source", "target", "imbalance"]
    return ReportTable("coverage", pd.DataFrame(rows, columns=names))


def baselines_table(result: StudyTables) -> ReportTable:
    """E1: other scorers on the same embeddings, and other systems; means over machines."""
    table, texts = result.baselines, TEXTS["baselines"]
    rows, quantities = [], quantities_in(table)
    sources = result.provenance.get("baselines") or ()
    others = {str(each["system"]) for each in sources}
    for key, part in table.groupby(["split", "backend"], sort=False) if len(table) else ():
        split, backend = map(str, key)
        values = part[quantities].to_numpy(dtype=float)
        if np.isfinite(values).all():
            name = texts["backends"].get(backend, backend) + (" *" if backend in others else "")
            means, score = values.mean(axis=0), harmonic_mean(values)
            rows.append([ROLES.get(split, split), name, len(part), *means, score])
    names = ["split", "backend", "machines", *quantities, "score"]
    note = texts["others"] if others else ""
    return ReportTable("baselines", pd.DataFrame(rows, columns=names), note)


def cost_table(result: StudyTables) -> ReportTable:
    """E6: what the study took."""
    names = [name for name in ("quantity", "value", "unit", "note") if name in result.cost]
    return ReportTable("cost", result.cost[names])
