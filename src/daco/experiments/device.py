"""The share of a study that is computed on a torch device, for a group of machines at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from daco.data.views import Bands
from daco.errors import InputError
from daco.experiments.inputs import MachineData
from daco.experiments.machine import Items, Loaded, Settings
from daco.method.criterion import Balance
from daco.method.kernels import require_device as require_method_device
from daco.method.machines import MachineEvaluation, evaluate_machines, machine_balances
from daco.validation import Float64s

GROUP = 512 * 2**20
"""Bytes of vectors and scores of a group of machines: 120 of the paper's size."""

Item = TypeVar("Item")
Share = Callable[[Sequence[MachineData], Settings, str], Sequence[Any]]


def require_device(device: str, engine: str = "local", scorers: Collection[str] = ()) -> None:
    """An error where there is no such device, or none for that engine or external scorers."""
    if device != "cpu" and engine != "local":
        raise InputError(
            f"The device {device!r} is for the engine local: a GPU computes many machines at once, "
            f"and the engine {engine} sends each to a worker of its own. Leave one of them out."
        )
    if device != "cpu" and scorers:
        raise InputError(
            f"Detectors and scores of other systems are not for the device {device!r}. Leave it "
            "out, or them."
        )
    require_method_device(device)


def device_facts(device: str, settings: Settings) -> dict[str, Any]:
    """For a run's provenance: what was computed where."""
    if device == "cpu":
        return {"name": device}
    import torch

    model = torch.cuda.get_device_name(device) if device.startswith("cuda") else None
    count = len(settings.configs)
    return {"name": device, "model": model, "torch": torch.__version__, "configurations": count}


def on_device(share: Share, device: str) -> Callable[[Loaded, Settings], Items]:
    """Arguments of a work: the machine, the settings, and the device's results for it.

    ``share`` is `scores_of_machines` or `criteria_of_machines`. A machine that the device refuses,
    because it has too few clips or does not fit, has none: the work computes all of it, or reports
    what is wrong with it.
    """

    def prepare(loaded: Loaded, settings: Settings) -> Items:
        def size(item: tuple[int, MachineData]) -> int:
            data = item[1]
            clips = len(data.domains) + len(data.names)
            return clips * (4 * data.dim + 8 * len(settings.configs))

        for group in _groups(loaded, size):
            started = time.perf_counter()
            shares = list(share([data for _, data in group], settings, device))
            seconds = (time.perf_counter() - started) / len(group)
            while group:  # what is handed on need not be kept here
                (index, data), result = group.pop(0), shares.pop(0)
                if not isinstance(result, MachineEvaluation):
                    yield index, (data, settings, result)
                    continue
                # Nothing is left for the vectors, and they are most of what is sent.
                data = replace(data, vectors=np.empty((0, data.dim), np.float32))
                yield index, (data, settings, result, seconds)

    return prepare


def scores_of_machines(
    machines: Sequence[MachineData], settings: Settings, device: str
) -> list[MachineEvaluation | None]:
    """What `score_machine` computes of a machine's clips; None where the device refuses."""
    results = evaluate_machines(
        [data.X for data in machines],
        [data.domains for data in machines],
        [data.X_test if len(data.names) else None for data in machines],
        settings.configs,
        settings.n_splits,
        settings.seed,
        bands=machines[0].bands,
        device=device,
        skip_errors=True,
    )
    return list(results)


def criteria_of_machines(
    machines: Sequence[MachineData], settings: Settings, device: str
) -> list[Float64s | None]:
    """The `other_criteria` of every machine; None where the device refuses."""
    longest = settings.longest_splits
    banks = [(data.X, data.domains) for data in machines]
    balances = _balances(banks, settings, longest, device, machines[0].bands)
    return [
        settings.criteria_of(dict(zip(longest, each, strict=True))) if each else None
        for each in balances
    ]


def with_balances(banks: Items, settings: Settings, device: str, bands: Bands = 1) -> Items:
    """Vectors and domains of machines, each with its `Balance`, or None if the device refuses."""
    for group in _groups(banks, lambda item: int(item[1][0].nbytes)):
        splits = {settings.seed: settings.n_splits}
        results = _balances([bank for _, bank in group], settings, splits, device, bands)
        for (index, bank), balances in zip(group, results, strict=True):
            yield index, (*bank, balances[0] if balances else None)


def _balances(
    banks: Sequence[tuple[Any, ...]],
    settings: Settings,
    splits: dict[int, int],
    device: str,
    bands: Bands,
) -> Iterable[Sequence[Balance] | None]:
    """For each bank, vectors and domains first, a balance for each seed and number of splits."""
    return machine_balances(
        [vectors for vectors, *_ in banks],
        [domains for _, domains, *_ in banks],
        settings.configs,
        [(n_splits, seed) for seed, n_splits in splits.items()],
        bands=bands,
        device=device,
        skip_errors=True,
    )


def _groups(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Items as many at a time as a group holds, the next ones while these are used."""

    def batches() -> Iterator[list[Item]]:
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

    waiting_groups = batches()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, waiting_groups, None)
        while (group := waiting.result()) is not None:
            waiting = pool.submit(next, waiting_groups, None)
            yield group
