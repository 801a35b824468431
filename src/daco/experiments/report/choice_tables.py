"""Tables about the choice: rules and their picks, vetoes, configurations, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from daco.errors import ConfigError
from daco.experiments.figures.style import look_of
from daco.experiments.report.table import (
    SPLIT_WORDS,
    ReportTable,
    columns_from,
    columns_of,
    without_missing,
)
from daco.experiments.tables import format_cell
from daco.method.choice import CRITERION_DIGITS
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, ScoreConfig
from daco.method.selection import guarded_selection, viable_within
from daco.text import quantity

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import StudyTables

RULES = {
    "random": "a configuration drawn at random",
    "fixed": "the fixed default, named in advance",
    "dev score": "best score on development machines (usual practice)",
    "criterion": "smallest criterion on development machines",
    "criterion on evaluation normals": "smallest criterion on evaluation machines’ normals",
    "guarded criterion": "smallest criterion after the development-score veto",
    "criterion, both vetoes": "smallest criterion after both vetoes",
    "criterion, label-free veto": "smallest criterion among configurations that detect "
    "pseudo-anomalies",
    "vote": "none is chosen: all configurations of the frontier grid vote",
    "per-machine blind": "each machine its own, by the criterion on its normals",
    "oracle": "best in hindsight: an upper bound, not a rule",
}
"""What each selection rule does."""

_SCORES = ("dev_omega", "eval_omega", "crit_dev")
_DEV_VETO, _LABEL_FREE_VETO = "dev-score veto", "label-free veto"
_GUARDS = {
    "dev": [_DEV_VETO],
    "faults": [_LABEL_FREE_VETO],
    "both": [_DEV_VETO, _LABEL_FREE_VETO],
}


def selection_table(result: StudyTables) -> ReportTable:
    """What every rule picked, which labels it read, what the pick scores."""
    rows = result.selection.get("rows") or []
    names = ("rule", "config", "eval_omega", "dev_omega", "crit_dev", "crit_eval", "labels")
    columns = {name: [row[name] for row in rows] for name in names}
    columns["what it does"] = [
        RULES.get(row["rule"], "")
        + ("" if row.get("eval_sd") is None else f" (sd {row['eval_sd']:.2f})")
        for row in rows
    ]
    return ReportTable(
        "selection",
        "What each rule picks, which labels it reads, and the official score (%) of the pick.",
        without_missing(columns),
        titles={"config": "picks", "labels": "labels read"},
    )


def difference_table(result: StudyTables) -> ReportTable:
    """The chosen configuration against the others, with intervals."""
    rows = [d for d in result.selection.get("deltas") or [] if d["first"] != d["second"]]
    numbers = ("delta", "low", "high", "loo_low", "loo_high")
    columns = {
        "against": [row.get("against") or row["second"] for row in rows],
        "config": [row["second"] for row in rows],
        **{name: [row[name] for row in rows] for name in (*numbers, "method")},
    }
    return ReportTable(
        "differences",
        "Evaluation score of the chosen configuration less that of another (points), with 95 % "
        "intervals. Machine jackknife: as if other machines had been drawn, by Student’s t; clip "
        "bootstrap: as if other clips of these machines had been. Least, most: when one machine is "
        "left out.",
        without_missing(columns),
        titles={
            "method": "interval by",
            "delta": "difference",
            "loo_low": "least",
            "loo_high": "most",
        },
        formats=dict.fromkeys(numbers, "+.2f"),
    )


def grid_table(result: StudyTables) -> ReportTable:
    """All configurations."""
    grid = result.grid
    names = [str(name) for name in grid["config"]]
    columns: dict[str, Any] = {"config": names}
    columns["method"] = [look_of(name).title for name in names]
    columns["family"] = [family_of(name) for name in names]
    columns |= {name: grid[name].tolist() for name in (*_SCORES, "crit_eval") if name in grid}
    return ReportTable(
        "configurations",
        "Every configuration: official scores (%) and the criterion (smaller is better).",
        columns,
    )


def family_of(name: str) -> str:
    """The family that block statistics resample; a name of the study's own is one by itself."""
    try:
        return ScoreConfig.parse(name).family
    except ConfigError:
        return name


