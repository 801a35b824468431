"""The criterion of domains that do not differ: what no configuration can go below."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from daco.errors import InputError
from daco.method.criterion import PAPER_SPLITS, Seed, ks_counts, random_generator


@dataclass(frozen=True)
class Floor:
    """Mean and standard deviation of the criterion if the domains do not differ."""

    mean: float
    sd: float


def h0_floor(
    n_first: int,
    n_second: int,
    n_splits: int = PAPER_SPLITS,
    n_simulations: int = 2000,
    seed: Seed = 0,
) -> Floor:
    """Simulate the criterion of two domains that do not differ.

    With 495 source and 5 target clips held out the mean is 0.36: a criterion near that cannot be
    improved. Every split has new clips, as in the paper.

    Parameters
    ----------
    n_first, n_second : int
        Numbers of held-out clips of the two domains.
    n_splits, n_simulations, seed : int
        Splits over which a criterion averages, by default the paper's 10, and number and seed of
        the simulated criteria.

    Returns
    -------
    Floor

    Examples
    --------
    >>> from daco.experiments.floors import h0_floor
    >>> round(h0_floor(495, 5, n_simulations=400).mean, 2)
    0.36
    """
    if min(n_first, n_second, n_splits, n_simulations) < 1:
        raise InputError("Sample sizes, n_splits and n_simulations of h0_floor must be >= 1.")
    rng = random_generator(seed)
    means = np.empty(n_simulations)
    step = max(1, 2**21 // (n_splits * (n_first + n_second)))
    for start in range(0, n_simulations, step):
        count = min(step, n_simulations - start)
        first = rng.random((count, n_splits, n_first))
        second = rng.random((count, n_splits, n_second))
        means[start : start + count] = ks_counts(first, second).mean(axis=1) / (n_first * n_second)
    return Floor(float(means.mean()), float(means.std()))


@cache
def bank_floor(sizes: tuple[int, ...]) -> float | None:
    """Mean criterion of one machine whose domains do not differ; None where there is none.

    Parameters
    ----------
    sizes : tuple of int
        Training clips of each domain, half of which are held out.

    Examples
    --------
    >>> from daco.experiments.floors import bank_floor
    >>> round(bank_floor((990, 10)), 2)
    0.36
    """
    if len(sizes) < 2 or min(sizes) < 2:
        return None
    held = [size // 2 for size in sizes]
    floors = [h0_floor(*pair, n_splits=1, n_simulations=2000) for pair in combinations(held, 2)]
    return float(np.mean([floor.mean for floor in floors]))
