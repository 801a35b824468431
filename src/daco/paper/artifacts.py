"""The authors' published artifacts, in a folder or ZIP file.

A table is used only if it is complete: every configuration of its grid, every machine of its
year, every clip that the other files of the machine have. An error names a damaged file.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from daco.data.dcase import MACHINES, parse_name
from daco.errors import DacoError, DataError
from daco.evaluation.metrics import QUANTITIES
from daco.evaluation.scorefiles import SCORES, parse_rows, score_file_name
from daco.method.config import paper_grid
from daco.method.grid_table import config_names, numbers
from daco.text import name_list

Given = ParamSpec("Given")
Result = TypeVar("Result")

RELEASED = (
    *("raw-k1", "conf-soft-m0-k1", "conf-soft-m0-k2", "conf-hard-m0-k1", "conf-hard-m0-k2"),
    *("ratio-soft-k1", "zscore-soft-k1", "ldn-ratio-K1", "ldn-ratio-K16"),
    *("ldn-diff-K1", "ldn-diff-K16", "conf-soft-m0-ldnK1", "conf-soft-m30-ldnK1"),
)
"""Configurations whose scores of every clip were published (BEATs, 2025)."""

_WANTED = "a clone of polestvr/daco-experiments, or a ZIP file of it"


class ArtifactError(DataError):
    """An artifact is missing or damaged; the message names its file."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file} {what}.")
        self.file = file


@dataclass(frozen=True)
class Setting:
    """One year, backbone or channel policy: a grid, and the machines behind it."""

    year: int
    grid: str
    machines: str
    size: int = 51
    policy: str | None = None


SETTINGS = {
    "45": Setting(2025, "e3_config_grid.csv", "e3_per_machine.csv", size=45),
    "beats": Setting(2025, "e45_beats_grid.csv", "e45_beats_per_machine.csv"),
    "eat": Setting(2025, "e45_eat_grid.csv", "e45_eat_per_machine.csv"),
    "panns": Setting(2025, "e45_panns_grid.csv", "e45_panns_per_machine.csv"),
    "2023": Setting(2023, "rep_2023_grid.csv", "rep_2023_per_machine.csv"),
    "2024": Setting(2024, "rep_2024_grid.csv", "rep_2024_per_machine.csv"),
    "ch0": Setting(2026, "e8_2026_grid.csv", "e8_2026_per_machine_ch0.csv", policy="ch0"),
    "mix": Setting(2026, "e8_2026_grid.csv", "e8_2026_per_machine_mix.csv", policy="mix"),
}
BACKBONES = ("beats", "eat", "panns")
YEARS = ("2023", "2024", "beats")


@dataclass(frozen=True)
class Artifacts:
    """A clone of the authors' repository, with a cache of what was read and computed."""

    root: Path
    cache: dict[tuple[Any, ...], Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class Clips:
    """The released scores of one machine; labels and domains only where the names carry them."""

    names: tuple[str, ...]
    scores: NDArray[np.float64]
    labels: NDArray[np.int_]
    domains: NDArray[np.str_]


def cached(
    function: Callable[Concatenate[Artifacts, Given], Result],
) -> Callable[Concatenate[Artifacts, Given], Result]:
    """Cache the results of `function` with the artifacts; failures are not cached."""

    @wraps(function)
    def wrapper(artifacts: Artifacts, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        key = (function.__name__, args, tuple(kwargs.items()))
        if key not in artifacts.cache:
            artifacts.cache[key] = function(artifacts, *args, **kwargs)
        return artifacts.cache[key]

    return wrapper


def open_artifacts(path: Path | str) -> Artifacts:
    """Open a folder of artifacts, or a ZIP file of one; an error where it holds none at all.

    A ZIP file is unpacked into a temporary folder that lives as long as the result.
    """
    root = Path(path).expanduser()
    if root.is_file():
        return _unpack(root)
    if not root.is_dir():
        raise DataError(f"{root} does not exist. Give {_WANTED}.")
    if not any((root / "results").glob("*_grid.csv")):
        raise DataError(
            f"{root} holds none of the paper's artifacts: it has no results/*_grid.csv. Give "
            f"{_WANTED}."
        )
    return Artifacts(root)


def _unpack(archive: Path) -> Artifacts:
    folder = tempfile.mkdtemp(prefix="daco-paper-")
    try:
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)
        folders = [each for each in Path(folder).iterdir() if each.is_dir()]
        found = [each for each in folders if (each / "results").is_dir()]
        artifacts = open_artifacts(found[0] if found else folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, DataError):
            reason = f"{archive} holds none of the paper's artifacts"
        elif isinstance(error, (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError)):
            reason = f"{archive} cannot be read as a ZIP file ({error})"
        else:
            raise
        raise DataError(f"{reason}. Give {_WANTED}.") from None
    weakref.finalize(artifacts, shutil.rmtree, folder, ignore_errors=True)
    return artifacts


def read_file(artifacts: Artifacts, file: str, read: Callable[[Path], Result]) -> Result:
    """What `read` returns for a file of the folder."""
    try:
        return read(artifacts.root / file)
    except FileNotFoundError:
        raise ArtifactError(file, "is not there") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(file, f"cannot be read ({error})") from None


def read_text(artifacts: Artifacts, file: str) -> str:
    """A text file of the folder."""
    return read_file(artifacts, file, lambda path: path.read_text(encoding="utf-8-sig"))


@cached
def read_json(artifacts: Artifacts, file: str) -> Any:
    """A JSON file of the folder."""
    text = read_text(artifacts, file)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ArtifactError(file, f"is not JSON ({error})") from None


def read_entry(artifacts: Artifacts, file: str, *keys: str) -> Any:
    """What a JSON file holds under nested keys."""
    entry = read_json(artifacts, file)
    for key in keys:
        if not isinstance(entry, dict) or key not in entry:
            raise ArtifactError(file, f"has no entry {' / '.join(keys)}")
        entry = entry[key]
    return entry


@cached
def read_table(
    artifacts: Artifacts, file: str, text: tuple[str, ...], values: tuple[str, ...]
) -> pd.DataFrame:
    """A CSV file with these columns of text and of finite numbers."""
    where = f"results/{file}"
    path = artifacts.root / where
    if not path.is_file():
        raise ArtifactError(where, "is not there")
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys(text, str))
    except (OSError, ValueError) as error:
        raise ArtifactError(where, f"cannot be read as a table ({error})") from None
    absent = [name for name in (*text, *values) if name not in table]
    if absent:
        raise ArtifactError(where, f"has no column {name_list(absent)}")
    holes = [name for name in text if table[name].isna().any()]
    if holes:
        raise ArtifactError(where, f"has empty cells in column {name_list(holes)}")
    try:
        for name in values:
            table[name] = numbers(name, table[name].to_numpy(), len(table))
    except DacoError as error:
        reason = str(error).partition(". ")[0]  # what follows is advice for one's own tables
        raise ArtifactError(where, f"is damaged: {reason}") from None
    return table


