"""Scores of normals as if they were new to the bank, which has their siblings.

Clips of one recording are siblings. Leave-one-out scores are too low, because the siblings of a
left-out clip stay in the bank; a new clip has none there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.method.bank import NormalBank
from daco.method.config import ScoreConfig
from daco.method.distances import cosine_distances
from daco.method.kernels import on_host
from daco.method.limits import require_clips
from daco.validation import Bools, Float64s, Floats

_GAP, _RISE = 4.0, 1.5
_MANY = 200  # of fewer normals nobody can say that they have no siblings
_CLOSEST = 1e-12  # copies have distance 0
_ROWS = 1000


def likely_siblings(bank: NormalBank) -> tuple[int, ...]:
    """How many of a clip's nearest normals are likely of the same recording, in each view.

    Of independent clips ``k * mean(log(d[k + 1] / d[k]))``, with ``d[k]`` the distance to the k-th
    nearest, is the same for every k. Siblings make it rise where a clip's own recording ends.

    Returns
    -------
    tuple of int
        As many as come before a clear gap among the nearest sqrt(N), or N / 10, of N normals; else
        a third of sqrt(N) where distances begin to grow half again as fast as at first; else none,
        or 1 of fewer than 200 normals, which cannot show that they have none.

    Examples
    --------
    >>> import daco, numpy as np
    >>> from daco.method.siblings import likely_siblings
    >>> rng = np.random.default_rng(0)
    >>> recordings = np.repeat(rng.normal(size=(20, 32)), 10, axis=0)
    >>> likely_siblings(daco.NormalBank(recordings + 0.3 * rng.normal(size=(200, 32))))
    (9,)
    """
    return tuple(_siblings(_nearest_distances(units)) for units in bank._units)


def _nearest_distances(units: Floats) -> Float64s:
    """Distances of each normal to its nearest others, in ascending order."""
    n = len(units)
    length = min(n - 1, _limit(n) + 4)
    parts = []
    for start in range(0, n, _ROWS):
        distance = cosine_distances(units[start : start + _ROWS], units)
        distance[np.arange(len(distance)), np.arange(start, start + len(distance))] = np.inf
        parts.append(np.sort(np.partition(distance, length - 1, axis=1)[:, :length], axis=1))
    return np.concatenate(parts).astype(np.float64)


def _limit(n: int) -> int:
    return int(min(n**0.5, n / 10))


def _siblings(nearest: Float64s) -> int:
    limit = _limit(len(nearest))
    if limit < 2 or nearest.shape[1] < limit + 4:
        return 1  # fewer than 20 normals: nothing can be told
    steps = np.diff(np.log(np.maximum(nearest, _CLOSEST)), axis=1).mean(axis=0)
    growth = steps * np.arange(1, steps.size + 1)
    gap = int(np.argmax(growth[:limit]))
    usual = min(growth[:3].mean(), _RISE * growth[0]) if gap else growth[1:4].mean()
    if growth[gap] >= _GAP * usual:
        return gap + 1
    smooth = (growth[:-2] + growth[1:-1] + growth[2:]) / 3
    rises = bool((smooth[1:limit] >= _RISE * smooth[0]).any())
    return max(1, round(len(nearest) ** 0.5 / 3)) if rises else int(len(nearest) < _MANY)


def scores_of_normals(
    bank: NormalBank,
    config: str | ScoreConfig,
    siblings: Sequence[int],
    sessions: Sequence[str] | NDArray[Any] = (),
    share: float = 1 / 3,
) -> Float64s:
    """Scores of the bank's clips by the whole bank, from which some clips are hidden.

    Hidden are the clip itself and its session or, if that is unknown, its nearest normals of the
    same domain in each view. External scorers are cross-fitted, a session in one fold.

    Parameters
    ----------
    bank : NormalBank
    config : str or ScoreConfig
    siblings : one int for each view
        How many nearest normals are hidden.
    sessions : N texts, optional
        ``""`` where it is not known.
    share : float
        Of a domain's clips that are hidden at most as siblings.

    Returns
    -------
    (N,) float64
    """
    parsed = ScoreConfig.parse(config)
    require_clips([parsed], len(bank), spare=1)
    order = bank._order
    domains = bank.clip_domains[order]
    most = len(bank) - 1 - _neighbours(bank, parsed)
    largest = (share * np.array(list(bank.domain_sizes.values()))).astype(int)[domains]
    names = np.array(sessions if len(sessions) else [""] * len(bank))[order]

    def hide(view: int, rows: slice) -> Bools:
        distance = cosine_distances(bank._units[view], bank._units[view][rows])
        itself = np.arange(len(bank))[rows], np.arange(distance.shape[1])
        distance[itself] = -1  # before all others
        with_session = (names[:, None] == names[rows]) & (names[rows] != "")
        candidate = np.where(names[rows] != "", with_session, domains[:, None] == domains[rows])
        alike = 1 + np.minimum(siblings[view], largest[rows])
        count = np.where(names[rows] != "", with_session.sum(0), alike)
        count = np.minimum(np.minimum(count, candidate.sum(0)), 1 + most)
        distance = np.where(candidate, distance, np.inf)
        most_hidden = int(count.max())
        nearest = np.argpartition(distance, most_hidden - 1, axis=0)[:most_hidden]
        near = np.take_along_axis(distance, nearest, axis=0)
        nearest = np.take_along_axis(nearest, np.argsort(near, axis=0, kind="stable"), axis=0)
        hidden = np.zeros(distance.shape, np.bool_)
        np.put_along_axis(hidden, nearest, np.arange(most_hidden)[:, None] < count, axis=0)
        return hidden

    named = [name or f"clip {row}" for row, name in enumerate(sessions)]
    groups = named if any(sessions) else None
    external = {
        base: bank._external.within(base, groups=groups)[0]
        for base in bank._batch.external_bases([parsed])
    }
    with bank._batch.exact_products():
        units = bank._on_device(bank._units)
        examined = bank._batch.examine(units, [parsed], hide=hide, external=external)
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
