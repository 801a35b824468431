"""Compare printed with recomputed figures, and write the result as a document.

Figures 1 to 3 of the paper are drawn from the artifacts as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from daco.errors import DacoError
from daco.experiments.analysis import frontier_table
from daco.experiments.result import StudyResult
from daco.experiments.statistics import transfer_statistics
from daco.experiments.tables import to_markdown
from daco.method.selection import selection_table
from daco.paper import consistency  # noqa: F401  (with what it imports it registers all recipes)
from daco.paper.artifacts import Artifacts, grid, machines, open_artifacts
from daco.paper.experiments import diagnostics, target_gains
from daco.paper.printed import (
    NUMBER,
    PLACES,
    Figure,
    Recomputed,
    decimals,
    errata,
    figures,
    recompute,
)

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
"""What the figures show, by name."""


_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "below": lambda value, bound: value < bound,
    "above": lambda value, bound: value > bound,
    "at least": lambda value, bound: value >= bound,
}
_SLACK = 1e-9  # 0.125 printed as 0.12 lies half a digit away, and binary fractions a little more


class Status(StrEnum):
    """The result of a comparison; `MEANINGS` explains each word."""

    OK = "ok"
    READ = "read"
    DIFFERS = "differs"
    AUDIO = "needs audio"
    CODE = "needs code"
    TEAMS = "needs teams"
    CITED = "cited"
    MISSING = "missing"


MEANINGS = {
    Status.OK: "recomputed from the artifacts, equal to the printed digits",
    Status.READ: "stated by an artifact, equal to the printed digits; not recomputed",
    Status.DIFFERS: "not equal to the printed digits; [n]: erratum n says why",
    Status.AUDIO: "not in the artifacts: needs the recordings",
    Status.CODE: "not in the artifacts: needs the official evaluator's code",
    Status.TEAMS: "not in the artifacts: needs the scores of the other teams",
    Status.CITED: "a number of others: the organisers, the authors of LDN",
    Status.MISSING: "its artifact is missing or damaged",
}
"""What each status means, for the reader of a table."""


@dataclass(frozen=True)
class Finding:
    """A printed figure and its recomputed value; None where nothing could be computed."""

    figure: Figure
    status: Status
    recomputed: Recomputed | None
    note: str = ""

    @property
    def expected(self) -> bool:
        """Whether it is as it should be: agreeing, or differing as an erratum says."""
        if self.figure.erratum is not None:
            return self.status is Status.DIFFERS
        return self.status not in (Status.DIFFERS, Status.MISSING)

    @property
    def text(self) -> str:
        """The recomputed value in the form of the printed one, with a digit or two more."""
        if self.recomputed is None:
            return ""
        # 2.045 is not 2.1, but as 2.05 it would seem to be
        more = 2 if self.status is Status.DIFFERS else 1
        return _in_the_form_of(self.figure, self.recomputed, more)

    def record(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        figure, found = self.figure, self.recomputed
        values: list[float | None] | str | None = None
        if found is not None:
            values = found.name or _for_json(found.values)
        return {
            "id": figure.id,
            "place": figure.place,
            "what": figure.what,
            "printed": figure.printed,
            "recomputed": values,
            "text": self.text,
            "error": _for_json(found.errors) if found and found.values else None,
            "status": self.status.value,
            "needs": found.needs if found else "",
            "expected": self.expected,
            "erratum": figure.erratum,
            "note": self.note,
            "recipe": figure.recompute,
        }


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
        In the order of the paper. A figure whose artifact is missing or damaged says so; the
        others are not affected.

    Raises
    ------
    DataError
        The folder holds none of the artifacts.
    """
    artifacts = open_artifacts(folder)
    found = []
    for done, figure in enumerate(figures(), 1):
        found.append(check_figure(figure, artifacts))
        if progress is not None:
            progress(done, len(figures()))
    return found


