"""Scores of clips by one bank: base scores in every view, blended and calibrated.

A `Plan` lists the base scores that some configurations need. `BankScores` computes them from the
distances of clips to the normals, and the criterion for halves of a bank; `grid_scores` averages
them into blends and calibrates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np

from daco.errors import InputError, NotEnoughClipsError
from daco.method.blend import blend_members, view_blend
from daco.method.calibration import CalibratedScores, Support, temperature_base
from daco.method.config import Base, ScoreConfig
from daco.method.domains import DecisionWeights, hard_weights, soft_weights
from daco.method.external import ExternalScorers
from daco.method.scores import BankView, clips_needed
from daco.validation import Float64s, Floats, Indices

_SAMPLE = 200  # normals of a domain whose distances to the domains are looked at
_NO_DOMAINS = np.empty((0, 0))


class Plan:
    """The base scores that are needed: those of blends in all views, others in the first."""

    def __init__(self, configs: Sequence[ScoreConfig], n_clips: int) -> None:
        bases = _different(config.base for config in configs)
        calibrated = _different(config.base for config in configs if config.calibration)
        self.configs = tuple(configs)
        self.assigns = bool(calibrated)
        self.blends = tuple(base for base in bases if base.is_blend)
        self.calibrated_blends = tuple(base for base in self.blends if base in calibrated)
        self.members = blend_members(n_clips) if self.blends else ()
        self.external = _different(_external(label) for base in bases for label in base.labels)
        soft = [config.base for config in configs if config.assignment == "soft"]
        blended = [_external(label) for base in self.blends for label in base.labels]
        local = [base for base in bases if base.k]
        plain = [base for base in calibrated if not base.is_blend]
        warm = [temperature_base(base) for base in soft]
        elsewhere = [temperature_base(base) for base in soft if base.is_blend]
        self._scored = _different([*local, *self.members, *self.external]), self.members
        self._supported = (
            _different([*plain, *blended, *warm, *self.members]),
            _different([*elsewhere, *self.members]),
        )

    def n_views(self, available: int) -> int:
        """How many of the views of a bank are needed."""
        return available if self.blends else 1

    def scored(self, view: int) -> tuple[Base, ...]:
        """The scores of clips that are needed in a view."""
        return self._scored[min(view, 1)]

    def supported(self, view: int) -> tuple[Base, ...]:
        """The scores of normals that are needed in a view."""
        return self._supported[min(view, 1)]


def _different(bases: Iterable[Base]) -> tuple[Base, ...]:
    return tuple(dict.fromkeys(bases))


def _external(label: str) -> Base:
    return Base("ext", label=label)


@dataclass(frozen=True)
class Block:
    """Distances (N, n) of clips by view, external scores, how many were `hidden` of normals."""

    distances: list[Floats]
    external: dict[Base, Float64s]
    hidden: Indices | None = None


@dataclass(frozen=True)
class ViewScores:
    """Scores (S, n), leave-one-out scores, and distances (S, G, n) to domains, in one view."""

    scores: Mapping[Base, Floats]
    supports: Mapping[Base, Support]
    domain: Floats


def blend_by_view(base: Base, plan: Plan, views: Sequence[ViewScores]) -> Float64s:
    """The part of each view in a blend, (V, S, n); external scorers come last."""
    groups = [(view, plan.members) for view in views]
    groups += [(views[0], (_external(label),)) for label in base.labels]
    return np.array(
        [
            view_blend(
                [view.scores[each] for each in bases], [view.supports[each] for each in bases]
            )
            for view, bases in groups
        ]
    )


def grid_scores(
    plan: Plan,
    views: Sequence[ViewScores],
    blend_supports: Mapping[Base, Support],
    oracle: Float64s | None = None,
) -> tuple[Float64s, dict[Base, Float64s]]:
    """Scores of every configuration, (C, S, n), and the parts (V, S, n) of the blends."""
    parts = {base: blend_by_view(base, plan, views) for base in plan.blends}
    scores = {**views[0].scores, **{base: each.mean(axis=0) for base, each in parts.items()}}
    supports = {**views[0].supports, **blend_supports}
    known: dict[Any, Float64s] = {}
    rows_of: dict[Base, list[int]] = {}
    for row, config in enumerate(plan.configs):
        rows_of.setdefault(config.base, []).append(row)
    out = np.empty((len(plan.configs), *scores[plan.configs[0].base].shape))
    for base, rows in rows_of.items():  # one at a time: a base's maps are large
        calibrated = None
        for row in rows:
            config = plan.configs[row]
            if config.calibration is None:
                out[row] = scores[base]
                continue
            if calibrated is None:
                calibrated = CalibratedScores(scores[base], supports[base], base.signed)
            key = config.assignment, temperature_base(base), base.is_blend
            if key not in known:
                known[key] = paper_weights(config, views, oracle)
            out[row] = calibrated.calibrate(config, known[key])
    return out, parts


def paper_weights(
    config: ScoreConfig, views: Sequence[ViewScores], oracle: Float64s | None = None
) -> Float64s:
    """Domain weights (S, G, n) of the paper; of a blend the mean over views."""
    if config.assignment == "oracle" and oracle is not None:
        return oracle
    used = views if config.base.is_blend else views[:1]
    if config.assignment == "hard":
        weights = [hard_weights(view.domain) for view in used]
    else:
        base = temperature_base(config.base)
        weights = [soft_weights(view.domain, view.supports[base].typical) for view in used]
    return weights[0] if len(weights) == 1 else np.mean(weights, axis=0)


@dataclass(frozen=True, eq=False)
class ClipScores:
    """Scores, domain weights and nearest normals of n clips.

    Attributes
    ----------
    scores, weights : (n,), (n, G)
        Higher is more anomalous; how strongly each clip belongs to each domain, for the decision.
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

    def take(self, rows: Any) -> Self:
        """Return some of the clips."""
        columns = {name: None if v is None else v[rows] for name, v in vars(self).items()}
        return type(self)(**columns)  # type: ignore[arg-type]


