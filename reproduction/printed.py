"""The printed values and errata as data, and when a recomputed value agrees with a printed one.

``printed.csv`` has one row per value and place, ``places.csv`` the places in the order of the
paper, ``errata.csv`` one row per erratum.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "below": lambda value, bound: value < bound,
    "above": lambda value, bound: value > bound,
    "at least": lambda value, bound: value >= bound,
}
_SLACK = 1e-9  # 0.125 printed as 0.12 lies half a digit away, and binary fractions a little more


@dataclass(frozen=True)
class PrintedValue:
    """A value as it is printed: a row of ``printed.csv``."""

    id: str  # unique, such as "table2.oracle.eat"
    place: str  # a row of places.csv
    what: str
    printed: str  # the text of the paper without its LaTeX
    value: str = ""  # what that says, where it is not a number: "three of five" is 3/5
    rule: str = ""  # "": rounds to the printed digits; below, above, at least; name: equal text
    recipe: str = ""  # a function and its arguments, such as "score eval beats guarded-pick"
    status: str = ""  # without a recipe: needs audio, needs code, needs teams, cited
    erratum: int = 0  # number of the erratum that says that this value is wrong
    note: str = ""

    @property
    def content(self) -> str:
        """The text that holds the numbers or the name."""
        return self.value or self.printed

    @property
    def numbers(self) -> list[str]:
        """The printed numbers, each with its sign and digits."""
        return [] if self.rule == "name" else NUMBER.findall(self.content)


@dataclass(frozen=True)
class Recomputed:
    """A recomputed value.

    ``values`` has one number for each printed one, or ``name`` is a configuration, a hash or a
    verdict. The printed number may lie further from its value than its own rounding allows: by
    ``errors``, whose reason is ``cause`` (a rounded table, a number drawn at random). Where the
    published files only state the value, ``needs`` is what computing it would need.
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


def agrees(printed: PrintedValue, recomputed: Recomputed, *, with_errors: bool = True) -> bool:
    """Whether a recomputed value could have been printed as this one was.

    It may lie half a unit of the last printed digit away, and as much further as
    :attr:`Recomputed.errors` grants.

    Examples
    --------
    >>> value = PrintedValue("x", "Table II", "random configuration, sd", "2.1")
    >>> agrees(value, number(2.06)), agrees(value, number(2.045))
    (True, False)
    """
    if printed.rule == "name":
        return recomputed.name == printed.content
    if printed.rule:
        holds, bound = _BOUNDS[printed.rule], float(printed.numbers[0])
        return bool(recomputed.values) and all(holds(value, bound) for value in recomputed.values)
    if len(recomputed.values) != len(printed.numbers):
        return False
    errors = (
        recomputed.errors if with_errors and recomputed.errors else [0.0] * len(printed.numbers)
    )
    return all(
        abs(value - float(text)) <= 0.5 * 10.0 ** -decimals(text) + error + _SLACK
        for value, text, error in zip(recomputed.values, printed.numbers, errors, strict=True)
    )


def text_of(printed: PrintedValue, recomputed: Recomputed) -> str:
    """The recomputed value with two digits more than the printed one.

    >>> value = PrintedValue("x", "Abstract", "an interval", "[+0.83,+0.95]")
    >>> text_of(value, number(0.8213, 0.9517))
    '0.8213,0.9517'
    """
    if recomputed.name is not None:
        return recomputed.name
    digits = max(map(decimals, printed.numbers), default=0)
    return ",".join(
        f"{value:.0f}" if digits == 0 and value.is_integer() else f"{value:.{digits + 2}f}"
        for value in recomputed.values
    )


def decimals(number: str) -> int:
    """How many digits follow the point."""
    return len(number.partition(".")[2])


def read_rows(file: str) -> list[dict[str, str]]:
    """The rows of a table beside this module."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


PRINTED = tuple(
    PrintedValue(**{**row, "erratum": int(row["erratum"] or 0)})  # type: ignore[arg-type]
    for row in read_rows("printed.csv")
)
"""Every printed value, in the order of the paper."""

PLACES = {row["name"]: row for row in read_rows("places.csv")}
"""The parts of the paper in its order, then what came after it: ``title`` and ``in_paper``."""

ERRATA = {int(row["number"]): row["text"] for row in read_rows("errata.csv")}
"""The errors of the paper by number, each in a sentence or two."""
