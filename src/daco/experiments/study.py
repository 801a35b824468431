"""The study: a grid of configurations over machines, from embedding tables to two tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from daco.compute.processes import SCORING, usable_cores, worker_pool, worker_threads
from daco.data.table import EmbeddingTable
from daco.detector.decision import FALSE_ALARM_RATE, require_rate
from daco.errors import DataError, InputError
from daco.experiments.grids import mixed_grid, system_base
from daco.experiments.inputs import (
    SOURCE,
    TARGET,
    DomainNames,
    Source,
    Table,
    name_domains,
    read_tables,
    year_of,
)
from daco.experiments.machine import Settings
from daco.experiments.machine_data import MachineData, all_machines
from daco.experiments.provenance import input_facts, missing_parts, platform_facts
from daco.experiments.result import StudyResult
from daco.experiments.run_files import P_VALUE
from daco.experiments.run_folder import MachineRows, RunFolder
from daco.experiments.systems import Systems, has_normals, read_systems, system_inputs, with_systems
from daco.experiments.work import Key, Progress, Work
from daco.files.remote import is_remote, require_local
from daco.method.config import ScoreConfig
from daco.method.criterion import CHOICE_SPLITS
from daco.method.engine import refuse_oracle
from daco.method.external import Candidates
from daco.method.selection import parse_rule
from daco.synthetic.fault_tables import faults_of, read_faults
from daco.validation import is_whole
from daco.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from daco.method.selection import Rule

SCHEMA = 1
_FEW = 3  # machines that are studied in this process by default: processes take a second to start
_THREADS = 4  # workers up to which threads are faster than processes, which load everything anew
_MODULES = (*SCORING, "daco.experiments.machine", "daco.method._loops")


def study(
    dev: Source,
    eval: Source | None = None,
    *,
    truth: Path | str | None = None,
    grid: str | int | Path | Candidates = "51",
    systems: Systems | None = None,
    faults: Source | Iterable[Source] = (),
    rule: Rule | str = "guarded",
    decide: Iterable[str] = (),
    baselines: bool = False,
    readout: str | None = None,
    out: Path | str | None = None,
    seed: int = 0,
    n_splits: int = CHOICE_SPLITS,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
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
    decide : iterable of str
        Further configurations to compute p-values of, or ``"all"``.
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
    engine : {"local", "ray"}
        Where the work is done: processes here, or tasks of a Ray cluster. The results are the same.
    address : str, optional
        The address of the Ray cluster, as in :func:`daco.compute.ray.ray_pool`.
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
    rule, asked = parse_rule(rule), _to_decide(decide, settings)
    require_rate(false_alarm_rate)
    folder = None if out is None else RunFolder(require_local(out, "A study"))
    tables = read_tables(dev, eval, truth, notes)
    if workers is None and engine == "local":
        n_machines = sum(len(table.machines) for table in tables.values())
        workers, n_jobs = _processes(n_machines, bool(settings.detectors))
        settings = replace(settings, n_jobs=n_jobs)
    threads = not settings.detectors and engine == "local" and workers in range(2, _THREADS + 1)
    with (
        worker_threads(workers or 1) if threads else worker_pool(workers, engine, address, _MODULES)
    ) as pool:
        years = {which: year_of(table, which) for which, table in tables.items()}
        names = name_domains(tables.values())
        machines = all_machines(tables, names, readout, notes)
        if folder is not None:
            folder.require_own([each.key for each in machines])
        readout = readout or tables["dev"].readouts[0]
        machines = with_systems(machines, other_scores, notes)
        fault_tables = _several(faults)
        machines = _with_faults(machines, fault_tables, tables, years, names, readout)
        clock.lap("read")
        work = Work(settings, pool, folder, progress, notes)
        rows = work.score(machines)
        machines = [each for each in machines if each.key in rows]
        clock.lap("score")
        notes += missing_parts(machines, "eval" in tables)
        run: dict[str, Any] = {
            "schema": SCHEMA,
            "daco": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "platform": platform_facts(),
            "inputs": input_facts(tables, {"dev": dev, "eval": eval}, fault_tables, truth),
            "settings": _settings_facts(settings, grid, rule, false_alarm_rate, readout),
            "years": {"dev": years["dev"], "eval": years.get("eval")},
            "domains": {"source": names.source, "target": names.target},
            "machines": [each.facts for each in rows.values()],
        }
        run["inputs"] += system_inputs(systems)
        choice = _result(rows, run).choose(rule)
        clock.lap("choose")
        decided = list(dict.fromkeys([choice.config, *settings.decided, *asked]))
        rows = work.decide(machines, rows, decided)
    clock.lap("decide")
    run["settings"]["decided"] = decided
    run |= {"choice": choice.to_dict(), "notes": notes, "times": clock.times, "tables": {}}
    return _result(rows, run, folder)


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


def _to_decide(wanted: Iterable[str], settings: Settings) -> list[str]:
    """The further configurations to decide by; an error where one is not scored."""
    names, wanted = settings.scored, list(wanted)
    for name in wanted:
        if name not in ("all", *names):
            ScoreConfig.parse(name)  # an unknown name has an error of its own
            raise InputError(
                f"{name!r} is not in the grid. Decide by 'all', 'blend', or a name of the grid."
            )
    return list(settings.candidates) if "all" in wanted else wanted


def _processes(machines: int, has_detectors: bool) -> tuple[int, int]:
    """The number of processes by default, and how many of its own each has to fit detectors."""
    if machines <= _FEW and not has_detectors:
        return 1, 1
    workers = min(usable_cores(), machines)
    return workers, usable_cores() // workers if has_detectors else 1


def _several(sources: Source | Iterable[Source]) -> list[Source]:
    """One source or several, as a list."""
    one = isinstance(sources, EmbeddingTable | Path | str) or is_remote(sources)
    return [cast(Source, sources)] if one else list(cast(Iterable[Source], sources))


def _with_faults(
    machines: Sequence[MachineData],
    sources: Sequence[Source],
    tables: Mapping[str, Table],
    years: Mapping[str, int | None],
    names: DomainNames,
    readout: str,
) -> list[MachineData]:
    """The machines with the faults injected into them; an error where no machine has any."""
    if not sources:
        return list(machines)
    given = read_faults(sources, [table.metadata for table in tables.values()])
    rename = {names.source: SOURCE} | ({names.target: TARGET} if names.target else {})
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
            rename=rename,
        )
        for data in machines
    ]
    if all(each is None for each in found):
        raise DataError(
            "Not one fault was injected into a machine of this study. Machines are matched by "
            "names, sections and years."
        )
    return [replace(data, faults=each) for data, each in zip(machines, found, strict=True)]


def _result(
    rows: Mapping[Key, MachineRows], run: dict[str, Any], folder: RunFolder | None = None
) -> StudyResult:
    """The tables of all machines, which are written if there is a folder."""
    parts = list(rows.values())
    clips = pa.concat_tables([each.clips for each in parts], promote_options="default")
    criteria = pa.concat_tables([each.criteria for each in parts])
    decided = [P_VALUE + name for name in run["settings"].get("decided", ())]
    others = [name for name in clips.column_names if not name.startswith(P_VALUE)]
    clips = clips.select([*others, *decided])
    if folder is not None:
        run = folder.write(clips, criteria, run)
    path = None if folder is None else folder.path
    return StudyResult(clips.to_pandas(), criteria.to_pandas(), run, path)
