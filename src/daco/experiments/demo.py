"""The demo: a synthetic factory from its sounds to a report, with nothing but the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daco.backbones import load
from daco.data.sources import read_clips
from daco.embedding.cost import write_cost
from daco.embedding.embed import embed_clips
from daco.experiments.machine import Progress
from daco.experiments.result import StudyResult
from daco.experiments.run import study
from daco.synthetic.factory import synth_factory

MACHINES = ("fan", "bearing", "gearbox", "pump", "valve", "spindle")
"""The first half are development machines, the others evaluation machines."""

SIZE: dict[str, Any] = {"n_source": 390, "n_target": 10, "n_test": 200, "seconds": 4.0}
"""Clips per machine, and their length."""


def run_demo(
    folder: Path,
    *,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
    **size: Any,
) -> StudyResult:
    """Record a factory, embed it with ``logmel``, study the paper's grid, write the report.

    Evaluation clips have anonymous names; their labels come from the factory's truth tables,
    as those of a challenge do. `size` has other numbers or lengths of clips.
    """
    report: Progress = progress or (lambda stage, done, total: None)
    recordings = folder / "recordings"
    if not recordings.is_dir():
        synth_factory(
            recordings,
            machines=MACHINES,
            split="both",
            seed=seed,
            workers=workers,
            progress=lambda done, total: report("recording", done, total),
            **{**SIZE, **size},
        )
    result = study(
        _embedded(recordings, folder, "dev", report),
        _embedded(recordings, folder, "eval", report),
        truth=recordings / "ground_truth",
        out=folder / "study",
        workers=workers,
        progress=report,
    )
    report("drawing", 0, 1)
    result.report()
    return result


def _embedded(recordings: Path, folder: Path, role: str, report: Progress) -> Path:
    net = load("logmel")
    table = folder / f"{role}.parquet"
    made = embed_clips(
        read_clips(recordings / f"{role}_data"),
        net,
        table,
        progress=lambda done, total: report(f"embedding {role}", done, total),
    )
    write_cost(made, net)
    return table