class BankScores:
    """What the scores of all clips share; ``order`` are the rows of the normals as given."""

    def __init__(
        self, banks: Sequence[BankView], external: ExternalScorers, order: Indices
    ) -> None:
        self._banks, self._external, self._order = banks, external, order
        self._starts = banks[0].starts
        self._known: list[dict[Base, Support]] = [{} for _ in banks]
        self._blends: dict[Base, Support] = {}

    def grid(
        self, plan: Plan, block: Block, oracle: Float64s | None = None
    ) -> tuple[Float64s, dict[Base, Float64s]]:
        """Scores (C, 1, n) of the clips of a block, and the parts of the blends."""
        return grid_scores(plan, self.views(plan, block), self._blend_supports(plan), oracle)

    def leave_one_out(self, plan: Plan, oracle: Float64s) -> Float64s:
        """Scores (C, N) of the normals by all the others."""
        views, blends = self._own_views(plan), self._blend_supports(plan)
        return grid_scores(plan, views, blends, oracle)[0][:, 0]

    def examined(self, plan: Plan, blocks: Iterable[Block]) -> ClipScores:
        """Scores by the plan's one configuration, domain weights and nearest normals."""
        parts = []
        for block in blocks:
            scores, by_view = self.grid(plan, block)
            index, distance = nearest_normals(block.distances[0])
            weights = np.ones((len(index), 1))
            if len(self._starts) > 2:
                weights = self._decision_weights.of([each.T for each in block.distances])
            blend = by_view.get(plan.configs[0].base)
            shares = None if blend is None else blend[:, 0].T
            nearest = self._order[index]
            parts.append(ClipScores(scores[0, 0], weights, nearest, distance, shares, block.hidden))
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return ClipScores(*(None if c[0] is None else np.concatenate(c) for c in columns))  # type: ignore[arg-type]

    def views(self, plan: Plan, block: Block) -> list[ViewScores]:
        """Base scores of the clips of a block; those of the bank are left out of its densities."""
        views = []
        for v, distances in enumerate(block.distances[: plan.n_views(len(self._banks))]):
            bank = self._banks[v]
            local = [base for base in plan.scored(v) if base.k]
            scores = bank.scores(local, distances, block.hidden is not None)
            if v == 0:
                scores |= block.external
            rows = {base: values[None] for base, values in scores.items()}
            domain = bank.domain_distances(distances) if plan.assigns else _NO_DOMAINS
            views.append(ViewScores(rows, self._supports(v, plan.supported(v)), domain[None]))
        return views

    def _own_views(self, plan: Plan) -> list[ViewScores]:
        """Base scores of the normals, each left out."""
        views = []
        for v, bank in enumerate(self._banks[: plan.n_views(len(self._banks))]):
            supports = self._supports(v, [*plan.scored(v), *plan.supported(v)])
            scores = {base: support.scores for base, support in supports.items()}
            views.append(ViewScores(scores, supports, bank.own_domain_distances()[None]))
        return views

    def _supports(self, v: int, bases: Sequence[Base]) -> dict[Base, Support]:
        """Leave-one-out scores of the normals in a view, computed once."""
        known = self._known[v]
        missing = [base for base in bases if base not in known]
        if missing:
            local = [base for base in missing if base.k]
            scores = self._banks[v].leave_one_out(local) if local else {}
            for base in missing:
                values = scores[base][None] if base.k else self._external.within(base.label)
                known[base] = Support(values, self._starts)
        return known

    def _blend_supports(self, plan: Plan) -> dict[Base, Support]:
        """Scores of the normals by the blends that some configuration calibrates."""
        for base in plan.calibrated_blends:
            if base not in self._blends:
                own = Plan([ScoreConfig("blend", label=base.label)], len(self._order))
                blended = blend_by_view(base, own, self._own_views(own)).mean(axis=0)
                self._blends[base] = Support(blended, self._starts)
        return self._blends

    @cached_property
    def _decision_weights(self) -> DecisionWeights:
        """The weights of the decision, fitted to some normals of each domain."""
        parts = [np.arange(a, b, -(-(b - a) // _SAMPLE)) for a, b in pairwise(self._starts)]
        codes = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        rows = np.concatenate(parts)
        distances = [bank.distances.rows(rows) for bank in self._banks]
        return DecisionWeights(distances, codes, self._starts)


def nearest_normals(distances: Floats) -> tuple[Indices, Float64s]:
    """Row and value of the smallest distance in each column."""
    index = distances.argmin(axis=0)
    return index, distances[index, np.arange(distances.shape[1])].astype(np.float64)


def require_clips(configs: Sequence[ScoreConfig], n: int, left: int | None = None) -> None:
    """Raise an error where a bank of n clips, of which `left` remain, is too small."""
    available = n if left is None else left
    for config in configs:
        needed = clips_needed(config.base)
        if config.calibration is None and config.scorer in ("knn", "ext") and left is None:
            needed -= 1  # no normal is left out
        if available < needed:
            half = f" once half of each domain is held out (of {n})" if available < n else ""
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
