"""BankBatch: scores, weights and the criterion of one bank, or of many of equal shape at once.

:class:`daco.NormalBank` is a batch of one machine with its checks; `evaluate_machines` computes
many on a device. Arrays are NumPy arrays (one machine) or torch tensors with a leading axis of
machines; what depends on the difference is in :mod:`daco.method.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from daco.errors import InputError
from daco.method.bases import Base
from daco.method.calibration import CalibrationInput, Support, assignment_weights, temperature_base
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, calibrations_of
from daco.method.criterion import ks_of_domains, uniformity_ks
from daco.method.domains import oracle_weights, separability
from daco.method.external import ExternalScorers
from daco.method.geometry import Spaces
from daco.method.kernels import Array, kernels
from daco.method.scorers import (
    WHOLE,
    SubsetScores,
    expect,
    geometry_of,
    needs_own,
    required,
    scores_against,
    scores_within,
)
from daco.method.vote import Members, Vote, fit_votes, grid_scores, members_of
from daco.validation import Bools, Float64s, Indices

Hide = Callable[[int, slice], Bools]
"""Masks (N, n) of the normals that do not count for clips, by view and rows of the clips."""


class Examined(NamedTuple):
    """Results for n clips; None where they were not requested.

    ``scores`` (C, M, n), ``weights`` (M, G, n), ``nearest`` and ``distance`` (M, n) of the most
    similar normal, and where the first configuration is a vote the ``normal_scores`` of its
    members, of one view after the other (members, M, n).
    """

    scores: Array
    weights: Array
    nearest: Array
    distance: Array
    normal_scores: Array


class BankBatch:
    """The normals of M machines of equal shape, and every score that follows from them.

    Parameters
    ----------
    units : one (N, D) array, or (M, N, D) tensor, for each view
        Unit rows, grouped by domain.
    starts : (G + 1,)
        Domain g is rows ``starts[g]:starts[g + 1]``.
    bands : one int for each view
        Parts of equal length of its rows.
    memory_budget : int
        Bytes that distances between normals may take.
    external : ExternalScorers, optional
        Of one machine. In a vote each of them counts as a view does: as the first one, with
        members of its own.
    """

    def __init__(
        self,
        units: Sequence[Array],
        starts: Indices,
        bands: Sequence[int],
        memory_budget: int,
        external: ExternalScorers | None = None,
    ) -> None:
        self.starts = starts
        self._unit = units[0]
        budget = memory_budget // len(units)
        self._external = external
        self._voters = tuple(external.given) if external else ()
        views = [Spaces(*view, budget) for view in zip(units, bands, strict=True)]
        own = [SubsetScores() for _ in units]
        supports: list[dict[Base, Support]] = [{} for _ in units]
        again = len(self._voters)  # they share what the first view has
        self._views = views + views[:1] * again
        self._own = own + own[:1] * again
        self._supports = supports + supports[:1] * again
        self._votes: dict[Base, Vote] = {}

    @property
    def _kernels(self) -> Any:
        return kernels(self._unit)

    def exact_products(self) -> AbstractContextManager[None]:
        """A context for all computations: products in the precision of the rows."""
        return self._kernels.exact_products(self._unit)

    def members(self, base: Base, clips: int | None = None) -> list[Members]:
        """The members of a vote in each view; ``clips`` of the bank, by default all."""
        count = int(self.starts[-1]) if clips is None else clips
        views = self._views[: len(self._views) - len(self._voters)]
        return [
            *(members_of(base, view.bands, count)[0] for view in views),
            *(tuple(calibrations_of(Base("ext", label=label))) for label in self._voters),
        ]

    def external_bases(self, configs: Sequence[ScoreConfig]) -> list[Base]:
        """The external scorers whose scores of clips these configurations need."""
        voting = any(config.base.is_vote for config in configs)
        voters = [Base("ext", label=label) for label in self._voters if voting]
        asked = [base for base in _bases(configs) if base.is_external]
        return list(dict.fromkeys([*asked, *voters]))

    def examine(
        self,
        query: Sequence[Array],
        configs: Sequence[ScoreConfig],
        weights_by: ScoreConfig | None = None,
        with_nearest: bool = False,
        oracle: Float64s | None = None,
        hide: Hide | None = None,
        external: Mapping[Base, Float64s] | None = None,
    ) -> Examined:
        """Scores, domain weights and nearest normals, from the same distances.

        ``oracle`` are weights (G, n) of the true domains. Nearest normals are those of the first
        view; weights too, and with a vote the mean over views. ``hide`` masks normals that do not
        count for some clips. ``external`` are the clips' scores (n,) of `external_bases`.
        """
        K = self._kernels
        query = [*query, *(query[0] for _ in self._voters)]
        n_views = len(self._views) - len(self._voters)
        votes = self._fitted_votes(configs)
        n = query[0].shape[-2]
        step = max(1, K.QUERY_BYTES // (self._unit.itemsize * _size(self._unit)))
        parts = []
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            true = None if oracle is None else K.from_host(oracle[None, :, rows], query[0])
            given, nearest = [], None
            for view in range(len(self._views) if votes else 1):
                at = view if view < n_views else 0
                asked = self._asked(configs, votes, view)
                one, found = self._against(
                    view,
                    query[view][..., rows, :],
                    asked,
                    weights_by,
                    with_nearest and view == 0,
                    true,
                    None if hide is None else K.from_host(hide(at, rows), query[view]),
                    {b: K.from_host(s[None, rows], query[0]) for b, s in (external or {}).items()},
                )
                given.append(one)
                nearest = nearest or found
            scores, normal = grid_scores(configs, given, votes) if configs else (None, {})
            weights = None
            if weights_by is not None:
                of_views = given[:n_views]
                weights = sum(assignment_weights(weights_by, one) for one in of_views)
                weights = weights / len(of_views)
            of_first = normal.get(configs[0].base) if with_nearest and configs else None
            normals = None if of_first is None else K.xp.concatenate(of_first, 0)
            parts.append((scores, weights, *(nearest or (None, None)), normals))
        return Examined(
            *(
                None if values[0] is None else K.xp.concatenate(values, -1)
                for values in map(list, zip(*parts, strict=True))
            )
        )

    def _against(
        self,
        view: int,
        query: Array,
        configs: Sequence[ScoreConfig],
        weights_by: ScoreConfig | None,
        with_nearest: bool,
        oracle: Array | None,
        hidden: Array | None,
        external: Mapping[Base, Array],
    ) -> tuple[CalibrationInput, tuple[Array, Array] | None]:
        """Input of the calibration of new clips in one view, and their nearest normals."""
        bases = _bases(configs)
        expect(self._views[view], bases)
        calibrated, geometries = _calibrated(configs)
        if weights_by is not None:
            calibrated = [*calibrated, temperature_base(weights_by.base)]
            geometries = [*geometries, geometry_of(weights_by.base)]
        standardised, measured = required(base for base in bases if needs_own(base))
        own = self._leave_one_out(view, [*calibrated, *standardised], measured)
        computed = scores_against(
            self._views[view], query, self.starts, bases, own, geometries, with_nearest, hidden
        )
        given = CalibrationInput(
            calibration=own.scores,
            scores={**computed.scores, **external},
            domain_starts=self.starts,
            domain_distance=computed.domain,
            oracle=oracle,
            supports=self._supports[view],
        )
        return given, computed.nearest

    def leave_one_out(self, configs: Sequence[ScoreConfig]) -> Array:
        """Scores (C, M, N) of the normals, each scored by all the others."""
        votes = self._fitted_votes(configs)
        views = range(len(self._views) if votes else 1)
        given = [self._own_input(view, self._asked(configs, votes, view)) for view in views]
        return grid_scores(configs, given, votes)[0]

    def _own_input(self, view: int, configs: Sequence[ScoreConfig]) -> CalibrationInput:
        """Input of the calibration of the bank's own clips, each left out, in one view."""
        calibrated, geometries = _calibrated(configs)
        own = self._leave_one_out(view, [*_bases(configs), *calibrated], geometries)
        codes = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        oracle = oracle_weights(codes, len(self.starts) - 1)[None]
        return CalibrationInput(
            calibration=own.scores,
            scores=own.scores,
            domain_starts=self.starts,
            domain_distance=own.domain,
            oracle=self._kernels.from_host(oracle, self._unit),
            supports=self._supports[view],
        )

    def _fitted_votes(self, configs: Sequence[ScoreConfig]) -> dict[Base, Vote]:
        """The votes among configurations, fitted once."""
        bases = [base for base in _bases(configs) if base.is_vote]
        missing = {base: self.members(base) for base in bases if base not in self._votes}
        if missing:
            own = [
                self._own_input(view, [c for by_view in missing.values() for c in by_view[view]])
                for view in range(len(self._views))
            ]
            self._votes |= fit_votes(missing, own)
        return {base: self._votes[base] for base in bases}

    def _asked(
        self, configs: Sequence[ScoreConfig], votes: Mapping[Base, Vote], view: int
    ) -> list[ScoreConfig]:
        return _with_members(configs, {base: vote.members for base, vote in votes.items()}, view)

    def separability(self) -> Array:
        """(M,): how well normals, each left out, find their domain by the nearest other."""
        codes = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return separability(self._leave_one_out(0, [], [WHOLE]).domain[WHOLE], codes)

    def criterion(
        self, configs: Sequence[ScoreConfig], held: Bools, with_uniformity: bool = False
    ) -> tuple[Array, Array | None]:
        """KS integers (C, M, S, P) of S splits, and the uniformity (C, M) of quantiles.

        ``held`` are masks (S, N) of held-out clips, equally many in each split.
        """
        K = self._kernels
        machines = K.machine_count(self._unit)
        held_starts = np.concatenate([[0], np.cumsum(np.diff(self.starts) // 2)]).astype(np.intp)
        quantiles = np.flatnonzero([config.calibration == "conf" for config in configs])
        counts, sums = [], []
        for scores in self._held_out_scores(configs, held, held_starts):
            of_domains = ks_of_domains(scores, held_starts)
            counts.append(of_domains.reshape(len(configs), machines, -1, of_domains.shape[-1]))
            if with_uniformity and quantiles.size:
                chosen = scores[quantiles]
                parts = [uniformity_ks(chosen[..., a:b]) for a, b in pairwise(held_starts)]
                mean = sum(parts) / len(parts)
                sums.append(mean.reshape(len(quantiles), machines, -1).sum(-1))
        uniformity = None
        if with_uniformity:
            like = K.double(self._unit[..., 0, :1].reshape(-1)[:1])
            uniformity = K.full((len(configs), machines), float("nan"), like)
            if quantiles.size:
                uniformity[quantiles] = sum(sums) / len(held)
        return K.xp.concatenate(counts, 2), uniformity

    def _held_out_scores(
        self, configs: Sequence[ScoreConfig], held: Bools, held_starts: Indices
    ) -> Iterator[Array]:
        """Scores (C, M s, n_held) of the held-out halves, several splits at a time."""
        K = self._kernels
        machines, n = K.machine_count(self._unit), self._unit.shape[-2]
        left = int((~held[0]).sum())
        votes = {base: self.members(base, left) for base in _bases(configs) if base.is_vote}
        views = range(len(self._views) if votes else 1)
        asked = [_with_members(configs, votes, view) for view in views]
        bytes_per_split = 8 * sum(
            len(each) * int(held_starts[-1]) + len(_bases(each)) * n for each in asked
        )
        step = K.splits_at_once(bytes_per_split)
        for start in range(0, len(held), step):
            away = held[start : start + step]
            # Masks have equally many clips in every split, so both sides are rectangular.
            inside, outside = (
                K.from_host(
                    np.tile(np.nonzero(mask)[1].reshape(len(away), -1), (machines, 1)), self._unit
                )
                for mask in (~away, away)
            )
            given, own = [], []
            refitted: dict[Base, Array] = {}
            for view in views:
                bases = _bases(asked[view])
                calibrated, geometries = _calibrated(asked[view])
                computed = self._within(view, [*bases, *calibrated], ~away, geometries, refitted)
                supports: dict[Base, Support] = {}
                by_side = [
                    CalibrationInput(
                        calibration={
                            b: K.take_along(computed.scores[b], inside) for b in calibrated
                        },
                        scores={b: K.take_along(computed.scores[b], side) for b in bases},
                        domain_starts=self.starts - held_starts,
                        domain_distance={
                            name: K.take_along(computed.domain[name], side[:, None])
                            for name in geometries
                        },
                        supports=supports,
                    )
                    for side in ((outside, inside) if votes else (outside,))
                ]
                given.append(by_side[0])
                own.append(by_side[-1])
            yield grid_scores(configs, given, fit_votes(votes, own) if votes else {})[0]

    def _leave_one_out(
        self, view: int, bases: Iterable[Base], geometries: Iterable[str] = ()
    ) -> SubsetScores:
        """Leave-one-out base scores of one view, (M, N) each, computed once per base."""
        own = self._own[view]
        missing = [base for base in dict.fromkeys(bases) if base not in own.scores]
        unknown = [name for name in dict.fromkeys(geometries) if name not in own.domain]
        if missing or unknown:
            computed = self._within(view, missing, None, unknown, {})
            own.scores.update(computed.scores)
            own.domain.update(computed.domain)
        return own

    def _within(
        self,
        view: int,
        bases: Sequence[Base],
        members: Bools | None,
        geometries: Sequence[str],
        external: dict[Base, Array],
    ) -> SubsetScores:
        """`scores_within` of one view, and of external scorers that are not yet in `external`."""
        computed = scores_within(self._views[view], self.starts, bases, members, geometries)
        for base in dict.fromkeys(bases):
            if base.is_external:
                if self._external is None:
                    raise InputError(
                        f"{base.name!r} is computed for one machine at a time: use NormalBank."
                    )
                if base not in external:
                    values = self._external.within(base, members)
                    external[base] = self._kernels.from_host(values, self._unit)
                computed.scores[base] = external[base]
        return computed


def _size(unit: Array) -> int:
    """Distances of one clip of every machine to all normals."""
    return int(np.prod(unit.shape[:-1]))


def _bases(configs: Iterable[ScoreConfig]) -> list[Base]:
    return list(dict.fromkeys(config.base for config in configs))


def _calibrated(configs: Iterable[ScoreConfig]) -> tuple[list[Base], list[str]]:
    """The bases whose leave-one-out scores calibrate, and where their domains are looked for."""
    with_maps = [config for config in configs if config.calibration]
    bases = _bases(with_maps)
    soft = _bases(config for config in with_maps if config.assignment == "soft")
    scales = [temperature_base(base) for base in soft]
    geometries = list(dict.fromkeys(geometry_of(base) for base in bases))
    return list(dict.fromkeys([*bases, *scales])), geometries


def _with_members(
    configs: Sequence[ScoreConfig], votes: Mapping[Base, Sequence[Sequence[ScoreConfig]]], view: int
) -> list[ScoreConfig]:
    """Configurations to compute in one view; the first view has those without a vote, too."""
    plain = [c for c in configs if not c.base.is_vote] if view == 0 else []
    if view == 0 and any(config.calibration and config.base.is_vote for config in configs):
        plain.append(ScoreConfig.parse(DEFAULT_CONFIG))  # has the domains' weights of votes
    return list(dict.fromkeys([*plain, *(c for by_view in votes.values() for c in by_view[view])]))
