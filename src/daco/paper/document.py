"""The findings as a Markdown document, with Figures 1 to 3 drawn from the artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pandas as pd

from daco.experiments.analysis import frontier_table
from daco.experiments.result import StudyResult
from daco.experiments.statistics import transfer_statistics
from daco.experiments.tables import to_markdown
from daco.method.selection import selection_table
from daco.paper.artifacts import Artifacts, grid, machines
from daco.paper.check import MEANINGS, Finding, Status, summary
from daco.paper.experiments import diagnostics, target_gains
from daco.paper.printed import PLACES, errata

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def paper_figures(artifacts: Artifacts) -> dict[str, Figure]:
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
