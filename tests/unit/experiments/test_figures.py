"""Pictures: they show what the tables say, in the same bytes every time, and survive any name."""

from __future__ import annotations

import numpy as np
import pytest
from random_studies import NAUGHTY, REPORT_GRID, report_study

from daco.experiments.figures import studies as figures
from daco.experiments.figures.style import svg_bytes


@pytest.fixture(scope="module")
def study():
    return report_study(eval=("pump", NAUGHTY))


def points(ax):
    """Places of all marks of an Axes, as rows."""
    return np.concatenate([np.column_stack(line.get_data()) for line in ax.lines])


def has_points(ax, expected):
    drawn = points(ax)
    return all(np.isclose(drawn, row).all(axis=1).any() for row in np.asarray(expected, float))


def test_the_same_table_gives_the_same_bytes(study):
    stability = study.stability()
    first, second = (svg_bytes(figures.plot_stability(stability), "a") for _ in range(2))
    assert first == second


def test_transfer_has_every_configuration_and_marks_the_chosen(study):
    grid = study.grid()
    figure = figures.plot_transfer(grid, "criterion_dev", {"conf-soft-m0-k1": "chosen"})
    ax = figure.axes[0]
    assert has_points(ax, grid[["criterion_dev", "eval_score"]])
    assert len(points(ax)) == len(REPORT_GRID) + 1  # and the ring
    assert ax.xaxis_inverted()
    assert [text.get_text() for text in ax.texts] == ["chosen"]


def test_the_frontier_runs_along_m(study):
    frontier = study.frontier()
    ax = figures.plot_frontier(frontier).axes[0]
    assert has_points(ax, frontier[["auc_source", "auc_target"]])
    assert [text.get_text() for text in ax.texts][:3] == ["raw", "m=10", "m=0"]


def test_coverage_has_a_row_for_each_decision_and_the_mean_over_machines(study):
    coverage = study.coverage()
    coverage = coverage[coverage["set"] == "eval"]
    ax = figures.plot_coverage(coverage, 0.1).axes[0]
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[:2] == ["conf-soft-m0-k1\np-value", "blend\np-value"]
    assert f"{study.run['choice']['config']}\np-value" in names
    assert "raw-k1\npaper's threshold" in names
    rows = coverage[(coverage["level"] == 0.1) & (coverage["configuration"] == "blend")]
    rows = rows[(rows["decision"] == "p-value") & (rows["domain"] == "source")]
    assert has_points(ax, [[100 * rows["rate"].mean(), 1 - 0.15]])
