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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from daco.data.dcase import MACHINES, parse_name
from daco.errors import DataError
from daco.evaluation.metrics import QUANTITIES
from daco.evaluation.scorefiles import SCORES, parse_rows, score_file_name
from daco.method.config import paper_grid
from daco.text import name_list
from daco.validation import Float64s

Given = ParamSpec("Given")
Result = TypeVar("Result")

RELEASED = (
    *("raw-k1", "conf-soft-m0-k1", "conf-soft-m0-k2", "conf-hard-m0-k1", "conf-hard-m0-k2"),
    *("ratio-soft-k1", "zscore-soft-k1", "ldn-ratio-K1", "ldn-ratio-K16"),
    *("ldn-diff-K1", "ldn-diff-K16", "conf-soft-m0-ldnK1", "conf-soft-m30-ldnK1"),
)
"""Configurations whose scores of every clip were published (BEATs, 2025)."""

DEV, EVAL = MACHINES[2025]["dev"], MACHINES[2025]["eval"]

_WANTED = "a clone of polestvr/daco-experiments, or a ZIP file of it"


class ArtifactError(DataError):
    """An artifact is missing or damaged; the message names its file."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file} {what}.")


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


@dataclass(frozen=True, eq=False)
class Clips:
    """The released scores of one machine; labels and domains only where the names carry them."""

    names: tuple[str, ...]
    scores: Float64s
    labels: NDArray[np.int_]
    domains: NDArray[np.str_]


class Artifacts:
    """A clone of the authors' repository, with a cache of files and results."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache: dict[tuple[Any, ...], Any] = {}

    def read(self, file: str, read: Callable[[Path], Result]) -> Result:
        """What `read` returns for a file of the folder."""
        try:
            return read(self.root / file)
        except FileNotFoundError:
            raise ArtifactError(file, "does not exist") from None
        except (OSError, ValueError) as error:
            raise ArtifactError(file, f"cannot be read ({error})") from None

    def text(self, file: str) -> str:
        """A text file of the folder."""
        return self.read(file, lambda path: path.read_text(encoding="utf-8-sig"))

    def entry(self, file: str, *keys: str) -> Any:
        """The value of a JSON file under nested keys."""
        entry = self.read(file, lambda path: json.loads(path.read_text(encoding="utf-8-sig")))
        for key in keys:
            if not isinstance(entry, dict) or key not in entry:
                raise ArtifactError(file, f"has no entry {' / '.join(keys)}")
            entry = entry[key]
        return entry

    def table(
        self,
        file: str,
        rows: Mapping[str, Sequence[Any]],
        values: Sequence[str],
        text: Sequence[str] = (),
        **part: str,
    ) -> pd.DataFrame:
        """A CSV file with every combination of `rows` once, and finite numbers in `values`.

        `text` are further columns, and `part` selects rows by the text in a column.
        """
        where = f"results/{file}"
        words = [name for name in (*part, *rows, *text) if name not in values]
        table = self.read(where, lambda path: pd.read_csv(path, dtype=dict.fromkeys(words, str)))
        if absent := [name for name in (*words, *values) if name not in table]:
            raise ArtifactError(where, f"has no column {name_list(absent)}")
        for name in values:
            table[name] = pd.to_numeric(table[name], errors="coerce").astype(float)
        known = table[[*words, *values]].replace([np.inf, -np.inf], np.nan).notna().all()
        if not known.all():
            raise ArtifactError(where, f"is damaged in column {name_list(known.index[~known])}")
        for name, value in part.items():
            table = table[table[name] == value]
        present = list(table[list(rows)].itertuples(index=False, name=None))
        wanted = list(product(*rows.values()))
        if sorted(present) != sorted(wanted):
            has = len(set(present) & set(wanted))
            raise ArtifactError(where, f"has {has} of {len(wanted)} rows")
        return table.reset_index(drop=True)

    @cached
    def grid(self, setting: str, *, frozen: bool = False) -> pd.DataFrame:
        """The grid of a setting by configuration; or as it was before the 2026 truth was known."""
        known = SETTINGS[setting]
        file = "prereg2026_grid.csv" if frozen else known.grid
        columns = ["dev_omega", "crit_dev", *([] if frozen else ["eval_omega", "crit_eval"])]
        configs = [config.name for config in paper_grid(known.size)]
        part = {"policy": known.policy} if known.policy else {}
        table = self.table(file, {"config": configs}, columns, **part)
        return table.set_index("config", drop=False).rename_axis(None)

    @cached
    def machines(self, setting: str, split: str) -> pd.DataFrame:
        """Metrics and criterion of each machine and configuration."""
        known = SETTINGS[setting]
        file, part = known.machines, {"split": split}
        if known.policy:
            part = {"policy": known.policy}
            file = f"prereg2026_per_machine_{known.policy}.csv" if split == "dev" else file
        configs = [config.name for config in paper_grid(known.size)]
        rows = {"machine": MACHINES[known.year][split], "config": configs}
        return self.table(file, rows, (*QUANTITIES, "balance_ks"), **part)

    @cached
    def clips(self, config: str, split: str, machine: str) -> Clips:
        """The scores of every test clip of a machine."""
        where, names, scores = self._clip_scores(config, split, machine)
        complete: set[str] = set()
        for other in RELEASED:
            with suppress(ArtifactError):
                clips = self._clip_scores(other, split, machine)[1]
                complete = max(complete, set(clips), key=len)
        if set(names) != complete:
            has = len(set(names) & complete)
            raise ArtifactError(where, f"has {has} of {len(complete)} clips")
        parsed = [parse_name(name) for name in names]
        truth = [(p.label, p.domain) for p in parsed if p and p.label is not None and p.domain]
        if split == "dev" and len(truth) != len(names):
            raise ArtifactError(where, "has names without a label")
        labels, domains = zip(*truth, strict=True) if truth else ((), ())
        return Clips(names, scores, np.array(labels, dtype=int), np.array(domains, dtype=str))

    @cached
    def _clip_scores(
        self, config: str, split: str, machine: str
    ) -> tuple[str, tuple[str, ...], Float64s]:
        """A file of scores, with the names and scores in it."""
        where = f"release/scores/{config}/{split}/{score_file_name(machine)}"
        problems: list[str] = []
        names, scores = parse_rows(self.text(where), SCORES, "", problems)
        if problems:
            raise ArtifactError(where, f"is damaged{problems[0].rstrip('.')}")
        return where, names, scores


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
        results = [each for each in Path(folder).glob("*/results") if each.is_dir()]
        artifacts = open_artifacts(results[0].parent if results else folder)
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
