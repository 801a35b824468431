"""Preregistration: what a run chose, frozen before its evaluation is known, and verified later.

The hash in the document shows whether it was edited. Its date is only that of a computer's clock: a
public commit of the document, or somebody else's time stamp on its hash, proves when it existed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from daco.data.clips import Clip
from daco.data.dcase_truth import inject_truth
from daco.errors import DataError, InputError
from daco.evaluation.official import score_difference, score_estimate
from daco.experiments.result import StudyResult
from daco.experiments.run_folder import CLIPS, CRITERIA
from daco.files.atomic import atomic_write
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG
from daco.text import name_list, quantity, suggestion
from daco.version import __version__

KNOWN = "evaluation_labels_were_known"
OK, CHANGED, NOTE = "ok", "changed", "note"

_WHAT, _SCHEMA = "daco preregistration", 3
_SETTINGS = ("rule", "seed", "splits", "readout", "false_alarm_rate")
_TOLERANCES = {
    "dev_score": 0.01,
    "criterion_dev": 1e-4,
    "criterion_eval": 1e-4,
    "criterion_paper": 1e-4,
}
"""The last printed digit: processors that round differently swap clips of almost equal score."""


@dataclass(frozen=True)
class Check:
    """One compared item; ``status`` is ``ok``, ``changed``, or ``note`` for what is only said."""

    what: str
    status: str
    detail: str


@dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`.

    Attributes
    ----------
    document : dict
        What was frozen; empty if it was edited.
    checks : list of Check
    scores : list of dict
        The frozen pick beside the dev pick and the defaults; empty without evaluation labels.
        ``pick, configuration, score`` in percent, and ``difference``, the frozen pick minus the
        other one in points, with intervals over machines.
    """

    document: dict[str, Any]
    checks: list[Check]
    scores: list[dict[str, Any]]

    @property
    def ok(self) -> bool:
        """Whether nothing changed."""
        return all(check.status != CHANGED for check in self.checks)


def freeze(result: StudyResult, out: Path | str, config: str | None = None) -> dict[str, Any]:
    """Write the preregistration of a run, which states the time now in UTC.

    Parameters
    ----------
    result : StudyResult
        A run in a folder. One that was changed after it was finished raises a `DataError`.
    out : path
        The JSON file; an existing one is never overwritten.
    config : str, optional
        Freeze this configuration instead of the one that the run's rule picks.

    Returns
    -------
    dict
        The document: the frozen configuration, the rule and the numbers it follows from, settings,
        and the SHA-256 of inputs, of the tables and of the document itself.
    """
    out, folder, run = Path(out), result.folder, result.run
    if folder is None:
        raise InputError("Only a run in a folder can be frozen. Run the study with out=FOLDER.")
    if out.exists():
        raise DataError(f"{out} already exists. daco never overwrites a preregistration: move it.")
    choice = result.choose(run["settings"]["rule"])
    tables = {name: sha256_of_file(folder / name) for name in (CLIPS, CRITERIA)}
    if tables != run["tables"] or choice.config != run["choice"]["config"]:
        raise DataError(
            f"{folder} changed after the run was finished, so its choice does not follow from its "
            "tables. Run the study again before freezing it."
        )
    frozen = {"configuration": config, "rule": None, "reason": "named, not chosen by a rule"}
    if config is None:
        rule, reason = choice.rule.value, choice.reason
        frozen = {"configuration": choice.config, "rule": rule, "reason": reason}
    elif config not in (known := [*result.candidates, *result.compared]):
        raise InputError(
            f"The run {folder} has no scores of {config!r}.{suggestion(config, known)}"
        )
    grid = result.grid()
    rows = grid[[name for name in ("configuration", *_TOLERANCES, "viable") if name in grid]]
    document = {
        "schema": _SCHEMA,
        "what": _WHAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "daco": __version__,
        KNOWN: bool((result.test_clips.query("set == 'eval'")["label"] >= 0).any()),
        "frozen": frozen,
        "picks": {
            "frozen pick": frozen["configuration"],
            "dev pick": result.choose("dev").config if "dev_score" in grid else None,
            "fixed default": PAPER_CONFIG,
            "blend": DEFAULT_CONFIG,
        },
        "settings": run["settings"],
        "inputs": run["inputs"],
        "vectors": _vectors(run),
        "grid": json.loads(rows.to_json(orient="records", double_precision=15)),
        # Relative, so that run and document can be moved together.
        "run": os.path.relpath(folder.resolve(), out.parent.resolve()),
        "tables": tables,
    }
    document["sha256"] = document_hash(document)
    with atomic_write(out) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return document


