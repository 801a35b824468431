"""How a printed figure is recomputed: a name in the data, a small function of the artifacts.

The data say ``eval_score beats guarded-pick``; the registry finds the function
``eval_score`` and calls it with the artifacts and the two words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from daco.paper.artifacts import Artifacts
from daco.text import name_list

Recipe = Callable[..., "Recomputed"]

RECIPES: dict[str, Recipe] = {}
"""Every recipe by its name."""


@dataclass(frozen=True)
class Recomputed:
    """What the artifacts say.

    Attributes
    ----------
    values : tuple of float
        One number for each printed one; empty for a name.
    errors : tuple of float
        How far, beyond its own rounding, the printed number may honestly lie from ``values``:
        because the artifact is rounded too, or because the paper's number was drawn at random.
    cause : str
        What these errors are of.
    name : str or None
        A configuration, a hash or a verdict, where that is what is printed.
    note : str
        What a reader should know of this number.
    needs : str
        What a recomputation would need, where the artifacts only state the value and it was
        read; empty where it was computed from what is below it.
    """

    values: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    cause: str = "the published decimals"
    name: str | None = None
    note: str = ""
    needs: str = ""


def recipe(function: Recipe) -> Recipe:
    """Enter a function into the registry under its own name."""
    if function.__name__ in RECIPES:
        raise ValueError(f"two recipes are called {function.__name__!r}")
    RECIPES[function.__name__] = function
    return function


def number(value: Any, error: float = 0.0, note: str = "") -> Recomputed:
    """One number."""
    return Recomputed((float(value),), (float(error),), note=note)


def pair(first: Any, second: Any, errors: tuple[float, float] = (0.0, 0.0)) -> Recomputed:
    """Two numbers that are printed together."""
    return Recomputed((float(first), float(second)), errors)


def read(found: Recomputed, needs: str) -> Recomputed:
    """The same as a value that an artifact states; `needs` is what computing it would take."""
    return replace(found, needs=needs)


def drawn(found: Recomputed, number_of_draws: int) -> Recomputed:
    """The same, its errors being those of a number that the paper drew at random."""
    return replace(found, cause=f"the paper's {number_of_draws:,} draws")


def contradictions(found: Sequence[str]) -> Recomputed:
    """How many values contradict others, and the first of them."""
    return number(len(found), note=f"{name_list(found, 3)}." if found else "")


def named(name: str, note: str = "") -> Recomputed:
    """A name."""
    return Recomputed(name=name, note=note)


def recompute(words: str, artifacts: Artifacts) -> Recomputed:
    """Follow the recipe that the data name."""
    name, *arguments = words.split()
    return RECIPES[name](artifacts, *arguments)
