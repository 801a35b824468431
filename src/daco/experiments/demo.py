"""The demo: a synthetic factory from its sounds to a report, with nothing but the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from daco.backbones import load
from daco.data.sources import read_clips
from daco.embedding.cost import write_cost
from daco.embedding.embed import embed_clips
from daco.experiments.result import StudyResult
from daco.experiments.run import study
from daco.synthetic.factory import synth_factory

MACHINES = ("fan", "bearing", "gearbox", "pump", "valve", "spindle")
"""The first half are development machines, the others evaluation machines."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done, and how much there is."""


@dataclass(frozen=True)
class Size:
    """Of the factory: clips per machine, and their length in seconds."""

    n_source: int = 390
    n_target: int = 10
    n_test: int = 200
    seconds: float = 4.0


def run_demo(
    folder: Path,
    *,
    seed: int = 0,
    size: Size | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Record a factory, embed it with ``logmel``, study the paper's grid, write the report.

    Evaluation clips have anonymous names; their labels come from the factory's truth tables,
    as those of a challenge do.
    """
    size = size or Size()
    report: Progress = progress or (lambda stage, done, total: None)
    recordings = folder / "recordings"
    if not recordings.is_dir():
        synth_factory(
            recordings,
            machines=MACHINES,
            split="both",
            n_source=size.n_source,
            n_target=size.n_target,
            n_test=size.n_test,
            seconds=size.seconds,
            seed=seed,
            workers=workers,
            progress=lambda done, total: report("recording", done, total),
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
