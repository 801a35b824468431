"""Tables as text: Markdown, LaTeX (booktabs) and CSV of a DataFrame or a dict of columns.

A column's key may be a pair ``(group, name)``: LaTeX then sets a heading over the group, the
other forms write both. Floats have two decimals unless `formats` says otherwise, and missing
values (None, nan) are a dash. pandas' own writers know neither such formats nor such headings.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from numbers import Integral, Real
from typing import Any

from daco.errors import InputError
from daco.experiments.grid_table import Table
from daco.validation import is_missing

Key = str | tuple[str, str]
"""A column's key: its name, or its group and its name."""

Titles = Mapping[Any, str]

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "Ω": r"$\Omega$",
    "ρ": r"$\rho$",
    "→": r"$\to$",
    "≤": r"$\le$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def to_markdown(
    frame: Table, *, titles: Titles | None = None, formats: Titles | None = None
) -> str:
    """Format a Markdown table; numbers are right-aligned.

    Parameters
    ----------
    frame : DataFrame, or dict of lists by column
    titles : dict of str, optional
        Headings that differ from the names of the columns.
    formats : dict of str, optional
        Format specifications of Python by column, such as ``"+.2f"``.

    Returns
    -------
    str

    Examples
    --------
    >>> print(to_markdown({"rule": ["dev score"], "eval": [55.829]}))
    | rule | eval |
    |---|---:|
    | dev score | 55.83 |
    """
    columns = _columns(frame)
    headings = [_markdown(_heading(key, titles)) for key in columns]
    rules = ["---:" if is_numeric(values) else "---" for values in columns.values()]
    lines = ["| " + " | ".join(headings) + " |", "|" + "|".join(rules) + "|"]
    for row in _cells(columns, formats):
        lines.append("| " + " | ".join(map(_markdown, row)) + " |")
    return "\n".join(lines)


def to_latex(
    frame: Table,
    caption: str,
    label: str,
    *,
    titles: Titles | None = None,
    formats: Titles | None = None,
) -> str:
    r"""Format a LaTeX table for the package booktabs; texts are escaped, `label` is not.

    `titles` and `formats` are those of :func:`to_markdown`.

    >>> print(to_latex({"rule": ["dev_score"], "eval": [55.829]}, "Selection", "tab:rules"))
    \begin{table}[t]
    \centering
    \caption{Selection}
    \label{tab:rules}
    \begin{tabular}{lr}
    \toprule
    rule & eval \\
    \midrule
    dev\_score & 55.83 \\
    \bottomrule
    \end{tabular}
    \end{table}
    """
    columns = _columns(frame)
    alignment = "".join("r" if is_numeric(values) else "l" for values in columns.values())
    names = [_heading(key if isinstance(key, str) else ("", key[1]), None) for key in columns]
    headings = [(titles or {}).get(key, name) for key, name in zip(columns, names, strict=True)]
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{latex(caption)}}}"]
    lines += [rf"\label{{{label}}}", rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    lines += _group_headings(columns)
    lines += [" & ".join(map(latex, headings)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(latex, row)) + r" \\" for row in _cells(columns, formats)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def to_csv(frame: Table) -> str:
    r"""Format CSV with ten significant digits; missing values are empty.

    >>> to_csv({"rule": ["dev, score"], "eval": [55.829]})
    'rule,eval\n"dev, score",55.829\n'
    """
    columns = _columns(frame)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_heading(key, None) for key in columns])
    writer.writerows(map(_exact, row) for row in zip(*columns.values(), strict=True))
    return stream.getvalue()


def format_cell(value: Any, spec: str = ".2f") -> str:
    """A cell's text: whole numbers and texts as they are, other numbers by `spec`.

    The specification ``"p"`` is for p-values: three decimals, and nothing below 0.001.

    >>> format_cell(0.5, "+.2f"), format_cell(-0.5, "+.2f"), format_cell(3), format_cell(None)
    ('+0.50', '−0.50', '3', '–')
    """
    if is_missing(value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if spec == "p":
        return f"{value:.3f}" if value >= 0.001 else "<0.001"
    if isinstance(value, Integral):
        return str(value).replace("-", "−")
    return format(float(value), spec).replace("-", "−") if isinstance(value, Real) else str(value)


def latex(text: str) -> str:
    """`text` with everything escaped that LaTeX would read as a command."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def _columns(frame: Table) -> dict[Key, list[Any]]:
    columns: dict[Key, list[Any]] = {key: list(frame[key]) for key in frame}
    if not columns:
        raise InputError("A table needs at least one column.")
    lengths = [len(values) for values in columns.values()]
    if len(set(lengths)) > 1:
        raise InputError(f"Columns of one table have one length. Got {lengths}.")
    return columns


def _cells(columns: Mapping[Key, Sequence[Any]], formats: Titles | None) -> list[tuple[str, ...]]:
    """The texts of all cells, row by row."""
    specs = formats or {}
    texts = [
        [format_cell(value, specs.get(key, ".2f")) for value in columns[key]] for key in columns
    ]
    return list(zip(*texts, strict=True))


def _heading(key: Key, titles: Titles | None) -> str:
    name = (titles or {}).get(key)
    if isinstance(key, str):
        return name or key
    return " ".join(filter(None, (key[0], name or key[1])))


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether all known values are numbers, and there are any."""
    known = [value for value in values if not is_missing(value)]
    return bool(known) and all(
        isinstance(value, Real) and not isinstance(value, bool) for value in known
    )


def _group_headings(keys: Mapping[Key, Any]) -> list[str]:
    """A row of headings that span their groups, and the rules under them."""
    cells, rules, start = [], [], 1
    for name, run in groupby("" if isinstance(key, str) else key[0] for key in keys):
        width = len(list(run))
        if name:
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{{latex(name)}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        else:
            cells.append("&" * (width - 1))
        start += width
    return [" & ".join(cells) + r" \\", "".join(rules)] if rules else []


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))


def _exact(value: Any) -> Any:
    if is_missing(value):
        return ""
    is_float = isinstance(value, Real) and not isinstance(value, Integral)
    return format(float(value), ".10g") if is_float else value
