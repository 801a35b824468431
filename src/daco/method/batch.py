"""BankBatch: scores, weights and the criterion of one bank, or of many of equal shape at once.

:class:`daco.NormalBank` is a batch of one machine with its checks; `evaluate_machines` computes
many on a device. Arrays are NumPy arrays (one machine) or torch tensors with a leading axis of
machines; what depends on the difference is in :mod:`daco.method.kernels`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import numpy as np

from daco.method.bases import Base
from daco.method.calibration import (
    CalibrationInput,
    assignment_weights,
    calibrate_grid,
    temperature_base,
)
from daco.method.config import ScoreConfig
from daco.method.criterion import ks_of_domains, uniformity_ks
from daco.method.domains import oracle_weights, separability
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
from daco.validation import Bools, Float64s, Indices


class BankBatch:
    """The normals of M machines of equal shape, and every score that follows from them.

    Parameters
    ----------
    unit : (N, D) array, or (M, N, D) tensor
        Unit rows, grouped by domain.
    starts : (G + 1,)
        Domain g is rows ``starts[g]:starts[g + 1]``.
    bands : int
        Parts of equal length of every row.
    memory_budget : int
        Bytes that distances between normals may take.
    """

    def __init__(self, unit: Array, starts: Indices, bands: int, memory_budget: int) -> None:
        self.starts = starts
        self._unit = unit
        self._spaces = Spaces(unit, bands, memory_budget)
        self._own = SubsetScores()

    @property
    def _kernels(self) -> Any:
        return kernels(self._unit)

    def exact_products(self) -> AbstractContextManager[None]:
        """A context for all computations: products in the precision of the rows."""
        return self._kernels.exact_products(self._unit)

    def score(
        self, query: Array, configs: Sequence[ScoreConfig], oracle: Float64s | None = None
    ) -> Array:
        """Scores (C, M, n) of new clips, unit rows (..., n, D)."""
        return self.examine(query, configs, oracle=oracle)[0]

    def examine(
        self,
        query: Array,
        configs: Sequence[ScoreConfig],
        weights_by: ScoreConfig | None = None,
        with_nearest: bool = False,
        oracle: Float64s | None = None,
    ) -> tuple[Array, Array | None, tuple[Array, Array] | None]:
        """Scores (C, M, n), domain weights (M, G, n) and nearest normals, from the same distances.

        ``oracle`` are weights (G, n) of the true domains.
        """
        K = self._kernels
        bases = _bases(configs)
        expect(self._spaces, bases)
        calibrated, geometries = _calibrated(configs)
        if weights_by is not None:
            calibrated = [*calibrated, temperature_base(weights_by.base)]
            geometries = [*geometries, geometry_of(weights_by.base)]
        standardised, measured = required(base for base in bases if needs_own(base))
        own = self._leave_one_out([*calibrated, *standardised], measured)
        n = query.shape[-2]
        step = max(1, K.QUERY_BYTES // (self._unit.itemsize * _size(self._unit)))
        parts: list[tuple[Any, ...]] = []
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            computed = scores_against(
                self._spaces,
                query[..., rows, :],
                self.starts,
                bases,
                own,
                geometries,
                with_nearest,
            )
            given = CalibrationInput(
                calibration=own.scores,
                scores=computed.scores,
                domain_starts=self.starts,
                domain_distance=computed.domain,
                oracle=None if oracle is None else K.from_host(oracle[None, :, rows], query),
            )
            scores = calibrate_grid(configs, given) if configs else None
            weights = None if weights_by is None else assignment_weights(weights_by, given)
            parts.append((scores, weights, *(computed.nearest or (None, None))))
        joined = [
            None if values[0] is None else K.xp.concatenate(values, -1)
            for values in map(list, zip(*parts, strict=True))
        ]
        return joined[0], joined[1], None if joined[2] is None else (joined[2], joined[3])

    def leave_one_out(self, configs: Sequence[ScoreConfig]) -> Array:
        """Scores (C, M, N) of the normals, each scored by all the others."""
        calibrated, geometries = _calibrated(configs)
        own = self._leave_one_out([*_bases(configs), *calibrated], geometries)
        codes = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        oracle = oracle_weights(codes, len(self.starts) - 1)[None]
        given = CalibrationInput(
            calibration=own.scores,
            scores=own.scores,
            domain_starts=self.starts,
            domain_distance=own.domain,
            oracle=self._kernels.from_host(oracle, self._unit),
        )
        return calibrate_grid(configs, given)

    def separability(self) -> Array:
        """(M,): how well normals, each left out, find their domain by the nearest other."""
        codes = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return separability(self._leave_one_out([], [WHOLE]).domain[WHOLE], codes)

    def criterion(
        self, configs: Sequence[ScoreConfig], held: Bools, with_uniformity: bool = False
    ) -> tuple[Array, Array | None]:
        """KS integers (C, M, S, P) of S splits, and the uniformity (C, M) of quantiles.

        ``held`` are masks (S, N) of what is held out, equally many clips in each split.
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
        bases = _bases(configs)
        calibrated, geometries = _calibrated(configs)
        step = K.splits_at_once(8 * (len(configs) * int(held_starts[-1]) + len(bases) * n))
        for start in range(0, len(held), step):
            away = held[start : start + step]
            computed = scores_within(
                self._spaces, self.starts, [*bases, *calibrated], ~away, geometries
            )
            # Masks have equally many clips in every split, so both sides are rectangular.
            inside, outside = (
                K.from_host(
                    np.tile(np.nonzero(mask)[1].reshape(len(away), -1), (machines, 1)), self._unit
                )
                for mask in (~away, away)
            )
            given = CalibrationInput(
                calibration={b: K.take_along(computed.scores[b], inside) for b in calibrated},
                scores={b: K.take_along(computed.scores[b], outside) for b in bases},
                domain_starts=self.starts - held_starts,
                domain_distance={
                    name: K.take_along(computed.domain[name], outside[:, None])
                    for name in geometries
                },
            )
            yield calibrate_grid(configs, given)

    def _leave_one_out(self, bases: Iterable[Base], geometries: Iterable[str] = ()) -> SubsetScores:
        """Leave-one-out base scores, (M, N) each, computed once per base."""
        own = self._own
        missing = [base for base in dict.fromkeys(bases) if base not in own.scores]
        unknown = [name for name in dict.fromkeys(geometries) if name not in own.domain]
        if missing or unknown:
            computed = scores_within(self._spaces, self.starts, missing, None, unknown)
            own.scores.update(computed.scores)
            own.domain.update(computed.domain)
        return own


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
