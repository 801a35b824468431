"""``daco synth``: a synthetic factory of recordings, to try everything else on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from daco.commands.console import Output, progress_bars
from daco.commands.options import Processes, argument, option
from daco.text import quantity


def synth(
    directory: Annotated[Path, argument("Write to this folder. daco creates it.")],
    machine: Annotated[
        list[str] | None, option("Make bearing, fan, motor or valve. Repeat it; by default all.")
    ] = None,
    year: Annotated[int, option("Use the layout of this year, 2023 to 2026 (stereo).")] = 2025,
    split: Annotated[
        Literal["dev", "eval", "both"],
        option("Write test clips with labels (dev), without (eval), or half each (both)."),
    ] = "dev",
    source: Annotated[int, option("Write this many source normals per machine.")] = 990,
    target: Annotated[int, option("Write this many target normals per machine.")] = 10,
    test: Annotated[int, option("Write this many test clips per machine, a multiple of 4.")] = 200,
    seconds: Annotated[float, option("Set the length of a clip in seconds.")] = 10.0,
    severity: Annotated[float, option("Set how clear faults are: 0 none, 1 faint, 3 clear.")] = 1.0,
    seed: Annotated[int, option("Set the seed. Each seed gives other machines.")] = 0,
    workers: Processes = None,
) -> None:
    """Write recordings of synthetic machines, with faults and a domain shift, in DCASE layout.

    The same options give the same files. The defaults give clips as the real data sets have them
    (1.5 GB) and take minutes. For a quick look, use --source 200 --test 80 --seconds 5.
    """
    from daco.synthetic.factory import MACHINES, synth_factory

    with progress_bars(Output(stderr=True)) as report:
        names = synth_factory(
            directory,
            machines=machine or MACHINES,
            year=year,
            split=split,
            n_source=source,
            n_target=target,
            n_test=test,
            seconds=seconds,
            severity=severity,
            seed=seed,
            workers=workers,
            progress=partial(report, "recording"),
        )
    clips = quantity(len(names) * (source + target + test), "clip")
    machines = f"{quantity(names, 'machine')} ({', '.join(names)})"
    Output().write(f"{clips} of {seconds:g} s from {machines} in {directory}.")
