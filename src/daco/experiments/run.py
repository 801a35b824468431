"""The study: a grid over machines, from embedding tables to tidy results and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from daco.compute.processes import SCORING, worker_pool
from daco.data.views import Bands
from daco.detector.thresholds import FALSE_ALARM_RATE
from daco.errors import InputError
from daco.evaluation.metrics import quantities_of
from daco.experiments import assembly, inputs
from daco.experiments.analysis import frontier_table
from daco.experiments.baselines import baseline_inputs, baseline_rows
from daco.experiments.choose import noise_of, study_choice
from daco.experiments.decision import GUARDS
from daco.experiments.device import (
    criteria_of_machines,
    on_device,
    require_device,
    scores_of_machines,
)
from daco.experiments.faultfiles import fault_inputs, fault_sources, with_faults
from daco.experiments.grids import mixed_grid
from daco.experiments.inputs import MachineData, Source, Table
from daco.experiments.machine import (
    Progress,
    Settings,
    examine_machine,
    machine_file,
    require_some,
    run_machines,
    score_machine,
    without_clips,
)
from daco.experiments.provenance import embedding_costs, run_facts
from daco.experiments.result import StudyResult
from daco.experiments.statistics import transfer_statistics
from daco.experiments.study_tables import (
    DOCUMENTS,
    EXAMINED,
    MACHINES,
    Arrays,
    FiledScores,
    MachineScores,
    prepare_folder,
    write_results,
)
from daco.experiments.systems import Systems, system_inputs, with_systems
from daco.experiments.veto import pseudo_scores_of, study_veto, viability_table
from daco.files.remote import require_local
from daco.method.config import ScoreConfig
from daco.method.criterion import CHOICE_SPLITS
from daco.method.external import Candidates
from daco.method.limits import refuse_oracle


def study(
    dev: Source,
    eval: Source | None = None,
    *,
    truth: Path | str | None = None,
    baselines: Path | str | Iterable[Path | str] = (),
    grid: str | int | Path | Candidates = "51",
    systems: Systems | None = None,
    faults: Source | Iterable[Source] = (),
    veto: str = "dev",
    readout: str | None = None,
    out: Path | str | None = None,
    seed: int = 0,
    n_splits: int = CHOICE_SPLITS,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    device: str = "cpu",
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
    grid : "51", "45", "9", "frontier", a file, or configurations and detectors
        ``"frontier"`` has band-wise configurations if the readout has bands. A detector of
        scikit-learn or PyOD, with a label as ``{label: detector}``, adds its calibrations
        ``ext-<label>``, ``conf-soft-m0-ext-<label>`` and so on, and takes part in the vote;
        installed ones are found by their names. Each split fits a detector six times: use fewer
        splits, such as ``n_splits=10``.
    systems : {label: path}, optional
        Tables with the scores of other systems for all normals and test clips, as
        :func:`daco.evaluation.score_tables.read_score_table` reads them. They become candidates
        ``ext-<label>``, as detectors do. The label-free veto does not judge them.
    faults : table or path, or several
        Faults injected into normals of the machines, as ``daco inject`` writes them, for the
        label-free veto. Without them it uses pseudo-anomalies made in the embedding space.
    veto : {"dev", "faults", "both"}
        What excludes configurations: dev scores (the paper's Algorithm 1), the label-free veto, or
        both. The report shows both in any case.
    readout : str, optional
        The readout of the tables to use; by default their first.
    out : path, optional
        A folder for the results. An interrupted study continues from what it finds there.
    seed, n_splits : int
        Seed and number (200 by default) of the splits of the criterion.
    false_alarm_rate : float in (0, 1), default=0.1
        The rate for which thresholds are computed.
    workers : int, optional
        Processes; by default one per core. With Ray, the most tasks at a time.
    engine : {"local", "ray"}
        Where the work is done: processes here, or tasks of a Ray cluster. The results are the same.
    address : str, optional
        The address of the Ray cluster, as in :func:`daco.compute.ray.ray_pool`.
    device : str
        ``"cpu"``, or a torch device such as ``"cuda"``, which computes scores and criteria of many
        machines at once. Results agree up to rounding. It needs the engine ``local``.
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
    ['config', 'dev_omega', 'crit_dev']
    """
    started = time.perf_counter()
    systems = systems or {}
    configs, detectors = mixed_grid(grid, systems)  # before anything is read
    _require_settings(configs, false_alarm_rate, veto)
    require_device(device, engine, {**detectors, **systems})
    folder = None if out is None else prepare_folder(require_local(out, "A study"))
    notes: list[str] = []
    with worker_pool(workers, engine, address, SCORING) as pool:
        tables = _read_tables(dev, eval, truth, notes)
        given = _read_inputs(tables, readout, systems, baselines, faults, notes)
        if isinstance(grid, str | Path):
            configs, detectors = mixed_grid(grid, systems, given.bands)
        settings = Settings(tuple(each.name for each in configs), seed, n_splits, detectors)
        if folder is not None:
            _require_own(folder, given.machines)
        run = partial(run_machines, settings=settings, pool=pool, progress=progress, notes=notes)
        computed, scored = _compute(run, given, folder, device)
    machines, arrays = [given.machines[each] for each in computed], list(computed.values())
    scores: Sequence[MachineScores]
    if folder is None:
        scores = list(map(MachineScores.from_arrays, arrays))
        arrays = list(map(without_clips, arrays))
    else:
        scores = FiledScores([machine_file(folder / MACHINES, each) for each in machines])
    found, documents = _derive(arrays, scores, settings, veto, notes)
    sources = {"dev": dev, "eval": eval}
    found["baselines"] = assembly.baselines_table(arrays, given.baselines)
    found["cost"] = assembly.cost_table(arrays, scored - started, embedding_costs(sources))
    documents["provenance"] = {
        **run_facts(settings, tables, sources, device),
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
    bands: Bands
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
    bands, quantities = _bands(tables, readout), quantities_of([*years.values()][-1], domains)
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
    return _Inputs(names, bands, machines, with_them, files, folders, rows)


def _compute(
    run: Callable[..., dict[int, Arrays]], given: _Inputs, folder: Path | None, device: str
) -> tuple[dict[int, Arrays], float]:
    """Arrays by number of the machine, of those without an error, and when all were scored."""
    run = partial(run, brief=None if folder is None else without_clips)
    scored = run(
        score_machine,
        given.machines,
        folder=folder and folder / MACHINES,
        stage="scoring",
        prepare=None if device == "cpu" else on_device(scores_of_machines, device),
    )
    now, at = time.perf_counter(), list(scored)
    examined = run(
        examine_machine,
        [given.with_faults[each] for each in at],
        folder=folder and folder / EXAMINED,
        stage="examining",
        prepare=None if device == "cpu" else on_device(criteria_of_machines, device),
    )
    return {at[each]: scored[at[each]] | second for each, second in examined.items()}, now


def _derive(
    machines: Sequence[Arrays],
    scores: Sequence[MachineScores],
    settings: Settings,
    guard: str,
    notes: list[str],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of grid, choice and experiments, and the documents."""
    grid, per_machine = assembly.grid_table(machines), assembly.per_machine_table(machines)
    keys = [(str(machine["split"]), str(machine["title"])) for machine in machines]
    pseudo = [pseudo_scores_of(arrays, settings.judged) for arrays in machines]
    veto, veto_notes = study_veto(keys, pseudo)
    notes += veto_notes
    if len(settings.judged) < len(settings.configs):
        notes.append(
            "The label-free veto does not judge tables of scores, and votes that count them: they "
            "have no scores of pseudo-anomalies."
        )
    if settings.detectors:
        notes.append("Other seeds were not tried: detectors are fitted anew in every split.")
    selection = study_choice(
        grid,
        per_machine,
        scores=scores,
        veto=veto,
        guard=guard,
        seed=settings.seed,
        n_splits=settings.n_splits,
        vote=assembly.vote_scores(machines),
    )
    chosen = selection["chosen"]
    found = {
        "grid": grid,
        "per_machine": per_machine,
        "frontier": frontier_table(per_machine),
        "diagnostics": assembly.diagnostics_table(machines, per_machine),
        "coverage": assembly.coverage_table(scores, chosen["config"]),
        "balances": assembly.balances_table(machines),
        "viability": viability_table(keys, pseudo),
    }
    found["stability"] = assembly.stability_table(
        per_machine,
        found["balances"],
        guard=guard,
        viability=None if veto is None else veto.viability,
        floor=noise_of(selection["floor"]),
    )
    selection["seeds"] = assembly.choice_over_seeds(
        found["stability"], grid, chosen["config"], chosen["rule"]
    )
    stats = transfer_statistics(
        grid, per_machine, coverage=found["coverage"], diagnostics=found["diagnostics"]
    )
    return found, {"selection": selection, "stats": stats}


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


def _bands(tables: Mapping[str, Table], readout: str | None) -> Bands:
    """Bands of the readout, the same in all tables."""
    found = {role: table.bands(readout) for role, table in tables.items()}
    if len(set(found.values())) > 1:
        counts = " and ".join(f"{n} in the {role} table" for role, n in found.items())
        raise InputError(
            f"The readout has other frequency bands in one table than in the other: {counts}. "
            "Embed both with the same network, and name the readout."
        )
    return found["dev"]


def _require_settings(configs: Sequence[ScoreConfig], rate: float, veto: str) -> None:
    if veto not in GUARDS:
        raise InputError(f"The veto is one of {', '.join(GUARDS)}. Got {veto!r}.")
    refuse_oracle(configs)
    if not 0 < rate < 1:
        raise InputError(f"The false-alarm rate must be between 0 and 1. Got {rate!r}.")


def _require_own(folder: Path, machines: Sequence[MachineData]) -> None:
    """An error where the folder is of another study; if not, it is unfinished from now on."""
    for part in (MACHINES, EXAMINED):
        mine = {machine_file(folder / part, machine) for machine in machines}
        strange = sorted(path for path in (folder / part).glob("*.npz") if path not in mine)
        if strange:
            raise InputError(
                f"{strange[0]} is of another study. Choose another folder, or delete it."
            )
    (folder / DOCUMENTS["provenance"]).unlink(missing_ok=True)
