"""Distances and base scores of a batch of banks, as tensors with a leading axis of machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from daco.method.bases import Base
from daco.method.distances import _NOISE_ULPS
from daco.method.neighbours import DENSITY_FLOOR, list_length

BaseScores = dict[Base, Tensor]

_SHORT_ELEMENTS = 2**24


@dataclass(frozen=True)
class Scored:
    """Scores of n clips of M machines against S parts of their banks.

    ``scores`` are (M, S, n); ``domain``, (M, S, G, n), are the distances to the nearest member
    of each domain. ``own`` are scores (M, S, members) of the members themselves.
    """

    scores: BaseScores
    domain: Tensor
    own: BaseScores = field(default_factory=dict)


@dataclass(frozen=True)
class Split:
    """One half of a bank that plays the bank: indices of clips grouped by domain."""

    kept: Tensor
    held: Tensor
    kept_starts: Sequence[int]


class Banks:
    """The normals of M machines, unit rows (M, N, D) grouped by domain; distances and lists."""

    def __init__(self, unit: Tensor, starts: Sequence[int]) -> None:
        self.unit = unit
        self.starts = starts
        self.distance = distances_within(unit)
        self._reach = 0
        self._own: BaseScores = {}
        self._own_domain: Tensor | None = None

    def __len__(self) -> int:
        return int(self.unit.shape[1])

    def leave_one_out(self, bases: Iterable[Base]) -> Scored:
        """Every clip against all others of its bank; computed once per base."""
        missing = [base for base in dict.fromkeys(bases) if base not in self._own]
        if missing:
            sums = self._whole_sums(missing)
            for base in missing:
                self._own[base] = _score(base, sums, self.distance, sums)[:, None]
        if self._own_domain is None:
            self._own_domain = _domain_minima(self.distance, self.starts)[:, None]
        return Scored(self._own, self._own_domain)

    def against(self, query: Tensor, bases: Sequence[Base]) -> Scored:
        """New clips, (M, n, D), against the whole bank; S is 1."""
        distance = _products(query, self.unit)
        _to_distances(distance)
        wanted = [base.neighbours for base in bases if base.scorer == "knn"]
        nearest = distance[..., :0]
        if wanted:
            nearest = distance.topk(max(wanted), largest=False, sorted=True).values
        sums = _running_sums(nearest, wanted)
        corrected = [base for base in bases if base.scorer != "knn"]
        bank_sums = self._whole_sums(corrected) if corrected else {}
        scores = {base: _score(base, sums, distance, bank_sums)[:, None] for base in bases}
        return Scored(scores, _domain_minima(distance, self.starts)[:, None])

    def halves(
        self, splits: Sequence[Split], bases: Sequence[Base], calibrated: Sequence[Base]
    ) -> Scored:
        """Held-out clips against the kept ones, and the kept ones against each other.

        ``own`` has the bases in ``calibrated``.
        """
        found = [self._half(split, bases, calibrated) for split in splits]
        return Scored(
            {base: torch.stack([each.scores[base] for each in found], 1) for base in bases},
            torch.stack([each.domain for each in found], 1),
            {base: torch.stack([each.own[base] for each in found], 1) for base in calibrated},
        )

    def _half(self, split: Split, bases: Sequence[Base], calibrated: Sequence[Base]) -> Scored:
        sums = self._subset_sums(split, [*bases, *calibrated])
        kept_sums = {order: total.index_select(1, split.kept) for order, total in sums.items()}
        held_sums = {order: total.index_select(1, split.held) for order, total in sums.items()}

        def to_kept(rows: Tensor) -> Tensor:
            return self.distance.index_select(1, rows).index_select(2, split.kept)

        away = to_kept(split.held)
        scores = {base: _score(base, held_sums, away, kept_sums) for base in bases}
        domain = _domain_minima(away, split.kept_starts)
        del away
        corrected = any(base.scorer != "knn" for base in calibrated)
        among = to_kept(split.kept) if corrected else self.distance
        own = {base: _score(base, kept_sums, among, kept_sums) for base in calibrated}
        return Scored(scores, domain, own)

    def _lists(self, reach: int) -> tuple[Tensor, Tensor]:
        """For each clip its nearest others in ascending order: distances and indices."""
        if self._reach < reach:
            self._reach = reach
            length = min(len(self) - 1, list_length(reach))
            found = self.distance.topk(length, largest=False, sorted=True)
            self._near, self._index = found.values, found.indices
        return self._near, self._index

    def _whole_sums(self, bases: Iterable[Base]) -> dict[int, Tensor]:
        orders = [base.neighbours for base in bases]
        near, _ = self._lists(max(orders))
        return _running_sums(near, orders)

    def _subset_sums(self, split: Split, bases: Sequence[Base]) -> dict[int, Tensor]:
        """Summed distance of every clip, (M, N), to its nearest kept clips, by their number.

        Clips that are held out need no density, so only the sums of ``knn`` are right there.
        """
        orders = [base.neighbours for base in bases]
        reach = max(orders)
        farthest = max((base.neighbours for base in bases if base.scorer == "knn"), default=0)
        near, index = self._lists(reach)
        needed = near.new_full((len(self),), farthest, dtype=torch.int32)
        needed[split.kept] = reach
        member = needed.new_zeros(needed.shape, dtype=torch.bool)
        member[split.kept] = True
        inside = member[index]
        rank = inside.cumsum(-1, dtype=torch.int32)
        # The slot after the last takes whatever is not wanted.
        slot = torch.where(inside & (rank <= reach), rank - 1, reach).long()
        nearest = near.new_full((*near.shape[:2], reach + 1), torch.inf)
        nearest.scatter_(-1, slot, near)
        if near.shape[-1] < len(self) - 1:
            self._complete(nearest, (rank[..., -1] < needed).nonzero(), member)
        return _running_sums(nearest, orders)

    def _complete(self, nearest: Tensor, short: Tensor, member: Tensor) -> None:
        """Rows whose list holds too few members are taken from their distances."""
        step = max(1, _SHORT_ELEMENTS // len(self))
        for first in range(0, len(short), step):
            machine, clip = short[first : first + step].unbind(1)
            to_members = self.distance[machine, clip].masked_fill_(~member, torch.inf)
            reach = min(nearest.shape[-1] - 1, len(self))
            nearest[machine, clip, :reach] = to_members.topk(reach, largest=False).values


def unit_rows(X: Tensor) -> Tensor:
    """Rows scaled to length 1; a zero row stays zero (its cosine with anything is 0)."""
    norms = torch.linalg.vector_norm(X, dim=-1, keepdim=True)
    info = torch.finfo(X.dtype)
    # Squares of very large or small values leave the float range: bring those rows to scale 1.
    unsafe = ~((norms > 1e4 * math.sqrt(info.tiny)) & (norms < info.max))
    if bool(unsafe.any()):
        peak = X.abs().amax(-1, keepdim=True)
        X = torch.where(unsafe & (peak > 0), X / peak, X)
        norms = torch.where(unsafe, torch.linalg.vector_norm(X, dim=-1, keepdim=True), norms)
        norms = torch.where(norms == 0, 1, norms)
    return X / norms


def distances_within(unit: Tensor) -> Tensor:
    """(M, N, N) distances 1 - cos of each bank's clips; a clip's distance to itself is inf."""
    distance = _products(unit, unit)
    _to_distances(distance)
    # Mutual neighbours have equal scores only if both directions round alike.
    distance = torch.minimum(distance, distance.mT)
    distance.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    return distance


def _products(A: Tensor, B: Tensor) -> Tensor:
    """(M, n, N): A @ B.T of every machine."""
    return A @ B.mT


def _to_distances(products: Tensor) -> None:
    products.neg_().add_(1)
    noise = _NOISE_ULPS * torch.finfo(products.dtype).eps
    products.masked_fill_(products < noise, 0)


def _running_sums(nearest: Tensor, orders: Iterable[int]) -> dict[int, Tensor]:
    """Sums of the first so many values along the last axis, added one after the other."""
    wanted = set(orders)
    sums: dict[int, Tensor] = {}
    running = torch.zeros_like(nearest[..., 0]) if wanted else nearest
    for position in range(max(wanted, default=0)):
        running = running + nearest[..., position]
        if position + 1 in wanted:
            sums[position + 1] = running
    return sums


def _score(
    base: Base, sums: dict[int, Tensor], distance: Tensor, bank_sums: dict[int, Tensor]
) -> Tensor:
    """(M, n) scores of the rows of ``distance``, whose columns are the bank's clips."""
    K = base.neighbours
    if base.scorer == "knn":
        return sums[K] / K
    density = bank_sums[K].clamp(min=DENSITY_FLOOR)[:, None]
    if base.scorer == "ldn-ratio":
        return (distance / density).amin(-1)
    return (distance - density).amin(-1) / 2  # the published distance is half of ours


def _domain_minima(distance: Tensor, starts: Sequence[int]) -> Tensor:
    """(M, G, n): the smallest value of each row of ``distance`` among the columns of a domain."""
    return torch.stack([distance[..., a:b].amin(-1) for a, b in pairwise(starts)], 1)
