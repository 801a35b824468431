"""The work of a study on its machines, and its results in files.

`score_machine` computes what the grid needs, `examine_machine` what the further experiments need.
Both use one machine's own clips only and run in worker processes; `run_machines` hands them out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from daco.compute.processes import outcomes
from daco.embedding.cost import peak_memory
from daco.errors import DacoError
from daco.evaluation.metrics import grid_metrics, machine_metrics
from daco.experiments.inputs import SOURCE, TARGET, MachineData
from daco.experiments.veto import pseudo_arrays
from daco.files.atomic import atomic_write
from daco.method.bank import NormalBank
from daco.method.config import RAW_CONFIG, ScoreConfig, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance
from daco.method.machines import MachineEvaluation
from daco.validation import Float64s
from daco.version import __version__

HARD = "conf-hard-m0-k1"
ORACLE = "conf-oracle-m30-k1"
STABILITY_SEEDS = tuple(range(10))
STABILITY_SPLITS = (5, 10, 20)

_OF_CLIPS = ("names", "labels", "domains", "own_domains", "scores", "own")

_LAYOUT = 2  # of the arrays in a file; files of another layout are computed again
_NAMED = 20  # machines that failed, in one message

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Settings:
    """What a study was asked to do, as far as it changes a machine's numbers."""

    configs: tuple[str, ...]
    seed: int = 0
    n_splits: int = CHOICE_SPLITS

    def key(self) -> str:
        """Text that changes whenever results would."""
        return f"{self.seed}/{self.n_splits}/{' '.join(self.configs)}"


Work = Callable[..., Arrays]
Loaded = Iterable[tuple[int, MachineData]]
Prepare = Callable[[Loaded, Settings], Iterable[tuple[int, tuple[Any, ...]]]]
"""Makes the arguments of the work from machines as they are loaded."""
Progress = Callable[[str, int, int], None]
"""Called with the stage, the number of machines done, and their total."""


def score_machine(
    data: MachineData,
    settings: Settings,
    evaluated: MachineEvaluation | None = None,
    seconds: float = 0.0,
) -> Arrays:
    """Scores, metrics and criterion of every configuration; arrays as they are filed.

    ``evaluated`` is what a device computed in so many seconds; without it, it is computed here.
    """
    started = time.perf_counter()
    configs = parse_grid(settings.configs)
    found = _evaluate(data, configs, settings) if evaluated is None else evaluated
    assert found.balance is not None
    assert found.uniformity is not None
    scores = np.empty((0, len(configs))) if found.scores is None else found.scores
    metrics = np.full((len(configs), 3), np.nan)
    if data.labelled:
        metrics = 100 * grid_metrics(scores, data.labels, data.test_domains).values
    arrays = {
        "split": np.array(data.split),
        "machine": np.array(data.machine),
        "section": np.array(data.section),
        "title": np.array(data.title),
        "configs": np.array(settings.configs),
        "names": data.names,
        "labels": data.labels,
        "domains": data.test_domains,
        "own_domains": data.domains,
        "scores": scores,
        "own": found.own,
        "metrics": metrics,
        "balance": found.balance.values,
        "uniformity": found.uniformity,
        "separability": np.array(found.separability),
        "peak_memory": np.array(peak_memory()),
    }
    return arrays | {"seconds": np.array(seconds + time.perf_counter() - started)}


def examine_machine(
    data: MachineData, settings: Settings, criteria: Float64s | None = None
) -> Arrays:
    """Baselines, diagnostics of the domains, pseudo scores, criteria under other seeds.

    ``criteria`` are the `other_criteria` that a device computed.
    """
    bank = NormalBank(data.X, data.domains, bands=data.bands)
    configs = parse_grid(settings.configs)
    if criteria is None:
        criteria = other_criteria(bank, configs, settings)
    seeds, n_splits = np.array(variants(settings)).T
    return {
        "seeds": seeds,
        "n_splits": n_splits,
        "balances": criteria,
        **_baselines(data, bank),
        **_diagnostics(data, bank),
        **pseudo_arrays(
            data.X, data.domains, configs, data.faults, bands=data.bands, seed=settings.seed
        ),
    }


def without_clips(arrays: Arrays) -> Arrays:
    """What tables of machines need of the arrays of `score_machine`: nothing of single clips."""
    kept = {name: values for name, values in arrays.items() if name not in _OF_CLIPS}
    return kept | {"n_normals": np.array(len(arrays["own_domains"]))}


def machine_file(folder: Path, data: MachineData) -> Path:
    """Where a machine's arrays lie; names that no file system takes are escaped."""
    name = f"{data.split}_{quote(data.machine, safe=' ')}_section_{quote(data.section, safe='')}"
    return folder / f"{name}.npz"


