"""Recompute every printed figure, write the document, and draw the paper's Figures 1 to 3.

A recipe is a public function of the modules below that takes the artifacts and words of
``printed.csv`` and returns a :class:`~daco.paper.printed.Recomputed`.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from daco.errors import DacoError
from daco.experiments.analysis import frontier_table
from daco.experiments.choose import study_choice
from daco.experiments.result import StudyResult
from daco.experiments.statistics import transfer_statistics
from daco.experiments.tables import to_markdown
from daco.paper import consistency, experiments, scores, statistics
from daco.paper.artifacts import Artifacts, open_artifacts
from daco.paper.printed import NUMBER, PLACES, Figure, Recomputed, decimals, errata, figures, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

CAPTIONS = {
    "fig1": "Fig. 1. Mean source against target AUC of the seven development machines along the "
    "prior strength m (BEATs, soft assignment, k = 1); on the dotted line both are equal.",
    "fig2": "Fig. 2. Gain in target AUC of calibration (m = 0) over raw kNN against the "
    "separability of the training domains. Circles: development machines; triangles: evaluation "
    "machines.",
    "fig3": "Fig. 3. What predicts the evaluation score of 45 configurations: (a) the dev score, "
    "(b) the label-free criterion on development machines.",
}
"""Captions of the figures by name."""

_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "below": lambda value, bound: value < bound,
    "above": lambda value, bound: value > bound,
    "at least": lambda value, bound: value >= bound,
}
_SLACK = 1e-9  # 0.125 printed as 0.12 lies half a digit away, and binary fractions a little more


class Status(StrEnum):
    """The result of a comparison; ``meaning`` explains it."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Status:  # noqa: D102
        status = str.__new__(cls, value)
        status._value_, status.meaning = value, meaning
        return status

    OK = "ok", "recomputed from the artifacts, equal to the printed digits"
    READ = "read", "stated by an artifact, equal to the printed digits; not recomputed"
    DIFFERS = "differs", "not equal to the printed digits; [n]: erratum n says why"
    AUDIO = "needs audio", "not in the artifacts: needs the recordings"
    CODE = "needs code", "not in the artifacts: needs the official evaluator's code"
    TEAMS = "needs teams", "not in the artifacts: needs the scores of the other teams"
    CITED = "cited", "a number of others: the organisers, the authors of LDN"
    MISSING = "missing", "its artifact is missing or damaged"


@dataclass(frozen=True)
class Finding:
    """A printed value and its recomputed value; None if nothing could be computed."""

    figure: Figure
    status: Status
    recomputed: Recomputed | None
    note: str = ""

    @property
    def expected(self) -> bool:
        """Whether it agrees, or differs as an erratum describes."""
        if self.figure.erratum is not None:
            return self.status is Status.DIFFERS
        return self.status not in (Status.DIFFERS, Status.MISSING)

    @property
    def text(self) -> str:
        """The recomputed value in the form of the printed one, with a digit or two more."""
        recomputed, numbers = self.recomputed, self.figure.numbers
        if recomputed is None or recomputed.name is not None:
            return "" if recomputed is None else str(recomputed.name)
        # 2.045 is not 2.1, but as 2.05 it would seem to be
        more = 2 if self.status is Status.DIFFERS else 1
        if len(numbers) != len(recomputed.values):
            form = numbers[0] if numbers else "0"
            return ", ".join(_formatted(value, form, more) for value in recomputed.values)
        values = iter(recomputed.values)
        return NUMBER.sub(lambda m: _formatted(next(values), m[0], more), self.figure.content)

    @property
    def status_text(self) -> str:
        """The status, with the number of the erratum in brackets."""
        erratum = self.figure.erratum
        return self.status.value if erratum is None else f"{self.status.value} [{erratum}]"

    def record(self) -> dict[str, Any]:
        """Return the finding as plain JSON."""
        figure, recomputed = self.figure, self.recomputed
        return {
            "id": figure.id,
            "place": figure.place,
            "what": figure.what,
            "printed": figure.printed,
            "recomputed": (recomputed.name or _for_json(recomputed.values)) if recomputed else None,
            "text": self.text,
            "error": _for_json(recomputed.errors) if recomputed and recomputed.values else None,
            "status": self.status.value,
            "needs": recomputed.needs if recomputed else "",
            "expected": self.expected,
            "erratum": figure.erratum,
            "note": self.note,
            "recipe": figure.recompute,
        }


