"""Pictures of a model: its calibration for every kind of score, and the faults it catches."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from field_models import normals, small_model

from daco.detector.model import MachineModel
from daco.errors import InputError
from daco.experiments.figures.models import plot_calibration, plot_sensitivity
from daco.experiments.figures.style import save_picture
from daco.method.paper import quantile_map

KINDS = ["raw-k1", "conf-soft-m0-k1", "conf-hard-m30-k2", "ratio-soft-k1", "zscore-hard-k1"]


@pytest.mark.parametrize("config", [*KINDS, "ldn-ratio-K1", "ldn-diff-K1", "conf-soft-m0-ldnK1"])
def test_every_kind_of_configuration_is_drawn(config, tmp_path):
    figure = plot_calibration(small_model(config=config))
    save_picture(figure, tmp_path / "a.svg")
    save_picture(figure, tmp_path / "a.png")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def line(ax, label):
    return next(each for each in ax.lines if str(each.get_label()).startswith(label))


def level_lines(ax):
    """Lines across the picture, at the height of a threshold."""
    lines = [each for each in ax.lines if str(each.get_label()).endswith("threshold")]
    return [each for each in lines if len(set(each.get_ydata())) == 1]


def upright_lines(ax):
    """Lines from top to bottom; a dotted one across is the rate."""
    return [each for each in ax.lines if len(each.get_xdata()) == 2
            and len(set(each.get_xdata())) == 1]  # fmt: skip


def test_lines_are_the_maps_that_score(tmp_path):
    """With all weight on one domain, a clip's score is that domain's line at its distance."""
    model = small_model(config="conf-hard-m0-k1")
    maps, above = plot_calibration(model).axes
    own = model.bank.leave_one_out("raw-k1")[:, 0]
    for code, name in enumerate(("source", "target")):
        x, y = line(maps, name).get_data()
        np.testing.assert_allclose(
            y, quantile_map(own[model.clip_domains == code], x, signed=False)
        )
    x, y = line(maps, "all normals").get_data()
    np.testing.assert_allclose(y, quantile_map(own, x, signed=False))
    expected = sorted(model.thresholds.values())
    assert expected[0] < expected[1]
    assert sorted(each.get_ydata()[0] for each in level_lines(maps)) == expected
    assert sorted(each.get_xdata()[0] for each in upright_lines(above)) == expected
    clips = normals(seed=3)[0]
    scored = model.score(clips)
    code = scored.weights.argmax(axis=1)
    distance = model.bank.score(clips, "raw-k1")[:, 0]
    for row in range(0, 50, 7):
        x, y = line(maps, model.domains[code[row]]).get_data()
        if x[0] < distance[row] < x[-1]:
            # the drawn line has 400 points; the map bends at its knots between them
            assert np.interp(distance[row], x, y) == pytest.approx(scored.scores[row], abs=0.01)


def test_the_shares_above_are_those_of_the_model():
    model = small_model(config="raw-k1", false_alarm_rate=0.2)
    _, above = plot_calibration(model).axes
    for code, name in enumerate(model.domains):
        own = model.reference_scores[model.reference_domains == code]
        share = (own > model.thresholds[name]).mean()
        drawn = line(above, f"{name}: {share:.3f} above")
        x, y = drawn.get_data()
        at = np.searchsorted(x, model.thresholds[name], side="right")  # steps end at the scores
        assert y[at] == pytest.approx(share)
        assert share == pytest.approx(0.2, abs=0.1)  # shrunk toward that of both domains


def test_many_domains_with_names_of_any_kind(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 5))
    names = ["$x_1$", "a" * 60, "ünïcode\x1b[31m", *(f"d{i}" for i in range(9))]
    model = MachineModel.fit(
        X, [names[i % 12] for i in range(60)], machine="$\x07", config="raw-k1"
    )
    save_picture(plot_calibration(model), tmp_path / "a.svg")
    assert b"\x1b" not in (tmp_path / "a.svg").read_bytes()


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.svg or \.png"):
        save_picture(plot_calibration(small_model()), tmp_path / "a.pdf")


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
