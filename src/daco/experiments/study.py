"""The study: a grid of configurations over machines, from embedding tables to two tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
from joblib import cpu_count

from daco.compute import run as run_each
from daco.data.table import EmbeddingTable
from daco.detector.decision import FALSE_ALARM_RATE, require_rate
from daco.errors import DacoError, DataError, InputError
from daco.evaluation.system_scores import RUN_SCHEMA
from daco.experiments.grids import mixed_grid, system_base
from daco.experiments.inputs import (
    DomainNames,
    Source,
    name_domains,
    read_tables,
    year_of,
)
from daco.experiments.machine import MachineRows, Settings, key_of, study_machine
from daco.experiments.machine_data import MachineData, all_machines, left_out, require_some
from daco.experiments.provenance import input_facts, leaked_clips, missing_parts, platform_facts
from daco.experiments.result import StudyResult
from daco.experiments.run_folder import RunFolder
from daco.experiments.systems import Systems, has_normals, read_systems, with_systems
from daco.files.remote import is_remote, require_local
from daco.method.criterion import CHOICE_SPLITS
from daco.method.engine import refuse_oracle
from daco.method.external import Candidates
from daco.method.selection import parse_rule
from daco.synthetic.fault_tables import faults_of, read_faults
from daco.validation import is_whole
from daco.version import __version__

if TYPE_CHECKING:
    from daco.method.selection import Rule

Progress = Callable[[str, int, int], None]
"""Called with the stage, the number of machines done, and their total."""

Key = tuple[str, str, str]
"""Set, machine and section."""

_FEW = 3  # machines that are studied in this process by default: processes take a second to start
_THREADS = 4  # workers up to which threads are faster than processes, which load everything anew


def study(
    dev: Source,
    eval: Source | None = None,
    *,
    truth: Path | str | None = None,
    grid: str | int | Path | Candidates = "51",
    systems: Systems | None = None,
    faults: Source | Iterable[Source] = (),
    rule: Rule | str = "guarded",
    baselines: bool = False,
    readout: str | None = None,
    out: Path | str | None = None,
    seed: int = 0,
    n_splits: int = CHOICE_SPLITS,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    workers: int | None = None,
    engine: str = "local",
    progress: Progress | None = None,
) -> StudyResult:
    """Score all machines with a grid of configurations, and choose one.

    Parameters
    ----------
    dev : EmbeddingTable or path
        Machines with labelled test clips. Their labels are read by some rules.
    eval : EmbeddingTable or path, optional
        The evaluation machines. Known labels are used for metrics only, never for a choice.
    truth : path, optional
        A checkout of the official evaluator, for evaluation clips without labels.
    grid : "51", "45", "9", a file, or configurations and detectors
        A detector of scikit-learn or PyOD, with a label as ``{label: detector}``, adds its
        calibrations ``ext-<label>``, ``conf-soft-m0-ext-<label>`` and so on; installed ones are
        found by their names. ``blend+<label>`` has it as one more view of the blend. Each split
        fits a detector six times: use fewer splits, such as ``n_splits=10``.
    systems : {name: path}, optional
        Scores of other systems, as :func:`daco.evaluation.system_scores.read_system` reads them.
        With scores of all normals they become candidates ``ext-<name>``, as detectors do, which
        the label-free veto does not judge. Without these they are compared only.
    faults : table or path, or several
        Faults injected into normals of the machines, as ``daco inject`` writes them, for the
        label-free veto. Without them it uses pseudo-anomalies made in the embedding space.
    rule : {"guarded", "label-free", "paper", "criterion", "dev"}
        How the configuration is chosen, as in :meth:`daco.StudyResult.choose`, which chooses by
        any other rule later.
    baselines : bool
        Whether to compare the other scorers of the paper: ``sel-maha``, ``gmm2`` and a calibration
        with the true domains.
    readout : str, optional
        The readout of the tables to use; by default their first.
    out : path, optional
        A folder for the results. An interrupted study continues from what it finds there.
    seed, n_splits : int
        Seed and number (200 by default) of the splits of the criterion.
    false_alarm_rate : float in (0, 1), default=0.1
        The rate of the decisions.
    workers : int, optional
        Processes; by default one per core, or none for few machines. With Ray, the most tasks at a
        time.
    engine : str
        Where the work is done: ``local`` in processes here, ``ray`` or ``ray://head:10001`` on a
        Ray cluster, as in :func:`daco.compute.run`. The results are the same.
    progress : callable, optional
        Called with the stage, the number of machines done, and the number of all machines.

    Returns
    -------
    StudyResult

    Examples
    --------
    >>> import numpy as np
    >>> import daco
    >>> rng = np.random.default_rng(0)
    >>> clips = daco.EmbeddingTable.from_arrays(
    ...     rng.normal(size=(80, 4)) + 2,
    ...     machine="fan",
    ...     split=["train"] * 50 + ["test"] * 30,
    ...     domain=["source"] * 40 + ["target"] * 10 + ["source", "target"] * 15,
    ...     label=[0] * 65 + [1] * 15,
    ... )
    >>> result = daco.study(clips, grid=["raw-k1", "conf-soft-m0-k1"], n_splits=10, workers=1)
    >>> result.grid()["configuration"].tolist()
    ['raw-k1', 'conf-soft-m0-k1']
    """
    clock, notes, systems = _Clock(), list[str](), systems or {}
    other_scores = read_systems(systems)
    settings = _settings(grid, other_scores, seed, n_splits, baselines)
    rule = parse_rule(rule)
    require_rate(false_alarm_rate)
    folder = None if out is None else RunFolder(require_local(out, "A study"))
    tables = read_tables(dev, eval, truth, notes)
    years = {which: year_of(table, which) for which, table in tables.items()}
    names = name_domains(tables.values())
    machines = all_machines(tables, names, readout, notes)
    if folder is not None:
        folder.require_own([each.key for each in machines])
    readout = readout or tables["dev"].readouts[0]
    machines = with_systems(machines, other_scores, notes)
    fault_tables = _several(faults)
    machines = _with_faults(machines, fault_tables, tables, years, names, readout)
    if workers is None and engine == "local":
        workers, n_jobs = _processes(len(machines), bool(settings.detectors))
        settings = replace(settings, n_jobs=n_jobs)
    clock.lap("read")
    if engine == "local" and workers in range(2, _THREADS + 1) and not settings.detectors:
        engine = "threads"
    rows = score_machines(machines, settings, workers, engine, folder, progress, notes)
    clock.lap("score")
    notes += missing_parts([each for each in machines if each.key in rows], "eval" in tables)
    run: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "daco": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": platform_facts(),
        "inputs": input_facts(tables, {"dev": dev, "eval": eval}, fault_tables, truth, systems),
        "settings": _settings_facts(settings, grid, rule, false_alarm_rate, readout),
        "years": {"dev": years["dev"], "eval": years.get("eval")},
        "domains": {"source": names.source, "target": names.target},
        "machines": [each.facts for each in rows.values()],
        "notes": notes,
        "times": clock.times,
        "tables": {},
    }
    clips, criteria = (
        pd.concat([getattr(each, name) for each in rows.values()], ignore_index=True)
        for name in ("clips", "criteria")
    )
    result = StudyResult(clips, criteria, run, None if folder is None else folder.path)
    run["choice"] = json.loads(json.dumps(result.choose(rule).to_dict()))
    clock.lap("choose")
    if folder is not None:
        run["tables"] = folder.write_tables(clips, criteria)
        clock.lap("write")
        folder.finish(run)
    return result


@dataclass
class _Clock:
    """Seconds of wall clock that each stage took."""

    times: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=time.perf_counter)

    def lap(self, stage: str) -> None:
        """Note the time since the last stage, and in all."""
        passed = time.perf_counter() - self._started
        before = self.times.get("total", 0.0)
        self.times |= {stage: round(passed - before, 3), "total": round(passed, 3)}


def score_machines(
    machines: Sequence[MachineData],
    settings: Settings,
    workers: int | None = 1,
    engine: str = "local",
    folder: RunFolder | None = None,
    progress: Progress | None = None,
    notes: list[str] | None = None,
) -> dict[Key, MachineRows]:
    """The rows of each machine, computed unless a folder has them.

    A machine that fails is left out, with a sentence in `notes`.
    """
    notes = [] if notes is None else notes
    keys: dict[Key, str] = {}
    found: dict[Key, MachineRows] = {}
    failures: dict[Key, DacoError] = {}

    def unknown() -> Iterator[tuple[MachineData, tuple[MachineData, Settings]]]:
        for machine in machines:
            data = machine.loaded()
            keys[data.key] = key_of(data, settings)
            notes.extend(leaked_clips(data))
            known = None if folder is None else folder.rows(keys[data.key])
            if known is None:
                yield machine, (data, settings)
            else:
                found[data.key] = known

    advance = progress or (lambda stage, done, total: None)
    for machine, rows in run_each(study_machine, unknown(), jobs=workers, engine=engine):
        if isinstance(rows, DacoError):
            failures[machine.key] = rows
        else:
            rows.facts["key"] = keys[machine.key]
            found[machine.key] = rows
            if folder is not None:
                folder.write_rows(rows)
        advance("scoring", len(found) + len(failures), len(machines))
    advance("scoring", len(machines), len(machines))
    lost = {each.where: failures[each.key] for each in machines if each.key in failures}
    notes += left_out(lost)
    require_some(found, notes)
    return {each.key: found[each.key] for each in machines if each.key in found}


def _settings(
    grid: str | int | Path | Candidates,
    systems: Mapping[str, pd.DataFrame],
    seed: int,
    n_splits: int,
    baselines: bool,
) -> Settings:
    """Candidates and other settings, checked before anything is computed."""
    if not is_whole(n_splits, least=1):
        raise InputError(f"The 'n_splits' parameter must be an int >= 1. Got {n_splits!r} instead.")
    with_normals = [name for name, table in systems.items() if has_normals(table)]
    configs, detectors = mixed_grid(grid, with_normals)
    refuse_oracle(configs)
    others = tuple(name for name in systems if name not in with_normals)
    for name in others:
        system_base(name, detectors)
    candidates = tuple(config.name for config in configs)
    return Settings(candidates, seed, n_splits, detectors, others, baselines)


def _settings_facts(
    settings: Settings, grid: Any, rule: Rule, rate: float, readout: str
) -> dict[str, Any]:
    return {
        "grid": str(grid) if isinstance(grid, str | int | Path) else "given",
        "candidates": list(settings.candidates),
        "compared": list(settings.compared),
        "detectors": {label: repr(each) for label, each in settings.detectors.items()},
        "rule": rule.value,
        "seed": settings.seed,
        "splits": settings.n_splits,
        "false_alarm_rate": rate,
        "readout": readout,
    }


def _processes(machines: int, has_detectors: bool) -> tuple[int, int]:
    """The number of processes by default, and how many of its own each has to fit detectors."""
    if machines <= _FEW and not has_detectors:
        return 1, 1
    cores = cpu_count()
    workers = min(cores, machines)
    return workers, cores // workers if has_detectors else 1


def _several(sources: Source | Iterable[Source]) -> list[Source]:
    """One source or several, as a list."""
    one = isinstance(sources, EmbeddingTable | Path | str) or is_remote(sources)
    return [cast(Source, sources)] if one else list(cast(Iterable[Source], sources))


def _with_faults(
    machines: Sequence[MachineData],
    sources: Sequence[Source],
    tables: Mapping[str, EmbeddingTable],
    years: Mapping[str, int | None],
    names: DomainNames,
    readout: str,
) -> list[MachineData]:
    """The machines with the faults injected into them; an error where no machine has any."""
    if not sources:
        return list(machines)
    given = [
        replace(each, columns={**each.columns, "domain": names.rename(each.columns["domain"])})
        for each in read_faults(sources, [table.metadata for table in tables.values()])
    ]
    found = [
        faults_of(
            given,
            data.machine,
            data.section,
            names=data.normals.tolist(),
            domains=data.domains,
            X=data.X,
            year=years[data.set],
            readout=readout,
        )
        for data in machines
    ]
    if all(each is None for each in found):
        raise DataError(
            "Not one fault was injected into a machine of this study. Machines are matched by "
            "names, sections and years."
        )
    return [replace(data, faults=each) for data, each in zip(machines, found, strict=True)]