def check_figure(figure: Figure, artifacts: Artifacts) -> Finding:
    """One figure beside what the artifacts say."""
    if not figure.recompute:
        return Finding(figure, Status(figure.standing), None, figure.note)
    try:
        found = recompute(figure.recompute, artifacts)
    except DacoError as error:
        return Finding(figure, Status.MISSING, None, str(error))
    source = f"Read, not recomputed: that needs {found.needs}." if found.needs else ""
    note = " ".join(filter(None, (source, found.note, figure.note)))
    if agrees(figure, found) and not agrees(figure, replace(found, errors=())):
        note = f"Within the error of {found.cause} ({max(found.errors):.2g}). {note}".rstrip()
    if not agrees(figure, found):
        return Finding(figure, Status.DIFFERS, found, note)
    if figure.erratum is not None:
        note = f"Agrees, although erratum {figure.erratum} says that it differs. {note}".rstrip()
    return Finding(figure, Status.READ if found.needs else Status.OK, found, note)


def agrees(figure: Figure, found: Recomputed) -> bool:
    """Whether a recomputed value could have been printed as the figure was.

    It may lie half a unit of the last printed digit away, and as much further as
    :attr:`Recomputed.errors` grants.

    Examples
    --------
    >>> from daco.paper.printed import number
    >>> figure = Figure("x", "Table II", "random configuration, sd", "2.1")
    >>> agrees(figure, number(2.06)), agrees(figure, number(2.045))
    (True, False)
    """
    if figure.rule == "name":
        return found.name == figure.content
    if figure.rule:
        holds = _BOUNDS[figure.rule]
        bound = float(figure.numbers[0])
        return bool(found.values) and all(holds(value, bound) for value in found.values)
    if len(found.values) != len(figure.numbers):
        return False
    errors = found.errors or (0.0,) * len(found.values)
    return all(
        abs(value - float(number)) <= 0.5 * 10.0 ** -decimals(number) + error + _SLACK
        for value, number, error in zip(found.values, figure.numbers, errors, strict=True)
    )


def summary(found: Sequence[Finding]) -> dict[str, Any]:
    """Count the figures of each status, in the paper and beyond it."""
    printed = {place.name for place in PLACES if place.in_paper}
    counted: dict[str, Any] = {}
    for name, in_paper in (("paper", True), ("beyond", False)):
        part = [each for each in found if (each.figure.place in printed) is in_paper]
        computed = [each for each in part if each.recomputed and not each.recomputed.needs]
        by_status = Counter(each.status for each in part)
        counted[name] = {
            "figures": len(part),
            "quantities": len({each.figure.recompute for each in computed}),
            **{status.value: by_status[status] for status in Status},
            "differs as an erratum says": sum(
                each.status is Status.DIFFERS and each.expected for each in part
            ),
        }
    return {**counted, "unexpected": sum(not each.expected for each in found)}


