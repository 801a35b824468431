"""The share of a study that is computed on a torch device, for a group of machines at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from daco.errors import DacoError, InputError
from daco.experiments.inputs import MachineData
from daco.experiments.machine import Loaded, Prepare, Settings, criteria_of_balances, longest_splits
from daco.method.config import parse_grid
from daco.method.criterion import Balance
from daco.method.kernels import require_device as require_method_device
from daco.method.machines import MachineScores, evaluate_machines, machine_balances, shape_groups
from daco.validation import Float32s, Float64s

GROUP = 512 * 2**20
"""Bytes of vectors and scores of a group of machines: 120 of the paper's size."""

T = TypeVar("T")
Item = TypeVar("Item")
Bank = tuple[str, Float32s, Any]
"""Title, vectors and domains of a machine's normals."""
Share = Callable[[Sequence[MachineData], Settings, str], Sequence[Any]]


def require_device(device: str, engine: str = "local") -> None:
    """An error where there is no such device, or none for that engine."""
    if device != "cpu" and engine != "local":
        raise InputError(
            f"The device {device!r} is for the engine local: a GPU computes many machines at once, "
            f"and the engine {engine} sends each to a worker of its own. Leave one of them out."
        )
    require_method_device(device)


def device_facts(device: str, settings: Settings) -> dict[str, Any]:
    """For a run's provenance: what was computed where."""
    if device == "cpu":
        return {"name": device}
    import torch

    place = torch.device(device)
    model = torch.cuda.get_device_name(place) if place.type == "cuda" else None
    count = len(settings.configs)
    return {"name": device, "model": model, "torch": torch.__version__, "configurations": count}


def on_device(share: Share, device: str) -> Prepare:
    """Arguments of a work: the machine, the settings, and the device's results for it.

    ``share`` is `scores_of_machines` or `criteria_of_machines`. A machine that the device refuses,
    because it has too few clips or does not fit, has none: the work computes all of it, or reports
    what is wrong with it.
    """

    def prepare(loaded: Loaded, settings: Settings) -> Iterator[tuple[int, tuple[Any, ...]]]:
        bytes_of_scores = 8 * len(settings.configs)
        for group in _groups(loaded, lambda item: _size(item[1], bytes_of_scores)):
            started = time.perf_counter()
            shares = list(share([data for _, data in group], settings, device))
            seconds = (time.perf_counter() - started) / len(group)
            while group:  # what is handed on need not be kept here
                (index, data), result = group.pop(0), shares.pop(0)
                if not isinstance(result, MachineScores):
                    yield index, (data, settings, result)
                    continue
                # Nothing is left for the vectors, and they are most of what is sent.
                data = replace(data, vectors=np.empty((0, data.dim), np.float32))
                yield index, (data, settings, result, seconds)

    return prepare


def scores_of_machines(
    machines: Sequence[MachineData], settings: Settings, device: str
) -> list[MachineScores | None]:
    """What `score_machine` computes of a machine's clips; None where the device refuses."""
    configs = parse_grid(settings.configs)

    def evaluate(members: list[int]) -> list[MachineScores]:
        group = [machines[m] for m in members]
        tests = [data.X_test for data in group]
        return evaluate_machines(
            [data.X for data in group],
            [data.domains for data in group],
            tests if len(tests[0]) else None,
            configs,
            settings.n_splits,
            settings.seed,
            bands=group[0].bands,
            device=device,
        )

    return _by_shape(
        [data.X for data in machines],
        [data.domains for data in machines],
        evaluate,
        [data.X_test for data in machines],
    )


def criteria_of_machines(
    machines: Sequence[MachineData], settings: Settings, device: str
) -> list[Float64s | None]:
    """The `other_criteria` of every machine; None where the device refuses."""
    configs = parse_grid(settings.configs)
    longest = longest_splits(settings)

    def criteria(members: list[int]) -> list[Float64s]:
        group = [machines[m] for m in members]
        balances = machine_balances(
            [data.X for data in group],
            [data.domains for data in group],
            configs,
            [(n_splits, seed) for seed, n_splits in longest.items()],
            bands=group[0].bands,
            device=device,
        )
        return [
            criteria_of_balances(dict(zip(longest, each, strict=True)), settings)
            for each in balances
        ]

    return _by_shape([data.X for data in machines], [data.domains for data in machines], criteria)


def banks_with_balances(
    banks: Iterable[Bank],
    names: Sequence[str],
    n_splits: int,
    seed: int,
    device: str,
    bands: int = 1,
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Numbered banks, each with its `Balance`, or None where the device refuses."""
    configs = parse_grid(names)
    for group in _groups(enumerate(banks), lambda item: item[1][1].nbytes):
        vectors = [vectors for _, (_, vectors, _) in group]
        domains = [domains for _, (_, _, domains) in group]

        def balances(members: list[int], X: Any = vectors, labels: Any = domains) -> list[Balance]:
            results = machine_balances(
                [X[m] for m in members],
                [labels[m] for m in members],
                configs,
                [(n_splits, seed)],
                bands=bands,
                device=device,
            )
            return [balance for (balance,) in results]

        results = _by_shape(vectors, domains, balances)
        for (index, bank), balance in zip(group, results, strict=True):
            yield index, (*bank, balance)


def _by_shape(
    X: Sequence[Float32s],
    domains: Sequence[Any],
    compute: Callable[[list[int]], Sequence[T]],
    X_test: Sequence[Float32s] | None = None,
) -> list[T | None]:
    """Results of machines of equal shape at a time; None where the device refuses."""
    results: list[T | None] = [None] * len(X)
    for members in shape_groups(X, domains, X_test):
        try:
            computed = compute(members)
        except DacoError:  # the work computes it, or reports of each machine what is wrong
            continue
        for m, each in zip(members, computed, strict=True):
            results[m] = each
    return results


def _size(data: MachineData, bytes_of_scores: int) -> int:
    return (len(data.domains) + len(data.names)) * (4 * data.dim + bytes_of_scores)


def _groups(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Items as many at a time as a group holds, the next ones while these are used."""
    batches = _batches(iter(items), size)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, batches, None)
        while (group := waiting.result()) is not None:
            waiting = pool.submit(next, batches, None)
            yield group


def _batches(items: Iterator[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    group: list[Item] = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= GROUP:
            yield group
            group, total = [], 0
    if group:
        yield group