def family_table(result: StudyTables) -> ReportTable:
    """Families of configurations, and of each the one of smallest criterion."""
    grid = result.grid
    names = [str(name) for name in grid["config"]]
    members: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        members.setdefault(family_of(name), []).append(at)
    scores = [name for name in ("dev_omega", "eval_omega") if name in grid]
    has_criterion = "crit_dev" in grid and grid["crit_dev"].notna().any()
    columns: dict[str, Any] = {}
    if len(members) > 1:
        best = [rows[0] for rows in members.values()]
        if has_criterion:
            criterion = grid["crit_dev"].fillna(float("inf")).to_numpy()
            best = [rows[int(criterion[rows].argmin())] for rows in members.values()]
        columns = {"family": list(members), "count": [len(rows) for rows in members.values()]}
        columns["config"] = [names[at] for at in best]
        for name in [*(["crit_dev"] if has_criterion else []), *scores]:
            columns[name] = grid[name].iloc[best].tolist()
        for name in scores:
            columns[f"{name}_range"] = [_range(grid[name].iloc[rows]) for rows in members.values()]
    return ReportTable(
        "families",
        "Families, whose members differ in a number only (k, K, m) and are near copies: of each "
        "the configuration of smallest criterion with its scores (%), and the scores of all.",
        columns,
        titles={
            "count": "members",
            "config": "smallest criterion",
            "dev_omega_range": "dev, all",
            "eval_omega_range": "eval, all",
        },
    )


def _range(values: pd.Series) -> str | None:
    known = values.dropna()
    if known.empty:
        return None
    low, high = f"{known.min():.1f}", f"{known.max():.1f}"
    return low if low == high else f"{low} to {high}"


def ldn_table(result: StudyTables) -> ReportTable:
    """E5: calibration against local density normalisation, and both."""
    names = [str(name) for name in result.grid["config"]]
    local = [name for name in names if _is_ldn(name)]
    others = (RAW_CONFIG, "zscore-soft-k1", "ratio-soft-k1", DEFAULT_CONFIG)
    columns: dict[str, Any] = {}
    if local:
        columns["config"] = [*(name for name in others if name in names), *local]
        columns["method"] = [look_of(name).title for name in columns["config"]]
        rows = result.grid.iloc[[names.index(name) for name in columns["config"]]]
        columns |= {name: rows[name].tolist() for name in _SCORES if name in rows}
    return ReportTable(
        "ldn",
        "Calibration per domain (z-scores, ratios to the median, quantile maps), local density "
        "normalisation (LDN), and one on top of the other: official scores (%) and criterion.",
        columns,
    )


def _is_ldn(name: str) -> bool:
    """Local density normalisation, as it is, under the default's calibration, or published."""
    try:
        config = ScoreConfig.parse(name)
    except ConfigError:
        return False
    if not config.scorer.startswith(("ldn", "dldn")):
        return False
    default = ScoreConfig.of(config.base, "conf", "soft", 0)
    published = config.scorer in ("ldn-ratio", "ldn-diff") and not config.bandwise
    return config.calibration is None or config == default or published


# The two vetoes


def vetoes(result: StudyTables) -> dict[str, Any] | None:
    """What each veto cuts, and what the label-free one would pick; plain JSON."""
    veto = result.selection.get("label_free_veto")
    if veto is None:
        return None
    removed = _removed(result)
    return {
        "obeyed": _GUARDS[result.selection.get("guard", "dev")],
        **{key: veto[key] for key in ("basis", "limit", "median", "plain", "notes", "picks")},
        "chosen_passes": veto["chosen_passes"],
        "n_machines": len(veto["machines"]),
        "has_dev_veto": result.selection.get("veto") is not None,
        "n_dev": len(removed),
        "n_heard": len(veto["cut"]),
        "n_both": len(removed & set(veto["cut"])),
    }


def _removed(result: StudyTables) -> set[str]:
    return set((result.selection.get("veto") or {}).get("removed") or [])


def veto_table(result: StudyTables) -> ReportTable:
    """Every configuration that a veto cuts."""
    veto = result.selection.get("label_free_veto")
    columns: dict[str, Any] = {}
    if veto is not None:
        removed, cut = _removed(result), set(veto["cut"])
        scores = {row["config"]: row["pseudo_score"] for row in veto["configs"]}
        rows = result.grid[[name in removed | cut for name in result.grid["config"]]]
        names = [str(name) for name in rows["config"]]
        words = {(True, True): "both", (True, False): _DEV_VETO, (False, True): _LABEL_FREE_VETO}
        columns["config"] = names
        columns["by"] = [words[name in removed, name in cut] for name in names]
        columns["pseudo_score"] = [scores.get(name) for name in names]
        columns |= {name: rows[name].tolist() for name in _SCORES if name in rows}
    return ReportTable(
        "vetoes",
        "Configurations that a veto cuts: the pseudo score (%; 50 is chance), which reads no "
        "label, beside the official scores (%) and the criterion.",
        without_missing(columns),
        titles={"by": "cut by", "pseudo_score": "pseudo score"},
    )


def role_table(result: StudyTables) -> ReportTable:
    """The label-free veto of development and evaluation machines, each by themselves."""
    by_role = (result.selection.get("label_free_veto") or {}).get("by_role") or {}
    names = ("basis", "plain", "median", "limit")
    rows = [
        [SPLIT_WORDS.get(role, role), *(veto[name] for name in names), len(veto["cut"])]
        for role, veto in by_role.items()
    ]
    return ReportTable(
        "vetoes_by_role",
        "The label-free veto of each set of machines by itself: pseudo scores (%) of plain nearest "
        "neighbours and of the median configuration, the limit, and how many fall below it.",
        columns_from(rows, ("split", *names, "count")),
        titles={"split": "machines", "plain": "raw-k1", "count": "cut"},
        formats=dict.fromkeys(names, ".1f"),
    )


