"""The pictures and tables of a study as files, for papers and further work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from daco.experiments.figures.style import png_bytes, svg_bytes
from daco.experiments.report import figures_of
from daco.experiments.tables import TEXTS, as_texts, tables_of
from daco.files.atomic import atomic_write, write_error

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult

_LATEX = {"−": "$-$", "–": "--", "ρ": r"$\rho$"}


def write_export(result: StudyResult, folder: Path | str) -> list[Path]:
    """Write the pictures and tables of a study, and return their paths.

    These are ``figures/*.svg|png`` and ``tables/*.csv|tex|md`` in `folder`. CSV files have all
    digits, the others are rounded; LaTeX tables need the package booktabs.
    """
    folder = Path(folder)
    try:
        for part in ("figures", "tables"):
            (folder / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None
    tables = tables_of(result)
    contents: dict[Path, bytes] = {}
    for name, (figure, _) in figures_of(result, tables).items():
        contents[folder / "figures" / f"{name}.svg"] = svg_bytes(figure, name)
        contents[folder / "figures" / f"{name}.png"] = png_bytes(figure)
    for name, table in tables.items():
        for end, text in table_files(name, table).items() if len(table) else ():
            contents[folder / "tables" / f"{name}.{end}"] = text.encode()
    for path, content in contents.items():
        with atomic_write(path) as temporary:
            temporary.write_bytes(content)
    return list(contents)


def table_files(name: str, table: pd.DataFrame) -> dict[str, str]:
    """The contents of a table's files by their extension."""
    caption, texts = TEXTS["tables"][name], as_texts(table)
    is_number = [table[column].dtype.kind in "iuf" for column in table]
    markdown = texts.map(lambda text: text.replace("|", r"\|")).to_markdown(
        index=False,
        disable_numparse=True,
        colalign=["right" if number else "left" for number in is_number],
    )
    styled = texts.style.hide(axis="index").format(escape="latex")
    latex = styled.format_index(escape="latex", axis="columns").to_latex(
        caption=caption.replace("%", r"\%"),
        label="tab:" + name.replace("_", "-"),
        column_format="".join("r" if number else "l" for number in is_number),
        hrules=True,
    )
    for character, command in _LATEX.items():
        latex = latex.replace(character, command)
    return {
        "csv": table.to_csv(index=False, lineterminator="\n"),
        "tex": latex,
        "md": f"{markdown}\n\n{caption}\n",
    }
