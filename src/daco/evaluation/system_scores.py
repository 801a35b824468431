"""Scores of another system: one table, whatever they were written as.

A system is a CSV or Parquet file with the columns ``path`` and ``score``, and any of ``machine``,
``section``, ``domain``, ``split`` (``train`` for normals that it did not train on, ``test``),
``label``, ``decision`` and ``weight_<domain>``; or a folder of challenge files; or a run folder of
daco, whose chosen configuration is the system. Other columns are read from DCASE names.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from daco.data.clips import ONE_DOMAIN, stem_of
from daco.data.columns import clip_columns
from daco.data.dcase import require_normal_names
from daco.data.manifest import read_cells
from daco.data.parquet import naming_file
from daco.errors import DataError, InputError
from daco.evaluation.scorefiles import (
    DECISIONS,
    SCORES,
    parse_file_name,
    read_score_files,
    score_file_name,
)
from daco.text import name_list, quantity
from daco.validation import Indices

WEIGHT = "weight_"
"""Before the name of a domain: the column with the clips' weights of that domain."""

_CELLS = ("path", "machine", "section", "domain", "split", "label")
_COLUMNS = ("set", "machine", "section", "split", "clip", "domain", "label", "score", "decision")
_RUN = ("clips.parquet", "run.json")

RUN_SCHEMA = 2
"""Of the files of a run; a run of another one is refused."""


def read_system(path: Path | str) -> pd.DataFrame:
    r"""Read and check the scores of a system; errors name the file and the row or line.

    Parameters
    ----------
    path : path
        A CSV or Parquet file, a folder of challenge files, or a run folder, as the module
        describes. Rows are counted from 1, without the header.

    Returns
    -------
    DataFrame
        ``machine, section, split, clip, domain, label, score`` and, where they are known,
        ``decision`` and ``weight_<domain>``; a run also has ``set``. An unknown domain is an empty
        text, an unknown label -1; without any domain, all clips are of the domain ``all``.
        ``attrs["notes"]`` has sentences about oddities.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "own.csv")
    >>> rows = ["path,machine,domain,split,score", "a.wav,fan,slow,train,0.1",
    ...         "b.wav,fan,fast,train,0.3", "c.wav,fan,,test,0.2"]
    >>> _ = path.write_text("\n".join(rows))
    >>> read_system(path)[["split", "domain", "label", "score"]].values.tolist()
    [['train', 'slow', -1, 0.1], ['train', 'fast', -1, 0.3], ['test', '', -1, 0.2]]
    """
    path = Path(path).expanduser()
    with naming_file(path):
        if is_run(path):
            return _read_run(path)
        given = _read_folder(path) if path.is_dir() else _read_file(path)
        columns = clip_columns(given, len(given["path"]), _CELLS, first=1)
        table = pd.DataFrame({name: list(column) for name, column in columns.items()}, dtype=object)
        table = table.rename(columns={"path": "clip"})
        if table["domain"].isna().all():
            table["domain"] = ONE_DOMAIN
        table = table.fillna({"domain": "", "label": -1}).astype({"label": int})
        numbers = [str(name) for name in table if name not in (*_CELLS, "clip")]
        table[numbers] = table[numbers].apply(pd.to_numeric, errors="coerce").astype(float)
        _require_rows(table, numbers)
        normals = table.loc[table["split"] == "train", "clip"].tolist()
        table = table[_ordered(table)]
        table.attrs["notes"] = require_normal_names(normals)
        return table


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a finished run."""
    return all((path / name).is_file() for name in _RUN)


def require_run_schema(folder: Path, run: Any) -> None:
    """Raise `DataError` where another version of daco wrote the ``run.json`` of a folder."""
    schema = run.get("schema") if isinstance(run, dict) else None
    if schema != RUN_SCHEMA:
        raise DataError(
            f"{folder} was written by another version of daco (schema {schema!r:.20}, this one "
            f"reads {RUN_SCHEMA}). Run the same study again in this folder."
        )


def match_names(names: Iterable[str], paths: Iterable[str], where: str) -> Indices:
    """Find each name among paths: by the whole path, else without folders and ending.

    `where` is the source of the paths, for the error message.

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


def _require_rows(table: pd.DataFrame, numbers: list[str]) -> None:
    """Raise an error that names the first wrong row."""
    finite = table[numbers].map(np.isfinite)
    train = table["split"] == "train"
    weights = [name for name in numbers if name.startswith(WEIGHT)]
    key = ["machine", "section", "split", "clip"]
    for wrong, what in (
        (~finite["score"], "has no finite number in the column 'score'"),
        (~train & ~finite[weights].all(axis=1), "has no finite weight"),
        (table.duplicated(key), "has two rows"),
        (train & (table["label"] == 1), "is of the split 'train', but an anomaly"),
        (train & (table["domain"] == ""), "is of the split 'train', but has no domain"),
    ):
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise InputError(f"row {row + 1}: {table['clip'].iloc[row]!r} {what}.")


def _ordered(table: pd.DataFrame) -> list[str]:
    names = [str(name) for name in table]
    return [name for name in _COLUMNS if name in names] + [n for n in names if n.startswith(WEIGHT)]


def _is_used(name: str) -> bool:
    return name in _CELLS or name in ("score", "decision") or name.startswith(WEIGHT)


def _read_file(path: Path) -> dict[str, list[Any]]:
    if parse_file_name(path.name):
        raise InputError("this is one score file of a challenge. Give its folder.")
    cells, _ = read_cells(path, _is_used)
    if "score" not in cells:
        raise InputError("there is no column 'score'.")
    return cells


def _read_folder(folder: Path) -> dict[str, Any]:
    """The columns of a folder of challenge files, held-out normals as train rows."""
    problems: list[str] = []
    rows = read_score_files(folder, problems).rename(columns={"name": "path"})
    if problems:
        raise InputError(name_list(problems, 20))
    key = ["machine", "section", "split", "path"]
    scores, decisions = (
        rows.loc[rows["kind"] == kind, [*key, "value"]].rename(columns={"value": column})
        for kind, column in ((SCORES, "score"), (DECISIONS, "decision"))
    )
    if scores.empty:
        raise InputError(f"there is no file {score_file_name('<machine>')} in it.")
    table = scores.merge(decisions, how="left", on=key) if len(decisions) else scores
    return {str(name): table[name].tolist() for name in table}


def _read_run(folder: Path) -> pd.DataFrame:
    """The scores and decisions of the configuration that a study chose."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    require_run_schema(folder, run)
    config = run["choice"]["config"]
    clips = pd.read_parquet(folder / "clips.parquet").rename(columns={config: "score"})
    if (p_value := f"p:{config}") in clips:
        alarms = clips[p_value] <= run["settings"]["false_alarm_rate"] * (1 + 1e-9)
        clips["decision"] = alarms.astype(float).where(clips[p_value].notna())
    return clips[clips["score"].notna()][_ordered(clips)].reset_index(drop=True)
