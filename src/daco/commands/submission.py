"""``daco submission``: the files that the challenge asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from daco.commands.console import Output
from daco.commands.options import RunFolder, option
from daco.text import quantity


def submission(
    run: RunFolder,
    label: Annotated[str, option("Give the label of the system, such as Kato_Hitachi_task2_1.")],
    out: Annotated[Path, option("Write task2/LABEL in this folder. Several systems may share it.")],
    config: Annotated[str | None, option("Submit this configuration, not the chosen one.")] = None,
) -> None:
    """Write the challenge's files: scores, decisions and the meta file of one system.

    Fill in the fields of the meta file that are !!null, put the technical report beside the folder
    as LABEL.technical_report.pdf, and pack the folder task2 into a zip file.
    """
    from daco.experiments.result import StudyResult
    from daco.experiments.submission import write_submission

    console = Output()
    written = write_submission(StudyResult.read(run), label, out, config=config)
    console.write(f"{label}: {written.config} on {quantity(len(written.clips), 'machine')}")
    console.write(*(f"  {each}: {quantity(n, 'clip')}" for each, n in written.clips.items()))
    console.write(*(f"- {note}" for note in written.notes))
    console.write(f"Written: {written.folder}", wrap=False)
