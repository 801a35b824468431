"""The work of a study on its machines.

`score_machine` computes what the grid needs, `examine_machine` what the further experiments need.
Both use one machine's own clips only and run in worker processes; `run_machines` hands them out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
from joblib import hash as joblib_hash

from daco.compute.processes import outcomes
from daco.data.views import first_view
from daco.embedding.cost import peak_memory
from daco.errors import DacoError, DataError, InputError
from daco.experiments.baselines import ORACLE, gaussian_mixture, selective_mahalanobis
from daco.experiments.inputs import SOURCE, TARGET, MachineData, left_out
from daco.experiments.study_tables import CLIP_ARRAYS, MACHINE_KEY, Arrays, read_arrays
from daco.experiments.veto import pseudo_arrays
from daco.files.atomic import atomic_write
from daco.method.bank import Grid, NormalBank
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, parse_grid
from daco.method.criterion import CHOICE_SPLITS, PAPER_SPLITS
from daco.method.external import without_tables
from daco.method.selection import RESAMPLES
from daco.validation import Float64s
from daco.version import __version__

HARD = "conf-hard-m0-k1"
PAPER_SEED = 0
_MAX_COVARIANCE = 2048  # features; a covariance of more takes minutes
_LAYOUT = 6  # of the arrays in a file; files of another layout are computed again

Result = TypeVar("Result")
Items = Iterable[tuple[int, tuple[Any, ...]]]
"""The index of a machine, and the arguments of the work on it."""
Progress = Callable[[str, int, int], None]
"""Called with the stage, the number of machines done, and their total."""


@dataclass(frozen=True)
class Settings:
    """What a study was asked to do, as far as it changes a machine's numbers.

    ``detectors`` are the external scorers that are fitted; the others are tables of scores.
    """

    configs: tuple[str, ...]
    seed: int = 0
    n_splits: int = CHOICE_SPLITS
    detectors: Mapping[str, Any] = field(default_factory=dict)

    @property
    def judged(self) -> tuple[str, ...]:
        """The configurations that the label-free veto judges: those that can score any clip."""
        configs = parse_grid(self.configs)
        labels = {label for config in configs for label in config.base.labels}
        tables = labels - {*self.detectors}
        return tuple(config.name for config in without_tables(configs, tables))

    @property
    def scored(self) -> tuple[str, ...]:
        """The configurations of the grid, and daco's default."""
        return tuple(dict.fromkeys([*self.configs, DEFAULT_CONFIG]))


def score_machine(data: MachineData, settings: Settings) -> Arrays:
    """Scores, metrics and criterion of every configuration; arrays as they are filed."""
    started = time.perf_counter()
    bank = _bank(data, settings)
    configs = parse_grid(settings.configs)
    scores = _test_scores(bank, data, settings.scored)
    arrays = {
        **{name: np.array(getattr(data, name)) for name in MACHINE_KEY},
        "configs": np.array(settings.configs),
        "scored": np.array(settings.scored),
        "names": data.names,
        "labels": data.labels,
        "domains": data.test_domains,
        "own_domains": data.domains,
        "n_normals": np.array(len(data.domains)),
        "scores": scores,
        "own": bank.leave_one_out(settings.scored),
        "weights": _decision_weights(bank, data),
        "quantities": np.array(data.quantities),
        "metrics": data.metrics(scores[:, : len(configs)]),
        **_criteria(data, bank, settings),
        "peak_memory": np.array(peak_memory()),
    }
    return arrays | {"seconds": np.array(time.perf_counter() - started)}


def _criteria(data: MachineData, bank: NormalBank, settings: Settings) -> Arrays:
    """Criterion and uniformity of the configurations; nan for one domain."""
    count = len(settings.configs)
    if not data.balanced:
        unknown = np.full(count, np.nan)
        nothing = {"resampled": np.empty((count, 0)), "separability": np.array(np.nan)}
        return {
            **dict.fromkeys(("balance", "paper_balance", "uniformity"), unknown),
            **nothing,
        }
    balance, uniformity = bank.balance_and_uniformity(
        settings.configs, settings.n_splits, settings.seed, n_resamples=RESAMPLES
    )
    same = settings.seed == PAPER_SEED and settings.n_splits >= PAPER_SPLITS
    paper = balance.splits[:, :PAPER_SPLITS].mean(axis=1) if same else None
    if paper is None:
        paper = bank.balance(settings.configs, PAPER_SPLITS, PAPER_SEED)
    return {
        "balance": balance.values,
        "paper_balance": paper,
        "resampled": balance.resampled,
        "uniformity": uniformity,
        "separability": np.array(bank.separability()),
    }


