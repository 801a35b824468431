"""``daco fit``: normal recordings to a model file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from daco.commands.embed import SKIPPED_EXIT, OnError
from daco.commands.modeltext import note, say, show_domains, show_skipped
from daco.commands.progress import stages
from daco.errors import DataError, InputError, NotEnoughClipsError

if TYPE_CHECKING:
    from daco.model import MachineModel
    from daco.normals import Gathered, Normals

_UNSAFE = re.compile(r"[^\w.-]+")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def fit(
    clips: Annotated[
        Path,
        typer.Argument(
            help="Normal recordings: a folder, DCASE data set or manifest; or their embeddings."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The model file; a folder for several machines.")],
    backbone: Annotated[str, typer.Option(help="Frozen network, such as mn04.")] = "logmel",
    weights: Annotated[Path | None, typer.Option(help="Checkpoint, if not downloaded.")] = None,
    config: Annotated[
        str, typer.Option(help="auto chooses from the normals; recommended; or a name.")
    ] = "auto",
    false_alarm_rate: Annotated[
        float, typer.Option(help="Share of normals of each domain that may be flagged.")
    ] = 0.05,
    readout: Annotated[
        str | None, typer.Option(help="How frames become a vector. Default: the network's.")
    ] = None,
    channel: Annotated[
        str, typer.Option(help="0 or near, 1 or far, mix, or lsq and others, as for daco embed.")
    ] = "0",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    on_error: Annotated[
        OnError, typer.Option(help="At a file that cannot be used: stop, or leave it out.")
    ] = OnError.fail,
    keep_embeddings: Annotated[
        Path | None, typer.Option(help="Keep them in this .parquet; resumes after a kill.")
    ] = None,
) -> None:
    """Fit a detector to normal recordings: one model file per machine.

    Only training clips are read, and none that is labelled an anomaly. Nothing is trained.

    Exit codes: 0 all well, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.thresholds import require_rate

    console, errors = Console(), Console(stderr=True)
    require_rate(false_alarm_rate)
    _require_config(config)
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder. Create it, or choose another --out.")
    gathered = _gather(
        errors, clips, backbone, weights, readout, channel, device, on_error, keep_embeddings
    )
    note(errors, gathered.oddities)
    targets = model_paths([each.machine for each in gathered.machines], out)
    for normals, path in zip(gathered.machines, targets, strict=True):
        model = _fit_one(normals, config, false_alarm_rate)
        path.parent.mkdir(exist_ok=True)
        model.save(path)
        show_fit(console, model, path)
        note(console, model.cautions(), "caution")
    show_skipped(console, gathered.skipped)
    if gathered.skipped:
        raise typer.Exit(SKIPPED_EXIT)


def model_paths(machines: Sequence[str], out: Path) -> list[Path]:
    """Where the model of each machine goes; what is not a model is never replaced."""
    from daco.modelfile import SUFFIX, is_model

    if len(machines) == 1 and not out.is_dir():
        paths = [out]
    else:
        if out.exists() and not out.is_dir():
            raise InputError(
                f"{out} is a file, and there are {len(machines)} machines. Give a folder."
            )
        paths = [out / f"{name}{SUFFIX}" for name in safe_names(machines)]
    for path in paths:
        if path.exists() and not is_model(path):
            raise DataError(f"{path} is there already and is no model. Choose another name.")
    return paths


def safe_names(machines: Sequence[str]) -> list[str]:
    """File names for machines, whatever they are called; all different, also without case.

    >>> safe_names(["fan", "../fan", "Fan", "press 2/old"])
    ['fan', 'fan-2', 'Fan-3', 'press-2-old']
    """
    names: list[str] = []
    for machine in machines:
        stem = _UNSAFE.sub("-", machine).strip(".-_ ")[:80] or "machine"
        stem = f"{stem}-" if _RESERVED.fullmatch(stem) else stem
        taken = {name.casefold() for name in names}
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        names.append(name)
    return names


def show_fit(console: Console, model: MachineModel, path: Path) -> None:
    """What was made, why so, and what it will do."""
    say(console, model.machine, style="bold")
    say(console, f"configuration {model.config}: {model.reason}")
    show_domains(console, model)
    say(
        console,
        f"threshold {model.threshold:.4g} for a false-alarm rate of {model.false_alarm_rate:g} in "
        "each domain",
    )
    size = path.stat().st_size
    say(console, f"{path}: {size / 1000:,.0f} kB, sha256 {model.sha256[:12]}", wrap=False)


def _fit_one(normals: Normals, config: str, false_alarm_rate: float) -> MachineModel:
    from daco.model import MachineModel

    try:
        return MachineModel.fit(
            normals.embeddings,
            list(normals.domains),
            machine=normals.machine,
            frontend=normals.frontend,
            clip_names=normals.names,
            config=config,
            false_alarm_rate=false_alarm_rate,
            provenance=normals.origin,
            bands=normals.bands,
        )
    except NotEnoughClipsError as error:
        raise NotEnoughClipsError(f"{normals.machine}: {error}") from None


def _gather(
    errors: Console,
    clips: Path,
    backbone: str,
    weights: Path | None,
    readout: str | None,
    channel: str,
    device: str,
    on_error: OnError,
    keep: Path | None,
) -> Gathered:
    from daco.backbones import load
    from daco.channels import parse_channel
    from daco.normals import is_table, normals_of_recordings, normals_of_table

    if is_table(clips):
        if (backbone, weights, channel, device) != ("logmel", None, "0", "cpu"):
            raise InputError(
                f"{clips} holds embeddings, made already. --backbone, --weights, --channel and "
                "--device are for recordings: leave them out."
            )
        return normals_of_table(clips, readout=readout)
    policy = parse_channel(channel)
    with errors.status(f"loading {backbone}..."):
        net = load(backbone, weights=weights, device=device)
    try:
        with stages(errors) as progress:
            return normals_of_recordings(
                clips,
                net,
                readout=readout,
                channel=policy,
                keep=keep,
                on_error=on_error.value,
                progress=lambda done, total: progress("embedding", done, total),
            )
    except KeyboardInterrupt:
        kept = "Finished work is kept; the same command goes on." if keep else ""
        errors.print(f"Interrupted. {kept}".rstrip())
        raise typer.Exit(130) from None


def _require_config(config: str) -> None:
    """A wrong name is said before an hour of embedding."""
    from daco.model import AUTO, RECOMMENDED
    from daco.modelcheck import require_usable

    if config not in (AUTO, RECOMMENDED):
        require_usable(config)
