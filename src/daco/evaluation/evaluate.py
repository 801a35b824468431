"""Official metrics of one system or many from their score files.

The official evaluator compares by sorted position and skips a system that lacks a machine. Here
unknown names, clips without a score and machines without a file are errors, all listed at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from daco.data.clips import stem_of
from daco.data.dcase import MACHINES, machine_sections, year_of_folders, year_of_names
from daco.data.dcase_truth import read_truth
from daco.errors import DataError, InputError
from daco.evaluation.intervals import paired_p_value
from daco.evaluation.metrics import EPSILON, decision_metrics, grid_metrics, quantities_of, rule_of
from daco.evaluation.official import machine_scores, score_differences, score_estimates
from daco.evaluation.scorefiles import (
    DECISIONS,
    SCORES,
    machine_title,
    read_score_files,
)
from daco.evaluation.system_scores import is_run, read_system
from daco.evaluation.truth import (
    SECTION,
    Problems,
    Sections,
    match_rows,
    own_truth,
    sections,
    truth_table,
)
from daco.text import name_list, quantity

_KEYS = ["system", *SECTION, "clips"]
_DIFFERENCES = ["first", "second", "delta", "low", "high", "n_machines", "p_value"]


class EvaluationError(DataError):
    """A system cannot be evaluated; ``problems`` has one sentence for each reason."""

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        listed = "\n".join(f"- {problem}" for problem in problems)
        super().__init__(
            f"{path} cannot be evaluated, {quantity(problems, 'problem')}:\n{listed}\n"
            "The official evaluator matches rows by their sorted position: it accepts wrong names "
            "silently, and skips a system that lacks a machine."
        )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The metrics of systems; all numbers in percent.

    Attributes
    ----------
    systems : DataFrame
        One row per system, the best first: ``system, official_score, low, high`` (95 % interval
        over machines, sections merged), ``n_machines``, ``missing`` machines, and the mean of each
        metric that all machines have. A score with missing machines cannot be compared.
    machines : DataFrame
        ``system, machine, section, clips`` and the metrics of each machine and section.
    official : tuple of str
        The metrics that count in the official score.
    differences : DataFrame
        The best system minus each other one on the same machines, in points: ``first, second,
        delta, low, high, n_machines, p_value``, paired over machines.
    failures : {system: list of str}
        The problems of systems that could not be evaluated.
    year : int or None
        The year whose metrics these are; None for those from 2022 on.
    notes : tuple of str
        Remarks in sentences.
    """

    systems: pd.DataFrame
    machines: pd.DataFrame
    official: tuple[str, ...]
    differences: pd.DataFrame
    failures: dict[str, list[str]]
    year: int | None
    notes: tuple[str, ...]

    @property
    def official_score(self) -> float:
        """The official score of the best system."""
        return float(self.systems["official_score"].iloc[0])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not known is left out of a row."""
        document: dict[str, Any] = dict(vars(self))
        for name in ("systems", "machines", "differences"):
            rows = document[name].to_dict("records")
            document[name] = [{k: v for k, v in row.items() if v == v} for row in rows]
        return document


def evaluate_scores(
    path: Path | str,
    truth: Path | str | None = None,
    *,
    year: int | None = None,
    partial: bool = False,
) -> Evaluation:
    """Compute the official metrics of a system, or of several in the folders below a path.

    Parameters
    ----------
    path : path
        A folder of score files, and decision files if there are any; a folder that has such
        folders, as ``<team>/<system>``; or a table or run that
        :func:`daco.evaluation.system_scores.read_system` reads (of a run, the evaluation set).
    truth : path, optional
        A checkout of the official evaluator. Without it the names of the clips, or the columns of
        the table, must have label and domain, as those of development sets do.
    year : int, optional
        The year of the data set; by default the one that names or folders give. With `truth` it
        must be the year of the truth. Without, all machines of that year must have scores.
    partial : bool, default=False
        Whether to evaluate although machines are missing.

    Returns
    -------
    Evaluation

    Raises
    ------
    EvaluationError
        Rows of the only system are wrong, missing, doubled or not finite, or a machine is missing.

    Examples
    --------
    >>> import tempfile
    >>> from daco.evaluation.scorefiles import write_scores
    >>> folder = Path(tempfile.mkdtemp()) / "system"
    >>> names = [f"section_00_{d}_test_{l}_0000.wav"
    ...          for d in ("source", "target") for l in ("normal", "anomaly")]
    >>> _ = write_scores(folder, "fan", "00", names, [0.1, 0.9, 0.6, 0.4])
    >>> result = evaluate_scores(folder)
    >>> round(result.official_score, 2), result.official
    (68.85, ('auc_source', 'auc_target', 'pauc'))
    """
    path = Path(path).expanduser()
    folders = sorted({file.parent for file in path.rglob(f"{SCORES}_*.csv")}) or [path]
    names = [folder.relative_to(path).as_posix() for folder in folders]
    systems = dict(zip(names if len(names) > 1 else [path.resolve().name], folders, strict=True))
    problems: dict[str, list[str]] = {name: [] for name in systems}
    rows = pd.concat(
        [_test_rows(each, problems[name]).assign(system=name) for name, each in systems.items()],
        ignore_index=True,
    )
    notes: list[str] = []
    official_truth = None if truth is None else read_truth(truth)
    if official_truth is not None:
        known = truth_table(official_truth, year, notes)
    else:
        known = own_truth(rows, problems)
        notes.append("Labels and domains are those of the scores: a missing clip is not noticed.")
    files = rows.drop_duplicates(["system", "kind", *SECTION, "file"])
    year = year or (official_truth.year if official_truth else None)
    year = _one_year(files, year, problems)
    scored = files[files["kind"] == SCORES]
    wanted = sections(known) if truth else _machines_of(year, sections(scored))
    missing = _missing(files, wanted, partial, problems)
    year = year or year_of_names(rows["name"].unique()) or year_of_folders(path.resolve().parts)
    machines, official = _measure(match_rows(rows, known, problems), year, problems)
    for name in set(systems) - set(machines["system"]):
        problems[name] = problems[name] or ["no score file belongs to a machine of the truth."]
    failures = {name: each for name, each in problems.items() if each}
    if failures and len(systems) == 1:
        raise EvaluationError(path, *failures.values())
    machines = machines[~machines["system"].isin(failures)].reset_index(drop=True)
    if extra := sections(scored) - wanted:
        titles = name_list(sorted(machine_title(*key) for key in extra))
        why = f"is not of {year}, and counts" if truth is None else "has no truth, and is left out"
        notes.append(f"{titles} {why}.")
    ranking, differences = _summary(machines, official, missing, year)
    return Evaluation(ranking, machines, official, differences, failures, year, tuple(notes))


def _test_rows(path: Path, problems: list[str]) -> pd.DataFrame:
    """Scores and decisions of test clips, one row each, as `read_score_files` returns them."""
    if not path.is_file() and not is_run(path):
        rows = read_score_files(path, problems)
        return rows[rows["split"] == "test"]
    table = read_system(path).rename(columns={"score": SCORES, "decision": DECISIONS})
    table = table[table["split"] == "test"].assign(name=table["clip"].map(stem_of))
    if "set" in table:
        table = table[table["set"] == max(table["set"])]  # "eval" if there is that set
    if table.duplicated([*SECTION, "name"]).any():  # such as normal/1.wav and abnormal/1.wav
        table["name"] = table["clip"]
    kinds = [kind for kind in (SCORES, DECISIONS) if kind in table]
    rows = table.melt([*SECTION, "name", "domain", "label"], kinds, "kind").dropna(subset="value")
    return rows.assign(file=path.name, year=None)


def _one_year(files: pd.DataFrame, year: int | None, problems: Problems) -> int | None:
    """The given year, or that of file names; systems of another year are problems."""
    year = year or next((int(each) for each in files["year"].dropna()), None)
    for system, years in files.dropna(subset="year").groupby("system")["year"]:
        if different := {int(each) for each in years} - {year}:
            listed = name_list(map(str, sorted(different | {year or 0})))
            problems[str(system)].append(
                f"files of several years: {listed}. Evaluate one year at a time."
            )
    return year


def _machines_of(year: int | None, scored: Sections) -> Sections:
    """The machines of the year's development or evaluation set, whichever these are of."""
    if year is None:
        return scored
    if year not in MACHINES:
        raise InputError(
            f"The machines of {year} are not known. Give a year from 2020 to {max(MACHINES)}."
        )
    return {*max(machine_sections(year).values(), key=lambda keys: len(keys & scored))}