def _for_json(values: Sequence[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _in_the_form_of(figure: Figure, found: Recomputed, more: int) -> str:
    if found.name is not None:
        return found.name
    numbers = figure.numbers
    if len(numbers) != len(found.values):
        form = numbers[0] if numbers else "0"
        return ", ".join(_formatted(value, form, more) for value in found.values)
    values = iter(found.values)
    return NUMBER.sub(lambda match: _formatted(next(values), match[0], more), figure.content)


def _formatted(value: float, printed: str, more: int) -> str:
    digits = decimals(printed)
    sign = "+" if printed[0] in "+-" else ""
    if math.isclose(value, round(value, digits), abs_tol=1e-12):
        return f"{value:{sign}.{digits}f}"
    if abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:{sign}.{digits + more}f}"


# The document


def as_markdown(found: Sequence[Finding], pictures: Mapping[str, str] | str) -> str:
    """What the words mean, the pictures, every figure in a table for each place, the errata.

    Parameters
    ----------
    found : sequence of Finding
        As :func:`daco.paper.check_paper` returns them.
    pictures : mapping or str
        Captions by file, or why there are none.
    """
    words = {"status": [each.value for each in MEANINGS], "meaning": [*MEANINGS.values()]}
    heading = "# The paper, recomputed from its authors' artifacts"
    parts = [heading, *headline(found), to_markdown(words)]
    if isinstance(pictures, str):
        parts.append(f"Figures 1 to 3 could not be drawn: {pictures}")
    else:
        parts += [f"![{caption}]({file})\n\n{caption}" for file, caption in pictures.items()]
    for place in PLACES:
        rows = [each for each in found if each.figure.place == place.name]
        if rows:
            parts += [f"## {title(place.name, place.title)}", _table(rows)]
    parts.append("## Errata")
    parts.append("\n".join(f"{erratum.number}. {erratum.text}" for erratum in errata()))
    return "\n\n".join(parts) + "\n"


def title(name: str, subject: str) -> str:
    """A place with its subject.

    >>> title("Table II", "Backbones")
    'Table II: Backbones'
    """
    return f"{name}: {subject}" if subject else name


def status_text(finding: Finding) -> str:
    """The status, with the erratum that says so in brackets."""
    erratum = finding.figure.erratum
    return finding.status.value if erratum is None else f"{finding.status.value} [{erratum}]"


def headline(found: Sequence[Finding]) -> list[str]:
    """Three or four sentences with the counts."""
    counts = summary(found)
    paper, beyond = counts["paper"], counts["beyond"]
    sentences = [
        f"The paper: {paper['figures']} printed values. {paper[Status.OK]} are recomputed and "
        f"equal, {paper[Status.READ]} are read from an artifact and equal, "
        f"{paper['differs as an erratum says']} differ as the errata say, "
        f"{paper[Status.AUDIO]} need audio, {paper[Status.CODE]} need code, "
        f"{paper[Status.TEAMS]} need the other teams' scores, {paper[Status.CITED]} are cited.",
        f"Beyond the paper: {beyond['figures']} values. {beyond[Status.OK]} are recomputed and "
        f"equal, {beyond[Status.READ]} are read from an artifact and equal.",
    ]
    unexpected = counts["unexpected"]
    missing = paper[Status.MISSING] + beyond[Status.MISSING]
    if not unexpected:
        return [*sentences, "Nothing unexpected."]
    because = f", {missing} of them because an artifact is missing or damaged" if missing else ""
    verb = "value is" if unexpected == 1 else "values are"
    return [*sentences, f"{unexpected} {verb} not as expected{because}."]


def _table(rows: Sequence[Finding]) -> str:
    return to_markdown(
        {
            "value": [row.figure.what for row in rows],
            "printed": [row.figure.printed for row in rows],
            "artifacts": [row.text or "-" for row in rows],
            "status": [status_text(row) for row in rows],
            "note": [row.note for row in rows],
        }
    )


def transfer_study(artifacts: Artifacts) -> StudyResult:
    """The transfer study of 45 configurations as a result of :func:`daco.study`."""
    table = grid(artifacts, "45")
    per_machine = pd.concat([machines(artifacts, "45", split) for split in ("dev", "eval")])
    gains = pd.Series(target_gains(artifacts), name="target_auc_gain")
    described = diagnostics(artifacts).join(gains).reset_index()
    nothing = pd.DataFrame()
    return StudyResult(
        grid=table,
        per_machine=per_machine,
        baselines=nothing,
        frontier=frontier_table(per_machine),
        diagnostics=described,
        coverage=nothing,
        balances=nothing,
        stability=nothing,
        cost=nothing,
        selection={"rows": [asdict(row) for row in selection_table(table)]},
        stats=transfer_statistics(table, per_machine, diagnostics=described),
    )


def paper_figures(artifacts: Artifacts) -> dict[str, Picture]:
    """The figures by name, as in `CAPTIONS`.

    Raises
    ------
    ArtifactError
        A table of the transfer study is missing or damaged.
    """
    from daco.experiments.figures import plot_frontier, plot_gain_separability, plot_transfer

    result = transfer_study(artifacts)
    frontier = result.frontier
    dev = replace(result, frontier=frontier[frontier["split"] == "dev"])
    return {
        "fig1": plot_frontier(dev),
        "fig2": plot_gain_separability(result),
        "fig3": plot_transfer(result),
    }