def _bank(data: MachineData, settings: Settings) -> NormalBank:
    tables = {label: own for label, (own, _) in data.systems.items()}
    scorers = {**settings.detectors, **tables}
    return NormalBank(data.X, data.domains, views=data.views, scorers=scorers)


def _test_scores(bank: NormalBank, data: MachineData, configs: Grid) -> Float64s:
    """Scores of the test clips, (n, C)."""
    if not len(data.X_test):
        return np.empty((0, len(parse_grid(configs))))
    tables = {label: test for label, (_, test) in data.systems.items()}
    return bank.score(data.X_test, configs, scores=tables)


def _decision_weights(bank: NormalBank, data: MachineData) -> Float64s:
    """How strongly the test clips belong to the domains, (n, G), the same for every score."""
    if not len(data.X_test):
        return np.empty((0, len(bank.domains)))
    return bank.examine(data.X_test, RAW_CONFIG).weights


def reference_machine(data: MachineData, settings: Settings) -> Arrays:
    """Reference scores of the normals, (N, C), that the test clips are judged against."""
    bank = _bank(data, settings)
    references = [bank.examine_normals(config).scores for config in settings.configs]
    return {"decided": np.array(settings.configs), "references": np.column_stack(references)}


def examine_machine(data: MachineData, settings: Settings) -> Arrays:
    """Baselines, diagnostics of the domains, and pseudo scores."""
    bank = _bank(data, settings)
    return {
        **_baselines(data, bank),
        **_diagnostics(data, bank),
        **pseudo_arrays(
            bank, data, settings.judged, seed=settings.seed, detectors=settings.detectors
        ),
    }


def _baselines(data: MachineData, bank: NormalBank) -> Arrays:
    """E1's backends, daco's default, and calibration with the true domains."""
    if not data.labelled:
        nothing = np.empty((0, len(data.quantities)))
        return {"backends": np.array([], dtype=np.str_), "backend_metrics": nothing}
    normals, test = first_view(data.X, data.views), first_view(data.X_test, data.views)
    systems = {"knn1": bank.score(data.X_test, RAW_CONFIG)[:, 0]}
    if normals.shape[1] <= _MAX_COVARIANCE:
        systems["sel-maha"] = selective_mahalanobis(normals, data.domains, test)
    systems["gmm2"] = gaussian_mixture(normals, test)
    systems[ORACLE] = bank.score(data.X_test, ORACLE, domains=data.test_domains)[:, 0]
    systems[DEFAULT_CONFIG] = bank.score(data.X_test, DEFAULT_CONFIG)[:, 0]
    scores = np.column_stack(list(systems.values()))
    return {
        "backends": np.array(list(systems)),
        "backend_metrics": data.metrics(scores),
    }


def _diagnostics(data: MachineData, bank: NormalBank) -> Arrays:
    """How well clips find their domain, and where anomalies lie above the normals of each."""
    accuracy = above_target = above_source = np.nan
    if data.labelled and data.balanced:
        normal = data.labels == 0
        weights = bank.domain_weights(data.X_test[normal], HARD)
        assigned = np.array(bank.domains)[weights.argmax(axis=1)]
        accuracy = np.mean(assigned == data.test_domains[normal])
        own = bank.leave_one_out(RAW_CONFIG)[:, 0]
        anomalies = bank.score(data.X_test[~normal], RAW_CONFIG)[:, 0]
        above_target = 100 * np.mean(anomalies > own[data.domains == TARGET].max())
        q90 = np.quantile(own[data.domains == SOURCE], 0.9)
        above_source = 100 * np.mean(anomalies > q90)
    return {
        "assignment_accuracy": np.array(accuracy),
        "above_target_max": np.array(above_target),
        "above_source_q90": np.array(above_source),
    }


