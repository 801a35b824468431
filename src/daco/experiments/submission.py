"""The challenge's submission package: scores, decisions and a meta file of one system in a zip.

The same run gives the same bytes: members are sorted, stored as they are, and have no date.
"""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from daco.data.dcase import MACHINES, machine_sections
from daco.detector.decision import is_anomalous, require_rate
from daco.errors import DataError, InputError
from daco.evaluation.scorefiles import (
    DECISIONS,
    SCORES,
    machine_title,
    parse_file_name,
    parse_rows,
    write_decisions,
    write_scores,
)
from daco.experiments import highlights
from daco.experiments.metafile import Author, meta_document, to_yaml
from daco.experiments.study_tables import MachineScores, StudyTables
from daco.experiments.thresholds import supported_rate
from daco.files.atomic import atomic_write
from daco.method.config import ScoreConfig
from daco.text import name_list, quantity

TASK = "task2"

_LABEL = re.compile(r"[A-Za-z][A-Za-z-]*_[A-Za-z0-9-]+_task2_[1-4]")
_LABEL_LINE = re.compile(r'^  label: "?([^"\n]*?)"?\s*$', re.MULTILINE)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first date a zip can have


@dataclass(frozen=True)
class Submission:
    """A package that has been checked.

    Attributes
    ----------
    path : Path
        The zip file.
    systems : {label: {machine: int}}
        Number of clips of each machine, by the label of the system.
    year : int or None
        The year whose evaluation machines these are; None if unknown.
    notes : tuple of str
        What to look at before you send it.
    """

    path: Path
    systems: Mapping[str, Mapping[str, int]]
    year: int | None
    notes: tuple[str, ...] = ()


def write_machine_scores(
    folder: Path, machine: MachineScores, config: str, rate: float
) -> tuple[Path, Path]:
    """Write scores, and decisions for a false-alarm rate, of one machine; return their paths."""
    scores = machine.of(config)
    alarms = is_anomalous(machine.p_values(config), rate)
    clips = machine.machine, machine.section, machine.names.tolist()
    return write_scores(folder, *clips, scores), write_decisions(folder, *clips, alarms)


def require_label(label: str) -> None:
    """An error unless a system may be called so.

    >>> require_label("Kato_Hitachi_task2_1")
    """
    if _LABEL.fullmatch(label):
        return
    number = re.search(r"_task2_(.*)$", label)
    if number is None:
        why = "It does not end in _task2_1."
    elif number[1] not in ("1", "2", "3", "4"):
        why = f"A team sends at most four systems, 1 to 4; this one is {number[1]!r}."
    else:
        why = "Names are of letters, digits and hyphens, joined by one underscore."
    raise InputError(
        f"The label {label!r} is not <last name of the corresponding author>_<institute>_task2_"
        f"<1-4>, such as Kato_Hitachi_task2_1. {why}"
    )


def write_submission(
    run: StudyTables,
    label: str,
    out: Path | str,
    *,
    config: str | None = None,
    authors: Sequence[Author] = (),
    report: Path | None = None,
    false_alarm_rate: float | None = None,
) -> Submission:
    """Write the package for the evaluation machines of a run, and check it by reading it back.

    Parameters
    ----------
    run : StudyTables
        A study with the scores of its machines.
    label : str
        ``<LastName>_<Institute>_task2_<1-4>``.
    out : path
        The zip file.
    config : str, optional
        By default the configuration that the run chose. Others need ``--scores`` of the study,
        except daco's default, ``blend``.
    authors : sequence of Author
        Authors for the meta file, as :func:`daco.experiments.metafile.read_authors` returns them.
    report : path, optional
        The technical report (PDF).
    false_alarm_rate : float, optional
        The rate for which decisions are made; by default that of the run.

    Returns
    -------
    Submission
    """
    require_label(label)
    out = Path(out)
    if out.suffix != ".zip":
        raise InputError(f"A submission is a zip file: {out} must end in .zip.")
    config = ScoreConfig.parse(config).name if config else chosen_config(run)
    rate = highlights.false_alarm_rate(run) if false_alarm_rate is None else false_alarm_rate
    require_rate(rate)
    machines = [machine for machine in run.machine_scores() if machine.split == "eval"]
    if not machines:
        raise DataError(
            f"The run {run.folder} has no scores of evaluation machines. Run the study with their "
            "embeddings too."
        )
    meta = to_yaml(meta_document(run, label, config, rate, authors))
    members = {f"{TASK}/{label}/{label}.meta.yaml": meta.encode()}
    with tempfile.TemporaryDirectory() as folder:
        for machine in machines:
            write_machine_scores(Path(folder), machine, config, rate)
        for path in sorted(Path(folder).iterdir()):
            members[f"{TASK}/{label}/{path.name}"] = path.read_bytes()
    if report is not None:
        members[f"{TASK}/{label}.technical_report.pdf"] = _read_pdf(report)
    with atomic_write(out) as temporary:
        temporary.write_bytes(_zip(members))
        checked = validate_submission(temporary)
    notes = [*checked.notes, *_threshold_notes(machines, rate)]
    if not authors:
        notes.append("The meta file names no authors.")
    if report is None:
        notes.append("The technical report is missing.")
    return replace(checked, path=out, notes=tuple(notes))


