"""DeviceBank: a NormalBank whose published configurations are computed on a torch device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import NotEnoughClipsError
from daco.method.bank import NormalBank
from daco.method.config import ScoreConfig, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance, Seed
from daco.method.distances import MEMORY_BUDGET
from daco.method.fleet.inputs import Domains, Grid, computes
from daco.method.fleet.machines import Array, Fleet
from daco.validation import as_embeddings, flat_bands

Work = Callable[[list[ScoreConfig]], NDArray[Any]]


class DeviceBank(NormalBank):
    """A bank that hands a `Fleet` of one machine what it can compute, and does the rest itself.

    Parameters
    ----------
    X, domains, bands, memory_budget :
        As of `NormalBank`.
    device : str
        A torch device with float64, such as ``"cuda"``.

    Examples
    --------
    >>> import daco, numpy as np
    >>> from daco.method.fleet import DeviceBank
    >>> X = np.random.default_rng(0).normal(size=(60, 8)) + 2
    >>> bank = DeviceBank(X, ["source"] * 50 + ["target"] * 10, device="cpu")
    >>> bank.score(X[:5], ["raw-k1", "varmin-K4"]).shape
    (5, 2)
    """

    def __init__(
        self,
        X: ArrayLike,
        domains: Domains | None = None,
        *,
        bands: int | None = None,
        memory_budget: int = MEMORY_BUDGET,
        device: str = "cuda",
    ) -> None:
        super().__init__(X, domains, bands=bands, memory_budget=memory_budget)
        self._fleet = Fleet([as_embeddings(flat_bands(X)[0])], [domains], device=device)

    def score(self, X: ArrayLike, grid: Grid, *, domains: Domains | None = None) -> Array:
        """As `NormalBank.score`."""
        rows = as_embeddings(flat_bands(X)[0], dim=self.dim)

        def here(configs: list[ScoreConfig]) -> Array:
            return super(DeviceBank, self).score(rows, configs, domains=domains)

        return _joined(grid, lambda configs: self._fleet.score([rows], configs)[0], here, axis=1)

    def leave_one_out(self, grid: Grid) -> Array:
        """As `NormalBank.leave_one_out`."""
        here = super().leave_one_out
        return _joined(grid, lambda configs: self._fleet.leave_one_out(configs)[0], here, axis=1)

    def exact_balance(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Balance:
        """As `NormalBank.exact_balance`."""
        seeds = [seed, copy.deepcopy(seed)]  # a generator draws the same splits for both
        found: list[Balance] = []

        def there(configs: list[ScoreConfig]) -> NDArray[np.int64]:
            found.extend(self._fleet.exact_balance(configs, n_splits, seeds.pop(0)))
            return found[-1].counts

        def here(configs: list[ScoreConfig]) -> NDArray[np.int64]:
            found.append(super(DeviceBank, self).exact_balance(configs, n_splits, seeds.pop(0)))
            return found[-1].counts

        counts = _joined(grid, there, here, axis=0)
        return Balance(counts, found[0].denominators)

    def uniformity(self, grid: Grid, n_splits: int = CHOICE_SPLITS, seed: Seed = 0) -> Array:
        """As `NormalBank.uniformity`."""
        seeds = [seed, copy.deepcopy(seed)]

        def there(configs: list[ScoreConfig]) -> Array:
            return self._fleet.uniformity(configs, n_splits, seeds.pop(0))[0]

        def here(configs: list[ScoreConfig]) -> Array:
            return super(DeviceBank, self).uniformity(configs, n_splits, seeds.pop(0))

        return _joined(grid, there, here, axis=0)

    def separability(self) -> float:
        """As `NormalBank.separability`."""
        if len(self) < 2:
            raise NotEnoughClipsError("Separability needs 2 clips. The bank has 1.")
        return float(self._fleet.separability()[0])


def _joined(grid: Grid, there: Work, here: Work, axis: int) -> NDArray[Any]:
    """Results of a grid in its order: of ``there`` what a fleet computes, of ``here`` the rest."""
    configs = parse_grid(grid)
    shared: dict[bool, list[int]] = {}
    for position, config in enumerate(configs):
        shared.setdefault(computes(config), []).append(position)
    results = [
        work([configs[position] for position in shared[on_device]])
        for on_device, work in ((True, there), (False, here))
        if on_device in shared
    ]
    places = np.argsort([*shared.get(True, []), *shared.get(False, [])])
    return np.take(np.concatenate(results, axis), places, axis)
