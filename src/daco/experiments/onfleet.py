"""The share of a study that is computed on a torch device, for a group of machines at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

from daco.errors import DacoError, InputError
from daco.experiments.inputs import MachineData
from daco.experiments.machine import Loaded, Prepare, Settings, other_criteria
from daco.method.config import ScoreConfig, parse_grid
from daco.method.criterion import Balance
from daco.method.fleet import Evaluated, Fleet, computes
from daco.method.fleet.inputs import require_torch
from daco.method.fleet.ragged import alike
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
    if device == "cpu":
        return
    if engine != "local":
        raise InputError(
            f"The device {device!r} is for the engine local: a GPU computes many machines at once, "
            f"and the engine {engine} sends each to a worker of its own. Leave one of them out."
        )
    require_torch()
    from daco.compute.device import float64_device

    float64_device(device)


def device_facts(device: str, settings: Settings) -> dict[str, Any]:
    """For a run's provenance: what was computed where."""
    if device == "cpu":
        return {"name": device}
    import torch

    found = torch.device(device)
    model = torch.cuda.get_device_name(found) if found.type == "cuda" else None
    count = len(computed(settings.configs))
    return {"name": device, "model": model, "torch": torch.__version__, "configurations": count}


def on_device(share: Share, device: str) -> Prepare:
    """Arguments of a work: the machine, the settings, and what the device found for it.

    ``share`` is `scores_of_machines` or `criteria_of_machines`. For a machine that the device
    refuses, because it is too large or has too few clips, nothing is found: the work computes
    all of it, or says what is wrong with it.
    """

    def prepare(loaded: Loaded, settings: Settings) -> Iterator[tuple[int, tuple[Any, ...]]]:
        bytes_of_scores = 8 * len(settings.configs)
        for group in _groups(loaded, lambda item: _size(item[1], bytes_of_scores)):
            started = time.perf_counter()
            shares = list(share([data for _, data in group], settings, device))
            seconds = (time.perf_counter() - started) / len(group)
            while group:  # what is handed on need not be kept here
                (index, data), found = group.pop(0), shares.pop(0)
                if not isinstance(found, Evaluated):
                    yield index, (data, settings, found)
                    continue
                if len(found.own.T) == len(settings.configs):
                    # Nothing is left for the vectors, and they are most of what is sent.
                    data = replace(data, vectors=np.empty((0, data.dim), np.float32))
                yield index, (data, settings, found, seconds)

    return prepare


def scores_of_machines(
    machines: Sequence[MachineData], settings: Settings, device: str
) -> list[Evaluated | None]:
    """What `score_machine` asks for, of the configurations that a fleet computes."""
    configs = computed(settings.configs)
    found: list[Evaluated | None] = [None] * len(machines)
    for tested in (True, False):
        part = [m for m, data in enumerate(machines) if bool(len(data.names)) == tested]
        tests = [machines[m].X_test for m in part] if tested else None

        def evaluate(
            fleet: Fleet, members: list[int], tests: list[Float32s] | None = tests
        ) -> list[Evaluated]:
            asked = None if tests is None else [tests[at] for at in members]
            return fleet.evaluate(asked, configs, settings.n_splits, settings.seed)

        if part and configs:
            banks = [(machines[m].X, machines[m].domains) for m in part]
            for m, each in zip(part, _by_fleet(banks, tests, device, evaluate), strict=True):
                found[m] = each
    return found


def criteria_of_machines(
    machines: Sequence[MachineData], settings: Settings, device: str
) -> list[Float64s | None]:
    """The `other_criteria` of the configurations that a fleet computes."""
    configs = computed(settings.configs)

    def criteria(fleet: Fleet, members: list[int]) -> list[Float64s]:
        @cache
        def balances(n_splits: int, seed: int) -> list[Balance]:
            return fleet.exact_balance(configs, n_splits, seed)

        def balance(machine: int, n_splits: int, seed: int) -> Balance:
            return balances(n_splits, seed)[machine]

        return [other_criteria(partial(balance, at), settings) for at in range(len(members))]

    if not configs:
        return [None] * len(machines)
    banks = [(data.X, data.domains) for data in machines]
    return _by_fleet(banks, None, device, criteria)


def banks_with_balances(
    banks: Iterable[Bank], names: Sequence[str], n_splits: int, seed: int, device: str
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Numbered banks, each with the `Balance` of the configurations that a fleet computes.

    It is None where the device refuses, or computes none of them.
    """
    configs = computed(names)

    def balances(fleet: Fleet, members: list[int]) -> list[Balance]:
        return fleet.exact_balance(configs, n_splits, seed)

    for group in _groups(enumerate(banks), lambda item: item[1][1].nbytes):
        found: Sequence[Balance | None] = [None] * len(group)
        if configs:
            given = [(vectors, domains) for _, (_, vectors, domains) in group]
            found = _by_fleet(given, None, device, balances)
        for (index, bank), balance in zip(group, found, strict=True):
            yield index, (*bank, balance)


def computed(names: Iterable[str]) -> list[ScoreConfig]:
    """The configurations that a fleet computes."""
    return [config for config in parse_grid(names) if computes(config)]


def _by_fleet(
    banks: Sequence[tuple[Float32s, Any]],
    tests: Sequence[Float32s] | None,
    device: str,
    compute: Callable[[Fleet, list[int]], Sequence[T]],
) -> list[T | None]:
    """What is computed for every bank; None where its fleet refuses."""
    found: list[T | None] = [None] * len(banks)
    vectors, domains = [each for each, _ in banks], [each for _, each in banks]
    for members, fleet in alike(vectors, domains, tests, device=device):
        try:
            results = compute(fleet, members)
        except DacoError:  # the CPU engine does it, or says of each machine what is wrong
            continue
        for m, each in zip(members, results, strict=True):
            found[m] = each
    return found


def _size(data: MachineData, bytes_of_scores: int) -> int:
    return (len(data.domains) + len(data.names)) * (4 * data.dim + bytes_of_scores)


def _groups(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Items as many at a time as a group holds, the next ones while these are used."""
    taken = _taken(iter(items), size)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, taken, None)
        while (group := waiting.result()) is not None:
            waiting = pool.submit(next, taken, None)
            yield group


def _taken(items: Iterator[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
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