def _for_json(values: Sequence[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _formatted(value: float, printed: str, more: int) -> str:
    digits = decimals(printed)
    sign = "+" if printed[0] in "+-" else ""
    if math.isclose(value, round(value, digits), abs_tol=1e-12):
        return f"{value:{sign}.{digits}f}"
    if abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:{sign}.{digits + more}f}"


def over(artifacts: Artifacts, how: str, items: str, name: str, *arguments: str) -> Recomputed:
    """Mean, min, max, range or each of another recipe's numbers; the items replace ``*``."""
    parts = [
        RECIPES[name](artifacts, *(word.replace("*", item) for word in arguments))
        for item in items.split(",")
    ]
    values = [each.values[0] for each in parts]
    errors = tuple(each.errors[0] for each in parts)
    if how == "each":
        return replace(parts[0], values=tuple(values), errors=errors)
    if how == "range":
        return number(min(values), max(values), needs=parts[0].needs)
    return number(getattr(np, how)(values), error=max(errors), needs=parts[0].needs)


RECIPES: dict[str, Callable[..., Recomputed]] = {
    name: function
    for module in (scores, statistics, experiments, consistency)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__
    and function.__annotations__["return"] == "Recomputed"
    and not name.startswith("_")
} | {"over": over}
"""Every recipe by its name."""


def check_paper(
    folder: Path | str, progress: Callable[[int, int], None] | None = None
) -> list[Finding]:
    """Recompute every figure of the paper from the authors' artifacts.

    Parameters
    ----------
    folder : path
        A clone of ``polestvr/daco-experiments``, or a ZIP file of it.
    progress : callable, optional
        Called with the figures done and their number.

    Returns
    -------
    list of Finding
        In the order of the paper. A figure whose artifact is missing or damaged has a status
        of its own.

    Raises
    ------
    DataError
        The folder holds none of the artifacts.
    """
    artifacts = open_artifacts(folder)
    findings = []
    for done, figure in enumerate(figures(), 1):
        findings.append(check_figure(figure, artifacts))
        if progress is not None:
            progress(done, len(figures()))
    return findings


def check_figure(figure: Figure, artifacts: Artifacts) -> Finding:
    """Compare one figure with the artifacts."""
    if not figure.recompute:
        return Finding(figure, Status(figure.standing), None, figure.note)  # type: ignore[call-arg]
    name, *words = figure.recompute.split()
    try:
        recomputed = RECIPES[name](artifacts, *words)
    except DacoError as error:
        return Finding(figure, Status.MISSING, None, str(error))
    source = f"Read, not recomputed: that needs {recomputed.needs}." if recomputed.needs else ""
    note = " ".join(filter(None, (source, recomputed.note, figure.note)))
    if not agrees(figure, recomputed):
        return Finding(figure, Status.DIFFERS, recomputed, note)
    if not agrees(figure, replace(recomputed, errors=())):
        most = max(recomputed.errors)
        note = f"Within the error of {recomputed.cause} ({most:.2g}). {note}".rstrip()
    if figure.erratum is not None:
        note = f"Agrees, although erratum {figure.erratum} says that it differs. {note}".rstrip()
    return Finding(figure, Status.READ if recomputed.needs else Status.OK, recomputed, note)


def agrees(figure: Figure, recomputed: Recomputed) -> bool:
    """Whether a recomputed value could have been printed as the figure was.

    It may lie half a unit of the last printed digit away, and as much further as
    :attr:`Recomputed.errors` grants.

    Examples
    --------
    >>> figure = Figure("x", "Table II", "random configuration, sd", "2.1")
    >>> agrees(figure, number(2.06)), agrees(figure, number(2.045))
    (True, False)
    """
    if figure.rule == "name":
        return recomputed.name == figure.content
    if figure.rule:
        holds, bound = _BOUNDS[figure.rule], float(figure.numbers[0])
        return bool(recomputed.values) and all(holds(value, bound) for value in recomputed.values)
    if len(recomputed.values) != len(figure.numbers):
        return False
    errors = recomputed.errors or (0.0,) * len(recomputed.values)
    return all(
        abs(value - float(text)) <= 0.5 * 10.0 ** -decimals(text) + error + _SLACK
        for value, text, error in zip(recomputed.values, figure.numbers, errors, strict=True)
    )


def summary(findings: Sequence[Finding]) -> dict[str, Any]:
    """Count the values of each status, under ``"paper"`` and ``"beyond"`` (came after it).

    Parameters
    ----------
    findings : sequence of Finding

    Returns
    -------
    dict
    """
    printed = {place.name for place in PLACES if place.in_paper}
    counted: dict[str, Any] = {}
    for name, in_paper in (("paper", True), ("beyond", False)):
        part = [each for each in findings if (each.figure.place in printed) is in_paper]
        computed = [each for each in part if each.recomputed and not each.recomputed.needs]
        by_status = Counter(each.status for each in part)
        explained = [each for each in part if each.status is Status.DIFFERS and each.expected]
        counted[name] = {
            "figures": len(part),
            "quantities": len({each.figure.recompute for each in computed}),
            **{status.value: by_status[status] for status in Status},
            "differs as an erratum says": len(explained),
        }
    return {**counted, "unexpected": sum(not each.expected for each in findings)}


def headline(findings: Sequence[Finding]) -> list[str]:
    """Three sentences with the counts."""
    counts = summary(findings)
    paper, beyond = counts["paper"], counts["beyond"]
    unexpected, missing = counts["unexpected"], paper[Status.MISSING] + beyond[Status.MISSING]
    because = f", {missing} of them because an artifact is missing or damaged" if missing else ""
    verb = "value is" if unexpected == 1 else "values are"
    return [
        f"The paper: {paper['figures']} printed values. {paper[Status.OK]} are recomputed and "
        f"equal, {paper[Status.READ]} are read from an artifact and equal, "
        f"{paper['differs as an erratum says']} differ as the errata say, "
        f"{paper[Status.AUDIO]} need audio, {paper[Status.CODE]} need code, "
        f"{paper[Status.TEAMS]} need the other teams' scores, {paper[Status.CITED]} are cited.",
        f"Beyond the paper: {beyond['figures']} values. {beyond[Status.OK]} are recomputed and "
        f"equal, {beyond[Status.READ]} are read from an artifact and equal.",
        f"{unexpected} {verb} not as expected{because}." if unexpected else "Nothing unexpected.",
    ]


def as_markdown(findings: Sequence[Finding], pictures: Mapping[str, str] | str) -> str:
    """Every figure in a table for each place, with pictures (captions by file, or why none)."""
    words = pd.DataFrame([(each.value, each.meaning) for each in Status])
    words.columns = ["status", "meaning"]
    heading = "# The paper, recomputed from its authors' artifacts"
    parts = [heading, *headline(findings), to_markdown(words)]
    if isinstance(pictures, str):
        parts.append(f"Figures 1 to 3 could not be drawn: {pictures}")
    else:
        parts += [f"![{caption}]({file})\n\n{caption}" for file, caption in pictures.items()]
    for place in PLACES:
        rows = [
            {
                "value": each.figure.what,
                "printed": each.figure.printed,
                "artifacts": each.text or "-",
                "status": each.status_text,
                "note": each.note,
            }
            for each in findings
            if each.figure.place == place.name
        ]
        if rows:
            parts += [f"## {place.heading}", to_markdown(pd.DataFrame(rows))]
    parts += ["## Errata", "\n".join(f"{each.number}. {each.text}" for each in errata())]
    return "\n\n".join(parts) + "\n"


def paper_figures(artifacts: Artifacts) -> dict[str, Picture]:
    """Figures 1 to 3 of the transfer study, by name as in `CAPTIONS`."""
    from daco.experiments.figures import plot_frontier, plot_gain_separability, plot_transfer

    table = artifacts.grid("45").reset_index(drop=True)
    per_machine = pd.concat([artifacts.machines("45", split) for split in ("dev", "eval")])
    gains = pd.Series(experiments.target_gains(artifacts), name="target_auc_gain")
    described = experiments.diagnostics(artifacts).join(gains).reset_index()
    result = StudyResult(
        grid=table,
        per_machine=per_machine,
        frontier=frontier_table(per_machine),
        diagnostics=described,
        selection={"rows": study_choice(table, per_machine)["rows"]},
        stats=transfer_statistics(table, per_machine, diagnostics=described),
    )
    dev = result.frontier[result.frontier["split"] == "dev"]
    return {
        "fig1": plot_frontier(replace(result, frontier=dev)),
        "fig2": plot_gain_separability(result),
        "fig3": plot_transfer(result),
    }
