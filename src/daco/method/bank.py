"""NormalBank: the normal clips of one machine, and every score that follows from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.method.bases import Base
from daco.method.calibration import CalibrationInput, calibrate_grid, temperature_base
from daco.method.config import ScoreConfig, parse_grid
from daco.method.criterion import (
    CHOICE_SPLITS,
    Balance,
    Seed,
    balance_of,
    held_out_halves,
    joined,
    require_halves,
    uniformity_ks,
)
from daco.method.distances import MEMORY_BUDGET, cosine_distances, unit_rows
from daco.method.domains import hard_weights, oracle_weights, separability, soft_weights
from daco.method.geometry import Views
from daco.method.scorers import (
    WHOLE,
    Scored,
    expect,
    geometry_of,
    needs_own,
    required,
    scores_against,
    scores_within,
)
from daco.validation import (
    Float64s,
    Floats,
    as_embeddings,
    encode_domains,
    flat_bands,
    match_domains,
    split_bands,
)

Grid = str | ScoreConfig | Iterable[str | ScoreConfig]
Domains = Sequence[Hashable] | NDArray[Any]

_BATCH_BYTES = 64 * 2**20
_SPLIT_BYTES = 8 * 2**20
_MIN_SPLITS = 20  # at once, because distances that are not kept are computed again for each part


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
        more than once. Results agree to rounding.
    device : str
        ``"cpu"``, or a torch device such as ``"cuda"``: the published configurations are then
        computed there (:class:`daco.method.fleet.DeviceBank`), all others as ever.

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

    def __new__(cls, *given: Any, device: str = "cpu", **options: Any) -> NormalBank:
        """A bank, of the class that computes on the device that is named."""
        if device != "cpu" and cls is NormalBank:
            from daco.method.fleet import DeviceBank  # it builds on this class, and needs torch

            cls = DeviceBank
        return object.__new__(cls)

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
        self.domains, codes = encode_domains(domains, len(X))
        # Clips are kept grouped by domain, so that a domain is a slice everywhere below.
        self._order = np.argsort(codes, kind="stable")
        self.clip_domains = codes
        self._codes = codes[self._order]
        sizes = np.bincount(codes, minlength=len(self.domains))
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        grouped = (np.diff(self._order) == 1).all()
        self._unit = unit_rows(X, None if grouped else self._order)
        self._views = Views(self._unit, self.bands, memory_budget)
        self._own = Scored()

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

    def score(
        self, X: ArrayLike, grid: Grid, *, domains: Domains | None = None
    ) -> NDArray[np.float64]:
        """Score clips of unknown domain: (n, len(grid)), higher is more anomalous.

        ``domains``, the true ones, are read only by ``oracle`` configurations.
        """
        configs = parse_grid(grid)
        self._require_clips(configs)
        query = self._query(X)
        oracle = self._oracle(configs, domains, len(query))
        bases = _bases(configs)
        expect(self._views, bases)
        calibrated, geometries = _calibrated(configs)
        standardised, measured = required(base for base in bases if needs_own(base))
        own = self._leave_one_out([*calibrated, *standardised], measured)
        out = np.empty((len(query), len(configs)))
        for rows in self._query_blocks(len(query)):
            found = scores_against(self._views, query[rows], self._starts, bases, own, geometries)
            given = CalibrationInput(
                calibration=own.scores,
                scores=found.scores,
                domain_starts=self._starts,
                domain_distance=found.domain,
                oracle=None if oracle is None else oracle[None, :, rows],
            )
            out[rows] = calibrate_grid(configs, given)[:, 0].T
        return out

    def leave_one_out(self, grid: Grid) -> NDArray[np.float64]:
        """Scores of the bank's own clips, each scored by all the others: (N, len(grid)).

        What normal clips look like to each configuration; thresholds come from here.
        """
        configs = parse_grid(grid)
        self._require_clips(configs, spare=1)
        calibrated, geometries = _calibrated(configs)
        own = self._leave_one_out([*_bases(configs), *calibrated], geometries)
        given = CalibrationInput(
            calibration=own.scores,
            scores=own.scores,
            domain_starts=self._starts,
            domain_distance=own.domain,
            oracle=oracle_weights(self._codes, len(self.domains))[None],
        )
        return self._original_order(calibrate_grid(configs, given)[:, 0].T)

    def balance(
        self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0
    ) -> NDArray[np.float64]:
        """The label-free criterion of each configuration: small is balanced.

        In each split half of every domain is held out and scored with the other half; the
        KS distance between the domains' held-out scores is averaged over splits and pairs
        of domains.
        """
        return self.exact_balance(grid, n_splits, seed).values

    def balance_splits(
        self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0
    ) -> NDArray[np.float64]:
        """The criterion's KS distance in each split: (len(grid), n_splits)."""
        return self.exact_balance(grid, n_splits, seed).splits

    def exact_balance(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Balance:
        """The criterion as integers, for comparisons that must not depend on rounding."""
        configs = parse_grid(grid)
        held_out = self._held_out_scores(configs, n_splits, seed)
        return joined([balance_of(scores, starts) for scores, starts in held_out])

    def uniformity(
        self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0
    ) -> NDArray[np.float64]:
        """How far held-out calibrated scores are from uniform: mean KS over domains, splits.

        NaN for configurations whose scores are not quantiles.
        """
        return self.balance_and_uniformity(grid, n_splits, seed)[1]

    def balance_and_uniformity(
        self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0
    ) -> tuple[Balance, NDArray[np.float64]]:
        """What `exact_balance` and `uniformity` return, from one pass over the splits."""
        configs = parse_grid(grid)
        quantiles = np.array([config.calibration == "conf" for config in configs])
        uniformity = np.where(quantiles, 0.0, np.nan)
        balances = []
        for scores, starts in self._held_out_scores(configs, n_splits, seed):
            balances.append(balance_of(scores, starts))
            parts = [scores[quantiles, :, a:b] for a, b in pairwise(starts)]
            distance = np.mean([uniformity_ks(part) for part in parts], axis=0)
            uniformity[quantiles] += distance.sum(axis=1) / n_splits
        return joined(balances), uniformity

    def domain_weights(
        self, X: ArrayLike, config: str | ScoreConfig = "conf-soft-m0-k1"
    ) -> Float64s:
        """How strongly each clip is assigned to each of ``bank.domains``: (n, G)."""
        config = ScoreConfig.parse(config)
        if config.assignment not in ("soft", "hard"):
            raise InputError(
                f"{config.name!r} assigns no domains. Use a 'soft' or 'hard' configuration."
            )
        self._require_clips([config])
        query = self._query(X)
        weights = np.empty((len(query), len(self.domains)))
        scale, geometry = temperature_base(config.base), geometry_of(config.base)
        own = self._leave_one_out([scale])
        for rows in self._query_blocks(len(query)):
            found = scores_against(self._views, query[rows], self._starts, [], own, [geometry])
            nearest = found.domain[geometry][0]
            if config.assignment == "soft":
                typical = np.median(own.scores[scale].astype(np.float64))
                weights[rows] = soft_weights(nearest, typical).T
            else:
                weights[rows] = hard_weights(nearest).T
        return weights

    def nearest(self, X: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The most similar normal of each clip: its row in the bank, and its cosine distance."""
        query = self._query(X)
        index, distance = np.empty(len(query), np.intp), np.empty(len(query))
        for rows in self._query_blocks(len(query)):
            distances = cosine_distances(self._unit, query[rows])
            first = distances.argmin(axis=0)
            index[rows] = self._order[first]
            distance[rows] = distances[first, np.arange(distances.shape[1])]
        return index, distance

    def separability(self) -> float:
        """Balanced accuracy of the 1-NN domain of the bank's clips, each left out."""
        if len(self) < 2:
            raise NotEnoughClipsError("Separability needs 2 clips. The bank has 1.")
        domain_distance = self._leave_one_out([], [WHOLE]).domain[WHOLE]
        return separability(domain_distance[0], self._codes)

    def _held_out_scores(
        self, configs: list[ScoreConfig], n_splits: int, seed: Seed
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.intp]]]:
        """Scores (C, s, n_held) of the held-out halves, several splits at a time."""
        sizes = np.diff(self._starts)
        require_halves(self.domains, sizes.tolist())
        held_sizes = sizes // 2
        self._require_clips(configs, spare=1, n_bank=int((sizes - held_sizes).sum()))
        _refuse_oracle(configs)
        held_starts = np.concatenate([[0], np.cumsum(held_sizes)]).astype(np.intp)
        kept_starts = self._starts - held_starts
        held = held_out_halves(sizes.tolist(), n_splits, seed)
        bases = _bases(configs)
        calibrated, geometries = _calibrated(configs)
        per_split = 8 * (len(configs) * held_starts[-1] + len(bases) * len(self))
        step = max(_MIN_SPLITS, _SPLIT_BYTES // per_split)
        for start in range(0, n_splits, step):
            away = held[start : start + step]
            found = scores_within(
                self._views, self._starts, [*bases, *calibrated], ~away, geometries
            )
            # Masks have equally many clips in every split, so both sides are rectangular.
            inside = np.nonzero(~away)[1].reshape(len(away), -1)
            outside = np.nonzero(away)[1].reshape(len(away), -1)
            given = CalibrationInput(
                calibration={
                    b: np.take_along_axis(found.scores[b], inside, axis=1) for b in calibrated
                },
                scores={b: np.take_along_axis(found.scores[b], outside, axis=1) for b in bases},
                domain_starts=kept_starts,
                domain_distance={
                    name: np.take_along_axis(found.domain[name], outside[:, None], axis=2)
                    for name in geometries
                },
            )
            yield calibrate_grid(configs, given), held_starts

    def _leave_one_out(self, bases: Iterable[Base], geometries: Iterable[str] = ()) -> Scored:
        """Leave-one-out base scores, (1, N) each, computed once per base."""
        own = self._own
        missing = [base for base in dict.fromkeys(bases) if base not in own.scores]
        unknown = [name for name in geometries if name not in own.domain]
        if missing or unknown:
            found = scores_within(self._views, self._starts, missing, None, unknown)
            own.scores.update(found.scores)
            own.domain.update(found.domain)
        return own

    def _query(self, X: ArrayLike) -> Floats:
        """Unit rows in the bank's precision, scaled in the wider of the two: no overflow."""
        X = as_embeddings(flat_bands(X)[0], dim=self.dim)
        dtype = self._unit.dtype
        return unit_rows(X.astype(np.result_type(X, dtype), copy=False)).astype(dtype, copy=False)

    def _query_blocks(self, n: int) -> Iterator[slice]:
        step = max(1, _BATCH_BYTES // (self._unit.itemsize * len(self)))
        for start in range(0, n, step):
            yield slice(start, min(start + step, n))

    def _original_order(self, grouped: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.empty_like(grouped)
        out[self._order] = grouped
        return out

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
        return oracle_weights(codes, len(self.domains))

    def _require_clips(
        self, configs: list[ScoreConfig], spare: int = 0, n_bank: int | None = None
    ) -> None:
        """Each configuration finds its neighbours; ``spare``: each clip is left out once."""
        halved = n_bank is not None
        available = len(self) if n_bank is None else n_bank
        for config in configs:
            alone = config.calibration is None and config.scorer == "knn"
            needed, why = _least_clips(config.base, spare if alone else 1)
            if available < needed:
                half = f" once half of each domain is held out (of {len(self)})" if halved else ""
                raise NotEnoughClipsError(
                    f"{config.name!r} needs a bank of {needed} clips, {why}; this bank has "
                    f"{f'{available} clips' if available > 1 else 'one (n_samples=1)'}{half}. "
                    "Add normal clips or choose fewer neighbours."
                )


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


def _bases(configs: Iterable[ScoreConfig]) -> list[Base]:
    return list(dict.fromkeys(config.base for config in configs))


def _calibrated(configs: Iterable[ScoreConfig]) -> tuple[list[Base], list[str]]:
    """The bases whose leave-one-out scores calibrate, and where their domains are looked for."""
    with_maps = [config for config in configs if config.calibration]
    bases = _bases(with_maps)
    soft = _bases(config for config in with_maps if config.assignment == "soft")
    scales = [temperature_base(base) for base in soft]
    geometries = list(dict.fromkeys(geometry_of(base) for base in bases))
    return list(dict.fromkeys([*bases, *scales])), geometries


def _refuse_oracle(configs: list[ScoreConfig]) -> None:
    for config in configs:
        if config.assignment == "oracle":
            raise InputError(
                f"{config.name!r} reads true domains; selection must not. Remove it from the grid."
            )
