"""What is computed for one chunk of machines, all of it on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daco.method.bases import Base
from daco.method.calibration import temperature_base
from daco.method.config import ScoreConfig
from daco.method.fleet.maps import calibrate, ks_counts, uniformity
from daco.method.fleet.scores import Banks, Scored, Split

SPLITS_AT_ONCE = 16
"""Splits of the criterion that are calibrated together."""

CLIPS_AT_ONCE = 8192
"""New clips of a machine that are scored together."""


class Work:
    """The configurations of one chunk of machines; ``order`` grouped their clips by domain."""

    def __init__(self, banks: Banks, configs: list[ScoreConfig], order: Tensor | None) -> None:
        self._banks, self._configs, self._order = banks, configs, order
        self._bases = list(dict.fromkeys(config.base for config in configs))
        self._calibrated = _calibrated(configs)

    def scores(self, query: Tensor | None, own: bool) -> dict[str, Tensor]:
        """Scores (M, n, C) of new clips, and leave-one-out ones (M, N, C) in the order given."""
        banks, n = self._banks, 0 if query is None else query.shape[1]
        known = banks.leave_one_out([*self._bases, *self._calibrated] if own else self._calibrated)
        parts: list[Tensor] = []
        asked: list[Scored] = []
        for start in range(0, n, CLIPS_AT_ONCE):
            assert query is not None
            parts += self._mapped(known, asked)
            asked = [banks.against(query[:, start : start + CLIPS_AT_ONCE], self._bases)]
        # The last of them go through the same maps as the bank's own clips.
        parts += self._mapped(known, [*asked, known] if own else asked)
        found: dict[str, Tensor] = {}
        if own:
            grouped = found["own"] = parts.pop()
            if self._order is not None:
                where = self._order[..., None].expand_as(grouped)
                found["own"] = grouped.scatter(1, where, grouped)
        if parts:
            found["scores"] = torch.cat(parts, 1)
        return found

    def _mapped(self, known: Scored, asked: Sequence[Scored]) -> list[Tensor]:
        """Calibrated scores (M, n, C) of each of several sets of clips."""
        if not asked:
            return []
        together = {
            base: torch.cat([each.scores[base] for each in asked], 2) for base in self._bases
        }
        domain = torch.cat([each.domain for each in asked], 3)
        mapped = calibrate(self._configs, known.scores, together, self._banks.starts, domain)
        sizes = [each.domain.shape[3] for each in asked]
        return [part.contiguous() for part in mapped[:, :, 0].mT.split_with_sizes(sizes, 1)]

    def separability(self) -> Tensor:
        """(M,): balanced accuracy of the 1-NN domain of the banks' clips, each left out."""
        nearest = self._banks.leave_one_out([]).domain[:, 0].argmin(1)
        shares = [
            (nearest[:, a:b] == g).double().mean(1)
            for g, (a, b) in enumerate(pairwise(self._banks.starts))
        ]
        return torch.stack(shares, 1).mean(1)

    def criterion(self, held: NDArray[np.bool_], uniform: bool) -> dict[str, Tensor]:
        """KS integers (M, C, S, P) and, if wanted, the uniformity of quantiles (M, C)."""
        device = self._banks.unit.device
        starts = np.asarray(self._banks.starts)
        held_starts = np.concatenate([[0], np.cumsum(np.diff(starts) // 2)])
        kept_starts = starts - held_starts
        splits = [
            Split(
                torch.from_numpy(np.flatnonzero(~mask)).to(device),
                torch.from_numpy(np.flatnonzero(mask)).to(device),
                kept_starts.tolist(),
            )
            for mask in held
        ]
        quantiles = [c for c, config in enumerate(self._configs) if config.calibration == "conf"]
        counts, uniformities = [], []
        for first in range(0, len(splits), SPLITS_AT_ONCE):
            part = splits[first : first + SPLITS_AT_ONCE]
            found = self._banks.halves(part, self._bases, self._calibrated)
            scores = calibrate(
                self._configs, found.own, found.scores, kept_starts.tolist(), found.domain
            )
            counts.append(ks_counts(scores, held_starts.tolist()))
            if uniform and quantiles:
                uniformities.append(uniformity(scores[:, quantiles], held_starts.tolist()))
        results = {"counts": torch.cat(counts, 2)}
        if uniform:
            shape = (len(self._banks.unit), len(self._configs))
            means = torch.full(shape, torch.nan, dtype=torch.float64, device=device)
            if quantiles:
                means[:, quantiles] = torch.stack(uniformities, -1).sum(-1) / len(splits)
            results["uniformity"] = means
        return results


def _calibrated(configs: Iterable[ScoreConfig]) -> list[Base]:
    """The bases whose leave-one-out scores calibrate, or are the temperature of weights."""
    bases = [config.base for config in configs if config.calibration]
    scales = [temperature_base(config.base) for config in configs if config.assignment == "soft"]
    return list(dict.fromkeys([*bases, *scales]))
