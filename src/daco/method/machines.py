"""Many machines at once on a torch device: those of equal shape share every computation.

Machines of equal shape are stacked and pass through the device in chunks that fit its memory, the
next chunk being copied while one is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.method.bank import Domains, Grid, halves, require_clips
from daco.method.batch import BankBatch
from daco.method.config import ScoreConfig, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance
from daco.method.distances import unit_rows
from daco.method.kernels import (
    Array,
    device_memory,
    fetch,
    kernels,
    load,
    require_device,
    require_torch,
)
from daco.method.neighbours import list_length
from daco.validation import Float64s, Floats, Indices, as_embeddings, encode_domains, require_whole

_WORKSPACE = {"cuda": 8 * 2**30}
_WORKSPACE_ELSEWHERE = 256 * 2**20
_SPLITS_AT_ONCE = 16

Work = Callable[[BankBatch, Array], dict[str, Array]]


@dataclass(frozen=True)
class MachineScores:
    """Results of one machine; None is what was not asked for.

    Attributes
    ----------
    own : (N, C)
        Leave-one-out scores of its normals.
    separability : float
        Of its domains: 0.5 for two that cannot be told apart, 1 for two that never mix.
    scores : (n, C) or None
        Of its test clips.
    balance : Balance or None
        The criterion, as integers.
    uniformity : (C,) or None
        NaN for configurations whose scores are not quantiles.
    """

    own: Float64s
    separability: float
    scores: Float64s | None = None
    balance: Balance | None = None
    uniformity: Float64s | None = None


@dataclass(frozen=True)
class _Group:
    """Machines of equal shape: their numbers, arrays, and rows grouped by domain."""

    members: list[int]
    banks: list[Floats]
    tests: list[Floats] | None
    orders: NDArray[np.intp] | None
    domain_names: tuple[Any, ...]
    starts: Indices


def evaluate_machines(
    X: Sequence[ArrayLike],
    domains: Sequence[Domains | None],
    X_test: Sequence[ArrayLike] | None,
    grid: Grid,
    n_splits: int | None = CHOICE_SPLITS,
    seed: int = 0,
    *,
    bands: int = 1,
    device: str = "cuda",
    chunk: int | None = None,
) -> list[MachineScores]:
    """Everything that a study asks of a machine, for machines of any shapes.

    Results agree with :class:`daco.NormalBank` to the rounding of products.

    Parameters
    ----------
    X, domains : one (N, D) array and N labels per machine
    X_test : one (n, D) array per machine, or None
    grid : configurations
        None that reads true domains.
    n_splits : int or None
        Of the criterion; None leaves it out. All machines share the splits of ``seed``.
    bands : int
        As of ``NormalBank``.
    device : str
        A torch device with float64, such as ``"cuda"``, ``"cuda:1"`` or ``"cpu"``.
    chunk : int, optional
        Machines at a time; by default what a few GiB of free memory hold.

    Returns
    -------
    list of MachineScores, in the order of the machines

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.machines import evaluate_machines
    >>> rng = np.random.default_rng(0)
    >>> banks = [rng.normal(size=(n, 8)) + 2 for n in (30, 40, 30)]
    >>> domains = [["a"] * (len(bank) - 9) + ["b"] * 9 for bank in banks]
    >>> results = evaluate_machines(banks, domains, None, ["raw-k1"], device="cpu")
    >>> [each.own.shape for each in results]
    [(30, 1), (40, 1), (30, 1)]
    """
    configs = parse_grid(grid)
    results: dict[int, MachineScores] = {}
    for group in _groups(X, domains, X_test):
        require_clips(configs, int(group.starts[-1]), spare=1)
        held = denominators = None
        if n_splits is not None:
            held, denominators = halves(configs, group.domain_names, group.starts, n_splits, seed)

        def work(batch: BankBatch, query: Array, held: Any = held) -> dict[str, Array]:
            found = {
                "own": batch.leave_one_out(configs).permute(1, 2, 0),
                "separability": batch.separability(),
            }
            if query is not None:
                found["scores"] = batch.score(query, configs).permute(1, 2, 0)
            if held is not None:
                criterion: tuple[Any, ...] = batch.criterion(configs, held, with_uniformity=True)
                found["counts"], found["uniformity"] = (each.swapaxes(0, 1) for each in criterion)
            return found

        arrays = _compute(group, work, configs, bands, device, chunk)
        counts = arrays.pop("counts", None)
        if group.orders is not None:
            grouped = arrays["own"]
            arrays["own"] = np.empty_like(grouped)
            np.put_along_axis(arrays["own"], group.orders[..., None], grouped, axis=1)
        for row, m in enumerate(group.members):
            balance = None
            if counts is not None and denominators is not None:
                balance = Balance(counts[row], denominators)
            results[m] = MachineScores(
                balance=balance, **{name: values[row] for name, values in arrays.items()}
            )
    return [results[m] for m in range(len(X))]


def machine_balances(
    X: Sequence[ArrayLike],
    domains: Sequence[Domains | None],
    grid: Grid,
    splits: Sequence[tuple[int, int]] = ((CHOICE_SPLITS, 0),),
    *,
    bands: int = 1,
    device: str = "cuda",
    chunk: int | None = None,
) -> list[list[Balance]]:
    """The criterion of every machine, under several numbers of splits and seeds.

    Parameters
    ----------
    splits : sequence of (n_splits, seed)
    X, domains, grid, bands, device, chunk : as of `evaluate_machines`

    Returns
    -------
    list of one Balance per element of ``splits``, for every machine
    """
    configs = parse_grid(grid)
    results: dict[int, list[Balance]] = {}
    for group in _groups(X, domains, None):
        drawn = [halves(configs, group.domain_names, group.starts, *each) for each in splits]

        def work(batch: BankBatch, query: Array, drawn: Any = drawn) -> dict[str, Array]:
            return {
                f"counts {number}": batch.criterion(configs, held)[0].swapaxes(0, 1)
                for number, (held, _) in enumerate(drawn)
            }

        arrays = _compute(group, work, configs, bands, device, chunk)
        for row, m in enumerate(group.members):
            results[m] = [
                Balance(arrays[f"counts {number}"][row], denominators)
                for number, (_, denominators) in enumerate(drawn)
            ]
    return [results[m] for m in range(len(X))]


def shape_groups(
    X: Sequence[Floats], domains: Sequence[Domains | None], X_test: Sequence[Floats] | None = None
) -> list[list[int]]:
    """Numbers of the machines of each shape: clips, features, precision, domain sizes."""
    groups: dict[Hashable, list[int]] = {}
    for m, bank in enumerate(X):
        _, codes = encode_domains(domains[m], len(bank), f"Machine {m}: domains")
        tests = () if X_test is None else (X_test[m].shape, X_test[m].dtype)
        key = bank.shape, bank.dtype, *tests, tuple(np.bincount(codes).tolist())
        groups.setdefault(key, []).append(m)
    return list(groups.values())


def _groups(
    X: Sequence[ArrayLike],
    domains: Sequence[Domains | None],
    X_test: Sequence[ArrayLike] | None,
) -> Iterator[_Group]:
    banks = _machine_arrays(X, "X")
    tests = None if X_test is None else _machine_arrays(X_test, "X_test")
    for name, given in (("domains", domains), ("X_test", tests)):
        if given is not None and len(given) != len(banks):
            raise InputError(f"X has {len(banks)} machines, {name} {len(given)}.")
    for m, bank in enumerate(banks):
        if tests is not None and tests[m].shape[1] != bank.shape[1]:
            raise InputError(
                f"Machine {m}: X_test has {tests[m].shape[1]} features, X has {bank.shape[1]}. "
                "Embed both with the same backbone and readout."
            )
    for members in shape_groups(banks, domains, tests):
        n = len(banks[members[0]])
        encoded = [encode_domains(domains[m], n) for m in members]
        orders = np.array([np.argsort(codes, kind="stable") for _, codes in encoded])
        names, codes = encoded[0]
        yield _Group(
            members,
            [banks[m] for m in members],
            None if tests is None else [tests[m] for m in members],
            None if (np.diff(orders, axis=1) == 1).all() else orders,
            names,
            np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.intp),
        )


def _machine_arrays(X: Any, name: str) -> list[Floats]:
    """One 2-D float array per machine. Values are checked on the device."""
    if isinstance(X, np.ndarray) and X.ndim != 3:
        raise InputError(
            f"{name} must hold one 2-D array (clips, features) per machine, or be 3-D. Got shape "
            f"{X.shape} instead. Use {name}[None] for one machine."
        )
    if not isinstance(X, Sequence | np.ndarray) or len(X) == 0:
        raise InputError(f"{name} must hold one array per machine, and at least one. Got {X!r}.")
    ready = (np.float32, np.float64)
    return [
        array
        if isinstance(array, np.ndarray) and array.dtype in ready and array.ndim == 2 and array.size
        else as_embeddings(array, f"Machine {m}: {name}")
        for m, array in enumerate(X)
    ]


def _compute(
    group: _Group,
    work: Work,
    configs: list[ScoreConfig],
    bands: int,
    device: str,
    chunk: int | None,
) -> dict[str, NDArray[Any]]:
    """The arrays that ``work`` returns, with a leading axis of all machines of the group."""
    require_torch()
    require_device(device)
    count = len(group.members)
    size = _chunk_size(group, configs, bands, device) if chunk is None else chunk
    size = min(count, require_whole(size, "chunk"))
    chunks = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    results: dict[str, NDArray[Any]] = {}

    def prepare(part: slice) -> tuple[Array, Array]:
        tests = None if group.tests is None else load(group.tests[part], device)
        return load(group.banks[part], device), tests

    def collect(part: slice, found: dict[str, Array]) -> None:
        for name, values in found.items():
            if name not in results:
                dtype = np.int64 if name.startswith("counts") else np.float64
                results[name] = np.empty((count, *values.shape[1:]), dtype)
            fetch(values, results[name][part])

    with ThreadPoolExecutor(1) as loading, ThreadPoolExecutor(1) as fetching:
        coming = loading.submit(prepare, chunks[0])
        going: list[Future[None]] = []
        for position, part in enumerate(chunks):
            rows, tests = coming.result()
            if position + 1 < len(chunks):
                coming = loading.submit(prepare, chunks[position + 1])
            with kernels(rows).exact_products(rows):
                batch = _batch(group, part, rows, bands)
                query = None
                if tests is not None and group.tests is not None:
                    query = _unit(tests, group.tests, part, "X_test").to(rows.dtype)
                # Copied as they will lie in memory: a device transposes faster than the host.
                found = {name: each.contiguous() for name, each in work(batch, query).items()}
            for earlier in going:
                earlier.result()
            going = [fetching.submit(collect, part, found)]
        for last in going:
            last.result()
    return results


def _batch(group: _Group, part: slice, rows: Array, bands: int) -> BankBatch:
    unit = _unit(rows, group.banks, part, "X")
    if group.orders is not None:
        order = kernels(unit).from_host(group.orders[part], unit)
        unit = unit.gather(1, order[..., None].expand_as(unit))
    kept = len(unit) * unit.shape[1] ** 2 * unit.itemsize * (bands + 1)
    budget = kept if len(unit) > 1 else device_memory(unit.device) // 4
    return BankBatch(unit, group.starts, bands, budget)


def _unit(rows: Array, arrays: list[Floats], part: slice, name: str) -> Array:
    """Unit rows on the device; NaN and inf are detected here, where it costs little."""
    unit = unit_rows(rows)
    finite = unit.sum(-1).isfinite().all(-1)
    if not bool(finite.all()):
        m = part.start + int((~finite).long().argmax())
        as_embeddings(arrays[m], f"Machine {m}: {name}")
    return unit


def _chunk_size(group: _Group, configs: list[ScoreConfig], bands: int, device: str) -> int:
    """Machines whose work fits the memory of the device."""
    import torch

    place = torch.device(device)
    n, dim = group.banks[0].shape
    n_test = 0 if group.tests is None else len(group.tests[0])
    itemsize = group.banks[0].itemsize
    views = 1 if bands == 1 else bands + 1
    reach = max(part.neighbours for config in configs for part in config.base.parts())
    each = itemsize * (4 * (n + n_test) * dim + (4 + views) * n * n + 3 * n_test * n)
    each += 40 * n * list_length(max(reach, 1))
    each += 8 * (2 * len(configs) + 40) * max(n + n_test, _SPLITS_AT_ONCE * n // 2)
    each += 16 * len(configs) * n_test
    allowed = _WORKSPACE.get(place.type, _WORKSPACE_ELSEWHERE)
    return max(1, min(allowed, device_memory(place)) // each)
