"""``daco freeze`` and ``daco verify``: preregister what a run chose, and check it later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from daco.commands.console import Output, new_table, print_json
from daco.commands.options import AsJson, RunFolder, argument, option
from daco.errors import DataError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.experiments.verification import Verification

CHANGED_EXIT = 1
"""Exit code when something is not as it was frozen."""

_STYLE = {"ok": "green", "changed": "bold red", "unknown": "yellow"}


def freeze(
    run: RunFolder,
    out: Annotated[Path, option("Write this JSON file.")],
    date: Annotated[
        str | None, option("Record this date, such as 2026-06-01, instead of now.")
    ] = None,
) -> None:
    """Freeze the choice of a study, with its rule, its seeds and the SHA-256 of all its files.

    Later, when evaluation labels are known, daco verify checks the file.
    """
    from daco.experiments.prereg import KNOWN, freeze
    from daco.experiments.study_tables import write_json

    console = Output()
    if out.exists():
        raise DataError(f"{out} already exists. daco never overwrites a preregistration: move it.")
    document = freeze(run, created=date, beside=out.parent)
    write_json(document, out)
    frozen = document["frozen"]
    console.print(f"Frozen: [bold]{frozen['config']}[/bold] ({frozen['rule']})")
    console.write(frozen["reason"])
    console.write(f"Dev pick: {document['dev_pick'] or '-'}. Fixed default: {document['default']}.")
    files = quantity(document["artifacts"], "file")
    console.write(f"The file covers {files} of the run, {document['created']}.")
    if document[KNOWN]:
        console.print(
            "[bold red]Evaluation scores were known when this was frozen[/bold red]. The file "
            "records that: it documents a choice and does not predict."
        )
    else:
        console.write("No evaluation score was known.")
    console.write(f"SHA-256 {document['sha256']}")
    console.write("Publish this hash. It proves later that the file existed on that day.")
    console.write(f"Written: {out}", wrap=False)


def verify(
    prereg: Annotated[Path, argument("Check this file of daco freeze.")],
    run: Annotated[
        Path | None, option("Score the frozen pick on this later run with evaluation labels.")
    ] = None,
    frozen: Annotated[Path | None, option("Find the frozen run here if it was moved.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a preregistration, and compare the frozen pick with the dev pick and the default.

    Exit codes: 0 everything matches, 1 something changed, 2 a mistake in the call.
    """
    from daco.experiments.verification import verify

    result = verify(prereg, frozen=frozen, run=run)
    if as_json:
        print_json(result.to_dict())
    else:
        _show(Output(), result, scored=run is not None)
    if not result.ok:
        raise typer.Exit(CHANGED_EXIT)


def _show(console: Output, result: Verification, *, scored: bool) -> None:
    if result.config:
        console.write(f"{result.config}, frozen {result.created}")
        if result.evaluation_known:
            console.print("[bold red]Evaluation scores were known when this was frozen.[/bold red]")
    console.write(f"SHA-256 {result.sha256}")
    table = new_table(["", "", ""], box=None, show_header=False, padding=(0, 2, 0, 0))
    table.columns[0].overflow = "ellipsis"
    for check in result.checks:
        style = _STYLE[check.status]
        table.add_row(Text(check.what), Text(check.status, style), Text(check.detail))
    console.print(table)
    console.print()
    if result.scores:
        _show_scores(console, result)
    elif scored and result.config:
        console.write("The run has no evaluation scores, so nothing is scored.")
    changed = [check.what for check in result.checks if check.status == "changed"]
    if changed:
        console.write(f"Changed: {', '.join(changed)}.", style="bold red")
    else:
        unknown = sum(check.status == "unknown" for check in result.checks)
        rest = f" {unknown} could not be compared." if unknown else ""
        console.print(f"[bold green]Nothing changed.[/bold green]{rest}")


def _show_scores(console: Output, result: Verification) -> None:
    from daco.evaluation.intervals import too_few_machines

    headings = ["", "configuration", "official score", "frozen pick minus it"]
    table = new_table(headings, padding=(0, 2, 0, 0))
    table.columns[0].overflow = "ellipsis"
    deltas = {delta["against"]: delta for delta in result.deltas}
    for row in result.scores:
        delta, difference = deltas.get(row["pick"]), ""
        if delta is not None:
            difference = f"{delta['delta']:+.2f} [{delta['low']:.2f}, {delta['high']:.2f}]"
        # Text, because the square brackets of an interval are no markup.
        table.add_row(row["pick"], row["config"], f"{row['eval_omega']:.2f}", Text(difference))
    console.print(table)
    console.write("In percent, with 95 % intervals over machines (jackknife, Student's t).")
    few = too_few_machines(result.deltas[0]["n_machines"]) if result.deltas else None
    console.print(f"{few}\n" if few else "")
