"""The findings as a Markdown document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from daco.experiments.tables import to_markdown
from daco.paper.check import MEANINGS, Finding, Status, summary
from daco.paper.printed import PLACES, errata


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
