"""The challenge's submission: scores, decisions and a meta file of one system in a folder.

What daco does not know is ``!!null`` in the meta file, as in the challenge's own files, and left to
the authors. A folder is never overwritten: its meta file may have been filled in.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daco.data.dcase import MACHINES, machine_sections
from daco.detector.decision import is_anomalous
from daco.errors import DataError, InputError
from daco.evaluation.scorefiles import machine_title, write_decisions, write_scores
from daco.experiments.machine import P_VALUE
from daco.experiments.result import StudyResult
from daco.files.atomic import write_error
from daco.method.config import ScoreConfig
from daco.text import name_list, quantity, suggestion

if TYPE_CHECKING:
    import pandas as pd

_LABEL = re.compile(r"[A-Za-z][A-Za-z-]*_[A-Za-z0-9-]+_task2_[1-4]")
_CALIBRATION = {
    "conf": "per-domain quantile calibration",
    "ratio": "division by the domain's median score",
    "zscore": "standardisation in the domain",
}


@dataclass(frozen=True)
class Submission:
    """What was written: the folder of the system, its clips by machine, and what to look at."""

    folder: Path
    config: str
    clips: Mapping[str, int]
    notes: tuple[str, ...] = ()


def write_submission(
    result: StudyResult,
    label: str,
    out: Path | str,
    *,
    config: str | None = None,
) -> Submission:
    """Write scores, decisions and the meta file of the evaluation machines of a run.

    Parameters
    ----------
    result : StudyResult
    label : str
        The label of the system, such as ``Kato_Hitachi_task2_1``.
    out : path
        The folder that receives ``task2/<label>/``. Up to four systems of a team share it.
    config : str, optional
        A configuration with p-values; by default the one that the run chose.

    Returns
    -------
    Submission
    """
    if not _LABEL.fullmatch(label):
        raise InputError(
            f"The label {label!r} is not <last name of the corresponding author>_<institute>_task2_"
            "<1-4>, such as Kato_Hitachi_task2_1. Names are of letters, digits and hyphens."
        )
    config = config or str(result.run["choice"]["config"])
    rate = float(result.run["settings"]["false_alarm_rate"])
    clips = _evaluation_clips(result, config)
    clips = clips.assign(score=clips[config], decision=is_anomalous(clips[P_VALUE + config], rate))
    folder = Path(out) / "task2" / label
    if folder.exists():
        raise InputError(f"{folder} already exists. Move or delete it, or choose another label.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as temporary:
            unfinished = Path(temporary) / label
            counts = write_challenge_files(unfinished, clips)
            meta = unfinished / f"{label}.meta.yaml"
            meta.write_text(_meta_file(result, label, config, rate), "utf-8")
            unfinished.rename(folder)
    except OSError as error:
        raise write_error(folder, error) from None
    return Submission(folder, config, counts, tuple(_notes(result, rate)))


def write_challenge_files(folder: Path, clips: pd.DataFrame) -> dict[str, int]:
    """Write score and decision files of a table of clips; return the clips of each machine.

    The table has ``machine``, ``section``, ``clip``, ``score`` and ``decision``.
    """
    counts = {}
    for key, rows in clips.groupby(["machine", "section"], sort=False):
        machine, section = map(str, key)
        names = rows["clip"].tolist()
        write_scores(folder, machine, section, names, rows["score"])
        write_decisions(folder, machine, section, names, rows["decision"])
        counts[machine_title(machine, section)] = len(rows)
    return counts


def _evaluation_clips(result: StudyResult, config: str) -> pd.DataFrame:
    """The evaluation clips, all with score and p-value of a configuration."""
    clips = result.test_clips.query("set == 'eval'")
    if clips.empty:
        raise DataError(
            f"The run {result.folder} has no scores of evaluation machines. Run the study with "
            "their embeddings too (--eval)."
        )
    if config not in result.decided:
        raise InputError(
            f"The run {result.folder} has no p-values of {config!r}."
            f"{suggestion(config, result.decided)} Run the study with this configuration in --grid."
        )
    missing = clips[clips[[config, P_VALUE + config]].isna().any(axis=1)]
    if len(missing):
        raise DataError(
            f"{quantity(missing, 'clip')} of {name_list(missing['machine'].unique())} have no "
            f"score or p-value of {config!r}, and the challenge wants all clips. Submit another "
            "configuration."
        )
    return clips


def _notes(result: StudyResult, rate: float) -> Iterator[str]:
    """Sentences about machines that are not those of a year, and a rate below what is known."""
    normals = result.clips.query("set == 'eval' and split == 'train'")
    sizes = normals.groupby(["machine", "section", "domain"]).size()
    machines = {(machine, section) for machine, section, _ in sizes.index}
    if all(machines != machine_sections(year)["eval"] for year in MACHINES):
        titles = name_list(sorted(machine_title(*key) for key in machines), 9)
        yield f"{titles}: not the evaluation machines of any year."
    if rate < 1 / (sizes.min() + 1):
        yield (
            f"The false-alarm rate {rate:g} is below {1 / (sizes.min() + 1):.3g}, the smallest "
            "that the normals of all machines support: p-values are extrapolated."
        )


def _meta_file(result: StudyResult, label: str, config: str, rate: float) -> str:
    """The meta file, filled from a run as far as it goes."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("daco.experiments", "templates"),
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # YAML; every value passes the filter
    )
    environment.filters["yaml"] = to_yaml
    run, choice, parsed = result.run, result.run["choice"], ScoreConfig.parse(config)
    is_chosen = choice["config"] == config
    table = {each["role"]: each for each in run["inputs"]}.get("eval", {})
    origin = table.get("metadata") or {}
    hertz, calibration = origin.get("sample_rate"), _CALIBRATION.get(parsed.calibration or "")
    return environment.get_template("submission.yaml").render(
        label=label,
        name=f"DACo {config}",
        sampling_rate=f"{int(hertz) / 1000:g}kHz" if hertz else None,
        network=origin.get("backbone"),
        method=f"{parsed.base.name} ({parsed.base.words})",
        readout=run["settings"].get("readout"),
        calibration=f"{calibration} ({parsed.assignment} domains)" if calibration else None,
        decision=f"p-value of at most {rate:.10g} among normals",
        external_data="pre-trained model" if origin.get("weights_sha256") else None,
        development_data=f"choice by the rule {choice['rule']!r}" if is_chosen else None,
        parameters=int(origin["parameters"]) if "parameters" in origin else None,
        results=_development_results(result, config),
    )


def to_yaml(value: Any) -> str:
    r"""A text, number, truth value or None as YAML; JSON's are YAML's too.

    >>> to_yaml('a: "b"'), to_yaml(True), to_yaml(None)
    ('"a: \\"b\\""', 'true', '!!null')
    """
    is_null = value is None or value != value  # nan, of a machine without labels
    return "!!null" if is_null else json.dumps(value, ensure_ascii=False)


def _development_results(result: StudyResult, config: str) -> dict[Any, dict[Any, float]]:
    """Metrics of the development machines in percent, by machine."""
    metrics = result.metrics([config]).query("set == 'dev'").round(2)
    titles = map(machine_title, metrics["machine"], metrics["section"])
    values = metrics.drop(columns=["set", "machine", "section", "configuration"])
    return values.dropna(axis="columns", how="all").set_axis(list(titles)).to_dict("index")
