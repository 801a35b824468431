"""The kernels for torch tensors, whose leading axis is machines.

Where NumPy has an axis of subsets S, tensors have machines and subsets in one axis: element
``m * S + s`` is subset s of machine m. Masks of subsets and numbers of clips are the same for all
machines and stay NumPy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daco.compute.device import full_precision
from daco.errors import InputError
from daco.method._kernels_numpy import NOISE_ULPS
from daco.validation import Bools, Indices

xp = torch

TILE = 16_384
"""Rows and columns of one product: 1 GiB in float32."""

QUERY_BYTES = 2**30
"""Distances of new clips that are computed at once."""

SPLITS_AT_ONCE = 16

_CHUNK = 64
_COMPLETED_ELEMENTS = 2**24


@contextmanager
def exact_products(array: Tensor) -> Iterator[None]:
    """A context in which products have the precision of their factors."""
    try:
        with full_precision(array.device):
            yield
    except torch.cuda.OutOfMemoryError:
        raise InputError(
            f"{array.device} ran out of memory. Compute fewer machines or clips at once, or stop "
            "what else runs there."
        ) from None


def splits_at_once(bytes_per_split: int) -> int:
    """How many splits of the criterion are scored together."""
    return SPLITS_AT_ONCE


def machine_count(unit: Tensor) -> int:
    """The machines of an array of rows."""
    return len(unit)


def from_host(array: NDArray[Any], like: Tensor) -> Tensor:
    """A host array where the computation is."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)


def to_host(array: Tensor) -> NDArray[Any]:
    """An array of the computation as a NumPy array."""
    return array.cpu().numpy()


def double(array: Tensor) -> Tensor:
    """In float64."""
    return array.double().contiguous()


def cast(array: Tensor, like: Tensor) -> Tensor:
    """In the precision of another array."""
    return array.to(like.dtype)


def full(shape: Sequence[int], value: float, like: Tensor) -> Tensor:
    """A new array in the precision of another."""
    return like.new_full(tuple(shape), value)


def arange(n: int, like: Tensor) -> Tensor:
    """0, 1, ..., n - 1 in float64."""
    return torch.arange(n, dtype=torch.float64, device=like.device)


def sort(array: Tensor) -> Tensor:
    """Sorted along the last axis."""
    return array.sort(-1).values


def sorting_order(array: Tensor) -> None:
    """`map_quantiles` searches without an order."""


def take_along(array: Tensor, index: Tensor) -> Tensor:
    """Elements along the last axis; the index is repeated over axes of length 1."""
    return array.gather(-1, index.long().expand(*array.shape[:-1], -1))


def weighted_sum(weights: Tensor, maps: Tensor, out: Tensor) -> None:
    """Sum over domains: (B, G, n) and (B, G, n) into (B, n)."""
    torch.mul(weights[:, 0], maps[:, 0], out=out)
    for g in range(1, maps.shape[1]):
        out.addcmul_(weights[:, g], maps[:, g])


def unit_rows(X: Tensor, order: None = None) -> Tensor:
    """Rows scaled to length 1; a zero row stays zero."""
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


def products(A: Tensor, B: Tensor) -> Tensor:
    """A @ B.T of every machine."""
    return A @ B.mT


def to_distances(cosines: Tensor) -> Tensor:
    """1 - cos in place, with rounding noise set to 0."""
    cosines.neg_().add_(1)
    return cosines.masked_fill_(cosines < NOISE_ULPS * torch.finfo(cosines.dtype).eps, 0)


def leave_out_diagonal(distances: Tensor) -> Tensor:
    """Distances of clips to themselves at infinity; both directions of a pair become equal."""
    distances = torch.minimum(distances, distances.mT)  # products of a GPU may round differently
    distances.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    return distances


def transposed(block: Tensor) -> Tensor:
    """A contiguous transpose."""
    return block.mT.contiguous()


def smallest(distances: Tensor, count: int) -> Tensor:
    """The smallest values of each column (M, N, n) in ascending order: (M, n, count)."""
    return _smallest_of_rows(distances.mT, count)[0]


