"""Arguments and options that several commands have, each declared once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daco.errors import InputError

if TYPE_CHECKING:
    from daco.files.remote import Location as Location
else:
    Location = type("path", (), {})  # typer accepts no union of local and remote paths

SPLITS = 200
"""`daco.method.criterion.CHOICE_SPLITS`; that module takes long to import."""

FALSE_ALARM_RATE = 0.1
"""`daco.detector.decision.FALSE_ALARM_RATE`; that module takes long to import."""

SKIPPED_EXIT = 4
"""Exit code when the result was written without some of the recordings."""

ALARM_EXIT = 3
"""Exit code of ``--exit-code`` when a recording is anomalous."""


def as_location(value: str) -> Location:
    """Parse a local or remote path; typer's own parser would remove a slash from ``s3://``."""
    from daco.files.remote import parse_location

    try:
        return parse_location(value)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def as_local(value: str) -> Path:
    """Parse a local path; a URL is an error that says so."""
    path = as_location(value)
    if not isinstance(path, Path):
        raise typer.BadParameter(f"{value} must be on this computer.")
    return path


def require_folder(*paths: Location | None) -> None:
    """Raise an error if a file to be written lies in a folder that does not exist."""
    for path in paths:
        if isinstance(path, Path) and not path.absolute().parent.is_dir():
            raise InputError(f"{path.parent} is not a folder. Create it, or choose another file.")


def parse_systems(given: Sequence[str]) -> dict[str, Path]:
    """Paths of score tables by the names of systems, of options NAME=TABLE."""
    pairs = [text.partition("=") for text in given]
    named = {name: Path(path) for name, _, path in pairs}
    if len(named) < len(pairs) or not all(name and path for name, _, path in pairs):
        raise InputError(f"--system takes NAME=TABLE, each name once. Got {', '.join(given)}.")
    return named


def option(help: str, **settings: Any) -> Any:
    """An option with its help text."""
    return typer.Option(help=help, **settings)


def argument(help: str, **settings: Any) -> Any:
    """An argument with its help text."""
    return typer.Argument(help=help, **settings)


def flag(name: str, help: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=help)


def location_option(help: str) -> Any:
    """An option that takes a local or remote path."""
    return typer.Option(help=help, parser=as_location, metavar="PATH")


def location_argument(help: str) -> Any:
    """An argument that takes a local or remote path."""
    return typer.Argument(help=help, parser=as_location)


# Recordings and embeddings
Clips = Annotated[Location, location_argument("Read this folder, DCASE data set or manifest.")]
OutTable = Annotated[Location, location_option("Write this Parquet file.")]
MachineLevel = Annotated[
    int | None, option("Take machines from subfolders at this level (0: one machine).", min=0)
]
DomainLevel = Annotated[
    int | None, option("Take domains from subfolders at this level (0: one domain).", min=0)
]
SessionBy = Annotated[
    str | None, option("Group clips recorded together by folder:2, gap:30min or attribute:speed.")
]
KeepSuspicious = Annotated[bool, flag("--keep-suspicious", "Keep normals that look wrong.")]
Truth = Annotated[Path | None, option("Read labels from the official evaluator.", parser=as_local)]
Year = Annotated[int | None, option("Set the year of the data set.", min=2000)]

# Networks
Backbones = Annotated[
    list[str],
    option("Use logmel, beats, eat, panns, mn04 or an installed network. Repeat it for more."),
]
Weights = Annotated[
    Path | None, option("Use this checkpoint instead of the downloaded one.", parser=as_local)
]
Device = Annotated[str, option("Run the network on this device: cpu, cuda or cuda:1.")]
Precision = Annotated[
    str, option("Compute in fp32, tf32 (GPUs) or bf16 (GPUs, and CPUs that have it).")
]
Readouts = Annotated[
    list[str] | None,
    option("Use this readout, such as mean, rdp, layer9 or mn04-band. Repeat it for more."),
]
Channel = Annotated[
    str,
    option(
        "Use near (0), far (1), mix, or near minus far: lsq, specsub, residual-c0.5, residual-proj."
    ),
]

# Machines and workers
Engine = Annotated[
    str, option("Run here (local), on the Ray cluster of RAY_ADDRESS (ray) or of ray://head:10001.")
]
Processes = Annotated[
    int | None, option("Use this many processes. The default depends on the work.", min=1)
]
Splits = Annotated[int, option("Set the number of random splits of the criterion.", min=1)]
Grid = Annotated[str, option("Choose from 9, 45 or 51, names with commas, or their file.")]

# Models and verdicts
ModelPath = Annotated[Path, argument("Use this model file of daco fit.", parser=as_local)]
Rate = Annotated[float | None, option("Use this false-alarm rate instead of the model's own.")]

# Faults
Faults = Annotated[list[str] | None, option("Add this fault, by default all. Repeat it for more.")]
Levels = Annotated[list[float] | None, option("Use this fault level in dB. Repeat it for more.")]
PerDomain = Annotated[int, option("Use at most this many recordings of each domain.", min=1)]
Seed = Annotated[int, option("Set the seed of all that is random.", min=0)]

# Output
Verbose = Annotated[bool, flag("--verbose", "Print configuration, scores and hashes, too.")]
System = Annotated[
    list[str] | None,
    option("Use the scores of another system. Repeat it for more.", metavar="NAME=TABLE"),
]
AsJson = Annotated[bool, flag("--json", "Print JSON instead of tables.")]
RunFolder = Annotated[Path, argument("Read the folder that daco study has written.")]
