"""Stage 3: the label-free criterion, from held-out halves; no function here takes labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.method.kernels import Array, as_array, kernels
from daco.validation import Indices, is_whole

CHOICE_SPLITS = 200
"""Splits that a choice averages: enough that another seed seldom picks another configuration."""

PAPER_SPLITS = 10
"""Splits of the paper, for comparisons with its published numbers."""

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
    rng = _generator(seed)
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


def _generator(seed: Seed) -> np.random.Generator:
    if not is_whole(seed) and not isinstance(seed, np.random.Generator):
        raise InputError(
            f"The 'seed' parameter must be an int >= 0 or a numpy Generator. Got {seed!r} instead."
        )
    return np.random.default_rng(seed)


def require_halves(domain_names: Sequence[Any], domain_sizes: Sequence[int]) -> None:
    """The criterion compares domains, so it needs two of them with two clips each."""
    if len(domain_sizes) < 2:
        raise NotEnoughClipsError(
            "The balance criterion compares domains, and this bank has only one "
            f"({domain_names[0]!r}). Label the clips of the other domain."
        )
    for name, size in zip(domain_names, domain_sizes, strict=True):
        if size < 2:
            raise NotEnoughClipsError(
                f"The balance criterion holds out half of each domain and needs 2 clips in each. "
                f"Domain {name!r} has {size}. Record {2 - size} more, or leave that domain out."
            )


@dataclass(frozen=True)
class Balance:
    """The exact criterion of C configurations over S splits.

    Attributes
    ----------
    counts : (C, S, P) int64
    denominators : (P,) int64
        ``counts[c, s, p] / denominators[p]`` is the KS distance of domain pair p in split s.
    """

    counts: NDArray[np.int64]
    denominators: NDArray[np.int64]

    @property
    def splits(self) -> NDArray[np.float64]:
        """The KS distance of each split, (C, S), averaged over pairs of domains."""
        return (self.counts / self.denominators).mean(axis=2)

    @property
    def values(self) -> NDArray[np.float64]:
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


def ks_of_domains(scores: Array, domain_starts: Indices) -> Array:
    """KS integers (C, S, P) of held-out scores (C, S, n) whose clips are grouped by domain."""
    parts = [scores[..., a:b] for a, b in pairwise(domain_starts)]
    return kernels(scores).xp.stack([ks_counts(a, b) for a, b in combinations(parts, 2)], -1)


def ks_denominators(domain_starts: Indices) -> NDArray[np.int64]:
    """(P,): denominators of the KS integers of each pair of domains."""
    pairs = combinations(np.diff(domain_starts).tolist(), 2)
    return np.array([a * b for a, b in pairs], np.int64)


def ks_distance(a: ArrayLike, b: ArrayLike) -> float:
    """Compute the two-sample Kolmogorov-Smirnov distance of two score samples.

    Parameters
    ----------
    a, b : array-like of shape (n,) and (m,)
        Scores.

    Returns
    -------
    float between 0 and 1

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


def ks_counts(a: Array, b: Array) -> Array:
    """KS distance times ``n_a n_b``, an integer, along the last axis of (..., n) arrays.

    Between two points of the smaller sample only the larger one's distribution rises, so
    the distance is attained at, or just before, a point of the smaller sample.
    """
    K = kernels(a)
    if a.shape[-1] < b.shape[-1]:
        a, b = b, a
    n, m = a.shape[-1], b.shape[-1]
    large, small = a.reshape(-1, n), K.sort(b.reshape(-1, m))
    if m <= _COUNT_UP_TO:
        counts = K.count_below(large, small)
    else:
        counts = K.count_below_sorted(K.sort(large), small)
    gaps = [
        K.xp.amax(abs(of_large * m - of_small * n), -1)
        for of_large, of_small in zip(counts, K.count_below_self(small), strict=True)
    ]
    return K.xp.maximum(*gaps).reshape(a.shape[:-1])


def uniformity_ks(scores: Array) -> Array:
    """Compute the KS distance to the uniform distribution on [0, 1] along the last axis.

    It measures how far calibrated normal scores of one domain are from uniform.

    Parameters
    ----------
    scores : array-like of shape (..., n)
        Calibrated scores, between 0 and 1.

    Returns
    -------
    array of shape (...)

    Examples
    --------
    >>> from daco.method.criterion import uniformity_ks
    >>> float(uniformity_ks([0.25, 0.5, 0.75]))
    0.25
    """
    scores = as_array(scores)
    K, n = kernels(scores), scores.shape[-1]
    if n == 0:
        raise InputError("Uniformity needs at least one score.")
    ordered = K.sort(K.double(scores))
    position = K.arange(n, scores)
    above = K.xp.amax((position + 1) / n - ordered, -1)
    below = K.xp.amax(ordered - position / n, -1)
    return K.xp.maximum(above, below)


@dataclass(frozen=True)
class Floor:
    """Mean and standard deviation of the criterion if the domains do not differ."""

    mean: float
    sd: float


def h0_floor(
    n_first: int,
    n_second: int,
    n_splits: int = PAPER_SPLITS,
    n_simulations: int = 2000,
    seed: Seed = 0,
    *,
    reuse_clips: bool = False,
) -> Floor:
    """Simulate the criterion of two domains that do not differ.

    With 495 source and 5 target clips held out the mean is 0.36: a criterion near that cannot be
    improved, and differences much below ``sd`` are noise.

    Parameters
    ----------
    n_first, n_second : int
        Numbers of held-out clips of the two domains.
    n_splits, n_simulations, seed : int
        Splits over which a criterion averages, by default the paper's 10, and number and seed of
        the simulated criteria.
    reuse_clips : bool
        False draws new clips for every split, as the paper does. True keeps them: the mean stays
        the same and ``sd`` grows. The true sd of the criterion lies between the two.

    Returns
    -------
    Floor

    Examples
    --------
    >>> from daco.method.criterion import h0_floor
    >>> round(h0_floor(495, 5, n_simulations=400).mean, 2)
    0.36
    """
    if min(n_first, n_second, n_splits, n_simulations) < 1:
        raise InputError("Sample sizes, n_splits and n_simulations of h0_floor must be >= 1.")
    rng = _generator(seed)
    means = np.empty(n_simulations)
    step = max(1, 2**21 // (n_splits * (n_first + n_second)))
    for start in range(0, n_simulations, step):
        count = min(step, n_simulations - start)
        if reuse_clips:
            first = _repeated_halves(rng, count, n_splits, n_first)
            second = _repeated_halves(rng, count, n_splits, n_second)
        else:
            first = rng.random((count, n_splits, n_first))
            second = rng.random((count, n_splits, n_second))
        counts = ks_counts(first, second)
        means[start : start + count] = counts.mean(axis=1) / (n_first * n_second)
    return Floor(float(means.mean()), float(means.std()))


def _repeated_halves(
    rng: np.random.Generator, count: int, n_splits: int, n_held: int
) -> NDArray[np.float64]:
    clips = np.repeat(rng.random((count, 1, 2 * n_held)), n_splits, axis=1)
    return rng.permuted(clips, axis=2)[..., :n_held]
