"""NormalBank: the normal clips of one machine, and every score that follows from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.views import ONE_VIEW, Bands, join_views
from daco.errors import InputError, NotEnoughClipsError
from daco.method.bases import Base
from daco.method.batch import BankBatch, Examined
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, calibrations_of, parse_grid
from daco.method.criterion import (
    CHOICE_SPLITS,
    Balance,
    Seed,
)
from daco.method.distances import MEMORY_BUDGET, unit_rows
from daco.method.domains import oracle_weights
from daco.method.external import ExternalScorers
from daco.method.kernels import Array, device_memory, load, on_host, require_device
from daco.method.limits import halves, refuse_oracle, require_clips
from daco.method.vote import members_of
from daco.text import html_table
from daco.validation import Float64s, Floats, Indices, encode_domains, match_domains

Grid = str | ScoreConfig | Iterable[str | ScoreConfig]
Domains = Sequence[Hashable] | NDArray[Any]
Clips = ArrayLike | Mapping[str, ArrayLike]
"""Embeddings, one row per clip, or those of several views by name."""


@dataclass(frozen=True)
class Examination:
    """Scores, domain weights and nearest normals of n clips.

    Attributes
    ----------
    scores : (n, C)
        Scores by each configuration; higher is more anomalous.
    weights : (n, G)
        How strongly each clip belongs to each domain.
    nearest, distance : (n,)
        Row of the most similar normal, and its cosine distance.
    normal_scores : (n, members) or None
        Scores by each of `NormalBank.members`, if the first configuration is a vote.
    """

    scores: Float64s
    weights: Float64s
    nearest: Indices
    distance: Float64s
    normal_scores: Float64s | None = None


class NormalBank:
    """Normal embeddings of one machine, scored by any number of configurations at once.

    Distances and neighbour lists are computed once and shared by all configurations and splits.
    Results may differ by rounding between processors, and between clips scored alone or together.

    Parameters
    ----------
    X : (N, D) float32 or float64, or {view: such an array}
        One embedding per normal clip. Distances are computed in this precision. An array (N, F, D)
        has F bands. Votes and their domain weights use all views; all other configurations and the
        nearest normals use the first.
    domains : N labels, optional
        The domain of each clip, ``"source"`` or ``"target"`` in the paper. There may be any number
        of domains, with any hashable labels; None for one domain.
    bands : int, Views or {view: int}
        Number of frequency bands in each embedding, which have equal lengths and follow each other;
        only ``beam`` configurations use them. A :class:`daco.data.views.Views` divides the array
        into views.
    memory_budget : int
        Bytes that the N x N distances may take, 256 MiB by default. A larger bank computes them
        block by block, more than once. On a GPU at least a quarter of the free memory may be taken.
    device : str
        ``"cpu"``, or a torch device with float64, such as ``"cuda"``, which then computes
        everything. It needs the extra ``torch``.
    scorers : {label: detector or (N,) scores}, optional
        External scorers: configurations such as ``ext-<label>`` and ``conf-soft-m0-ext-<label>``
        use them, and a vote counts each as a view.

    Attributes
    ----------
    domains : tuple
        The domain names, sorted.
    clip_domains : (N,) int
        The domain of each clip, an index into `domains`.

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
        bands: Bands | Mapping[str, int] | None = None,
        memory_budget: int = MEMORY_BUDGET,
        device: str = "cpu",
        scorers: Mapping[str, Any] | None = None,
    ) -> None:
        rows, self._views = join_views(X, bands)
        if not isinstance(memory_budget, int | np.integer) or memory_budget < 0:
            raise InputError(f"memory_budget must be a number of bytes. Got {memory_budget!r}.")
        require_device(device)
        self.device = device
        self._memory_budget = memory_budget
        self.domains, codes = encode_domains(domains, len(rows))
        # Clips are kept grouped by domain, so that a domain is a slice everywhere below.
        self._order = np.argsort(codes, kind="stable")
        self.clip_domains = codes
        sizes = np.bincount(codes, minlength=len(self.domains))
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        grouped = (np.diff(self._order) == 1).all()
        order = None if grouped else self._order
        self._units = [unit_rows(part, order) for part in self._views.split(rows)]
        self._external = ExternalScorers(
            scorers or {}, rows, self._views, self._starts, self._order
        )

    @cached_property
    def _batch(self) -> BankBatch:
        units, budget = self._on_device(self._units), self._memory_budget
        if self.device != "cpu":
            budget = max(budget, device_memory(units[0].device) // 4)
        return BankBatch(units, self._starts, self._views.bands, budget, self._external)

    def __getstate__(self) -> dict[str, Any]:
        dropped = () if self.device == "cpu" else ("_batch",)  # what is on a device stays there
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __len__(self) -> int:
        return len(self._units[0])

    def __repr__(self) -> str:
        parts = ", ".join(f"{size} {name}" for name, size in self.domain_sizes.items())
        views = zip(self.views, self._views.sizes, self._views.bands, strict=True)
        dims = [f"{name} {f'{b} bands, ' * (b > 1)}{size}-d" for name, size, b in views]
        dim = dims[0].removeprefix(f"{ONE_VIEW} ") if len(dims) == 1 else " + ".join(dims)
        return f"NormalBank({len(self)} clips: {parts}; {dim} {self._units[0].dtype})"

    def _repr_html_(self) -> str:
        return html_table(repr(self), ["domain", "clips"], self.domain_sizes.items())

    @property
    def dim(self) -> int:
        """Number of features of a clip, in all views together."""
        return self._views.dim

    @property
    def bands(self) -> Bands:
        """Number of equal bands in each embedding; for several views, how they divide it."""
        return self._views if len(self.views) > 1 else self._views.bands[0]

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views; a bank of one array has one, ``"embedding"``."""
        return self._views.names

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
        grid : configuration or sequence of configurations
            Names, or :class:`ScoreConfig` objects.
        domains : n labels, optional
            The true domains. Only ``oracle`` configurations use them.
        scores : {label: (n,)}, optional
            Scores of the clips by external scorers that were given as scores of the normals.
        """
        configs = parse_grid(grid)
        require_clips(configs, len(self))
        query = self._query(X)
        oracle = self._oracle(configs, domains, len(query[0]))
        given = self._external_scores(configs, X, scores)
        with self._batch.exact_products():
            computed = self._batch.examine(
                self._on_device(query), configs, oracle=oracle, external=given
            )
            return on_host(computed.scores)[:, 0].T

    def members(self, config: str | ScoreConfig = "vote") -> dict[str, tuple[str, ...]]:
        """List the configurations that take part in a vote, by view."""
        return self._members(config, 0)

    def left_out(self, config: str | ScoreConfig = "vote") -> dict[str, tuple[str, ...]]:
        """List the configurations of a vote for which the bank has too few clips, by view."""
        return self._members(config, 1)

    def _members(self, config: str | ScoreConfig, part: int) -> dict[str, tuple[str, ...]]:
        base = ScoreConfig.parse(config).base
        if not base.is_vote:
            raise InputError(f"{str(config)!r} is not a vote. Use 'vote' or 'vote-paper'.")
        members = {
            name: members_of(base, bands, len(self))[part]
            for name, bands in zip(self.views, self._views.bands, strict=True)
        }
        for label in self._external.given:
            external = Base("ext", label=label)
            members[external.name] = () if part else tuple(calibrations_of(external))
        return {name: tuple(each.name for each in given) for name, given in members.items()}

    def _external_scores(
        self, configs: list[ScoreConfig], X: Clips, scores: Mapping[str, ArrayLike] | None = None
    ) -> dict[Base, Float64s]:
        bases = self._batch.external_bases(configs)
        return {base: self._external.against(base, X, scores) for base in bases}

    def examine(
        self, X: Clips, grid: Grid, weights_by: str | ScoreConfig | None = None
    ) -> Examination:
        """Compute scores, domain weights and nearest normals in one pass, as an `Examination`.

        Parameters
        ----------
        X, grid
            As in `score`; ``oracle`` configurations are refused.
        weights_by : configuration, optional
            The ``soft`` or ``hard`` configuration that gives the weights; by default the first of
            the grid if it assigns domains, else ``"conf-soft-m0-k1"``.
        """
        configs = parse_grid(grid)
        refuse_oracle(configs)
        if weights_by is None:
            weights_by = configs[0] if configs[0].assignment else DEFAULT_CONFIG
        by = _assigning(weights_by)
        require_clips([*configs, by], len(self))
        query = self._on_device(self._query(X))
        given = self._external_scores(configs, X)
        with self._batch.exact_products():
            found = self._batch.examine(query, configs, by, with_nearest=True, external=given)
            normal = found.normal_scores
            return Examination(
                on_host(found.scores)[:, 0].T,
                on_host(found.weights)[0].T,
                *self._rows_of(found),
                None if normal is None else on_host(normal)[:, 0].T,
            )

    def leave_one_out(self, grid: Grid) -> Float64s:
        """Score each clip of the bank by all the others, (N, len(grid))."""
        configs = parse_grid(grid)
        require_clips(configs, len(self), spare=1)
        with self._batch.exact_products():
            grouped = on_host(self._batch.leave_one_out(configs))[:, 0].T
        scores = np.empty_like(grouped)
        scores[self._order] = grouped
        return scores

    def balance(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Float64s:
        """Compute the label-free criterion of each configuration, (len(grid),); small is balanced.

        In each of `n_splits` (200) random splits, half of every domain is held out and scored with
        the other half. The criterion is the KS distance between the held-out scores of two domains,
        averaged over splits and pairs of domains.
        """
        return self.exact_balance(grid, n_splits, seed).values

    def balance_splits(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Float64s:
        """Compute the criterion of each split, (len(grid), n_splits)."""
        return self.exact_balance(grid, n_splits, seed).splits

    def exact_balance(
        self,
        grid: Grid,
        n_splits: int = CHOICE_SPLITS,
        seed: Seed = 0,
        sessions: Sequence[str] = (),
    ) -> Balance:
        """Compute the criterion in integers, as a `Balance`, for comparisons without rounding.

        `sessions` has the recording session of each clip, ``""`` if unknown. Clips of one session
        are held out together (:func:`daco.method.criterion.held_out_halves`).
        """
        return self._criterion(grid, n_splits, seed, sessions)[0]

    def uniformity(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Float64s:
        """Compute the mean KS distance of held-out calibrated scores from uniform, (len(grid),).

        It is nan for configurations whose scores are not quantiles.
        """
        return self.balance_and_uniformity(grid, n_splits, seed)[1]

    def balance_and_uniformity(
        self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0
    ) -> tuple[Balance, Float64s]:
        """Compute `exact_balance` and `uniformity` in one pass over the splits."""
        balance, uniformity = self._criterion(grid, n_splits, seed, (), with_uniformity=True)
        assert uniformity is not None
        return balance, uniformity

    def domain_weights(self, X: Clips, config: str | ScoreConfig = DEFAULT_CONFIG) -> Float64s:
        """Compute how strongly each clip belongs to each of `domains`, (n, G); rows sum to 1."""
        by = _assigning(config)
        require_clips([by], len(self))
        query = self._on_device(self._query(X))
        with self._batch.exact_products():
            return on_host(self._batch.examine(query, [], by).weights)[0].T

    def nearest(self, X: Clips) -> tuple[Indices, Float64s]:
        """Find the row of the most similar normal of each clip, (n,), and its distance, (n,)."""
        query = self._on_device(self._query(X))
        with self._batch.exact_products():
            return self._rows_of(self._batch.examine(query, [], with_nearest=True))

    def separability(self) -> float:
        """Compute how well domains can be told apart: 0.5 if two look alike, 1 if never mixed."""
        if len(self) < 2:
            raise NotEnoughClipsError("Separability needs 2 clips. The bank has 1.")
        with self._batch.exact_products():
            return float(self._batch.separability()[0])

    def _criterion(
        self,
        grid: Grid,
        n_splits: int,
        seed: Seed,
        sessions: Sequence[str],
        with_uniformity: bool = False,
    ) -> tuple[Balance, Float64s | None]:
        configs = parse_grid(grid)
        ordered = [sessions[row] for row in self._order] if len(sessions) else ()
        held, denominators = halves(configs, self.domains, self._starts, n_splits, seed, ordered)
        with self._batch.exact_products():
            counts, uniformity = self._batch.criterion(configs, held, with_uniformity)
            balance = Balance(on_host(counts)[:, 0], denominators)
            return balance, None if uniformity is None else on_host(uniformity)[:, 0]

    def _query(self, X: Clips) -> list[Floats]:
        """Unit rows of each view in the bank's precision, scaled in the wider of the two."""
        rows = self._views.rows(X)
        dtype = self._units[0].dtype
        rows = rows.astype(np.result_type(rows, dtype), copy=False)  # so that nothing overflows
        return [unit_rows(part).astype(dtype, copy=False) for part in self._views.split(rows)]

    def _on_device(self, views: Sequence[Floats]) -> list[Array]:
        return [rows if self.device == "cpu" else load([rows], self.device) for rows in views]

    def _rows_of(self, found: Examined) -> tuple[Indices, Float64s]:
        """Rows of the bank as it was given, and distances, of the nearest normals."""
        pair = (found.nearest, found.distance)
        index, distance = (on_host(values).reshape(-1) for values in pair)
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


def _assigning(config: str | ScoreConfig) -> ScoreConfig:
    config = ScoreConfig.parse(config)
    if config.assignment not in ("soft", "hard"):
        raise InputError(
            f"{config.name!r} assigns no domains. Use a 'soft' or 'hard' configuration."
        )
    return config