def nearest(distances: Tensor) -> tuple[Tensor, Tensor]:
    """Row and value of the smallest distance in each column."""
    value, index = distances.min(1)
    return index, value


class NearestLists:
    """The nearest of all clips seen so far, for each clip in ascending order of distance."""

    def __init__(self, unit: Tensor, length: int) -> None:
        self.distance = unit.new_full((*unit.shape[:-1], length), torch.inf)
        self.index = torch.zeros(self.distance.shape, dtype=torch.int64, device=unit.device)

    def see(self, rows: slice, block: Tensor, first_index: int) -> None:
        """Distances of some rows to clips numbered from ``first_index``; inf marks no clip."""
        length = self.distance.shape[-1]
        near, where = _smallest_of_rows(block, min(length, block.shape[-1]))
        where = where + first_index
        if near.shape[-1] < length or block.shape[-1] < self.distance.shape[1]:
            near = torch.cat([self.distance[:, rows], near], -1)
            where = torch.cat([self.index[:, rows], where], -1)
            order = near.argsort(dim=-1, stable=True)[..., :length]
            near, where = near.gather(-1, order), where.gather(-1, order)
        self.distance[:, rows], self.index[:, rows] = near, where

    def sums(self, orders: Sequence[int]) -> Tensor:
        """(M, len(orders), N): summed distance of each clip to its nearest 1..order others."""
        return _running_sums(self.distance, orders)