def _missing(
    files: pd.DataFrame, wanted: Sections, partial: bool, problems: Problems
) -> dict[str, list[str]]:
    """The machines, or sections, of which each system has no scores."""
    several = len(wanted) > len({machine for machine, _ in wanted})
    found = {key: sections(own) for key, own in files.groupby(["system", "kind"])}
    missing = {}
    for system in problems:
        present = found.get((system, SCORES), set())
        absent = sorted(wanted - present)
        missing[system] = [machine_title(key[0], key[1], not several) for key in absent]
        if absent and not partial:
            count = quantity(absent, "section" if several else "machine")
            listed = name_list(missing[system], 20)
            problems[system].append(f"no valid score file for {count} of {len(wanted)}: {listed}.")
        if alone := sorted(found.get((system, DECISIONS), set()) - present):
            titles = name_list(machine_title(*key) for key in alone)
            problems[system].append(f"decisions without scores for {titles}.")
    return missing


def _measure(
    rows: pd.DataFrame, year: int | None, problems: Problems
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """All metrics of each system and section in percent, and the names of those that count."""
    measured, official = [], set()
    for (machine, section), own in rows.groupby(SECTION):
        clips = ["clip", "domain", "label"]
        tables = {
            str(kind): each.pivot(index=clips, columns="system", values="value").dropna(axis=1)
            for kind, each in own.groupby("kind")
        }
        if SCORES not in tables:
            continue
        names = quantities_of(year, set(own["domain"]))
        try:
            metrics = _section_metrics(tables[SCORES], tables.get(DECISIONS), names)
        except InputError as error:
            for system, file in own.groupby("system")["file"].first().items():
                problems[str(system)].append(f"{file}: {error}")
            continue
        n_clips = len(tables[SCORES])
        named: dict[str, Any] = {"machine": machine, "section": section, "clips": n_clips}
        metrics = (100 * metrics).assign(**named)
        measured.append(metrics.rename_axis("system").reset_index())
        official.add(names)
    if len(official) > 1:
        for each in problems.values():
            each.append("some machines have one domain, some several. Evaluate them separately.")
    if not measured:
        return pd.DataFrame(columns=_KEYS), ()
    machines = pd.concat(measured, ignore_index=True)
    return machines[[*_KEYS, *(name for name in machines if name not in _KEYS)]], official.pop()


def _section_metrics(
    scores: pd.DataFrame, decisions: pd.DataFrame | None, official: Sequence[str]
) -> pd.DataFrame:
    """The metrics of each system (rows) on the clips of one section, as fractions."""
    labels, domains = (
        scores.index.get_level_values(name).to_numpy() for name in ("label", "domain")
    )
    if len(named := {"source", "target"} & set(domains)) == 1:
        (absent,) = {"source", "target"} - named
        raise InputError(f"no normal clip of the {absent} domain.")
    values, names = grid_metrics(scores, labels, domains, official)
    metrics = pd.DataFrame(values, scores.columns, names)
    if decisions is None or decisions.empty:
        return metrics
    decided = {system: decision_metrics(decisions[system], labels, domains) for system in decisions}
    return metrics.join(pd.DataFrame.from_dict(decided, orient="index"))


def _summary(
    machines: pd.DataFrame,
    official: Sequence[str],
    missing: Mapping[str, list[str]],
    year: int | None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables `systems` and `differences`."""
    metrics = machines[["system", *SECTION, *official]].rename(columns={"system": "configuration"})
    systems = score_estimates(metrics, year).rename_axis("system").reset_index()
    systems = systems.rename(columns={"value": "official_score", "n": "n_machines"})
    systems["missing"] = systems["system"].map(missing)
    systems = systems.join(_means(machines, year), on="system")
    systems = systems.sort_values(["official_score", "system"], ascending=[False, True])
    systems = systems.sort_values("missing", key=lambda column: column.map(bool), kind="stable")
    whole = [name for name in systems["system"] if not missing[name]]
    differences = _differences(metrics[metrics["configuration"].isin(whole)], whole, year)
    return systems.reset_index(drop=True), differences


def _means(machines: pd.DataFrame, year: int | None) -> pd.DataFrame:
    """The mean of each metric that all sections of a system have: harmonic, or as in 2020."""
    values = machines.drop(columns=["section", "clips"]).set_index(["system", "machine"])
    if rule_of(year).mean == "harmonic":
        means = 1 / (1 / values.clip(lower=100 * EPSILON)).groupby(level="system").mean()
    else:
        of_machines = values.groupby(level=["system", "machine"]).mean()
        means = of_machines.groupby(level="system").mean()
    return means.where(values.notna().groupby(level="system").all())


def _differences(metrics: pd.DataFrame, systems: Sequence[str], year: int | None) -> pd.DataFrame:
    """The first system minus every other one; all have the same machines."""
    if len(systems) < 2:
        return pd.DataFrame(columns=_DIFFERENCES)
    first, *others = systems
    table = score_differences(metrics, first, year).loc[others].rename_axis("second").reset_index()
    scores = machine_scores(metrics, year).T  # a row for each machine
    arithmetic = rule_of(year).mean == "arithmetic"
    table["p_value"] = [
        paired_p_value(scores[[first]], scores[[name]], arithmetic=arithmetic) for name in others
    ]
    table = table.rename(columns={"value": "delta", "n": "n_machines"})
    return table.assign(first=first)[_DIFFERENCES]
