"""Neighbour scores in one geometry: k nearest normals, and distances corrected by density.

All of them come from the neighbour lists and one scan of the distances: a density is made of
the distances between normals, then the smallest distance over, or less, a density is found.
The scores differ in the density alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from daco.method.bases import Base
from daco.method.geometry import Look, View
from daco.method.neighbours import DENSITY_FLOOR, DenseMinima, NeighbourLists
from daco.validation import Bools, Floats, Indices

BaseScores = dict[Base, Floats]

_VARIANCE_FLOOR = 4e-12  # 1e-12 of the published distance, which is half of ours
_RATIO_FLOOR = 1e-12
_EXPONENT = 80.0  # its powers of e are float32 numbers
_DIVIDING = ("ldn-ratio", "ldn-log", "varmin-log", "dldn-ratio")


def local_within(
    view: View,
    domain_starts: Indices,
    bases: Sequence[Base],
    members: Bools | None,
    with_domains: bool,
) -> tuple[BaseScores, Floats]:
    """Score every clip of the bank against subsets of it, (S, N) bool, itself excluded.

    Returns {base: (S, N)} and the distance to the nearest member of each domain, (S, G, N);
    no domains (G = 0) where they were not asked for.
    """
    lists = view.lists(max([base.neighbours for base in bases], default=1))
    orders = _orders(bases)
    if members is None:
        members = np.ones((1, len(view)), np.bool_)
        sums, first = lists.sums(orders)[None], lists.index[None, :, 0]
    else:
        farthest = max((base.neighbours for base in bases if base.scorer == "knn"), default=0)
        outside = sum(order <= farthest for order in orders)
        found = [lists.subset_sums(view.distances, member, orders, outside) for member in members]
        sums, first = np.stack([s for s, _ in found]), np.stack([f for _, f in found])
    sum_of = {order: sums[:, column] for column, order in enumerate(orders)}
    scores: BaseScores = {
        b: sum_of[b.neighbours] / b.neighbours for b in bases if b.scorer == "knn"
    }
    density = _Densities(view, lists, domain_starts, members, sum_of, first)
    dividing, subtracting = _corrected(bases)
    if not (dividing or subtracting or with_domains):
        return scores, np.empty((len(members), 0, len(view)), view.unit.dtype)
    found_minima = view.minima(
        members,
        domain_starts,
        density.stacked(dividing),
        density.stacked(subtracting),
        with_domains,
    )
    named = _named(dividing, subtracting, found_minima, density.shift)
    return scores | named, found_minima.domain


def local_against(
    view: View,
    look: Look,
    domain_starts: Indices,
    bases: Sequence[Base],
    with_domains: bool,
) -> tuple[BaseScores, Floats]:
    """Score new clips that are looked at against the whole bank: {base: (1, n)}, (1, G, n)."""
    knn = [base for base in bases if base.scorer == "knn"]
    dividing, subtracting = _corrected(bases)
    shift: dict[Base, Floats] = {}
    if dividing or subtracting:
        density = whole_bank_densities(view, domain_starts, [*dividing, *subtracting])
        over, less = density.stacked(dividing), density.stacked(subtracting)
        shift = density.shift
    else:
        over = less = np.empty((1, 0, len(view)), view.unit.dtype)
    count = max((base.neighbours for base in knn), default=0)
    nearest, found = look.against(count, domain_starts, over, less, with_domains)
    sums = np.cumsum(nearest, axis=1)
    scores = {b: sums[None, :, b.neighbours - 1] / b.neighbours for b in knn}
    return scores | _named(dividing, subtracting, found, shift), found.domain


def whole_bank_densities(view: View, domain_starts: Indices, bases: Sequence[Base]) -> _Densities:
    """What the bases divide by or subtract when the whole bank is the bank."""
    lists = view.lists(max(base.neighbours for base in bases))
    orders = _orders(bases)
    sum_of = dict(zip(orders, lists.sums(orders)[:, None], strict=True))
    everyone = np.ones((1, len(view)), np.bool_)
    return _Densities(view, lists, domain_starts, everyone, sum_of, lists.index[None, :, 0])


class _Densities:
    """Densities of the members of S subsets under each base, in the doubled distance 1 - cos."""

    def __init__(
        self,
        view: View,
        lists: NeighbourLists,
        domain_starts: Indices,
        members: Bools,
        sum_of: dict[int, Floats],
        first: NDArray[np.int32],
    ) -> None:
        self._view, self._lists, self._starts = view, lists, domain_starts
        self._members, self._sum_of, self._first = members, sum_of, first
        self._in_domain: dict[int, Floats] = {}
        self.shift: dict[Base, Floats] = {}
        """What logarithms of a ratio are less, (S, 1), where densities are relative ones."""

    def stacked(self, bases: Sequence[Base]) -> Floats:
        """(S, len(bases), N)."""
        subsets, n = self._members.shape
        stacked = np.empty((subsets, len(bases), n), self._view.unit.dtype)
        for column, base in enumerate(bases):
            stacked[:, column] = self._of(base)
        return stacked

    def _of(self, base: Base) -> Floats:
        K = base.neighbours
        if base.scorer.startswith("dldn"):
            return np.maximum(self._domain_wise(K), DENSITY_FLOOR)
        summed = np.maximum(self._sum_of[K], DENSITY_FLOOR)
        if base.scorer in ("ldn-ratio", "ldn-diff"):
            return summed
        mean = summed / K
        if base.scorer == "varmin":
            with np.errstate(invalid="ignore"):  # outside a subset there is no density
                return self._slope(self._sum_of[1], mean)[:, None] * mean
        if base.scorer == "varmin-log":
            return self._powers(base, mean)
        return mean

    def _powers(self, base: Base, mean: Floats) -> Floats:
        """Densities to the power of VarMin's slope in logarithms, relative to the typical one.

        A copy of a clip is at no distance from it, and the logarithm of that would drown all
        others: pairs without a distance have no part in the slope.
        """
        nearest, logs = self._sum_of[1], np.log(mean)
        real = (nearest > 0) & (np.take_along_axis(mean, self._first, axis=1) > DENSITY_FLOOR)
        slope = self._slope(np.log(np.maximum(nearest, DENSITY_FLOOR)), logs, real)
        typical = np.array(
            [np.median(row[member]) for row, member in zip(logs, self._members, strict=True)],
            logs.dtype,
        )
        self.shift[base] = (slope * typical)[:, None]
        with np.errstate(invalid="ignore"):  # outside a subset there is no density
            exponent = slope[:, None] * (logs - typical[:, None])
        return np.exp(np.clip(exponent, -_EXPONENT, _EXPONENT))

    def _slope(self, nearest: Floats, density: Floats, real: Bools | None = None) -> Floats:
        """(S,): least-squares slope of members' distance to their nearest on its density."""
        members = self._members if real is None else self._members & real
        count = np.maximum(members.sum(axis=1), 1)
        u = np.where(members, nearest, 0).astype(np.float64)
        v = np.take_along_axis(density, self._first, axis=1).astype(np.float64)
        v -= (np.where(members, v, 0).sum(axis=1) / count)[:, None]
        v[~members] = 0  # what lies outside the subset has no part in it
        variance = np.einsum("sn,sn->s", v, v) / count
        covariance = np.einsum("sn,sn->s", v, u) / count
        flat = variance <= _VARIANCE_FLOOR
        slope = np.where(flat, 0, covariance / np.where(flat, 1, variance))
        return slope.astype(nearest.dtype)

    def _domain_wise(self, K: int) -> Floats:
        """Mean distance to the K nearest members of the same domain, fewer where it has fewer."""
        if K not in self._in_domain:
            density = np.full(self._members.shape, np.inf, self._view.unit.dtype)
            for start, stop in pairwise(self._starts):
                inside = np.zeros(len(self._view), np.bool_)
                inside[start:stop] = True
                for s, member in enumerate(self._members):
                    part = member & inside
                    reach = min(K, int(part.sum()) - 1)
                    # A clip alone in its domain has no neighbour there: any normal's counts.
                    among, reach = (part, reach) if reach > 0 else (member, 1)
                    if reach > 0 and part.any() and member.sum() > 1:
                        sums, _ = self._lists.subset_sums(self._view.distances, among, [reach], 0)
                        density[s, part] = sums[0, part] / reach
            self._in_domain[K] = density
        return self._in_domain[K]


