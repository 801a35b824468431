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
from daco.experiments.study_tables import (
    CLIP_ARRAYS,
    MACHINE_KEY,
    VOTE_ARRAYS,
    Arrays,
    read_arrays,
)
from daco.experiments.veto import pseudo_arrays
from daco.files.atomic import atomic_write
from daco.method.bank import Grid, NormalBank
from daco.method.config import RAW_CONFIG, VOTE_CONFIG, ScoreConfig, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance
from daco.method.external import without_tables
from daco.method.machines import MachineEvaluation
from daco.validation import Float64s
from daco.version import __version__

HARD = "conf-hard-m0-k1"
STABILITY_SEEDS = tuple(range(10))
STABILITY_SPLITS = (5, 10, 20)

_LAYOUT = 5  # of the arrays in a file; files of another layout are computed again

Result = TypeVar("Result")
Items = Iterable[tuple[int, tuple[Any, ...]]]
"""The index of a machine, and the arguments of the work on it."""
Loaded = Iterable[tuple[int, MachineData]]
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
        tables = {config.base.label for config in configs} - {"", *self.detectors}
        return tuple(config.name for config in without_tables(configs, tables))

    @property
    def variants(self) -> list[tuple[int, int]]:
        """Seeds and numbers of splits of the criteria that a study looks at besides its own.

        None with detectors, which are fitted anew in every split.
        """
        if self.detectors:
            return []
        numbers = [(self.seed, n_splits) for n_splits in STABILITY_SPLITS]
        return list(dict.fromkeys([*numbers, *((s, self.n_splits) for s in STABILITY_SEEDS)]))

    @property
    def longest_splits(self) -> dict[int, int]:
        """For each seed of the variants its largest number of splits.

        Splits are drawn one after the other, so the first 5 of 200 are those that a run of 5
        splits draws, and one balance of a seed has all of its numbers of splits.
        """
        return {seed: max(n for s, n in self.variants if s == seed) for seed, _ in self.variants}

    def criteria_of(self, balances: Mapping[int, Balance]) -> Float64s:
        """The criterion under every variant, (variants, C), from balances of `longest_splits`."""
        splits = {seed: balance.splits for seed, balance in balances.items()}
        return np.stack([splits[seed][:, :n].mean(axis=1) for seed, n in self.variants])


def score_machine(
    data: MachineData,
    settings: Settings,
    evaluated: MachineEvaluation | None = None,
    seconds: float = 0.0,
) -> Arrays:
    """Scores, metrics and criterion of every configuration; arrays as they are filed.

    ``evaluated`` is the result of a device, which took ``seconds``; by default it is computed here.
    """
    started = time.perf_counter()
    configs = parse_grid(settings.configs)
    found = _evaluate(data, configs, settings) if evaluated is None else evaluated
    scores = np.empty((0, len(configs))) if found.scores is None else found.scores
    unknown = np.full(len(configs), np.nan)
    arrays = {
        **{name: np.array(getattr(data, name)) for name in MACHINE_KEY},
        "configs": np.array(settings.configs),
        "names": data.names,
        "labels": data.labels,
        "domains": data.test_domains,
        "own_domains": data.domains,
        "n_normals": np.array(len(data.domains)),
        "scores": scores,
        "own": found.own,
        "quantities": np.array(data.quantities),
        "metrics": data.metrics(scores),
        "balance": unknown if found.balance is None else found.balance.values,
        "uniformity": unknown if found.uniformity is None else found.uniformity,
        "separability": np.array(found.separability),
        "peak_memory": np.array(peak_memory()),
    }
    return arrays | {"seconds": np.array(seconds + time.perf_counter() - started)}


def _evaluate(
    data: MachineData, configs: Sequence[ScoreConfig], settings: Settings
) -> MachineEvaluation:
    bank = _bank(data, settings)
    # First, because the last bits of band-wise scores depend on what was asked for before.
    scores = _test_scores(bank, data, configs)
    own = bank.leave_one_out(configs)
    if not data.balanced:
        return MachineEvaluation(own, np.nan, scores)
    balance, uniformity = bank.balance_and_uniformity(configs, settings.n_splits, settings.seed)
    return MachineEvaluation(own, bank.separability(), scores, balance, uniformity)


def _bank(data: MachineData, settings: Settings) -> NormalBank:
    tables = {label: own for label, (own, _) in data.systems.items()}
    scorers = {**settings.detectors, **tables}
    return NormalBank(data.X, data.domains, bands=data.bands, scorers=scorers)


