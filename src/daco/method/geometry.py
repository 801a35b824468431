"""Geometries of a bank: whole vectors, and one for every band of them.

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
from daco.method.neighbours import DenseMinima, NeighbourLists, dense_minima, query_minima
from daco.validation import Bools, Floats, Indices


class Look:
    """What one geometry of a bank says about new clips, the columns of ``distances``."""

    def __init__(self, distances: Floats) -> None:
        self.distances = distances

    def against(
        self,
        count: int,
        domain_starts: Indices,
        ratio_density: Floats,
        difference_density: Floats,
        with_domains: bool,
    ) -> tuple[Floats, DenseMinima]:
        """Distances of each clip to its ``count`` nearest, (n, count), and its smallest values."""
        nearest = np.empty((self.distances.shape[1], 0), self.distances.dtype)
        if count:
            by_clip = self.distances.T.copy()  # partitioned in place, so never a view
            by_clip.partition(count - 1, axis=1)
            nearest = np.sort(by_clip[:, :count], axis=1)
        return nearest, query_minima(
            self.distances, domain_starts, ratio_density, difference_density, with_domains
        )


class View:
    """Unit rows of one geometry, their distances and neighbour lists, each made when needed."""

    def __init__(self, unit: Floats, memory_budget: int) -> None:
        self.unit = unit
        self._memory_budget = memory_budget
        self._expected = 1
        self._lists: NeighbourLists | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Distances are computed again where they are needed; scoring does not need them.
        return {name: value for name, value in self.__dict__.items() if name != "distances"}

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def distances(self) -> PairwiseDistances:
        """All distances between the clips of the bank."""
        return PairwiseDistances(self.unit, self._memory_budget)

    def expect(self, reach: int) -> None:
        """So many neighbours will be asked for: lists made before that are made for them."""
        self._expected = max(self._expected, reach)

    def lists(self, reach: int) -> NeighbourLists:
        """Neighbour lists that serve ``reach`` neighbours of any half of the bank."""
        if self._lists is None or self._lists.reach < reach:
            self._lists = NeighbourLists(self.distances, max(reach, self._expected))
        return self._lists

    def minima(
        self,
        members: Bools,
        domain_starts: Indices,
        ratio_density: Floats,
        difference_density: Floats,
        with_domains: bool,
    ) -> DenseMinima:
        """The smallest values of every clip of the bank, each left out; see `dense_minima`."""
        return dense_minima(
            self.distances, members, domain_starts, ratio_density, difference_density, with_domains
        )

    def look(self, rows: Floats) -> Look:
        """New clips, unit rows."""
        return Look(cosine_distances(self.unit, rows))


class Views:
    """The views of one bank; ``bands`` of 1 means that the one band is the whole vector."""

    def __init__(self, unit: Floats, bands: int, memory_budget: int) -> None:
        self.bands = bands
        # All views share the budget: a bank of 8 bands has 9 distance matrices.
        self._budget = memory_budget // (bands + 1 if bands > 1 else 1)
        self.whole = View(unit, self._budget)

    @cached_property
    def by_band(self) -> Sequence[View]:
        """One view per band."""
        if self.bands == 1:
            return [self.whole]
        return [View(rows, self._budget) for rows in band_rows(self.whole.unit, self.bands)]

    def together(self) -> None:
        """Bands and whole vectors will both be asked for: their products are the same."""
        unit = self.whole.unit
        begun = any("distances" in view.__dict__ for view in (self.whole, *self.by_band))
        if self.bands == 1 or begun or not fits(len(unit), unit.dtype, self._budget):
            return
        lengths = band_lengths(unit, self.bands)
        if lengths.min() > _faint(unit):
            bands, whole = distances_of_bands(unit, lengths)
            self.whole.distances = PairwiseDistances(unit, self._budget, whole)
            for view, kept in zip(self.by_band, bands, strict=True):
                view.distances = PairwiseDistances(view.unit, self._budget, kept)

    def of(self, bandwise: bool) -> Sequence[View]:
        """The views that a base score is averaged over."""
        return self.by_band if bandwise else [self.whole]

    def rows_of(self, unit: Floats, bandwise: bool) -> Sequence[Floats]:
        """New clips, unit rows, as seen by the same views."""
        return band_rows(unit, self.bands) if bandwise and self.bands > 1 else [unit]


def band_rows(unit: Floats, bands: int) -> list[Floats]:
    """Each band of unit rows, scaled to length 1 by itself; a band of zeros stays zero."""
    parts, lengths = unit.reshape(len(unit), bands, -1), band_lengths(unit, bands)
    return [
        parts[:, band] / length[:, None]
        if length.min() > _faint(unit)
        else unit_rows(parts[:, band])
        for band, length in enumerate(lengths)
    ]


def band_lengths(unit: Floats, bands: int) -> Floats:
    """Length of each band of unit rows, (bands, N)."""
    parts = unit.reshape(len(unit), bands, -1)
    with np.errstate(under="ignore"):
        return np.sqrt(np.einsum("nbd,nbd->bn", parts, parts))


def _faint(unit: Floats) -> float:
    """Squares of a shorter band leave the float range."""
    return float(1e4 * np.sqrt(np.finfo(unit.dtype).tiny))
