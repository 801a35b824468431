"""Calibrations and the criterion of a batch of banks: :mod:`daco.method.calibration` on tensors.

The leading axes are machines M and parts of their banks S; all of it is in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations, pairwise

import torch
from torch import Tensor

from daco.method.bases import Base
from daco.method.calibration import _SPREAD_FLOOR, _TAIL_FLOOR, temperature_base
from daco.method.config import ScoreConfig
from daco.method.domains import TEMPERATURE_FLOOR

_COUNT_UP_TO = 24  # clips in the smaller sample: below it counting beats sorting


def calibrate(
    grid: Sequence[ScoreConfig],
    own: Mapping[Base, Tensor],
    scores: Mapping[Base, Tensor],
    starts: Sequence[int],
    domain_distance: Tensor,
) -> Tensor:
    """(M, C, S, n) calibrated scores of clips.

    Parameters
    ----------
    own : {base: (M, S, N)}
        Leave-one-out scores of the banks' clips, grouped by domain.
    scores : {base: (M, S, n)}
        Base scores of the clips.
    starts : G + 1 ints
        Domain g is ``starts[g]:starts[g + 1]`` of the bank.
    domain_distance : (M, S, G, n)
    """
    m, s, n = next(iter(scores.values())).shape
    out = domain_distance.new_empty((m, len(grid), s, n), dtype=torch.float64)
    by_base: dict[Base, list[int]] = {}
    for row, config in enumerate(grid):
        by_base.setdefault(config.base, []).append(row)
    assignments = {config.assignment for config in grid}
    hard = _hard_weights(domain_distance) if "hard" in assignments else None
    for base, rows in by_base.items():  # one at a time: a base's maps are large
        calibrated = _Calibrated(base, own, scores[base], starts, domain_distance, hard)
        for row in rows:
            out[:, row] = calibrated.of(grid[row])
    return out


class _Calibrated:
    """The calibrations of one base score; each map and weight is computed once."""

    def __init__(
        self,
        base: Base,
        own: Mapping[Base, Tensor],
        scores: Tensor,
        starts: Sequence[int],
        domain_distance: Tensor,
        hard: Tensor | None,
    ) -> None:
        self._base = base
        self._given = own
        self._starts = starts
        self._domain_distance = domain_distance
        self._hard = hard
        self._shrunk_maps: dict[float, Tensor] = {}
        self._scores = scores.double().contiguous()

    def of(self, config: ScoreConfig) -> Tensor:
        if config.calibration is None:
            return self._scores
        if config.calibration == "conf":
            maps = self._shrunk(config.prior_strength)
        else:
            maps = self._over_median if config.calibration == "ratio" else self._standardised
        weights = self._soft if config.assignment == "soft" else self._hard
        assert weights is not None
        mixed = weights[:, :, 0] * maps[:, :, 0]
        for g in range(1, maps.shape[2]):
            mixed = mixed + weights[:, :, g] * maps[:, :, g]
        return mixed

    @cached_property
    def _soft(self) -> Tensor:
        typical = self._given[temperature_base(self._base)].double()
        temperature = _median(typical.sort(-1).values).clamp(min=TEMPERATURE_FLOOR)
        logits = self._domain_distance.double() / -temperature[..., None]
        weights = (logits - logits.amax(2, keepdim=True)).exp()
        whole = weights[:, :, 0]
        for g in range(1, weights.shape[2]):
            whole = whole + weights[:, :, g]
        return weights / whole[:, :, None]

    def _shrunk(self, strength: float) -> Tensor:
        if strength not in self._shrunk_maps:
            sizes = [b - a for a, b in pairwise(self._starts)]
            clips = self._scores.new_tensor(sizes)[:, None]
            maps = clips * self._domain_maps
            if strength > 0:
                maps = maps + float(strength) * self._pooled_map[:, :, None]
                maps = maps / (clips + float(strength))
            else:
                maps = maps / clips
            self._shrunk_maps[strength] = maps
        return self._shrunk_maps[strength]

    @cached_property
    def _over_median(self) -> Tensor:
        medians = torch.stack([_median(part) for part in self._domains], 2)
        return self._scores[:, :, None] / medians.clamp(min=_SPREAD_FLOOR)

    @cached_property
    def _standardised(self) -> Tensor:
        means = [part.mean(-1, keepdim=True) for part in self._domains]
        # One clip has no spread of its own: the pooled spread stands in for it.
        spreads = [_spread(part if part.shape[-1] > 1 else self._pooled) for part in self._domains]
        centred = self._scores[:, :, None] - torch.stack(means, 2)
        return centred / (torch.stack(spreads, 2) + _SPREAD_FLOOR)

    @cached_property
    def _domain_maps(self) -> Tensor:
        return torch.stack([self._map_of(part) for part in self._domains], 2)

    @cached_property
    def _pooled_map(self) -> Tensor:
        if len(self._domains) == 1:
            return self._domain_maps[:, :, 0]
        return self._map_of(self._pooled)

    def _map_of(self, support: Tensor) -> Tensor:
        return quantile_maps(support, self._scores, signed=self._base.signed)

    @cached_property
    def _pooled(self) -> Tensor:
        """Sorted calibration scores of all domains."""
        return self._given[self._base].double().sort(-1).values

    @cached_property
    def _domains(self) -> list[Tensor]:
        """Sorted calibration scores of each domain."""
        scores = self._given[self._base].double()
        return [scores[..., a:b].sort(-1).values for a, b in pairwise(self._starts)]


def quantile_maps(support: Tensor, scores: Tensor, *, signed: bool = False) -> Tensor:
    """Scores (..., n) through the quantile maps of sorted ``support`` (..., N)."""
    n = support.shape[-1]
    smallest, largest = support[..., :1], support[..., -1:]
    knots = torch.cat([smallest if signed else smallest.clamp(max=0), support], -1)
    levels = torch.arange(n + 1, dtype=torch.float64, device=support.device) / (n + 1)
    at = torch.searchsorted(knots, scores, right=True) - 1  # the last knot that is not above
    inner = at.clamp(0, n - 1)
    left, right = knots.gather(-1, inner), knots.gather(-1, inner + 1)
    slope = (levels[inner + 1] - levels[inner]) / (right - left)
    mapped = slope * (scores - left) + levels[inner]
    mapped = torch.where(at < 0, levels[0], torch.where(at >= n, levels[n], mapped))
    median = _median(support)
    beyond = scores - largest
    tail = beyond / (beyond + (largest - median).clamp(min=_TAIL_FLOOR))
    mapped = torch.where(scores > largest, levels[n] + (1 - levels[n]) * tail, mapped)
    if signed:
        scale = (median - smallest).clamp(min=_TAIL_FLOOR)
        below = scale / (scale + smallest - scores) / (n + 1)
        mapped = torch.where(scores < smallest, below, mapped)
    return mapped


def ks_counts(scores: Tensor, starts: Sequence[int]) -> Tensor:
    """(M, C, S, P): KS distance of each pair of domains times their sizes, an integer."""
    parts = [scores[..., a:b] for a, b in pairwise(starts)]
    return torch.stack([_ks_counts(a, b) for a, b in combinations(parts, 2)], -1)


def uniformity(scores: Tensor, starts: Sequence[int]) -> Tensor:
    """(M, C): KS distance of each domain's scores to the uniform, mean over domains, sum over S."""
    distances = []
    for a, b in pairwise(starts):
        ordered = scores[..., a:b].sort(-1).values
        position = torch.arange(b - a, dtype=torch.float64, device=scores.device)
        above = ((position + 1) / (b - a) - ordered).amax(-1)
        below = (ordered - position / (b - a)).amax(-1)
        distances.append(torch.maximum(above, below))
    return torch.stack(distances, -1).mean(-1).sum(-1)


