"""Compare runs of different backbones, readouts or years.

Every run is judged on its own grid and machines, with the same rules. A value that a run does not
have (evaluation labels, a configuration) is left empty, and a note is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.errors import DacoError, DataError, InputError
from daco.evaluation.intervals import too_few_machines
from daco.experiments.analysis import known_column, plain, plain_rows
from daco.experiments.choose import study_choice
from daco.experiments.differences import compare_scores
from daco.experiments.result import StudyResult
from daco.experiments.rules import VETOES
from daco.experiments.statistics import transfer_statistics
from daco.experiments.study_tables import write_json
from daco.experiments.tables import Key, format_cell, to_csv, to_latex, to_markdown
from daco.files.atomic import atomic_write
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, RAW_CONFIG

if TYPE_CHECKING:
    import pandas as pd

RULES = {
    "random": "random configuration",
    "raw": "raw k-NN",
    "fixed": "fixed default",
    "dev score": "dev score",
    "criterion": "criterion, no veto",
    **{rule: rule for rule in VETOES.values()},
    "per-machine blind": "per-machine blind",
    DEFAULT_CONFIG: "blend",
    "oracle": "oracle",
}
"""Rules of the table, as selection rows call them, and how the table calls them."""

OPTIONAL = (VETOES["faults"], VETOES["both"], RULES[DEFAULT_CONFIG])
"""Rules that need more than the tables of a run; left out where no run has them."""

HINDSIGHT = {"ldn-ratio-K1": "LDN ratio, K=1", "conf-soft-m0-ldnK1": "calibration on LDN"}
"""Single configurations that did well in the published settings; no rule had named them."""

CAPTIONS = {
    "selection": "Evaluation score (percent) of what each rule selects, and rank correlations",
    "rules": "The selection of each rule, and its evaluation score (percent)",
    "correlations": "Rank correlation with the evaluation score; intervals over method families",
    "deltas": "Differences of evaluation scores (points) with a jackknife over machines",
    "means": "Mean evaluation score (percent) of each rule over the runs",
}
COLUMNS = {
    "rules": None,
    "correlations": None,
    "deltas": [
        *("run", "first", "against", "second", "delta", "se", "low", "high"),
        *("loo_low", "loo_high", "n_machines"),
    ],
    "means": ["rule", "eval_omega", "n_runs", "in_hindsight"],
}
"""The columns of tables that may be empty; those of the others are in their rows."""
_FORMATS: dict[Key, str] = {
    **dict.fromkeys(("rho", "partial_rho"), "+.3f"),
    "p_permutation": "p",
    **dict.fromkeys(("delta", "low", "high", "loo_low", "loo_high"), "+.2f"),
}

SIGNALS = {"dev_score": "ρ(dev score, eval)", "criterion": "ρ(−criterion, eval)"}
INTERVAL = "  over families, 95 %"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several runs in tidy tables; scores in percent.

    Attributes
    ----------
    selection : DataFrame
        The table to read: a row for each rule and a column of texts for each run. The last rows are
        rank correlations, marked ``n.s.`` if the interval over families contains zero.
    rules : DataFrame
        The same as numbers.
    correlations : DataFrame
        Rank correlations with intervals over families, two-sided p-values, and the partial
        correlation given strength and family.
    deltas : DataFrame
        The choice of the run minus that of another rule, with the interval of a jackknife over
        machines.
    means : DataFrame
        Means over the runs that have the rule, and over those of two configurations
        ``in_hindsight``.
    notes : tuple of str
        What the runs do not share, and which have too few machines to establish a difference.
    """

    selection: pd.DataFrame
    rules: pd.DataFrame
    correlations: pd.DataFrame
    deltas: pd.DataFrame
    means: pd.DataFrame
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values for JSON."""
        tables = {name: plain_rows(getattr(self, name)) for name in COLUMNS}
        return {"runs": list(self.selection.columns[1:]), **tables, "notes": list(self.notes)}

    def write(self, folder: Path | str) -> list[Path]:
        """Write every table as CSV, Markdown and LaTeX, and all numbers to ``compare.json``."""
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file. Choose a folder for the tables.")
        folder.mkdir(parents=True, exist_ok=True)
        texts = {}
        for name, caption in CAPTIONS.items():
            table = getattr(self, name)
            texts[f"{name}.csv"] = to_csv(table)
            texts[f"{name}.md"] = to_markdown(table, formats=_FORMATS) + "\n"
            label = f"tab:{name}"
            texts[f"{name}.tex"] = to_latex(table, caption, label, formats=_FORMATS) + "\n"
        for file, text in texts.items():
            with atomic_write(folder / file) as temporary:
                temporary.write_text(text, encoding="utf-8")
        write_json(self.to_dict(), folder / "compare.json")
        return [folder / file for file in (*texts, "compare.json")]


def compare_runs(runs: Mapping[str, StudyResult]) -> Comparison:
    """Compare finished studies.

    Parameters
    ----------
    runs : mapping of name to StudyResult
        In the order of the columns.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import pandas as pd
    >>> from daco import StudyResult
    >>> from daco.experiments.compare import compare_runs
    >>> grid = pd.DataFrame({"config": ["raw-k1", "conf-soft-m0-k1"], "crit_dev": [0.6, 0.5],
    ...     "dev_omega": [58.0, 57.0], "eval_omega": [55.0, 59.0]})
    >>> cells = pd.DataFrame(columns=["split", "machine", "config", "balance_ks"])
    >>> run = StudyResult(grid, cells)
    >>> compare_runs({"mine": run}).selection.iloc[8].tolist()
    ['oracle', '59.00']
    """
    import pandas as pd

    if not runs:
        raise InputError("compare_runs was given no run. Pass at least one.")
    if "rule" in runs:
        raise InputError("'rule' heads the column of rules. Give that run another name.")
    rows: dict[str, list[dict[str, Any]]] = {"rules": [], "correlations": [], "deltas": []}
    for name, run in runs.items():
        try:
            choice = _choose_again(run)
            rules = _rules(run, choice)
            deltas = _deltas(run, choice["chosen"]["config"], rules)
            parts = {"rules": rules, "correlations": _correlations(run), "deltas": deltas}
        except DacoError as error:
            raise DataError(f"Run {name!r}: {error}") from None
        for table, part in parts.items():
            rows[table] += [{"run": name, **row} for row in part]
    known = {row["rule"] for row in rows["rules"] if row["config"] is not None}
    rows["rules"] = [r for r in rows["rules"] if r["rule"] in known or r["rule"] not in OPTIONAL]
    rows["means"] = _means(rows["rules"], runs)
    return Comparison(
        selection=_selection_table(list(runs), rows["rules"], rows["correlations"]),
        notes=(*_notes(runs), *_few_machines(rows["deltas"])),
        **{name: pd.DataFrame(rows[name], columns=columns) for name, columns in COLUMNS.items()},
    )


def _choose_again(run: StudyResult) -> dict[str, Any]:
    """The choice again, from the run's tables and under the vetoes it was made with."""
    rows = [row for row in run.selection.get("rows", ()) if row["rule"] == DEFAULT_CONFIG]
    default = {name: row[name] for row in rows for name in ("dev_omega", "eval_omega")}
    return study_choice(
        run.grid,
        run.per_machine,
        veto=run.selection.get("guard", "both"),
        resampled=run.resampled,
        default=default,
    )


