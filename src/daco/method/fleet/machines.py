"""Fleet: the banks of many machines of equal shape, and every score that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.method.config import RAW_CONFIG, ScoreConfig
from daco.method.criterion import CHOICE_SPLITS, Balance, Seed, held_out_halves, require_halves
from daco.method.fleet.inputs import (
    Domains,
    Grid,
    domain_sizes,
    encode_machines,
    machine_arrays,
    require_torch,
    supported,
)
from daco.method.neighbours import list_length
from daco.validation import Floats, as_embeddings

if TYPE_CHECKING:
    from torch import Tensor

    from daco.method.fleet.scores import Banks

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluated:
    """What one pass finds for one machine; None is what was not asked for.

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

    own: Array
    separability: float
    scores: Array | None = None
    balance: Balance | None = None
    uniformity: Array | None = None


class Fleet:
    """Normal embeddings of M machines of equal shape, scored together on a torch device.

    The published configurations alone: ``knn``, ``ldn-ratio`` and ``ldn-diff`` with any
    calibration, soft or hard. Results agree with :class:`daco.NormalBank`, and with those of
    other devices and chunks, to the rounding of products. Machines pass through the device in
    chunks; a fleet that fits in one stays there for the next call.

    Parameters
    ----------
    X : M arrays (N, D), or (M, N, D), float32 or float64
        Distances are computed in this precision, never in a shorter one.
    domains : N labels, or M sequences of N labels, optional
        As of ``NormalBank``; one sequence serves all machines. Every machine has as many clips
        in its first, second, ... domain in the order of names.
    device : str
        A torch device with float64, such as ``"cuda"``, ``"cuda:1"`` or ``"cpu"``.
    chunk : int, optional
        Machines at a time; by default what a few GiB of free memory hold.

    Attributes
    ----------
    domains : list of tuples
        Each machine's domain names, sorted.

    Examples
    --------
    >>> import daco, numpy as np
    >>> from daco.method.fleet import Fleet
    >>> rng = np.random.default_rng(0)
    >>> fleet = Fleet(rng.normal(size=(3, 60, 8)) + 2, ["a"] * 50 + ["b"] * 10, device="cpu")
    >>> fleet.score(rng.normal(size=(3, 5, 8)), daco.paper_grid()).shape
    (3, 5, 51)
    >>> fleet.balance(["raw-k1", "conf-soft-m0-k1"]).shape
    (3, 2)
    """

    def __init__(
        self,
        X: Sequence[ArrayLike] | Floats,
        domains: Domains | Sequence[Domains | None] | None = None,
        *,
        device: str = "cuda",
        chunk: int | None = None,
    ) -> None:
        self._X = machine_arrays(X, "X")
        shape, dtype = self._X[0].shape, self._X[0].dtype
        for m, array in enumerate(self._X):
            if array.shape != shape or array.dtype != dtype:
                raise InputError(
                    f"Machines of a fleet have one shape and precision. Machine {m} has "
                    f"{array.shape} {array.dtype}, the first {shape} {dtype}. Use "
                    "daco.method.fleet.evaluate_machines for machines of different shapes."
                )
        self._labels = domains
        self.domains, codes = encode_machines(domains, len(self._X), len(self._X[0]))
        self._codes = np.sort(codes[0])
        for m, row in enumerate(codes):
            if not np.array_equal(np.bincount(row), np.bincount(codes[0])):
                raise InputError(
                    f"Machines of a fleet have equally large domains. Machine {m} has "
                    f"{domain_sizes(row)} clips, the first {domain_sizes(codes[0])}. Use "
                    "daco.method.fleet.evaluate_machines for machines of different shapes."
                )
        order = np.argsort(codes, axis=1, kind="stable")
        self._order = None if (np.diff(order, axis=1) == 1).all() else order
        self._starts = [0, *np.cumsum(np.bincount(codes[0])).tolist()]
        whole = isinstance(chunk, int | np.integer) and not isinstance(chunk, bool)
        if chunk is not None and not (whole and chunk >= 1):
            raise InputError(f"The 'chunk' parameter must be an int >= 1. Got {chunk!r} instead.")
        self._chunk = chunk
        require_torch()
        from daco.compute.device import float64_device
        from daco.method.fleet.staging import Stager

        self._device = float64_device(device)
        self._stager = Stager(self._device)
        self._kept: Banks | None = None

    def __len__(self) -> int:
        return len(self._X)

    def __reduce__(self) -> tuple[Any, ...]:  # what lies on the device stays there
        return _again, (self._X, self._labels, str(self._device), self._chunk)

    def __repr__(self) -> str:
        n, dim = self._X[0].shape
        return (
            f"Fleet({len(self)} machines of {n} clips: {domain_sizes(self._codes)}; {dim}-d "
            f"{self._X[0].dtype} on {self._device})"
        )

    def score(self, X: Sequence[ArrayLike] | Floats, grid: Grid) -> Array:
        """Score clips of unknown domain, M arrays (n, D): (M, n, C), higher is more anomalous."""
        configs = supported(grid)
        self._require_clips(configs)
        return self._run(configs, {"scores"}, tests=self._tests(X))["scores"]

    def leave_one_out(self, grid: Grid) -> Array:
        """Scores of the banks' own clips, each scored by all others: (M, N, C)."""
        configs = supported(grid)
        self._require_clips(configs, spare=1)
        return self._run(configs, {"own"})["own"]

    def balance(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Array:
        """The label-free criterion of each machine and configuration: (M, C)."""
        return np.array([each.values for each in self.exact_balance(grid, n_splits, seed)])

    def exact_balance(
        self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0
    ) -> list[Balance]:
        """Each machine's criterion as integers. All machines share the splits of ``seed``."""
        configs = supported(grid)
        held = self._halves(configs, n_splits, seed)
        return self._balances(self._run(configs, {"counts"}, held=held)["counts"])

    def uniformity(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Array:
        """How far held-out calibrated scores are from uniform: (M, C); NaN if not quantiles."""
        configs = supported(grid)
        held = self._halves(configs, n_splits, seed)
        return self._run(configs, {"uniformity"}, held=held)["uniformity"]

    def separability(self) -> Array:
        """Balanced accuracy of the 1-NN domain of each bank's clips, each left out: (M,)."""
        configs = supported(RAW_CONFIG)
        self._require_clips(configs, spare=1)
        return self._run(configs, {"separability"})["separability"]

    def evaluate(
        self,
        X: Sequence[ArrayLike] | Floats | None,
        grid: Grid,
        n_splits: int | None = CHOICE_SPLITS,
        seed: Seed = 0,
    ) -> list[Evaluated]:
        """Everything that a study asks of a machine, in one pass over the fleet.

        Parameters
        ----------
        X : M arrays (n, D), or None
            Test clips.
        n_splits : int or None
            Of the criterion; None leaves it out.
        """
        configs = supported(grid)
        self._require_clips(configs, spare=1)
        tests = None if X is None else self._tests(X)
        held = None if n_splits is None else self._halves(configs, n_splits, seed)
        wanted = {"own", "separability"}
        wanted |= {"scores"} if tests is not None else set()
        wanted |= {"counts", "uniformity"} if held is not None else set()
        found = self._run(configs, wanted, tests=tests, held=held)
        balances = self._balances(found.pop("counts")) if held is not None else [None] * len(self)
        return [
            Evaluated(balance=balance, **{name: values[m] for name, values in found.items()})
            for m, balance in enumerate(balances)
        ]

    def _run(
        self,
        configs: list[ScoreConfig],
        wanted: set[str],
        *,
        tests: list[Floats] | None = None,
        held: NDArray[np.bool_] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """One pass; the wanted arrays by name with a leading axis of machines."""
        from daco.method.fleet.staging import ahead, exactly
        from daco.method.fleet.work import Work

        size = self._chunk or self._fitting(configs, tests)
        chunks = [slice(a, min(a + size, len(self))) for a in range(0, len(self), size)]

        def load(chunk: slice) -> tuple[dict[str, Tensor], Any]:
            parts = {} if self._kept is not None else {"X": self._X[chunk]}
            return self._stager.load(parts | ({} if tests is None else {"tests": tests[chunk]}))

        out: dict[str, NDArray[Any]] = {}
        with exactly(self._device, size), self._stager.fetching(out, len(self)) as fetch:
            for chunk, loaded in ahead(load, chunks):
                arrived = self._stager.arrive(*loaded)
                banks = self._kept or self._banks(arrived.pop("X"), chunk)
                if len(chunks) == 1:
                    self._kept = banks
                work = Work(banks, configs, self._order_of(chunk))
                query = None
                if tests is not None:
                    query = self._unit(arrived.pop("tests"), tests, chunk, "X")
                    query = query.to(banks.unit.dtype)
                found: dict[str, Tensor] = {}
                if wanted & {"scores", "own"}:
                    found |= work.scores(query, "own" in wanted)
                if "separability" in wanted:
                    found["separability"] = work.separability()
                if held is not None:
                    found |= work.criterion(held, "uniformity" in wanted)
                fetch(chunk, {name: found[name] for name in wanted})
        return out

    def _banks(self, X: Tensor, chunk: slice) -> Banks:
        from daco.method.fleet.scores import Banks

        unit = self._unit(X, self._X, chunk, "the bank")
        order = self._order_of(chunk)
        if order is not None:
            unit = unit.gather(1, order[..., None].expand_as(unit))
        return Banks(unit, self._starts)

    def _unit(self, rows: Tensor, arrays: list[Floats], chunk: slice, name: str) -> Tensor:
        """Unit rows on the device; NaN and inf are found here, where looking costs little."""
        from daco.method.fleet.scores import unit_rows

        unit = unit_rows(rows)
        finite = unit.sum(-1).isfinite().all(-1)
        if not bool(finite.all()):
            m = chunk.start + int((~finite).long().argmax())
            as_embeddings(arrays[m], f"Machine {m}: {name}")
        return unit

    def _order_of(self, chunk: slice) -> Tensor | None:
        import torch

        if self._order is None:
            return None
        return torch.from_numpy(self._order[chunk]).to(self._device)

    def _fitting(self, configs: list[ScoreConfig], tests: list[Floats] | None) -> int:
        """Machines whose work fits the memory of the device."""
        from daco.method.fleet.staging import chunk_size
        from daco.method.fleet.work import CLIPS_AT_ONCE, SPLITS_AT_ONCE

        if self._kept is not None:
            return len(self)
        n, dim = self._X[0].shape
        n_test = 0 if tests is None else tests[0].shape[0]
        at_once, itemsize = min(n_test, CLIPS_AT_ONCE), self._X[0].itemsize
        length = list_length(max(config.neighbours for config in configs))
        each = itemsize * (4 * (n + n_test) * dim + 4 * n * n + 3 * at_once * n) + 40 * n * length
        each += 8 * (2 * len(configs) + 40) * max(n + at_once, SPLITS_AT_ONCE * n // 2)
        each += 16 * len(configs) * n_test
        return min(len(self), chunk_size(self._device, each))

    def _tests(self, X: Sequence[ArrayLike] | Floats) -> list[Floats]:
        """Test clips of every machine, in the precision of the most precise."""
        tests = machine_arrays(X, "X")
        if len(tests) != len(self):
            raise InputError(f"X has {len(tests)} machines, the fleet {len(self)}.")
        for m, array in enumerate(tests):
            if array.shape[1] != self._X[0].shape[1]:
                raise InputError(
                    f"Machine {m}: X has {array.shape[1]} features, but the fleet was built with "
                    f"{self._X[0].shape[1]}. Embed both with the same backbone and readout."
                )
            if array.shape != tests[0].shape:
                raise InputError(
                    f"Machines of a fleet have equally many test clips. Machine {m} has "
                    f"{len(array)}, the first {len(tests[0])}. Use "
                    "daco.method.fleet.evaluate_machines for machines of different shapes."
                )
        dtype = np.result_type(self._X[0], *{array.dtype for array in tests})
        return [array.astype(dtype, copy=False) for array in tests]

    def _halves(self, configs: list[ScoreConfig], n_splits: int, seed: Seed) -> NDArray[np.bool_]:
        sizes = np.diff(self._starts).tolist()
        require_halves(self.domains[0], sizes)
        kept = sum(size - size // 2 for size in sizes)
        self._require_clips(configs, spare=1, halved=kept)
        return held_out_halves(sizes, n_splits, seed)

    def _balances(self, counts: NDArray[np.int64]) -> list[Balance]:
        sizes = np.diff(self._starts) // 2
        pairs = combinations(sizes.tolist(), 2)
        denominators = np.array([a * b for a, b in pairs], np.int64)
        return [Balance(each, denominators) for each in counts]

    def _require_clips(
        self, configs: list[ScoreConfig], spare: int = 0, halved: int | None = None
    ) -> None:
        """Each configuration finds its neighbours; ``spare``: each clip is left out once."""
        available = len(self._X[0]) if halved is None else halved
        for config in configs:
            alone = config.calibration is None and config.scorer == "knn"
            needed = config.neighbours + (spare if alone else 1)
            if available < needed:
                half = "" if halved is None else " once half of each domain is held out"
                raise NotEnoughClipsError(
                    f"{config.name!r} needs banks of {needed} clips; these have {available}{half}. "
                    "Add normal clips or choose fewer neighbours."
                )


def _again(X: list[Floats], domains: Any, device: str, chunk: int | None) -> Fleet:
    return Fleet(X, domains, device=device, chunk=chunk)
