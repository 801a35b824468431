"""Stage 3: the label-free criterion, from held-out halves; no function here takes labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.method.calibration import Support
from daco.method.engine import Plan, ViewScores, blend_by_view, grid_scores
from daco.method.external import ExternalScorers
from daco.method.scores import BankView
from daco.validation import Bools, Float64s, Floats, Indices, is_whole

CHOICE_SPLITS = 200
"""Splits that a choice averages: enough that another seed seldom picks another configuration."""

PAPER_SPLITS = 10
"""Splits of the paper, for comparisons with its published numbers."""

SPLITS_PER_RESAMPLE = 10

_SPLIT_BYTES = 8 * 2**20
_MIN_SPLITS = 20  # at once, because distances that are not kept are computed again for each block
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
    """The criterion of C configurations over S splits: small if domains have similar scores.

    Attributes
    ----------
    splits : (C, S)
        The KS distance between the held-out scores of two domains, mean over pairs of domains.
    resampled : (C, R)
        The criterion of each of R resamples of splits and clips.
    """

    splits: Float64s
    resampled: Float64s

    @property
    def values(self) -> Float64s:
        """The criterion, (C,): the mean over splits."""
        return self.splits.mean(axis=1)


def balance_of_halves(
    views: Sequence[BankView],
    external: ExternalScorers,
    plan: Plan,
    held: Bools,
    *,
    n_resamples: int,
    seed: Seed,
) -> Balance:
    """The criterion of a plan, one of a bank of half the clips, by the held-out clips (S, N)."""
    sizes = np.diff(views[0].starts)
    starts = np.concatenate([[0], np.cumsum(sizes // 2)])
    copies, splits_of = _resample_plan(sizes.tolist(), len(held), n_resamples, seed)
    resampled, n_used = np.zeros((len(plan.configs), n_resamples)), np.zeros(n_resamples)
    distances = []
    for first, scores in _held_out_scores(views, external, plan, held, starts):
        parts = [scores[..., a:b] for a, b in pairwise(starts)]
        pairs = [ks_counts(a, b) / (a.shape[-1] * b.shape[-1]) for a, b in combinations(parts, 2)]
        distances.append(np.mean(pairs, axis=0))
        for split in range(first, first + scores.shape[1]):
            drawn = np.nonzero(splits_of == split)[0]
            if len(drawn):
                of_clips = copies[drawn][:, held[split]]
                ks = resampled_ks(scores[:, split - first], of_clips, starts)
                known = ~np.isnan(ks).any(axis=0)  # two domains have a clip in this split
                np.add.at(resampled.T, drawn[known], ks.T[known])
                np.add.at(n_used, drawn[known], 1)
    with np.errstate(invalid="ignore"):  # a resample without any such split is nan
        resampled /= n_used
    return Balance(np.concatenate(distances, axis=1), resampled)


def _held_out_scores(
    views: Sequence[BankView],
    external: ExternalScorers,
    plan: Plan,
    held: Bools,
    held_starts: Indices,
) -> Iterator[tuple[int, Float64s]]:
    """Yield the first split of a block, and the scores (C, s, n_held) of its held-out halves."""
    used = views[: plan.n_views(len(views))]
    needed = [dict.fromkeys((*plan.scored(v), *plan.supported(v))) for v in range(len(used))]
    n_bases = sum(map(len, needed))
    bytes_per_split = 8 * (len(plan.configs) * int(held_starts[-1]) + n_bases * held.shape[1])
    step = max(_MIN_SPLITS, _SPLIT_BYTES // bytes_per_split)
    starts = views[0].starts - held_starts
    for first in range(0, len(held), step):
        away = held[first : first + step]
        # Splits hold out equally many clips, so both sides are rectangular.
        inside = np.nonzero(~away)[1].reshape(len(away), -1)
        outside = np.nonzero(away)[1].reshape(len(away), -1)
        of_held, of_rest = [], []
        for v, view in enumerate(used):
            values, domain = view.subset_scores([base for base in needed[v] if base.k], ~away)
            if v == 0:
                values |= {base: external.within(base.label, ~away) for base in plan.external}
            rest = {base: _take(values[base], inside) for base in plan.supported(v)}
            supports = {base: Support(each, starts) for base, each in rest.items()}
            taken = {base: _take(values[base], outside) for base in plan.scored(v)}
            of_held.append(ViewScores(taken, supports, _take(domain, outside[:, None])))
            of_rest.append(ViewScores(rest, supports, domain))
        blends = {
            base: Support(blend_by_view(base, plan, of_rest).mean(axis=0), starts)
            for base in plan.calibrated_blends
        }
        yield first, grid_scores(plan, of_held, blends)[0]


def _take(values: Floats, index: Indices) -> Floats:
    return np.take_along_axis(values, index, axis=-1)


def _resample_plan(
    sizes: Sequence[int], n_splits: int, n_resamples: int, seed: Seed
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """How often each clip is in each resample (R, N), and the splits of each."""
    # Not the generator of the splits: more resamples must not change them.
    rng = np.random.default_rng([int(random_generator(seed).integers(2**31)), n_resamples])
    copies = [rng.multinomial(size, np.full(size, 1 / size), n_resamples) for size in sizes]
    rounds = 1 + n_resamples * SPLITS_PER_RESAMPLE // n_splits
    drawn = np.concatenate([rng.permutation(n_splits) for _ in range(rounds)])
    splits = drawn[: n_resamples * SPLITS_PER_RESAMPLE].reshape(n_resamples, SPLITS_PER_RESAMPLE)
    return np.concatenate(copies, axis=1), splits


def resampled_ks(scores: Float64s, copies: NDArray[np.int64], starts: Indices) -> Float64s:
    """KS distances (C, R) of held-out scores (C, n) whose clips occur `copies` (R, n) times."""
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
    less, not_above = _count_below(small, small)
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
