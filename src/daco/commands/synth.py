"""``daco synth``: a synthetic factory of recordings, to try everything else on."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

from daco.commands.console import Output, progress_bars
from daco.commands.options import Processes, argument, option
from daco.text import quantity


class Split(StrEnum):
    """Which of a year's two data sets to write."""

    dev = "dev"
    eval = "eval"
    both = "both"


def synth(
    directory: Annotated[Path, argument("Where to write; created if missing.")],
    machine: Annotated[
        list[str] | None, option("A kind of machine; repeat for more. Default: all.")
    ] = None,
    year: Annotated[int, option("Year of the layout, 2023 to 2026; 2026 is stereo.")] = 2025,
    split: Annotated[
        Split, option("dev has labelled test names, eval anonymous ones; both: halves.")
    ] = Split.dev,
    source: Annotated[int, option("Source training clips per machine.")] = 990,
    target: Annotated[int, option("Target training clips per machine.")] = 10,
    test: Annotated[int, option("Test clips per machine, a multiple of 4.")] = 200,
    supplemental: Annotated[int, option("Clips of the machine or the noise alone; only 2025.")] = 0,
    seconds: Annotated[float, option("Length of a clip.")] = 10.0,
    sample_rate: Annotated[int, option("Sample rate in Hz.")] = 16000,
    severity: Annotated[float, option("Strength of faults: 0 none, 1 hard to hear, 3 easy.")] = 1.0,
    seed: Annotated[int, option("Seed; another one gives other machines.")] = 0,
    workers: Processes = None,
) -> None:
    """Write recordings of synthetic machines, with faults and a domain shift, in DCASE layout.

    The same options give the same bytes. The defaults have the size of the real data sets (3 GB,
    minutes); for a quick look: --source 200 --test 80 --seconds 5.
    """
    from daco.synthetic.factory import synth_factory

    with progress_bars(Output(stderr=True)) as report:
        names = synth_factory(
            directory,
            machines=machine,
            year=year,
            split=split.value,
            n_source=source,
            n_target=target,
            n_test=test,
            n_supplemental=supplemental,
            seconds=seconds,
            sample_rate=sample_rate,
            severity=severity,
            seed=seed,
            workers=workers,
            progress=partial(report, "recording"),
        )
    clips = quantity(len(names) * (source + target + test + supplemental), "clip")
    machines = f"{quantity(names, 'machine')} ({', '.join(names)})"
    Output().write(f"{clips} of {seconds:g} s from {machines} in {directory}.")
