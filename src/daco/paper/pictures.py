"""Figures 1 to 3 of the paper, drawn from the authors' artifacts."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pandas as pd

from daco.experiments.frontier import frontier_table
from daco.experiments.result import StudyResult
from daco.experiments.statistics import transfer_statistics
from daco.method.selection import selection_table
from daco.paper.artifacts import Artifacts, grid, machines
from daco.paper.experiments import diagnostics, target_gains

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "fig1": "Fig. 1. Mean source against target AUC of the seven development machines along the "
    "prior strength m (BEATs, soft assignment, k = 1); on the dotted line both are equal.",
    "fig2": "Fig. 2. Gain in target AUC of calibration (m = 0) over raw kNN against the "
    "separability of the training domains. Circles: development machines; triangles: evaluation "
    "machines.",
    "fig3": "Fig. 3. What predicts the evaluation score of 45 configurations: (a) the dev score, "
    "(b) the label-free criterion on development machines.",
}
"""What the figures show, by name."""


def transfer_study(artifacts: Artifacts) -> StudyResult:
    """The transfer study of 45 configurations as a result of :func:`daco.study`."""
    table = grid(artifacts, "45")
    per_machine = pd.concat([machines(artifacts, "45", split) for split in ("dev", "eval")])
    gains = pd.Series(target_gains(artifacts), name="target_auc_gain")
    described = diagnostics(artifacts).join(gains).reset_index()
    nothing = pd.DataFrame()
    return StudyResult(
        grid=table,
        per_machine=per_machine,
        baselines=nothing,
        frontier=frontier_table(per_machine),
        diagnostics=described,
        coverage=nothing,
        balances=nothing,
        stability=nothing,
        cost=nothing,
        selection={"rows": [asdict(row) for row in selection_table(table)]},
        stats=transfer_statistics(table, per_machine, diagnostics=described),
    )


def paper_figures(artifacts: Artifacts) -> dict[str, Figure]:
    """The figures by name, as in `CAPTIONS`.

    Raises
    ------
    ArtifactError
        A table of the transfer study is missing or damaged.
    """
    from daco.experiments.figures import plot_frontier, plot_gain_separability, plot_transfer

    result = transfer_study(artifacts)
    frontier = result.frontier
    dev = replace(result, frontier=frontier[frontier["split"] == "dev"])
    return {
        "fig1": plot_frontier(dev),
        "fig2": plot_gain_separability(result),
        "fig3": plot_transfer(result),
    }
