"""Approximate search with FAISS: most of the nearest clips, in a part of the time.

Each domain has an index of its own. What an index finds is compared again in the bank's own
precision, so that an approximate neighbour is farther than the true one, never nearer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.method.bigbank.lists import DomainLists, Starts, lengths_of
from daco.method.bigbank.options import HNSW, IVF, require_faiss
from daco.method.distances import PairwiseDistances, cosine_distances, distances_of_cosines
from daco.method.neighbours import DenseMinima, NearestSoFar
from daco.validation import Bools, Floats

SPARSEST = 1024
"""Clips of the lowest density that every clip is compared with where densities correct scores:
the smallest corrected distance may well be to one of them, however far it is."""

_GATHERED_BYTES = 64 * 2**20
_COMPARED = 2**23
_ROWS_AT_ONCE = 16_384
_POINTS_PER_CELL = 64
_ROUNDS = 10
_SEED = 1234


class ApproximateSearch:
    """One FAISS index per domain, built when the bank is; small domains are compared whole."""

    def __init__(self, unit: Floats, domain_starts: Starts, options: IVF | HNSW) -> None:
        require_faiss()
        self.unit, self._starts, self._options = unit, domain_starts, options
        least = max(options.exact_below, 2 * _POINTS_PER_CELL)
        self._indexes = [
            _built(unit[a:b], options) if b - a >= least else None
            for a, b in pairwise(self._starts)
        ]

    def by_domain(self, distances: PairwiseDistances, length: int) -> list[NearestSoFar]:
        """The nearest other clips of every clip that were found, in each domain."""
        n = len(self.unit)
        lengths = lengths_of(length, self._starts)
        found = [NearestSoFar(n, each, self.unit.dtype) for each in lengths]
        for start in range(0, n, _ROWS_AT_ONCE):
            own = np.arange(start, min(start + _ROWS_AT_ONCE, n))
            for g, nearest in enumerate(found):
                near, where = self._search(self.unit[own], g, lengths[g], own)
                nearest.distance[own], nearest.index[own] = near, where
        return found

    def minima(
        self,
        distances: PairwiseDistances,
        lists: DomainLists,
        members: Bools,
        ratio_density: Floats,
        difference_density: Floats,
    ) -> tuple[Floats, Floats]:
        """The smallest corrected distance among a clip's lists and the sparsest clips."""
        n = len(self.unit)
        ratio = np.full(ratio_density.shape, np.inf, self.unit.dtype)
        difference = np.full(difference_density.shape, np.inf, self.unit.dtype)
        sparse = _sparsest(ratio_density, difference_density, members)
        step = min(_ROWS_AT_ONCE, max(1, _COMPARED // len(sparse)))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            near = [domain.distance[rows] for domain in lists.by_domain]
            where = [domain.index[rows] for domain in lists.by_domain]
            away = cosine_distances(self.unit[rows], self.unit[sparse])
            away[np.arange(start, rows.stop)[:, None] == sparse] = np.inf
            corrected = _Corrected(
                self,
                self.unit[rows],
                np.concatenate(near, 1),
                np.concatenate(where, 1),
                away,
                sparse,
            )
            for s, member in enumerate(members):
                corrected.lower(ratio[s, :, rows], ratio_density[s], member, np.divide)
                corrected.lower(difference[s, :, rows], difference_density[s], member, np.subtract)
        return ratio, difference

    def against(
        self, rows: Floats, count: int, over: Floats, less: Floats, with_domains: bool
    ) -> tuple[Floats, DenseMinima]:
        """New clips, unit rows: their nearest, and their smallest values; see `Look`."""
        near, where = self.candidates(rows, count)
        nearest = np.sort(near, axis=1)[:, :count]
        domain = np.empty((1, 0, len(near)), near.dtype)
        if with_domains:
            first = np.cumsum([0, *self.widths(count)[:-1]])
            domain = np.ascontiguousarray(near[:, first].T)[None]
        ratio = np.full((1, over.shape[1], len(near)), np.inf, near.dtype)
        difference = np.full((1, less.shape[1], len(near)), np.inf, near.dtype)
        if ratio.size or difference.size:
            everyone = np.ones(len(self.unit), np.bool_)
            sparse = _sparsest(over, less, everyone[None])
            away = cosine_distances(rows, self.unit[sparse])
            corrected = _Corrected(self, rows, near, where, away, sparse)
            corrected.lower(ratio[0], over[0], everyone, np.divide)
            corrected.lower(difference[0], less[0], everyone, np.subtract)
        return nearest, DenseMinima(domain, ratio, difference)

    def nearest(self, rows: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The nearest clip of each row that was found, and its distance."""
        near, where = self.candidates(rows, 1)
        first = near.argmin(axis=1)[:, None]
        index = np.take_along_axis(where, first, axis=1)[:, 0]
        return index.astype(np.intp), np.take_along_axis(near, first, axis=1)[:, 0]

    def candidates(
        self, rows: Floats, count: int, own: NDArray[np.intp] | None = None
    ) -> tuple[Floats, NDArray[np.int32]]:
        """The nearest clips that were found of each domain, side by side, (n, M) each.

        Rows that are clips of the bank, numbers ``own``, are not their own neighbours.
        """
        widths = enumerate(self.widths(count))
        found = [self._search(rows, g, width, own) for g, width in widths]
        return (
            np.concatenate([near for near, _ in found], axis=1),
            np.concatenate([where for _, where in found], axis=1),
        )

    def widths(self, count: int) -> list[int]:
        """How many candidates there are of each domain where ``count`` are wanted."""
        return lengths_of(max(count, self._options.candidates), self._starts)

    def _search(
        self, rows: Floats, domain: int, count: int, own: NDArray[np.intp] | None = None
    ) -> tuple[Floats, NDArray[np.int32]]:
        """The ``count`` nearest clips of a domain in ascending order; ``own`` are left out."""
        start, stop = (int(edge) for edge in self._starts[domain : domain + 2])
        index = self._indexes[domain]
        if index is None:
            return self._all_of(rows, slice(start, stop), count, own)
        wanted = min(max(count + 1, self._options.candidates), stop - start)
        where = index.search(np.ascontiguousarray(rows, np.float32), wanted)[1]
        near = self.compared(rows, np.where(where < 0, 0, where) + start)
        near[where < 0] = np.inf
        where += start
        if own is not None:
            near[where == own[:, None]] = np.inf
        order = np.argsort(near, axis=1, kind="stable")[:, :count]
        near = np.take_along_axis(near, order, axis=1)
        numbers = np.take_along_axis(where, order, axis=1).astype(np.int32)
        # Lists are full: a clip whose part of the bank holds too few is compared with all of it.
        left_out = 0 if own is None else (own >= start) & (own < stop)
        least = np.minimum(count, stop - start - left_out)
        few = np.flatnonzero(np.isinf(near[np.arange(len(near)), least - 1]))
        if few.size:
            alone = None if own is None else own[few]
            near[few], numbers[few] = self._all_of(rows[few], slice(start, stop), count, alone)
        return near, numbers

    def _all_of(
        self, rows: Floats, domain: slice, count: int, own: NDArray[np.intp] | None
    ) -> tuple[Floats, NDArray[np.int32]]:
        nearest = NearestSoFar(len(rows), count, self.unit.dtype)
        step = max(1, _COMPARED // (domain.stop - domain.start))
        for first in range(0, len(rows), step):
            part = slice(first, min(first + step, len(rows)))
            block = cosine_distances(rows[part], self.unit[domain])
            if own is not None:
                here = own[part] - domain.start
                inside = np.flatnonzero((here >= 0) & (here < block.shape[1]))
                block[inside, here[inside]] = np.inf
            nearest.see(part, block, domain.start)
        real = nearest.distance < np.inf
        again = self.compared(rows, nearest.index.astype(np.int64))
        return np.where(real, again, np.inf), nearest.index

    def compared(self, rows: Floats, where: NDArray[np.int64]) -> Floats:
        """Distances of rows to the clips at ``where``, (n, M)."""
        near = np.empty(where.shape, self.unit.dtype)
        step = max(1, _GATHERED_BYTES // (where.shape[1] * self.unit[0].nbytes))
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            # One sum for each pair: mutual neighbours have equal distances, as a matrix product
            # would not give them.
            near[part] = np.einsum("nmd,nd->nm", self.unit[where[part]], rows[part])
        return distances_of_cosines(near)


class _Corrected:
    """Distances of n clips to candidates of their own, and to the sparsest clips of the bank."""

    def __init__(
        self,
        search: ApproximateSearch,
        rows: Floats,
        near: Floats,
        where: NDArray[np.int32],
        away: Floats,
        sparse: NDArray[np.intp],
    ) -> None:
        self._search, self._rows = search, rows
        self._near, self._where, self._away, self._sparse = near, where, away, sparse

    def lower(self, into: Floats, densities: Floats, member: Bools, correct: np.ufunc) -> None:
        """Lower (R, n) to the smallest corrected distance to members, densities being (R, N)."""
        if not len(densities):
            return
        real = member[self._where] & (self._near < np.inf)
        inside = member[self._sparse]
        away, sparse = self._away[:, inside], self._sparse[inside]
        for smallest, density in zip(into, densities, strict=True):
            with np.errstate(invalid="ignore"):  # no density where there is no member
                near = np.where(real, correct(self._near, density[self._where]), np.inf)
            np.minimum(smallest, near.min(axis=1), out=smallest)
            if sparse.size:
                best = correct(away, density[sparse]).argmin(axis=1)[:, None]
                distance = self._search.compared(self._rows, sparse[best])
                distance[np.isinf(np.take_along_axis(away, best, axis=1))] = np.inf
                np.minimum(smallest, correct(distance, density[sparse[best]])[:, 0], out=smallest)


def _sparsest(ratio: Floats, difference: Floats, members: Bools) -> NDArray[np.intp]:
    """The members of each subset with the largest densities, under each of them."""
    count = min(SPARSEST, members.shape[1])
    chosen = np.zeros(members.shape[1], np.bool_)
    for s, member in enumerate(members):
        for density in (*ratio[s], *difference[s]):
            known = np.where(member, density, -np.inf)
            chosen[np.argpartition(-known, count - 1)[:count]] = True
    return np.flatnonzero(chosen)


def _built(rows: Floats, options: IVF | HNSW) -> Any:
    """An index of inner products; vectors are kept in half precision, to be compared again."""
    import faiss as untyped

    faiss: Any = untyped  # its stubs know fewer overloads than it has
    n, dim = rows.shape
    kind = faiss.ScalarQuantizer.QT_fp16
    if isinstance(options, IVF):
        cells = options.lists or int(np.sqrt(n))
        cells = max(1, min(cells, n // _POINTS_PER_CELL))
        cell_of = faiss.IndexFlatIP(dim)
        index = faiss.IndexIVFScalarQuantizer(cell_of, dim, cells, kind, faiss.METRIC_INNER_PRODUCT)
        index.nprobe = min(options.probes, cells)
        index.cp.niter, index.cp.max_points_per_centroid = _ROUNDS, _POINTS_PER_CELL
        index.cp.seed = _SEED
        sample = np.random.default_rng(_SEED).permutation(n)[: cells * _POINTS_PER_CELL]
        index.train(_single(rows[np.sort(sample)]))
    else:
        index = faiss.IndexHNSWSQ(dim, kind, options.links, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = options.building, options.effort
        index.train(_single(rows[:1]))
    for first in range(0, n, _ROWS_AT_ONCE):
        index.add(_single(rows[first : first + _ROWS_AT_ONCE]))
    return index


def _single(rows: Floats) -> NDArray[np.float32]:
    return np.ascontiguousarray(rows, np.float32)
