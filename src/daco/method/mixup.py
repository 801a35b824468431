"""MemMixup and GenRep: a small domain enriched by mixtures, and domains standardised.

The smallest domain, the target, gets a mixture of every clip t of it with every clip s of the
other domains, ``MIX * t + (1 - MIX) * s``. Its cosine distance follows from those of t and s,
so that no mixture is ever made.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from daco.method.distances import TILE, PairwiseDistances
from daco.validation import Bools, Floats, Indices

MIX = 0.9
"""Share of the target clip in a mixture, as published."""

_NOISE_ULPS = 32  # as for other distances: less is rounding
_SPREAD_FLOOR = 1e-12
_COLUMNS_AT_ONCE = 512  # of a block: its mixtures stay in the cache


def target_domain(domain_starts: Indices) -> int:
    """The smallest domain; of equally small ones the last.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.mixup import target_domain
    >>> target_domain(np.array([0, 990, 1000]))
    1
    """
    sizes = np.diff(domain_starts)
    return len(sizes) - 1 - int(sizes[::-1].argmin())


def target_clips(domain_starts: Indices) -> NDArray[np.intp]:
    """The rows of the smallest domain."""
    domain = target_domain(domain_starts)
    return np.arange(domain_starts[domain], domain_starts[domain + 1])


def target_distances(distances: PairwiseDistances, targets: NDArray[np.intp]) -> Floats:
    """Distances (len(targets), N) of some clips, by the products that all others have."""
    found = np.empty((len(targets), len(distances)), distances.unit.dtype)
    for rows, columns, block in distances.blocks():
        here = np.flatnonzero((targets >= rows.start) & (targets < rows.stop))
        found[here, columns] = block[targets[here] - rows.start]
    return found


def mixed_domain_distance_against(
    query_distances: Floats, pair_distances: Floats, domain_starts: Indices
) -> Floats:
    """Distance of new clips to each domain, the smallest one enriched: (1, G, n).

    Parameters
    ----------
    query_distances : (N, n)
        Distances of the bank's clips to the new ones.
    pair_distances : (n_target, N)
        Distances of the clips of the smallest domain to all clips of the bank, as from
        ``target_distances``; a clip's distance to itself is not looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.mixup import mixed_domain_distance_against
    >>> to_query = np.array([[0.2], [0.4], [0.1]])  # two clips of the source, one of the target
    >>> pairs = np.array([[0.3, 0.5, np.inf]])
    >>> mixed_domain_distance_against(to_query, pairs, np.array([0, 2, 3])).round(3)
    array([[[0.2  ],
            [0.085]]])
    """
    n, everyone = len(query_distances), np.ones((1, len(query_distances)), np.bool_)
    shape = 1, len(domain_starts) - 1, query_distances.shape[1]
    nearest = np.full(shape, np.inf, query_distances.dtype)
    _lower_plain(nearest, query_distances, slice(0, n), everyone, domain_starts)
    targets = target_clips(domain_starts)
    mixtures = _Mixtures(targets, pair_distances, everyone, domain_starts)
    mixtures.lower(
        nearest[:, target_domain(domain_starts)],
        query_distances,
        slice(0, n),
        query_distances[targets],
    )
    return _without_noise(nearest)


def mixed_domain_distance_within(
    distances: PairwiseDistances, members: Bools, domain_starts: Indices
) -> Floats:
    """The same for the bank's own clips against subsets of it, (S, N) bool: (S, G, N).

    A clip is compared neither with itself nor with a mixture that it takes part in. A domain
    without members is infinitely far.
    """
    shape = len(members), len(domain_starts) - 1, len(distances)
    nearest = np.full(shape, np.inf, distances.unit.dtype)
    enriched = nearest[:, target_domain(domain_starts)]
    every_target = target_clips(domain_starts)
    for first in range(0, len(every_target), TILE):
        targets = every_target[first : first + TILE]
        pairs = target_distances(distances, targets)
        mixtures = _Mixtures(targets, pairs, members, domain_starts)
        for rows, columns, block in distances.blocks():
            if first == 0:
                _lower_plain(nearest[:, :, columns], block, rows, members, domain_starts)
            mixtures.lower(enriched[:, columns], block, rows, pairs[:, columns])
    return _without_noise(nearest)


def genrep_scores(
    own_domain: Floats, members: Bools, domain_starts: Indices, domain_distance: Floats
) -> NDArray[np.float64]:
    """Distance to the nearest domain, each standardised by what its own clips have: (S, n).

    A domain's distances are centred on the mean distance of its members to their nearest other
    member, and divided by the standard deviation of that distance in the smallest domain, one
    for all domains. A domain with one member has no such distance: the mean over the members
    of all domains stands in for its own. Where the smallest domain has no spread, with one
    member or two, that of all members about their domains' means stands in. With no distance
    inside any domain nothing is standardised.

    Parameters
    ----------
    own_domain : (S, G, N)
        Distance of each clip of the bank, left out, to each domain.
    members : (S, N) bool
    domain_distance : (S, G, n)
        Distances of the clips to score.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.mixup import genrep_scores
    >>> source, target = [0.1, 0.1, 0.1, 0.1, 9, 9, 9], [9, 9, 9, 9, 0.2, 0.4, 0.6]
    >>> own, clip = np.array([[source, target]]), np.array([[[0.3], [0.5]]])
    >>> genrep_scores(own, np.ones((1, 7), bool), np.array([0, 4, 7]), clip).round(3)
    array([[0.612]])
    """
    scores = np.full((len(members), domain_distance.shape[2]), np.inf)
    target = target_domain(domain_starts)
    for s, member in enumerate(members):
        inside = []
        for g, (start, stop) in enumerate(pairwise(domain_starts)):
            own = own_domain[s, g, start:stop][member[start:stop]].astype(np.float64)
            inside.append(own[np.isfinite(own)])
        pooled = np.concatenate(inside)
        typical = pooled.mean() if pooled.size else 0.0
        means = [own.mean() if own.size else typical for own in inside]
        spread = inside[target].std() if inside[target].size else 0.0
        if spread <= _SPREAD_FLOOR and pooled.size:
            spread = np.concatenate(
                [own - mean for own, mean in zip(inside, means, strict=True)]
            ).std()
        spread = max(spread, _SPREAD_FLOOR) if pooled.size else 1.0
        for mean, distance in zip(means, domain_distance[s], strict=True):
            np.minimum(scores[s], distance - mean, out=scores[s])
        scores[s] /= spread
    return scores


def _lower_plain(
    nearest: Floats, block: Floats, rows: slice, members: Bools, domain_starts: Indices
) -> None:
    """Lower the distances (S, G, n) of a block's columns by the members among its rows."""
    for g, (start, stop) in enumerate(pairwise(domain_starts)):
        inside = slice(max(start, rows.start), min(stop, rows.stop))
        for s, member in enumerate(members[:, inside]):
            chosen = np.flatnonzero(member) + (inside.start - rows.start)
            if chosen.size:
                np.minimum(nearest[s, g], block[chosen].min(axis=0), out=nearest[s, g])


