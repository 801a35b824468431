"""Base anomaly scores of clips against a bank, or against parts of it. Higher is more anomalous."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from daco.method.bases import SCORERS, Base
from daco.method.densities import BaseScores, local_against, local_within
from daco.method.geometry import Views
from daco.validation import Bools, Floats, Indices

WHOLE, BANDS = "whole", "bands"
"""Where a distance to domains is measured: in whole vectors, or as the mean over bands."""

_SPREAD_FLOOR = 1e-12


@dataclass(frozen=True)
class Scored:
    """Scores of n clips against S parts of a bank.

    Attributes
    ----------
    scores : {base: (S, n)}
    domain : {geometry: (S, G, n)}
        Distance to the nearest member of each domain, in the geometries that were asked for.
    """

    scores: BaseScores = field(default_factory=dict)
    domain: dict[str, Floats] = field(default_factory=dict)


def geometry_of(base: Base) -> str:
    """Where the domains of a clip are looked for when this base is calibrated."""
    return BANDS if base.bandwise else WHOLE


def required(bases: Iterable[Base]) -> tuple[list[Base], set[str]]:
    """The bases that must be computed for some bases, and the geometries of domains."""
    parts = list(dict.fromkeys(chain.from_iterable(base.parts() for base in bases)))
    return parts, {WHOLE for base in parts if base.scorer == "genrep"}


def scores_within(
    views: Views,
    domain_starts: Indices,
    bases: Collection[Base],
    members: Bools | None = None,
    geometries: Collection[str] = (),
) -> Scored:
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
    everyone = np.ones((1, len(views.whole)), np.bool_) if members is None else members
    found = Scored()
    for bandwise, geometry in ((False, WHOLE), (True, BANDS)):
        local = [base for base in parts if base.bandwise == bandwise and _is_local(base)]
        if local or geometry in needed:
            seen = (
                local_within(view, domain_starts, local, members, geometry in needed)
                for view in views.of(bandwise)
            )
            _keep(found, seen, local, geometry if geometry in needed else None)
    return _with_derived(found, found, everyone, domain_starts, bases)


def scores_against(
    views: Views,
    query: Floats,
    domain_starts: Indices,
    bases: Collection[Base],
    own: Scored,
    geometries: Collection[str] = (),
) -> Scored:
    """Score new clips, unit rows (n, D), against the whole bank; S is 1.

    ``own`` are the bank's leave-one-out scores: what fusion and standardisation rest on.
    """
    parts, needed = required(bases)
    needed |= set(geometries)
    found = Scored()
    for bandwise, geometry in ((False, WHOLE), (True, BANDS)):
        local = [base for base in parts if base.bandwise == bandwise and _is_local(base)]
        if local or geometry in needed:
            seen = []
            for view, rows in zip(views.of(bandwise), views.rows_of(query, bandwise), strict=True):
                look = view.look(rows)
                with_domains = geometry in needed
                seen.append(local_against(view, look, domain_starts, local, with_domains))
            _keep(found, seen, local, geometry if geometry in needed else None)
    everyone = np.ones((1, len(views.whole)), np.bool_)
    return _with_derived(found, own, everyone, domain_starts, bases)


def expect(views: Views, bases: Iterable[Base]) -> None:
    """Announce bases that will be asked for one after the other: neighbours are sought once."""
    local = [base for base in required(bases)[0] if _is_local(base)]
    geometries = {base.bandwise for base in local}
    if len(geometries) == 2:
        views.together()
    for bandwise in geometries:
        reach = max(base.neighbours for base in local if base.bandwise == bandwise)
        for view in views.of(bandwise):
            view.expect(reach)


def needs_own(base: Base) -> bool:
    """Whether scoring new clips rests on the bank's leave-one-out scores."""
    return bool(base.members) or base.scorer == "genrep"


def _is_local(base: Base) -> bool:
    return SCORERS[base.scorer].local


def _keep(
    found: Scored,
    seen: Iterable[tuple[BaseScores, Floats]],
    local: list[Base],
    geometry: str | None,
) -> None:
    """Average what the views of one geometry say, one view at a time."""
    views = iter(seen)
    scores, domain = next(views)
    count = 1
    for more, more_domain in views:
        if count == 1:  # one view alone keeps its precision
            scores = {base: scores[base].astype(np.float64) for base in local}
            domain = domain.astype(np.float64)
        for base in local:
            scores[base] += more[base]
        domain += more_domain
        count += 1
    if count > 1:
        scores = {base: total / count for base, total in scores.items()}
        domain = domain / count
    found.scores.update(scores)
    if geometry is not None:
        found.domain[geometry] = domain


def _with_derived(
    found: Scored, own: Scored, members: Bools, domain_starts: Indices, bases: Collection[Base]
) -> Scored:
    """Add the scores that are made of others: nearest domains standardised, and fusions."""
    for base in required(bases)[0]:
        if base.scorer == "genrep":
            found.scores[base] = genrep_scores(
                own.domain[WHOLE], members, domain_starts, found.domain[WHOLE]
            )
    for base in bases:
        if base.members:
            found.scores[base] = fused(
                [own.scores[member] for member in base.members],
                members,
                [found.scores[member] for member in base.members],
            )
    return found


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
    >>> from daco.method.scorers import genrep_scores
    >>> source, target = [0.1, 0.1, 0.1, 0.1, 9, 9, 9], [9, 9, 9, 9, 0.2, 0.4, 0.6]
    >>> own, clip = np.array([[source, target]]), np.array([[[0.3], [0.5]]])
    >>> genrep_scores(own, np.ones((1, 7), bool), np.array([0, 4, 7]), clip).round(3)
    array([[0.612]])
    """
    scores = np.full((len(members), domain_distance.shape[2]), np.inf)
    sizes = np.diff(domain_starts)
    target = len(sizes) - 1 - int(sizes[::-1].argmin())  # of equally small domains the last
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


def fused(own: Sequence[Floats], members: Bools, scores: Sequence[Floats]) -> NDArray[np.float64]:
    """The smallest of several standardised scores.

    A clip has to look odd to every scorer before it counts as odd.

    Parameters
    ----------
    own : one (S, N) per scorer
        Leave-one-out scores of the bank's clips; only those of members count.
    members : (S, N) bool
    scores : one (S, n) per scorer
        What is fused.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.scorers import fused
    >>> own = [np.array([[0.0, 2.0]]), np.array([[10.0, 30.0]])]
    >>> fused(own, np.ones((1, 2), bool), [np.array([[3.0]]), np.array([[25.0]])])
    array([[0.5]])
    """
    counts = members.sum(axis=1, keepdims=True)
    smallest = np.full(scores[0].shape, np.inf)
    for normal, score in zip(own, scores, strict=True):
        inside = np.where(members, normal, 0).astype(np.float64)
        mean = inside.sum(axis=1, keepdims=True) / counts
        deviation = np.where(members, inside - mean, 0)
        spread = np.sqrt((deviation**2).sum(axis=1, keepdims=True) / counts)
        np.minimum(smallest, (score - mean) / np.maximum(spread, _SPREAD_FLOOR), out=smallest)
    return smallest