def _rules(run: StudyResult, choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pick of every rule in one run; rules that it does not define are empty."""
    rows = {row["rule"]: row for row in choice["rows"]}
    if RAW_CONFIG in set(run.grid["config"]):
        score = _score_of(run, RAW_CONFIG)
        rows["raw"] = {"config": RAW_CONFIG, "eval_omega": score, "labels": "none"}
    names = {"config": "config", "eval_omega": "eval_omega", "sd": "eval_sd", "labels": "labels"}
    return [
        {"rule": title, **{name: rows.get(rule, {}).get(key) for name, key in names.items()}}
        for rule, title in RULES.items()
    ]


def _correlations(run: StudyResult) -> list[dict[str, Any]]:
    found = transfer_statistics(run.grid, run.per_machine)
    rows = []
    for signal in SIGNALS:
        values = found["signals"][signal] or {}
        block, means = values.get("family_block") or {}, values.get("family_means") or {}
        partial = (values.get("partial") or {}).get("given_strength_and_family") or {}
        low, high = block.get("low"), block.get("high")
        rows.append(
            {
                "signal": signal.replace("_", " "),
                "rho": values.get("rho"),
                "low": low,
                "high": high,
                "crosses_zero": None if low is None or high is None else bool(low <= 0 <= high),
                "p_permutation": means.get("p_two_sided"),
                "partial_rho": partial.get("rho"),
                "n_configs": found["n_configs"],
                "n_families": len(found["families"]),
            }
        )
    return rows


def _deltas(run: StudyResult, chosen: str, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    picks = {row["rule"]: row["config"] for row in rules}
    rows = []
    for title in (RULES["dev score"], RULES["fixed"], RULES["raw"]):
        second = picks[title]
        found = None if second is None else compare_scores(run.per_machine, chosen, second)
        if found is not None:
            rows.append({"against": title, **found})
    return rows


def _selection_table(
    names: list[str], rules: list[dict[str, Any]], correlations: list[dict[str, Any]]
) -> pd.DataFrame:
    """The table of texts: scores of the rules, then correlations with their intervals."""
    import pandas as pd

    titles = list(dict.fromkeys(row["rule"] for row in rules))
    table = {"rule": [*titles, *(text for title in SIGNALS.values() for text in (title, INTERVAL))]}
    for run in names:
        table[run] = []
        for row in rules:
            if row["run"] == run:
                spread = "" if row["sd"] is None else f"±{row['sd']:.2f}"
                table[run].append(format_cell(row["eval_omega"]) + spread)
        for row in correlations:
            if row["run"] == run:
                mark = " n.s." if row["crosses_zero"] else ""
                table[run].append(format_cell(row["rho"], "+.2f") + mark)
                table[run].append(interval_text(row["low"], row["high"]))
    return pd.DataFrame(table)


def interval_text(low: float | None, high: float | None) -> str:
    """An interval with signs, or a dash.

    >>> interval_text(-0.09, 0.7), interval_text(None, None)
    ('[−0.09,+0.70]', '–')
    """
    if low is None or high is None:
        return format_cell(None)
    return f"[{format_cell(low, '+.2f')},{format_cell(high, '+.2f')}]"


def _means(rules: list[dict[str, Any]], runs: Mapping[str, StudyResult]) -> list[dict[str, Any]]:
    """Mean score of each rule, and of configurations that did well in hindsight."""
    scores: dict[tuple[str, bool], list[float | None]] = {}
    for row in rules:
        scores.setdefault((row["rule"], False), []).append(row["eval_omega"])
    for config, title in HINDSIGHT.items():
        scores[title, True] = [_score_of(run, config) for run in runs.values()]
    rows = []
    for (title, hindsight), values in scores.items():
        known = [value for value in values if value is not None]
        if known:
            mean = {"eval_omega": sum(known) / len(known), "n_runs": len(known)}
            rows.append({"rule": title, **mean, "in_hindsight": hindsight})
    return rows


def _score_of(run: StudyResult, config: str) -> float | None:
    scores = dict(zip(run.grid["config"], known_column(run.grid, "eval_omega"), strict=True))
    score: float | None = plain(scores.get(config))
    return score


def _few_machines(deltas: list[dict[str, Any]]) -> list[str]:
    counts = {row["run"]: row["n_machines"] for row in deltas}
    sentences = {run: too_few_machines(count) for run, count in counts.items()}
    return [f"{run}: {sentence}" for run, sentence in sentences.items() if sentence]


def _notes(runs: Mapping[str, StudyResult]) -> list[str]:
    notes = []
    grids = {name: set(run.grid["config"]) for name, run in runs.items()}
    if len(set(map(frozenset, grids.values()))) > 1:
        common = len(set.intersection(*grids.values()))
        sizes = ", ".join(f"{name} {len(grid)}" for name, grid in grids.items())
        notes.append(
            f"The runs have different grids ({sizes} configurations; {common} in common): each is "
            "compared on its own."
        )
    for name, run in runs.items():
        if np.isnan(known_column(run.grid, "eval_omega")).all():
            notes.append(f"{name} has no evaluation labels: its scores and correlations are empty.")
        if np.isnan(known_column(run.grid, "dev_omega")).all():
            notes.append(f"{name} has no dev labels: nothing could be guarded there.")
        if PAPER_CONFIG not in grids[name]:
            notes.append(f"The grid of {name} does not have the fixed default, {PAPER_CONFIG}.")
        notes += [f"{name}: {warning}" for warning in run.selection.get("warnings") or ()]
    guards = {name: run.selection.get("guard", "both") for name, run in runs.items()}
    if len(set(guards.values())) > 1:
        listed = ", ".join(f"{name} {guard}" for name, guard in guards.items())
        notes.append(f"The runs chose under different vetoes: {listed}.")
    return notes