def chosen_config(run: StudyTables) -> str:
    """The configuration that a run chose."""
    chosen = highlights.chosen_config(run)
    if not chosen:
        raise InputError(
            f"The run {run.folder} does not state which configuration it chose. Name one "
            "(--config)."
        )
    return chosen


def validate_submission(path: Path | str) -> Submission:
    """Check names, labels, clips and values of a package; a `DataError` lists all problems.

    Parameters
    ----------
    path : path
        The zip file.

    Returns
    -------
    Submission
    """
    path = Path(path)
    problems: list[str] = []
    folders: dict[str, dict[str, bytes]] = defaultdict(dict)
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                parts = PurePosixPath(info.filename).parts
                if info.is_dir():
                    continue
                if len(parts) == 3 and parts[0] == TASK:
                    folders[parts[1]][parts[2]] = archive.read(info)
                elif not (len(parts) == 2 and parts[0] == TASK and parts[1].endswith(".pdf")):
                    problems.append(f"{name_list([info.filename])} is not in {TASK}/<label>/.")
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a zip file: {error}.") from None
    if not 1 <= len(folders) <= 4:
        problems.append(f"{quantity(len(folders), 'system')}; a team sends one to four.")
    systems = {
        label: _check_system(label, files, problems) for label, files in sorted(folders.items())
    }
    if len({frozenset(clips.items()) for clips in systems.values()}) > 1:
        problems.append("the systems do not have the same machines and numbers of clips.")
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise DataError(f"{path} is no submission, {quantity(problems, 'problem')}:\n{listed}")
    machines = set(next(iter(systems.values())))
    for year in MACHINES:
        if machines == {machine_title(*key) for key in machine_sections(year)["eval"]}:
            return Submission(path, systems, year)
    note = (
        f"{name_list(sorted(machines), 9)}: not the evaluation machines of any year from "
        f"{min(MACHINES)} to {max(MACHINES)}."
    )
    return Submission(path, systems, None, (note,))


def _check_system(label: str, files: Mapping[str, bytes], problems: list[str]) -> dict[str, int]:
    """The number of clips of each machine of a system; what is wrong is added to the problems."""
    where = f"{TASK}/{name_list([label])}"
    if not _LABEL.fullmatch(label):
        problems.append(f"{where} is not a label such as Kato_Hitachi_task2_1.")
    tables: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {SCORES: {}, DECISIONS: {}}
    for name, content in sorted(files.items()):
        place, text = f"{where}/{name_list([name])}", content.decode("utf-8", "replace")
        parsed = parse_file_name(name)
        if name == f"{label}.meta.yaml":
            found = _LABEL_LINE.search(text)
            if found is None or found[1] != label:
                stated = "none" if found is None else found[1]
                problems.append(f"{place}: its label is {stated}, not {label}.")
        elif parsed is None:
            problems.append(f"{place} does not belong here.")
        else:
            kind, machine, section, _ = parsed
            names = parse_rows(text, kind, place, problems)[0]
            tables[kind][machine, section] = tables[kind].get((machine, section), ()) + names
    if f"{label}.meta.yaml" not in files:
        problems.append(f"{where}/{label}.meta.yaml is missing.")
    scores, decisions = tables[SCORES], tables[DECISIONS]
    if not scores:
        problems.append(f"{where} has no scores.")
    for key in sorted(scores.keys() | decisions.keys()):
        if set(scores.get(key, ())) != set(decisions.get(key, ())):
            problems.append(
                f"{where}: scores and decisions of {machine_title(*key)} are not of the same clips."
            )
    return {machine_title(*key): len(names) for key, names in scores.items()}


def _zip(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(members.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3  # the same bytes on every system
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return buffer.getvalue()


def _read_pdf(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"The report {path} cannot be read: {error.strerror}.") from None
    if not content.startswith(b"%PDF-"):
        raise InputError(f"The report {path} is not a PDF file.")
    return content


def _threshold_notes(machines: Sequence[MachineScores], rate: float) -> list[str]:
    floors = {machine.machine: supported_rate(machine.own_domains.tolist()) for machine in machines}
    low = [name for name, floor in floors.items() if rate < floor]
    if not low:
        return []
    return [
        f"The false-alarm rate {rate:g} is below {max(floors.values()):.3g}, the smallest that "
        f"the normal clips of {name_list(low)} support: p-values are extrapolated."
    ]
