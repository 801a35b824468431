"""The criterion of one bank: held-out halves scored with the other half, split by split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from daco.method.calibration import Support
from daco.method.config import Base
from daco.method.criterion import (
    Balance,
    Seed,
    ks_denominators,
    ks_of_domains,
    resample_plan,
    resampled_ks,
    uniformity_ks,
)
from daco.method.engine import Plan, ViewScores, blend_by_view, grid_scores
from daco.method.external import ExternalScorers
from daco.method.scores import BankView
from daco.validation import Bools, Float64s, Floats, Indices

_SPLIT_BYTES = 8 * 2**20
_MIN_SPLITS = 20  # at once, because distances that are not kept are computed again for each block


def balance_of_halves(
    views: Sequence[BankView],
    external: ExternalScorers,
    plan: Plan,
    held: Bools,
    *,
    n_resamples: int = 0,
    seed: Seed = 0,
    with_uniformity: bool = False,
) -> tuple[Balance, Float64s]:
    """The criterion of a plan's configurations, and the uniformity of their quantiles.

    Parameters
    ----------
    views : sequence of BankView
    external : ExternalScorers
    plan : Plan
        Of a bank of the clips that remain.
    held : (S, N) bool
        The held-out clips of each split, half of every domain.
    n_resamples, seed : int
        Of the resamples of splits and clips.
    with_uniformity : bool
        Without it the uniformity is 0.

    Returns
    -------
    Balance, (C,)
    """
    sizes = np.diff(views[0].starts)
    starts = np.concatenate([[0], np.cumsum(sizes // 2)])
    quantiles = [row for row, config in enumerate(plan.configs) if config.calibration == "conf"]
    copies, splits_of = resample_plan(sizes.tolist(), len(held), n_resamples, seed)
    resampled, n_used = np.zeros((len(plan.configs), n_resamples)), np.zeros(n_resamples)
    counts: list[NDArray[np.int64]] = []
    uniformity = np.zeros(len(quantiles))
    for first, scores in _held_out_scores(views, external, plan, held, starts):
        counts.append(ks_of_domains(scores, starts))
        if with_uniformity:
            for a, b in pairwise(starts):
                uniformity += uniformity_ks(scores[quantiles][..., a:b]).sum(axis=1)
        for split in range(first, first + scores.shape[1]):
            drawn = np.nonzero(splits_of == split)[0]
            if not len(drawn):
                continue
            of_clips = copies[drawn][:, held[split]]
            ks = resampled_ks(scores[:, split - first], of_clips, starts)
            known = ~np.isnan(ks).any(axis=0)  # two domains have a clip in this split
            np.add.at(resampled.T, drawn[known], ks.T[known])
            np.add.at(n_used, drawn[known], 1)
    mean_uniformity = np.full(len(plan.configs), np.nan)
    mean_uniformity[quantiles] = uniformity / (len(held) * len(sizes))
    with np.errstate(invalid="ignore"):  # a resample without any such split is nan
        resampled /= n_used
    balance = Balance(np.concatenate(counts, axis=1), ks_denominators(starts), resampled)
    return balance, mean_uniformity


def _held_out_scores(
    views: Sequence[BankView],
    external: ExternalScorers,
    plan: Plan,
    held: Bools,
    held_starts: Indices,
) -> Iterator[tuple[int, Float64s]]:
    """Yield the first split of a block, and the scores (C, s, n_held) of its held-out halves."""
    n = held.shape[1]
    used = views[: plan.n_views(len(views))]
    n_bases = sum(len(plan.bases(v)[0]) + len(plan.bases(v)[1]) for v in range(len(used)))
    bytes_per_split = 8 * (len(plan.configs) * int(held_starts[-1]) + n_bases * n)
    step = max(_MIN_SPLITS, _SPLIT_BYTES // bytes_per_split)
    starts = views[0].starts - held_starts
    for first in range(0, len(held), step):
        away = held[first : first + step]
        # Splits hold out equally many clips, so both sides are rectangular.
        inside = np.nonzero(~away)[1].reshape(len(away), -1)
        outside = np.nonzero(away)[1].reshape(len(away), -1)
        of_held, of_rest = [], []
        for v, view in enumerate(used):
            scored, supported = plan.bases(v)
            local = dict.fromkeys(base for base in (*scored, *supported) if base.k)
            values, domain = view.subset_scores(list(local), ~away)
            if v == 0:
                values |= {base: external.within(base.label, ~away) for base in plan.external}
            rest = {base: _take(values[base], inside) for base in supported}
            supports = {base: Support(rest[base], starts) for base in supported}
            taken = {base: _take(values[base], outside) for base in scored}
            of_held.append(ViewScores(taken, supports, _take(domain, outside[:, None])))
            of_rest.append(ViewScores(rest, supports, domain))
        yield first, grid_scores(plan, of_held, _blend_supports(plan, of_rest, starts))[0]


def _blend_supports(plan: Plan, rest: Sequence[ViewScores], starts: Indices) -> dict[Base, Support]:
    """The scores that calibrated blends give to the clips that remain."""
    return {
        base: Support(blend_by_view(base, plan.members, rest).mean(axis=0), starts)
        for base in plan.calibrated_blends
    }


def _take(values: Floats, index: Indices) -> Floats:
    return np.take_along_axis(values, index, axis=-1)
