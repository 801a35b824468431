"""The paper's printed figures and errata as data, and what recomputing a figure returns.

``printed.csv`` has one row per figure and place, ``places.csv`` the places in the order of the
paper, ``errata.csv`` one row per erratum.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from daco.text import name_list

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Place:
    """A part of the paper, or of what came after it (not ``in_paper``).

    Of a ``dense`` table only differing figures are listed.
    """

    name: str
    title: str
    in_paper: bool
    dense: bool

    @property
    def heading(self) -> str:
        """The place with its subject."""
        return f"{self.name}: {self.title}" if self.title else self.name


@dataclass(frozen=True)
class Figure:
    """A figure as it is printed: a row of ``printed.csv``."""

    id: str  #: unique, such as ``"table2.oracle.eat"``
    place: str  #: name of a :class:`Place`
    what: str  #: what the figure is of
    printed: str  #: the text of the paper without its LaTeX
    #: What `printed` says as numbers or as a name, where it does not say so itself: ``"three of
    #: five"`` is ``3/5``.
    value: str = ""
    #: How the recomputed value relates to it: ``""`` rounds to the printed digits, ``below``,
    #: ``above``, ``at least``, or ``name`` for equal text.
    rule: str = ""
    #: A recipe and its arguments, such as ``eval_score beats guarded-pick``: the function
    #: ``eval_score`` is called with the artifacts and the two words. Empty when there is none.
    recompute: str = ""
    #: Its status where there is no recipe: ``"needs audio"``, ``"needs code"``, ``"needs teams"``
    #: or ``"cited"``; `note` says why.
    standing: str = ""
    erratum: int | None = None  #: number of the erratum that says that this figure is wrong
    note: str = ""

    @property
    def content(self) -> str:
        """The text that holds the numbers or the name."""
        return self.value or self.printed

    @property
    def numbers(self) -> tuple[str, ...]:
        """The printed numbers, each with its sign and digits."""
        return () if self.rule == "name" else numbers_in(self.content)


@dataclass(frozen=True)
class Erratum:
    """An error of the paper, in a sentence or two."""

    number: int
    text: str


def numbers_in(text: str) -> tuple[str, ...]:
    """The numbers in a text, as they are written.

    >>> numbers_in("[-0.39,+0.31]"), numbers_in("54.8–57.8")
    (('-0.39', '+0.31'), ('54.8', '57.8'))
    """
    return tuple(NUMBER.findall(text))


def decimals(number: str) -> int:
    """How many digits follow the point."""
    return len(number.partition(".")[2])


@cache
def figures() -> tuple[Figure, ...]:
    """Every figure, in the order of the paper.

    Examples
    --------
    >>> from daco.paper import figures
    >>> next(f.printed for f in figures() if f.id == "table2.oracle.eat")
    '59.76'
    """
    return tuple(
        Figure(**row | {"erratum": int(row["erratum"]) if row["erratum"] else None})  # type: ignore[arg-type]
        for row in _rows("printed.csv")
    )


@cache
def errata() -> tuple[Erratum, ...]:
    """List every erratum, by number.

    Returns
    -------
    tuple of Erratum

    Examples
    --------
    >>> from daco.paper import errata
    >>> len(errata())
    16
    """
    return tuple(Erratum(int(row["number"]), row["text"]) for row in _rows("errata.csv"))


def _rows(file: str) -> list[dict[str, str]]:
    text = resources.files("daco.paper").joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


PLACES = tuple(
    Place(row["name"], row["title"], bool(row["in_paper"]), bool(row["dense"]))
    for row in _rows("places.csv")
)
"""The parts of the paper in its order, then what came after it."""


@dataclass(frozen=True)
class Recomputed:
    """A recomputed figure.

    ``values`` has one number for each printed one, or ``name`` is a configuration, a hash or a
    verdict. The printed number may lie further from its value than its own rounding allows: by
    ``errors``, whose reason is ``cause`` (a rounded artifact, a number drawn at random). Where the
    artifacts only state the value, ``needs`` is what computing it would need.
    """

    values: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    cause: str = "the published decimals"
    name: str | None = None
    note: str = ""
    needs: str = ""


def number(*values: Any, error: float | Sequence[float] = 0.0, **details: str) -> Recomputed:
    """A number, or several that are printed together, with their errors."""
    errors = np.broadcast_to(error, len(values)).astype(float)
    return Recomputed(tuple(map(float, values)), tuple(errors.tolist()), **details)


def contradictions(values: Sequence[str]) -> Recomputed:
    """How many values contradict others, and the first of them."""
    return number(len(values), note=f"{name_list(values, 3)}." if values else "")
