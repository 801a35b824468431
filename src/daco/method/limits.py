"""Checks of configurations: enough clips, and no use of true domains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.method.config import ScoreConfig
from daco.method.criterion import Seed, held_out_halves, ks_denominators, require_halves
from daco.method.scorers import clips_needed
from daco.validation import Bools, Indices


def halves(
    configs: list[ScoreConfig],
    domain_names: Sequence[Any],
    starts: Indices,
    n_splits: int,
    seed: Seed,
    sessions: Sequence[str] = (),
) -> tuple[Bools, NDArray[np.int64]]:
    """Masks of the held-out halves (S, N) and the denominators of their KS integers.

    Raises an error where the clips are too few for the criterion of the configurations.
    """
    sizes = np.diff(starts)
    require_halves(domain_names, sizes.tolist())
    require_clips(configs, int(sizes.sum()), spare=1, n_left=int((sizes - sizes // 2).sum()))
    refuse_oracle(configs)
    held_starts = np.concatenate([[0], np.cumsum(sizes // 2)])
    held = held_out_halves(sizes.tolist(), n_splits, seed, sessions)
    return held, ks_denominators(held_starts)


def require_clips(
    configs: Iterable[ScoreConfig], n: int, spare: int = 0, n_left: int | None = None
) -> None:
    """An error where a bank of n clips is too small for a configuration.

    ``spare``: each clip is left out once. ``n_left``: clips that remain in the bank in a split.
    """
    available = n if n_left is None else n_left
    for config in configs:
        alone = config.calibration is None and config.base.scorer == "knn"
        needed, why = clips_needed(config.base, spare if alone else 1)
        if available < needed:
            half = f" once half of each domain is held out (of {n})" if n_left is not None else ""
            raise NotEnoughClipsError(
                f"{config.name!r} needs a bank of {needed} clips, {why}. This bank has "
                f"{f'{available} clips' if available > 1 else 'one (n_samples=1)'}{half}. "
                f"Add normal clips{'' if config.base.is_vote else ' or choose fewer neighbours'}."
            )


def refuse_oracle(grid: Iterable[ScoreConfig]) -> None:
    """Raise an InputError for a configuration that reads the true domains of test clips."""
    for config in grid:
        if config.assignment == "oracle":
            raise InputError(
                f"{config.name!r} reads true domains; selection must not. Remove it from the grid."
            )
