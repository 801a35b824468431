"""The first screen: what was chosen, its score beside others, and how certain that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.errors import ConfigError
from daco.evaluation.intervals import larger_than_chance, too_few_machines
from daco.experiments.analysis import complete_column, plain
from daco.experiments.grid_table import oracle, random_expectation
from daco.experiments.highlights import chosen_config, machines_of, shown_config
from daco.experiments.report.table import TEXTS
from daco.experiments.tables import format_cell
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, ScoreConfig

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

_MEASURES = {"eval": "eval_omega", "dev": "dev_omega", "criterion": "crit_dev"}
_TEXTS = TEXTS["headline"]


def headline(result: StudyTables) -> dict[str, Any]:
    """What the first screen shows, as plain JSON.

    ``measure`` is ``"eval"`` where evaluation scores are known, else ``"dev"``, else
    ``"criterion"``, else None; ``comparison`` holds values of that measure, and their places
    on a common axis in percent of its length. ``config`` is None where nothing was chosen; the
    page then shows the configuration ``shown``.
    """
    selection, grid = result.selection, result.grid
    chosen = selection.get("chosen") or {}
    config, shown = chosen_config(result), shown_config(result)
    known = set(grid.columns[grid.notna().any()])
    measure = next((name for name, column in _MEASURES.items() if column in known), None)
    column = _MEASURES[measure] if measure else None
    scored = result.labelled if measure in ("eval", "dev") else result.per_machine
    machines = machines_of(scored, "eval" if measure == "eval" else "dev")
    resamples = selection.get("resamples")
    return {
        "config": config,
        "shown": shown,
        "explanation": explain(shown),
        "rule": chosen.get("rule"),
        "reason": chosen.get("reason"),
        "measure": measure,
        "value": _value(result, shown, column),
        "interval": chosen.get("interval") if measure == "eval" else None,
        "resamples": resamples,
        "machines": machines,
        "comparison": _comparison(result, config, column) if column else [],
        "floor": (selection.get("floor") or {}).get("mean"),
        "warnings": list(selection.get("warnings") or []),
        "reading": _reading(result, measure, config, len(machines)),
    }


def _reading(
    result: StudyTables,
    measure: str | None,
    config: str | None,
    n_machines: int,
) -> list[str]:
    """Sentences on what the numbers do and do not show."""
    selection = result.selection
    sentences: list[str] = []
    if measure == "eval":
        if resamples := selection.get("resamples"):
            default = _value(result, PAPER_CONFIG, "eval_omega")
            sentences += below_default(resamples["n"], resamples["eval_omega"], default)
        sentences += reading(selection, n_machines)
    if config is None:
        sentences.append(_TEXTS["no_choice"])
    if measure == "dev":
        took_part = _TEXTS["took_part"] if config else ""
        sentences.append(_TEXTS["dev"].format(took_part=took_part))
    if measure == "criterion":
        sentences.append(_TEXTS["criterion"])
    count = len(selection.get("within_noise") or [])
    if count and "criterion" in str((selection.get("chosen") or {}).get("rule")):
        which = "1 other configuration has" if count == 1 else f"{count} other configurations have"
        sentences.append(_TEXTS["noise"].format(which=which))
    return sentences


def _comparison(result: StudyTables, config: str | None, column: str) -> list[dict[str, Any]]:
    """The chosen one, then what else might have been taken; with places on a common axis."""
    rows = result.selection.get("rows") or _rows_of_scores(result)
    by_rule = {row["rule"]: row for row in rows}
    last = {"crit_dev": ("smallest", "criterion"), "eval_omega": ("oracle", "oracle")}
    picks = [("chosen", config), ("dev pick", by_rule.get("dev score", {}).get("config"))]
    picks.append(("fixed default", PAPER_CONFIG))
    if column in last:
        role, rule = last[column]
        picks.append((role, by_rule.get(rule, {}).get("config")))
    compared: list[dict[str, Any]] = [
        {"role": role, "config": name, "value": _value(result, name, column)}
        for role, name in picks
    ]
    blend = by_rule.get(DEFAULT_CONFIG, {}).get(column)
    compared.insert(3, {"role": "blend of views", "config": DEFAULT_CONFIG, "value": blend})
    if column == "eval_omega":
        interval = (result.selection.get("chosen") or {}).get("interval")
        if config and interval:
            compared[0] |= {"low": interval["low"], "high": interval["high"]}
        random = by_rule.get("random", {})
        mean = random.get("eval_omega")
        if mean is not None:
            sd = plain(random["eval_sd"] or 0.0) or 0.0
            chance = {"value": mean, "low": mean - sd, "high": mean + sd}
            compared.append({"role": "random", "config": None, **chance})
    compared = [row for row in compared if row["value"] is not None]
    keys = ("low", "value", "high")
    ends = [row[key] for row in compared for key in keys if key in row]
    if ends:
        room = 0.06 * (max(ends) - min(ends)) or 1.0
        low, high = min(ends) - room, max(ends) + room
        for row in compared:
            places = {key: 100 * (row[key] - low) / (high - low) for key in keys if key in row}
            row["at"] = {key: round(place, 2) for key, place in places.items()}
    return compared


def _rows_of_scores(result: StudyTables) -> list[dict[str, Any]]:
    """Rules that only describe the evaluation scores, where nothing was chosen."""
    scores = complete_column(result.grid, "eval_omega")
    if scores is None:
        return []
    chance = random_expectation(scores)
    best = oracle(result.grid["config"], scores)
    return [
        {"rule": "random", "config": None, "eval_omega": chance.mean, "eval_sd": chance.sd},
        {"rule": "oracle", "config": best, "eval_omega": float(scores.max())},
    ]


def _value(result: StudyTables, config: str | None, column: str | None) -> float | None:
    if column is None:
        return None
    values = result.grid.loc[result.grid["config"] == config, column]
    return float(values.iloc[0]) if len(values) and np.isfinite(values.iloc[0]) else None


# Sentences


def explain(config: str) -> str:
    """What a configuration does, in plain words.

    >>> explain("raw-k1")
    'Scores a clip by its cosine distance to the most similar normal.'
    """
    try:
        parsed = ScoreConfig.parse(config)
    except ConfigError:
        return "A configuration of the study’s own."
    text = f"Scores a clip by {parsed.base.words}."
    if parsed.calibration is None:
        return text
    m, words = f"{parsed.m:g}", _TEXTS["calibrations"]
    pooling = words["pooled" if parsed.m else "not_pooled"].format(m=m)
    calibrated = words[parsed.calibration].format(m=m, pooling=pooling)
    assigned = _TEXTS["assignments"].get(parsed.assignment, "")
    return f"{text} The score is then {calibrated}. {assigned}"


def reading(selection: Mapping[str, Any], n_machines: int) -> list[str]:
    """What may be concluded from the comparison of the chosen one with the others.

    Where several intervals of a difference are known, the one over machines counts: others than
    these machines are what a choice is made for. Below five machines no difference is called
    larger than chance, see :func:`daco.evaluation.intervals.larger_than_chance`.
    """
    strongest: dict[str, Mapping[str, Any]] = {}
    for delta in selection.get("deltas") or []:
        against = delta.get("against") or delta["second"]
        if against not in strongest or "machine" in str(delta["method"]):
            strongest[against] = delta
    sentences = [
        _TEXTS["same"].get(against, f"It is the same as {against}.")
        if delta["first"] == delta["second"]
        else _difference(delta, against, n_machines)
        for against, delta in strongest.items()
    ]
    score = (selection.get("chosen") or {}).get("eval_omega")
    for row in selection.get("rows") or []:
        if row["rule"] == "random" and score is not None and score < row["eval_omega"]:
            mean = format_cell(row["eval_omega"], ".1f")
            sentences.append(f"A configuration drawn at random scores more on average ({mean}).")
    differ = any(delta["first"] != delta["second"] for delta in strongest.values())
    if n_machines == 1:
        sentences.append("The result of one machine may not hold for others.")
    elif differ and (note := too_few_machines(n_machines)):
        sentences.append(note)
    return sentences


def _difference(delta: Mapping[str, Any], against: str, n_machines: int) -> str:
    size = format_cell(abs(delta["delta"]), ".1f")
    if delta["delta"] == 0 == delta["low"] == delta["high"]:
        return f"It scores as much as the {against}."
    if against == "oracle":
        return f"The best configuration in hindsight scores {size} points more."
    more = "more" if delta["delta"] > 0 else "less"
    interval = (
        f"95 % interval {format_cell(delta['low'], '.1f')} to {format_cell(delta['high'], '.1f')}"
    )
    over_machines = "machine" in str(delta["method"])
    subject = f"It scores {size} points {more} than the {against}"
    if too_few_machines(n_machines):
        return f"{subject} ({interval})."
    if not larger_than_chance(delta["low"], delta["high"], n_machines):
        few = f"{n_machines} machines do" if over_machines else "these clips do"
        return f"{subject}, which may be chance: {few} not establish it ({interval})."
    noise = "from machine to machine" if over_machines else "from clip to clip"
    return f"{subject}, a larger difference than the variation {noise} ({interval})."


def below_default(n: int, mean: float | None, default: float | None) -> list[str]:
    """A sentence where the picks of n resamples score less than the fixed default on average."""
    if mean is None or default is None or mean >= default:
        return []
    words = {"mean": format_cell(mean, ".1f"), "default": format_cell(default, ".1f")}
    return [_TEXTS["below_default"].format(n=n, **words)]