def without_clips(arrays: Arrays) -> Arrays:
    """What tables of machines need of a machine's arrays: nothing of single clips."""
    return {
        name: values for name, values in arrays.items() if name not in (*CLIP_ARRAYS, "references")
    }


def machine_file(folder: Path, data: MachineData) -> Path:
    """Where a machine's arrays lie; names that no file system takes are escaped."""
    name = f"{data.split}_{quote(data.machine, safe=' ')}_section_{quote(data.section, safe='')}"
    return folder / f"{name}.npz"


def run_machines(
    work: Callable[..., Arrays],
    machines: Sequence[MachineData],
    settings: Settings,
    *,
    pool: Executor | None,
    folder: Path | None = None,
    stage: str = "machines",
    progress: Progress | None = None,
    brief: Callable[[Arrays], Arrays] | None = None,
    notes: list[str],
) -> dict[int, Arrays]:
    """`work` for every machine, by its number; those filed under the same key are not redone.

    `brief` shortens what is returned, not what is filed. A machine that fails is left out, with a
    line in `notes`.
    """
    keys: dict[int, str] = {}
    found: dict[int, Arrays] = {}
    shorten = brief or (lambda arrays: arrays)
    files = [None if folder is None else machine_file(folder, m) for m in machines]
    for index, (file, data) in enumerate(zip(files, machines, strict=True)):
        # The key takes all vectors of the machine; without a file they are not read for it.
        if file is not None and file.is_file():
            earlier = _read_filed(file, _key(data, settings))
            if earlier is not None:
                found[index] = shorten(earlier)
    filed_before = len(found)
    missing = [index for index in range(len(machines)) if index not in found]

    def items() -> Items:
        for index in missing:
            data = machines[index].loaded()
            if files[index] is not None:
                keys[index] = _key(data, settings)
            yield index, (data, settings)

    def filed(index: int, arrays: Arrays) -> Arrays:
        # Here, not in the worker: that may be on a computer without this folder.
        if (file := files[index]) is not None:
            with atomic_write(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, allow_pickle=False, key=np.array(keys.pop(index)), **arrays)
        return shorten(arrays)

    def advance(done: int) -> None:
        if progress is not None:
            progress(stage, filed_before + done, len(machines))

    titles = [f"{machine.split} machine {machine.title}" for machine in machines]
    found |= collect(pool, work, items(), titles, filed, advance=advance, notes=notes)
    require_some(found, notes)
    return dict(sorted(found.items()))


def collect(
    pool: Executor | None,
    work: Callable[..., Result],
    items: Items,
    titles: Sequence[str],
    finish: Callable[[int, Result], Result] = lambda index, result: result,
    *,
    advance: Callable[[int], None],
    notes: list[str],
) -> dict[int, Result]:
    """Results by index, each as `finish` returns it; machines that failed are in `notes`."""
    results: dict[int, Result] = {}
    failures: dict[int, DacoError] = {}
    advance(0)
    for index, outcome in outcomes(pool, work, items):
        if isinstance(outcome, DacoError):
            failures[index] = outcome
        else:
            results[index] = finish(index, outcome)
        advance(len(results) + len(failures))
    notes += left_out({titles[at]: failures[at] for at in sorted(failures)})
    return results


def require_some(machines: Collection[Any], notes: Sequence[str]) -> None:
    """An error with the `notes` where no machine is left."""
    if not machines:
        raise DataError("\n".join(["No machine is left to work on.", *notes]))


def _key(data: MachineData, settings: Settings) -> str:
    """Text that changes whenever a machine's results would."""
    asked = f"{settings.seed}/{settings.n_splits}/{' '.join(settings.configs)}"
    try:
        asked += f"/{joblib_hash(dict(settings.detectors))}"
    except Exception as error:  # whatever pickling an object of others raises
        raise InputError(
            f"A detector of the grid cannot be pickled: {error}. Give one of a module's classes."
        ) from error
    return f"{__version__}/{_LAYOUT}/{asked}/{data.fingerprint}"


def _read_filed(path: Path, key: str) -> Arrays | None:
    """The arrays of an earlier run with the same key, or None."""
    try:
        if str(read_arrays(path, ["key"])["key"]) != key:
            return None
        arrays = read_arrays(path)
    except DataError:
        return None  # not a file of ours, or a damaged one: computed again
    del arrays["key"]
    return arrays
