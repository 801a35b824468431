"""Stage 3: the label-free criterion, from held-out halves; no function here takes labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.validation import Float64s, Indices, is_whole

CHOICE_SPLITS = 200
"""Splits that a choice averages: enough that another seed seldom picks another configuration."""

PAPER_SPLITS = 10
"""Splits of the paper, for comparisons with its published numbers."""

SPLITS_PER_RESAMPLE = 10

_COUNT_UP_TO = 24  # clips in the smaller sample: below it counting beats sorting

Seed = int | np.random.Generator


def held_out_halves(
    domain_sizes: Sequence[int], n_splits: int, seed: Seed = 0, sessions: Sequence[str] = ()
) -> NDArray[np.bool_]:
    """(S, N) masks: in each split a random half (rounded down) of every domain is held out.

    Clips are grouped by domain. Splits are drawn one after the other from one generator, so
    configurations are paired and the first five of ten splits are the five of five. Whole recording
    sessions are held out, except that a domain's last one may be divided to reach the half.
    """
    if not is_whole(n_splits, least=1):
        raise InputError(f"The 'n_splits' parameter must be an int >= 1. Got {n_splits!r} instead.")
    rng = random_generator(seed)
    starts = np.concatenate([[0], np.cumsum(domain_sizes)])
    held = np.zeros((n_splits, starts[-1]), np.bool_)
    # A clip of unknown session, "", is a session of its own.
    labels = [name or f"\0{row}" for row, name in enumerate(sessions)]
    names, codes = np.unique(np.array(labels, np.str_), return_inverse=True)
    for split in held:
        order = rng.random(len(names))
        for start, size in zip(starts[:-1], domain_sizes, strict=True):
            drawn = start + rng.permutation(size)
            if len(names):
                drawn = drawn[np.argsort(order[codes[drawn]], kind="stable")]
            split[drawn[: size // 2]] = True
    return held


def random_generator(seed: Seed) -> np.random.Generator:
    """A generator of a seed, or the one that is given."""
    if not is_whole(seed) and not isinstance(seed, np.random.Generator):
        raise InputError(
            f"The 'seed' parameter must be an int >= 0 or a numpy Generator. Got {seed!r} instead."
        )
    return np.random.default_rng(seed)


def require_halves(domain_sizes: dict[Any, int]) -> None:
    """Raise an error unless there are two domains with two clips each."""
    if len(domain_sizes) < 2:
        raise NotEnoughClipsError(
            "The balance criterion compares domains, and this bank has only one "
            f"({next(iter(domain_sizes))!r}). Label the clips of the other domain."
        )
    for name, size in domain_sizes.items():
        if size < 2:
            raise NotEnoughClipsError(
                f"The balance criterion holds out half of each domain and needs 2 clips in each. "
                f"Domain {name!r} has {size}. Record {2 - size} more, or leave that domain out."
            )


@dataclass(frozen=True, eq=False)
class Balance:
    """The exact criterion of C configurations over S splits.

    Attributes
    ----------
    counts : (C, S, P) int64
    denominators : (P,) int64
        ``counts[c, s, p] / denominators[p]`` is the KS distance of domain pair p in split s.
    resampled : (C, R) float64
        The criterion of each of R resamples of splits and clips; no resamples by default.
    """

    counts: NDArray[np.int64]
    denominators: NDArray[np.int64]
    resampled: Float64s = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def splits(self) -> Float64s:
        """The KS distance of each split, (C, S), averaged over pairs of domains."""
        return (self.counts / self.denominators).mean(axis=2)

    @property
    def values(self) -> Float64s:
        """The criterion, (C,): small if the normals of all domains have similar scores."""
        n_splits, n_pairs = self.counts.shape[1:]
        whole = n_splits * n_pairs * self._common  # from integers, so that equal ones stay equal
        return np.array([total / whole for total in self.exact()])

    def exact(self) -> list[int]:
        """Return the criterion as integers over one common denominator, for comparisons."""
        factors = [self._common // int(d) for d in self.denominators]
        totals = self.counts.sum(axis=1)
        return [sum(int(t) * f for t, f in zip(row, factors, strict=True)) for row in totals]

    @property
    def _common(self) -> int:
        return lcm(*(int(d) for d in self.denominators))

    def best(self) -> int:
        """Return the index of the smallest criterion; a tie goes to the first in the grid."""
        exact = self.exact()
        return exact.index(min(exact))


def ks_of_domains(scores: Float64s, starts: Indices) -> NDArray[np.int64]:
    """KS integers (C, S, P) of held-out scores (C, S, n) whose clips are grouped by domain."""
    parts = [scores[..., a:b] for a, b in pairwise(starts)]
    return np.stack([ks_counts(a, b) for a, b in combinations(parts, 2)], axis=-1)


def ks_denominators(starts: Indices) -> NDArray[np.int64]:
    """(P,): denominators of the KS integers of each pair of domains."""
    pairs = combinations(np.diff(starts).tolist(), 2)
    return np.array([a * b for a, b in pairs], np.int64)


def resample_plan(
    sizes: Sequence[int], n_splits: int, n_resamples: int, seed: Seed
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Draw resamples of clips and splits.

    Returns
    -------
    copies : (R, N) int
        How often each clip is in each resample, drawn with replacement within domains.
    splits : (R, SPLITS_PER_RESAMPLE) int
        The splits of each resample; all splits are used about equally often.
    """
    # Not the generator of the splits: more resamples must not change them.
    rng = np.random.default_rng([int(random_generator(seed).integers(2**31)), n_resamples])
    copies = [rng.multinomial(size, np.full(size, 1 / size), n_resamples) for size in sizes]
    rounds = 1 + n_resamples * SPLITS_PER_RESAMPLE // n_splits
    drawn = np.concatenate([rng.permutation(n_splits) for _ in range(rounds)])
    splits = drawn[: n_resamples * SPLITS_PER_RESAMPLE].reshape(n_resamples, SPLITS_PER_RESAMPLE)
    return np.concatenate(copies, axis=1), splits


