"""Scores of clips by one bank: base scores in every view, blended and calibrated.

A plan lists the base scores that some configurations need; these come from the distances of clips
to the normals in each view, and are then averaged into blends and calibrated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from daco.errors import InputError, NotEnoughClipsError
from daco.method.blend import blend_members, normal_scores, view_mean
from daco.method.calibration import Support, calibrate_grid, temperature_base
from daco.method.config import Base, ScoreConfig
from daco.method.domains import (
    DecisionWeights,
    DomainDistances,
    decision_weights,
    hard_weights,
    soft_weights,
)
from daco.method.external import ExternalScorers
from daco.method.scores import BankView, clips_needed
from daco.validation import Float64s, Floats, Indices

_SAMPLE = 200  # normals of a domain whose distances to the domains are looked at
_NO_DOMAINS = np.empty((0, 0))


@dataclass(frozen=True)
class Plan:
    """The base scores that configurations need in the views of a bank.

    Attributes
    ----------
    configs : tuple of ScoreConfig
    members : tuple of Base
        The members of a blend; empty without one. With one, all views are needed.
    blends, calibrated_blends, external : tuple of Base
        The blends, those that some configuration calibrates, and the external scores.
    assigns : bool
        Whether some configuration assigns clips to domains.
    scored, supported : tuple of Base
        Scores that are needed of clips, and of the normals, in the first view.
    supported_elsewhere : tuple of Base
        Those of the normals in the other views; of clips it is the members.
    """

    configs: tuple[ScoreConfig, ...]
    members: tuple[Base, ...]
    blends: tuple[Base, ...]
    calibrated_blends: tuple[Base, ...]
    external: tuple[Base, ...]
    assigns: bool
    scored: tuple[Base, ...]
    supported: tuple[Base, ...]
    supported_elsewhere: tuple[Base, ...]

    @classmethod
    def of(cls, configs: Sequence[ScoreConfig], n_clips: int) -> Plan:
        """Plan the scores of configurations by a bank of `n_clips`."""
        bases = dict.fromkeys(config.base for config in configs)
        calibrated = dict.fromkeys(config.base for config in configs if config.calibration)
        blends = tuple(base for base in bases if base.is_blend)
        members = blend_members(n_clips) if blends else ()
        labels = dict.fromkeys(label for base in bases for label in base.labels)
        external = tuple(Base("ext", label=label) for label in labels)
        blended = {label for base in blends for label in base.labels}
        soft = [config.base for config in configs if config.assignment == "soft"]
        supported = [base for base in calibrated if not base.is_blend]
        supported += [base for base in external if base.label in blended]
        supported += [temperature_base(base) for base in soft]
        elsewhere = [temperature_base(base) for base in soft if base.is_blend]
        return cls(
            tuple(configs),
            members,
            blends,
            tuple(base for base in blends if base in calibrated),
            external,
            any(config.calibration for config in configs),
            _different([base for base in bases if base.k], members, external),
            _different(supported, members),
            _different(elsewhere, members),
        )

    def n_views(self, available: int) -> int:
        """How many of the views of a bank are needed."""
        return available if self.blends else 1

    def bases(self, view: int) -> tuple[tuple[Base, ...], tuple[Base, ...]]:
        """The base scores of clips, and of normals, that are needed in a view."""
        if view == 0:
            return self.scored, self.supported
        return self.members, self.supported_elsewhere


def _different(*parts: Sequence[Base]) -> tuple[Base, ...]:
    return tuple(dict.fromkeys(base for part in parts for base in part))


@dataclass(frozen=True)
class ViewScores:
    """Base scores of n clips in one view of S banks; external scores are in the first view.

    Attributes
    ----------
    scores : {base: (S, n)}
    supports : {base: Support}
        Leave-one-out scores of the normals.
    domain : (S, G, n)
        Distance of each clip to the nearest normal of each domain.
    """

    scores: Mapping[Base, Floats]
    supports: Mapping[Base, Support]
    domain: Floats


def blend_by_view(base: Base, members: tuple[Base, ...], views: Sequence[ViewScores]) -> Float64s:
    """Mean normal score of the members of each view, (V, S, n); external scorers come last."""
    of_views = [(view, members) for view in views]
    of_views += [(views[0], (Base("ext", label=label),)) for label in base.labels]
    means = []
    for view, bases in of_views:
        ascending = [view.supports[each].pooled for each in bases]
        normal = [
            normal_scores(support, view.scores[each])
            for support, each in zip(ascending, bases, strict=True)
        ]
        means.append(view_mean(normal, ascending))
    return np.array(means)


def grid_scores(
    plan: Plan,
    views: Sequence[ViewScores],
    blend_supports: Mapping[Base, Support],
    oracle: Float64s | None = None,
) -> tuple[Float64s, dict[Base, Float64s]]:
    """Scores of every configuration, (C, S, n), and the parts (V, S, n) of the blends.

    Parameters
    ----------
    plan : Plan
    views : one ViewScores for each view that the plan needs
        Configurations that are not blends see the first.
    blend_supports : {blend: Support}
        Of the blends that some configuration calibrates.
    oracle : (S, G, n), optional
        Weights of the true domains.
    """
    scores = dict(views[0].scores)
    parts = {base: blend_by_view(base, plan.members, views) for base in plan.blends}
    for base, by_view in parts.items():
        scores[base] = by_view.mean(axis=0)
    known: dict[tuple[str | None, Base, bool], Float64s] = {}

    def weights_of(config: ScoreConfig) -> Float64s:
        if config.assignment == "oracle" and oracle is not None:
            return oracle
        key = config.assignment, temperature_base(config.base), config.base.is_blend
        if key not in known:
            known[key] = paper_weights(config, views if config.base.is_blend else views[:1])
        return known[key]

    supports = {**views[0].supports, **blend_supports}
    return calibrate_grid(plan.configs, scores, supports, weights_of), parts


def paper_weights(config: ScoreConfig, views: Sequence[ViewScores]) -> Float64s:
    """Domain weights (S, G, n) of the paper, the mean over views."""
    if config.assignment == "hard":
        weights = [hard_weights(view.domain) for view in views]
    else:
        base = temperature_base(config.base)
        weights = [soft_weights(view.domain, view.supports[base].typical) for view in views]
    return weights[0] if len(weights) == 1 else np.mean(weights, axis=0)


def require_clips(configs: Sequence[ScoreConfig], n: int, left: int | None = None) -> None:
    """Raise an error where a bank of n clips, of which `left` remain, is too small."""
    available = n if left is None else left
    for config in configs:
        needed = clips_needed(config.base)
        if config.calibration is None and config.scorer in ("knn", "ext") and left is None:
            needed -= 1  # no normal is left out
        if available < needed:
            half = (
                f" once half of each domain is held out (of {n})" if left not in (None, n) else ""
            )
            has = f"{available} clips" if available > 1 else "one (n_samples=1)"
            raise NotEnoughClipsError(
                f"{config.name!r} needs a bank of {needed} clips. This bank has {has}{half}. "
                f"Add normal clips{' or choose fewer neighbours' if config.k > 1 else ''}."
            )


def refuse_oracle(grid: Sequence[ScoreConfig]) -> None:
    """Raise an InputError for a configuration that reads the true domains of test clips."""
    for config in grid:
        if config.assignment == "oracle":
            raise InputError(
                f"{config.name!r} reads the true domain of each clip, which is not known here. Use "
                "its 'soft' or 'hard' form."
            )


@dataclass(frozen=True, eq=False)
class ClipScores:
    """Scores, domain weights and nearest normals of n clips.

    Attributes
    ----------
    scores : (n,)
        Higher is more anomalous.
    weights : (n, G)
        How strongly each clip belongs to each domain, for the decision.
    nearest, distance : (n,)
        Row of the most similar normal in the first view, and its cosine distance.
    by_view : (n, V) or None
        Of a blend, the part of each view: deviations above the median of the normals.
    hidden : (n,) int or None
        Of clips of the bank, how many others were hidden, the most in any view.
    """

    scores: Float64s
    weights: Float64s
    nearest: Indices
    distance: Float64s
    by_view: Float64s | None = None
    hidden: Indices | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: Any) -> ClipScores:
        """Return some of the clips."""
        values = {name: None if v is None else v[rows] for name, v in vars(self).items()}
        return replace(self, **values)  # type: ignore[arg-type]


class BankScores:
    """What the scores of all clips share: the views of a bank, and its leave-one-out scores.

    Parameters
    ----------
    views : sequence of BankView
    external : ExternalScorers
    """

    def __init__(self, views: Sequence[BankView], external: ExternalScorers) -> None:
        self.views = views
        self.starts = views[0].starts
        self.external = external
        self._supports: list[dict[Base, Support]] = [{} for _ in views]
        self._blends: dict[Base, Support] = {}

    def support(self, v: int, bases: Sequence[Base]) -> dict[Base, Support]:
        """Leave-one-out scores of the normals in a view, computed once."""
        known = self._supports[v]
        missing = [base for base in bases if base not in known]
        if missing:
            local = [base for base in missing if base.k]
            scores = self.views[v].leave_one_out(local) if local else {}
            for base in missing:
                values = scores[base][None] if base.k else self.external.within(base.label)
                known[base] = Support(values, self.starts)
        return known

    def blend_supports(self, plan: Plan) -> dict[Base, Support]:
        """Scores of the normals by the blends that some configuration calibrates."""
        for base in plan.calibrated_blends:
            if base not in self._blends:
                own = self.own_views(
                    Plan.of([ScoreConfig("blend", label=base.label)], self.starts[-1])
                )
                blended = blend_by_view(base, plan.members, own).mean(axis=0)
                self._blends[base] = Support(blended, self.starts)
        return self._blends

    def own_views(self, plan: Plan) -> list[ViewScores]:
        """Base scores of the normals, each left out."""
        views = []
        for v, bank in enumerate(self.views[: plan.n_views(len(self.views))]):
            scored, supported = plan.bases(v)
            supports = self.support(v, [*scored, *supported])
            scores = {base: support.scores for base, support in supports.items()}
            views.append(ViewScores(scores, supports, bank.own_domain_distances()[None]))
        return views

    def grid_scores(
        self,
        plan: Plan,
        distances: Sequence[Floats],
        external: Mapping[Base, Float64s],
        oracle: Float64s | None = None,
        left_out: bool = False,
    ) -> tuple[Float64s, dict[Base, Float64s]]:
        """Scores (C, 1, n) of clips by their distances in the views that the plan needs.

        Clips of the bank itself are `left_out` of its densities as well.
        """
        views = []
        for v in range(plan.n_views(len(self.views))):
            scored, supported = plan.bases(v)
            supports = self.support(v, supported)
            local = [base for base in scored if base.k]
            of_clips = self.views[v].scores(local, distances[v], left_out)
            scores = {base: values[None] for base, values in of_clips.items()}
            if v == 0:
                scores |= {base: values[None] for base, values in external.items()}
            domain = self.views[v].domain_distances(distances[v]) if plan.assigns else _NO_DOMAINS
            views.append(ViewScores(scores, supports, domain[None]))
        return grid_scores(plan, views, self.blend_supports(plan), oracle)

    def examined(
        self,
        plan: Plan,
        distances: Sequence[Floats],
        external: Mapping[Base, Float64s],
        hidden: Indices | None = None,
    ) -> ClipScores:
        """Scores by the plan's one configuration, domain weights and nearest normals.

        `hidden` counts the siblings that are hidden from each clip, if clips are of the bank.
        """
        scores, parts = self.grid_scores(plan, distances, external, left_out=hidden is not None)
        by_view = parts.get(plan.configs[0].base)
        index, distance = nearest_normals(distances[0])
        return ClipScores(
            scores[0, 0],
            self._weights(distances),
            index,
            distance,
            None if by_view is None else by_view[:, 0].T,
            hidden,
        )

    def _weights(self, distances: Sequence[Floats]) -> Float64s:
        """How strongly clips belong to the domains, (n, G)."""
        if len(self.starts) == 2:
            return np.ones((distances[0].shape[1], 1))
        clips = [DomainDistances.of(each.T, self.starts) for each in distances]
        return decision_weights(self._weight_models, clips)

    @cached_property
    def _weight_models(self) -> list[DecisionWeights]:
        """The weights of each view, fitted to some normals of each domain."""
        parts = [np.arange(a, b, -(-(b - a) // _SAMPLE)) for a, b in pairwise(self.starts)]
        codes = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        rows = np.concatenate(parts)
        return [
            DecisionWeights(DomainDistances.of(view.distances.rows(rows), self.starts), codes)
            for view in self.views
        ]


def nearest_normals(distances: Floats) -> tuple[Indices, Float64s]:
    """Row and value of the smallest distance in each column."""
    index = distances.argmin(axis=0)
    return index, distances[index, np.arange(distances.shape[1])].astype(np.float64)


def joined(parts: Sequence[ClipScores]) -> ClipScores:
    """All clips of several parts."""
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return ClipScores(*(None if c[0] is None else np.concatenate(c) for c in columns))  # type: ignore[arg-type]
