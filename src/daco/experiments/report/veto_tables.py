"""The two vetoes side by side: by dev scores, and by what is heard of pseudo-anomalies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daco.experiments.report.machine_tables import SPLIT_WORDS
from daco.experiments.report.table import Columns, ReportTable, columns_from, without_unknown
from daco.experiments.tables import written
from daco.method.choice import CRITERION_DIGITS
from daco.method.selection import guarded_selection, viable_within

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

BY_DEV, BY_HEARING = "dev-score veto", "label-free veto"
_GUARDS = {"dev": [BY_DEV], "faults": [BY_HEARING], "both": [BY_DEV, BY_HEARING]}


def vetoes(result: StudyTables) -> dict[str, Any] | None:
    """What was asked, what each veto cuts, and what the label-free one would pick; plain JSON."""
    heard = result.selection.get("label_free_veto")
    if heard is None:
        return None
    removed = _removed(result)
    return {
        "obeyed": _GUARDS[result.selection.get("guard", "dev")],
        "basis": heard["basis"],
        "limit": heard["limit"],
        "median": heard["median"],
        "plain": heard["plain"],
        "notes": heard["notes"],
        "n_machines": len(heard["machines"]),
        "picks": heard["picks"],
        "chosen_passes": heard["chosen_passes"],
        "has_dev_veto": result.selection.get("veto") is not None,
        "n_dev": len(removed),
        "n_heard": len(heard["cut"]),
        "n_both": len(set(removed) & set(heard["cut"])),
    }


def veto_table(result: StudyTables) -> ReportTable:
    """Every configuration that a veto cuts."""
    heard = result.selection.get("label_free_veto")
    columns: Columns = {}
    if heard is not None:
        removed, cut = set(_removed(result)), heard["cut"]
        scores = {row["config"]: row["pseudo_score"] for row in heard["configs"]}
        grid = result.grid.set_index("config")
        names = [str(name) for name in grid.index if name in removed or name in cut]
        columns["config"] = names
        columns["by"] = [_by(name in removed, name in cut) for name in names]
        columns["pseudo_score"] = [scores.get(name) for name in names]
        for name in ("dev_omega", "eval_omega", "crit_dev"):
            if name in grid:
                columns[name] = [grid.at[row, name] for row in names]
    return ReportTable(
        "vetoes",
        "Configurations that a veto cuts: the pseudo score (%; 50 is chance), which reads no "
        "label, beside the official scores (%) and the criterion.",
        without_unknown(columns),
        titles={
            "config": "configuration",
            "by": "cut by",
            "pseudo_score": "pseudo score",
            "dev_omega": "dev score",
            "eval_omega": "eval score",
            "crit_dev": "criterion, dev",
        },
        formats={"crit_dev": ".3f"},
    )


def role_table(result: StudyTables) -> ReportTable:
    """The label-free veto of development and evaluation machines, each by themselves."""
    heard = result.selection.get("label_free_veto") or {}
    rows = [
        [
            SPLIT_WORDS.get(role, role),
            veto["basis"],
            veto["plain"],
            veto["median"],
            veto["limit"],
            len(veto["cut"]),
        ]
        for role, veto in (heard.get("by_role") or {}).items()
    ]
    return ReportTable(
        "vetoes_by_role",
        "The label-free veto of each set of machines by itself: pseudo scores (%) of plain nearest "
        "neighbours and of the median configuration, the limit, and how many fall below it.",
        columns_from(rows, ("split", "basis", "plain", "median", "limit", "count")),
        titles={"split": "machines", "plain": "raw-k1", "count": "cut"},
        formats=dict.fromkeys(("plain", "median", "limit"), ".1f"),
    )


def form_table(result: StudyTables) -> ReportTable:
    """The other form of the dev-score veto: within delta points of the best dev score."""
    columns: Columns = {}
    caption = (
        "The guarded criterion with the veto drawn at δ points below the best dev score: from "
        "which δ on it picks what, and the scores (%) of the picks."
    )
    veto = result.selection.get("veto")
    if veto is not None and {"dev_omega", "crit_dev"} <= set(result.grid):
        grid = result.grid.dropna(subset=["dev_omega", "crit_dev"]).set_index("config", drop=False)
        grid["crit_dev"] = grid["crit_dev"].round(CRITERION_DIGITS)
        dev = grid["dev_omega"]
        first: dict[str, tuple[str, float, int]] = {}
        for delta in sorted(set(dev.max() - dev)):
            kept = viable_within(dev, delta)
            pick = guarded_selection(grid, veto=kept)
            first.setdefault(pick, (pick, delta, int(kept.sum())))
        columns = columns_from(list(first.values()), ("config", "delta", "count"))
        for name in ("crit_dev", "dev_omega", "eval_omega"):
            if name in grid:
                columns[name] = grid.loc[list(first), name].tolist()
        if veto["floor"] is not None:
            points = written(dev.max() - veto["floor"])
            caption += f" The veto of this study keeps what lies less than {points} points below."
    return ReportTable(
        "veto_forms",
        caption,
        without_unknown(columns),
        titles={
            "delta": "from δ on",
            "count": "kept",
            "config": "picks",
            "crit_dev": "criterion",
            "dev_omega": "dev score",
            "eval_omega": "eval score",
        },
        formats=dict.fromkeys(("delta", "crit_dev"), ".3f"),
    )


def _removed(result: StudyTables) -> list[str]:
    return list((result.selection.get("veto") or {}).get("removed") or [])


def _by(dev: bool, hearing: bool) -> str:
    if dev and hearing:
        return "both"
    return BY_DEV if dev else BY_HEARING
