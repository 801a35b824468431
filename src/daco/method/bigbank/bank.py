"""IndexedBank: a NormalBank of very many clips, whose neighbours are searched."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import ConfigError
from daco.method.bank import Domains, Grid, NormalBank
from daco.method.bigbank.options import Flat, Index, parse_index
from daco.method.bigbank.recall import Recall, measured_recall
from daco.method.bigbank.view import IndexedView
from daco.method.config import ScoreConfig, parse_grid
from daco.method.criterion import Seed
from daco.method.distances import MEMORY_BUDGET
from daco.method.scorers import required

_CLIPS_AT_ONCE = 1024
_UNSERVED = ("pca", "memmix", "genrep-mix")


class IndexedBank(NormalBank):
    """A bank of up to millions of clips, in memory that grows with their number alone.

    One search for each clip gives its nearest others in every domain; scores, weights,
    calibrations and the criterion are made of these lists. With ``index="flat"`` all of it is
    what `NormalBank` computes. What an approximate index finds may also depend on how many
    neighbours were asked for before.

    Parameters
    ----------
    X, domains, bands, memory_budget :
        As of `NormalBank`. A float32 memory map is read block by block; the bank keeps one
        normalised copy of it.
    index : str or Flat, IVF, HNSW
        ``"flat"`` compares every clip, exactly. ``"ivf"`` and ``"hnsw"``, or their options,
        compare a part of them; `recall` says what that costs.
    device : str
        ``"cpu"``, or a torch device such as ``"cuda"``: there the bank's own clips are compared
        with each other, exactly, whatever the index; with ``"flat"`` new clips are, too.

    Examples
    --------
    >>> import daco, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(600, 8)) + 2
    >>> bank = daco.NormalBank(X, ["source"] * 500 + ["target"] * 100, index="flat")
    >>> bank
    IndexedBank(600 clips: 500 source, 100 target; 8-d float64, index Flat())
    >>> bank.score(X[:5], ["raw-k1", "conf-soft-m0-k1"]).shape
    (5, 2)
    """

    def __init__(
        self,
        X: ArrayLike,
        domains: Domains | None = None,
        *,
        bands: int | None = None,
        memory_budget: int = MEMORY_BUDGET,
        index: str | Index = "flat",
        device: str = "cpu",
    ) -> None:
        self.index = parse_index(index)
        super().__init__(X, domains, bands=bands, memory_budget=memory_budget)
        kept = memory_budget if isinstance(self.index, Flat) and device == "cpu" else 0
        self._view = IndexedView(self._unit, kept, self._starts, self.index, device)
        self._views.whole = self._view

    def __repr__(self) -> str:
        described = super().__repr__().replace("NormalBank", "IndexedBank")
        return f"{described[:-1]}, index {self.index})"

    def nearest(self, X: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """As of `NormalBank`: of equally near clips any one."""
        query = self._query(X)
        index, distance = np.empty(len(query), np.intp), np.empty(len(query))
        for rows in self._query_blocks(len(query)):
            found, distance[rows] = self._view.query.nearest(query[rows])
            index[rows] = self._order[found]
        return index, distance

    def recall(
        self, grid: Grid = "raw-k1", X: ArrayLike | None = None, n: int = 1000, seed: Seed = 0
    ) -> Recall:
        """How much of the truth the index finds, measured on some clips.

        Parameters
        ----------
        grid : configurations
            Whose scores are compared.
        X : (n, D), optional
            New clips. By default `n` clips of the bank, drawn at random, each left out.
        """
        configs = parse_grid(grid)
        self._require_clips(configs, spare=1)
        query = None if X is None else self._query(X)
        return measured_recall(self, configs, query, n, seed)

    def _query_blocks(self, n: int) -> Iterator[slice]:
        for start in range(0, n, _CLIPS_AT_ONCE):
            yield slice(start, min(start + _CLIPS_AT_ONCE, n))

    def _require_clips(
        self, configs: list[ScoreConfig], spare: int = 0, n_bank: int | None = None
    ) -> None:
        for config in configs:
            for base in required([config.base])[0]:
                if base.scorer in _UNSERVED or (base.bandwise and self.bands > 1):
                    raise ConfigError(
                        f"An index does not serve {config.name!r}: it finds neighbours of whole "
                        "vectors, and this score needs more. Leave 'index' out and take a part "
                        "of the clips."
                    )
        super()._require_clips(configs, spare, n_bank)
