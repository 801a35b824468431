"""Neighbour scores in one geometry: k nearest normals, and distances corrected by density.

All of them come from the neighbour lists and one scan of the distances: a density is made of
the distances between normals, then the smallest distance over, or less, a density is found.
The scores differ in the density alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from daco.method.bases import Base
from daco.method.geometry import Space
from daco.method.kernels import Array, kernels
from daco.method.neighbours import DENSITY_FLOOR, DenseMinima, NeighbourLists, dense_minima
from daco.validation import Bools, Indices

BaseScores = dict[Base, Array]

_VARIANCE_FLOOR = 4e-12  # 1e-12 of the published distance, which is half of ours
_RATIO_FLOOR = 1e-12
_EXPONENT = 80.0  # its powers of e are float32 numbers
_DIVIDING = ("ldn-ratio", "ldn-log", "varmin-log", "dldn-ratio")


def local_within(
    space: Space,
    domain_starts: Indices,
    bases: Sequence[Base],
    members: Bools | None,
    with_domains: bool,
) -> tuple[BaseScores, Array]:
    """Score every clip of the bank against subsets of it, (S, N) bool, itself excluded.

    Returns {base: (S, N)} and the distance to the nearest member of each domain, (S, G, N);
    no domains (G = 0) where they were not asked for.
    """
    lists = space.lists(max([base.neighbours for base in bases], default=1))
    orders = _orders(bases)
    if members is None:
        members = np.ones((1, len(space)), np.bool_)
        sums, first = lists.sums(orders), lists.nearest()
    else:
        farthest = max((base.neighbours for base in bases if base.scorer == "knn"), default=0)
        outside = sum(order <= farthest for order in orders)
        sums, first = lists.subset_sums(space.distances, members, orders, outside)
    sum_of = {order: sums[:, column] for column, order in enumerate(orders)}
    scores: BaseScores = {
        b: sum_of[b.neighbours] / b.neighbours for b in bases if b.scorer == "knn"
    }
    density = Densities(space, lists, domain_starts, members, sum_of, first)
    dividing, subtracting = _corrected(bases)
    if not (dividing or subtracting or with_domains):
        return scores, kernels(sums).full((len(sums), 0, len(space)), 0, sums)
    minima = dense_minima(
        space.distances.blocks(),
        len(space),
        members,
        domain_starts,
        density.stacked(dividing),
        density.stacked(subtracting),
        with_domains,
    )
    return scores | _named(dividing, subtracting, minima, density.shift), minima.domain


def local_against(
    space: Space,
    distances: Array,
    domain_starts: Indices,
    bases: Sequence[Base],
    with_domains: bool,
) -> tuple[BaseScores, Array]:
    """Score new clips, the columns of distances to the whole bank: {base: (1, n)}, (1, G, n)."""
    K = kernels(distances)
    knn = [base for base in bases if base.scorer == "knn"]
    scores: BaseScores = {}
    if knn:
        sums = K.smallest(distances, max(base.neighbours for base in knn)).cumsum(-1)
        scores = {b: sums[:, :, b.neighbours - 1] / b.neighbours for b in knn}
    dividing, subtracting = _corrected(bases)
    if not (dividing or subtracting or with_domains):
        return scores, K.full((1, 0, distances.shape[-1]), 0, distances)
    asked = (*dividing, *subtracting)
    if asked not in space.densities:
        space.densities[asked] = whole_bank_densities(space, domain_starts, dividing, subtracting)
    over, less, shift = space.densities[asked]
    n, everyone = distances.shape[-1], np.ones((1, len(space)), np.bool_)
    block = slice(0, len(space)), slice(0, n), distances
    minima = dense_minima([block], n, everyone, domain_starts, over, less, with_domains)
    return scores | _named(dividing, subtracting, minima, shift), minima.domain


def whole_bank_densities(
    space: Space, domain_starts: Indices, dividing: Sequence[Base], subtracting: Sequence[Base]
) -> tuple[Array, Array, dict[Base, Array]]:
    """Densities of the whole bank that the bases divide by or subtract, and their shift."""
    bases = [*dividing, *subtracting]
    if not bases:
        K = kernels(space.unit)
        none = K.full((K.machine_count(space.unit), 0, len(space)), 0, space.unit)
        return none, none, {}
    lists = space.lists(max(base.neighbours for base in bases))
    orders = _orders(bases)
    sums = lists.sums(orders)
    sum_of = {order: sums[:, column] for column, order in enumerate(orders)}
    everyone = np.ones((1, len(space)), np.bool_)
    density = Densities(space, lists, domain_starts, everyone, sum_of, lists.nearest())
    return density.stacked(dividing), density.stacked(subtracting), density.shift


class Densities:
    """Densities of the members of S subsets under each base, in the doubled distance 1 - cos."""

    def __init__(
        self,
        space: Space,
        lists: NeighbourLists,
        domain_starts: Indices,
        members: Bools,
        sum_of: dict[int, Array],
        first: Array,
    ) -> None:
        self._kernels = kernels(space.unit)
        self._machines = self._kernels.machine_count(space.unit)
        self._space, self._lists, self._starts = space, lists, domain_starts
        self._subsets = members
        self._sum_of, self._first = sum_of, first
        self._in_domain: dict[int, Array] = {}
        self.shift: dict[Base, Array] = {}
        """What logarithms of a ratio are less, (S, 1), where densities are relative ones."""

    def stacked(self, bases: Sequence[Base]) -> Array:
        """(S, len(bases), N)."""
        shape = self._machines * len(self._subsets), len(bases), len(self._space)
        stacked = self._kernels.full(shape, 0, self._space.unit)
        for column, base in enumerate(bases):
            stacked[:, column] = self._of(base)
        return stacked

    def _of(self, base: Base) -> Array:
        K = base.neighbours
        if base.scorer.startswith("dldn"):
            return self._domain_wise(K).clip(min=DENSITY_FLOOR)
        summed = self._sum_of[K].clip(min=DENSITY_FLOOR)
        if base.scorer in ("ldn-ratio", "ldn-diff"):
            return summed
        mean = summed / K
        if base.scorer == "varmin":
            with np.errstate(invalid="ignore"):  # outside a subset there is no density
                return self._slope(self._sum_of[1], mean)[:, None] * mean
        if base.scorer == "varmin-log":
            return self._powers(base, mean)
        return mean

    def _members(self) -> Array:
        """(S, N) masks of all machines."""
        masks = np.tile(self._subsets, (self._machines, 1))
        return self._kernels.from_host(masks, self._space.unit)

    def _powers(self, base: Base, mean: Array) -> Array:
        """Densities to the power of VarMin's slope in logarithms, relative to the typical one.

        A copy of a clip is at no distance from it, and the logarithm of that would drown all
        others: pairs without a distance have no part in the slope.
        """
        K = self._kernels
        nearest, logs = self._sum_of[1], K.xp.log(mean)
        real = (nearest > 0) & (K.take_along(mean, self._first) > DENSITY_FLOOR)
        slope = self._slope(K.xp.log(nearest.clip(min=DENSITY_FLOOR)), logs, real)
        ordered = K.sort(K.xp.where(self._members(), logs, float("inf")))
        count = int(self._subsets[0].sum())  # subsets are equally large
        typical = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
        self.shift[base] = (slope * typical)[:, None]
        with np.errstate(invalid="ignore"):  # outside a subset there is no density
            exponent = slope[:, None] * (logs - typical[:, None])
        return K.xp.exp(exponent.clip(-_EXPONENT, _EXPONENT))

    def _slope(self, nearest: Array, density: Array, real: Array | None = None) -> Array:
        """(S,): least-squares slope of members' distance to their nearest on its density."""
        K = self._kernels
        members = self._members()
        if real is not None:
            members = members & real
        count = members.sum(-1).clip(min=1)
        u = K.double(K.xp.where(members, nearest, 0))
        v = K.double(K.take_along(density, self._first))
        v -= (K.xp.where(members, v, 0).sum(-1) / count)[:, None]
        v[~members] = 0  # what lies outside the subset has no part in it
        variance = (v * v).sum(-1) / count
        covariance = (v * u).sum(-1) / count
        flat = variance <= _VARIANCE_FLOOR
        slope = K.xp.where(flat, 0, covariance / K.xp.where(flat, 1, variance))
        return K.cast(slope, nearest)

    def _domain_wise(self, K: int) -> Array:
        """Mean distance to the K nearest members of the same domain, fewer where it has fewer."""
        if K not in self._in_domain:
            space, (subsets, n) = self._space, self._subsets.shape
            shape = self._machines, subsets, n
            density = self._kernels.full(shape, float("inf"), space.unit)
            for start, stop in pairwise(self._starts):
                inside = np.zeros(n, np.bool_)
                inside[start:stop] = True
                for s, member in enumerate(self._subsets):
                    part = member & inside
                    reach = min(K, int(part.sum()) - 1)
                    # A clip alone in its domain has no neighbour there: any normal's counts.
                    among, reach = (part, reach) if reach > 0 else (member, 1)
                    if reach > 0 and part.any() and member.sum() > 1:
                        sums, _ = self._lists.subset_sums(space.distances, among[None], [reach], 0)
                        clips = np.flatnonzero(part)
                        density[:, s, clips] = sums[:, 0, clips] / reach
            self._in_domain[K] = density.reshape(-1, n)
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
    dividing: list[Base], subtracting: list[Base], minima: DenseMinima, shift: dict[Base, Array]
) -> BaseScores:
    # Densities here are of the distance d; the published ones of d/2, as is their distance.
    # That cancels in the ratio and halves the difference.
    named: BaseScores = {base: minima.difference[:, i] / 2 for i, base in enumerate(subtracting)}
    for i, base in enumerate(dividing):
        ratio = minima.ratio[:, i]
        if base.scorer == "ldn-log":  # the density is a mean; the constant is part of the score
            ratio = kernels(ratio).xp.log((ratio * base.neighbours).clip(min=_RATIO_FLOOR))
        elif base.scorer == "varmin-log":
            ratio = kernels(ratio).xp.log(ratio.clip(min=_RATIO_FLOOR)) - shift[base]
        named[base] = ratio
    return named
