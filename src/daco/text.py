"""Wording helpers: counts with their nouns, shortened lists of names, suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence, Sized
from datetime import datetime
from html import escape

_NUMBERS = ["three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_TIMES = ["twice", *(f"{number} times" for number in _NUMBERS)]
_PARTS = ["half", "a third", "a quarter", "a fifth", "a sixth", "a seventh", "an eighth", "a ninth"]
_PARTS += ["a tenth"]


def quantity(items: Sized | int, noun: str, plural: str = "") -> str:
    """A count with its noun.

    >>> quantity(1, "clip"), quantity(1200, "clip"), quantity(2, "copy", "copies")
    ('1 clip', '1,200 clips', '2 copies')
    """
    count = items if isinstance(items, int) else len(items)
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or noun + 's'}"


def printable(text: object) -> str:
    """Text without the characters that would control a terminal."""
    return "".join(char if char.isprintable() else "�" for char in str(text))


def name_list(names: Iterable[str], limit: int = 5) -> str:
    """The first few of many names, safe to print.

    >>> name_list(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    names = list(names)
    shown = ", ".join(map(printable, names[:limit]))
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def day_in_words(when: str | None, word: str) -> str:
    """The day of an ISO 8601 time after a word and a blank; empty without a time.

    >>> day_in_words("2026-05-12T08:00:00Z", "of"), day_in_words(None, "of")
    (' of 12 May 2026', '')
    """
    try:
        day = datetime.fromisoformat(when or "")
    except ValueError:
        return ""
    return f" {word} {day.day} {day:%B %Y}"


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most similar to `name`, ignoring case; None without a similar one.

    >>> closest("Logmell", ["logmel", "beats"])
    'logmel'
    """
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A question that offers the most similar known name, with a leading space; else nothing.

    >>> suggestion("fann", ["fan", "pump"]), suggestion("x", ["fan"])
    (" Did you mean 'fan'?", '')
    """
    near = closest(name, known, cutoff)
    return "" if near is None else f" Did you mean {near!r}?"


def spreadsheet_safe(cell: object) -> object:
    """A cell for a CSV file: text that a spreadsheet would run as a formula gets an apostrophe.

    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("fan"), spreadsheet_safe(-2.5)
    ("'=1+1", 'fan', -2.5)
    """
    risky = isinstance(cell, str) and cell.lstrip("'").startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if risky else cell


_CAPTION = "text-align: left; white-space: nowrap"  # a narrow table would break it word by word


def html_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for notebooks; every cell is text.

    >>> html_table("Clips", ["machine"], [["<fan>"]]).partition("<tbody>")[2]
    '<tr><td>&lt;fan&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    cells = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    caption = f'<caption style="{_CAPTION}">{escape(title)}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def ratio_in_words(db: float) -> str:
    """A ratio of sound pressures in words.

    >>> ratio_in_words(9.5), ratio_in_words(-12), ratio_in_words(40), ratio_in_words(-30)
    ('three times', 'a quarter', 'more than ten times', 'less than a tenth')
    """
    ratio = 10 ** (abs(db) / 20)
    words = _TIMES if db > 0 else _PARTS
    if ratio > 10.5:
        return "more than ten times" if db > 0 else "less than a tenth"
    if ratio < 1.25:
        return "about"
    if ratio < 1.75:
        return "one and a half times" if db > 0 else "two thirds"
    return words[min(10, round(ratio)) - 2]


def loudness_in_words(db: float) -> str:
    """Return the level of a fault against that of the machine in words.

    >>> loudness_in_words(-12), loudness_in_words(0)
    ("a quarter of the machine's loudness", "the machine's own loudness")
    >>> loudness_in_words(6)
    "twice the machine's loudness"
    """
    words = ratio_in_words(db)
    if words == "about":
        return "the machine's own loudness"
    return f"{words} {'' if db > 0 else 'of '}the machine's loudness"
