"""Base anomaly scores of clips against a bank, or against parts of it. Higher is more anomalous.

Arrays have an axis S of subsets of the bank; tensors of many machines have machines and subsets in
that axis (:mod:`daco.method.kernels`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np

from daco.method.bases import SCORERS, Base
from daco.method.densities import BaseScores, local_against, local_within
from daco.method.geometry import Space, Spaces
from daco.method.kernels import Array, kernels
from daco.validation import Bools, Indices

WHOLE, BANDS = "whole", "bands"
"""Where a distance to domains is measured: in whole vectors, or as the mean over bands."""

_SPREAD_FLOOR = 1e-12


@dataclass(frozen=True)
class SubsetScores:
    """Scores of n clips against S parts of a bank.

    Attributes
    ----------
    scores : {base: (S, n)}
    domain : {geometry: (S, G, n)}
        Distance to the nearest member of each domain, in the geometries that were asked for.
    nearest : (index, distance), optional
        The nearest normal of each clip in whole vectors.
    """

    scores: BaseScores = field(default_factory=dict)
    domain: dict[str, Array] = field(default_factory=dict)
    nearest: tuple[Array, Array] | None = None


def geometry_of(base: Base) -> str:
    """Where the domains of a clip are looked for when this base is calibrated."""
    return BANDS if base.bandwise else WHOLE


def required(bases: Iterable[Base]) -> tuple[list[Base], set[str]]:
    """The bases that must be computed for some bases, and the geometries of domains."""
    parts = list(dict.fromkeys(chain.from_iterable(base.parts() for base in bases)))
    return parts, {WHOLE for base in parts if base.scorer == "genrep"}


def scores_within(
    spaces: Spaces,
    domain_starts: Indices,
    bases: Collection[Base],
    members: Bools | None = None,
    geometries: Collection[str] = (),
) -> SubsetScores:
    """Score every clip of the bank against subsets of the bank, itself excluded.

    Parameters
    ----------
    members : (S, N) bool or None
        The subsets; None is the whole bank (S = 1), which gives leave-one-out scores.
    geometries : collection of str
        Where the distance to each domain is wanted too.
    """
    parts, needed = required(bases)
    needed |= set(geometries)
    everyone = np.ones((1, len(spaces.whole)), np.bool_) if members is None else members
    result = SubsetScores()
    for bandwise, geometry in ((False, WHOLE), (True, BANDS)):
        local = [base for base in parts if base.bandwise == bandwise and _is_local(base)]
        if local or geometry in needed:
            by_space = (
                local_within(space, domain_starts, local, members, geometry in needed)
                for space in spaces.of(bandwise)
            )
            _add_mean(result, by_space, geometry if geometry in needed else None)
    _add_derived(result, result, everyone, domain_starts, bases)
    return result


def scores_against(
    spaces: Spaces,
    query: Array,
    domain_starts: Indices,
    bases: Collection[Base],
    own: SubsetScores,
    geometries: Collection[str] = (),
    with_nearest: bool = False,
    hidden: Array | None = None,
) -> SubsetScores:
    """Score new clips, unit rows (..., n, D), against the whole bank; S is 1.

    ``own`` are the bank's leave-one-out scores, for fusion and standardisation. The
    distances of each geometry are computed once for all that is asked for. Normals that are
    ``hidden`` (N, n) from a clip are infinitely far from it.
    """

    def distances_to(space: Space, rows: Array) -> Array:
        distances = space.distances_to(rows)
        return distances if hidden is None else K.xp.where(hidden, float("inf"), distances)

    K = kernels(query)
    parts, needed = required(bases)
    needed |= set(geometries)
    distances = distances_to(spaces.whole, query) if with_nearest else None
    result = SubsetScores(nearest=None if distances is None else K.nearest(distances))
    for bandwise, geometry in ((False, WHOLE), (True, BANDS)):
        local = [base for base in parts if base.bandwise == bandwise and _is_local(base)]
        if local or geometry in needed:
            rows_by_space = zip(spaces.of(bandwise), spaces.rows_of(query, bandwise), strict=True)
            by_space = (
                local_against(
                    space,
                    distances
                    if distances is not None and space is spaces.whole
                    else distances_to(space, rows),
                    domain_starts,
                    local,
                    geometry in needed,
                )
                for space, rows in rows_by_space
            )
            _add_mean(result, by_space, geometry if geometry in needed else None)
    everyone = np.ones((1, len(spaces.whole)), np.bool_)
    _add_derived(result, own, everyone, domain_starts, bases)
    return result


def expect(spaces: Spaces, bases: Iterable[Base]) -> None:
    """Announce bases that will be asked for one after the other: neighbours are sought once."""
    local = [base for base in required(bases)[0] if _is_local(base)]
    geometries = {base.bandwise for base in local}
    if len(geometries) == 2:
        spaces.together()
    for bandwise in geometries:
        reach = max(base.neighbours for base in local if base.bandwise == bandwise)
        for space in spaces.of(bandwise):
            space.expect(reach)


def needs_own(base: Base) -> bool:
    """Whether scoring new clips rests on the bank's leave-one-out scores."""
    return bool(base.members) or base.scorer == "genrep"


def clips_needed(base: Base, spare: int) -> tuple[int, str]:
    """The fewest clips of a bank that a base score can do with, and what for.

    ``spare`` is 1 where each clip is left out once.
    """
    if base.is_vote:
        return 3, "each with two others to compare"
    needs = []
    for part in base.parts():
        n = part.neighbours
        if part.scorer.startswith("dldn") or not n:
            needs.append((1 + spare, "each with a neighbour"))
        else:
            needs.append((n + spare, f"each with {n} neighbour{'s' * (n > 1)}"))
    return max(needs)


