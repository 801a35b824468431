"""``daco demo``: a synthetic factory from its sounds to a report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from daco.commands.console import Output
from daco.commands.embed import embed
from daco.commands.options import option
from daco.commands.study import study
from daco.commands.synth import synth
from daco.errors import InputError

SIZE: dict[str, Any] = {"source": 90, "target": 10, "test": 100, "seconds": 5.0}
"""Clips per machine, and their length."""


def demo(
    out: Annotated[Path, option("Write to this folder.")] = Path("daco-demo"),
    seed: Annotated[int, option("Set the seed. Each seed gives other machines.", min=0)] = 0,
) -> None:
    """Record a synthetic factory, embed it, study 51 configurations and write the report.

    The demo takes half a minute. You can try other commands on its recordings, which stay in OUT.
    """
    console, started = Output(), time.perf_counter()
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty. Delete it, or choose another folder with --out.")
    console.print(
        "[bold]A synthetic factory[/bold]: daco chooses on bearing and fan, and evaluates on motor "
        "and valve."
    )
    clips, dev, eval = out / "recordings", out / "dev.parquet", out / "eval.parquet"
    synth(clips, split="both", seed=seed, **SIZE)
    embed(clips / "dev_data", dev)
    embed(clips / "eval_data", eval)
    study(dev, out / "study", eval, truth=clips / "ground_truth")
    console.print(f"The demo took {time.perf_counter() - started:.0f} s.")
