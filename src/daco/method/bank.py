"""NormalBank: the normal clips of one machine, and every score that follows from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.views import ONE_VIEW, Views, join_views
from daco.errors import InputError, NotEnoughClipsError
from daco.method.config import PAPER_CONFIG, Base, ScoreConfig, parse_grid
from daco.method.criterion import (
    CHOICE_SPLITS,
    Balance,
    Seed,
    balance_of_halves,
    held_out_halves,
    require_halves,
)
from daco.method.distances import MEMORY_BUDGET, cosine_distances, unit_rows
from daco.method.domains import oracle_weights
from daco.method.engine import (
    BankScores,
    Block,
    ClipScores,
    Plan,
    paper_weights,
    refuse_oracle,
    require_clips,
)
from daco.method.external import ExternalScorers
from daco.method.scores import BankView
from daco.method.siblings import hide_siblings
from daco.validation import Float64s, Floats, encode_domains, match_domains

Grid = str | ScoreConfig | Iterable[str | ScoreConfig]
Domains = Sequence[Hashable] | NDArray[Any]
Clips = ArrayLike | Mapping[str, ArrayLike]
"""Embeddings, one row per clip, or those of several views by name."""

_QUERY_BYTES = 64 * 2**20


class NormalBank:
    """Normal embeddings of one machine, scored by any number of configurations at once.

    Distances and neighbour lists are computed once for each view. Results may differ by rounding.

    Parameters
    ----------
    X : (N, D) float32 or float64, or {view: such an array}
        One embedding per normal clip. Distances are computed in this precision. Blends use all
        views; other configurations and the nearest normals use the first.
    domains : N labels, optional
        The domain of each clip, ``"source"`` or ``"target"`` in the paper. There may be any number
        of domains, with any hashable labels; None for one domain.
    views : Views, optional
        How the rows of an array are divided into views.
    scorers : {label: detector or (N,) scores}, optional
        External scorers of the configurations ``ext-<label>`` and ``blend+<label>``.
    scorer_higher_is_anomalous : bool, optional
        The sign of detectors whose class does not tell (:mod:`daco.method.external`).
    random_state, n_jobs : int
        Seed of the folds in which detectors score the normals, and processes that fit them.

    Attributes
    ----------
    domains : tuple
        The domain names, sorted.
    clip_domains : (N,) int
        The domain of each clip, an index into `domains`.
    views : Views
        Names and sizes of the views; a bank of one array has one, ``"embedding"``.

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
        X: Clips,
        domains: Domains | None = None,
        *,
        views: Views | None = None,
        scorers: Mapping[str, Any] | None = None,
        scorer_higher_is_anomalous: bool | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        rows, self.views = join_views(X, views)
        self.domains, self.clip_domains = encode_domains(domains, len(rows))
        # Clips are kept grouped by domain, so that a domain is a slice everywhere below.
        self._order = np.argsort(self.clip_domains, kind="stable")
        sizes = np.bincount(self.clip_domains, minlength=len(self.domains))
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        budget = MEMORY_BUDGET // len(self.views.names)
        self._banks = [
            BankView(unit_rows(part, self._order), self._starts, budget)
            for part in self.views.split(rows)
        ]
        self._external = ExternalScorers(
            scorers or {},
            scorer_higher_is_anomalous,
            rows,
            self.views,
            self._starts,
            self._order,
            seed=random_state,
            n_jobs=n_jobs,
        )
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._scores = BankScores(self._banks, self._external, self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __repr__(self) -> str:
        parts = ", ".join(f"{size} {name}" for name, size in self.domain_sizes.items())
        views = zip(self.views.names, self.views.sizes, strict=True)
        dims = [f"{name} {size}-d" for name, size in views]
        dim = dims[0].removeprefix(f"{ONE_VIEW} ") if len(dims) == 1 else " + ".join(dims)
        return f"NormalBank({len(self)} clips: {parts}; {dim} {self._banks[0].unit.dtype})"

    @property
    def domain_sizes(self) -> dict[Any, int]:
        """Number of clips in each domain."""
        return dict(zip(self.domains, np.diff(self._starts).tolist(), strict=True))

    def score(
        self,
        X: Clips,
        grid: Grid,
        *,
        domains: Domains | None = None,
        scores: Mapping[str, ArrayLike] | None = None,
    ) -> Float64s:
        """Score clips of unknown domain, (n, len(grid)); higher is more anomalous.

        Parameters
        ----------
        X : (n, D), or {view: (n, D)}
            One embedding per clip.
        grid : one or several configurations, or their names
        domains : n labels, optional
            The true domains. Only ``oracle`` configurations use them.
        scores : {label: (n,)}, optional
            Scores of the clips by external scorers that were given as scores of the normals.
        """
        plan = self._plan(grid)
        query = self._query(X)[: plan.n_views(len(self._banks))]
        oracle = self._oracle(plan.configs, domains, len(query[0]))
        parts = []
        for rows, block in self._blocks(query, self._against(plan, X, scores)):
            true = None if oracle is None else oracle[:, :, rows]
            parts.append(self._scores.grid(plan, block, true)[0][:, 0])
        return np.concatenate(parts, axis=1).T

    def examine(self, X: Clips, config: str | ScoreConfig) -> ClipScores:
        """Compute scores, domain weights and nearest normals of clips of unknown domain.

        X is as for `score`, and `config` any configuration that is not an ``oracle`` one.
        """
        plan = self._plan(config)
        refuse_oracle(plan.configs)
        blocks = self._blocks(self._query(X), self._against(plan, X))
        return self._scores.examined(plan, (block for _, block in blocks))

    def examine_normals(
        self,
        config: str | ScoreConfig,
        siblings: str | int = "auto",
        sessions: Sequence[str] = (),
    ) -> ClipScores:
        """Compute scores of the bank's own clips as if they were new, in the order of X.

        From each clip the clip itself is hidden and its recording session or, where that is ``""``,
        its likely siblings: ``"auto"`` finds them by distance, a number hides as many nearest clips
        (:func:`daco.method.siblings.hide_siblings`).
        """
        plan = self._plan(config, leave_out=True)
        clips = self._scores.examined(plan, self._own_blocks(plan, siblings, sessions))
        return clips.take(np.argsort(self._order))

    def score_normals(
        self, grid: Grid, siblings: str | int = "auto", sessions: Sequence[str] = ()
    ) -> Float64s:
        """Return the scores of `examine_normals` for many configurations, (N, len(grid))."""
        plan = self._plan(grid, leave_out=True)
        blocks = self._own_blocks(plan, siblings, sessions)
        parts = [self._scores.grid(plan, block)[0][:, 0] for block in blocks]
        return self._as_given(np.concatenate(parts, axis=1).T)

    def leave_one_out(self, grid: Grid) -> Float64s:
        """Score each clip of the bank by all the others, (N, len(grid))."""
        plan = self._plan(grid, leave_out=True)
        oracle = oracle_weights(np.sort(self.clip_domains), len(self.domains))[None]
        return self._as_given(self._scores.leave_one_out(plan, oracle).T)

    def domain_weights(self, X: Clips, config: str | ScoreConfig = PAPER_CONFIG) -> Float64s:
        """Compute the paper's weights of the domains of each clip, (n, G); rows sum to 1."""
        parsed = ScoreConfig.parse(config)
        if parsed.assignment not in ("soft", "hard"):
            raise InputError(f"{parsed.name!r} assigns no domains. Use a 'soft' or 'hard' one.")
        plan = self._plan(parsed)
        query = self._query(X)[: plan.n_views(len(self._banks))]
        blocks = self._blocks(query, self._against(plan, X))
        weights = [paper_weights(parsed, self._scores.views(plan, block)) for _, block in blocks]
        return np.concatenate(weights, axis=2)[0].T

    def separability(self) -> float:
        """Compute how well domains can be told apart: 0.5 if two look alike, 1 if never mixed.

        It is the share of clips whose nearest other clip is of their domain, mean over domains.
        """
        if len(self) < 2:
            raise NotEnoughClipsError("Separability needs 2 clips. The bank has 1.")
        right = self._banks[0].own_domain_distances().argmin(axis=0) == np.sort(self.clip_domains)
        return float(np.mean([right[a:b].mean() for a, b in pairwise(self._starts)]))

    def balance(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Float64s:
        """Compute the label-free criterion of each configuration, (len(grid),); small is balanced.

        In each of `n_splits` (200) random splits, half of every domain is held out and scored with
        the other half. The criterion is the KS distance between the held-out scores of two domains,
        averaged over splits and pairs of domains.
        """
        return self.exact_balance(grid, n_splits, seed).values

    def exact_balance(
        self,
        grid: Grid,
        n_splits: int = CHOICE_SPLITS,
        seed: Seed = 0,
        sessions: Sequence[str] = (),
        n_resamples: int = 0,
    ) -> Balance:
        """Compute the criterion of every split, as a `Balance`.

        `sessions` has the recording session of each clip, ``""`` if unknown; they are held out
        whole. `n_resamples` adds the criterion of resampled splits and clips.
        """
        configs = parse_grid(grid)
        refuse_oracle(configs)
        require_halves(self.domain_sizes)
        sizes = np.diff(self._starts)
        left = int((sizes - sizes // 2).sum())
        require_clips(configs, len(self), left)
        ordered = [sessions[row] for row in self._order] if len(sessions) else ()
        return balance_of_halves(
            self._banks,
            self._external,
            Plan(configs, left),
            held_out_halves(sizes.tolist(), n_splits, seed, ordered),
            n_resamples=n_resamples,
            seed=seed,
        )

    def _plan(self, grid: Grid, *, leave_out: bool = False) -> Plan:
        """The plan of configurations, for which the bank must be large enough."""
        alone = isinstance(grid, str | ScoreConfig)  # as it is where clips arrive one by one
        if alone and (grid, leave_out) in self._plans:
            return self._plans[grid, leave_out]
        configs = parse_grid(grid)
        require_clips(configs, len(self), len(self) if leave_out else None)
        plan = Plan(configs, len(self))
        if alone:
            self._plans[grid, leave_out] = plan
        return plan

    def _query(self, X: Clips) -> list[Floats]:
        """Unit rows of each view in the bank's precision, scaled in the wider of the two."""
        rows = self.views.rows(X)
        dtype = self._banks[0].unit.dtype
        rows = rows.astype(np.result_type(rows, dtype), copy=False)  # so that nothing overflows
        return [unit_rows(part).astype(dtype, copy=False) for part in self.views.split(rows)]

    def _against(
        self, plan: Plan, X: Clips, scores: Mapping[str, ArrayLike] | None = None
    ) -> dict[Base, Float64s]:
        """The external scores of new clips."""
        return {base: self._external.against(base.label, X, scores) for base in plan.external}

    def _blocks(
        self, query: Sequence[Floats], external: Mapping[Base, Float64s]
    ) -> Iterator[tuple[slice, Block]]:
        """New clips, as many at once as the memory allows, in as many views as are given."""
        for rows in self._parts(len(query[0])):
            pairs = zip(self._banks, query, strict=False)
            distances = [cosine_distances(bank.unit, clips[rows]) for bank, clips in pairs]
            yield rows, Block(distances, {base: each[rows] for base, each in external.items()})

    def _own_blocks(
        self, plan: Plan, siblings: str | int, sessions: Sequence[str]
    ) -> Iterator[Block]:
        """The clips of the bank, each infinitely far from itself and from its siblings."""
        refuse_oracle(plan.configs)
        names = np.array(sessions if len(sessions) else [""] * len(self))[self._order]
        groups = [name or f"clip {row}" for row, name in enumerate(sessions)] or None
        external = {
            base: self._external.within(base.label, groups=groups)[0] for base in plan.external
        }
        for rows in self._parts(len(self)):
            clips = np.arange(rows.start, rows.stop)
            distances, hidden = [], np.zeros(len(clips), np.intp)
            for bank in self._banks:
                to_normals = bank.distances.rows(clips)
                of_view = hide_siblings(to_normals, clips, self._starts, siblings, names)
                hidden = np.maximum(hidden, of_view)
                distances.append(to_normals.T)
            values = {base: each[rows] for base, each in external.items()}
            yield Block(distances, values, hidden)

    def _parts(self, n: int) -> Iterator[slice]:
        unit = self._banks[0].unit
        step = max(1, _QUERY_BYTES // (unit.itemsize * len(unit)))
        for start in range(0, n, step):
            yield slice(start, min(start + step, n))

    def _as_given(self, grouped: Float64s) -> Float64s:
        """Rows in the order of X."""
        given = np.empty_like(grouped)
        given[self._order] = grouped
        return given

    def _oracle(
        self, configs: Sequence[ScoreConfig], domains: Domains | None, n: int
    ) -> Float64s | None:
        needing = [config.name for config in configs if config.assignment == "oracle"]
        if not needing:
            return None
        if domains is None:
            raise InputError(
                f"{needing[0]!r} reads the true domain of each test clip. Pass domains=..., or "
                "use its 'soft' or 'hard' form."
            )
        codes = match_domains(domains, self.domains, n, "domains")
        return oracle_weights(codes, len(self.domains))[None]
