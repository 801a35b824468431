"""Official metrics of score files, matched to the truth by the clips' names.

The official evaluator compares by sorted position and skips a system that lacks a machine. Here
unknown names, clips without a score and machines without a file are errors, all listed at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daco.data.clips import ONE_DOMAIN
from daco.data.dcase import MACHINES, machine_sections, year_of_folders, year_of_names
from daco.data.dcase_truth import truth_year
from daco.errors import DataError, InputError
from daco.evaluation.intervals import machine_jackknife
from daco.evaluation.metrics import (
    bounded_f1_ev,
    decision_metrics,
    f1_ev,
    machine_metrics,
    quantities_of,
)
from daco.evaluation.results import (
    Evaluation,
    MachineEvaluation,
    machine_values,
    summarise_machines,
)
from daco.evaluation.scorefiles import (
    DECISIONS,
    SCORES,
    Key,
    MachineTruth,
    ScoreFile,
    machine_title,
    parse_file_name,
    read_score_files,
    read_truth,
    truth_in_names,
    values_by_clip,
)
from daco.evaluation.statistics import paired_p_value
from daco.text import name_list, quantity

_FROM_NAMES = "file names"


@dataclass(frozen=True)
class Difference:
    """Official score of one system minus that of another on the same machines, in points.

    The 95 % interval is that of :func:`daco.evaluation.intervals.machine_jackknife`, None for one
    machine. The p-value is that of :func:`daco.evaluation.statistics.paired_p_value`.
    """

    first: str
    second: str
    delta: float
    interval: tuple[float, float] | None
    p_value: float
    n_machines: int


@dataclass(frozen=True)
class Ranking:
    """Evaluations of several systems, compared with the best.

    Attributes
    ----------
    evaluations : tuple of Evaluation
        The best system first.
    differences : tuple of Difference
        The best system minus each other one.
    failures : {system: tuple of str}
        Systems that could not be evaluated, with the problems.
    """

    evaluations: tuple[Evaluation, ...]
    differences: tuple[Difference, ...]
    failures: Mapping[str, tuple[str, ...]]


def evaluate_scores(
    folder: Path | str,
    truth: Path | str | None = None,
    *,
    year: int | None = None,
    partial: bool = False,
) -> Evaluation:
    """Compute the official metrics of the score files in a folder.

    Parameters
    ----------
    folder : path
        Score files, and decision files if there are any (:mod:`daco.evaluation.scorefiles`).
    truth : path, optional
        A checkout of the official evaluator. Without it the names of the clips must contain label
        and domain, as those of development sets do.
    year : int, optional
        The year of the data set; by default the one that names or folders give. With `truth` it
        must be the year of the truth. Without, all machines of that year must have score files.
    partial : bool, default=False
        Whether to evaluate although machines are missing.

    Returns
    -------
    Evaluation

    Raises
    ------
    DataError
        Rows are wrong, missing, doubled or not finite, or a machine is missing.

    Examples
    --------
    >>> import tempfile
    >>> from daco.evaluation.scorefiles import write_scores
    >>> folder = Path(tempfile.mkdtemp()) / "system"
    >>> names = [f"section_00_{d}_test_{l}_0000.wav"
    ...          for d in ("source", "target") for l in ("normal", "anomaly")]
    >>> _ = write_scores(folder, "fan", "00", names, [0.1, 0.9, 0.6, 0.4])
    >>> result = evaluate_scores(folder)
    >>> result.machines[0].metrics["auc_target"], round(result.official_score, 2)
    (50.0, 68.85)
    """
    folder = Path(folder).expanduser()
    problems: list[str] = []
    result = _evaluate(folder, folder.resolve().name, truth, year, partial, problems)
    if result is None:
        raise DataError(explained(folder, problems))
    return result


def rank_systems(
    folder: Path | str,
    truth: Path | str | None = None,
    *,
    year: int | None = None,
    partial: bool = False,
) -> Ranking:
    """Evaluate every folder with score files in or below `folder`, such as ``<team>/<system>``.

    Parameters
    ----------
    folder : path
        Systems are named by their path in it.
    truth, year, partial
        As in :func:`evaluate_scores`.

    Returns
    -------
    Ranking
    """
    folder = Path(folder).expanduser()
    evaluations = []
    failures = {}
    for system in find_systems(folder):
        problems: list[str] = []
        name = system.relative_to(folder).as_posix()
        evaluation = _evaluate(system, name, truth, year, partial, problems)
        if evaluation is None:
            failures[name] = tuple(problems)
        else:
            evaluations.append(evaluation)
    evaluations.sort(key=lambda each: (each.partial, -each.official_score, each.system))
    return Ranking(tuple(evaluations), tuple(_differences(evaluations)), failures)


def _differences(evaluations: Sequence[Evaluation]) -> Iterator[Difference]:
    """The first system minus every other one that has the same machines."""
    for second in evaluations[1:]:
        first = evaluations[0]
        keys = [[(m.machine, m.section, m.official) for m in it.machines] for it in (first, second)]
        if keys[0] != keys[1]:
            continue
        one, two = (machine_values(each.machines, each.year) for each in (first, second))
        arithmetic = first.year == 2020
        jackknife = machine_jackknife(one, two, arithmetic=arithmetic) if len(one) > 1 else None
        yield Difference(
            first=first.system,
            second=second.system,
            delta=first.official_score - second.official_score,
            interval=None if jackknife is None else (jackknife.low, jackknife.high),
            p_value=paired_p_value(one, two, arithmetic=arithmetic),
            n_machines=len(one),
        )


def find_systems(folder: Path) -> list[Path]:
    """Folders with score files, `folder` itself and those below it."""
    return sorted({path.parent for path in folder.rglob(f"{SCORES}_*.csv")})


def explained(folder: Path | str, problems: Sequence[str]) -> str:
    """One report of all problems, and why the official evaluator may not report them."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return (
        f"{folder} cannot be evaluated, {quantity(problems, 'problem')}:\n{listed}\n"
        "The official evaluator matches rows by their sorted position: it accepts wrong names "
        "silently, and skips a system that lacks a machine."
    )


