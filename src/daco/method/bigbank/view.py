"""A view whose neighbours are searched."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from daco.errors import MissingExtraError
from daco.method.bigbank.approximate import ApproximateSearch
from daco.method.bigbank.flat import FlatSearch
from daco.method.bigbank.lists import DomainLists, Starts
from daco.method.bigbank.options import Flat, Index
from daco.method.distances import PairwiseDistances
from daco.method.geometry import Look, View
from daco.method.neighbours import DenseMinima, NearestSoFar, list_length
from daco.validation import Bools, Floats


class Search(Protocol):
    """What finds neighbours: of the bank's own clips, and of new ones."""

    def by_domain(self, distances: PairwiseDistances, length: int) -> list[NearestSoFar]:
        """The nearest other clips of every clip, in each domain."""

    def minima(
        self,
        distances: PairwiseDistances,
        lists: DomainLists,
        members: Bools,
        ratio_density: Floats,
        difference_density: Floats,
    ) -> tuple[Floats, Floats]:
        """The smallest distance of every clip over, and less, the density of a member."""

    def against(
        self, rows: Floats, count: int, over: Floats, less: Floats, with_domains: bool
    ) -> tuple[Floats, DenseMinima]:
        """New clips, unit rows: their nearest, and their smallest values; see `Look`."""

    def nearest(self, rows: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The nearest clip of each row, and its distance."""


class IndexedView(View):
    """Unit rows, their neighbours searched within the bank and for new clips."""

    def __init__(
        self, unit: Floats, memory_budget: int, domain_starts: Starts, index: Index, device: str
    ) -> None:
        super().__init__(unit, memory_budget)
        self._starts = domain_starts
        self.query: Search = FlatSearch(unit, domain_starts)
        self.within: Search = self.query
        if device != "cpu":  # before an index is built: that may take minutes
            try:
                from daco.method.bigbank.ondevice import DeviceSearch
            except ModuleNotFoundError:
                raise MissingExtraError(
                    f'device={device!r} needs PyTorch: pip install "daco-asd[torch]".'
                ) from None
            self.query = self.within = DeviceSearch(unit, domain_starts, device)
        if not isinstance(index, Flat):
            self.query = ApproximateSearch(unit, domain_starts, index)
            self.within = self.query if device == "cpu" else self.within

    def lists(self, reach: int) -> DomainLists:
        """As of `View`, by domain."""
        if not isinstance(self._lists, DomainLists) or self._lists.reach < reach:
            reach = max(reach, self._expected)
            length = min(len(self) - 1, list_length(reach))
            found = self.within.by_domain(self.distances, length)
            self._lists = DomainLists(found, length, reach, self._starts)
        return self._lists

    def minima(
        self,
        members: Bools,
        domain_starts: Starts,
        ratio_density: Floats,
        difference_density: Floats,
        with_domains: bool,
    ) -> DenseMinima:
        """As of `View`; the nearest of each domain come from the lists."""
        lists = self.lists(1)
        domain = np.empty((len(members), 0, len(self)), self.unit.dtype)
        if with_domains:
            domain = lists.domain_minima(self.distances, members)
        ratio = np.empty(ratio_density.shape, self.unit.dtype)
        difference = np.empty(difference_density.shape, self.unit.dtype)
        if ratio.size or difference.size:
            ratio, difference = self.within.minima(
                self.distances, lists, members, ratio_density, difference_density
            )
        return DenseMinima(domain, ratio, difference)

    def look(self, rows: Floats) -> Look:
        """As of `View`."""
        return SearchedLook(self.query, rows)


class SearchedLook(Look):
    """New clips, and who searches the bank for them."""

    def __init__(self, search: Search, rows: Floats) -> None:
        self._search, self._rows = search, rows

    def against(
        self,
        count: int,
        domain_starts: Starts,
        ratio_density: Floats,
        difference_density: Floats,
        with_domains: bool,
    ) -> tuple[Floats, DenseMinima]:
        """As of `Look`; a search knows the domains of its bank."""
        return self._search.against(
            self._rows, count, ratio_density, difference_density, with_domains
        )
