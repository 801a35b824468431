"""Grids by name or from a file: what ``--grid`` of the commands understands."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from daco.errors import ConfigError, DataError
from daco.method.config import ScoreConfig, blind_pool, frontier_grid, paper_grid, parse_grid

GRID_NAMES: dict[str, Callable[[int], list[ScoreConfig]]] = {
    "51": lambda bands: paper_grid(51),
    "45": lambda bands: paper_grid(45),
    "9": lambda bands: blind_pool(),
    "frontier": frontier_grid,
}
"""The paper's grids, its nine configurations for choosing without labels, and the wide one."""


def read_grid(name_or_path: str | Path, bands: int = 1) -> list[ScoreConfig]:
    """The configurations of a named grid, or those a file lists.

    Parameters
    ----------
    name_or_path : str or Path
        ``"51"`` or ``"45"``, the paper's grids; ``"9"``, its pool for choosing without labels;
        ``"frontier"``, the wide one; or a text file with one configuration name per line (``#``
        starts a comment); or a CSV file with a column ``config``, such as the ``grid.csv`` of a
        run.
    bands : int
        Of the vectors that the grid is for; only ``"frontier"`` depends on it.

    Returns
    -------
    list of ScoreConfig
        In the file's order, which breaks ties.

    Examples
    --------
    >>> from daco.experiments.gridfile import read_grid
    >>> len(read_grid("51")), read_grid("9")[1].name
    (51, 'conf-soft-m0-k1')
    """
    if str(name_or_path) in GRID_NAMES:
        return GRID_NAMES[str(name_or_path)](bands)
    path = Path(name_or_path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        known = ", ".join(GRID_NAMES)
        raise DataError(
            f"There is no grid {str(name_or_path)!r}: it is neither one of {known} nor a file "
            "with one configuration name per line."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list of configurations: {error}.") from None
    names = _config_column(text)
    if not names:
        raise DataError(f"{path} names no configuration. Write one per line.")
    try:
        return parse_grid(name for _, name in names)
    except ConfigError:
        _name_the_line(path, names)
        raise


def _config_column(text: str) -> list[tuple[int, str]]:
    """Line numbers and names: the column ``config`` of a CSV, or every line that has one."""
    lines = [(n, line.partition("#")[0].strip()) for n, line in enumerate(text.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line]
    if not lines:
        return []
    header = [cell.strip() for cell in next(csv.reader([lines[0][1]]))]
    if "config" not in header:
        return lines
    at = header.index("config")
    rows = [(n, next(csv.reader([line]))) for n, line in lines[1:]]
    return [(n, cells[at].strip() if at < len(cells) else "") for n, cells in rows]


def _name_the_line(path: Path, names: list[tuple[int, str]]) -> None:
    """Say the first error of the list again, with its place."""
    seen: dict[str, int] = {}
    for number, name in names:
        try:
            ScoreConfig.parse(name)
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        if name in seen:
            raise ConfigError(
                f"{path}, line {number}: {name!r} is already on line {seen[name]}. Remove one."
            )
        seen[name] = number
