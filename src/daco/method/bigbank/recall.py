"""What an approximate index misses, and what that does to scores: measured, not promised."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError
from daco.method.bigbank.approximate import ApproximateSearch
from daco.method.bigbank.flat import FlatSearch
from daco.method.config import ScoreConfig
from daco.method.criterion import Seed
from daco.method.distances import _NOISE_ULPS, cosine_distances
from daco.method.neighbours import NearestSoFar
from daco.validation import Floats

if TYPE_CHECKING:
    from daco.method.bigbank.bank import IndexedBank

_ROWS_AT_ONCE, _COLUMNS_AT_ONCE = 1024, 4096


@dataclass(frozen=True)
class Recall:
    """What an index finds of the truth.

    Attributes
    ----------
    clips : int
        That were searched.
    found : {k: share}
        Of the k nearest clips of the bank, how many were found.
    excess : {k: share}
        How much larger the mean distance to the k nearest is by what was missed: what ``raw-k``
        scores are off by.
    changes : {configuration: (n,) float}
        Score through the index less the exact one, for each new clip; empty where none was given.
    """

    clips: int
    found: Mapping[int, float]
    excess: Mapping[int, float]
    changes: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{share:.1%} of the {k} nearest of {self.clips} clips found; their mean distance is "
            f"{self.excess[k]:.2%} too large"
            for k, share in self.found.items()
        ]
        for name, change in self.changes.items():
            middle, most, all_of_them = np.quantile(np.abs(change), [0.5, 0.99, 1])
            lines.append(
                f"{name}: half of the scores change by at most {middle:.1g}, 99% by {most:.1g}, "
                f"all by {all_of_them:.1g}"
            )
        return "\n".join(lines)


def measured_recall(
    bank: IndexedBank,
    configs: list[ScoreConfig],
    query: Floats | None,
    n: int,
    seed: Seed,
) -> Recall:
    """Recall of a bank's index on new clips, unit rows, or on some of its own, each left out."""
    unit, search = bank._unit, bank._view.query
    own = None
    if query is None:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"The 'n' of recall must be an int >= 1. Got {n!r} instead.")
        drawn = np.random.default_rng(seed).permutation(len(unit))[:n]
        own = np.sort(drawn)
        rows = unit[own]
    else:
        rows = query
    orders = sorted({part.neighbours or 1 for config in configs for part in config.base.parts()})
    changes = {}
    if query is not None:
        through, exact = (each.score(query, configs) for each in (bank, _exact(bank)))
        changes = {c.name: through[:, i] - exact[:, i] for i, c in enumerate(configs)}
    if not isinstance(search, ApproximateSearch):
        ones, zeros = dict.fromkeys(orders, 1.0), dict.fromkeys(orders, 0.0)
        return Recall(len(rows), ones, zeros, changes)
    near, true = (np.empty((len(rows), max(orders)), unit.dtype) for _ in range(2))
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        left_out = None if own is None else own[part]
        found_there = search.candidates(rows[part], max(orders), left_out)[0]
        near[part] = np.sort(found_there, axis=1)[:, : max(orders)]
        true[part] = _nearest(unit, rows[part], max(orders), left_out)
    noise = _NOISE_ULPS * np.finfo(unit.dtype).eps  # two products of the same rows round apart
    found, excess = {}, {}
    for k in orders:
        reach = true[:, k - 1 : k] + noise
        found[k] = float((near[:, :k] <= reach).mean())
        wanted, got = (float(each[:, :k].mean(dtype=np.float64)) for each in (true, near))
        # Copies are at no distance: nothing is too large there.
        excess[k] = 0.0 if got == wanted else got / max(wanted, 1e-300) - 1
    return Recall(len(rows), found, excess, changes)


def _exact(bank: IndexedBank) -> IndexedBank:
    """The same bank with the same calibration; new clips are compared with all of it."""
    twin = copy.copy(bank)
    twin._views, twin._view = copy.copy(bank._views), copy.copy(bank._view)
    twin._views.__dict__.pop("by_band", None)
    twin._views.whole = twin._view
    twin._view.query = FlatSearch(bank._unit, bank._starts)
    return twin


def _nearest(unit: Floats, rows: Floats, count: int, own: NDArray[np.intp] | None) -> Floats:
    """Distances of rows to their nearest, by comparing all."""
    found = NearestSoFar(len(rows), count, unit.dtype)
    for start in range(0, len(unit), _COLUMNS_AT_ONCE):
        block = cosine_distances(rows, unit[start : start + _COLUMNS_AT_ONCE])
        if own is not None:
            inside = np.flatnonzero((own >= start) & (own < start + block.shape[1]))
            block[inside, own[inside] - start] = np.inf
        found.see(slice(0, len(rows)), block, start)
    return found.distance
