"""Verification of a preregistration: what changed, and what the frozen pick scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daco.errors import DacoError, DataError
from daco.experiments.analysis import known_column, official_scores
from daco.experiments.differences import compare_scores
from daco.experiments.prereg import (
    COLUMNS,
    KNOWN,
    PARTS,
    SETTINGS,
    derive_choice,
    grid_rows,
    is_intact,
    read_preregistration,
)
from daco.experiments.study_tables import REQUIRED_TABLES, StudyTables, read_csv_table
from daco.files.hashing import sha256_of_file
from daco.method.selection import column
from daco.text import name_list, quantity
from daco.version import __version__

OK, CHANGED, UNKNOWN = "ok", "changed", "unknown"
_SAME = 1e-6  # percent, or of a criterion: other machines add in another order


@dataclass(frozen=True)
class Check:
    """One checked item; ``status`` is ``ok``, ``changed`` or ``unknown``."""

    what: str
    status: str
    detail: str


@dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`.

    Attributes
    ----------
    config, created, sha256 : str
        The frozen configuration, the time, and the hash of the document.
    evaluation_known : bool
        Whether evaluation scores were known when it was frozen.
    checks : tuple of Check
    scores : tuple of dict
        ``pick``, ``config`` and ``eval_omega`` (percent) on the later run.
    deltas : tuple of dict
        The frozen configuration minus the others, with intervals over machines.
    """

    config: str
    created: str
    evaluation_known: bool
    sha256: str
    checks: tuple[Check, ...]
    scores: tuple[Mapping[str, Any], ...] = ()
    deltas: tuple[Mapping[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing changed."""
        return all(check.status != CHANGED for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"ok": self.ok, **asdict(self)}


def verify(
    document: Path | str, *, frozen: Path | str | None = None, run: Path | str | None = None
) -> Verification:
    """Check a preregistration, the run it was frozen from, and a later run.

    Parameters
    ----------
    document : path
        ``prereg.json``. If it was edited, nothing else in it is checked.
    frozen : path, optional
        The folder of the frozen run; by default where it was, if it is still there.
    run : path, optional
        A later run, with evaluation labels, to score the frozen configuration on.

    Returns
    -------
    Verification

    Raises
    ------
    DataError
        There is no such document or run.

    Examples
    --------
    >>> import json, tempfile
    >>> content = {"schema": 1, "what": "daco preregistration", "frozen": {"config": "raw-k1"}}
    >>> path = Path(tempfile.mkdtemp()) / "prereg.json"
    >>> _ = path.write_text(json.dumps({**content, "sha256": "of another document"}))
    >>> verify(path).ok
    False
    """
    path = Path(document)
    content = read_preregistration(path)
    facts = str(content.get("created")), bool(content.get(KNOWN)), str(content.get("sha256"))
    if not is_intact(content):
        edited = Check("document", CHANGED, "edited: its contents do not fit its SHA-256")
        return Verification("", *facts, (edited,))
    if absent := [name for name in PARTS if name not in content]:
        raise DataError(f"{path} has no {', '.join(absent)}: 'daco freeze' did not write it.")
    names = content["grid"][0] if content["grid"] else ()
    grid = {name: [row[name] for row in content["grid"]] for name in names}
    checks = [
        Check("document", OK, "as it was frozen"),
        _check_choice(content, grid, "choice"),
        *_check_frozen_run(content, path, frozen),
    ]
    if run is None:
        return Verification(content["frozen"]["config"], *facts, tuple(checks))
    later = StudyTables.read(run)
    column(later.per_machine, "split")
    checks += _check_later_run(content, later)
    return Verification(
        content["frozen"]["config"], *facts, tuple(checks), *_score_picks(content, later)
    )


def _check_choice(content: Mapping[str, Any], grid: Any, what: str) -> Check:
    """Whether the rule picks the frozen configuration from a grid."""
    wanted = content["frozen"]["config"]
    try:
        choice = derive_choice(content, grid)
    except DacoError as error:
        return Check(what, CHANGED, f"cannot be derived again: {error}")
    rule = content["frozen"]["rule"]
    if choice.config == wanted:
        return Check(what, OK, f"{rule} picks {wanted}")
    return Check(what, CHANGED, f"{rule} picks {choice.config}, frozen: {wanted}")


def _check_frozen_run(
    content: Mapping[str, Any], document: Path, given: Path | str | None
) -> Iterator[Check]:
    noted = content["run"].get("folder")
    folder = Path(given) if given is not None else noted and document.parent / noted
    if not folder or not folder.is_dir():
        if given is not None:
            raise DataError(f"{given} is not a folder. Give the run that was frozen.")
        yield Check("artifacts", UNKNOWN, "the frozen run is not here; give it with --frozen")
        return
    same = 0
    for name, frozen in content["artifacts"].items():
        path = folder / name
        if not path.is_file():
            yield Check(name, CHANGED, "missing")
        elif path.stat().st_size != frozen["bytes"] or sha256_of_file(path) != frozen["sha256"]:
            yield Check(name, CHANGED, "not the file that was frozen")
        else:
            same += 1
    of = len(content["artifacts"])
    yield Check("artifacts", OK if same == of else CHANGED, f"{same} of {of} files as frozen")
    grid = folder / REQUIRED_TABLES["grid"]
    if grid.is_file():
        try:
            yield _check_choice(content, read_csv_table(grid), "choice from grid.csv")
        except DataError as error:
            yield Check("choice from grid.csv", CHANGED, str(error))


def _check_later_run(content: Mapping[str, Any], later: StudyTables) -> Iterator[Check]:
    yield _check_grid(content, later)
    yield _check_numbers(content, later)
    yield _check_choice(content, later.grid, "choice on the run")
    now = later.provenance
    before = _facts(content["settings"], content["run"], content["inputs"])
    after = _facts(now, now, now.get("inputs", []))
    for name, value in before.items():
        yield _compare(name, value, after.get(name))
    roles = {each.get("role") for each in content["inputs"]}
    added = [str(each["role"]) for each in now.get("inputs", []) if each["role"] not in roles]
    if added and content["inputs"]:
        yield Check("new inputs", OK, f"{name_list(added)}, not there when frozen")
    if __version__ != content.get("daco_version"):
        yield Check(
            "this daco", UNKNOWN, f"{__version__}; frozen with {content.get('daco_version')}"
        )


def _facts(
    settings: Mapping[str, Any], run: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a run rests on, by the name of its check."""
    facts = {name: settings.get(name) for name in SETTINGS}
    facts["daco version"] = run.get("daco_version")
    for each in inputs:
        metadata = each.get("metadata") or {}
        for name in ("backbone", "weights_sha256"):
            facts[f"{each.get('role')} {name}"] = metadata.get(name)
        facts[f"{each.get('role')} input"] = each.get("sha256")
    return facts


def _check_grid(content: Mapping[str, Any], later: StudyTables) -> Check:
    before = [row["config"] for row in content["grid"]]
    now = later.grid["config"].astype(str).tolist()
    if before == now:
        return Check("grid", OK, quantity(now, "configuration"))
    gone = [name for name in before if name not in now]
    new = [name for name in now if name not in before]
    changes = [
        f"{word} {name_list(names, 3)}"
        for word, names in (("without", gone), ("with", new))
        if names
    ]
    return Check("grid", CHANGED, " and ".join(changes) or "in another order, which breaks ties")


def _check_numbers(content: Mapping[str, Any], later: StudyTables) -> Check:
    """Dev scores and criteria of the configurations that both have."""
    before, now = (
        {row["config"]: np.array([row.get(name) for name in COLUMNS], float) for row in rows}
        for rows in (content["grid"], grid_rows(later.grid))
    )
    shared = before.keys() & now.keys()
    pairs = np.array([[before[config], now[config]] for config in shared]).reshape(
        -1, 2, len(COLUMNS)
    )
    missing = np.isnan(pairs)
    if (missing[:, 0] != missing[:, 1]).any():
        return Check("dev scores, criteria", CHANGED, "known on one side only")
    furthest = np.abs(np.nan_to_num(pairs[:, 0] - pairs[:, 1])).max(initial=0.0)
    if furthest <= _SAME:
        return Check("dev scores, criteria", OK, "as frozen")
    return Check("dev scores, criteria", CHANGED, f"differ by up to {furthest:.2g}")


def _compare(what: str, before: Any, now: Any) -> Check:
    if before in (None, "") or now in (None, ""):
        return Check(what, UNKNOWN, "not recorded")
    if before == now:
        return Check(what, OK, _short(now))
    return Check(what, CHANGED, f"{_short(now)}, frozen: {_short(before)}")


def _short(value: Any) -> str:
    text = ", ".join(map(str, value.values())) if isinstance(value, Mapping) else str(value)
    return text if len(text) < 40 else f"{text[:12]}..."


def _score_picks(
    content: Mapping[str, Any], later: StudyTables
) -> tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]:
    """Official scores of the frozen pick, the dev pick and the default, and differences."""
    names = later.grid["config"].astype(str).tolist()
    picks = {
        "frozen pick": content["frozen"]["config"],
        "dev pick": content["dev_pick"],
        "fixed default": content["default"],
    }
    picks = {pick: config for pick, config in picks.items() if config in names}
    omega = known_column(later.grid, "eval_omega")
    if "eval_omega" not in later.grid:
        omega = official_scores(later.per_machine, "eval", names)
    scores = tuple(
        {"pick": pick, "config": config, "eval_omega": float(omega[names.index(config)])}
        for pick, config in picks.items()
        if np.isfinite(omega[names.index(config)])
    )
    frozen = picks.pop("frozen pick", None)
    deltas = []
    for pick, config in picks.items() if frozen else ():
        difference = compare_scores(later.per_machine, frozen, config)
        if difference is not None:
            deltas.append({"against": pick, **difference})
    return scores, tuple(deltas)
