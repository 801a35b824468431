"""Arguments and options that several commands have, each declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daco.errors import InputError

if TYPE_CHECKING:
    from daco.files.remote import Location as Location
else:

    class Location:
        """A path for the help texts: typer accepts no union of local and remote paths."""

    Location.__name__ = "path"

SPLITS = 200
"""`daco.method.criterion.CHOICE_SPLITS`; that module takes long to import."""

FALSE_ALARM_RATE = 0.1
"""`daco.detector.thresholds.FALSE_ALARM_RATE`; that module takes long to import."""

SKIPPED_EXIT = 4
"""Exit code when the result was written without some of the recordings."""

ALARM_EXIT = 3
"""Exit code of ``--exit-code`` when a recording is anomalous."""


class OnError(StrEnum):
    """What to do at a recording that cannot be used."""

    fail = "fail"
    skip = "skip"


def as_location(value: str) -> Location:
    """Parse a local or remote path; typer's own parser would remove a slash from ``s3://``."""
    from daco.files.remote import parse_location

    try:
        return parse_location(value)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def require_folder(*paths: Location | None) -> None:
    """Raise an error if a file to be written lies in a folder that does not exist."""
    for path in paths:
        if isinstance(path, Path) and not path.absolute().parent.is_dir():
            raise InputError(f"{path.parent} is not a folder. Create it, or choose another file.")


def option(help: str, **settings: Any) -> Any:
    """An option with its help text."""
    return typer.Option(help=help, **settings)


def argument(help: str, **settings: Any) -> Any:
    """An argument with its help text."""
    return typer.Argument(help=help, **settings)


def flag(name: str, help: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=help)


def database_of(url: str | None, model: Path) -> str:
    """The database of a model: the one that is named, or the one beside its file."""
    return url or f"sqlite:///{model.absolute().parent / 'daco.db'}"


def location_option(help: str) -> Any:
    """An option that takes a local or remote path."""
    return typer.Option(help=help, parser=as_location)


def location_argument(help: str) -> Any:
    """An argument that takes a local or remote path."""
    return typer.Argument(help=help, parser=as_location)


# Recordings and embeddings
Clips = Annotated[
    Location, location_argument("Folder of recordings, DCASE data set, or CSV or Parquet manifest.")
]
OutTable = Annotated[Location, location_option("The Parquet file to write.")]
DomainLevel = Annotated[
    int | None,
    typer.Option(
        help="Level of the subfolders whose names are the domains; 0: one domain. Default: 1.",
        min=0,
    ),
]
SessionBy = Annotated[
    str | None,
    typer.Option(
        help="Which clips were recorded together: folder:2, gap:30min or attribute:speed. "
        "Default: column session.",
    ),
]
KeepSuspicious = Annotated[
    bool,
    flag("--keep-suspicious", "Use also normals that look wrong; by default they are left out."),
]
Truth = Annotated[
    Path | None,
    option("Labels of test clips: checkout of the official evaluator, or its CSV files."),
]
Year = Annotated[
    int | None, option("Year of the data set. Default: read from its folders.", min=2000)
]

# Networks
Backbones = Annotated[
    list[str], option("Frozen network: beats, mn04 or an installed one; several joined with +.")
]
Weights = Annotated[Path | None, option("Checkpoint file. Default: the downloaded weights.")]
Device = Annotated[str, option("Device of the network: cpu, cuda or cuda:1.")]
Precision = Annotated[str, option("Precision of the network: fp32, tf32 or bf16.")]
Readouts = Annotated[
    list[str] | None,
    typer.Option(
        help="How frames become a vector, such as mean, band or rdp-g4; repeat, or join with +, "
        "for more. Of several networks: mn04, mn04-band, mod. Default: the network's own."
    ),
]
Channel = Annotated[
    str,
    typer.Option(
        help="Microphone: 0 or near, 1 or far, mix; lsq, specsub, residual-c0.5 and residual-proj "
        "subtract the far one (1) from the near one (0)."
    ),
]
OnErrorOption = Annotated[
    OnError, option("At a recording that cannot be used: stop, or leave it out.")
]

# Machines and workers
Engine = Annotated[str, option("Where the work runs: local, or ray for a cluster of computers.")]
Address = Annotated[
    str | None, option("Address of the Ray cluster: auto, host:6379, ray://host:10001.")
]
Processes = Annotated[int | None, option("Number of processes. Default: one per core.", min=1)]
FleetProcesses = Annotated[
    int | None, option("Number of processes. Default: one per core from 40 machines on.", min=1)
]
CriterionDevice = Annotated[
    str, option("Device of the criterion: cpu, or cuda or cuda:1 with the local engine.")
]
CriterionSeed = Annotated[int, option("Seed of the criterion's random splits.", min=0)]
Splits = Annotated[int, option("Number of random splits of the criterion.", min=1)]
Grid = Annotated[str, option("Candidates: 9, 45, 51, frontier, names with commas, or their file.")]

# Models and verdicts
ModelPath = Annotated[Path, argument("Model file, written by daco fit.")]
ModelLocation = Annotated[Location, location_argument("Model file, written by daco fit.")]
Window = Annotated[float | None, option("Cut recordings into windows of this many seconds.")]
Hop = Annotated[
    float | None, option("Seconds between the starts of two windows. Default: the window's length.")
]
Aggregate = Annotated[
    str, option("Which windows count: max, mean, or top3 for the three worst ones.")
]
Rate = Annotated[
    float | None, option("False-alarm rate in place of the model's own; the model is not refitted.")
]
Database = Annotated[
    str | None, option("Database URL. Default: daco.db in the folder of the models.")
]
AlarmRuleOption = Annotated[
    str,
    typer.Option(
        help="k/n raises an alarm when k of the last n clips are anomalous; off: at every one."
    ),
]
KeepDays = Annotated[float | None, option("Delete clips and alarms after this many days.", min=0)]

# Faults
Faults = Annotated[list[str] | None, option("Kind of fault; repeat for more. Default: all.")]
PerDomain = Annotated[
    int, option("Largest number of recordings of each machine and domain.", min=1)
]
FaultSeed = Annotated[int, option("Seed that draws recordings and faults.", min=0)]

# Output
AsJson = Annotated[bool, flag("--json", "Print JSON instead of tables.")]
RunFolder = Annotated[Path, argument("Folder that daco study has written.")]
