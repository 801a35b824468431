"""``daco calibrate-scores``: scores of another system, made comparable between domains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from daco.commands import options as shared
from daco.commands.console import Output
from daco.commands.options import argument, option
from daco.text import quantity

if TYPE_CHECKING:
    import pandas as pd


def calibrate_scores(
    system: Annotated[Path, argument("Read this table of scores, or folder of challenge files.")],
    embeddings: Annotated[Path | None, option("Find domains with these embeddings.")] = None,
    strength: Annotated[float, option("Pool domains as this many clips would.", min=0)] = 0,
    out: Annotated[Path | None, option("Write a table, or a folder of challenge files.")] = None,
    false_alarm_rate: Annotated[float, option("Decide at this rate.")] = shared.FALSE_ALARM_RATE,
) -> None:
    """Make the scores of any system comparable between domains.

    The system gives its scores of test clips and of normals that it did not train on. A table
    has the columns path, machine, domain, split (train or test) and score. In a folder the scores
    of normals are in files that end in _train.csv. The domain weights of test clips come from
    --embeddings or from columns weight_<domain>. If labels are known, daco shows the official
    scores before and after; daco evaluate OUT --truth takes them from the organisers.
    """
    from daco.data.table import EmbeddingTable
    from daco.detector.decision import require_rate
    from daco.evaluation.system_scores import read_system
    from daco.experiments.calibrate import calibrate_scores, write_calibrated

    console = Output()
    require_rate(false_alarm_rate)
    clips = read_system(system)
    Output(stderr=True).notes(clips.attrs.get("notes", ()))
    vectors = None if embeddings is None else EmbeddingTable.read(embeddings)
    calibrated = calibrate_scores(clips, embeddings=vectors, m=strength)
    _show(console, calibrated)
    if out is not None:
        files = write_calibrated(calibrated, out, false_alarm_rate)
        console.write(f"Written: {quantity(files, 'file')}, {out}", wrap=False)


def _show(console: Output, clips: pd.DataFrame) -> None:
    """Print the official scores before and after, where labels are known."""
    from daco.evaluation.intervals import too_few_machines
    from daco.evaluation.official import metrics_table, score_difference, score_estimate

    metrics = metrics_table(clips.drop(columns="set", errors="ignore"), ["given", "score"])
    if metrics.isna().any(axis=None):
        return
    before, after = (metrics[metrics["configuration"] == name] for name in ("given", "score"))
    difference = score_difference(after, before)
    scores = {
        "as given": score_estimate(before),
        "calibrated": score_estimate(after),
        "difference": difference,
    }
    heading, interval = "official score (%)", "with 95 % interval"
    rows = [{heading: name, interval: score} for name, score in scores.items()]
    console.table(rows, [heading, interval])
    caution = too_few_machines(difference.n) or ""
    console.write(f"Intervals are over {quantity(difference.n, 'machine')}. {caution}".rstrip())
