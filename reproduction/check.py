"""Recompute every printed value and say whether it agrees."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from daco.errors import DacoError
from reproduction import experiments, scores, statistics
from reproduction.printed import PrintedValue, Recomputed, agrees, number, text_of
from reproduction.published import Published

STATUSES = {
    "ok": "recomputed from the published files, equal to the printed digits",
    "read": "stated by a published file, equal to the printed digits",
    "differs": "not equal to the printed digits; [n]: erratum n says why",
    "needs audio": "not in the published files: needs the recordings",
    "needs code": "not in the published files: needs the official evaluator's code",
    "needs teams": "not in the published files: needs the scores of the other teams",
    "cited": "a number of others: the organisers, the authors of LDN",
    "missing": "its file is missing or damaged",
}
"""The results of a comparison and their meanings."""


def over(published: Published, how: str, items: str, name: str, *words: str) -> Recomputed:
    """Combine the numbers of another recipe; the items replace ``*``.

    ``mean``, ``min``, ``max``, ``range`` or ``each`` of them, or how many are ``ones`` or ``wins``
    (at least 0).
    """
    parts = [
        RECIPES[name](published, *(word.replace("*", item) for word in words))
        for item in items.split(",")
    ]
    values = np.array([each.values[0] for each in parts])
    errors, needs = [each.errors[0] for each in parts], parts[0].needs
    if how == "each":
        return number(*values, error=errors, needs=needs)
    if how == "range":
        return number(values.min(), values.max(), needs=needs)
    if how in ("ones", "wins"):
        return number(np.sum(values == 1 if how == "ones" else values >= 0), len(values))
    return number(getattr(np, how)(values), error=max(errors), needs=needs)


RECIPES: dict[str, Callable[..., Recomputed]] = {
    name: function
    for module in (scores, statistics, experiments)
    for name, function in vars(module).items()
    if getattr(function, "__module__", "") == module.__name__
    and not name.startswith("_")
    and function.__annotations__.get("return") == "Recomputed"
} | {"over": over}
"""Every recipe by its name: the functions that return a recomputed value."""


def check(printed: PrintedValue, published: Published) -> dict[str, Any]:
    """Compare one printed value with the published tables.

    The status is one of `STATUSES`, and ``expected`` whether the value agrees, or differs as an
    erratum describes.
    """
    recomputed, status, notes = Recomputed(), printed.status, [printed.note]
    if printed.recipe:
        name, *words = shlex.split(printed.recipe)
        try:
            recomputed = RECIPES[name](published, *words)
        except DacoError as error:
            status, notes = "missing", [str(error)]
        else:
            status = "read" if recomputed.needs else "ok"
            status = status if agrees(printed, recomputed) else "differs"
            notes = [*_notes(printed, recomputed, status), recomputed.note, printed.note]
    return {
        **{name: getattr(printed, name) for name in ("id", "place", "what", "printed")},
        "recomputed": recomputed.name or list(recomputed.values) or None,
        "text": text_of(printed, recomputed) or "-",
        "error": list(recomputed.errors),
        "status": status,
        "expected": status == "differs"
        if printed.erratum
        else status not in ("differs", "missing"),
        "erratum": printed.erratum,
        "needs": recomputed.needs,
        "note": " ".join(filter(None, notes)),
        "recipe": printed.recipe,
    }


def _notes(printed: PrintedValue, recomputed: Recomputed, status: str) -> Iterator[str]:
    if printed.erratum and status != "differs":
        yield f"Agrees, although erratum {printed.erratum} says that it differs."
    if status != "differs" and not agrees(printed, recomputed, with_errors=False):
        yield f"Within the error of {recomputed.cause} ({max(recomputed.errors):.2g})."
    if recomputed.needs:
        yield f"Read, not recomputed: that needs {recomputed.needs}."
