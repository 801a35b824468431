"""Exact search on a torch device: products of tiles there, of which the smallest values return."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daco.compute.device import full_precision, torch_device
from daco.method.bigbank.lists import DomainLists, Starts, lengths_of
from daco.method.distances import _NOISE_ULPS, PairwiseDistances
from daco.method.neighbours import DenseMinima, NearestSoFar
from daco.validation import Bools, Floats

_ROWS, _COLUMNS = 4096, 65_536  # of a tile: 1 GiB in float32
_CHUNK = 64


class DeviceSearch:
    """A bank's unit rows on a device; every clip is compared there."""

    def __init__(self, unit: Floats, domain_starts: Starts, device: str) -> None:
        self._host, self._starts = unit, domain_starts
        self._device = torch_device(device)
        self._there: Tensor | None = None
        # Mutual neighbours have equal distances only if both directions round alike: all tiles
        # have one shape, so that one kernel multiplies them.
        self._columns = min(_COLUMNS, -(-len(unit) // _ROWS) * _ROWS)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_there": None}

    @property
    def _unit(self) -> Tensor:
        if self._there is None:
            self._there = self._filled(torch.from_numpy(self._host).to(self._device))
        return self._there

    def _filled(self, rows: Tensor) -> Tensor:
        """Rows of zeros added, up to a whole number of tiles."""
        missing = -len(rows) % self._columns
        return torch.nn.functional.pad(rows, (0, 0, 0, missing)) if missing else rows

    def by_domain(self, distances: PairwiseDistances, length: int) -> list[NearestSoFar]:
        """The nearest other clips of every clip, in each domain."""
        n, dtype = len(self._host), self._host.dtype
        lengths = lengths_of(length, self._starts)
        found = [NearestSoFar(n, each, dtype) for each in lengths]
        with full_precision(self._device):
            for rows in _slices(n, _ROWS):
                own = torch.arange(rows.start, rows.start + _ROWS, device=self._device)
                there = self._nearest(self._unit[own], self._starts, lengths, own)
                for nearest, (near, where) in zip(found, there, strict=True):
                    nearest.distance[rows] = near.cpu().numpy()[: rows.stop - rows.start]
                    nearest.index[rows] = where.cpu().numpy()[: rows.stop - rows.start]
        return found

    def minima(
        self,
        distances: PairwiseDistances,
        lists: DomainLists,
        members: Bools,
        ratio_density: Floats,
        difference_density: Floats,
    ) -> tuple[Floats, Floats]:
        """The smallest distance over, and less, the density of a member: (S, R, N), (S, F, N)."""
        ratio, difference = np.empty_like(ratio_density), np.empty_like(difference_density)
        n = len(self._host)
        with full_precision(self._device):
            for s, member in enumerate(members):
                inside = np.flatnonzero(member)
                whole = len(inside) == n
                bank = self._unit if whole else self._filled(self._unit[self._sent(inside)])
                place = np.full(len(self._unit), -1)
                place[inside] = np.arange(len(inside))
                over = self._sent(np.ascontiguousarray(ratio_density[s][:, inside]))
                less = self._sent(np.ascontiguousarray(difference_density[s][:, inside]))
                where = self._sent(place)
                for rows in _slices(n, _ROWS):
                    tile = slice(rows.start, rows.start + _ROWS)
                    found = self._minima(self._unit[tile], bank, over, less, where[tile])
                    for into, each in zip((ratio, difference), found, strict=True):
                        into[s, :, rows] = each.cpu().numpy()[:, : rows.stop - rows.start]
        return ratio, difference

    def nearest(self, rows: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The nearest clip of each row, and its distance."""
        with full_precision(self._device):
            everyone = np.array([0, len(self._host)])
            near, where = self._nearest(self._sent(rows), everyone, [1])[0]
        return where[:, 0].cpu().numpy().astype(np.intp), near[:, 0].cpu().numpy()

    def against(
        self, rows: Floats, count: int, over: Floats, less: Floats, with_domains: bool
    ) -> tuple[Floats, DenseMinima]:
        """New clips, unit rows: their nearest, and their smallest values; see `Look`."""
        with full_precision(self._device):
            query, unit = self._sent(rows), self._unit
            lengths = lengths_of(max(count, 1), self._starts)
            near = [query.new_empty(len(query), 0)]
            if count or with_domains:
                near = [each for each, _ in self._nearest(query, self._starts, lengths)]
            nearest = torch.cat(near, 1).sort(1).values[:, :count]
            domain = torch.stack([each[:, 0] for each in near]) if with_domains else query[:0, :0]
            nowhere = torch.full((len(query),), -1, device=self._device)
            ratio, difference = self._minima(
                query, unit, self._sent(over[0]), self._sent(less[0]), nowhere
            )
        n_domains = len(self._starts) - 1 if with_domains else 0
        return nearest.cpu().numpy(), DenseMinima(
            domain.cpu().numpy().reshape(1, n_domains, len(rows)),
            ratio.cpu().numpy()[None],
            difference.cpu().numpy()[None],
        )

    def _nearest(
        self, rows: Tensor, starts: Starts, counts: list[int], own: Tensor | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """For each part of the bank distances and numbers of the nearest clips, ascending."""
        none = torch.empty(len(rows), 0, dtype=torch.int64, device=self._device)
        found = [(rows.new_empty(len(rows), 0), none) for _ in counts]
        for tile in _slices(len(self._host), self._columns):
            cosines = rows @ self._unit[tile.start : tile.start + self._columns].T
            if own is not None:
                _leave_out(cosines, own - tile.start, -torch.inf)
            for g, (count, (a, b)) in enumerate(zip(counts, pairwise(starts), strict=True)):
                part = cosines[:, max(0, a - tile.start) : max(0, b - tile.start)]
                if part.shape[1]:
                    new, numbers = _largest(part, count)
                    best = torch.cat([found[g][0], new], 1)
                    where = torch.cat([found[g][1], numbers + max(int(a), tile.start)], 1)
                    order = best.argsort(dim=1, descending=True, stable=True)[:, :count]
                    found[g] = best.gather(1, order), where.gather(1, order)
        return [(_distances(best), where) for best, where in found]

    def _minima(
        self, rows: Tensor, bank: Tensor, over: Tensor, less: Tensor, place: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(R, n), (F, n): smallest distances corrected by densities; ``place`` is left out."""
        ratio = rows.new_full((len(over), len(rows)), torch.inf)
        difference = rows.new_full((len(less), len(rows)), torch.inf)
        if not len(over) and not len(less):
            return ratio, difference
        n = max(over.shape[1], less.shape[1])
        for columns in _slices(n, self._columns):
            tile = rows @ bank[columns.start : columns.start + self._columns].T
            distance = _distances(tile[:, : columns.stop - columns.start])
            _leave_out(distance, place - columns.start, torch.inf)
            for into, density in zip(ratio, over[:, columns], strict=True):
                torch.minimum(into, (distance / density).amin(1), out=into)
            for into, density in zip(difference, less[:, columns], strict=True):
                torch.minimum(into, (distance - density).amin(1), out=into)
        return ratio, difference

    def _sent(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def _slices(n: int, step: int) -> Iterator[slice]:
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def _largest(block: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest values of each row, in descending order, and their columns.

    They stand in the chunks with the largest maxima: most of a long row is read only once.
    """
    chunks = block.shape[1] // _CHUNK
    if chunks <= 2 * count:
        found = block.topk(min(count, block.shape[1]), dim=1, sorted=True)
        return found.values, found.indices
    whole = block[:, : chunks * _CHUNK].reshape(len(block), chunks, _CHUNK)  # a view
    best = whole.amax(2).topk(count, dim=1).indices[..., None]
    inside = whole.gather(1, best.expand(-1, -1, _CHUNK)).flatten(1)
    within = torch.arange(_CHUNK, device=block.device)
    rest = torch.arange(chunks * _CHUNK, block.shape[1], device=block.device)
    columns = torch.cat([(best * _CHUNK + within).flatten(1), rest.expand(len(block), -1)], 1)
    found = torch.cat([inside, block[:, chunks * _CHUNK :]], 1).topk(count, dim=1, sorted=True)
    return found.values, columns.gather(1, found.indices)


def _distances(cosines: Tensor) -> Tensor:
    """1 - cos in place, noise being 0; what was left out, at minus infinity, is at infinity."""
    cosines.neg_().add_(1)
    return cosines.masked_fill_(cosines < _NOISE_ULPS * torch.finfo(cosines.dtype).eps, 0)


def _leave_out(block: Tensor, columns: Tensor, value: float) -> None:
    """Set one element of each row, where its column is inside."""
    inside = ((columns >= 0) & (columns < block.shape[1])).nonzero()[:, 0]
    block[inside, columns[inside]] = value
