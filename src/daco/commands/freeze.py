"""``daco freeze`` and ``daco verify``: preregister what a run chose, and check it later."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from daco.commands.console import Output, print_json
from daco.commands.options import AsJson, RunFolder, Truth, argument, option

if TYPE_CHECKING:
    from daco.experiments.freeze import Verification

CHANGED_EXIT = 1
"""Exit code when something is not as it was frozen."""

_STYLE = {"ok": "green", "changed": "bold red", "note": "yellow"}
_KNOWN = "[bold red]Evaluation labels were known when this was frozen.[/bold red]"


def freeze(
    run: RunFolder,
    out: Annotated[Path, option("Write this JSON file.")],
    config: Annotated[str | None, option("Freeze this configuration, not the chosen one.")] = None,
) -> None:
    """Freeze the choice of a study, with its rule, its numbers and the SHA-256 of its tables.

    Later, when evaluation labels are known, daco verify checks the file.
    """
    from daco.experiments.freeze import KNOWN, freeze
    from daco.experiments.result import StudyResult

    console = Output()
    document = freeze(StudyResult.read(run), out, config)
    frozen = document["frozen"]
    rule = f" (rule: {frozen['rule']})" if frozen["rule"] else ""
    console.print(f"Frozen: [bold]{frozen['configuration']}[/bold]{rule}")
    console.write(f"{frozen['reason'][0].upper()}{frozen['reason'][1:]}.")
    if document[KNOWN]:
        console.print(f"{_KNOWN} The file documents a choice, not a prediction.")
    else:
        console.write("No evaluation label was known.")
    console.write(f"SHA-256 {document['sha256']}")
    console.write(
        f"The file states {document['created']}, the time of this computer. To prove it to "
        "others, commit the file to a public repository now, or have the hash time-stamped."
    )
    console.write(f"Written: {out}", wrap=False)


def verify(
    prereg: Annotated[Path, argument("Check this file of daco freeze.")],
    run: Annotated[Path | None, option("Check this later run, or the moved one.")] = None,
    truth: Truth = None,
    as_json: AsJson = False,
) -> None:
    """Check a preregistration, and score the frozen pick beside the dev pick and the defaults.

    --truth gives labels to the clips of the run, by default the frozen one. Another version of
    daco is noted; only other numbers, inputs or choices are a change.

    Exit codes: 0 everything matches, 1 something changed, 2 a mistake in the call.
    """
    from daco.experiments.freeze import verify

    result = verify(prereg, run=run, truth=truth)
    if as_json:
        print_json({"ok": result.ok, **asdict(result)})
    else:
        _show(Output(), result)
    if not result.ok:
        raise typer.Exit(CHANGED_EXIT)


def _show(console: Output, result: Verification) -> None:
    from daco.evaluation.intervals import too_few_machines
    from daco.experiments.freeze import KNOWN

    document = result.document
    if document:
        console.write(f"{document['frozen']['configuration']}, frozen {document['created']}")
        console.write(f"SHA-256 {document['sha256']}")
        if document[KNOWN]:
            console.print(_KNOWN)
    checks = [
        {"check": each.what, "result": Text(each.status, _STYLE[each.status]), "": each.detail}
        for each in result.checks
    ]
    console.table(checks, ["check", "result", ""])
    if result.scores:
        titles = {"pick": "", "configuration": "configuration", "score": "official score"}
        rows = [row | {"difference": row["difference"] or ""} for row in result.scores]
        console.table(rows, titles | {"difference": "frozen pick minus it"})
        console.write("In percent, with 95 % intervals over machines (jackknife, Student's t).")
        console.print(f"{too_few_machines(result.scores[0]['score'].n) or ''}\n")
    elif document:
        console.write("No evaluation label is known, so nothing is scored: see --truth.")
    changed = [check.what for check in result.checks if check.status == "changed"]
    if changed:
        console.write(f"Changed: {', '.join(changed)}.", style="bold red")
    else:
        console.print("[bold green]Nothing changed.[/bold green]")
