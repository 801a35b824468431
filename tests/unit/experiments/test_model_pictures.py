"""Pictures of a model: its scores, and the faults it catches."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from field_models import small_model

from daco.detector.model import MachineModel
from daco.errors import InputError
from daco.experiments.figures.models import plot_scores, plot_sensitivity
from daco.experiments.figures.style import save_picture


def line(ax, label):
    return next(each for each in ax.lines if str(each.get_label()).startswith(label))


def test_scores_have_the_limit_of_each_domain(tmp_path):
    model = small_model(config="raw-k1")
    figure = plot_scores(model)
    limits = [each.get_xdata()[0] for each in figure.axes[0].lines]
    assert limits == list(model.thresholds.values())
    save_picture(figure, tmp_path / "a.svg")
    save_picture(figure, tmp_path / "a.png")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_many_domains_with_names_of_any_kind(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 5))
    names = ["$x_1$", "a" * 60, "ünïcode\x1b[31m", *(f"d{i}" for i in range(9))]
    model = MachineModel.fit(
        X, [names[i % 12] for i in range(60)], machine="$\x07", config="raw-k1"
    )
    save_picture(plot_scores(model), tmp_path / "a.svg")
    assert b"\x1b" not in (tmp_path / "a.svg").read_bytes()
    with pytest.raises(InputError, match=r"\.svg or \.png"):
        save_picture(plot_scores(model), tmp_path / "a.pdf")


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
    assert line(panels[0], "target").get_ydata().tolist() == pytest.approx([30.0, 30.0])
    heights = [each.get_ydata()[0] for each in panels[0].lines if each.get_linestyle() != "-"]
    assert {20.0, 30.0} <= set(np.round(heights, 6))  # false alarms of the same recordings