def resampled_ks(scores: Float64s, copies: NDArray[np.int64], starts: Indices) -> Float64s:
    """KS distances (C, R) of held-out scores (C, n) whose clips occur `copies` (R, n) times.

    It is the mean over pairs of domains that have a clip in the resample.
    """
    total = np.zeros((len(scores), len(copies)))
    n_pairs = np.zeros(len(copies))
    for (a, b), (c, d) in combinations(pairwise(starts), 2):
        first, second = (a, b), (c, d)
        if b - a < d - c:
            first, second = second, first
        large, small = scores[:, slice(*first)], scores[:, slice(*second)]
        n_of, m_of = copies[:, slice(*first)], copies[:, slice(*second)]
        n, m = n_of.sum(axis=1), m_of.sum(axis=1)
        known = (n > 0) & (m > 0)
        gaps = np.zeros((len(scores), len(copies)))
        for up_to in (np.less, np.less_equal):
            # Counts are whole numbers below 2**24, which float32 adds without rounding.
            of_large, of_small = (
                up_to(part[:, None, :], small[:, :, None]).astype(np.float32)
                @ times.T.astype(np.float32)
                for part, times in ((large, n_of), (small, m_of))
            )
            difference = abs(of_large.astype(np.float64) * m - of_small.astype(np.float64) * n)
            np.maximum(gaps, difference.max(axis=1), out=gaps)
        total += np.where(known, gaps / np.maximum(n * m, 1), 0)
        n_pairs += known
    with np.errstate(invalid="ignore"):
        return np.where(n_pairs > 0, total / n_pairs, np.nan)


def ks_distance(a: ArrayLike, b: ArrayLike) -> float:
    """Compute the two-sample Kolmogorov-Smirnov distance of two score samples.

    Examples
    --------
    >>> from daco.method.criterion import ks_distance
    >>> ks_distance([0.1, 0.2, 0.3, 0.4], [0.3, 0.5])
    0.5
    """
    first = np.asarray(a, np.float64).ravel()
    second = np.asarray(b, np.float64).ravel()
    if not first.size or not second.size:
        raise InputError(f"KS needs scores in both samples. Got {first.size} and {second.size}.")
    if np.isnan(first).any() or np.isnan(second).any():
        raise InputError("KS needs scores that can be ordered. Leave NaN out.")
    return float(ks_counts(first[None], second[None])[0]) / (first.size * second.size)


def ks_counts(a: Float64s, b: Float64s) -> NDArray[np.int64]:
    """KS distance times ``n_a n_b``, an integer, along the last axis of (..., n) arrays.

    Between two points of the smaller sample only the larger one's distribution rises, so
    the distance is attained at, or just before, a point of the smaller sample.
    """
    if a.shape[-1] < b.shape[-1]:
        a, b = b, a
    n, m = a.shape[-1], b.shape[-1]
    large = np.ascontiguousarray(a.reshape(-1, n))
    small = np.sort(b.reshape(-1, m), axis=1)
    below, up_to = _count_below(large, small)
    less, not_above = _ranks_within(small)
    gaps = np.maximum(abs(below * m - less * n), abs(up_to * m - not_above * n))
    return gaps.max(axis=1).reshape(a.shape[:-1])


def _count_below(large: Float64s, small: Float64s) -> tuple[NDArray[Any], NDArray[Any]]:
    """How many of `large` are < and <= each of `small`, row by row."""
    below, up_to = np.empty(small.shape, np.int64), np.empty(small.shape, np.int64)
    if small.shape[1] <= _COUNT_UP_TO:
        from daco.method import _loops

        _loops.count_below(large, small, below, up_to)
        return below, up_to
    ascending = np.sort(large, axis=1)
    for row, points in enumerate(small):
        below[row] = np.searchsorted(ascending[row], points, "left")
        up_to[row] = np.searchsorted(ascending[row], points, "right")
    return below, up_to


def _ranks_within(ascending: Float64s) -> tuple[NDArray[Any], NDArray[Any]]:
    """How many of a sorted row are < and <= each of its own values."""
    n = ascending.shape[1]
    position = np.arange(n)
    rises = np.ones(ascending.shape, np.bool_)
    rises[:, 1:] = ascending[:, 1:] > ascending[:, :-1]
    less = np.maximum.accumulate(np.where(rises, position, 0), axis=1)
    ends = np.ones(ascending.shape, np.bool_)
    ends[:, :-1] = rises[:, 1:]
    not_above = np.minimum.accumulate(np.where(ends, position + 1, n)[:, ::-1], axis=1)[:, ::-1]
    return less, not_above


def uniformity_ks(scores: ArrayLike) -> Float64s:
    """Compute the KS distance to the uniform distribution on [0, 1] along the last axis.

    It measures how far calibrated normal scores of one domain, (..., n), are from uniform.

    Examples
    --------
    >>> from daco.method.criterion import uniformity_ks
    >>> float(uniformity_ks([0.25, 0.5, 0.75]))
    0.25
    """
    ordered = np.sort(np.asarray(scores, np.float64), axis=-1)
    n = ordered.shape[-1]
    if n == 0:
        raise InputError("Uniformity needs at least one score.")
    above = (np.arange(1, n + 1) / n - ordered).max(axis=-1)
    below = (ordered - np.arange(n) / n).max(axis=-1)
    return np.asarray(np.maximum(above, below))
