"""The criterion's floor for the domain sizes of a bank: its mean and sd when domains are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from daco.method.criterion import CHOICE_SPLITS, PAPER_SPLITS, Floor, h0_floor

_REUSED_SPLITS = 50
_DRAWS = 20_000_000  # scores to simulate: a tenth of a second at the paper's sizes


def bank_floor(
    sizes: Sequence[int], n_splits: int = CHOICE_SPLITS, seed: int = 0, *, reuse_clips: bool = False
) -> Floor | None:
    """Mean and sd of the criterion of one machine whose domains do not differ.

    `sizes` are the training clips of each domain, half of which are held out. None is returned
    for fewer than two domains or a domain of fewer than two clips. More than two domains are
    compared pair by pair; the sd is then the mean of the pairs', at least that of their mean.

    Examples
    --------
    >>> from daco.method.floor import bank_floor
    >>> round(bank_floor([990, 10]).mean, 2)
    0.36
    """
    if len(sizes) < 2 or min(sizes) < 2:
        return None
    held = sorted((int(size) // 2 for size in sizes), reverse=True)
    return mean_floor(
        [_pair_floor(*pair, n_splits, seed, reuse_clips) for pair in combinations(held, 2)]
    )


def choice_floor(
    sizes: Sequence[int], n_splits: int = CHOICE_SPLITS, seed: int = 0
) -> Floor | None:
    """The floor of one machine, with the noise of a choice: the sd with clips reused."""
    fresh = bank_floor(sizes, n_splits, seed)
    reused = bank_floor(sizes, n_splits, seed, reuse_clips=True)
    return None if fresh is None or reused is None else Floor(fresh.mean, reused.sd)


def mean_floor(floors: Sequence[Floor], *, independent: bool = False) -> Floor:
    """Mean floor and mean sd; the sd of the mean where the floors are of `independent` machines."""
    sds = np.array([floor.sd for floor in floors])
    sd = np.sqrt((sds**2).sum()) / len(sds) if independent else sds.mean()
    return Floor(float(np.mean([floor.mean for floor in floors])), float(sd))


def study_floor(
    sizes: Sequence[Sequence[int]], n_splits: int = CHOICE_SPLITS, seed: int = 0
) -> dict[str, Any] | None:
    """The floor of one machine's criterion, and the noise of the mean over machines.

    Parameters
    ----------
    sizes : sequence of sequences of int
        Training clips of each domain, machine by machine.
    n_splits, seed : int
        As for :func:`bank_floor`.

    Returns
    -------
    dict or None
        ``mean`` and ``sd`` of one machine with new clips in every split, as in the paper: more
        splits make this sd small. ``sd_reused_clips``: with the same clips in all splits, which
        no number of splits makes small. ``sd_of_mean`` and ``sd_of_mean_reused_clips``: of the
        mean over all ``n_machines``. ``n_source`` and ``n_target``: the largest and smallest
        domain of the most usual machine.

    Examples
    --------
    >>> from daco.method.floor import study_floor
    >>> floor = study_floor([[990, 10]] * 7)
    >>> round(floor["mean"], 2), round(floor["sd_of_mean_reused_clips"], 3)
    (0.36, 0.019)
    """
    shapes = [tuple(sorted(map(int, each), reverse=True)) for each in sizes]
    shapes = [shape for shape in shapes if len(shape) > 1 and min(shape) > 1]
    if not shapes:
        return None
    fresh, reused = (
        [floor for shape in shapes if (floor := bank_floor(shape, n_splits, seed, reuse_clips=r))]
        for r in (False, True)
    )
    usual = Counter(shapes).most_common(1)[0][0]
    return {
        "mean": mean_floor(fresh).mean,
        "sd": mean_floor(fresh).sd,
        "sd_reused_clips": mean_floor(reused).sd,
        "sd_of_mean": mean_floor(fresh, independent=True).sd,
        "sd_of_mean_reused_clips": mean_floor(reused, independent=True).sd,
        "n_machines": len(shapes),
        "n_source": usual[0],
        "n_target": usual[-1],
        "n_splits": n_splits,
    }


@cache
def _pair_floor(n_first: int, n_second: int, n_splits: int, seed: int, reuse_clips: bool) -> Floor:
    # Clips are permuted to reuse them, which takes ten times as long as to draw new ones.
    budget = _DRAWS // (10 if reuse_clips else 1)
    fewest = 400 if reuse_clips else 100
    # Of reused clips more splits do not change the sd; new ones make splits independent, so that
    # the sd of many follows from that of few.
    simulated = min(n_splits, _REUSED_SPLITS if reuse_clips else PAPER_SPLITS)
    n_simulations = int(np.clip(budget // (simulated * (n_first + n_second)), fewest, 2000))
    found = h0_floor(n_first, n_second, simulated, n_simulations, seed, reuse_clips=reuse_clips)
    return found if reuse_clips else Floor(found.mean, found.sd * (simulated / n_splits) ** 0.5)