def write_arrays(path: Path, arrays: Arrays, key: str) -> None:
    """The arrays, and the key of what they were computed from."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, key=np.array(key), **arrays)


def read_arrays(path: Path, key: str) -> Arrays | None:
    """The arrays of an earlier run with the same key, or None."""
    if not path.is_file():
        return None
    try:
        # NumPy leaves a file that it opened itself open when it is damaged.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if str(file["key"]) != key:
                return None
            return {name: file[name] for name in file.files if name != "key"}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None  # not a file of ours, or a damaged one: computed again


def _evaluate(
    data: MachineData, configs: Sequence[ScoreConfig], settings: Settings
) -> MachineEvaluation:
    """Everything about the machine's clips."""
    bank = NormalBank(data.X, data.domains, bands=data.bands)
    # First, because the last bits of band-wise scores depend on what was asked for before.
    scores = bank.score(data.X_test, configs) if len(data.X_test) else None
    own = bank.leave_one_out(configs)
    balance, uniformity = bank.balance_and_uniformity(configs, settings.n_splits, settings.seed)
    return MachineEvaluation(own, bank.separability(), scores, balance, uniformity)


def variants(settings: Settings) -> list[tuple[int, int]]:
    """Seeds and numbers of splits of the criteria that a study looks at besides its own."""
    numbers = [(settings.seed, n_splits) for n_splits in STABILITY_SPLITS]
    return list(dict.fromkeys([*numbers, *((s, settings.n_splits) for s in STABILITY_SEEDS)]))


def other_criteria(
    bank: NormalBank, configs: Sequence[ScoreConfig], settings: Settings
) -> Float64s:
    """The criterion under every variant: (variants, C)."""
    balances = {
        seed: bank.exact_balance(configs, n_splits, seed)
        for seed, n_splits in longest_splits(settings).items()
    }
    return criteria_of_balances(balances, settings)


def longest_splits(settings: Settings) -> dict[int, int]:
    """For each seed of the variants its largest number of splits.

    Splits are drawn one after the other, so the first 5 of 200 are those that a run of 5 splits
    draws, and one balance of a seed has all of its numbers of splits.
    """
    asked = variants(settings)
    return {seed: max(n for s, n in asked if s == seed) for seed, _ in asked}


def criteria_of_balances(balances: Mapping[int, Balance], settings: Settings) -> Float64s:
    """(variants, C) from the balances of `longest_splits`."""
    splits = {seed: balance.splits for seed, balance in balances.items()}
    asked = variants(settings)
    return np.stack([splits[seed][:, :n_splits].mean(axis=1) for seed, n_splits in asked])


def _baselines(data: MachineData, bank: NormalBank) -> Arrays:
    """E1's backends, and calibration with the true domains: what assignment errors cost."""
    if not data.labelled:
        return {"backends": np.array([], dtype=np.str_), "backend_metrics": np.empty((0, 3))}
    # A covariance of all bands together has more features than clips, and takes minutes.
    normals, test = (_over_bands(vectors, data.bands) for vectors in (data.X, data.X_test))
    systems = {
        "knn1": bank.score(data.X_test, RAW_CONFIG)[:, 0],
        "sel-maha": selective_mahalanobis(normals, data.domains, test),
        "gmm2": gaussian_mixture(normals, test),
        ORACLE: bank.score(data.X_test, ORACLE, domains=data.test_domains)[:, 0],
    }
    metrics = [machine_metrics(s, data.labels, data.test_domains) for s in systems.values()]
    values = [[m["auc_source"], m["auc_target"], m["pauc"]] for m in metrics]
    return {"backends": np.array(list(systems)), "backend_metrics": 100 * np.array(values)}


