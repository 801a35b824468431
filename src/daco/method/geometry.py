"""Spaces of a bank: whole vectors, and one for every band of them.

The cosine of two band-preserving vectors weighs their bands by energy; BEAM and its relatives
look at every band by itself. Both are the same work on other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from daco.method.distances import (
    PairwiseDistances,
    cosine_distances,
    distances_of_bands,
    fits,
    unit_rows,
)
from daco.method.kernels import Array, kernels
from daco.method.neighbours import NeighbourLists


class Space:
    """Unit rows of one geometry, their distances and neighbour lists, each made when needed."""

    def __init__(self, unit: Array, memory_budget: int) -> None:
        self.unit = unit
        self._memory_budget = memory_budget
        self._expected = 1
        self._lists: NeighbourLists | None = None
        self.densities: dict[Any, Any] = {}
        """Of the normals, by the base scores that were asked for."""

    def __getstate__(self) -> dict[str, Any]:
        # Distances are computed again where they are needed; scoring does not need them.
        return {name: value for name, value in self.__dict__.items() if name != "distances"}

    def __len__(self) -> int:
        return int(self.unit.shape[-2])

    @cached_property
    def distances(self) -> PairwiseDistances:
        """All distances between the clips of the bank."""
        return PairwiseDistances(self.unit, self._memory_budget)

    def distances_to(self, rows: Array) -> Array:
        """Distances of the bank's clips to new ones, (..., N, n)."""
        return cosine_distances(self.unit, rows)

    def expect(self, reach: int) -> None:
        """Announce how many neighbours will be needed, so that lists are made once."""
        self._expected = max(self._expected, reach)

    def lists(self, reach: int) -> NeighbourLists:
        """Neighbour lists that serve ``reach`` neighbours of any half of the bank."""
        if self._lists is None or self._lists.reach < reach:
            self._lists = NeighbourLists(self.distances, max(reach, self._expected))
        return self._lists


class Spaces:
    """The spaces of one bank; ``bands`` of 1 means that the one band is the whole vector."""

    def __init__(self, unit: Array, bands: int, memory_budget: int) -> None:
        self.bands = bands
        # All spaces share the budget: a bank of 8 bands has 9 distance matrices.
        self._budget = memory_budget // (bands + 1 if bands > 1 else 1)
        self.whole = Space(unit, self._budget)

    @cached_property
    def by_band(self) -> Sequence[Space]:
        """One space per band."""
        if self.bands == 1:
            return [self.whole]
        return [Space(rows, self._budget) for rows in band_rows(self.whole.unit, self.bands)]

    def together(self) -> None:
        """Announce that bands and whole vectors are both needed: they share products."""
        unit = self.whole.unit
        begun = any("distances" in space.__dict__ for space in (self.whole, *self.by_band))
        if self.bands == 1 or begun or not fits(unit, self._budget):
            return
        lengths = band_lengths(unit, self.bands)
        if lengths.min() > _faint(unit):
            bands, whole = distances_of_bands(unit, lengths)
            self.whole.distances = PairwiseDistances(unit, self._budget, whole)
            for space, kept in zip(self.by_band, bands, strict=True):
                space.distances = PairwiseDistances(space.unit, self._budget, kept)

    def of(self, bandwise: bool) -> Sequence[Space]:
        """The spaces that a base score is averaged over."""
        return self.by_band if bandwise else [self.whole]

    def rows_of(self, unit: Array, bandwise: bool) -> Sequence[Array]:
        """New clips, unit rows, as seen by the same spaces."""
        return band_rows(unit, self.bands) if bandwise and self.bands > 1 else [unit]


def band_rows(unit: Array, bands: int) -> list[Array]:
    """Each band of unit rows, scaled to length 1 by itself; a band of zeros stays zero."""
    parts, lengths = unit.reshape(*unit.shape[:-1], bands, -1), band_lengths(unit, bands)
    return [
        parts[..., band, :] / lengths[..., band, None]
        if lengths[..., band].min() > _faint(unit)
        else unit_rows(parts[..., band, :])
        for band in range(bands)
    ]


def band_lengths(unit: Array, bands: int) -> Array:
    """Length of each band of unit rows, (..., N, bands)."""
    parts = unit.reshape(*unit.shape[:-1], bands, -1)
    with np.errstate(under="ignore"):
        return kernels(unit).xp.einsum("...d,...d->...", parts, parts) ** 0.5


def _faint(unit: Array) -> float:
    """Squares of a shorter band leave the float range."""
    return float(1e4 * np.sqrt(kernels(unit).xp.finfo(unit.dtype).tiny))
