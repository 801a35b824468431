"""``daco freeze``: preregister what a run chose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daco.commands.output import Output


def freeze(
    run: Annotated[Path, typer.Argument(help="Folder that 'daco study' has written.")],
    out: Annotated[Path, typer.Option(help="The JSON file to write.")],
    date: Annotated[
        str | None, typer.Option(help="Date to record, such as 2026-06-01. Default: now.")
    ] = None,
) -> None:
    """Freeze a run's choice: configuration, rule, seeds, and SHA-256 of all it rests on.

    'daco verify' checks it later, when evaluation labels are known.
    """
    from daco.errors import DataError
    from daco.experiments.prereg import KNOWN, freeze
    from daco.experiments.study_tables import write_json
    from daco.text import quantity

    console = Output()
    if out.exists():
        raise DataError(f"{out} is there already. What is frozen is not written over: move it.")
    document = freeze(run, created=date, beside=out.parent)
    write_json(document, out)
    frozen = document["frozen"]
    console.print(f"Frozen: [bold]{frozen['config']}[/bold] ({frozen['rule']})")
    console.print(frozen["reason"], markup=False)
    console.print(f"Dev pick: {document['dev_pick'] or '-'}. Fixed default: {document['default']}.")
    console.print(f"{quantity(document['artifacts'], 'file')} of the run, {document['created']}.")
    if document[KNOWN]:
        console.print(
            "[bold red]Evaluation scores were known when this was frozen[/bold red], and the file "
            "says so: it documents a choice, it does not predict."
        )
    else:
        console.print("No evaluation score was known.")
    console.print(f"SHA-256 {document['sha256']}")
    console.print("Publish this hash: it is what later proves that the file is this old.")
    console.print(f"Written: {out}", markup=False, soft_wrap=True)
