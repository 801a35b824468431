"""Recipes: how a printed figure is recomputed from the artifacts.

``printed.csv`` names a recipe and its arguments, such as ``eval_score beats guarded-pick``: the
function ``eval_score`` is then called with the artifacts and the two words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daco.paper.artifacts import Artifacts
from daco.text import name_list

Recipe = Callable[..., "Recomputed"]

RECIPES: dict[str, Recipe] = {}
"""Every recipe by its name."""


@dataclass(frozen=True)
class Recomputed:
    """A recomputed figure.

    Attributes
    ----------
    values : tuple of float
        One number for each printed one; empty for a name.
    errors : tuple of float
        How far, beyond its own rounding, the printed number may lie from ``values``: because the
        artifact is rounded too, or because the paper's number was drawn at random.
    cause : str
        The reason for these errors.
    name : str or None
        A configuration, a hash or a verdict, where that is what is printed.
    note : str
        What a reader should know of this number.
    needs : str
        What a recomputation would need, where the artifacts only state the value and it was
        read; empty where it was computed.
    """

    values: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    cause: str = "the published decimals"
    name: str | None = None
    note: str = ""
    needs: str = ""


def recipe(function: Recipe) -> Recipe:
    """Register a recipe under the function's name."""
    if function.__name__ in RECIPES:
        raise ValueError(f"two recipes are called {function.__name__!r}")
    RECIPES[function.__name__] = function
    return function


def recompute(words: str, artifacts: Artifacts) -> Recomputed:
    """Call the recipe that a row of ``printed.csv`` names."""
    name, *arguments = words.split()
    return RECIPES[name](artifacts, *arguments)


def number(value: Any, error: float = 0.0, note: str = "") -> Recomputed:
    """One number."""
    return Recomputed((float(value),), (float(error),), note=note)


def pair(first: Any, second: Any, errors: tuple[float, float] = (0.0, 0.0)) -> Recomputed:
    """Two numbers that are printed together."""
    return Recomputed((float(first), float(second)), errors)


def read(found: Recomputed, needs: str) -> Recomputed:
    """The same as a value that an artifact states; `needs` is what computing it would take."""
    return replace(found, needs=needs)


def with_draws(found: Recomputed, n_draws: int) -> Recomputed:
    """The same, with errors because the paper's number was drawn at random."""
    return replace(found, cause=f"the paper's {n_draws:,} draws")


def contradictions(found: Sequence[str]) -> Recomputed:
    """How many values contradict others, and the first of them."""
    return number(len(found), note=f"{name_list(found, 3)}." if found else "")


@recipe
def over(artifacts: Artifacts, how: str, items: str, name: str, *arguments: str) -> Recomputed:
    """Mean, min, max, range or each of another recipe's numbers; the items replace ``*``."""
    found = [
        RECIPES[name](artifacts, *(word.replace("*", item) for word in arguments))
        for item in items.split(",")
    ]
    values = [each.values[0] for each in found]
    errors = tuple(each.errors[0] for each in found)
    if how == "each":
        return replace(found[0], values=tuple(values), errors=errors)
    if how == "range":
        return read(pair(min(values), max(values)), found[0].needs)
    return read(number(getattr(np, how)(values), max(errors)), found[0].needs)
