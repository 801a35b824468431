"""The command: ``python -m reproduction PUBLISHED``, from the folder of the clone."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import pandas as pd
from rich.console import Console
from rich.progress import track

from daco.errors import DacoError
from daco.text import quantity
from daco.version import __version__
from reproduction.check import STATUSES, check
from reproduction.printed import ERRATA, PLACES, PRINTED
from reproduction.published import open_published

ROOT = Path(__file__).resolve().parent.parent
EXIT_CODES = "exit codes: 0 all as expected, 1 a value differs or a file is missing, 2 wrong call"


def default_folder() -> Path:
    """``$DACO_SHARED/published`` where it exists, otherwise the copy in the clone."""
    folder = Path(os.environ.get("DACO_SHARED", ROOT.parent / "shared"), "published")
    return folder if folder.is_dir() else ROOT / "tests" / "published" / "daco-experiments.zip"


def main(arguments: Sequence[str] | None = None) -> int:
    """Recompute each value that the paper prints, and show both values and the errata."""
    parser = argparse.ArgumentParser("reproduction", description=main.__doc__, epilog=EXIT_CODES)
    given = "a clone of polestvr/daco-experiments, or a ZIP file of it"
    parser.add_argument("published", nargs="?", type=Path, default=default_folder(), help=given)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        published = open_published(options.published)
    except DacoError as error:
        print(fill(f"error: {error}", 80), file=sys.stderr)
        return 2
    terminal = Console(stderr=True)
    values = track(PRINTED, "recomputing", console=terminal, disable=not terminal.is_terminal)
    findings = pd.DataFrame([check(value, published) for value in values])
    expected = bool(findings["expected"].all())
    if options.json:
        rows = findings.to_dict("records")
        document = {"daco": __version__, "expected": expected, "values": rows, "errata": ERRATA}
        print(json.dumps(document, indent=1))
    else:
        show(findings)
    return 0 if expected else 1


def show(findings: pd.DataFrame) -> None:
    """Print a table for each place, the errata, the counts, and what is not as expected."""
    print("The paper, recomputed from its authors' published files\n")
    for status, meaning in STATUSES.items():
        print(f"{status:12} {meaning}")
    for place, rows in findings.groupby("place", sort=False):
        show_place(str(place), rows)
    print()
    for number, text in ERRATA.items():
        print(_paragraph(f"[{number}]", text))
    in_paper = findings["place"].map(lambda place: PLACES[place]["in_paper"] == "yes")
    for what, part in (("The paper prints", in_paper), ("Beyond the paper:", ~in_paper)):
        counts = findings[part]["status"].value_counts()
        counted = ", ".join(f"{counts[each]} {each}" for each in STATUSES if each in counts)
        print("\n" + fill(f"{what} {part.sum()} values: {counted}.", 80))
    show_unexpected(findings[~findings["expected"]])


def show_place(place: str, rows: pd.DataFrame) -> None:
    """Print a table of printed and recomputed values, and the notes that its marks point to."""
    heading = ": ".join(filter(None, (place, PLACES[place]["title"])))
    stated = "printed" if PLACES[place]["in_paper"] else "expected"
    print(f"\n{heading:31}{stated:>16}{'recomputed':>17}\n{'-' * 80}")
    notes = [note for note in rows["note"].unique() if note]
    for row in rows.to_dict("records"):
        erratum = f" [{row['erratum']}]" if row["erratum"] else ""
        mark = f" ({notes.index(row['note']) + 1})" if row["note"] else ""
        values = f"{row['what']:31}{row['printed']:>16}{row['text']:>17}"
        print(f"{values} {row['status']}{erratum}{mark}")
    for number, note in enumerate(notes, 1):
        print(_paragraph(f"({number})", note))


def show_unexpected(findings: pd.DataFrame) -> None:
    """Print what differs, by place, and what is missing, by file."""
    missing = findings["status"] == "missing"
    all_values = quantity(findings, "value")
    print(f"\n{all_values} not as expected." if len(findings) else "\nNothing unexpected.")
    for row in findings[~missing].itertuples():
        values = f"printed {row.printed}, recomputed {row.text}"
        print(_paragraph("-", f"{row.place}, {row.what}: {values}. {row.note}"))
    for note, count in findings[missing]["note"].value_counts(sort=False).items():
        print(_paragraph("-", f"{note} {quantity(count, 'value')} need{'s' * (count == 1)} it."))


def _paragraph(lead: str, text: str) -> str:
    """A paragraph whose lines all begin after its number."""
    return fill(text, 80, initial_indent=f"{lead:<5}", subsequent_indent=" " * 5)


if __name__ == "__main__":
    sys.exit(main())
