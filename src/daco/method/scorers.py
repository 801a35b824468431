"""Base anomaly scores of clips against a bank, or against parts of it. Higher is more anomalous."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from daco.method.bases import SCORERS, Base
from daco.method.densities import BaseScores, local_against, local_within
from daco.method.fusion import fused
from daco.method.geometry import Views
from daco.method.mixup import (
    genrep_scores,
    mixed_domain_distance_against,
    mixed_domain_distance_within,
)
from daco.method.subspace import residuals_of, residuals_within
from daco.validation import Bools, Floats, Indices

WHOLE, BANDS, MIXED = "whole", "bands", "mixed"
"""Where a distance to domains is measured: whole vectors, the mean over bands, or whole
vectors with the smallest domain enriched by mixtures."""

_MEASURED_IN = {"memmix": MIXED, "genrep": WHOLE, "genrep-mix": MIXED}


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
    return parts, {_MEASURED_IN[base.scorer] for base in parts if base.scorer in _MEASURED_IN}


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
    if MIXED in needed:
        found.domain[MIXED] = mixed_domain_distance_within(
            views.whole.distances, everyone, domain_starts
        )
    directions = [base.neighbours for base in parts if base.scorer == "pca"]
    if directions:
        residuals = residuals_within(views.whole.unit, everyone, directions)
        found.scores.update({Base("pca", d): residuals[d] for d in directions})
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
        mixing = MIXED in needed and not bandwise
        if local or geometry in needed or mixing:
            seen = []
            for view, rows in zip(views.of(bandwise), views.rows_of(query, bandwise), strict=True):
                look = view.look(rows)
                with_domains = geometry in needed
                seen.append(local_against(view, look, domain_starts, local, with_domains))
            _keep(found, seen, local, geometry if geometry in needed else None)
            if mixing:
                pairs = views.target_distances(domain_starts)
                found.domain[MIXED] = mixed_domain_distance_against(
                    look.distances, pairs, domain_starts
                )
    directions = [base.neighbours for base in parts if base.scorer == "pca"]
    if directions:
        residuals = residuals_of(views.directions(max(directions)), query, directions)
        found.scores.update({Base("pca", d): residuals[d][None] for d in directions})
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
    return any(part.scorer in ("genrep", "genrep-mix") for part in base.parts()) or bool(
        base.members
    )


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
        if base.scorer == "memmix":
            found.scores[base] = found.domain[MIXED].min(axis=1)
        elif base.scorer in ("genrep", "genrep-mix"):
            at = _MEASURED_IN[base.scorer]
            found.scores[base] = genrep_scores(
                own.domain[at], members, domain_starts, found.domain[at]
            )
    for base in bases:
        if base.members:
            found.scores[base] = fused(
                [own.scores[member] for member in base.members],
                members,
                [found.scores[member] for member in base.members],
            )
    return found