def _ks_counts(a: Tensor, b: Tensor) -> Tensor:
    large, small = (b, a) if a.shape[-1] < b.shape[-1] else (a, b)
    n, m = large.shape[-1], small.shape[-1]
    small = small.sort(-1).values
    if m <= _COUNT_UP_TO:
        points = small.unbind(-1)
        below = torch.stack([(large < point[..., None]).sum(-1) for point in points], -1)
        up_to = torch.stack([(large <= point[..., None]).sum(-1) for point in points], -1)
    else:
        large = large.sort(-1).values
        below = torch.searchsorted(large, small)
        up_to = torch.searchsorted(large, small, right=True)
    gap = (below * m - torch.searchsorted(small, small) * n).abs()
    gap_after = (up_to * m - torch.searchsorted(small, small, right=True) * n).abs()
    return torch.maximum(gap, gap_after).amax(-1)


def _hard_weights(domain_distance: Tensor) -> Tensor:
    """1 for the nearest domain, 0 for the others; a tie falls to the first."""
    codes = torch.arange(domain_distance.shape[2], device=domain_distance.device)
    return (domain_distance.argmin(2, keepdim=True) == codes[:, None]).double()


def _median(ascending: Tensor) -> Tensor:
    """(..., 1) medians of sorted rows."""
    n = ascending.shape[-1]
    return (ascending[..., (n - 1) // 2, None] + ascending[..., n // 2, None]) / 2


def _spread(x: Tensor) -> Tensor:
    return x.std(-1, correction=0, keepdim=True)