def _test_scores(bank: NormalBank, data: MachineData, configs: Grid) -> Float64s | None:
    """Scores of the test clips, (n, C); None where there are none."""
    tables = {label: test for label, (_, test) in data.systems.items()}
    return bank.score(data.X_test, configs, scores=tables) if len(data.X_test) else None


def examine_machine(
    data: MachineData, settings: Settings, criteria: Float64s | None = None
) -> Arrays:
    """The vote, baselines, diagnostics of the domains, pseudo scores, criteria of other seeds.

    ``criteria`` are the `other_criteria` that a device computed.
    """
    bank = _bank(data, settings)
    configs = parse_grid(settings.configs)
    variants = settings.variants if data.balanced else []
    if criteria is None:
        criteria = (
            other_criteria(bank, configs, settings) if variants else np.empty((0, len(configs)))
        )
    seeds, n_splits = np.array(variants, int).reshape(-1, 2).T
    votes = _test_scores(bank, data, VOTE_CONFIG)
    vote = np.empty(0) if votes is None else votes[:, 0]
    return {
        "vote": vote,
        "vote_own": bank.leave_one_out(VOTE_CONFIG)[:, 0],
        "seeds": seeds,
        "n_splits": n_splits,
        "balances": criteria,
        **_baselines(data, bank, vote),
        **_diagnostics(data, bank),
        **pseudo_arrays(
            data.X,
            data.domains,
            settings.judged,
            data.faults,
            bands=data.bands,
            seed=settings.seed,
            detectors=settings.detectors,
        ),
    }


def other_criteria(
    bank: NormalBank, configs: Sequence[ScoreConfig], settings: Settings
) -> Float64s:
    """The criterion under every variant: (variants, C)."""
    longest = settings.longest_splits.items()
    return settings.criteria_of({seed: bank.exact_balance(configs, n, seed) for seed, n in longest})


def _baselines(data: MachineData, bank: NormalBank, vote: Float64s) -> Arrays:
    """E1's backends, and calibration with the true domains: what assignment errors cost."""
    if not data.labelled:
        nothing = np.empty((0, len(data.quantities)))
        return {"backends": np.array([], dtype=np.str_), "backend_metrics": nothing}
    # A covariance of all bands together has more features than clips, and takes minutes.
    (normals, bands), (test, _) = (first_view(each, data.bands) for each in (data.X, data.X_test))
    if bands > 1:
        normals, test = (
            each.reshape(len(each), bands, -1).mean(axis=1) for each in (normals, test)
        )
    systems = {
        "knn1": bank.score(data.X_test, RAW_CONFIG)[:, 0],
        "sel-maha": selective_mahalanobis(normals, data.domains, test),
        "gmm2": gaussian_mixture(normals, test),
        ORACLE: bank.score(data.X_test, ORACLE, domains=data.test_domains)[:, 0],
        VOTE_CONFIG: vote,
    }
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
    clips = (*CLIP_ARRAYS, *VOTE_ARRAYS)
    return {name: values for name, values in arrays.items() if name not in clips}


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
    prepare: Callable[[Loaded, Settings], Items] | None = None,
    brief: Callable[[Arrays], Arrays] | None = None,
    notes: list[str],
) -> dict[int, Arrays]:
    """`work` for every machine, by its number; those filed under the same key are not redone.

    `prepare` makes the arguments of `work`, by default the machine and the settings, of machines
    as they are loaded. `brief` shortens what is returned, not what is filed. A machine that fails
    is left out, with a line in `notes`.
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

    def loaded() -> Loaded:
        for index in missing:
            data = machines[index].loaded()
            if files[index] is not None:
                keys[index] = _key(data, settings)
            yield index, data

    def filed(index: int, arrays: Arrays) -> Arrays:
        # Here, not in the worker: that may be on a computer without this folder.
        if (file := files[index]) is not None:
            with atomic_write(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, allow_pickle=False, key=np.array(keys.pop(index)), **arrays)
        return shorten(arrays)

    def advance(done: int) -> None:
        if progress is not None:
            progress(stage, filed_before + done, len(machines))

    items = prepare(loaded(), settings) if prepare else ((i, (d, settings)) for i, d in loaded())
    titles = [f"{machine.split} machine {machine.title}" for machine in machines]
    found |= collect(pool, work, items, titles, filed, advance=advance, notes=notes)
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
