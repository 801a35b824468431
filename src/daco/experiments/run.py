"""The study: a grid over machines, from embedding tables to tidy results and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from daco.compute.processes import SCORING, worker_pool
from daco.detector.decision import FALSE_ALARM_RATE
from daco.errors import InputError
from daco.evaluation.metrics import quantities_of
from daco.experiments import assembly, inputs
from daco.experiments.analysis import frontier_table
from daco.experiments.baselines import baseline_inputs, baseline_rows
from daco.experiments.choose import study_choice
from daco.experiments.faultfiles import fault_inputs, fault_sources, with_faults
from daco.experiments.grids import mixed_grid
from daco.experiments.inputs import MachineData, Source, Table
from daco.experiments.machine import (
    Progress,
    Settings,
    examine_machine,
    machine_file,
    reference_machine,
    require_some,
    run_machines,
    score_machine,
    without_clips,
)
from daco.experiments.provenance import embedding_costs, run_facts
from daco.experiments.result import StudyResult
from daco.experiments.rules import VETOES
from daco.experiments.statistics import transfer_statistics
from daco.experiments.study_tables import (
    DOCUMENTS,
    EXAMINED,
    MACHINES,
    REFERENCES,
    Arrays,
    FiledScores,
    MachineScores,
    prepare_folder,
    write_results,
)
from daco.experiments.systems import Systems, system_inputs, with_systems
from daco.experiments.veto import pseudo_scores_of, study_veto, viability_table
from daco.files.remote import require_local
from daco.method.config import DEFAULT_CONFIG, ScoreConfig
from daco.method.criterion import CHOICE_SPLITS
from daco.method.engine import refuse_oracle
from daco.method.external import Candidates


def study(
    dev: Source,
    eval: Source | None = None,
    *,
    truth: Path | str | None = None,
    baselines: Path | str | Iterable[Path | str] = (),
    grid: str | int | Path | Candidates = "51",
    systems: Systems | None = None,
    faults: Source | Iterable[Source] = (),
    veto: str = "both",
    decide: Iterable[str] = (),
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
    """Evaluate a grid of configurations on all machines, choose one, and analyse the result.

    Parameters
    ----------
    dev : EmbeddingTable or path
        Machines with labelled test clips. Their labels are used by the veto.
    eval : EmbeddingTable or path, optional
        The evaluation machines. Known labels are used for metrics only, never for a choice.
    truth : path, optional
        A checkout of the official evaluator, for evaluation clips without labels.
    baselines : path or iterable of paths
        Score files of other systems in the format of the challenge: one folder per system, or a
        folder of such folders. The report compares them; they take part in no choice.
    grid : "51", "45", "9", a file, or configurations and detectors
        A detector of scikit-learn or PyOD, with a label as ``{label: detector}``, adds its
        calibrations ``ext-<label>``, ``conf-soft-m0-ext-<label>`` and so on; installed ones are
        found by their names. ``blend+<label>`` has it as one more view of the blend. Each split
        fits a detector six times: use fewer splits, such as ``n_splits=10``.
    systems : {label: path}, optional
        Tables with the scores of other systems for all normals and test clips, as
        :func:`daco.evaluation.score_tables.read_score_table` reads them. They become candidates
        ``ext-<label>``, as detectors do. The label-free veto does not judge them.
    faults : table or path, or several
        Faults injected into normals of the machines, as ``daco inject`` writes them, for the
        label-free veto. Without them it uses pseudo-anomalies made in the embedding space.
    veto : {"both", "dev", "faults", "paper"}
        What excludes configurations: dev scores, the label-free veto, or both. ``"paper"`` is the
        paper's own choice: dev scores, and the criterion of its 10 splits. The report shows all of
        them in any case.
    decide : iterable of str
        Configurations of the grid to decide by p-values, or ``"all"``, besides the chosen one and
        daco's default.
    readout : str, optional
        The readout of the tables to use; by default their first.
    out : path, optional
        A folder for the results. An interrupted study continues from what it finds there.
    seed, n_splits : int
        Seed and number (200 by default) of the splits of the criterion.
    false_alarm_rate : float in (0, 1), default=0.1
        The rate of the decisions.
    workers : int, optional
        Processes; by default one per core. With Ray, the most tasks at a time.
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
    >>> from daco import EmbeddingTable
    >>> from daco.experiments.run import study
    >>> rng = np.random.default_rng(0)
    >>> clips = EmbeddingTable.from_arrays(
    ...     rng.normal(size=(80, 4)) + 2,
    ...     machine="fan",
    ...     split=["train"] * 50 + ["test"] * 30,
    ...     domain=["source"] * 40 + ["target"] * 10 + ["source", "target"] * 15,
    ...     label=[0] * 65 + [1] * 15,
    ... )
    >>> result = study(clips, grid=["raw-k1", "conf-soft-m0-k1"], workers=1)
    >>> result.grid.columns.tolist()
    ['config', 'dev_omega', 'crit_dev', 'crit_paper']
    """
    started = time.perf_counter()
    systems = systems or {}
    configs, detectors = mixed_grid(grid, systems)  # before anything is read
    _require_settings(configs, false_alarm_rate, veto)
    to_decide = _to_decide(decide, [each.name for each in configs])
    folder = None if out is None else prepare_folder(require_local(out, "A study"))
    notes: list[str] = []
    with worker_pool(workers, engine, address, SCORING) as pool:
        tables = _read_tables(dev, eval, truth, notes)
        given = _read_inputs(tables, readout, systems, baselines, faults, notes)
        settings = Settings(tuple(each.name for each in configs), seed, n_splits, detectors)
        if folder is not None:
            _require_own(folder, given.machines)
        run = partial(run_machines, settings=settings, pool=pool, progress=progress, notes=notes)
        computed, scored = _compute(run, given, folder)
        machines, arrays = [given.machines[each] for each in computed], list(computed.values())
        scores = _scores_of(arrays, machines, folder)
        found, selection = _choose(arrays, scores, settings, veto, notes)
        chosen = selection["chosen"]["config"]
        decided = tuple(dict.fromkeys([*to_decide, chosen, DEFAULT_CONFIG]))
        references = run(
            reference_machine,
            machines,
            settings=replace(settings, configs=decided),
            folder=folder and folder / REFERENCES,
            stage="deciding",
            brief=None if folder is None else without_clips,
        )
    arrays = [each | references.get(at, {}) for at, each in enumerate(arrays)]
    scores = _scores_of(arrays, machines, folder)
    arrays = list(map(without_clips, arrays))
    found |= _further_tables(arrays, scores, found)
    stats = transfer_statistics(
        found["grid"],
        found["per_machine"],
        coverage=found["coverage"],
        diagnostics=found["diagnostics"],
    )
    documents: dict[str, Any] = {"selection": selection, "stats": stats}
    sources = {"dev": dev, "eval": eval}
    found["baselines"] = assembly.baselines_table(arrays, given.baselines)
    found["cost"] = assembly.cost_table(arrays, scored - started, embedding_costs(sources))
    documents["provenance"] = {
        **run_facts(settings, tables, sources),
        "readout": readout or tables["dev"].readouts[0],
        "false_alarm_rate": false_alarm_rate,
        "veto": veto,
        **given.facts(systems),
        "missing": [*assembly.missing_parts(machines, "eval" in tables), *notes],
    }
    if folder is not None:
        write_results(folder, found, documents)
    return StudyResult(**found, **documents, folder=folder, machines=scores)


@dataclass(frozen=True, eq=False)
class _Inputs:
    """What a study reads: machines without and with faults, and the rows of baselines."""

    names: inputs.DomainNames
    machines: list[MachineData]
    with_faults: list[MachineData]
    faults: list[Source]
    folders: list[Path]
    baselines: list[dict[str, Any]]

    def facts(self, systems: Systems) -> dict[str, Any]:
        """Domains and files, for the provenance of the run."""
        target = {"target": self.names.target} if self.names.target else {}
        facts: dict[str, Any] = {"domains": {"source": self.names.source} | target}
        if self.folders:
            facts["baselines"] = baseline_inputs(self.folders)
        if systems:
            facts["systems"] = system_inputs(systems)
        if self.faults:
            facts["faults"] = fault_inputs(self.faults)
        return facts


def _read_inputs(
    tables: dict[str, Table],
    readout: str | None,
    systems: Systems,
    baselines: Path | str | Iterable[Path | str],
    faults: Source | Iterable[Source],
    notes: list[str],
) -> _Inputs:
    names = inputs.name_domains(tables.values())
    years = {role: inputs.year_of(table) for role, table in tables.items()}
    domains = ("source",) if names.target is None else ("source", "target")
    _require_one_layout(tables, readout)
    quantities = quantities_of([*years.values()][-1], domains)
    found = [
        inputs.machines_of(table, role, names, readout, quantities=quantities, notes=notes)
        for role, table in tables.items()
    ]
    require_some(machines := list(chain(*found)), notes)
    machines = with_systems(machines, systems)
    several = [baselines] if isinstance(baselines, Path | str) else baselines
    folders = list(map(Path, several))
    rows = baseline_rows(folders, machines, years) if folders else []
    files = fault_sources(faults)
    with_them, fault_notes = with_faults(machines, tables, files, names, readout)
    notes += fault_notes
    return _Inputs(names, machines, with_them, files, folders, rows)


def _compute(
    run: Callable[..., dict[int, Arrays]], given: _Inputs, folder: Path | None
) -> tuple[dict[int, Arrays], float]:
    """Arrays by number of the machine, of those without an error, and when all were scored."""
    run = partial(run, brief=None if folder is None else without_clips)
    scored = run(
        score_machine,
        given.machines,
        folder=folder and folder / MACHINES,
        stage="scoring",
    )
    now, at = time.perf_counter(), list(scored)
    examined = run(
        examine_machine,
        [given.with_faults[each] for each in at],
        folder=folder and folder / EXAMINED,
        stage="examining",
    )
    return {at[each]: scored[at[each]] | second for each, second in examined.items()}, now


def _scores_of(
    arrays: Sequence[Arrays], machines: Sequence[MachineData], folder: Path | None
) -> Sequence[MachineScores]:
    """Scores of the clips of each machine, read from their files where there is a folder."""
    if folder is None:
        return list(map(MachineScores.from_arrays, arrays))
    return FiledScores([machine_file(folder / MACHINES, each) for each in machines])


def _choose(
    machines: Sequence[Arrays],
    scores: Sequence[MachineScores],
    settings: Settings,
    veto: str,
    notes: list[str],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables that a choice reads, and the choice."""
    keys = [(str(machine["split"]), str(machine["title"])) for machine in machines]
    pseudo = [pseudo_scores_of(arrays, settings.judged) for arrays in machines]
    label_free, veto_notes = study_veto(keys, pseudo)
    notes += veto_notes
    if len(settings.judged) < len(settings.configs):
        notes.append(
            "The label-free veto does not judge tables of scores, which have no scores of "
            "pseudo-anomalies."
        )
    grid, per_machine = assembly.grid_table(machines), assembly.per_machine_table(machines)
    if label_free is not None and not label_free.viability.abstains:
        grid["viable"] = ~grid["config"].isin(label_free.viability.excluded)
    resampled = assembly.resampled_criterion(machines)
    selection = study_choice(
        grid,
        per_machine,
        scores=scores,
        label_free=label_free,
        veto=veto,
        resampled=resampled,
        seed=settings.seed,
        default=assembly.default_scores(machines),
    )
    tables = {
        "grid": grid,
        "per_machine": per_machine,
        "resamples": assembly.resamples_table(settings.configs, resampled),
        "viability": viability_table(keys, pseudo),
    }
    return tables, selection


