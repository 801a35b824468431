"""Scores of another system, made comparable between domains; the system is a table of clips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from daco.detector.calibrator import DomainCalibrator
from daco.detector.decision import is_anomalous
from daco.errors import DacoError, InputError
from daco.evaluation.scorefiles import machine_title
from daco.evaluation.system_scores import WEIGHT, match_names
from daco.experiments.submission import write_challenge_files
from daco.files.atomic import atomic_write
from daco.text import name_list
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.data.table import EmbeddingTable


def calibrate_scores(
    clips: pd.DataFrame, *, embeddings: EmbeddingTable | None = None, m: float = 0.0
) -> pd.DataFrame:
    """Calibrate the scores of test clips by those of normals, each machine by its own.

    Parameters
    ----------
    clips : DataFrame
        As :func:`daco.evaluation.system_scores.read_system` returns it: ``train`` rows are normals
        on which the system was not trained.
    embeddings : EmbeddingTable, optional
        Vectors of all clips, for the domain weights of test clips. Otherwise these are the columns
        ``weight_<domain>``; one may be missing, as weights sum to 1.
    m : float
        Prior strength: the weight of all domains together, in clips of one.

    Returns
    -------
    DataFrame
        The rows of the test clips, with ``given`` (the score before), ``score`` (after) and
        ``p_value``.

    Raises
    ------
    InputError
        Normals, test clips or weights are missing; one line for each machine.

    Examples
    --------
    >>> clips = pd.DataFrame({"machine": "fan", "section": "00", "clip": list("abcd"),
    ...     "split": ["train"] * 3 + ["test"], "domain": "all", "score": [1.0, 2.0, 3.0, 2.5]})
    >>> calibrate_scores(clips)[["clip", "given", "score", "p_value"]].values.tolist()
    [['d', 2.5, 0.625, 0.5]]
    """
    keys = [name for name in ("set", "machine", "section") if name in clips]
    tables, problems = [], []
    for key, rows in clips.groupby(keys, sort=False):
        machine, section = map(str, key[-2:])
        try:
            vectors = None
            if embeddings is not None:
                vectors = embeddings.select(machine=machine, section=section)
            tables.append(_calibrate_machine(rows, vectors, m))
        except DacoError as error:
            problems.append(f"{machine_title(machine, section)}: {error}")
    if problems:
        raise InputError("\n".join(problems))
    return pd.concat(tables, ignore_index=True)


def write_calibrated(clips: pd.DataFrame, out: Path, rate: float) -> int:
    """Write the table of `calibrate_scores` with decisions; return the number of files.

    `out` is a table (``.csv`` or ``.parquet``) or a folder of challenge files; `rate` is the
    false-alarm rate.
    """
    decided = clips.assign(decision=is_anomalous(clips["p_value"], rate).astype(int))
    if out.suffix not in (".csv", ".parquet"):
        return 2 * len(write_challenge_files(out, decided))
    table = decided.rename(columns={"clip": "path"})
    if "label" in table:
        table["label"] = table["label"].astype("Int64").where(table["label"] >= 0)
    with atomic_write(out) as path:
        table.to_csv(path, index=False) if out.suffix == ".csv" else table.to_parquet(path)
    return 1


def _calibrate_machine(
    clips: pd.DataFrame, vectors: EmbeddingTable | None, m: float
) -> pd.DataFrame:
    normals, test = (clips[clips["split"] == split] for split in ("train", "test"))
    if normals.empty or test.empty:
        what = "normals that the system did not train on" if normals.empty else "test clips"
        raise InputError(f"lacks scores of {what}. Add them.")
    own, where = None, {}
    if vectors is None:
        where["weights"] = _weights_of(test, sorted(set(normals["domain"])))
    else:
        own, where["embeddings"] = _vectors_of(normals, vectors), _vectors_of(test, vectors)
    calibrator = DomainCalibrator(m=m)
    calibrator.fit(normals["score"].to_numpy(), [*normals["domain"]], embeddings=own)
    given = test["score"].to_numpy()
    p_values = calibrator.p_values(given, **where)
    return test.assign(given=given, score=calibrator.transform(given, **where), p_value=p_values)


def _weights_of(test: pd.DataFrame, domains: list[str]) -> Float64s:
    """Domain weights of the test clips, (n, G), in the order of the domains."""
    weights = test.reindex(columns=[f"{WEIGHT}{domain}" for domain in domains])
    unknown = weights.columns[weights.isna().any()]
    if len(unknown) > 1:
        raise InputError(
            "the domains of its test clips are not known. Give --embeddings, or columns "
            f"{name_list(map(str, weights))} in the table."
        )
    for name in unknown:
        weights[name] = 1 - weights.drop(columns=name).sum(axis=1)
    return weights.to_numpy()


def _vectors_of(clips: pd.DataFrame, table: EmbeddingTable) -> Any:
    return table.matrix()[match_names(clips["clip"], table.columns["path"], "the embedding table")]