class _Mixtures:
    """Mixtures of some target clips with the clips of the other domains.

    With d(t, s) the length of a mixture is ``sqrt(1 - 2 MIX (1 - MIX) d(t, s))``, its distance
    ``(MIX d(q, t) + (1 - MIX) d(q, s) - (1 - length)) / length``.
    """

    def __init__(
        self,
        targets: NDArray[np.intp],
        pair_distances: Floats,
        members: Bools,
        domain_starts: Indices,
    ) -> None:
        self._targets, self._members = targets, members
        domain = target_domain(domain_starts)
        self._domain = slice(domain_starts[domain], domain_starts[domain + 1])
        shared = 2 * MIX * (1 - MIX) * np.where(np.isfinite(pair_distances), pair_distances, 0)
        length = np.sqrt(1 - shared)
        self._short = (shared / (1 + length)).astype(pair_distances.dtype)
        self._scale = (1 / length).astype(pair_distances.dtype)

    def lower(self, nearest: Floats, block: Floats, rows: slice, to_targets: Floats) -> None:
        """Lower the distances (S, n) of a block's columns by its rows' mixtures."""
        clips = np.arange(rows.start, rows.stop)
        clips = clips[(clips < self._domain.start) | (clips >= self._domain.stop)]
        if not clips.size:
            return
        chosen = [np.flatnonzero(member) for member in self._members[:, clips]]
        for start in range(0, block.shape[1], _COLUMNS_AT_ONCE):
            columns = slice(start, start + _COLUMNS_AT_ONCE)
            parts = block[clips - rows.start, columns] * block.dtype.type(1 - MIX)
            smallest = parts.min(axis=0)
            for t, target in enumerate(self._targets):
                subsets = np.flatnonzero(self._members[:, target])
                if not subsets.size:
                    continue
                near = to_targets[t, columns] * block.dtype.type(MIX)
                short, scale = self._short[t, clips, None], self._scale[t, clips, None]
                # Mixtures are no longer than 1: none with this target can be nearer than this.
                bound = smallest + near - short.max()
                within_reach = np.flatnonzero(bound < nearest[subsets, columns].max(axis=0))
                mixed = parts.take(within_reach, axis=1)
                mixed += near[within_reach]
                mixed -= short
                mixed *= scale
                for s in subsets:
                    if chosen[s].size:
                        into = nearest[s, columns]
                        found = mixed[chosen[s]].min(axis=0)
                        into[within_reach] = np.minimum(into[within_reach], found)


def _without_noise(distances: Floats) -> Floats:
    distances[distances < _NOISE_ULPS * np.finfo(distances.dtype).eps] = 0
    return distances