def _further_tables(
    machines: Sequence[Arrays], scores: Sequence[MachineScores], known: Mapping[str, Any]
) -> dict[str, Any]:
    per_machine = known["per_machine"]
    return {
        "frontier": frontier_table(per_machine),
        "diagnostics": assembly.diagnostics_table(machines, per_machine),
        "coverage": assembly.coverage_table(scores),
    }


def _read_tables(
    dev: Source, eval: Source | None, truth: Path | str | None, notes: list[str]
) -> dict[str, Table]:
    tables = {"dev": inputs.read_table(dev)}
    if eval is not None:
        tables["eval"] = inputs.read_table(eval)
    if truth is not None:
        if eval is None:
            raise InputError("'truth' belongs to evaluation clips. Give 'eval' too.")
        tables["eval"] = inputs.with_truth(tables["eval"], truth, notes)
    keys = ("year", "machine", "section")  # until 2022 other sections of the same machines
    machines = [set(inputs.rows_by(table, *keys)) for table in tables.values()]
    if len(machines) == 2 and (both := machines[0] & machines[1]):
        raise InputError(
            f"Machine {min(machine for _, machine, _ in both)!r} is in both the dev and the eval "
            "table. Evaluation machines must be new to the choice: leave it out of one of them."
        )
    return tables


