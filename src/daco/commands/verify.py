"""``daco verify``: does a preregistration still hold, and what does the frozen pick score."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from daco.commands.output import Output

if TYPE_CHECKING:
    from rich.table import Table

    from daco.experiments.verification import Verification

CHANGED_EXIT = 1
"""Exit code when something is not as it was frozen."""

_STYLE = {"ok": "green", "changed": "bold red", "unknown": "yellow"}


def verify(
    prereg: Annotated[Path, typer.Argument(help="File that 'daco freeze' has written.")],
    run: Annotated[
        Path | None, typer.Option(help="A later run, with evaluation labels, to score it on.")
    ] = None,
    frozen: Annotated[
        Path | None, typer.Option(help="The frozen run, if it is not where it was.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Check a preregistration, and score the frozen pick against dev pick and default.

    Exit codes: 0 everything matches, 1 something was changed, 2 a mistake in the call.
    """
    import json

    from daco.experiments.verification import verify

    result = verify(prereg, frozen=frozen, run=run)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=1, ensure_ascii=False))
    else:
        _show(Output(), result, scored=run is not None)
    if not result.ok:
        raise typer.Exit(CHANGED_EXIT)


def _show(console: Console, result: Verification, *, scored: bool) -> None:
    from rich.text import Text

    if result.config:
        console.print(Text(f"{result.config}, frozen {result.created}"))
        if result.evaluation_known:
            console.print("[bold red]Evaluation scores were known when this was frozen.[/bold red]")
    console.print(f"SHA-256 {result.sha256}", markup=False)
    table = _table("", "", "")
    for check in result.checks:
        style = _STYLE[check.status]
        table.add_row(Text(check.what), Text(check.status, style), Text(check.detail))
    console.print(table)
    console.print()
    if result.scores:
        _show_scores(console, result)
    elif scored and result.config:
        console.print("The run has no evaluation scores, so that nothing is scored.")
    changed = [check.what for check in result.checks if check.status == "changed"]
    if changed:
        console.print(Text(f"Changed: {', '.join(changed)}.", "bold red"))
    else:
        unknown = sum(check.status == "unknown" for check in result.checks)
        rest = f" {unknown} could not be compared." if unknown else ""
        console.print(f"[bold green]Nothing changed.[/bold green]{rest}")


def _show_scores(console: Console, result: Verification) -> None:
    from rich.text import Text

    from daco.evaluation.statistics import too_few_machines

    table = _table("", "configuration", "official score", "frozen pick minus it")
    deltas = {delta["against"]: delta for delta in result.deltas}
    for row in result.scores:
        delta = deltas.get(row["pick"])
        told = (
            ""
            if delta is None
            else f"{delta['delta']:+.2f} [{delta['low']:.2f}, {delta['high']:.2f}]"
        )
        # As Text: the square brackets of an interval are no markup.
        table.add_row(row["pick"], row["config"], f"{row['eval_omega']:.2f}", Text(told))
    console.print(table)
    console.print("In percent; intervals of 95 % over machines (jackknife, Student's t).")
    few = too_few_machines(result.deltas[0]["n_machines"]) if result.deltas else None
    console.print(f"{few}\n" if few else "")


def _table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD if any(headings) else None,
        padding=(0, 2, 0, 0),
        show_edge=False,
        show_header=any(headings),
    )
    for heading in headings:
        table.add_column(heading)
    return table
