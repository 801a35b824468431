"""The first screen: what was chosen, what it is worth, against what, and how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.evaluation.metrics import QUANTITIES
from daco.experiments.aggregate import complete_column, plain
from daco.experiments.highlights import chosen_config, shown_config
from daco.experiments.report.wording import below_default, explain, noise_note, reading
from daco.experiments.stability import choice_over_seeds
from daco.method.config import DEFAULT_CONFIG
from daco.method.selection import oracle, random_expectation

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

_MEASURES = (("eval", "eval_omega"), ("dev", "dev_omega"), ("criterion", "crit_dev"))


def headline(result: StudyTables) -> dict[str, Any]:
    """What the first screen shows, as plain JSON.

    ``measure`` is ``"eval"`` where evaluation scores are known, else ``"dev"``, else
    ``"criterion"``, else None; ``comparison`` holds values of that measure, and where they lie
    on a common axis in percent of its length. ``config`` is None where nothing was chosen; the
    page then shows the configuration ``shown``.
    """
    chosen = result.selection.get("chosen") or {}
    config = chosen_config(result)
    shown = shown_config(result)
    measure, column = next(
        ((name, column) for name, column in _MEASURES if _known(result, column)), (None, None)
    )
    rows = [] if column is None else _comparison(result, config, column)
    split = "eval" if measure == "eval" else "dev"
    machines = labelled_machines(result, split)
    sentences = reading(result.selection, len(machines)) if measure == "eval" else []
    if config is None:
        sentences.append(
            "Which configuration was chosen is not known: the folder has no selection.json. "
            "'daco compare' with this folder says what each rule picks from its tables."
        )
    if measure == "dev":
        took_part = ", whose labels took part in the choice" if config else ""
        sentences.append(
            "Nothing here was tried on evaluation machines. The scores are those of the "
            f"development machines{took_part}."
        )
    if measure == "criterion":
        sentences.append(
            "No labels are known, so nothing here says how well anything is detected: the "
            "criterion only says how alike the scores of the two domains are."
        )
    seeds = _seeds(result)
    if seeds and measure == "eval":
        default = _value(result, DEFAULT_CONFIG, column)
        sentences[:0] = below_default(seeds["n_seeds"], seeds["eval_omega"], default)
    note = None
    if "criterion" in str(chosen.get("rule")):
        note = noise_note(result.selection.get("within_noise") or [])
    return {
        "config": config,
        "shown": shown,
        "explanation": explain(shown),
        "rule": chosen.get("rule"),
        "reason": chosen.get("reason"),
        "measure": measure,
        "value": _value(result, shown, column),
        "interval": chosen.get("interval") if measure == "eval" else None,
        "seeds": seeds,
        "machines": machines if measure in ("eval", "dev") else _machines(result, "dev"),
        "comparison": _placed(rows),
        "floor": (result.selection.get("floor") or {}).get("mean"),
        "warnings": list(result.selection.get("warnings") or []),
        "reading": [*sentences, *([note] if note else [])],
    }


def _seeds(result: StudyTables) -> dict[str, Any] | None:
    """What other seeds choose; computed again for a run that did not store it."""
    chosen = result.selection.get("chosen") or {}
    if "seeds" in result.selection or not chosen:
        return result.selection.get("seeds")
    return choice_over_seeds(result.stability, result.grid, chosen["config"], chosen.get("rule"))


def labelled_machines(result: StudyTables, split: str) -> list[str]:
    """Machines of a split with all their metrics."""
    table = result.per_machine.dropna(subset=list(QUANTITIES))
    return list(dict.fromkeys(map(str, table["machine"][table["split"] == split])))


def _machines(result: StudyTables, split: str) -> list[str]:
    table = result.per_machine
    return list(dict.fromkeys(map(str, table["machine"][table["split"] == split])))


def _comparison(result: StudyTables, config: str | None, column: str) -> list[dict[str, Any]]:
    """The chosen one, then what else might have been taken."""
    picks: list[tuple[str, str]] = [] if config is None else [("chosen", config)]
    rows = result.selection.get("rows") or _rows_of_scores(result)
    picks += [("dev pick", row["config"]) for row in rows if row["rule"] == "dev score"]
    if DEFAULT_CONFIG in set(result.grid["config"]):
        picks.append(("fixed default", DEFAULT_CONFIG))
    if column == "crit_dev":
        picks += [("smallest", row["config"]) for row in rows if row["rule"] == "criterion"]
    if column == "eval_omega":
        picks += [("oracle", row["config"]) for row in rows if row["rule"] == "oracle"]
    found = [
        {"role": role, "config": name, "value": _value(result, name, column)}
        for role, name in picks
    ]
    interval = (result.selection.get("chosen") or {}).get("interval")
    if config and interval and column == "eval_omega":
        found[0] |= {"low": interval["low"], "high": interval["high"]}
    for row in rows if column == "eval_omega" else ():
        if row["rule"] == "random" and row["eval_omega"] is not None:
            mean, sd = row["eval_omega"], plain(row["eval_sd"] or 0.0) or 0.0
            found.append(
                {
                    "role": "random",
                    "config": None,
                    "value": mean,
                    "low": mean - sd,
                    "high": mean + sd,
                }
            )
    return [row for row in found if row["value"] is not None]


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


def _placed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with their places on an axis that holds all of them."""
    ends = [row[key] for row in rows for key in ("low", "value", "high") if key in row]
    if not ends:
        return []
    low, high = min(ends), max(ends)
    room = 0.06 * (high - low) or 1.0
    low, high = low - room, high + room

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    return [
        {**row, "at": {key: place(row[key]) for key in ("low", "value", "high") if key in row}}
        for row in rows
    ]


def _known(result: StudyTables, column: str) -> bool:
    return column in result.grid and bool(result.grid[column].notna().any())


def _value(result: StudyTables, config: str, column: str | None) -> float | None:
    if column is None:
        return None
    found = result.grid.loc[result.grid["config"] == config, column]
    return float(found.iloc[0]) if len(found) and np.isfinite(found.iloc[0]) else None
