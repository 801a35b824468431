"""ScoreTable: scores of test clips by any systems, a Parquet file with a row per clip and system.

``daco baseline`` writes it and a study shows its systems beside its own. A file of another origin
needs the columns ``path``, ``machine``, ``system`` and ``score``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from daco.data.clips import stem_of
from daco.errors import DataError, InputError
from daco.evaluation.metrics import machine_metrics
from daco.evaluation.scorefiles import write_scores
from daco.files.atomic import atomic_write
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("path", "year", "machine", "section", "domain", "split", "label", "system", "score")
PLACE = ["year", "machine", "section"]

Place = tuple[int | None, str, str]

_REQUIRED = ("path", "machine", "system", "score")
_DEFAULTS: dict[str, Any] = {"section": "00", "split": "test"}
_TEXT = ("path", "machine", "section", "domain", "split", "system")
_METADATA = b"daco.scores"


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of clips, and how they came about.

    Attributes
    ----------
    rows : DataFrame
        The columns of :data:`COLUMNS`; ``year``, ``domain`` and ``label`` may be missing.
    about : mapping
        Settings and what became of each machine, as plain JSON; empty for others' files.
    """

    rows: pd.DataFrame
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in the order of the rows."""
        return tuple(dict.fromkeys(self.rows["system"]))


def score_rows(columns: Mapping[str, Any]) -> pd.DataFrame:
    """The columns as a table of the right types."""
    import pandas as pd

    rows = pd.DataFrame({name: columns[name] for name in COLUMNS})
    return rows.astype({"year": "Int64", "label": "Int64", "score": "float64"})


def read_score_table(path: Path | str) -> ScoreTable:
    """The table in a Parquet file, checked; a DataError names what is wrong with it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder. Give one Parquet file of scores.")
    try:
        found = pq.read_table(path, partitioning=None)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except pa.ArrowException as error:
        raise DataError(
            f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})."
        ) from None
    absent = [name for name in _REQUIRED if name not in found.column_names]
    if absent:
        raise DataError(
            f"{path} is no table of scores: it has no column {name_list(map(repr, absent))}. "
            "'daco baseline' writes one."
        )
    try:
        about = json.loads((found.schema.metadata or {}).get(_METADATA, b"{}"))
        rows = _typed({name: found[name].to_pylist() for name in _known(found)}, len(found))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: {error}") from None
    return ScoreTable(rows, about if isinstance(about, dict) else {})


def write_score_table(table: ScoreTable, path: Path) -> None:
    """Write the table to `path` as Parquet, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"year": pa.int32(), "label": pa.int8(), "score": pa.float64()}
    about = {_METADATA: json.dumps(table.about, ensure_ascii=False).encode()}
    schema = pa.schema(
        [pa.field(name, kinds.get(name, pa.string())) for name in COLUMNS], metadata=about
    )
    content = pa.Table.from_pandas(table.rows, schema, preserve_index=False)
    with atomic_write(path) as temporary:
        pq.write_table(content.replace_schema_metadata(about), temporary, compression="zstd")


def places_of(rows: pd.DataFrame) -> dict[Place, pd.DataFrame]:
    """The rows of each year, machine and section, in order of appearance."""
    import pandas as pd

    found: dict[Place, pd.DataFrame] = {}
    for key, part in rows.groupby(PLACE, sort=False, dropna=False):
        year, machine, section = cast(tuple[Any, str, str], key)
        found[None if pd.isna(year) else int(year), machine, section] = part
    return found


def system_metrics(rows: pd.DataFrame) -> dict[str, dict[str, float] | None]:
    """Official metrics of each system on one machine's clips, as fractions.

    None where labels or domains are incomplete, or a domain has no normal clip.
    """
    return {str(system): _metrics(part) for system, part in rows.groupby("system", sort=False)}


def write_score_files(rows: pd.DataFrame, folder: Path) -> list[Path]:
    """Score files of the challenge, ``<folder>/<system>/anomaly_score_...``: for daco evaluate."""
    places = rows[PLACE].drop_duplicates()
    twice = places.loc[places.duplicated(["machine", "section"]), "machine"].tolist()
    if twice:
        raise InputError(
            f"{twice[0]} is there of several years, and score files do not tell them apart. Write "
            "those of one year at a time."
        )
    return [
        write_scores(
            folder / str(system),
            str(machine),
            str(section),
            part["path"].tolist(),
            part["score"].to_numpy(),
        )
        for (system, machine, section), part in rows.groupby(
            ["system", "machine", "section"], sort=False
        )
    ]


def _known(found: Any) -> list[str]:
    return [name for name in COLUMNS if name in found.column_names]


def _typed(given: Mapping[str, list[Any]], n: int) -> pd.DataFrame:
    columns = {name: given.get(name, [_DEFAULTS.get(name)] * n) for name in COLUMNS}
    for name in _TEXT:
        optional = name == "domain"
        if not all(isinstance(v, str) or (v is None and optional) for v in columns[name]):
            raise ValueError(f"column {name!r} must hold text.")
    if not all(label in (None, 0, 1) for label in columns["label"]):
        raise ValueError("column 'label' must hold 1 for an anomaly and 0 for a normal clip.")
    rows = score_rows(columns)
    bad = ~np.isfinite(rows["score"].to_numpy())
    if bad.any():
        paths = rows["path"][bad].tolist()
        raise ValueError(
            f"{quantity(paths, 'score')} missing or not finite: {name_list(paths, 3)}."
        )
    names = rows.assign(path=rows["path"].map(stem_of))
    twice = names.duplicated([*PLACE, "path", "system"])
    if twice.any():
        raise ValueError(
            f"{quantity(int(twice.sum()), 'clip')} more than once: "
            f"{name_list(rows['path'][twice], 3)}."
        )
    return rows


def _metrics(part: pd.DataFrame) -> dict[str, float] | None:
    if part["label"].isna().any() or part["domain"].isna().any():
        return None
    labels = part["label"].to_numpy(dtype=np.int64)
    domains = part["domain"].to_numpy(dtype=np.str_)
    if not (labels == 1).any() or set(domains) != set(domains[labels == 0]):
        return None
    return machine_metrics(part["score"].to_numpy(), labels, domains)
