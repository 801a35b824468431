"""The pictures of the page on concepts, of the machine that the page follows.

    python docs/concept_pictures.py

They go to ``docs/_static``. Their background is white, so that they can be read in dark mode too.
"""

from __future__ import annotations

import contextlib
import io
import tempfile

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from notebook import DOCS, read_blocks, run_blocks

import daco
from daco.experiments.figures.style import DOMAINS, INK, MUTED, PALETTE, with_style
from daco.method import paper

SAME_SCORE = 0.00105
"""A raw score that both maps show."""


def valve() -> tuple[np.ndarray, np.ndarray]:
    """Embeddings and domains of the normals of the page, made by its first block."""
    blocks = read_blocks((DOCS / "concepts.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        next(run_blocks(blocks))
        normals = daco.EmbeddingTable.read("valve.parquet").select(split="train")
    return normals.matrix(), normals.column("domain")


@with_style
def draw_maps(X: np.ndarray, domains: np.ndarray) -> Figure:
    """Leave-one-out scores of each domain, and the quantile maps that they give."""
    loo_scores = daco.NormalBank(X, domains).leave_one_out("raw-k1")[:, 0]
    figure, (left, right) = _two_panels()
    rng = np.random.default_rng(0)
    for row, (name, look) in enumerate(DOMAINS.items()):
        scores = loo_scores[domains == name]
        height = row + rng.uniform(-0.15, 0.15, len(scores))
        left.scatter(scores, height, s=14, color=look.colour, alpha=0.7, linewidths=0)
        left.plot([np.median(scores)] * 2, [row - 0.3, row + 0.3], color=INK, linewidth=1.5)
        grid = np.append(np.linspace(0, 0.002, 400), SAME_SCORE)
        quantiles = paper.quantile_map(scores, grid, signed=False)
        right.plot(grid[:-1], quantiles[:-1], color=look.colour, linestyle=("-", "--")[row])
        at = float(quantiles[-1])
        right.plot(SAME_SCORE, at, "o", color=look.colour, markersize=5)
        right.annotate(
            f"{name}: {at:.2f}",
            (SAME_SCORE, at),
            xytext=((-8, 2), (9, -12))[row],
            textcoords="offset points",
            ha=("right", "left")[row],
        )
    left.set_yticks([0, 1], list(DOMAINS))
    left.set_ylim(-0.6, 1.6)
    left.set_xlim(0, 0.002)
    left.set_title("Leave-one-out scores, line: median", loc="left")
    right.axvline(SAME_SCORE, color=MUTED, linewidth=1, linestyle=":")
    right.set_title("Quantile maps", loc="left")
    right.set_ylabel("quantile")
    for axes in (left, right):
        axes.set_xlabel("raw score")
        axes.set_xticks([0, 0.0005, 0.001, 0.0015, 0.002])
    return figure


@with_style
def draw_criterion(X: np.ndarray, domains: np.ndarray) -> Figure:
    """The largest gap between the domains in the first split, raw and calibrated."""
    held = paper.held_out_halves((domains == "target").astype(int), n_splits=1, seed=0)[0]
    half = daco.NormalBank(X[~held], domains[~held])
    figure, panels = _two_panels()
    for axes, config in zip(panels, ("raw-k1", "conf-soft-m0-k1"), strict=True):
        scores = half.score(X[held], config)[:, 0]
        parts = {name: np.sort(scores[domains[held] == name]) for name in DOMAINS}
        for row, (name, look) in enumerate(DOMAINS.items()):
            line = ("-", "--")[row]
            axes.ecdf(parts[name], color=look.colour, linestyle=line, label=name)
        _show_gap(axes, *parts.values())
        axes.set_title(config, loc="left")
        axes.set_xlabel("score of held-out normals")
        axes.set_ylabel("share below")
        axes.legend(loc="lower right", frameon=False)
    return figure


def _show_gap(axes: Axes, first: np.ndarray, second: np.ndarray) -> None:
    points = np.concatenate([first, second])
    shares = np.array([[np.mean(part <= x) for x in points] for part in (first, second)])
    at = int(np.argmax(np.abs(shares[0] - shares[1])))
    ends = shares[:, at]
    arrow = {"arrowstyle": "<->", "color": INK, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (points[at], ends[0]), xytext=(points[at], ends[1]), arrowprops=arrow)
    axes.annotate(
        f"KS {paper.ks_distance(first, second):.2f}",
        (points[at], ends.mean()),
        ha="center",
        va="center",
        bbox={"facecolor": PALETTE["paper"], "edgecolor": "none", "pad": 1.5},
    )


@with_style
def draw_alarm() -> Figure:
    """Simulated p-values of 20 clips of a healthy machine and 10 of a failing one."""
    rng = np.random.default_rng(1)
    p_values = np.concatenate([rng.random(20), rng.beta(0.4, 4, 10)])
    anomalous = p_values <= 0.1
    opened = next(i for i in range(30) if anomalous[max(0, i - 4) : i + 1].sum() >= 3)
    figure = Figure(figsize=(7.2, 2.4), layout="constrained")
    axes = figure.subplots()
    number = np.arange(1, 31)
    axes.axhspan(0, 0.1, color=PALETTE["grid"], linewidth=0)
    axes.axvline(20.5, color=MUTED, linestyle=":", linewidth=1)
    axes.scatter(number[~anomalous], p_values[~anomalous], s=22, color=PALETTE["blue"])
    axes.scatter(number[anomalous], p_values[anomalous], s=30, marker="D", color=PALETTE["orange"])
    axes.annotate(
        "alarm: 3 of the last 5",
        (number[opened], p_values[opened]),
        xytext=(0, 60),
        textcoords="offset points",
        ha="center",
        arrowprops={"arrowstyle": "->", "color": INK},
    )
    axes.text(11, 0.05, "at most 0.1: anomalous", color=MUTED, va="center")
    axes.text(20.8, 1.0, "the fault begins", color=MUTED, va="top")
    axes.set(xlabel="clip", ylabel="p-value", ylim=(-0.03, 1.05), xlim=(0, 31))
    return figure


def _two_panels() -> tuple[Figure, tuple[Axes, Axes]]:
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    return figure, tuple(figure.subplots(1, 2))


def draw_all() -> dict[str, bytes]:
    """Every picture as SVG, by the name of its file."""
    machine = valve()
    figures = {
        "concepts-maps.svg": draw_maps(*machine),
        "concepts-criterion.svg": draw_criterion(*machine),
        "concepts-alarm.svg": draw_alarm(),
    }
    return {name: _svg(figure, name) for name, figure in figures.items()}


def _svg(figure: Figure, name: str) -> bytes:
    """The picture with its labels as text, the same bytes every time."""
    stream = io.BytesIO()
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


if __name__ == "__main__":
    for name, content in draw_all().items():
        (DOCS / "_static" / name).write_bytes(content)
