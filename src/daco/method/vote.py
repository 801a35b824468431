"""The vote: one score from all configurations of a grid, instead of a choice among them.

Every member turns its score of a clip into a normal score, by the leave-one-out scores that it
gives to the normals; the vote is the mean over members, and over the views of a bank. It is a base
score like any other, so that every calibration, threshold and criterion works on top of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from daco.method.bases import Base
from daco.method.calibration import CalibrationInput, calibrate_grid
from daco.method.config import ScoreConfig, frontier_grid, paper_grid
from daco.method.kernels import Array, kernels
from daco.method.scorers import clips_needed
from daco.validation import Float64s

Members = tuple[ScoreConfig, ...]

TAIL_LIMIT = 9.0
"""Limit of a member's tail, so that one member cannot outvote the others."""


@lru_cache(maxsize=32)
def members_of(base: Base, bands: int, clips: int) -> tuple[Members, Members]:
    """List the members of a vote, and those for which a bank has too few clips.

    Parameters
    ----------
    base : Base
        ``vote``, with the members of :func:`daco.frontier_grid`, or ``vote-paper``, with those of
        :func:`daco.paper_grid`.
    bands : int
        Number of frequency bands in each embedding.
    clips : int
        Number of clips in the bank.

    Returns
    -------
    members, left_out : tuple of ScoreConfig

    Examples
    --------
    >>> from daco.method.bases import Base
    >>> from daco.method.vote import members_of
    >>> [len(each) for each in members_of(Base("vote"), 1, 1000)]
    [134, 0]
    """
    grid = paper_grid() if base.scorer == "vote-paper" else frontier_grid(bands)
    fits = [clips_needed(config.base, spare=1)[0] <= clips for config in grid]
    members = tuple(config for config, fit in zip(grid, fits, strict=True) if fit)
    return members, tuple(config for config, fit in zip(grid, fits, strict=True) if not fit)


def normal_scores(own: Array, scores: Array) -> Array:
    """Scale the scores of each member: 0 is the median of its normals, 1 a standard deviation.

    Parameters
    ----------
    own : (C, S, N)
        Scores of the normals by each of C members, in ascending order. S is the number of banks.
    scores : (C, S, n)
        Scores of the clips.

    Returns
    -------
    (C, S, n)
        The normal quantile of the rank among `own`; ties have the middle of their ranks. Above the
        largest score of the normals, a tail grows with the excess, in units of the distance from
        the median to the largest, and approaches `TAIL_LIMIT`. A member for which this distance is
        0 has that limit above its normals, else 0.
    """
    K = kernels(scores)
    n = own.shape[-1]
    below, up_to = K.count_below_sorted(own.reshape(-1, n), scores.reshape(-1, scores.shape[-1]))
    normal = K.from_host(_quantiles(n), scores)[(below + up_to).reshape(scores.shape)]
    scale = _upper_half(own)
    excess = (scores - own[..., -1:]).clip(min=0)
    ratio = excess / K.xp.where(scale > 0, scale, 1)
    silent = K.xp.where(excess > 0, TAIL_LIMIT, 0.0)
    return K.xp.where(scale > 0, normal + TAIL_LIMIT * ratio / (TAIL_LIMIT + ratio), silent)


def _upper_half(own: Array) -> Array:
    """From the median of sorted scores to the largest, (C, S, 1).

    A member for which it is 0 is silent, because its scores have no scale.
    """
    n = own.shape[-1]
    return own[..., -1:] - (own[..., (n - 1) // 2, None] + own[..., n // 2, None]) / 2


@lru_cache(maxsize=8)
def _quantiles(n: int) -> Float64s:
    """The normal quantile of every mid-rank, 0 to n in steps of a half, among n scores."""
    from scipy.special import ndtri

    quantiles: Float64s = ndtri((np.arange(2 * n + 1) + 1) / (2 * n + 2))
    return quantiles


@dataclass(frozen=True)
class Vote:
    """A vote fitted to a bank: the members of each view, and their scores of the normals.

    Attributes
    ----------
    members : one list of configurations for each view
    support : one (C, S, N) array for each view
        Leave-one-out scores of the normals by the members, in ascending order.
    own : (S, N)
        The vote on the normals.
    """

    members: Sequence[Sequence[ScoreConfig]]
    support: Sequence[Array]
    own: Array


def fit_votes(
    members: Mapping[Base, Sequence[Sequence[ScoreConfig]]], own: Sequence[CalibrationInput]
) -> dict[Base, Vote]:
    """The votes of a bank.

    Parameters
    ----------
    members : {vote: one list of configurations for each view}
    own : one CalibrationInput for each view
        Its ``scores`` are those of the bank's own clips, each left out.
    """
    votes = {}
    for base, by_view in members.items():
        scores = [calibrate_grid(*pair) for pair in zip(by_view, own, strict=True)]
        support = [kernels(view).sort(view) for view in scores]
        own_vote = _mean(map(normal_scores, support, scores), support)
        votes[base] = Vote(by_view, support, own_vote)
    return votes


def _counting(own: Array) -> Array:
    """Which members count, (C, S, 1): those that are not silent, or all where all are."""
    speaks = _upper_half(own) > 0
    return speaks | ~speaks.any(0)


def _mean(normal: Iterable[Array], support: Sequence[Array]) -> Array:
    """The vote (S, n): members that count do so alike, and so do views."""
    means = []
    for view, own in zip(normal, support, strict=True):
        counts = _counting(own)
        means.append((view * counts).sum(0) / counts.sum(0))
    return sum(means) / len(means)


def grid_scores(
    configs: Sequence[ScoreConfig], given: Sequence[CalibrationInput], votes: Mapping[Base, Vote]
) -> tuple[Array, dict[Base, list[Array]]]:
    """Scores (C, S, n) of configurations, and the normal scores of each vote's members by view.

    Votes are over all views, other configurations see the first one. Members that do not count
    have NaN.
    """
    if not votes:
        return calibrate_grid(configs, given[0]), {}
    asked = [config for config in configs if config.base not in votes]
    asked += [member for vote in votes.values() for member in vote.members[0]]
    rows = {config: row for row, config in enumerate(dict.fromkeys(asked))}
    of_first = calibrate_grid(list(rows), given[0])
    scores, calibration = dict(given[0].scores), dict(given[0].calibration)
    normal = {}
    for base, vote in votes.items():
        by_view = [of_first[[rows[member] for member in vote.members[0]]]]
        by_view += map(calibrate_grid, vote.members[1:], given[1:])
        normal[base] = list(map(normal_scores, vote.support, by_view))
        scores[base], calibration[base] = _mean(normal[base], vote.support), vote.own
        normal[base] = [
            kernels(view).xp.where(_counting(own), view, float("nan"))
            for view, own in zip(normal[base], vote.support, strict=True)
        ]
    over = {config: row for row, config in enumerate(configs) if config.base in votes}
    of_votes = calibrate_grid(list(over), replace(given[0], scores=scores, calibration=calibration))
    if len(over) == len(configs):
        return of_votes, normal
    out = of_first[[rows.get(config, 0) for config in configs]]
    out[list(over.values())] = of_votes
    return out, normal
