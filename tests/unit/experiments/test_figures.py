"""Pictures: the right numbers in the right places, readable by everybody, nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib._pylab_helpers import Gcf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from report_runs import FIVE, NAUGHTY, published_study, small_study

from daco.errors import InputError
from daco.experiments.figures import (
    plot_coverage,
    plot_distributions,
    plot_frontier,
    plot_gain_separability,
    plot_heat,
    plot_transfer,
    plot_vetoes,
)
from daco.experiments.figures.style import METHODS, PALETTE, look_of, png_bytes, svg_bytes
from daco.method.config import paper_grid

PLOTS = {
    "transfer": plot_transfer,
    "frontier": plot_frontier,
    "gain_separability": plot_gain_separability,
    "coverage": plot_coverage,
    "distributions": plot_distributions,
    "vetoes": plot_vetoes,
    "per_machine": lambda result: plot_heat(result, ["raw-k1"]),
}


@pytest.fixture(scope="module")
def small():
    return small_study(grid=FIVE)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return published_study(tmp_path_factory.mktemp("published"), clips=False)


def points_of(ax):
    """Positions of the points that have a gid, by gid."""
    return {
        line.get_gid(): tuple(float(v[0]) for v in line.get_data())
        for line in ax.lines
        if line.get_gid()
    }


def texts_of(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def boxes_of(ax):
    """Extents of the names in an Axes, in pixels."""
    renderer = FigureCanvasAgg(ax.get_figure()).get_renderer()
    return [text.get_window_extent(renderer) for text in ax.texts]


def test_transfer_shows_every_configuration_at_its_scores(published):
    dev, criterion = plot_transfer(published).axes
    grid = published.grid
    assert points_of(dev) == {
        f"dev-{row}": (grid["dev_omega"][row], grid["eval_omega"][row]) for row in range(51)
    }
    assert points_of(criterion)["criterion-0"] == (grid["crit_dev"][0], grid["eval_omega"][0])
    assert criterion.xaxis_inverted()
    assert not dev.xaxis_inverted()


def test_transfer_states_the_published_correlations(published):
    titles = [ax.get_title(loc="left") for ax in plot_transfer(published).axes]
    assert titles[0].startswith("(a) ρ = −0.03, 95 % [−0.4")
    assert titles[1].startswith("(b) ρ = +0.81, 95 % [+0.4")


def test_transfer_computes_the_correlation_where_no_statistics_are_known(published):
    titles = [ax.get_title(loc="left") for ax in plot_transfer(replace(published, stats={})).axes]
    assert titles == ["(a) ρ = −0.03", "(b) ρ = +0.81"]


def test_transfer_names_the_picks(published):
    dev, _ = plot_transfer(published).axes
    assert {text.get_text() for text in dev.texts} == {"chosen = oracle", "dev pick", "default"}


def test_frontier_is_the_published_one(published):
    ax = plot_frontier(published).axes[0]
    dev = ax.lines[0]
    # the paper's Fig. 1: raw 70.8/57.0 to m=0 60.2/61.4 on the development machines
    assert dev.get_xdata()[[0, -1]] == pytest.approx([70.83, 60.24], abs=0.005)
    assert dev.get_ydata()[[0, -1]] == pytest.approx([56.98, 61.40], abs=0.005)
    assert {"raw", "m=300", "m=0", "median ratio"} <= {text.get_text() for text in ax.texts}


def test_gain_states_the_published_correlation_and_names_all_machines(published):
    ax = plot_gain_separability(published).axes[0]
    assert ax.get_title(loc="left") == "ρ = +0.39 over 15 machines"
    assert {text.get_text() for text in ax.texts} == set(published.diagnostics["machine"])


@pytest.mark.parametrize("name", ["frontier", "gain_separability"])
def test_names_in_the_published_pictures_do_not_overlap(published, name):
    boxes = boxes_of(PLOTS[name](published).axes[0])
    for first, second in combinations(boxes, 2):
        shared = first.intersection(first, second)
        assert shared is None or shared.width * shared.height < 1  # square pixel


def test_coverage_shows_means_over_machines(published):
    realised, imbalance = plot_coverage(published).axes
    rows = published.coverage
    rows = rows[(rows["split"] == "eval") & (rows["nominal_fpr"] == 0.1)]
    lines = {line.get_label(): line for line in realised.lines}
    for domain in ("source", "target"):
        part = rows[(rows["domain"] == domain) & (rows["system"] == "daco-m0")]
        line = lines[f"{domain}, m=0, paper's rule"]
        assert line.get_ydata()[0] == pytest.approx(part["empirical_fpr"].mean())
    pairs = rows[rows["system"] == "raw"].pivot(
        index="machine", columns="domain", values="empirical_fpr"
    )
    raw = next(line for line in imbalance.lines if line.get_label() == "raw, paper's rule")
    assert raw.get_ydata()[0] == pytest.approx((pairs["source"] - pairs["target"]).abs().mean())


def test_heat_writes_the_appendix_of_the_paper(published):
    texts = texts_of(plot_heat(published, ["raw-k1", "conf-soft-m0-ldnK1"]))
    assert texts[:6] == ["60.6", "48.0", "57.5", "67.1", "64.2", "62.5"]  # bearing
    assert len(texts) == 15 * 6 + 2


def test_the_threshold_of_a_domain_is_where_the_detector_would_put_it(small):
    machine = small.machine_scores()[0]
    thresholds = machine.reference_of("blend").domain_thresholds(0.1)
    axes = plot_distributions(small, machine.title, "blend").axes[0]
    drawn = [
        collection.get_segments()[0]
        for collection in axes.collections
        if len(collection.get_segments()) == 1 and collection.get_linewidths()[0] == 1.0
    ]
    rows = dict(enumerate(sorted(thresholds.items(), reverse=True)))  # from the bottom
    found = {round(segment[0, 1]): segment[0, 0] for segment in drawn}
    assert found == pytest.approx({row: value for row, (_, value) in rows.items()})


def test_distributions_ask_for_a_machine_that_is_there(small, published):
    with pytest.raises(InputError, match="Did you mean 'fan'"):
        plot_distributions(small, "fann")
    with pytest.raises(InputError, match="Name it with 'machine'"):
        plot_distributions(small, ax=Figure().subplots())
    with pytest.raises(InputError, match="no scores of single clips"):
        plot_distributions(published)


def test_a_picture_is_drawn_on_the_callers_axes(small):
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert plot_transfer(small, axes) is figure
    assert all(points_of(ax) for ax in axes)
    assert plot_frontier(small, Figure().subplots()).axes[0].lines
    with pytest.raises(InputError, match="drawn on 2 Axes"):
        plot_transfer(small, axes[0])


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_drawing_leaves_no_state_behind(small, plot):
    settings, figures = dict(mpl.rcParams), list(Gcf.figs)
    plot(small)
    assert dict(mpl.rcParams) == settings
    assert list(Gcf.figs) == figures


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_the_same_picture_has_the_same_bytes(small, plot):
    first, second = plot(small), plot(small)
    assert svg_bytes(first, "x") == svg_bytes(second, "x")
    assert png_bytes(first, 60) == png_bytes(second, 60)


@pytest.mark.parametrize("labelled", [(), ("dev",), ("eval",)], ids=["none", "dev", "eval"])
def test_what_cannot_be_shown_is_said_in_the_picture(labelled):
    result = small_study(labelled=labelled, grid=FIVE)
    drawn = {name: plot(result) for name, plot in PLOTS.items()}
    for name, figure in drawn.items():
        assert svg_bytes(figure, name)
    if not labelled:
        assert texts_of(drawn["frontier"]) == ["no labelled machines, so no frontier"]
        assert texts_of(drawn["gain_separability"]) == ["no labelled machines, so no gain"]
        assert texts_of(drawn["per_machine"]) == ["no labelled machines"]
        assert texts_of(drawn["coverage"]) == ["no labelled test normals"] * 2
    if "eval" not in labelled:
        assert texts_of(drawn["transfer"]) == ["no evaluation score"] * 2
    elif "dev" not in labelled:
        assert texts_of(drawn["transfer"])[0] == "no dev score (official, %)"


def test_any_name_can_be_drawn():
    result = small_study(dev=("fan", NAUGHTY), eval=(), grid=FIVE)
    for name, plot in PLOTS.items():
        svg = svg_bytes(plot(result), name, text_as_paths=False).decode()
        assert "<script>" not in svg
    assert "&lt;script&gt;" in svg


def test_every_published_configuration_has_a_look_of_its_own_family():
    looks = {config.family: look_of(config.name) for config in paper_grid()}
    assert len(set(looks.values())) == len(looks)
    assert look_of("conf-oracle-m30-k1").fill == "left"
    assert look_of("a system of my own").title == "other"


def test_other_configurations_have_a_look_of_their_own():
    looks = {
        name: look_of(name)
        for name in ("blend", "conf-soft-m0-blend", "varmin-K4", "ext-mine", "zscore-soft-ext-mine")
    }
    assert len({look.title for look in looks.values()} | {"other"}) == len(looks) + 1
    assert {look_of(f"ldn-{kind}-K16") for kind in ("ratio", "mean")} == {look_of("ldn-ratio-K1")}
    assert {look.title for look in looks.values()} <= {look.title for look in METHODS.values()}


# Machado, Oliveira & Fernandes (2009), severity 1.0, for linear RGB
DEFICIENCIES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
}  # fmt: skip


def lab(rgb):
    """CIE L*a*b* (D65) of linear RGB."""
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(matrix) @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_no_two_methods_look_alike_to_a_colour_blind_reader(deficiency):
    matrix = np.array(DEFICIENCIES[deficiency])
    seen = {}
    for look in METHODS.values():
        srgb = np.array(to_rgb(look.colour))
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        seen[look.title] = lab(matrix @ linear)
    for first, second in combinations(seen, 2):
        if second == f"calibrated {first}":
            continue  # the same colour on purpose, and another shape
        # 10 is several times a just noticeable difference; shapes differ as well
        assert np.linalg.norm(seen[first] - seen[second]) > 10, (first, second)
    assert len({look.marker for look in METHODS.values()}) == len(METHODS)


def test_colours_can_be_seen_on_paper():
    for name in set(PALETTE) - {"paper", "grid", "silver"}:
        linear = [
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
            for v in to_rgb(PALETTE[name])
        ]
        luminance = np.dot(linear, [0.2126, 0.7152, 0.0722])
        assert 1.05 / (luminance + 0.05) >= 3, name  # WCAG 1.4.11 for graphical objects


def test_a_criterion_without_values_is_not_drawn(small):
    grid = small.grid.assign(crit_dev=np.nan)
    _, criterion = plot_transfer(replace(small, grid=pd.DataFrame(grid))).axes
    assert criterion.texts[0].get_text().startswith("no criterion")