def _smallest_of_rows(block: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The smallest values of each row in ascending order and their columns; ties by column."""
    chunks = block.shape[-1] // _CHUNK
    if chunks <= 4 * count:
        near, where = block.topk(count, largest=False)
    else:
        # They are in the chunks with the smallest minima: most of a long row is read only once.
        whole = block[..., : chunks * _CHUNK].reshape(*block.shape[:-1], chunks, _CHUNK)
        best = whole.amin(-1).topk(count, largest=False).indices[..., None]
        inside = whole.gather(-2, best.expand(*best.shape[:-1], _CHUNK)).flatten(-2)
        within = torch.arange(_CHUNK, device=block.device)
        rest = torch.arange(chunks * _CHUNK, block.shape[-1], device=block.device)
        columns = torch.cat(
            [(best * _CHUNK + within).flatten(-2), rest.expand(*block.shape[:-1], -1)], -1
        )
        candidates = torch.cat([inside, block[..., chunks * _CHUNK :]], -1)
        near, at = candidates.topk(count, largest=False)
        where = columns.gather(-1, at)
    order = where.argsort(-1)
    near, where = near.gather(-1, order), where.gather(-1, order)
    order = near.argsort(dim=-1, stable=True)
    return near.gather(-1, order), where.gather(-1, order)


def _running_sums(near: Tensor, orders: Sequence[int]) -> Tensor:
    """(M, len(orders), N) running sums of the values up to each order."""
    sums = near.new_empty((len(near), len(orders), near.shape[1]))
    running = torch.zeros_like(near[..., 0])
    for position in range(max(orders)):
        running = running + near[..., position]
        if position + 1 in orders:
            sums[:, orders.index(position + 1)] = running
    return sums


def subset_sums(
    lists: NearestLists,
    members: Bools,
    orders: Sequence[int],
    orders_outside: int,
    distances_of: Callable[[tuple[Tensor, Tensor]], Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Sums over the nearest members (B, len(orders), N), and the nearest of them (B, N).

    Clips outside a subset have the first ``orders_outside`` sums only. Rows whose list holds
    too few members are completed from ``distances_of`` them.
    """
    near, index = lists.distance, lists.index
    reach, n = max(orders), near.shape[1]
    outside = orders[orders_outside - 1] if orders_outside else 0
    sums = near.new_empty((len(near), len(members), len(orders), n))
    first = index.new_empty((len(near), len(members), n))
    for s, mask in enumerate(members):
        member = from_host(mask, near)
        inside = member[index]
        rank = inside.cumsum(-1, dtype=torch.int32)
        # The slot after the last takes whatever is not wanted.
        slot = torch.where(inside & (rank <= reach), rank - 1, reach).long()
        nearest = near.new_full((*near.shape[:2], reach + 1), torch.inf)
        nearest.scatter_(-1, slot, near)
        nearest_member = index.new_zeros((*near.shape[:2], reach + 1)).scatter_(-1, slot, index)
        first[:, s] = nearest_member[..., 0]
        if distances_of is not None:
            short = (rank[..., -1] < torch.where(member, reach, outside)).nonzero()
            for machine, clip in _pairs(short, n):
                to_members = distances_of((machine, clip)).masked_fill_(~member, torch.inf)
                closest = to_members.topk(min(reach, n), largest=False)
                nearest[machine, clip, : closest.values.shape[1]] = closest.values
                first[machine, s, clip] = to_members.argmin(-1)
        sums[:, s] = _running_sums(nearest, orders)
    return sums.flatten(0, 1), first.flatten(0, 1)


def _pairs(short: Tensor, n: int) -> Iterator[tuple[Tensor, Tensor]]:
    step = max(1, _COMPLETED_ELEMENTS // n)
    for start in range(0, len(short), step):
        machine, clip = short[start : start + step].unbind(1)
        yield machine, clip


def scan_block(
    block: Tensor,
    members: Bools,
    domain_of: Indices,
    ratio_density: Tensor,
    difference_density: Tensor,
    domain: Tensor,
    ratio: Tensor,
    difference: Tensor,
) -> None:
    """Lower the running minima over the rows of a block; its columns are the clips."""
    subsets = len(members)
    for s, member in enumerate(members):
        chosen = np.flatnonzero(member)
        if not chosen.size:
            continue
        rows = from_host(chosen, block)
        part = block if chosen.size == member.size else block.index_select(1, rows)
        codes = domain_of[chosen]
        edges = np.flatnonzero(np.diff(codes, prepend=-1, append=-1))
        for start, stop in pairwise(edges if domain.shape[1] else ()):
            _lower(domain[s::subsets, codes[start]], part[:, start:stop])
        for v in range(ratio.shape[1]):
            density = ratio_density[s::subsets, v].index_select(1, rows)
            _lower(ratio[s::subsets, v], part / density[..., None])
        for v in range(difference.shape[1]):
            density = difference_density[s::subsets, v].index_select(1, rows)
            _lower(difference[s::subsets, v], part - density[..., None])


def _lower(minima: Tensor, values: Tensor) -> None:
    minima.copy_(torch.minimum(minima, values.amin(1)))


def count_below(large: Tensor, small: Tensor) -> tuple[Tensor, Tensor]:
    """How many of ``large`` are < and <= each of ``small``, row by row, by comparing all."""
    points = small.unbind(-1)
    below = torch.stack([(large < point[..., None]).sum(-1) for point in points], -1)
    return below, torch.stack([(large <= point[..., None]).sum(-1) for point in points], -1)


def count_below_sorted(ascending: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """How many of ``ascending`` are < and <= each of some points, row by row, by searching."""
    below = torch.searchsorted(ascending, points)
    return below, torch.searchsorted(ascending, points, right=True)


def count_below_self(small: Tensor) -> tuple[Tensor, Tensor]:
    """How many of a sorted row are < and <= each of its own values."""
    return torch.searchsorted(small, small), torch.searchsorted(small, small, right=True)


def map_quantiles(
    knots: Tensor, levels: Tensor, scale: Tensor, scores: Tensor, order: None
) -> Tensor:
    """Interpolate each row of scores between its knots, with a rational tail above them."""
    n = knots.shape[-1] - 1
    at = torch.searchsorted(knots, scores, right=True) - 1  # the last knot that is not above
    inner = at.clamp(0, n - 1)
    left, right = knots.gather(-1, inner), knots.gather(-1, inner + 1)
    slope = (levels[inner + 1] - levels[inner]) / (right - left)
    mapped = slope * (scores - left) + levels[inner]
    mapped = torch.where(at < 0, levels[0], torch.where(at >= n, levels[n], mapped))
    beyond = scores - knots[..., -1:]
    tail = levels[n] + (1 - levels[n]) * (beyond / (beyond + scale))
    return torch.where(beyond > 0, tail, mapped)