def _is_local(base: Base) -> bool:
    return SCORERS[base.scorer].local


def _add_mean(
    result: SubsetScores, by_space: Iterable[tuple[BaseScores, Array]], geometry: str | None
) -> None:
    """Average the scores of the spaces of one geometry, one space at a time."""
    spaces = iter(by_space)
    scores, domain = next(spaces)
    count = 1
    for more, more_domain in spaces:
        if count == 1:  # one space alone keeps its precision
            K = kernels(domain)
            scores = {base: K.double(values) for base, values in scores.items()}
            domain = K.double(domain)
        for base, values in more.items():
            scores[base] += values
        domain += more_domain
        count += 1
    if count > 1:
        scores = {base: total / count for base, total in scores.items()}
        domain = domain / count
    result.scores.update(scores)
    if geometry is not None:
        result.domain[geometry] = domain


def _add_derived(
    result: SubsetScores,
    own: SubsetScores,
    members: Bools,
    domain_starts: Indices,
    bases: Collection[Base],
) -> None:
    """Add the scores that are made of others: nearest domains standardised, and fusions."""
    for base in required(bases)[0]:
        if base.scorer == "genrep":
            result.scores[base] = genrep_scores(
                own.domain[WHOLE], members, domain_starts, result.domain[WHOLE]
            )
    for base in bases:
        if base.members:
            result.scores[base] = fused(
                [own.scores[member] for member in base.members],
                members,
                [result.scores[member] for member in base.members],
            )


def genrep_scores(
    own_domain: Array, members: Bools, domain_starts: Indices, domain_distance: Array
) -> Array:
    """Distance to the nearest domain, each standardised by its own clips: (S, n).

    A domain's distances are centred on the mean distance of its members to their nearest other
    member (of all members, if it has one only) and divided by the standard deviation of that
    distance in the smallest domain (about the domains' means, if it has one or two members).

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
    >>> from daco.method.scorers import genrep_scores
    >>> source, target = [0.1, 0.1, 0.1, 0.1, 9, 9, 9], [9, 9, 9, 9, 0.2, 0.4, 0.6]
    >>> own, clip = np.array([[source, target]]), np.array([[[0.3], [0.5]]])
    >>> genrep_scores(own, np.ones((1, 7), bool), np.array([0, 4, 7]), clip).round(3)
    array([[0.612]])
    """
    K = kernels(own_domain)
    parts = list(pairwise(domain_starts))
    own = K.double(K.xp.concatenate([own_domain[:, g, a:b] for g, (a, b) in enumerate(parts)], -1))
    real = _of_machines(members, own) & K.xp.isfinite(own)
    own = K.xp.where(real, own, 0)
    pooled_count = real.sum(-1)
    typical = own.sum(-1) / pooled_count.clip(min=1)
    counts = [real[:, a:b].sum(-1) for a, b in parts]
    means = [
        K.xp.where(count > 0, own[:, a:b].sum(-1) / count.clip(min=1), typical)
        for (a, b), count in zip(parts, counts, strict=True)
    ]
    squares = [
        K.xp.where(real[:, a:b], own[:, a:b] - mean[:, None], 0) ** 2
        for (a, b), mean in zip(parts, means, strict=True)
    ]
    sizes = np.diff(domain_starts)
    target = len(sizes) - 1 - int(sizes[::-1].argmin())  # of equally small domains the last
    spread = (squares[target].sum(-1) / counts[target].clip(min=1)) ** 0.5
    # Deviations from the means of domains add up to 0, so that this is a standard deviation.
    all_squares = sum(part.sum(-1) for part in squares)
    of_all = (all_squares / pooled_count.clip(min=1)) ** 0.5
    spread = K.xp.where(spread <= _SPREAD_FLOOR, of_all, spread).clip(min=_SPREAD_FLOOR)
    spread = K.xp.where(pooled_count > 0, spread, 1.0)
    centred = K.double(domain_distance) - K.xp.stack(means, 1)[..., None]
    return K.xp.amin(centred, 1) / spread[:, None]


def fused(own: Sequence[Array], members: Bools, scores: Sequence[Array]) -> Array:
    """The smallest of several standardised scores.

    It is high only for clips that all scorers score high.

    Parameters
    ----------
    own : one (S, N) per scorer
        Leave-one-out scores of the bank's clips; only those of members count.
    members : (S, N) bool
    scores : one (S, n) per scorer
        The scores to fuse.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.scorers import fused
    >>> own = [np.array([[0.0, 2.0]]), np.array([[10.0, 30.0]])]
    >>> fused(own, np.ones((1, 2), bool), [np.array([[3.0]]), np.array([[25.0]])])
    array([[0.5]])
    """
    K = kernels(own[0])
    inside = _of_machines(members, own[0])
    count = int(members[0].sum())
    standardised = []
    for normal, score in zip(own, scores, strict=True):
        normals = K.double(K.xp.where(inside, normal, 0))
        mean = (normals.sum(-1) / count)[:, None]
        deviation = K.xp.where(inside, normals - mean, 0)
        spread = ((deviation**2).sum(-1) / count)[:, None] ** 0.5
        standardised.append((score - mean) / spread.clip(min=_SPREAD_FLOOR))
    return K.xp.amin(K.xp.stack(standardised, 0), 0)


def _of_machines(members: Bools, like: Array) -> Array:
    """Masks (S, N) repeated for every machine of an array (M S, N)."""
    return kernels(like).from_host(np.tile(members, (len(like) // len(members), 1)), like)
