"""The grid of a study: one that has a name, or the configurations in a file."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from daco.data.views import Bands, Views
from daco.errors import ConfigError, DataError
from daco.method.config import ScoreConfig, blind_pool, frontier_grid, paper_grid

GRID_NAMES: dict[str, Callable[[int], list[ScoreConfig]]] = {
    "51": lambda bands: paper_grid(51),
    "45": lambda bands: paper_grid(45),
    "9": lambda bands: blind_pool(),
    "frontier": frontier_grid,
}
"""The paper's grids, its nine configurations for choosing without labels, and the wide one."""


def read_grid(name_or_path: str | Path, bands: Bands = 1) -> list[ScoreConfig]:
    """Read the configurations of a named grid or of a file, whose order breaks ties.

    A file has one configuration name per line (``#`` starts a comment), or is a CSV file with a
    column ``config``, such as the ``grid.csv`` of a run. Only ``"frontier"`` depends on the
    `bands` of the vectors.

    >>> len(read_grid("51")), read_grid("9")[1].name
    (51, 'conf-soft-m0-k1')
    """
    if str(name_or_path) in GRID_NAMES:
        first = bands.bands[0] if isinstance(bands, Views) else bands
        return GRID_NAMES[str(name_or_path)](first)
    path = Path(name_or_path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(
            f"There is no grid {str(name_or_path)!r}: it is neither one of "
            f"{', '.join(GRID_NAMES)} nor a file with one configuration name per line."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list of configurations: {error}.") from None
    lines: dict[ScoreConfig, int] = {}
    for number, name in _config_column(text):
        try:
            config = ScoreConfig.parse(name)
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        if config in lines:
            raise ConfigError(
                f"{path}, line {number}: {name!r} is already on line {lines[config]}. Remove one."
            )
        lines[config] = number
    if not lines:
        raise DataError(f"{path} names no configuration. Write one per line.")
    return list(lines)


def _config_column(text: str) -> list[tuple[int, str]]:
    """Line numbers and names: the column ``config`` of a CSV, or every line that has one."""
    lines = [(n, line.partition("#")[0].strip()) for n, line in enumerate(text.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line]
    rows = [(n, [cell.strip() for cell in next(csv.reader([line]))]) for n, line in lines]
    if not rows or "config" not in rows[0][1]:
        return lines
    at = rows[0][1].index("config")
    return [(n, "".join(cells[at : at + 1])) for n, cells in rows[1:]]
