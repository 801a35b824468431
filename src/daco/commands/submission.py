"""``daco submission``: the challenge package of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from daco.commands.console import Output
from daco.commands.options import RunFolder, option
from daco.text import quantity


def submission(
    run: RunFolder,
    label: Annotated[str, option("Give the label of the system, such as Kato_Hitachi_task2_1.")],
    out: Annotated[Path, option("Write this zip file.")],
    config: Annotated[
        str | None,
        option("Submit this configuration instead of the chosen one, such as blend."),
    ] = None,
    authors: Annotated[Path | None, option("Read the authors from this JSON list.")] = None,
    report: Annotated[Path | None, option("Add this technical report (PDF).")] = None,
    false_alarm_rate: Annotated[
        float | None, option("Decide at this false-alarm rate instead of the run's.")
    ] = None,
) -> None:
    """Write the challenge package with scores, decisions and the meta file.

    daco reads the package back and checks it. Fields of the meta file that daco cannot fill are
    !!null. Fill them in before you send the package.
    """
    from daco.experiments.metafile import read_authors
    from daco.experiments.result import StudyResult
    from daco.experiments.submission import chosen_config, write_submission
    from daco.method.config import ScoreConfig

    console = Output()
    result = StudyResult.read(run)
    used = ScoreConfig.parse(config).name if config else chosen_config(result)
    written = write_submission(
        result,
        label,
        out,
        config=used,
        authors=read_authors(authors) if authors else (),
        report=report,
        false_alarm_rate=false_alarm_rate,
    )
    clips_of = written.systems[label]
    year = f", the evaluation set of {written.year}" if written.year else ""
    console.write(f"{label}: {used} on {quantity(len(clips_of), 'machine')}{year}")
    for machine, clips in clips_of.items():
        console.write(f"  {machine}: {quantity(clips, 'clip')}")
    for note in written.notes:
        console.write(f"- {note}")
    console.write(f"Written and checked: {out}", wrap=False)
