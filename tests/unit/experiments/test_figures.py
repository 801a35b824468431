"""Pictures: they show what the tables say, in the same bytes every time, and survive any name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from field_models import small_model
from random_studies import NAUGHTY, REPORT_GRID, report_study

from daco.detector.model import MachineModel
from daco.experiments.figures import studies as figures
from daco.experiments.figures.models import plot_scores, plot_sensitivity
from daco.experiments.figures.style import save_picture, svg_bytes


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


# Of models


def test_scores_have_the_limit_of_each_domain():
    model = small_model(config="raw-k1")
    limits = [each.get_xdata()[0] for each in plot_scores(model).axes[0].lines]
    assert limits == list(model.thresholds.values())


def test_many_domains_with_names_of_any_kind(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 5))
    names = ["$x_1$", "a" * 60, "ünïcode\x1b[31m", *(f"d{i}" for i in range(9))]
    model = MachineModel.fit(
        X, [names[i % 12] for i in range(60)], machine="$\x07", config="raw-k1"
    )
    save_picture(plot_scores(model), tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_bytes()
    assert b"<svg" in drawn
    assert b"\x1b" not in drawn


def test_sensitivity_has_a_panel_for_each_fault_and_a_line_for_each_domain():
    levels = [np.nan, -12.0, 0.0]
    rows = [
        {"fault": fault, "domain": domain, "level_db": level, "rate": 0.2 + 0.1 * at}
        for fault, own in (("", levels[:1]), *((kind, levels[1:]) for kind in "abcd"))
        for at, domain in enumerate(("source", "target"))
        for level in own
    ]
    table = pd.DataFrame(rows).assign(low=0.1, high=0.6)
    panels = plot_sensitivity(table, "fan", 0.1).axes
    assert [ax.get_title(loc="left") for ax in panels[:4]] == list("abcd")
    (target,) = [each for each in panels[0].lines if str(each.get_label()).startswith("target")]
    assert target.get_ydata().tolist() == pytest.approx([30.0, 30.0])
    heights = [each.get_ydata()[0] for each in panels[0].lines if each.get_linestyle() != "-"]
    assert {20.0, 30.0} <= set(np.round(heights, 6))  # false alarms of the same recordings
