"""The picture ``images/rooms.svg`` of the architecture page, drawn from the real imports."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "daco"


def room_order() -> list[str]:
    """Names of rooms and single modules, from the lowest layer to the highest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [name.removeprefix("daco.") for name in reversed(layers)]


def room_imports() -> Counter[tuple[str, str]]:
    """How often a module of one room imports one of another, imports in functions included."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in PACKAGE.rglob("*.py"):
        importer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "daco":
                modules = [f"daco.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            imported = {each.split(".")[1] for each in modules if each.startswith("daco.")}
            counts.update((importer, room) for room in imported if room != importer)
    return counts


def draw() -> Figure:
    """A row for each room, with a dot in the column of each room that it imports."""
    order = room_order()
    counts = {pair: n for pair, n in room_imports().items() if set(pair) <= set(order)}
    position = {name: at for at, name in enumerate(order)}
    figure, axes = plt.subplots(figsize=(8, 7), layout="constrained")
    axes.plot([-0.5, len(order) - 0.5], [-0.5, len(order) - 0.5], color="0.8", linewidth=1)
    for (importer, imported), count in counts.items():
        x, y = position[imported], position[importer]
        axes.scatter(x, y, s=40 + 8 * min(count, 60), color="#1f6f8b", linewidths=0)
        axes.annotate(str(count), (x, y), color="white", fontsize=6, ha="center", va="center")
    axes.set_xticks(range(len(order)), order, rotation=60, ha="right")
    axes.set_yticks(range(len(order)), order)
    axes.set_xlabel("is imported")
    axes.set_ylabel("imports")
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    return figure


def setup(sphinx: Sphinx) -> dict[str, bool]:
    """Draw the picture before the pages are read."""

    def write(_: Sphinx) -> None:
        figure = draw()
        figure.savefig(ROOT / "docs" / "images" / "rooms.svg", metadata={"Date": None})
        plt.close(figure)

    sphinx.connect("builder-inited", write)
    return {"parallel_read_safe": True}
