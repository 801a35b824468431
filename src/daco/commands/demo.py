"""``daco demo``: the method on a synthetic factory, with what each selection rule picks."""

from __future__ import annotations

import time
from typing import Annotated

import typer


def demo(seed: Annotated[int, typer.Option(help="Of the synthetic machines.", min=0)] = 0) -> None:
    """Run the method on a synthetic factory and show what each selection rule picks."""
    from rich.console import Console
    from rich.table import Table

    from daco.config import DEFAULT_CONFIG
    from daco.criterion import h0_floor
    from daco.demo import DEV_MACHINES, EVAL_MACHINES, run_demo
    from daco.selection import selection_table

    console = Console()
    started = time.perf_counter()
    with console.status("compiling (first run only)...") as status:
        result = run_demo(lambda machine: status.update(f"scoring {machine}..."), seed)
    seconds = time.perf_counter() - started
    console.print(
        f"\n[bold]Synthetic factory[/bold]: {len(DEV_MACHINES)} development and "
        f"{len(EVAL_MACHINES)} evaluation machines with 990 source and 10 target normals each; "
        f"{len(result.grid['config'])} configurations, 10 splits of the criterion: {seconds:.1f} s."
    )
    table = Table(title="\nWhat each rule picks, and what the pick is worth on evaluation machines")
    table.add_column("rule")
    table.add_column("picks")
    for heading in ("criterion", "dev", "eval"):
        table.add_column(heading, justify="right")
    rows = selection_table(
        result.grid,
        per_machine=result.per_machine,
        split="eval",
        fixed=["raw-k1", DEFAULT_CONFIG],
    )
    for row in rows:
        score = _number(row.eval_omega, 2)
        table.add_row(
            row.rule.replace(" on evaluation normals", " on eval"),
            row.config or ("its own for each" if "machine" in row.rule else "-"),
            _number(row.criterion, 3),
            _number(row.dev_omega, 2),
            score if row.eval_sd is None else f"{score} ± {row.eval_sd:.1f}",
        )
    console.print(table)
    floor = h0_floor(495, 5, n_simulations=300, reuse_clips=True)
    noise = floor.sd / len(DEV_MACHINES) ** 0.5
    console.print(
        "Scores: official, in percent (harmonic mean of AUC source, AUC target and pAUC). "
        f"Criterion: KS distance; with 5 held-out target clips it cannot average below "
        f"{floor.mean:.2f}, and differences under {noise:.2f} are noise. Only 'dev score' and, as "
        "a veto, 'guarded criterion' read development labels; only 'oracle' reads evaluation "
        "labels.",
        highlight=False,
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
