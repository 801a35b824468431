"""summarise: everything the page shows, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.detector.decision import is_anomalous
from daco.experiments.figures.style import PALETTE, look_of, system_looks
from daco.experiments.highlights import (
    false_alarm_rate,
    limit_machines,
    limit_note,
    machines_of,
    roles,
    shown_config,
)
from daco.experiments.report import choice_tables, machine_tables
from daco.experiments.report.headline import headline
from daco.experiments.report.table import ReportTable
from daco.experiments.thresholds import supported_rate
from daco.validation import Bools

if TYPE_CHECKING:
    from daco.experiments.study_tables import MachineScores, StudyTables

SCHEMA = 1

_MAKERS = (
    choice_tables.selection_table,
    choice_tables.difference_table,
    choice_tables.family_table,
    choice_tables.grid_table,
    choice_tables.veto_table,
    choice_tables.role_table,
    choice_tables.form_table,
    machine_tables.frontier_table,
    machine_tables.diagnostics_table,
    machine_tables.per_machine_table,
    machine_tables.coverage_table,
    choice_tables.stability_table,
    machine_tables.baselines_table,
    choice_tables.ldn_table,
    choice_tables.statistics_table,
    machine_tables.cost_table,
)


def tables_of(result: StudyTables) -> dict[str, ReportTable]:
    """All tables that have a row, by name, in the order of the page."""
    tables = (make(result) for make in _MAKERS)
    return {table.name: table for table in tables if not table.frame.empty}


def summarise(
    result: StudyTables, tables: Mapping[str, ReportTable] | None = None
) -> dict[str, Any]:
    """Return the content of the report as plain values for JSON, as in ``report.json``.

    Parameters
    ----------
    result : StudyTables
    tables : mapping, optional
        What `tables_of` returned, if that was computed before.

    Returns
    -------
    dict
        ``headline`` (the first screen), ``study`` (machines and grid), ``points`` (a row per
        configuration, for the interactive picture) and their ``legend``, ``tables`` by name,
        ``vetoes`` (what each of the two excludes), ``distributions`` (thresholds and anomalous
        clips of each machine), ``shown_machines`` (a sentence, if not all are shown),
        ``coverage`` in brief, ``missing`` (sentences) and ``provenance``.
    """
    tables = tables_of(result) if tables is None else tables
    sets = {"all": result.per_machine, "labelled": result.labelled}
    copied = ("guard", "veto", "floor", "within_noise", "resamples", "per_machine_blind")
    points, legend = _points(result)
    summary = {
        "schema": SCHEMA,
        "headline": headline(result),
        "study": {
            "machines": {
                split: {name: machines_of(table, split) for name, table in sets.items()}
                for split in ("dev", "eval")
            },
            "n_configs": len(result.grid),
            "false_alarm_rate": false_alarm_rate(result),
        },
        "points": points,
        "legend": legend,
        "selection": {name: result.selection.get(name) for name in copied},
        "vetoes": choice_tables.vetoes(result),
        "tables": {name: table.as_dict() for name, table in tables.items()},
        "distributions": _distributions(result),
        "shown_machines": limit_note(result),
        "coverage": _coverage(result),
        "missing": result.missing,
        "notes": list(result.stats.get("notes") or []),
        "provenance": dict(result.provenance),
    }
    return plain_json(summary)


def plain_json(value: Any) -> Any:
    """`value` with NumPy's scalars unpacked, nan and infinity as None, and ten digits."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value


def _points(result: StudyTables) -> tuple[list[Any], list[dict[str, str]]]:
    """A row per configuration of the grid, and its methods with names of colours and shapes."""
    columns = ["dev_omega", "eval_omega", "crit_dev", "crit_eval"]
    points = result.grid.reindex(columns=["config", "method", *columns, "role"])
    points["config"] = points["config"].astype(str)
    looks = [look_of(name) for name in points["config"]]
    points["method"] = [look.title for look in looks]
    points["role"] = points["config"].map(roles(result)).astype(object)
    colours = {value: name for name, value in PALETTE.items()}
    legend = [
        {"title": title, "colour": colours[look.colour], "marker": look.marker}
        for title, look in {look.title: look for look in looks}.items()
    ]
    return points.to_dict("records"), legend


def _distributions(result: StudyTables) -> list[dict[str, Any]]:
    """Per machine: its thresholds under the shown configuration, and the anomalous clips."""
    config, rate = shown_config(result), false_alarm_rate(result)
    rows = []
    for machine in limit_machines(result).machine_scores():
        if config not in machine.decided:
            continue
        anomalous = is_anomalous(machine.p_values(config), rate)
        domains = sorted(set(machine.domains.tolist()) - {""})
        rows.append(
            {
                "machine": machine.title,
                "split": machine.split,
                "thresholds": machine.reference_of(config).domain_thresholds(rate),
                "supported_rate": supported_rate(machine.own_domains.tolist()),
                "domains": [
                    {"name": name, **_shares(machine, anomalous, name)} for name in domains
                ],
                "unlabelled": _share(anomalous[machine.labels < 0]),
            }
        )
    return rows


def _shares(machine: MachineScores, anomalous: Bools, domain: str) -> dict[str, Any]:
    inside = machine.domains == domain
    parts = {"normal": inside & (machine.labels == 0), "anomaly": inside & (machine.labels == 1)}
    return {kind: _share(anomalous[clips]) for kind, clips in parts.items()}


def _share(anomalous: Bools) -> dict[str, Any]:
    """How many clips, and which share of them is anomalous."""
    share = float(anomalous.mean()) if len(anomalous) else None
    return {"n": len(anomalous), "anomalous": share}


def _coverage(result: StudyTables) -> dict[str, Any] | None:
    """At the lowest rate asked for: what each system realised in each domain."""
    table = result.coverage
    if table.empty:
        return None
    split = "eval" if (table["split"] == "eval").any() else "dev"
    level = float(table["nominal_fpr"].min())
    rows = table[(table["split"] == split) & (table["nominal_fpr"] == level)]
    looks = system_looks(sorted(set(rows["system"]), key=lambda name: (name != "raw", name)))
    systems: dict[str, dict[str, float]] = {look.title: {} for look in looks.values()}
    for (system, domain), part in rows.groupby(["system", "domain"], sort=False):
        systems[looks[str(system)].title][str(domain)] = float(part["empirical_fpr"].mean())
    return {"split": split, "nominal": level, "systems": systems}
