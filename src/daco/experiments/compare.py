"""Compare studies of different networks, readouts or years, and scores of other systems.

Every run is judged on its own grid and machines, with the same rules. Differences between runs are
paired over the evaluation machines that both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from daco.errors import InputError
from daco.evaluation.intervals import too_few_machines
from daco.evaluation.official import metrics_table, score_difference, score_estimate
from daco.evaluation.system_scores import match_names
from daco.experiments.result import StudyResult

_COLUMNS = {
    "rules": ["run", "rule", "configuration", "eval_score", "eval_low", "eval_high", "n_machines"],
    "choices": ["run", "rule", "configuration", "stability", "reason"],
    "transfer": ["run", "signal", "rho", "low", "high", "over", "n", "p"],
    "differences": ["run", "first", "against", "second", "value", "low", "high", "n", "over"],
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several runs in tables; scores in percent, intervals over machines.

    Attributes
    ----------
    rules : DataFrame
        What each rule picks in each run, and its evaluation score. A system has one row.
    choices : DataFrame
        What each run chose, by which rule and why.
    transfer : DataFrame
        Rank correlations with the evaluation score, as :meth:`StudyResult.transfer` returns them.
    differences : DataFrame
        The choice of a run minus what other rules pick, other runs choose or systems score.
    notes : tuple of str
        What the runs do not share, and which have too few machines to establish a difference.
    """

    rules: pd.DataFrame
    choices: pd.DataFrame
    transfer: pd.DataFrame
    differences: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def runs(self) -> list[str]:
        """The names of runs and systems."""
        return list(dict.fromkeys(self.rules["run"]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        tables = {name: getattr(self, name).astype(object) for name in _COLUMNS}
        rows = {
            name: table.where(table.notna(), None).to_dict("records")
            for name, table in tables.items()
        }
        return {"runs": self.runs, **rows, "notes": list(self.notes)}


def compare_runs(
    runs: Mapping[str, StudyResult], systems: Mapping[str, pd.DataFrame] | None = None
) -> Comparison:
    """Compare finished studies, and other systems with them.

    Parameters
    ----------
    runs : mapping of name to StudyResult
    systems : mapping of name to DataFrame, optional
        Scores as :func:`daco.evaluation.system_scores.read_system` reads them. Their test clips are
        matched by name with those of the first run that has them, whose labels count.

    Returns
    -------
    Comparison
    """
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in _COLUMNS}
    chosen = {}
    for name, run in runs.items():
        choice, metrics = run.run["choice"], run.metrics()
        rules, differences = run.rules(), run.differences(clips=False)
        parts = {
            "rules": rules,
            "choices": rules[rules["rule"] == choice["rule"]].assign(reason=choice["reason"]),
            "transfer": run.transfer(),
            "differences": differences.rename(columns={"rules": "against"}),
        }
        for table, part in parts.items():
            tables[table].append(part.assign(run=name))
        is_chosen = (metrics["set"] == "eval") & (metrics["configuration"] == choice["config"])
        chosen[name] = metrics[is_chosen], run.years.get("eval")
    for name, scores in (systems or {}).items():
        chosen[name] = own, year = _system_metrics(name, scores, runs)
        score = score_estimate(own, year)
        values = [name, "system", name, score.value, score.low, score.high, score.n]
        tables["rules"].append(pd.DataFrame([values], columns=_COLUMNS["rules"]))
    between = pd.DataFrame(_between(chosen), columns=_COLUMNS["differences"])
    tables["differences"].append(between)
    return Comparison(
        **{name: _stacked(parts, _COLUMNS[name]) for name, parts in tables.items()},
        notes=tuple(_notes(runs)),
    )


def _stacked(parts: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    known = [part.reindex(columns=columns).astype(object) for part in parts if len(part)]
    if not known:
        return pd.DataFrame(columns=columns)
    return pd.concat(known, ignore_index=True).infer_objects()


def _system_metrics(
    name: str, scores: pd.DataFrame, runs: Mapping[str, StudyResult]
) -> tuple[pd.DataFrame, int | None]:
    """Metrics of a system on the evaluation clips of the first run that has its machines."""
    keys = ["machine", "section"]
    groups = dict(iter(scores[scores["split"] == "test"].groupby(keys)))
    for run in runs.values():
        clips = run.test_clips[run.test_clips["set"] == "eval"]
        parts = []
        for key, rows in clips.groupby(keys, sort=False):
            if key in groups:
                where = f"System {name!r}, {key[0]}: the table"
                order = match_names(rows["clip"], groups[key]["clip"], where)
                values = groups[key]["score"].to_numpy(float)[order]
                parts.append(rows[["set", *keys, "domain", "label"]].assign(**{name: values}))
        if parts:
            year = run.years["eval"]
            return metrics_table(pd.concat(parts), [name], year), year
    raise InputError(
        f"System {name!r} has scores of no evaluation machine of the runs. Machines are matched by "
        "name and section."
    )


def _between(chosen: Mapping[str, tuple[pd.DataFrame, int | None]]) -> Iterator[list[Any]]:
    """Differences between runs and systems of one year, over the machines that both have."""
    for (first, (one, year)), (second, (two, other)) in combinations(chosen.items(), 2):
        found = score_difference(one, two, year)
        if found.n and year == other:
            names = [each["configuration"].iloc[0] for each in (one, two)]
            ends = found.value, found.low, found.high, found.n, "machines"
            yield [first, names[0], second, names[1], *ends]


def _notes(runs: Mapping[str, StudyResult]) -> Iterator[str]:
    grids = {name: frozenset(run.candidates) for name, run in runs.items()}
    if len(set(grids.values())) > 1:
        sizes = ", ".join(f"{name} {len(grid)}" for name, grid in grids.items())
        common = len(frozenset.intersection(*grids.values()))
        yield (
            f"The runs have different grids ({sizes} configurations; {common} in common): each is "
            "compared on its own."
        )
    for name, run in runs.items():
        labelled = {each["set"] for each in run.run["machines"] if each["labelled"]}
        if "eval" not in labelled:
            yield f"{name} has no evaluation labels: its scores and correlations are empty."
        machines = {each["machine"] for each in run.run["machines"] if each["set"] == "eval"}
        if "eval" in labelled and (caution := too_few_machines(len(machines))):
            yield f"{name}: {caution}"