def document_hash(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document's content without its own hash; spacing and order do not matter."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256_of_bytes(text.encode("utf-8"))


def read_preregistration(path: Path | str) -> dict[str, Any]:
    """Read a document that ``daco freeze`` has written; its hash is not checked here."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if (document["what"], document["schema"]) == (_WHAT, _SCHEMA):
            return dict(document)
    except OSError as error:
        raise DataError(f"{path} is not a file that can be read: {error.strerror}.") from None
    except (ValueError, TypeError, LookupError):
        pass
    raise DataError(f"{path} is not a preregistration that this daco wrote (schema {_SCHEMA}).")


def verify(
    document: Path | str, *, run: Path | str | None = None, truth: Path | str | None = None
) -> Verification:
    """Check a preregistration and a run, and score the frozen pick once labels are known.

    Parameters
    ----------
    document : path
        The file of ``daco freeze``. If it was edited, nothing else in it is checked.
    run : path, optional
        A later run of the same study, or where the frozen run is now. By default the frozen run is
        looked for where it was.
    truth : path, optional
        Evaluation labels for the clips of the run: the official evaluator or its CSV files.

    Returns
    -------
    Verification
    """
    content = read_preregistration(document)
    if content.get("sha256") != document_hash(content):
        edited = Check("document", CHANGED, "edited: its content does not fit its SHA-256")
        return Verification({}, [edited], [])
    checks = [Check("document", OK, "as it was frozen")]
    if run is None:
        result = _frozen_run(content, Path(document).parent, checks)
    else:
        result = StudyResult.read(run)
    if result is None and truth is not None:
        raise InputError("Labels need the scores of a run. Say where it is with --run.")
    scores: list[dict[str, Any]] = []
    if result is not None:
        checks += _check_run(content, result)
        if truth is not None:
            result = _with_truth(result, truth, checks)
        picks = content["picks"]
        metrics = result.metrics([each for each in set(picks.values()) if each in result.clips])
        scores = score_picks(picks, metrics[metrics["set"] == "eval"], result.years.get("eval"))
    return Verification(content, checks, scores)


def score_picks(
    picks: Mapping[str, str | None], metrics: pd.DataFrame, year: int | None = None
) -> list[dict[str, Any]]:
    """The rows of `Verification.scores`, of configurations by name, the frozen one first.

    There are none if the first pick has no score in `metrics`, which are of one set.
    """
    tables = {pick: metrics[metrics["configuration"] == name] for pick, name in picks.items()}
    scores = {pick: score_estimate(own, year) for pick, own in tables.items()}
    first, *_ = picks
    return [
        {
            "pick": pick,
            "configuration": picks[pick],
            "score": scores[pick],
            "difference": None if pick == first else score_difference(tables[first], own, year),
        }
        for pick, own in tables.items()
        if scores[first].n and scores[pick].n
    ]


def _frozen_run(
    content: Mapping[str, Any], beside: Path, checks: list[Check]
) -> StudyResult | None:
    """The frozen run if it is where it was and as it was; `checks` gets what was found."""
    folder = beside / content["run"]
    if not folder.is_dir():
        checks.append(Check("frozen run", NOTE, "not here; say where it is with --run"))
        return None
    for name, digest in content["tables"].items():
        same = (folder / name).is_file() and sha256_of_file(folder / name) == digest
        detail = "as it was frozen" if same else "missing, or not the file that was frozen"
        checks.append(Check(name, OK if same else CHANGED, detail))
    return StudyResult.read(folder) if all(check.status == OK for check in checks) else None


def _check_run(content: Mapping[str, Any], result: StudyResult) -> Iterator[Check]:
    """Whether grid, choice, inputs, settings and version of a run are the frozen ones."""
    yield _check_grid(content["grid"], result.grid())
    rule, wanted = content["frozen"]["rule"], content["frozen"]["configuration"]
    if rule is None:
        yield Check("choice", NOTE, f"{wanted} was named, not chosen by a rule")
    elif (pick := result.choose(rule).config) == wanted:
        yield Check("choice", OK, f"the rule {rule!r} picks {wanted}")
    else:
        yield Check("choice", CHANGED, f"the rule {rule!r} picks {pick}, frozen: {wanted}")
    yield from _check_inputs(content, result.run)
    before, now = content["settings"], result.run["settings"]
    other = name_list(name for name in _SETTINGS if now.get(name) != before.get(name))
    yield Check("settings", NOTE if other else OK, f"other {other}" if other else "as frozen")
    # Another version is only noted: whether it changes a number is checked.
    others = sorted({__version__, str(result.run["daco"])} - {content["daco"]})
    used = f"{name_list(others)}, frozen with {content['daco']}" if others else content["daco"]
    yield Check("daco", NOTE if others else OK, used)


def _check_grid(rows: Sequence[Mapping[str, Any]], grid: pd.DataFrame) -> Check:
    """Whether configurations, dev scores and criteria are as they were."""
    before, now = pd.DataFrame(rows).set_index("configuration"), grid.set_index("configuration")
    if list(before.index) != list(now.index):
        others = name_list(before.index.symmetric_difference(now.index))
        what = f"not in both: {others}" if others else "in another order, which breaks ties"
        return Check("grid", CHANGED, what)
    columns = [name for name in _TOLERANCES if name in before]
    # A number that is known on one side only is infinitely far away.
    known = [each.reindex(columns=columns).astype(float).fillna(np.inf) for each in (before, now)]
    furthest = (known[0] - known[1]).abs().max()
    wrong = furthest[furthest > pd.Series(_TOLERANCES)[columns]]
    if len(wrong):
        listed = name_list(f"{name} by up to {value:.2g}" for name, value in wrong.items())
        return Check("grid", CHANGED, f"other numbers: {listed}")
    return Check("grid", OK, f"{quantity(rows, 'configuration')}, scores and criteria as frozen")


def _vectors(run: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Hashes of the vectors and names of each machine, by set; labels are no part of them."""
    hashes: dict[str, dict[str, str]] = {}
    for each in run["machines"]:
        name = f"{each['machine']} {each['section']}"
        hashes.setdefault(each["set"], {})[name] = each["vectors"]
    return hashes


def _check_inputs(content: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[Check]:
    """Whether the run has the vectors, faults and systems of the frozen one, and maybe labels."""
    vectors = _vectors(run)
    for which, before in content["vectors"].items():
        same = vectors.get(which) == before
        detail = f"the {'same' if same else 'run has other'} clips and vectors"
        yield Check(f"{which} input", OK if same else CHANGED, detail)
    hashes = {each["name"]: each["sha256"] for each in run["inputs"]}
    for each in content["inputs"]:
        is_file = each["role"] in ("faults", "system")
        if is_file and hashes.get(each["name"], "missing") != each["sha256"]:
            yield Check(each["name"], CHANGED, "the run has another file, or none")


def _with_truth(result: StudyResult, truth: Path | str, checks: list[Check]) -> StudyResult:
    """The run with labels and domains of its evaluation clips; what is odd is noted."""
    rows = result.test_clips.query("set == 'eval' and label < 0")
    anonymous = [
        Clip(clip, machine, result.years["eval"], section, split="test")
        for clip, machine, section in rows[["clip", "machine", "section"]].to_numpy()
    ]
    oddities: list[str] = []
    labelled = inject_truth(anonymous, truth, oddities=oddities)
    checks += [Check("truth", NOTE, each) for each in oddities]
    clips = result.clips.astype({"label": int})
    clips.loc[rows.index, "label"] = [each.label for each in labelled]
    clips.loc[rows.index, "domain"] = [each.domain for each in labelled]
    return replace(result, clips=clips)
