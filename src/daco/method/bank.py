"""NormalBank: the normal clips of one machine, and every score that follows from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.method.bases import Base
from daco.method.batch import BankBatch
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, parse_grid
from daco.method.criterion import (
    CHOICE_SPLITS,
    Balance,
    Seed,
    held_out_halves,
    ks_denominators,
    require_halves,
)
from daco.method.distances import MEMORY_BUDGET, unit_rows
from daco.method.domains import oracle_weights
from daco.method.kernels import Array, device_memory, kernels, load, require_device
from daco.validation import (
    Bools,
    Float64s,
    Floats,
    Indices,
    as_embeddings,
    encode_domains,
    flat_bands,
    match_domains,
    split_bands,
)

Grid = str | ScoreConfig | Iterable[str | ScoreConfig]
Domains = Sequence[Hashable] | NDArray[Any]


@dataclass(frozen=True)
class Examination:
    """What a bank says about n clips.

    Attributes
    ----------
    scores : (n, C)
        Of every configuration; higher is more anomalous.
    weights : (n, G)
        How strongly each clip is assigned to each domain.
    nearest : (n,)
        Row of the most similar normal.
    distance : (n,)
        Its cosine distance.
    """

    scores: Float64s
    weights: Float64s
    nearest: Indices
    distance: Float64s


class NormalBank:
    """Normal embeddings of one machine, scored by any number of configurations at once.

    Distances and neighbour lists are computed once; configurations and splits are index
    work on top. A clip scored alone or among others, configurations of bands and of whole vectors
    asked for together or one after the other, and results of another processor may differ in the
    last digits of their precision, as matrix products do.

    Parameters
    ----------
    X : (N, D) float32 or float64
        One embedding per normal clip. Distances are computed in this precision.
        An array (N, F, D) has F bands.
    domains : N labels, optional
        The domain of each clip, ``"source"`` or ``"target"`` in the paper; any number of
        domains, any hashable labels. None: one domain, the pooled map calibrates.
    bands : int
        Vectors are that many bands of equal length, one after the other. Only ``beam``
        configurations see them; with 1 the whole vector is the band.
    memory_budget : int
        Bytes the N x N distances may take. A larger bank computes them block by block,
        more than once. Results agree to rounding. On a GPU at least a quarter of the free
        memory may be taken.
    device : str
        ``"cpu"``, or a torch device with float64 such as ``"cuda"``: everything is then computed
        there. It needs the extra ``torch``.

    Attributes
    ----------
    domains : tuple
        The domain names, sorted.
    clip_domains : (N,) int
        Each clip's index into them.

    Examples
    --------
    >>> import daco, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 8)) + 2
    >>> bank = daco.NormalBank(X, ["source"] * 50 + ["target"] * 10)
    >>> bank.score(rng.normal(size=(5, 8)), daco.paper_grid()).shape
    (5, 51)
    >>> bank.balance(["raw-k1", "conf-soft-m0-k1"]).shape
    (2,)
    """

    def __init__(
        self,
        X: ArrayLike,
        domains: Domains | None = None,
        *,
        bands: int | None = None,
        memory_budget: int = MEMORY_BUDGET,
        device: str = "cpu",
    ) -> None:
        X, self.bands = split_bands(X, bands)
        if not isinstance(memory_budget, int | np.integer) or memory_budget < 0:
            raise InputError(f"memory_budget must be a number of bytes. Got {memory_budget!r}.")
        require_device(device)
        self.device = device
        self._memory_budget = memory_budget
        self.domains, codes = encode_domains(domains, len(X))
        # Clips are kept grouped by domain, so that a domain is a slice everywhere below.
        self._order = np.argsort(codes, kind="stable")
        self.clip_domains = codes
        sizes = np.bincount(codes, minlength=len(self.domains))
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        grouped = (np.diff(self._order) == 1).all()
        self._unit = unit_rows(X, None if grouped else self._order)

    @cached_property
    def _batch(self) -> BankBatch:
        unit, budget = self._on_device(self._unit), self._memory_budget
        if self.device != "cpu":
            budget = max(budget, device_memory(unit.device) // 4)
        return BankBatch(unit, self._starts, self.bands, budget)

    def __getstate__(self) -> dict[str, Any]:
        dropped = () if self.device == "cpu" else ("_batch",)  # what is on a device stays there
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __len__(self) -> int:
        return len(self._unit)

    def __repr__(self) -> str:
        parts = ", ".join(f"{size} {name}" for name, size in self.domain_sizes.items())
        dim = f"{self.dim}-d" if self.bands == 1 else f"{self.bands} bands, {self.dim}-d"
        return f"NormalBank({len(self)} clips: {parts}; {dim} {self._unit.dtype})"

    @property
    def dim(self) -> int:
        """Features per embedding."""
        return int(self._unit.shape[1])

    @property
    def domain_sizes(self) -> dict[Any, int]:
        """Clips per domain."""
        return dict(zip(self.domains, np.diff(self._starts).tolist(), strict=True))

    def score(self, X: ArrayLike, grid: Grid, *, domains: Domains | None = None) -> Float64s:
        """Score clips of unknown domain: (n, len(grid)), higher is more anomalous.

        ``domains``, the true ones, are read only by ``oracle`` configurations.
        """
        configs = parse_grid(grid)
        require_clips(configs, len(self))
        query = self._query(X)
        oracle = self._oracle(configs, domains, len(query))
        with self._batch.exact_products():
            scores = self._batch.score(self._on_device(query), configs, oracle)
            return _on_host(scores)[:, 0].T

    def examine(
        self, X: ArrayLike, grid: Grid, weights_by: str | ScoreConfig | None = None
    ) -> Examination:
        """Scores, domain weights and the nearest normal of clips, from one block of distances.

        Parameters
        ----------
        X : (n, D)
        grid : configurations
            Of the scores; none that reads true domains.
        weights_by : configuration, optional
            A ``soft`` or ``hard`` configuration whose weights are wanted; by default the first of
            the grid if it assigns domains, else ``"conf-soft-m0-k1"``.
        """
        configs = parse_grid(grid)
        _refuse_oracle(configs)
        if weights_by is None:
            weights_by = configs[0] if configs[0].assignment else DEFAULT_CONFIG
        by = _assigning(weights_by)
        require_clips([*configs, by], len(self))
        query = self._on_device(self._query(X))
        with self._batch.exact_products():
            scores, weights, nearest = self._batch.examine(query, configs, by, with_nearest=True)
            return Examination(
                _on_host(scores)[:, 0].T, _on_host(weights)[0].T, *self._rows_of(nearest)
            )

    def leave_one_out(self, grid: Grid) -> Float64s:
        """Scores of the bank's own clips, each scored by all the others: (N, len(grid)).

        What normal clips look like to each configuration; thresholds come from here.
        """
        configs = parse_grid(grid)
        require_clips(configs, len(self), spare=1)
        with self._batch.exact_products():
            grouped = _on_host(self._batch.leave_one_out(configs))[:, 0].T
        scores = np.empty_like(grouped)
        scores[self._order] = grouped
        return scores

    def balance(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Float64s:
        """The label-free criterion of each configuration: small is balanced.

        In each split half of every domain is held out and scored with the other half; the
        KS distance between the domains' held-out scores is averaged over splits and pairs
        of domains.
        """
        return self.exact_balance(grid, n_splits, seed).values

    def balance_splits(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Float64s:
        """The criterion's KS distance in each split: (len(grid), n_splits)."""
        return self.exact_balance(grid, n_splits, seed).splits

    def exact_balance(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Balance:
        """The criterion as integers, for comparisons that must not depend on rounding."""
        return self._criterion(grid, n_splits, seed)[0]

    def uniformity(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Float64s:
        """How far held-out calibrated scores are from uniform: mean KS over domains, splits.

        NaN for configurations whose scores are not quantiles.
        """
        return self.balance_and_uniformity(grid, n_splits, seed)[1]

    def balance_and_uniformity(
        self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0
    ) -> tuple[Balance, Float64s]:
        """What `exact_balance` and `uniformity` return, from one pass over the splits."""
        balance, uniformity = self._criterion(grid, n_splits, seed, with_uniformity=True)
        assert uniformity is not None
        return balance, uniformity

    def domain_weights(self, X: ArrayLike, config: str | ScoreConfig = DEFAULT_CONFIG) -> Float64s:
        """How strongly each clip is assigned to each of ``bank.domains``: (n, G)."""
        by = _assigning(config)
        require_clips([by], len(self))
        query = self._on_device(self._query(X))
        with self._batch.exact_products():
            return _on_host(self._batch.examine(query, [], by)[1])[0].T

    def nearest(self, X: ArrayLike) -> tuple[Indices, Float64s]:
        """The most similar normal of each clip: its row in the bank, and its cosine distance."""
        query = self._on_device(self._query(X))
        with self._batch.exact_products():
            return self._rows_of(self._batch.examine(query, [], with_nearest=True)[2])

    def separability(self) -> float:
        """Balanced accuracy of the 1-NN domain of the bank's clips, each left out."""
        if len(self) < 2:
            raise NotEnoughClipsError("Separability needs 2 clips. The bank has 1.")
        with self._batch.exact_products():
            return float(self._batch.separability()[0])

    def _criterion(
        self, grid: Grid, n_splits: int, seed: Seed, with_uniformity: bool = False
    ) -> tuple[Balance, Float64s | None]:
        configs = parse_grid(grid)
        held, denominators = halves(configs, self.domains, self._starts, n_splits, seed)
        with self._batch.exact_products():
            counts, uniformity = self._batch.criterion(configs, held, with_uniformity)
            balance = Balance(_on_host(counts)[:, 0], denominators)
            return balance, None if uniformity is None else _on_host(uniformity)[:, 0]

    def _query(self, X: ArrayLike) -> Floats:
        """Unit rows in the bank's precision, scaled in the wider of the two: no overflow."""
        X = as_embeddings(flat_bands(X)[0], dim=self.dim)
        dtype = self._unit.dtype
        return unit_rows(X.astype(np.result_type(X, dtype), copy=False)).astype(dtype, copy=False)

    def _on_device(self, rows: Floats) -> Array:
        return rows if self.device == "cpu" else load([rows], self.device)

    def _rows_of(self, nearest: Any) -> tuple[Indices, Float64s]:
        """Rows of the bank as it was given, and distances, of the nearest normals."""
        index, distance = (_on_host(values).reshape(-1) for values in nearest)
        return self._order[index], distance.astype(np.float64)

    def _oracle(
        self, configs: list[ScoreConfig], domains: Domains | None, n: int
    ) -> Float64s | None:
        needing = [c.name for c in configs if c.assignment == "oracle"]
        if not needing:
            return None
        if domains is None:
            raise InputError(
                f"{needing[0]!r} reads the true domain of each test clip. Pass domains=..., or "
                "use its 'soft' or 'hard' form."
            )
        codes = match_domains(domains, self.domains, n, "domains")
        weights: Float64s = oracle_weights(codes, len(self.domains))
        return weights


def halves(
    configs: list[ScoreConfig],
    domain_names: Sequence[Any],
    starts: Indices,
    n_splits: int,
    seed: Seed,
) -> tuple[Bools, NDArray[np.int64]]:
    """Masks of the held-out halves (S, N) and the denominators of their KS integers.

    Raises an error where the clips are too few for the criterion of the configurations.
    """
    sizes = np.diff(starts)
    require_halves(domain_names, sizes.tolist())
    require_clips(configs, int(sizes.sum()), spare=1, n_left=int((sizes - sizes // 2).sum()))
    _refuse_oracle(configs)
    held_starts = np.concatenate([[0], np.cumsum(sizes // 2)])
    return held_out_halves(sizes.tolist(), n_splits, seed), ks_denominators(held_starts)


def require_clips(
    configs: Iterable[ScoreConfig], n: int, spare: int = 0, n_left: int | None = None
) -> None:
    """An error where a bank of n clips is too small for a configuration.

    ``spare``: each clip is left out once. ``n_left``: so many are left of the bank in a split.
    """
    available = n if n_left is None else n_left
    for config in configs:
        alone = config.calibration is None and config.scorer == "knn"
        needed, why = _least_clips(config.base, spare if alone else 1)
        if available < needed:
            half = f" once half of each domain is held out (of {n})" if n_left is not None else ""
            raise NotEnoughClipsError(
                f"{config.name!r} needs a bank of {needed} clips, {why}; this bank has "
                f"{f'{available} clips' if available > 1 else 'one (n_samples=1)'}{half}. "
                "Add normal clips or choose fewer neighbours."
            )


def _on_host(array: Array) -> NDArray[Any]:
    hosted: NDArray[Any] = kernels(array).to_host(array)
    return hosted


def _least_clips(base: Base, spare: int) -> tuple[int, str]:
    """The fewest clips that a base score can do with, and what for."""
    needs = []
    for part in base.parts():
        n = part.neighbours
        if part.scorer.startswith("dldn") or not n:
            needs.append((1 + spare, "each with a neighbour"))
        else:
            needs.append((n + spare, f"each with {n} neighbour{'s' * (n > 1)}"))
    return max(needs)


def _assigning(config: str | ScoreConfig) -> ScoreConfig:
    config = ScoreConfig.parse(config)
    if config.assignment not in ("soft", "hard"):
        raise InputError(
            f"{config.name!r} assigns no domains. Use a 'soft' or 'hard' configuration."
        )
    return config


def _refuse_oracle(configs: list[ScoreConfig]) -> None:
    for config in configs:
        if config.assignment == "oracle":
            raise InputError(
                f"{config.name!r} reads true domains; selection must not. Remove it from the grid."
            )
