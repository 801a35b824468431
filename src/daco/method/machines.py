"""Many machines at once on a torch device: those of equal shape share every computation.

They pass through it in chunks that fit its memory; the next is copied while one is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.views import ONE_VIEW, Bands, Views
from daco.errors import DacoError, InputError
from daco.method.bank import Domains, Grid
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
from daco.method.limits import halves, require_clips
from daco.method.neighbours import list_length
from daco.method.vote import members_of
from daco.validation import Float64s, Floats, Indices, as_embeddings, encode_domains, require_whole

_WORKSPACE = {"cuda": 8 * 2**30}
_WORKSPACE_ELSEWHERE = 256 * 2**20
_SPLITS_AT_ONCE = 16

T = TypeVar("T")
Work = Callable[[BankBatch, list[Array] | None], dict[str, Array]]


@dataclass(frozen=True)
class MachineEvaluation:
    """Results of one machine; None where they were not requested.

    Attributes
    ----------
    own : (N, C)
        Leave-one-out scores of the normals.
    separability : float
        How well the domains can be told apart: 0.5 if two look the same, 1 if they never mix.
    scores : (n, C) or None
        Scores of the test clips.
    balance : Balance or None
        The criterion, as integers.
    uniformity : (C,) or None
        As :meth:`daco.NormalBank.uniformity`.
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
    orders: NDArray[np.intp] | None  # None where all rows are grouped already
    domain_names: tuple[Any, ...]
    starts: Indices


