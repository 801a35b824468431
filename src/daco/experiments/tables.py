"""Tables as text: Markdown, LaTeX (booktabs) and CSV of a DataFrame or a dict of columns.

A column's key may be a pair ``(group, name)``: LaTeX then sets a heading over the group, the
other forms write both. Floats have two decimals unless `formats` says otherwise, and what is
missing (None, nan) is a dash.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from numbers import Integral, Real
from typing import Any

from daco.errors import InputError
from daco.method.grid_table import Table
from daco.validation import is_missing

Key = str | tuple[str, str]
"""A column's key: its name, or its group and its name."""

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
    frame: Table,
    *,
    titles: Mapping[Key, str] | None = None,
    formats: Mapping[Key, str] | None = None,
) -> str:
    """A Markdown table; numbers are right-aligned.

    Parameters
    ----------
    frame : DataFrame or mapping of columns
        Equally long columns by key.
    titles : mapping, optional
        Headings of columns that should not be headed by their own name.
    formats : mapping, optional
        Format specifications of Python, such as ``"+.2f"``, by column.

    Examples
    --------
    >>> from daco.experiments.tables import to_markdown
    >>> print(to_markdown({"rule": ["dev score"], "eval": [55.829]}))
    | rule | eval |
    |---|---:|
    | dev score | 55.83 |
    """
    keys, rows = _read(frame)
    headings = [_markdown(_flat(key, titles)) for key in keys]
    rules = ["---:" if _is_numeric(column) else "---" for column in zip(*rows, strict=True)]
    text = ["| " + " | ".join(headings) + " |", "|" + "|".join(rules or ["---"] * len(keys)) + "|"]
    for row in rows:
        cells = [_markdown(written(v, _spec(k, formats))) for k, v in zip(keys, row, strict=True)]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text)


def to_latex(
    frame: Table,
    caption: str,
    label: str,
    *,
    titles: Mapping[Key, str] | None = None,
    formats: Mapping[Key, str] | None = None,
) -> str:
    r"""A LaTeX table that needs the package booktabs; texts are escaped, `label` is not.

    `titles` and `formats` are those of :func:`to_markdown`.

    Examples
    --------
    >>> from daco.experiments.tables import to_latex
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
    keys, rows = _read(frame)
    columns = list(zip(*rows, strict=True)) or [()] * len(keys)
    alignment = "".join("r" if _is_numeric(column) else "l" for column in columns)
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{latex(caption)}}}"]
    lines += [rf"\label{{{label}}}", rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    lines += _group_headings(keys)
    headings = [(titles or {}).get(key, key if isinstance(key, str) else key[1]) for key in keys]
    lines += [" & ".join(map(latex, headings)) + r" \\", r"\midrule"]
    for row in rows:
        cells = [latex(written(v, _spec(k, formats))) for k, v in zip(keys, row, strict=True)]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def to_csv(frame: Table) -> str:
    r"""CSV with the columns' own names and ten significant digits; what is missing is empty.

    Examples
    --------
    >>> from daco.experiments.tables import to_csv
    >>> to_csv({"rule": ["dev, score"], "eval": [55.829]})
    'rule,eval\n"dev, score",55.829\n'
    """
    keys, rows = _read(frame)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_flat(key, None) for key in keys])
    for row in rows:
        writer.writerow(["" if is_missing(value) else _exact(value) for value in row])
    return stream.getvalue()


def written(value: Any, spec: str = ".2f") -> str:
    """A cell's text: whole numbers and texts as they are, other numbers by `spec`.

    The specification ``"p"`` is for p-values: three decimals, and nothing below 0.001.

    Examples
    --------
    >>> from daco.experiments.tables import written
    >>> written(0.5, "+.2f"), written(-0.5, "+.2f"), written(3), written(None)
    ('+0.50', '−0.50', '3', '–')
    """
    if is_missing(value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral) and spec != "p":
        return str(value).replace("-", "−")
    if spec == "p":
        return f"{value:.3f}" if value >= 0.001 else "<0.001"
    if isinstance(value, Real):
        return format(float(value), spec).replace("-", "−")
    return str(value)


def latex(text: str) -> str:
    """`text` with everything escaped that LaTeX would read as a command."""
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _read(frame: Table) -> tuple[list[Key], list[tuple[Any, ...]]]:
    keys: list[Key] = list(frame)
    columns = [list(frame[key]) for key in keys]  # type: ignore[index]  # a group and a name
    if not keys:
        raise InputError("A table needs at least one column.")
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"Columns of one table have one length. Got {list(map(len, columns))}.")
    return keys, list(zip(*columns, strict=True))


def _spec(key: Key, formats: Mapping[Key, str] | None) -> str:
    return (formats or {}).get(key, ".2f")


def _flat(key: Key, titles: Mapping[Key, str] | None) -> str:
    name = (titles or {}).get(key)
    if isinstance(key, str):
        return name or key
    return " ".join(filter(None, (key[0], name or key[1])))


def _is_numeric(column: Sequence[Any]) -> bool:
    known = [value for value in column if not is_missing(value)]
    return bool(known) and all(
        isinstance(value, Real) and not isinstance(value, bool) for value in known
    )


def _group_headings(keys: Sequence[Key]) -> Iterator[str]:
    """A row of headings that span their groups, and the rules under them."""
    groups = [(name, len(list(run))) for name, run in groupby(map(_group, keys))]
    if not any(name for name, _ in groups):
        return
    cells, rules, start = [], [], 1
    for name, width in groups:
        cells.append(
            rf"\multicolumn{{{width}}}{{c}}{{{latex(name)}}}" if name else "&" * (width - 1)
        )
        if name:
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    yield " & ".join(cells) + r" \\"
    yield "".join(rules)


def _group(key: Key) -> str:
    return "" if isinstance(key, str) else key[0]


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _exact(value: Any) -> Any:
    is_float = isinstance(value, Real) and not isinstance(value, Integral)
    return format(float(value), ".10g") if is_float else value
