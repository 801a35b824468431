"""Score tables: scores of another system for held-out normals and test clips.

A table is a CSV or Parquet file with the columns ``path`` and ``score``, and any of ``machine``,
``section``, ``domain``, ``split`` (``train`` for the normals, ``test``), ``label`` and
``weight_<domain>``; or a folder of challenge files, with the normals in
``anomaly_score_<machine>_section_<n>_train.csv``. Other columns are read from DCASE names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.data.clips import ONE_DOMAIN, stem_of
from daco.data.columns import clip_columns
from daco.data.dcase import require_normal_names
from daco.data.manifest import read_cells, read_rows
from daco.data.parquet import naming_file
from daco.errors import DataError, InputError
from daco.evaluation.scorefiles import (
    HELD_OUT,
    SCORES,
    Key,
    machine_title,
    parse_file_name,
    parse_rows,
)
from daco.text import name_list, quantity
from daco.validation import Indices

if TYPE_CHECKING:
    import pandas as pd

WEIGHT = "weight_"
"""Before the name of a domain: the column with the clips' weights of that domain."""

_COLUMNS = ("path", "machine", "section", "domain", "split", "label")
_WHAT = ("normals that the system did not train on", "test clips")


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The scores of one system, made by :func:`read_score_table`.

    Attributes
    ----------
    path : path
    clips : DataFrame
        One row per clip, with all clip columns, ``score`` and any ``weight_<domain>``.
    notes : tuple of str
        Sentences about oddities.
    """

    path: Path
    clips: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def machines(self) -> tuple[Key, ...]:
        """Machines and sections, in the order of the table."""
        keys = zip(self.clips["machine"], self.clips["section"], strict=True)
        return tuple(dict.fromkeys(keys))

    def machine(self, machine: str, section: str = "00") -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows of the normals of a machine, and those of its test clips."""
        own = self.clips[(self.clips["machine"] == machine) & (self.clips["section"] == section)]
        parts = own[own["split"] == "train"], own[own["split"] == "test"]
        for part, what in zip(parts, _WHAT, strict=True):
            if part.empty:
                title = machine_title(machine, section)
                raise DataError(f"{title} lacks scores of {what}. Add them.", path=self.path)
        return parts


def read_score_table(path: Path | str) -> ScoreTable:
    r"""Read and check the scores of another system; errors name the file and the row or line.

    Parameters
    ----------
    path : path
        A CSV or Parquet file, or a folder of challenge files, as the module describes. Rows are
        counted from 1, without the header.

    Returns
    -------
    ScoreTable

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "own.csv")
    >>> rows = ["path,machine,domain,split,score", "a.wav,fan,slow,train,0.1",
    ...         "b.wav,fan,fast,train,0.3", "c.wav,fan,,test,0.2"]
    >>> _ = path.write_text("\n".join(rows))
    >>> normals, test = read_score_table(path).machine("fan")
    >>> normals["domain"].tolist(), test["score"].tolist()
    (['slow', 'fast'], [0.2])
    """
    import pandas as pd

    path = Path(path).expanduser()
    with naming_file(path):
        given = _read_folder(path) if path.is_dir() else _read_file(path)
        columns = clip_columns(given, len(given["path"]), _COLUMNS)
        clips = pd.DataFrame({name: list(column) for name, column in columns.items()}, dtype=object)
        if clips["domain"].isna().all():
            clips["domain"] = ONE_DOMAIN
        numbers = [name for name in columns if name not in _COLUMNS]
        clips[numbers] = clips[numbers].apply(pd.to_numeric, errors="coerce").astype(np.float64)
        normals, test = (clips[clips["split"] == split] for split in ("train", "test"))
        for rows, what in (
            (clips[~np.isfinite(clips["score"])], "has no finite number in the column 'score'"),
            (test[~np.isfinite(test[numbers]).all(axis=1)], "has no finite weight"),
            (clips[clips.duplicated(["machine", "section", "split", "path"])], "has two rows"),
            (normals[normals["label"] == 1], "is of the split 'train', but an anomaly"),
            (normals[normals["domain"].isna()], "is of the split 'train', but has no domain"),
        ):
            if len(rows):
                raise InputError(f"row {rows.index[0] + 1}: {rows['path'].iloc[0]!r} {what}.")
        return ScoreTable(path, clips, tuple(require_normal_names(normals["path"].tolist())))


def _read_file(path: Path) -> dict[str, list[Any]]:
    if parse_file_name(HELD_OUT.sub(r"\1_test", path.name)):
        raise InputError("this is one score file of a challenge. Give its folder.")
    header, rows = read_rows(path, _is_used)
    if "score" not in header:
        raise InputError("there is no column 'score'.")
    columns: dict[str, list[Any]] = {name: [] for name in header if _is_used(name)}
    for number, row in enumerate(rows, 1):
        where = f"{path}, row {number}, column"
        cells = row | dict.fromkeys(_COLUMNS) | read_cells(row, where)
        for name, values in columns.items():
            if cells[name] is None and name in ("machine", "split"):
                raise DataError(f"{where} {name!r}: empty.")
            values.append(cells[name])
    return columns


def _is_used(name: str) -> bool:
    return name in _COLUMNS or name == "score" or name.startswith(WEIGHT)


def _read_folder(folder: Path) -> dict[str, list[Any]]:
    rows: list[tuple[Any, ...]] = []
    problems: list[str] = []
    for path in sorted(folder.glob(f"{SCORES}_*.csv")):
        name, is_train = HELD_OUT.subn(r"\1_test", path.name)
        parsed = parse_file_name(name)
        if parsed is None:
            problems.append(f"{path.name}: not a name such as {SCORES}_fan_section_00_train.csv")
            continue
        names, scores = parse_rows(path.read_text("utf-8"), SCORES, path.name, problems)
        shared = (*parsed[1:3], "train" if is_train else "test")
        rows += [(name, *shared, score) for name, score in zip(names, scores, strict=True)]
    if problems:
        raise InputError(name_list(problems, 20))
    if not rows:
        raise InputError(f"there is no file {SCORES}_<machine>_section_<n>_test.csv in it.")
    columns = map(list, zip(*rows, strict=True))
    return dict(zip(("path", "machine", "section", "split", "score"), columns, strict=True))


def match_names(names: Iterable[str], paths: Iterable[str], where: str) -> Indices:
    """The position of each name among paths: by the whole path, else without folders and ending.

    Parameters
    ----------
    names, paths : texts
    where : str
        Source of the paths, for the error message.

    Examples
    --------
    >>> from daco.evaluation.score_tables import match_names
    >>> match_names(["b", "a"], ["fan/a.wav", "fan/b.wav"], "the table")
    array([1, 0])
    """
    wanted, known = list(names), list(paths)
    for short in (str, stem_of):
        at = defaultdict(list)
        for row, path in enumerate(known):
            at[short(path)].append(row)
        rows = [at[short(name)] for name in wanted]
        if all(len(each) == 1 for each in rows):
            return np.concatenate(rows)
    wrong = [name for name, each in zip(wanted, rows, strict=True) if len(each) != 1]
    raise InputError(
        f"{where} has no row or several for {quantity(wrong, 'clip')}: {name_list(wrong)}."
    )