def _evaluate(
    folder: Path,
    system: str,
    truth: Path | str | None,
    year: int | None,
    partial: bool,
    problems: list[str],
) -> Evaluation | None:
    """The evaluation, or None and the reasons in `problems`."""
    notes: list[str] = []
    files = read_score_files(folder, problems)
    scores, decisions = (
        {(file.machine, file.section): file for file in files if file.kind == kind}
        for kind in (SCORES, DECISIONS)
    )
    year = _one_year(files, year, problems)
    if truth is None:
        known, wanted = _truth_in_names(scores, problems, notes), _machines_of(year, scores)
    else:
        known = read_truth(truth, year=year, oddities=notes)
        wanted = set(known)
        extra = [file.path.name for key, file in scores.items() if key not in known]
        if extra:
            notes.append(
                f"{quantity(extra, 'score file')} without truth, left out: {name_list(extra)}."
            )
    missing = _missing(folder, wanted, set(decisions), partial, problems)
    measured = year or year_of_names(name for file in files for name in file.names)
    measured = measured or (None if truth is None else truth_year(truth))
    measured = measured or year_of_folders(folder.resolve().parts)
    machines = []
    for key in sorted(set(known) & set(scores)):
        files_of_key = scores[key], decisions.get(key)
        machine = _machine(key, known[key], *files_of_key, measured, problems)
        if machine is not None:
            machines.append(machine)
    if not machines and not problems:
        problems.append("no score file belongs to a machine of the truth.")
    if len({each.official for each in machines}) > 1:
        problems.append("some machines have one domain, some several. Evaluate them separately.")
    if problems:
        return None
    source = _FROM_NAMES if truth is None else str(truth)
    return summarise_machines(system, source, machines, missing, notes, measured)