def evaluate_machines(
    X: Sequence[ArrayLike],
    domains: Sequence[Domains | None],
    X_test: Sequence[ArrayLike | None] | None,
    grid: Grid,
    n_splits: int | None = CHOICE_SPLITS,
    seed: int = 0,
    *,
    bands: Bands = 1,
    device: str = "cuda",
    chunk: int | None = None,
    skip_errors: bool = False,
) -> list[MachineEvaluation]:
    """Compute everything that a study needs for each machine, on a torch device.

    Results agree with :class:`daco.NormalBank` up to rounding.

    Parameters
    ----------
    X, domains : one (N, D) array and N labels for each machine
    X_test : one (n, D) array or None for each machine, or None
    grid : configurations
        ``oracle`` configurations are refused.
    n_splits, seed : int or None, int
        200 splits of the criterion, the same for all machines; ``n_splits=None`` leaves it out.
    bands, device
        As in :class:`daco.NormalBank`; ``"cpu"`` also uses torch.
    chunk : int, optional
        Machines at a time; by default as many as a few GiB of free memory hold.
    skip_errors : bool
        Whether results are None, instead of an error, for machines with too few clips for a
        configuration or the criterion, and for those that do not fit into the memory.

    Returns
    -------
    list of MachineEvaluation, in the order of the machines

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

    def evaluate(group: _Group) -> list[MachineEvaluation]:
        require_clips(configs, int(group.starts[-1]), spare=1)
        held = denominators = None
        if n_splits is not None:
            held, denominators = halves(configs, group.domain_names, group.starts, n_splits, seed)

        def work(batch: BankBatch, query: list[Array] | None) -> dict[str, Array]:
            computed = {
                "own": batch.leave_one_out(configs).permute(1, 2, 0),
                "separability": batch.separability(),
            }
            if query is not None:
                computed["scores"] = batch.examine(query, configs).scores.permute(1, 2, 0)
            if held is not None:
                criterion: tuple[Any, ...] = batch.criterion(configs, held, with_uniformity=True)
                computed["counts"], computed["uniformity"] = (
                    each.swapaxes(0, 1) for each in criterion
                )
            return computed

        arrays = _compute(group, work, configs, bands, device, chunk)
        counts: Any = arrays.pop("counts", None)
        if group.orders is not None:
            grouped = arrays["own"]
            arrays["own"] = np.empty_like(grouped)
            np.put_along_axis(arrays["own"], group.orders[..., None], grouped, axis=1)
        return [
            MachineEvaluation(
                balance=None if denominators is None else Balance(counts[row], denominators),
                **{name: values[row] for name, values in arrays.items()},
            )
            for row in range(len(group.members))
        ]

    return _by_shape(_groups(X, domains, X_test, bands), len(X), evaluate, skip_errors)


def machine_balances(
    X: Sequence[ArrayLike],
    domains: Sequence[Domains | None],
    grid: Grid,
    splits: Sequence[tuple[int, int]] = ((CHOICE_SPLITS, 0),),
    *,
    bands: Bands = 1,
    device: str = "cuda",
    chunk: int | None = None,
    skip_errors: bool = False,
) -> list[list[Balance]]:
    """The criterion of every machine, under several numbers of splits and seeds.

    Parameters
    ----------
    splits : sequence of (n_splits, seed)
    X, domains, grid, bands, device, chunk, skip_errors : as of `evaluate_machines`

    Returns
    -------
    list of one Balance per element of ``splits``, for every machine
    """
    configs = parse_grid(grid)

    def balances(group: _Group) -> list[list[Balance]]:
        drawn = [halves(configs, group.domain_names, group.starts, *each) for each in splits]

        def work(batch: BankBatch, query: list[Array] | None) -> dict[str, Array]:
            return {
                f"counts {number}": batch.criterion(configs, held)[0].swapaxes(0, 1)
                for number, (held, _) in enumerate(drawn)
            }

        arrays = _compute(group, work, configs, bands, device, chunk)
        return [
            [
                Balance(arrays[f"counts {number}"][row], denominators)
                for number, (_, denominators) in enumerate(drawn)
            ]
            for row in range(len(group.members))
        ]

    return _by_shape(_groups(X, domains, None, bands), len(X), balances, skip_errors)


def _by_shape(
    groups: Iterable[_Group], count: int, compute: Callable[[_Group], list[T]], skip_errors: bool
) -> list[T]:
    """Results of all machines in their order; see `skip_errors` of `evaluate_machines`."""
    results: list[Any] = [None] * count
    for group in groups:
        try:
            computed = compute(group)
        except DacoError:
            if not skip_errors:
                raise
            continue
        for m, each in zip(group.members, computed, strict=True):
            results[m] = each
    return results


def _groups(
    X: Sequence[ArrayLike],
    domains: Sequence[Domains | None],
    X_test: Sequence[ArrayLike | None] | None,
    bands: Bands,
) -> list[_Group]:
    """Machines by shape: clips, features, precision, test clips, domain sizes."""
    banks = _machine_arrays(X, "X")
    tests: list[Any] = [None] * len(banks) if X_test is None else _machine_arrays(X_test, "X_test")
    for name, given in (("domains", domains), ("X_test", tests)):
        if len(given) != len(banks):
            raise InputError(f"X has {len(banks)} machines, and {name} has {len(given)}.")
    shapes: dict[Hashable, list[int]] = {}
    encoded = []
    for m, (bank, test) in enumerate(zip(banks, tests, strict=True)):
        if isinstance(bands, Views):
            bands.rows(bank[:1], f"Machine {m}: X")
        elif bank.shape[1] % require_whole(bands, "bands"):
            raise InputError(
                f"Machine {m}: bands must divide the {bank.shape[1]} features. Got {bands}."
            )
        if test is not None and test.shape[1] != bank.shape[1]:
            raise InputError(
                f"Machine {m}: X_test has {test.shape[1]} features, X has {bank.shape[1]}. "
                "Embed both with the same backbone and readout."
            )
        encoded.append(encode_domains(domains[m], len(bank), f"Machine {m}: domains"))
        sizes = tuple(np.bincount(encoded[m][1]).tolist())
        of_test = None if test is None else (test.shape, test.dtype)
        shapes.setdefault((bank.shape, bank.dtype, of_test, sizes), []).append(m)
    groups = []
    for members in shapes.values():
        orders = np.array([np.argsort(encoded[m][1], kind="stable") for m in members])
        names, codes = encoded[members[0]]
        groups.append(
            _Group(
                members,
                [banks[m] for m in members],
                None if tests[members[0]] is None else [tests[m] for m in members],
                None if (np.diff(orders, axis=1) == 1).all() else orders,
                names,
                np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.intp),
            )
        )
    return groups


def _machine_arrays(X: Any, name: str) -> list[Any]:
    """One 2-D float array, or None, per machine. Values are checked on the device."""
    if not isinstance(X, Sequence | np.ndarray) or len(X) == 0:
        raise InputError(f"{name} must hold one array per machine, and at least one. Got {X!r}.")
    if isinstance(X, np.ndarray) and X.ndim != 3:
        raise InputError(
            f"{name} must hold one 2-D array (clips, features) per machine, or be 3-D. Got shape "
            f"{X.shape} instead. Use {name}[None] for one machine."
        )
    ready = (np.float32, np.float64)
    return [
        array
        if (array is None and name == "X_test")
        or (getattr(array, "dtype", None) in ready and array.ndim == 2 and array.size)
        else as_embeddings(array, f"Machine {m}: {name}")
        for m, array in enumerate(X)
    ]


def _compute(
    group: _Group,
    work: Work,
    configs: list[ScoreConfig],
    bands: Bands,
    device: str,
    chunk: int | None,
) -> dict[str, NDArray[Any]]:
    """The arrays that ``work`` returns, with a leading axis of all machines of the group."""
    require_torch("evaluate_machines")
    require_device(device)
    count = len(group.members)
    size = _chunk_size(group, configs, bands, device) if chunk is None else chunk
    size = min(count, require_whole(size, "chunk"))
    chunks = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    results: dict[str, NDArray[Any]] = {}

    def prepare(part: slice) -> tuple[Array, Array]:
        tests = None if group.tests is None else load(group.tests[part], device)
        return load(group.banks[part], device), tests

    def collect(part: slice, arrays: dict[str, Array]) -> None:
        for name, values in arrays.items():
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
                    views = _views(bands, rows.shape[-1])
                    units = _units(group, tests, group.tests, part, "X_test", views)
                    query = [unit.to(rows.dtype) for unit in units]
                # Copied as they will lie in memory: a device transposes faster than the host.
                arrays = {name: each.contiguous() for name, each in work(batch, query).items()}
            for earlier in going:
                earlier.result()
            going = [fetching.submit(collect, part, arrays)]
        for last in going:
            last.result()
    return results


def _batch(group: _Group, part: slice, rows: Array, bands: Bands) -> BankBatch:
    views = _views(bands, rows.shape[-1])
    units = _units(group, rows, group.banks, part, "X", views)
    if group.orders is not None:
        order = kernels(rows).from_host(group.orders[part], rows)
        units = [unit.gather(1, order[..., None].expand_as(unit)) for unit in units]
    kept = len(rows) * rows.shape[1] ** 2 * rows.itemsize * _matrices(views)
    budget = kept if len(rows) > 1 else device_memory(rows.device) // 4
    return BankBatch(units, group.starts, views.bands, budget)


def _units(
    group: _Group, rows: Array, arrays: list[Floats], part: slice, name: str, views: Views
) -> list[Array]:
    """Unit rows of each view; NaN and inf are detected here, where it costs little."""
    units = [unit_rows(each) for each in views.split(rows)]
    for unit in units:
        finite = unit.sum(-1).isfinite().all(-1)
        if not bool(finite.all()):
            row = part.start + int((~finite).long().argmax())
            as_embeddings(arrays[row], f"Machine {group.members[row]}: {name}")
    return units


def _views(bands: Bands, dim: int) -> Views:
    return bands if isinstance(bands, Views) else Views((ONE_VIEW,), (dim,), (bands,))


def _matrices(views: Views) -> int:
    """Distance matrices between the normals of a machine."""
    return sum(bands + 1 if bands > 1 else 1 for bands in views.bands)


def _chunk_size(group: _Group, configs: list[ScoreConfig], bands: Bands, device: str) -> int:
    """Machines whose work fits the memory of the device."""
    import torch

    place = torch.device(device)
    n, dim = group.banks[0].shape
    n_test = 0 if group.tests is None else len(group.tests[0])
    itemsize = group.banks[0].itemsize
    views = _views(bands, dim)
    votes = {config.base for config in configs if config.base.is_vote}
    members = [members_of(base, b, n)[0] for base in votes for b in views.bands]
    computed = [*configs, *(member for view in members for member in view)]
    reach = max(part.neighbours for config in computed for part in config.base.parts())
    each = itemsize * (4 * (n + n_test) * dim + (4 + _matrices(views)) * n * n + 3 * n_test * n)
    each += 40 * n * list_length(max(reach, 1)) * len(views.names)
    each += 8 * (2 * len(computed) + 40) * max(n + n_test, _SPLITS_AT_ONCE * n // 2)
    each += 16 * len(computed) * n_test
    allowed = _WORKSPACE.get(place.type, _WORKSPACE_ELSEWHERE)
    return max(1, min(allowed, device_memory(place)) // each)
