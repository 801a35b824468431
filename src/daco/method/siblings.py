"""Scores of normals as if they were new to the bank, which has their siblings.

Clips of one recording are siblings. A clip that is only left out itself still finds its siblings in
the bank, and a clip of tomorrow does not: leave-one-out scores are too low.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.method.bank import NormalBank, require_clips
from daco.method.config import ScoreConfig
from daco.method.distances import cosine_distances
from daco.method.kernels import on_host
from daco.validation import Bools, Float64s


def likely_siblings(bank: NormalBank) -> dict[Any, int]:
    """How many of a clip's nearest normals are likely of the same recording, by domain."""
    share = -(-len(bank) // 100)
    return {name: min(share, size // 3) for name, size in bank.domain_sizes.items()}


def scores_of_normals(
    bank: NormalBank,
    config: str | ScoreConfig,
    siblings: Mapping[Any, int],
    sessions: Sequence[str] | NDArray[Any] = (),
) -> Float64s:
    """Scores of the bank's clips by the whole bank, from which some clips are hidden.

    Hidden are the clip itself, and the clips of its session or, where that is not known, its
    nearest normals of the same domain in each view. Densities and quantile maps stay those of the
    whole bank, as for a new clip.

    Parameters
    ----------
    bank : NormalBank
    config : str or ScoreConfig
    siblings : {domain: int}
        How many nearest normals are hidden.
    sessions : N texts, optional
        ``""`` where it is not known.

    Returns
    -------
    (N,) float64
    """
    parsed = ScoreConfig.parse(config)
    require_clips([parsed], len(bank), spare=1)
    order = bank._order
    domains = bank.clip_domains[order]
    most = len(bank) - 1 - _neighbours(bank, parsed)
    counts = np.array([siblings[name] for name in bank.domains])[domains]
    names = np.array(sessions if len(sessions) else [""] * len(bank))[order]

    def hide(view: int, rows: slice) -> Bools:
        distance = cosine_distances(bank._units[view], bank._units[view][rows])
        itself = np.arange(len(bank))[rows], np.arange(distance.shape[1])
        distance[itself] = -1  # before all others
        with_session = (names[:, None] == names[rows]) & (names[rows] != "")
        candidate = np.where(names[rows] != "", with_session, domains[:, None] == domains[rows])
        count = np.where(names[rows] != "", with_session.sum(0), 1 + counts[rows])
        count = np.minimum(np.minimum(count, candidate.sum(0)), 1 + most)
        ranks = np.argsort(np.where(candidate, distance, np.inf), axis=0, kind="stable")
        hidden = np.zeros(distance.shape, np.bool_)
        np.put_along_axis(hidden, ranks, np.arange(len(bank))[:, None] < count, axis=0)
        return hidden

    with bank._batch.exact_products():
        examined = bank._batch.examine(bank._on_device(bank._units), [parsed], hide=hide)
    scores = np.empty(len(bank))
    scores[order] = on_host(examined.scores)[0, 0]
    return scores


def _neighbours(bank: NormalBank, config: ScoreConfig) -> int:
    """The most nearest normals that a score, or a member of a vote, takes the mean distance of."""
    names = [config.name]
    if config.base.is_vote:
        names = [name for members in bank.members(config).values() for name in members]
    bases = [part for name in names for part in ScoreConfig.parse(name).base.parts()]
    return max((base.neighbours for base in bases if base.scorer == "knn"), default=1)
