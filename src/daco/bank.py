"""NormalBank: the normal clips of one machine, and every score that follows from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.calibration import CalibrationInput, calibrate_grid
from daco.config import ScoreConfig, parse_grid
from daco.criterion import (
    Balance,
    Seed,
    balance_of,
    held_out_halves,
    require_halves,
    uniformity_ks,
)
from daco.distances import MEMORY_BUDGET, PairwiseDistances, cosine_distances, unit_rows
from daco.domains import Weights, hard_weights, oracle_weights, separability, soft_weights
from daco.errors import InputError, NotEnoughClipsError
from daco.neighbours import NeighbourLists
from daco.scorers import Base, BaseScores, reach_of, scores_against, scores_within
from daco.validation import Floats, as_embeddings, encode_domains, match_domains

Grid = str | ScoreConfig | Iterable[str | ScoreConfig]
Domains = Sequence[Hashable] | NDArray[Any]

_BATCH_BYTES = 64 * 2**20


class NormalBank:
    """Normal embeddings of one machine, scored by any number of configurations at once.

    Distances and neighbour lists are computed once; configurations and splits are index
    work on top. The same call gives the same bits; a clip scored alone or among others may
    differ in the last digits of its precision, as matrix products do.

    Parameters
    ----------
    X : (N, D) float32 or float64
        One embedding per normal clip. Distances are computed in this precision.
    domains : N labels, optional
        The domain of each clip, ``"source"`` or ``"target"`` in the paper; any number of
        domains, any hashable labels. None: one domain, the pooled map calibrates.
    memory_budget : int
        Bytes the N x N distances may take. A larger bank computes them block by block,
        more than once. Results agree to rounding.

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
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        X = as_embeddings(X)
        if not isinstance(memory_budget, int | np.integer) or memory_budget < 0:
            raise InputError(f"memory_budget must be a number of bytes. Got {memory_budget!r}.")
        self.domains, codes = encode_domains(domains, len(X))
        # Clips are kept grouped by domain, so that a domain is a slice everywhere below.
        self._order = np.argsort(codes, kind="stable")
        self.clip_domains = codes
        self._codes = codes[self._order]
        sizes = np.bincount(codes, minlength=len(self.domains))
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        grouped = X if (np.diff(self._order) == 1).all() else X[self._order]
        self._unit = unit_rows(grouped)
        self._memory_budget = memory_budget
        self._pairs: PairwiseDistances | None = None
        self._near: NeighbourLists | None = None
        self._own: BaseScores = {}
        self._own_domain: Floats | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Distances are computed again where they are needed; scoring does not need them.
        return self.__dict__ | {"_pairs": None}

    def __len__(self) -> int:
        return len(self._unit)

    def __repr__(self) -> str:
        parts = ", ".join(f"{size} {name}" for name, size in self.domain_sizes.items())
        return f"NormalBank({len(self)} clips: {parts}; {self.dim}-d {self._unit.dtype})"

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
        calibrated = _bases(c for c in configs if c.calibration)
        needs_lists = calibrated or any(scorer != "knn" for scorer, _ in bases)
        lists = self._lists(bases) if needs_lists else None
        own = self._leave_one_out_bases(calibrated)[0] if calibrated else {}
        out = np.empty((len(query), len(configs)))
        for rows in self._query_blocks(len(query)):
            distances = cosine_distances(self._unit, query[rows])
            scores, domain_distance = scores_against(distances, lists, self._starts, bases)
            given = CalibrationInput(
                calibration=own,
                scores=scores,
                domain_starts=self._starts,
                domain_distance=domain_distance,
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
        scores, domain_distance = self._leave_one_out_bases(_bases(configs), with_domains=True)
        given = CalibrationInput(
            calibration=scores,
            scores=scores,
            domain_starts=self._starts,
            domain_distance=domain_distance,
            oracle=oracle_weights(self._codes, len(self.domains))[None],
        )
        return self._original_order(calibrate_grid(configs, given)[:, 0].T)

    def balance(self, grid: Grid, n_splits: int = 10, seed: Seed = 0) -> NDArray[np.float64]:
        """The label-free criterion of each configuration: small is balanced.

        In each split half of every domain is held out and scored with the other half; the
        KS distance between the domains' held-out scores is averaged over splits and pairs
        of domains.
        """
        return self.exact_balance(grid, n_splits, seed).values

    def balance_splits(self, grid: Grid, n_splits: int = 10, seed: Seed = 0) -> NDArray[np.float64]:
        """The criterion's KS distance in each split: (len(grid), n_splits)."""
        return self.exact_balance(grid, n_splits, seed).splits

    def exact_balance(self, grid: Grid, n_splits: int = 10, seed: Seed = 0) -> Balance:
        """The criterion as integers, for comparisons that must not depend on rounding."""
        configs = parse_grid(grid)
        parts = [
            balance_of(scores, starts)
            for scores, starts in self._held_out_scores(configs, n_splits, seed)
        ]
        counts = np.concatenate([part.counts for part in parts], axis=1)
        return Balance(counts, parts[0].denominators)

    def uniformity(self, grid: Grid, n_splits: int = 10, seed: Seed = 0) -> NDArray[np.float64]:
        """How far held-out calibrated scores are from uniform: mean KS over domains, splits.

        NaN for configurations whose scores are not quantiles.
        """
        configs = parse_grid(grid)
        totals = np.zeros(len(configs))
        for scores, starts in self._held_out_scores(configs, n_splits, seed):
            parts = [scores[..., a:b] for a, b in pairwise(starts)]
            distance = np.mean([uniformity_ks(part) for part in parts], axis=0)
            totals += distance.sum(axis=1)
        quantiles = np.array([config.calibration == "conf" for config in configs])
        return np.where(quantiles, totals / n_splits, np.nan)

    def domain_weights(
        self, X: ArrayLike, config: str | ScoreConfig = "conf-soft-m0-k1"
    ) -> Weights:
        """How strongly each clip is assigned to each of ``bank.domains``: (n, G)."""
        config = ScoreConfig.parse(config)
        if config.assignment not in ("soft", "hard"):
            raise InputError(
                f"{config.name!r} assigns no domains. Use a 'soft' or 'hard' configuration."
            )
        self._require_clips([config])
        query = self._query(X)
        weights = np.empty((len(query), len(self.domains)))
        own = self._leave_one_out_bases([config.base])[0][config.base]
        for rows in self._query_blocks(len(query)):
            distances = cosine_distances(self._unit, query[rows])
            nearest = scores_against(distances, None, self._starts, [])[1][0]
            if config.assignment == "soft":
                weights[rows] = soft_weights(nearest, np.median(own.astype(np.float64))).T
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
        domain_distance = self._leave_one_out_bases([("knn", 1)], with_domains=True)[1]
        assert domain_distance is not None
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
        lists = self._lists(bases)
        calibrated = _bases(c for c in configs if c.calibration)
        scores, domain_distance = scores_within(
            self._distances(), lists, self._starts, bases, ~held, with_domains=bool(calibrated)
        )
        # Masks have equally many clips in every split, so both sides are rectangular.
        inside = np.nonzero(~held)[1].reshape(n_splits, -1)
        outside = np.nonzero(held)[1].reshape(n_splits, -1)
        step = max(1, _BATCH_BYTES // (8 * len(configs) * outside.shape[1]))
        for start in range(0, n_splits, step):
            part = slice(start, start + step)
            kept, away = inside[part], outside[part]
            given = CalibrationInput(
                calibration={
                    b: np.take_along_axis(scores[b][part], kept, axis=1) for b in calibrated
                },
                scores={b: np.take_along_axis(scores[b][part], away, axis=1) for b in bases},
                domain_starts=kept_starts,
                domain_distance=None
                if domain_distance is None
                else np.take_along_axis(domain_distance[part], away[:, None], axis=2),
            )
            yield calibrate_grid(configs, given), held_starts

    def _leave_one_out_bases(
        self, bases: Sequence[Base], with_domains: bool = False
    ) -> tuple[BaseScores, Floats | None]:
        """Leave-one-out base scores, (1, N) each, computed once per base."""
        missing = [base for base in bases if base not in self._own]
        domains_missing = with_domains and self._own_domain is None
        if missing or domains_missing:
            lists = self._lists(bases)
            scores, domain_distance = scores_within(
                self._distances(),
                lists,
                self._starts,
                missing or bases,
                with_domains=domains_missing,
            )
            self._own.update(scores)
            self._own_domain = domain_distance if domains_missing else self._own_domain
        return {base: self._own[base] for base in bases}, self._own_domain

    def _distances(self) -> PairwiseDistances:
        if self._pairs is None:
            self._pairs = PairwiseDistances(self._unit, self._memory_budget)
        return self._pairs

    def _lists(self, bases: Sequence[Base]) -> NeighbourLists:
        reach, lists = reach_of(bases), self._near
        if lists is None or lists.reach < reach:
            self._near = lists = NeighbourLists(self._distances(), reach)
        return lists

    def _query(self, X: ArrayLike) -> Floats:
        """Unit rows in the bank's precision, scaled in the wider of the two: no overflow."""
        X = as_embeddings(X, dim=self.dim)
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
    ) -> Weights | None:
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
            needed = config.neighbours + (spare if alone else 1)
            if available < needed:
                half = f" once half of each domain is held out (of {len(self)})" if halved else ""
                remedy = "Add normal clips or choose fewer neighbours."
                raise NotEnoughClipsError(
                    f"{config.name!r} needs a bank of {needed} clips, each with "
                    f"{config.neighbours} neighbour{'s' * (config.neighbours > 1)}; this bank has "
                    f"{f'{available} clips' if available > 1 else 'one (n_samples=1)'}{half}. "
                    f"{remedy}"
                )


def _bases(configs: Iterable[ScoreConfig]) -> list[Base]:
    return list(dict.fromkeys(config.base for config in configs))


def _refuse_oracle(configs: list[ScoreConfig]) -> None:
    for config in configs:
        if config.assignment == "oracle":
            raise InputError(
                f"{config.name!r} reads true domains; selection must not. Remove it from the grid."
            )
