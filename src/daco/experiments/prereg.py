"""Preregistration: a choice frozen before its evaluation is known.

``prereg.json`` holds the frozen configuration, the rule and the numbers it follows from, all
settings, and the SHA-256 of every file of the run and of the document itself. The hash shows
whether the document was edited, not when it was written: publish the hash when freezing.
:mod:`daco.experiments.verification` checks such a document.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.errors import DataError, InputError
from daco.experiments.analysis import complete_column, metrics_of, plain_rows
from daco.experiments.rules import VETOES, grid_choice
from daco.experiments.study_tables import DOCUMENTS, MACHINES, TABLES, StudyTables, read_json
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.method.config import PAPER_CONFIG
from daco.method.selection import Choice, Table
from daco.version import __version__

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
KNOWN = "evaluation_scores_were_known_when_this_was_frozen"
SETTINGS = ("seed", "n_splits", "readout", "false_alarm_rate", "domains")
COLUMNS = ("dev_omega", "crit_dev", "crit_paper")
"""What a choice may depend on."""
PARTS = (
    *("frozen", "dev_pick", "default", "veto", "resampled"),
    *("settings", "run", "inputs", "grid", "artifacts"),
)

_WHAT = "daco preregistration"


def freeze(
    run: Path | str, *, created: str | None = None, beside: Path | str | None = None
) -> dict[str, Any]:
    """Return the preregistration of a run, the content of ``prereg.json``.

    Parameters
    ----------
    run : path
        The folder of the run. The document states whether its evaluation scores were known.
    created : str, optional
        Date, or date and time (UTC), in ISO form; by default ``$SOURCE_DATE_EPOCH`` or now.
    beside : path, optional
        The folder of the document, for the relative path to `run`.

    Returns
    -------
    dict

    Raises
    ------
    DataError
        The run is not finished, its choice does not follow from its own grid, or files were
        changed after it.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> import pandas as pd
    >>> grid = {"config": ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"],
    ...         "dev_omega": [58.7, 56.3, 50.4], "crit_dev": [0.62, 0.49, 0.45]}
    >>> pd.DataFrame(grid).to_csv(folder / "grid.csv", index=False)
    >>> _ = (folder / "per_machine.csv").write_text("split,machine,config")
    >>> document = freeze(folder, created="2026-06-01")
    >>> document["frozen"]["config"], document["dev_pick"], document[KNOWN]
    ('conf-soft-m0-k1', 'raw-k1', False)
    """
    folder = Path(run)
    result = StudyTables.read(folder)
    provenance = result.provenance
    if (folder / MACHINES).is_dir() and not provenance:
        raise DataError(f"The study in {folder} is not finished: it has no run.json. Run it again.")
    artifacts = {
        path.relative_to(folder).as_posix(): {
            "sha256": sha256_of_file(path),
            "bytes": path.stat().st_size,
        }
        for path in _artifact_paths(folder)
    }
    recorded = provenance.get("artifacts") or {}
    changed = [
        name
        for name, each in artifacts.items()
        if recorded.get(name, "") not in ("", each["sha256"])
    ]
    if changed:
        raise DataError(
            f"{', '.join(changed)} in {folder} changed after the run was finished. Run the study "
            "again before freezing it."
        )
    veto = result.selection.get("guard", "both")
    resampled = result.resampled
    choice = grid_choice(result.grid, veto, resampled)
    chosen = (result.selection.get("chosen") or {}).get("config", choice.config)
    if chosen != choice.config:
        raise DataError(
            f"{folder / DOCUMENTS['selection']} chose {chosen!r}, and the rule picks "
            f"{choice.config!r} from grid.csv. Freeze what the rule picks: run the study again."
        )
    dev = complete_column(result.grid, "dev_omega")
    names = result.grid["config"].tolist()
    document = {
        "schema": SCHEMA,
        "what": _WHAT,
        "created": _created(created),
        "daco_version": __version__,
        KNOWN: _evaluation_known(result),
        "frozen": {"config": chosen, "rule": VETOES[veto], "reason": choice.reason},
        "dev_pick": None if dev is None else names[int(dev.argmax())],
        "default": PAPER_CONFIG,
        "veto": veto,
        "vetoed": dict(choice.vetoed),
        "resampled": None if resampled is None else resampled.tolist(),
        "settings": {name: provenance.get(name) for name in SETTINGS},
        "run": {
            "folder": None if beside is None else _relative(folder, Path(beside)),
            "daco_version": provenance.get("daco_version"),
            "created": provenance.get("created"),
        },
        "inputs": list(provenance.get("inputs", [])),
        "grid": grid_rows(result.grid),
        "artifacts": artifacts,
    }
    return {**document, "sha256": document_hash(document)}


def document_hash(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document's contents without its own hash; spacing and order do not matter.

    >>> document_hash({"a": 1, "sha256": "x"}) == document_hash({"a": 1})
    True
    """
    content = {key: value for key, value in document.items() if key != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256_of_bytes(text.encode("utf-8"))


def read_preregistration(path: Path | str) -> dict[str, Any]:
    """Read a preregistration from a file; :func:`is_intact` checks its hash."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{path} {what}. Give a file that 'daco freeze' has written.")
    document = read_json(path)
    schema = document.get("schema")
    if not isinstance(schema, int) or document.get("what") != _WHAT:
        raise DataError(f"{path} is not a preregistration. 'daco freeze' writes one.")
    if schema > SCHEMA:
        raise DataError(f"{path} was written by a newer daco (schema {schema}). Update daco.")
    return document


def is_intact(document: Mapping[str, Any]) -> bool:
    """Check that the content of a preregistration has the hash that it states."""
    return document.get("sha256") == document_hash(document)


def derive_choice(document: Mapping[str, Any], grid: Table) -> Choice:
    """What the rule of a document picks from a grid, with its own resamples and label-free veto."""
    resampled = document["resampled"]
    viable = {row["config"]: row.get("viable") for row in document["grid"]}
    table = {name: grid[name] for name in ("config", *COLUMNS) if name in grid}
    table["viable"] = [viable.get(str(name)) for name in table["config"]]
    return grid_choice(
        table, document["veto"], None if resampled is None else np.array(resampled, float)
    )


def grid_rows(grid: pd.DataFrame) -> list[dict[str, Any]]:
    """The part of a grid that the choice depends on, for JSON."""
    return plain_rows(grid[[name for name in ("config", *COLUMNS, "viable") if name in grid]])


def _evaluation_known(run: StudyTables) -> bool:
    """Whether the run knows an evaluation score, or labels that would give one."""
    grid, per_machine = run.grid, run.per_machine
    if "eval_omega" in grid and bool(grid["eval_omega"].notna().any()):
        return True
    if "split" in per_machine and len(metrics_of(per_machine, "eval", [grid["config"].iloc[0]])):
        return True
    return any(
        machine.split == "eval" and bool((machine.labels >= 0).any())
        for machine in run.machine_scores()
    )


def _artifact_paths(folder: Path) -> list[Path]:
    """The files that the choice depends on: no pages, pictures and costs."""
    names = [*TABLES.values(), *DOCUMENTS.values()]
    named = [folder / name for name in names if name != TABLES["cost"]]
    return [*(path for path in named if path.is_file()), *sorted((folder / MACHINES).glob("*.npz"))]


def _relative(folder: Path, beside: Path) -> str:
    """Relative, so that run and document can be moved together."""
    try:
        return Path(os.path.relpath(folder.resolve(), beside.resolve())).as_posix()
    except ValueError:  # another drive of Windows
        return folder.resolve().as_posix()


def _created(date: str | None) -> str:
    moment = datetime.now(UTC)
    if date is not None:
        try:
            moment = datetime.fromisoformat(date)
        except ValueError:
            raise InputError(
                f"{date!r} is not a date such as 2026-06-01 or 2026-06-01T12:00."
            ) from None
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    elif epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        if not epoch.isdecimal():
            raise InputError(f"SOURCE_DATE_EPOCH must be seconds since 1970. Got {epoch!r}.")
        moment = datetime.fromtimestamp(int(epoch), UTC)
    return moment.astimezone(UTC).isoformat(timespec="seconds")
