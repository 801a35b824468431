"""Random tables in the layout of a run, without machines and scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from daco.evaluation.metrics import QUANTITIES
from daco.method.config import paper_grid

NAMES = [config.name for config in paper_grid()]


def random_tables(
    configs: Sequence[str] = NAMES,
    n_dev: int = 3,
    n_eval: int = 3,
    seed: int = 0,
    labels: Sequence[str] = ("dev", "eval"),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A grid and a per-machine table; `labels` are the splits whose metrics are known."""
    rng = np.random.default_rng(seed)
    rows = []
    for split, count in (("dev", n_dev), ("eval", n_eval)):
        for machine in range(count):
            for config in configs:
                metrics = rng.uniform(50, 80, 3) if split in labels else [np.nan] * 3
                rows.append((split, f"{split}{machine}", config, *metrics, rng.uniform(0.3, 0.7)))
    columns = ["split", "machine", "config", *QUANTITIES, "balance_ks"]
    per_machine = pd.DataFrame(rows, columns=columns)
    grid = {"config": list(configs)}
    for split in labels:
        grid[f"{split}_omega"] = rng.uniform(50, 60, len(configs))
    grid["crit_dev"] = rng.uniform(0.3, 0.7, len(configs))
    return pd.DataFrame(grid), per_machine
