"""The balance frontier: source against target AUC as the calibration grows stronger (E2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from daco.evaluation.metrics import harmonic_mean
from daco.experiments.aggregate import metrics_of
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, ScoreConfig

if TYPE_CHECKING:
    import pandas as pd

RATIO = "ratio-soft-k1"


def frontier_table(per_machine: pd.DataFrame) -> pd.DataFrame:
    """Balance of source and target AUC along the calibration strengths (E2).

    One row per labelled split and variant: ``raw``, ``daco-m...`` from strong to no shrinkage,
    ``ratio-soft``, as far as the grid has them. Gaps are source minus target.

    Examples
    --------
    >>> import pandas as pd
    >>> from daco.experiments.frontier import frontier_table
    >>> table = pd.DataFrame({"split": "dev", "machine": ["fan", "valve"], "config": "raw-k1",
    ...     "auc_source": [70.0, 60.0], "auc_target": [50.0, 62.0], "pauc": [52.0, 53.0]})
    >>> frontier_table(table)[["variant", "signed_gap", "absolute_gap"]].values.tolist()
    [['raw', 9.0, 11.0]]
    """
    import pandas as pd

    names = list(dict.fromkeys(per_machine["config"]))
    variants: list[tuple[str, float | None, str]] = [("raw", None, RAW_CONFIG)]
    mapped = (ScoreConfig.parse(name) for name in names if name.startswith("conf-soft-m"))
    soft = [c for c in mapped if c.family == "conf-soft"]
    soft = sorted((c for c in soft if c.neighbours == 1), key=lambda c: -c.prior_strength)
    variants += [(f"daco-m{c.prior_strength:g}", c.prior_strength, c.name) for c in soft]
    variants.append(("ratio-soft", None, RATIO))
    rows = []
    for split in dict.fromkeys(per_machine["split"]):
        for variant, m, name in variants:
            values = metrics_of(per_machine, split, [name]) if name in names else np.empty(0)
            if not values.size:
                continue
            source, target = values[:, 0, 0], values[:, 0, 1]
            gap = source - target
            means = [source.mean(), target.mean(), gap.mean(), np.abs(gap).mean(), np.median(gap)]
            rows.append([split, variant, m, *map(float, means), float(harmonic_mean(values))])
    columns = ["split", "variant", "m", "mean_auc_source", "mean_auc_target"]
    columns += ["signed_gap", "absolute_gap", "median_gap", "omega"]
    return pd.DataFrame(rows, columns=columns)


def gain_table(per_machine: pd.DataFrame) -> pd.DataFrame:
    """What a per-machine table alone says of where calibration pays (E2); else no rows.

    ``machine, split, separability_train, target_auc_gain``, a row per machine.
    """
    import pandas as pd

    columns = ["machine", "split", "separability_train", "target_auc_gain"]
    if "separability" not in per_machine:
        return pd.DataFrame(columns=columns)
    keys = ["machine", "split"]
    part = {
        config: per_machine[per_machine["config"] == config].set_index(keys)
        for config in (RAW_CONFIG, DEFAULT_CONFIG)
    }
    before, after = part.values()
    gain = (after["auc_target"] - before["auc_target"]).rename("target_auc_gain")
    table = before["separability"].rename("separability_train").to_frame().join(gain, how="inner")
    return table.reset_index()[columns]