def _require_one_layout(tables: Mapping[str, Table], readout: str | None) -> None:
    """An error where the vectors of one table have another length than those of the other."""
    sizes = {role: table.layout(readout).sizes for role, table in tables.items()}
    if len(set(sizes.values())) > 1:
        listed = " and ".join(f"{sum(each)} in the {role} table" for role, each in sizes.items())
        raise InputError(
            f"The vectors of the readout have other lengths in one table than in the other: "
            f"{listed}. Embed both with the same network, and name the readout."
        )


def _require_settings(configs: Sequence[ScoreConfig], rate: float, veto: str) -> None:
    if veto not in VETOES:
        raise InputError(f"The veto is one of {', '.join(VETOES)}. Got {veto!r}.")
    refuse_oracle(configs)
    if not 0 < rate < 1:
        raise InputError(f"The false-alarm rate must be between 0 and 1. Got {rate!r}.")


def _to_decide(wanted: Iterable[str], names: Sequence[str]) -> list[str]:
    """The configurations to decide by; an error where one is not in the grid."""
    wanted = list(wanted)
    for name in wanted:
        if name not in ("all", DEFAULT_CONFIG, *names):
            ScoreConfig.parse(name)  # an unknown name has an error of its own
            raise InputError(
                f"{name!r} is not in the grid. Decide by 'all', {DEFAULT_CONFIG!r}, or a name of "
                "the grid."
            )
    return list(names) if "all" in wanted else wanted


def _require_own(folder: Path, machines: Sequence[MachineData]) -> None:
    """An error where the folder is of another study; if not, it is unfinished from now on."""
    for part in (MACHINES, EXAMINED, REFERENCES):
        mine = {machine_file(folder / part, machine) for machine in machines}
        strange = sorted(path for path in (folder / part).glob("*.npz") if path not in mine)
        if strange:
            raise InputError(
                f"{strange[0]} is of another study. Choose another folder, or delete it."
            )
    (folder / DOCUMENTS["provenance"]).unlink(missing_ok=True)
