"""The grid of a study: names, the configurations in a file, detectors and other systems."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from daco.errors import ConfigError, DataError, InputError
from daco.method.config import (
    Base,
    ScoreConfig,
    blind_pool,
    calibrations_of,
    paper_grid,
    parse_base,
    parse_grid,
)
from daco.method.external import Candidates, installed_scorer, is_detector, parse_pool


def mixed_grid(
    grid: str | int | Path | Candidates, systems: Collection[str] = ()
) -> tuple[list[ScoreConfig], dict[str, Any]]:
    """Configurations of a grid and of systems, and the detectors that they need, by label.

    A grid is as `read_grid` or :func:`daco.method.external.parse_pool` reads it; scorers that are
    only named must be installed. Each system is the label of a table of scores.

    >>> from sklearn.ensemble import IsolationForest
    >>> configs, detectors = mixed_grid(["raw-k1", {"trees": IsolationForest()}], ["mine"])
    >>> len(configs), configs[-1].name, list(detectors)
    (15, 'zscore-soft-ext-mine', ['trees'])
    """
    detectors: dict[str, Any] = {}
    if isinstance(grid, str | int | Path):
        configs = read_grid(str(grid))
    else:
        configs, detectors = parse_pool(grid)
    for label in systems:
        base = system_base(label, detectors)
        configs += [config for config in calibrations_of(base) if config not in configs]
    for label in dict.fromkeys(label for config in configs for label in config.base.labels):
        if label not in (*systems, *detectors):
            detectors[label] = installed_scorer(label)
        if label in detectors and not is_detector(detectors[label]):
            raise InputError(
                f"Scores of {label!r} in the grid: a study has many machines, so give tables of "
                "scores as files, systems={...}."
            )
    return configs, detectors


def system_base(label: str, detectors: Collection[str] = ()) -> Base:
    """The base score of another system; an error where its name cannot be one."""
    base = parse_base(f"ext-{label}")
    if base is None or label in detectors:
        raise ConfigError(
            "The name of a system has letters, digits, '_' and '.', and no detector has it, too. "
            f"Got {label!r}."
        )
    return base


def read_grid(name_or_path: str | Path) -> list[ScoreConfig]:
    """Read the configurations of a named grid, of a file or of names with commas between them.

    Their order breaks ties. A file has one name per line; ``#`` starts a comment.

    >>> len(read_grid("51")), read_grid("9")[1].name
    (51, 'conf-soft-m0-k1')
    """
    if str(name_or_path) == "9":
        return blind_pool()
    if str(name_or_path) in ("51", "45"):
        return paper_grid(int(str(name_or_path)))
    path = Path(name_or_path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        names = str(name_or_path).split(",")
        try:
            return parse_grid(names)
        except ConfigError:
            if len(names) > 1:
                raise
        raise DataError(
            f"There is no grid {str(name_or_path)!r}. Give one of 51, 45, 9, names of "
            "configurations joined by commas, or a file with one name per line."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list of configurations: {error}.") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    try:
        return parse_grid(filter(None, lines))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