def form_table(result: StudyTables) -> ReportTable:
    """The other form of the dev-score veto: within delta points of the best dev score."""
    columns: dict[str, Any] = {}
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
        columns |= columns_from(list(first.values()), ("config", "delta", "count"))
        columns |= columns_of(grid.loc[list(first)], ("crit_dev", "dev_omega", "eval_omega"))
        if veto["floor"] is not None:
            points = format_cell(dev.max() - veto["floor"])
            caption += f" The veto of this study keeps what is less than {points} points below."
    return ReportTable(
        "veto_forms",
        caption,
        without_missing(columns),
        titles={"delta": "from δ on", "count": "kept", "config": "picks", "crit_dev": "criterion"},
        formats={"delta": ".3f"},
    )


# Statistics


def statistics_table(result: StudyTables) -> ReportTable:
    """Correlations in plain language."""
    rows = [row for row in _statistics(result.stats) if row[1] is not None or row[2] is not None]
    return ReportTable(
        "statistics",
        "Rank correlations (Spearman’s ρ; +1: both order the configurations alike) with 95 % "
        "intervals and two-sided p-values by permutation: all orderings are counted where they "
        "are few, else thousands are drawn.",
        columns_from(rows, ("question", "value", "low", "high", "p", "based on")),
        titles={"value": "ρ"},
        formats={"value": "+.2f", "low": "+.2f", "high": "+.2f", "p": "p"},
    )


def _statistics(stats: Mapping[str, Any]) -> Iterator[list[Any]]:
    signals = stats.get("signals") or {}
    for key, word in (("criterion", "the criterion"), ("dev_score", "the dev score")):
        if signals.get(key):
            yield from _signal(word, signals[key])
    for key, question in (
        ("dev_score", "Does the dev score rise with m?"),
        ("eval_score", "Does the evaluation score rise with m?"),
        ("criterion", "Does the criterion improve with m?"),
    ):
        found = (stats.get("strength") or {}).get(key) or {}
        yield _row(question, found, f"{found.get('n')} quantile maps")
    found = stats.get("dev_and_eval_within_conformal_soft") or {}
    basis = f"{found.get('n')} quantile maps of one family"
    yield _row("Do dev and evaluation score agree in conf-soft?", found, basis)
    for key, noun, question in (
        ("criterion_and_dev_score", "n", "Does the criterion predict the dev score?"),
        (
            "gain_and_separability",
            "n_machines",
            "Does calibration gain more where domains are separable?",
        ),
    ):
        found = stats.get(key) or {}
        basis = quantity(found.get(noun) or 0, "configuration" if noun == "n" else "machine")
        yield _row(question, found, basis, "p_naive")


def _signal(word: str, signal: Mapping[str, Any]) -> Iterator[list[Any]]:
    """How far one signal predicts the evaluation score, from the plain to the strict answer."""
    whole = {"rho": signal["rho"], **(signal.get("family_block") or {})}
    basis = f"{quantity(signal['n'], 'configuration')}; families resampled"
    yield _row(f"Does {word} predict the evaluation score?", whole, basis)
    machines = signal.get("machine_bootstrap") or {}
    basis = f"{machines.get('n_dev')} and {machines.get('n_eval')} machines resampled"
    yield _row("… had other machines been recorded?", machines, basis)
    means = signal.get("family_means") or {}
    basis = f"{means.get('n_families')} family means permuted"
    yield _row("… between families alone?", means, basis, "p_two_sided")
    yield _row("… with any one family left out?", signal.get("leave_one_family_out"), "range")
    for key, question in (
        ("conformal_only", "… among the quantile maps alone?"),
        ("without_conformal", "… without the quantile maps?"),
    ):
        found = signal.get(key) or {}
        yield _row(question, found, f"{found.get('n')} configurations")
    partial = signal.get("partial") or {}
    basis = "partial correlation; p counts near copies"
    question = "… beyond what m and the family predict?"
    yield _row(question, partial.get("given_strength_and_family"), basis, "p_permutation")
    inner = partial.get("conformal_given_strength_assignment_base") or {}
    basis = f"the same, of {inner.get('n')} configurations"
    question = "… among neighbours within the quantile maps?"
    yield _row(question, inner, basis, "p_permutation")


def _row(question: str, found: Mapping[str, Any] | None, basis: str, p: str = "") -> list[Any]:
    return [question, *((found or {}).get(key) for key in ("rho", "low", "high", p)), basis]