def selective_mahalanobis(X: NDArray[Any], domains: NDArray[Any], X_test: NDArray[Any]) -> Float64s:
    """Smallest squared Mahalanobis distance to a domain's mean, all with the source's covariance.

    The covariance is Ledoit and Wolf's; ten target clips support none of their own.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh
    from sklearn.covariance import LedoitWolf

    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    covariance = LedoitWolf(store_precision=False).fit(X[domains == SOURCE]).covariance_
    centred = [X_test - X[domains == domain].mean(axis=0) for domain in (SOURCE, TARGET)]
    vectors = np.concatenate(centred)
    try:  # five times as fast as an inverse
        solved = cho_solve(cho_factor(covariance), vectors.T).T
    except LinAlgError:  # shrunk by nothing: clips that are all equal, or span too little
        solved = vectors @ pinvh(covariance)
    squared = np.einsum("nd,nd->n", solved, vectors).reshape(2, -1)
    return np.asarray(squared.min(axis=0))


def gaussian_mixture(X: NDArray[Any], X_test: NDArray[Any]) -> Float64s:
    """Negative log-likelihood under a diagonal mixture of two Gaussians of all normals."""
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(2, covariance_type="diag", reg_covar=1e-4, random_state=0)
    return np.asarray(-mixture.fit(X.astype(np.float64)).score_samples(X_test.astype(np.float64)))


def _over_bands(vectors: NDArray[Any], bands: int) -> NDArray[Any]:
    """The mean of the bands of each vector."""
    return vectors if bands == 1 else vectors.reshape(len(vectors), bands, -1).mean(axis=1)


def _diagnostics(data: MachineData, bank: NormalBank) -> Arrays:
    """How well clips find their domain, and where anomalies lie above the normals of each."""
    accuracy = above_target = above_source = np.nan
    if data.labelled:
        normal = data.labels == 0
        weights = bank.domain_weights(data.X_test[normal], HARD)
        assigned = np.array(bank.domains)[weights.argmax(axis=1)]
        accuracy = float(np.mean(assigned == data.test_domains[normal]))
        own = bank.leave_one_out(RAW_CONFIG)[:, 0]
        anomalies = bank.score(data.X_test[~normal], RAW_CONFIG)[:, 0]
        limit = own[data.domains == TARGET].max()
        above_target = 100 * float(np.mean(anomalies > limit))
        q90 = np.quantile(own[data.domains == SOURCE], 0.9)
        above_source = 100 * float(np.mean(anomalies > q90))
    return {
        "assignment_accuracy": np.array(accuracy),
        "above_target_max": np.array(above_target),
        "above_source_q90": np.array(above_source),
    }


def run_machines(
    work: Work,
    machines: Sequence[MachineData],
    settings: Settings,
    *,
    pool: Executor | None,
    folder: Path | None = None,
    stage: str = "machines",
    progress: Progress | None = None,
    prepare: Prepare | None = None,
    brief: Callable[[Arrays], Arrays] | None = None,
) -> list[Arrays]:
    """`work` for every machine, in their order; those filed under the same key are not redone.

    `prepare` makes the arguments of `work`, by default the
    machine and the settings. `brief` is what is returned of arrays that are filed.

    Raises
    ------
    DacoError
        Some machines failed; the message names them. The others are filed.
    """
    found: dict[int, Arrays] = {}
    shortened = brief if brief is not None and folder is not None else lambda arrays: arrays
    files = [None if folder is None else machine_file(folder, m) for m in machines]
    for index, (file, data) in enumerate(zip(files, machines, strict=True)):
        # The key takes all vectors of the machine; without a file they are not read for it.
        if file is not None and file.is_file():
            earlier = read_arrays(file, _key(data, settings))
            if earlier is not None:
                found[index] = shortened(earlier)
    report = progress or (lambda stage, done, total: None)
    report(stage, len(found), len(machines))
    failures: dict[int, DacoError] = {}
    todo = [index for index in range(len(machines)) if index not in found]
    keys: dict[int, str] = {}

    def loaded() -> Iterator[tuple[int, MachineData]]:
        for index in todo:
            data = machines[index].loaded()
            if files[index] is not None:
                keys[index] = _key(data, settings)
            yield index, data

    for index, outcome in outcomes(pool, work, (prepare or _alone)(loaded(), settings)):
        if isinstance(outcome, DacoError):
            failures[index] = outcome
        else:
            # Here, not in the worker: that may be on a computer without this folder.
            if (file := files[index]) is not None:
                write_arrays(file, outcome, keys.pop(index))
            found[index] = shortened(outcome)
        report(stage, len(found) + len(failures), len(machines))
    if failures:
        raise _failed(machines, failures, kept=folder is not None)
    return [found[index] for index in range(len(machines))]


def _key(data: MachineData, settings: Settings) -> str:
    return f"{__version__}/{_LAYOUT}/{settings.key()}/{data.fingerprint}"


def _alone(loaded: Loaded, settings: Settings) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for index, data in loaded:
        yield index, (data, settings)


def _failed(
    machines: Sequence[MachineData], failures: dict[int, DacoError], *, kept: bool
) -> DacoError:
    order = sorted(failures)  # not the one in which they happened to be finished
    listed = [
        f"{machines[i].split} machine {machines[i].title}: {failures[i]}" for i in order[:_NAMED]
    ]
    if len(order) > _NAMED:
        listed.append(f"... and {len(order) - _NAMED} more.")
    head = f"{len(failures)} of {len(machines)} machines could not be studied."
    tail = "The others are kept; the same command goes on from there." if kept else ""
    kind = type(failures[order[0]])
    return kind("\n".join([head, *listed, tail]).rstrip())
