"""``daco calibrate-scores``: scores of other systems, made comparable between domains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from daco.commands import options as shared
from daco.commands.console import Output, new_table
from daco.commands.options import argument, flag, option
from daco.errors import InputError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

    from daco.data.table import EmbeddingTable
    from daco.evaluation.score_tables import ScoreTable
    from daco.evaluation.scorefiles import Key

_OFFICIAL = {"source", "target"}


def calibrate_scores(
    tables: Annotated[
        list[Path],
        argument(
            "Read the scores of each system: a table (.csv, .parquet) or a folder of challenge "
            "files."
        ),
    ],
    embeddings: Annotated[
        Path | None,
        option("Find the domains of test clips with this embedding table of all clips."),
    ] = None,
    true_domains: Annotated[
        bool, flag("--true-domains", "Use the true domains of the test clips. New clips have none.")
    ] = False,
    strength: Annotated[
        float, option("Give all domains together the weight of this many clips of one.", min=0)
    ] = 0,
    out: Annotated[Path | None, option("Write scores and decisions to this folder.")] = None,
    false_alarm_rate: Annotated[
        float, option("Decide at this false-alarm rate.")
    ] = shared.FALSE_ALARM_RATE,
) -> None:
    """Make the scores of any system comparable between domains.

    Each system gives its scores of test clips and of normals that it did not train on. A table
    has the columns path, machine, domain, split (train or test) and score. In a folder the scores
    of normals are in files that end in _train.csv. The domain weights of test clips come from
    --embeddings or from columns weight_<domain>. If labels are known, daco shows the official
    scores before and after; daco evaluate OUT --truth takes them from the organisers.
    """
    from daco.data.table import EmbeddingTable
    from daco.detector.decision import require_rate
    from daco.evaluation.score_tables import read_score_table

    console, errors = Output(), Output(stderr=True)
    require_rate(false_alarm_rate)
    systems = dict(zip(_labels(tables), map(read_score_table, tables), strict=True))
    errors.notes(note for table in systems.values() for note in table.notes)
    vectors = None if embeddings is None else EmbeddingTable.read(embeddings)
    if true_domains:
        errors.notes(["The true domains of the test clips were used. New clips have none."])
    files = 0
    scores: dict[str, dict[Key, pd.DataFrame]] = {}
    for label, table in systems.items():
        calibrated = {
            key: _calibrate(table, key, vectors, true_domains, strength) for key in table.machines
        }
        scores[label] = calibrated
        if out is not None:
            folder = out / label if len(systems) > 1 else out
            for key, clips in calibrated.items():
                files += _write(folder, key, clips, false_alarm_rate)
    _show(console, scores)
    if out is not None:
        console.write(f"Written: {quantity(files, 'file')} in {out}", wrap=False)


def _labels(paths: Sequence[Path]) -> list[str]:
    """Names of systems: as many last parts of their paths as tell them apart."""
    whole = [path.absolute().with_suffix("").parts for path in paths]
    for depth in range(1, max(map(len, whole)) + 1):
        names = [re.sub(r"[^A-Za-z0-9_.]", "_", "_".join(parts[-depth:])) for parts in whole]
        if len(set(names)) == len(names):
            return names
    raise InputError("A score table was given twice. Give each system once.")


def _calibrate(
    table: ScoreTable, key: Key, vectors: EmbeddingTable | None, true_domains: bool, strength: float
) -> pd.DataFrame:
    """The test clips of a machine with columns ``calibrated`` and ``p_value``."""
    from daco.detector.calibrator import DomainCalibrator

    normals, test = table.machine(*key)
    own = None
    if vectors is not None:
        own, clips = _vectors_of(vectors, key, normals, test)
        where: dict[str, Any] = {"embeddings": clips}
    else:
        where = {"weights": _weights_of(key, normals, test, true_domains)}
    calibrator = DomainCalibrator(m=strength)
    calibrator.fit(normals["score"].to_numpy(), [*normals["domain"]], embeddings=own)
    scores = test["score"].to_numpy()
    calibrated = calibrator.transform(scores, **where)
    return test.assign(calibrated=calibrated, p_value=calibrator.p_values(scores, **where))


def _vectors_of(
    vectors: EmbeddingTable, key: Key, normals: pd.DataFrame, test: pd.DataFrame
) -> tuple[Any, Any]:
    """Embeddings of the normals and of the test clips of a machine."""
    from daco.evaluation.score_tables import match_names

    machine = vectors.select(machine=key[0], section=key[1])
    paths, where = machine.columns["path"], f"The embedding table ({key[0]}, section {key[1]})"
    rows = (match_names(clips["path"], paths, where) for clips in (normals, test))
    own, others = (machine.matrix()[each] for each in rows)
    return own, others


def _weights_of(key: Key, normals: pd.DataFrame, test: pd.DataFrame, true_domains: bool) -> Any:
    """Domain weights of the test clips, (n, G), from their columns; None for one domain."""
    import numpy as np

    from daco.evaluation.score_tables import WEIGHT
    from daco.validation import match_domains

    domains = tuple(sorted(set(normals["domain"])))
    columns = [f"{WEIGHT}{domain}" for domain in domains]
    if true_domains:
        codes = match_domains([*test["domain"]], domains, len(test), f"true domains of {key[0]}")
        return np.eye(len(domains))[codes]
    if set(columns) <= set(test):
        return test[columns].to_numpy()
    if len(domains) == 1:
        return None
    raise InputError(
        f"The domains of the test clips of {key[0]} are not known ({name_list(domains)}). "
        f"Give --embeddings, or columns {name_list(columns)} in the table."
    )


def _show(console: Output, systems: dict[str, dict[Key, pd.DataFrame]]) -> None:
    """Print the official scores before and after, where labels are known."""
    import numpy as np

    from daco.evaluation.intervals import too_few_machines
    from daco.evaluation.metrics import grid_metrics, harmonic_mean

    rows: dict[str, list[Any]] = {}
    for label, machines in systems.items():
        for clips in machines.values():
            if set(clips["domain"]) != _OFFICIAL or clips["label"].isna().any():
                return
            truth = clips["label"].to_numpy(int), clips["domain"].to_numpy(str)
            metrics = grid_metrics(clips[["score", "calibrated"]].to_numpy(), *truth)
            rows.setdefault(label, []).append(100 * metrics.values)
    table = new_table(["official score (%)"], ["as given", "calibrated"])
    for label, values in rows.items():
        before, after = harmonic_mean(np.concatenate(values, axis=1), axis=1)
        table.add_row(Text(label), f"{before:.2f}", f"{after:.2f}")
    console.print(table)
    if note := too_few_machines(min(map(len, rows.values()))):
        console.write(note)


def _write(folder: Path, key: Key, clips: pd.DataFrame, rate: float) -> int:
    """Write scores and decisions of one machine, and return the number of files."""
    from daco.evaluation.scorefiles import write_decisions, write_scores

    names = [*clips["path"]]
    write_scores(folder, *key, names, clips["calibrated"].to_numpy())
    write_decisions(folder, *key, names, (clips["p_value"] <= rate).to_numpy())
    return 2