def _truth_in_names(
    scores: Mapping[Key, ScoreFile], problems: list[str], notes: list[str]
) -> dict[Key, MachineTruth]:
    """Labels and domains from the names of the clips, where these have them."""
    parsed = {key: truth_in_names(file.names) for key, file in scores.items()}
    silent = [scores[key].path.name for key, names in parsed.items() if names is None]
    if silent:
        problems.append(
            f"{quantity(silent, 'file')} with names that contain no label and domain "
            f"({name_list(silent, 3)}). Pass a checkout of the official evaluator as truth."
        )
    notes.append(
        "Labels and domains come from the file names, so a missing clip cannot be noticed."
    )
    return {key: names for key, names in parsed.items() if names is not None}


def _missing(
    folder: Path, wanted: set[Key], decided: set[Key], partial: bool, problems: list[str]
) -> list[str]:
    """The machines, or sections, that have no score file."""
    # A file with problems is in `problems` already, and not missing.
    parsed_names = (parse_file_name(path.name) for path in folder.iterdir())
    present = {(each[1], each[2]) for each in parsed_names if each and each[0] == SCORES}
    noun = "section" if len(wanted) > len({machine for machine, _ in wanted}) else "machine"
    missing = [
        f"{machine} {section}" if noun == "section" else machine_title(machine, section)
        for machine, section in sorted(wanted - present)
    ]
    if missing and not partial:
        problems.append(
            f"no score file for {quantity(missing, noun)} of {len(wanted)}: "
            f"{name_list(missing, 20)}."
        )
    if alone := [machine_title(*key) for key in sorted(decided - present)]:
        problems.append(f"decisions without scores for {name_list(alone)}.")
    return missing


def _machine(
    key: Key,
    truth: MachineTruth,
    scores: ScoreFile,
    decisions: ScoreFile | None,
    year: int | None,
    problems: list[str],
) -> MachineEvaluation | None:
    """Metrics of one machine; None where rows do not fit."""
    before = len(problems)
    values = values_by_clip(scores, truth, problems)
    alarms = None if decisions is None else values_by_clip(decisions, truth, problems)
    if len(problems) > before or values is None:
        return None
    labels = np.array([label for label, _ in truth.clips.values()])
    domains = np.array([domain for _, domain in truth.clips.values()])
    absent = {"source", "target"} - set(domains[labels == 0])
    if absent and set(domains) != {ONE_DOMAIN}:
        problems.append(
            f"{scores.path.name}: no normal clip of the {name_list(sorted(absent))} domain."
        )
        return None
    try:
        official = quantities_of(year, set(domains))
        everything = machine_metrics(values, labels, domains, ("auc", "pauc"))
        fractions = {} if "auc" in official else {"auc_all": everything["auc"]}
        fractions |= machine_metrics(values, labels, domains, official)
        fractions["f1_ev"] = f1_ev(values, labels)
        fractions["bounded_f1_ev"] = bounded_f1_ev(values, labels)
        if alarms is not None:
            fractions |= decision_metrics(alarms, labels, domains)
    except InputError as error:
        problems.append(f"{scores.path.name}: {error}")
        return None
    percents = {name: 100 * each for name, each in fractions.items()}
    return MachineEvaluation(*key, len(labels), percents, official)


def _one_year(files: Sequence[ScoreFile], year: int | None, problems: list[str]) -> int | None:
    years = {file.year for file in files if file.year} | ({year} if year else set())
    if len(years) > 1:
        listed = name_list(map(str, sorted(years)))
        problems.append(f"files of several years: {listed}. Evaluate one year at a time.")
    return year or next(iter(years), None)


def _machines_of(year: int | None, scores: Mapping[Key, ScoreFile]) -> set[Key]:
    """The machines of the year's development or evaluation set, whichever these are of."""
    if year is None:
        return set(scores)
    if year not in MACHINES:
        raise InputError(
            f"The machines of {year} are not known. Give a year from 2020 to {max(MACHINES)}."
        )
    return max(machine_sections(year).values(), key=lambda keys: len(keys & set(scores)))