def _orders(bases: Sequence[Base]) -> list[int]:
    orders = {base.neighbours for base in bases if not base.scorer.startswith("dldn")}
    needs_nearest = not orders or any(base.scorer.startswith("varmin") for base in bases)
    return sorted(orders | ({1} if needs_nearest else set()))


def _corrected(bases: Sequence[Base]) -> tuple[list[Base], list[Base]]:
    """The bases that divide by a density, and those that subtract one."""
    dividing = [base for base in bases if base.scorer in _DIVIDING]
    rest = (base for base in bases if base.scorer not in ("knn", *_DIVIDING))
    return dividing, list(rest)


def _named(
    dividing: list[Base], subtracting: list[Base], found: DenseMinima, shift: dict[Base, Floats]
) -> BaseScores:
    # Densities here are of the distance d; the published ones of d/2, as is their distance.
    # That cancels in the ratio and halves the difference.
    named: BaseScores = {base: found.difference[:, i] / 2 for i, base in enumerate(subtracting)}
    for i, base in enumerate(dividing):
        ratio = found.ratio[:, i]
        if base.scorer == "ldn-log":  # the density is a mean; the constant is part of the score
            ratio = np.log(np.maximum(ratio * base.neighbours, _RATIO_FLOOR))
        elif base.scorer == "varmin-log":
            ratio = np.log(np.maximum(ratio, _RATIO_FLOOR)) - shift[base]
        named[base] = ratio
    return named
