"""The label-free veto beside the dev veto: what it cuts, what it would pick, when to warn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.experiments.aggregate import CRITERION_DIGITS, complete_column, known_column, plain
from daco.experiments.decision import GUARDED, GUARDS, Decision
from daco.experiments.hearing import Hearing
from daco.method.grid_table import require_known
from daco.method.selection import SelectionRow

if TYPE_CHECKING:
    import pandas as pd

_ADVICE = "Set the veto to 'both' to obey both of them."


def hears_of(hearing: Hearing | None, names: list[str]) -> NDArray[np.bool_] | None:
    """What the label-free veto keeps, in the order of the grid; None where it says nothing."""
    if hearing is None or hearing.abstains:
        return None
    kept = dict(zip(hearing.veto.configs, hearing.veto.kept.tolist(), strict=True))
    require_known(names, kept, "The label-free veto")
    return np.array([kept[name] for name in names])


def label_free_document(
    hearing: Hearing | None, decisions: Mapping[str, Decision], decision: Decision
) -> dict[str, Any] | None:
    """The veto for ``selection.json``: its cut and its reasons, its own pick, the chosen one."""
    if hearing is None:
        return None
    own = decisions.get("faults")
    passes = None if hearing.abstains else decision.config not in hearing.veto.reasons
    return {
        **hearing.to_dict(),
        "picks": own.config if own is not None and own.rule == GUARDS["faults"] else None,
        "chosen_passes": passes,
    }


def veto_warnings(
    guard: str, decision: Decision, by_dev: Decision, hearing: Hearing | None
) -> list[str]:
    """Sentences for whoever uses the choice, where a veto that was not asked says no."""
    found = []
    config = decision.config
    if hearing is not None and config in hearing.veto.reasons:
        found.append(
            f"{config} is cut by the label-free veto, which had no say in this choice: "
            f"{hearing.veto.reasons[config]}. {_ADVICE}"
        )
    if config in (by_dev.vetoed or ()):
        floor = "" if by_dev.floor is None else f": its dev score is not above {by_dev.floor:.2f}"
        found.append(
            f"{config} is cut by the dev-score veto, which had no say in this choice{floor}. "
            f"{_ADVICE}"
        )
    if guard != "dev" and (hearing is None or hearing.abstains):
        said = "it abstains" if hearing is not None else "no machine has enough normals for it"
        found.append(f"The label-free veto was asked for, but {said}.")
    return found


def add_guarded(
    rows: list[SelectionRow], grid: pd.DataFrame, decisions: Mapping[str, Decision]
) -> None:
    """Rows of the label-free veto and of both together, after that of the dev veto."""
    names = list(grid["config"])
    criteria = {
        name: known_column(grid, name).round(CRITERION_DIGITS) for name in ("crit_dev", "crit_eval")
    }
    rules = [row.rule for row in rows]
    place = len(rows) - ("oracle" in rules)
    if GUARDED in rules:
        place = rules.index(GUARDED) + 1
    for guard in ("both", "faults"):
        if guard not in decisions or decisions[guard].rule != GUARDS[guard]:
            continue
        at = names.index(decisions[guard].config)
        dev, evaluation = (complete_column(grid, name) for name in ("dev_omega", "eval_omega"))
        row = SelectionRow(
            rule=GUARDS[guard],
            config=decisions[guard].config,
            dev_omega=None if dev is None else float(dev[at]),
            eval_omega=None if evaluation is None else float(evaluation[at]),
            crit_dev=plain(criteria["crit_dev"][at]),
            crit_eval=plain(criteria["crit_eval"][at]),
            labels="none" if guard == "faults" else "development (veto only)",
        )
        rows.insert(place, row)