def require_rows(file: str, what: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Require every row once and no other."""
    if sorted(found) != sorted(wanted):
        has = len(set(found) & set(wanted))
        raise ArtifactError(f"results/{file}", f"has {has} of {len(wanted)} {what}")


@cached
def grid(artifacts: Artifacts, setting: str) -> pd.DataFrame:
    """The grid of a setting: ``config, dev_omega, eval_omega, crit_dev, crit_eval``."""
    columns = ("dev_omega", "eval_omega", "crit_dev", "crit_eval")
    return _rows(artifacts, SETTINGS[setting].grid, setting, columns)


@cached
def frozen_grid(artifacts: Artifacts, setting: str) -> pd.DataFrame:
    """The grid that was frozen before the 2026 ground truth was known."""
    return _rows(artifacts, "prereg2026_grid.csv", setting, ("dev_omega", "crit_dev"))


@cached
def machines(artifacts: Artifacts, setting: str, split: str) -> pd.DataFrame:
    """Metrics and criterion of each machine and configuration."""
    known = SETTINGS[setting]
    file = known.machines
    if known.policy and split == "dev":
        file = f"prereg2026_per_machine_{known.policy}.csv"
    return _rows(artifacts, file, setting, (*QUANTITIES, "balance_ks"), split)


def _rows(
    artifacts: Artifacts, file: str, setting: str, columns: tuple[str, ...], split: str = ""
) -> pd.DataFrame:
    """The rows of a setting, and of a split where they are of machines; complete, or an error."""
    known = SETTINGS[setting]
    configs = config_names(paper_grid(known.size))
    keys, what = (
        (["machine", "config"], f"{split} rows") if split else (["config"], "configurations")
    )
    axes = [MACHINES[known.year][split], configs] if split else [configs]
    part = {"policy": known.policy} if known.policy else {"split": split} if split else {}
    table = read_table(artifacts, file, (*part, *keys), columns)
    for name, value in part.items():
        table = table[table[name] == value].reset_index(drop=True)
    found = list(table[keys].itertuples(index=False, name=None))
    require_rows(file, "rows" if known.policy else what, found, list(product(*axes)))
    return table


@cached
def clips(artifacts: Artifacts, config: str, split: str, machine: str) -> Clips:
    """The scores of every test clip of a machine; complete, or an error."""
    names, scores = _score_rows(artifacts, config, split, machine)
    most = max((_score_names(artifacts, c, split, machine) for c in RELEASED), key=len)
    where = _score_file(config, split, machine)
    if set(names) != set(most):
        raise ArtifactError(where, f"has {len(set(names) & set(most))} of {len(most)} clips")
    parsed = [parse_name(name) for name in names]
    truth = [(p.label, p.domain) for p in parsed if p and p.label is not None and p.domain]
    if split == "dev" and len(truth) != len(names):
        raise ArtifactError(where, "has names without a label")
    labels, domains = zip(*truth, strict=True) if truth else ((), ())
    return Clips(names, scores, np.array(labels, dtype=int), np.array(domains, dtype=str))


def _score_file(config: str, split: str, machine: str) -> str:
    return f"release/scores/{config}/{split}/{score_file_name(machine)}"


@cached
def _score_rows(
    artifacts: Artifacts, config: str, split: str, machine: str
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    where = _score_file(config, split, machine)
    problems: list[str] = []
    names, scores = parse_rows(read_text(artifacts, where), SCORES, "", problems)
    if problems:
        raise ArtifactError(where, f"is damaged{problems[0].rstrip('.')}")
    return names, scores


def _score_names(artifacts: Artifacts, config: str, split: str, machine: str) -> tuple[str, ...]:
    """The clips of a file; none where it is missing or damaged."""
    try:
        return _score_rows(artifacts, config, split, machine)[0]
    except ArtifactError:
        return ()
