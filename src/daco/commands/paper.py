"""``daco paper``: every printed value of the paper beside what its authors' artifacts say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from daco.commands.console import Output, print_json, progress_bars
from daco.commands.options import AsJson, argument, flag, option, require_folder
from daco.text import quantity
from daco.version import __version__

if TYPE_CHECKING:
    from daco.paper import Finding, Place

UNEXPECTED_EXIT = 1
"""Exit code when a value is not as expected."""

_WIDTHS = (31, 16, 17, 13)  # with three spaces between: 80
_STYLES = {
    "ok": "green",
    "read": "cyan",
    "needs audio": "dim",
    "needs code": "dim",
    "needs teams": "dim",
    "cited": "dim",
    "missing": "red",
}
_LONGEST = 36  # a hash is cut, everything else is not
_LISTED = 20  # unexpected differences that are repeated at the end
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def paper(
    artifacts: Annotated[
        Path,
        argument("Read the authors' artifacts, a clone of polestvr/daco-experiments or its ZIP."),
    ],
    everything: Annotated[
        bool, flag("--all", "List the 135 values of the appendix one by one, too.")
    ] = False,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, option("Write this Markdown document, with Figures 1 to 3 beside it.")
    ] = None,
) -> None:
    """Recompute each value that the paper prints, and show both values and the errata.

    Exit codes: 0 all values are as expected, 1 a value differs or its artifact is missing or
    damaged, 2 a mistake in the call.
    """
    from daco.paper import check_paper, errata, summary

    require_folder(out)
    with progress_bars(Output(stderr=True)) as report:
        findings = check_paper(artifacts, partial(report, "recomputing"))
    if out is not None:
        _write(out, artifacts, findings)
    if as_json:
        document = {
            "schema": 2,
            "daco_version": __version__,
            "artifacts": str(artifacts),
            "summary": summary(findings),
            "figures": [each.record() for each in findings],
            "errata": [{"number": each.number, "text": each.text} for each in errata()],
        }
        print_json(document)
    else:
        _show(Output(), findings, everything=everything)
    if not all(each.expected for each in findings):
        raise typer.Exit(UNEXPECTED_EXIT)


def _write(out: Path, artifacts: Path, findings: Sequence[Finding]) -> None:
    """The document, and the pictures beside it."""
    from daco.experiments.figures.style import save_picture
    from daco.files.atomic import atomic_write
    from daco.paper.artifacts import ArtifactError, open_artifacts
    from daco.paper.check import CAPTIONS, as_markdown, paper_figures

    pictures: dict[str, str] | str
    try:
        figures = paper_figures(open_artifacts(artifacts))
    except ArtifactError as error:
        pictures = str(error)
    else:
        pictures = {f"{out.stem}-{name}.svg": CAPTIONS[name] for name in figures}
        for name, figure in figures.items():
            for ending in ("svg", "png"):
                save_picture(figure, out.with_name(f"{out.stem}-{name}.{ending}"), salt=name)
    with atomic_write(out) as temporary:
        temporary.write_text(as_markdown(findings, pictures), encoding="utf-8")


def _show(console: Output, findings: Sequence[Finding], *, everything: bool) -> None:
    from daco.paper import PLACES, Status, errata
    from daco.paper.check import headline

    console.write("The paper, recomputed from its authors' artifacts", style="bold")
    for status in Status:
        console.write(f"{status.value:12} {status.meaning}", style="dim")
    console.print()
    in_paper = True
    for place in PLACES:
        if in_paper and not place.in_paper:
            console.write("Beyond the paper", style="bold")
            console.print()
        in_paper = place.in_paper
        rows = [each for each in findings if each.figure.place == place.name]
        _show_place(console, place, rows, short=place.dense and not everything)
        if place.name == "Errata":
            for erratum in errata():
                _hanging(console, f"[{erratum.number}]", erratum.text, style="yellow")
            console.print()
    _show_unexpected(console, [each for each in findings if not each.expected])
    for sentence in headline(findings):
        console.write(sentence, style="bold" if "xpected" in sentence else "")


def _show_unexpected(console: Output, findings: Sequence[Finding]) -> None:
    """What differs, by place; what is missing, by file."""
    if not findings:
        return
    console.write("Not as expected", style="bold red")
    lines = [
        f"{each.figure.place}, {each.figure.what}: printed {each.figure.printed}, recomputed "
        f"{each.text}. {each.note}".rstrip()
        for each in findings
        if each.status != "missing"
    ]
    if len(lines) > _LISTED:
        lines[_LISTED:] = [f"{len(lines) - _LISTED} more; --json has all."]
    missing = Counter(each.note for each in findings if each.status == "missing")
    for note, count in missing.items():
        lines.append(f"{note} {quantity(count, 'value')} need{'s' * (count == 1)} it.")
    for line in lines:
        _hanging(console, "-", line, style="red")
    console.print()


def _show_place(console: Output, place: Place, rows: Sequence[Finding], *, short: bool) -> None:
    """A table, and the notes that its marks point to."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, header_style="bold")
    headings = (place.heading, "printed" if place.in_paper else "expected", "artifacts", "")
    for at, (heading, width) in enumerate(zip(headings, _WIDTHS, strict=True)):
        # A heading with blanks gives the column a width that may still become smaller.
        right = at in (1, 2)
        padded = Text(heading.rjust(width) if right else heading.ljust(width))
        table.add_column(padded, justify="right" if right else "left")
    if short:
        counts = Counter(each.status.value for each in rows if each.expected)
        counted = ", ".join(f"{count} {status}" for status, count in counts.items())
        table.add_row(f"{counted}; --all lists all", "", "", "")
        rows = [each for each in rows if not each.expected]
    notes = list(dict.fromkeys(each.note for each in rows if each.note))
    marks = {note: str(at).translate(_SUPERSCRIPTS) for at, note in enumerate(notes, 1)}
    for each in rows:
        style = _STYLES.get(each.status.value, "yellow") if each.expected else "bold red"
        values = (each.figure.printed, each.text or "-")
        shown = (text if len(text) <= _LONGEST else f"{text[:12]}…" for text in values)
        status = Text(f" {each.status_text}{marks.get(each.note, '')}", style)
        table.add_row(Text(each.figure.what), *map(Text, shown), status)
    console.print(table)
    for note, mark in marks.items():
        _hanging(console, mark, note, style="dim")
    console.print()


def _hanging(console: Output, lead: str, text: str, *, style: str) -> None:
    """A paragraph whose lines all begin after its number."""
    block = Table.grid(padding=(0, 1, 0, 0))
    block.add_column()
    block.add_column(max_width=72)
    block.add_row(Text(f" {lead:<2}", style), Text(text, "dim" if style == "dim" else ""))
    console.print(block)
