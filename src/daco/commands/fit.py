"""``daco fit``: normal recordings to a model file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daco.commands import options as shared
from daco.commands.console import MANY, Output, interruptible, progress_bars, show_skipped
from daco.commands.models import show_files, show_model
from daco.commands.options import (
    Location,
    location_argument,
    option,
    require_folder,
)
from daco.errors import DacoError, InputError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel

_SHOWN = 5
_OF_RECORDINGS = ("backbone", "weights", "channel", "device", "machine_level", "domain_level")


def fit(
    context: typer.Context,
    clips: Annotated[Location, location_argument("Use these recordings, or embeddings.")],
    out: Annotated[str, option("Write this model file, or models into this folder (NAME/).")],
    backbone: shared.Backbones = ["logmel"],  # noqa: B006
    weights: shared.Weights = None,
    config: Annotated[str, option("Score with this configuration, or choose (choose).")] = "blend",
    false_alarm_rate: Annotated[
        float, option("Call this share of the healthy recordings anomalous.")
    ] = shared.FALSE_ALARM_RATE,
    siblings: Annotated[
        str, option("Hide this many similar normals from one that is scored as new, or auto.")
    ] = "auto",
    max_normals: Annotated[int | None, option("Keep at most this many normals.", min=2)] = None,
    readout: shared.Readouts = None,
    channel: shared.Channel = "0",
    device: shared.Device = "cpu",
    workers: shared.Processes = None,
    engine: shared.Engine = "local",
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    session_by: shared.SessionBy = None,
    keep_suspicious: shared.KeepSuspicious = False,
    verbose: shared.Verbose = False,
) -> None:
    """Fit one model per machine to recordings of the healthy machine.

    daco reads only training clips and no clip that is labelled as an anomaly. It trains nothing.
    It leaves out and lists recordings that cannot be read, are silent, clipped, copies, of another
    sample rate, number of channels or length, or unlike all others; more than a third of an
    operating condition is an error. If a machine cannot be fitted, daco names it at the end and
    still writes the models of the others. OUT.previous keeps a replaced model for daco update
    --undo.

    Exit codes: 0 success, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.backbones import load
    from daco.compute import jobs_for
    from daco.data.table import is_table
    from daco.detector.decision import require_rate
    from daco.detector.fit import fit_machines
    from daco.detector.modelfile import model_paths
    from daco.embedding.normals import normals_of_recordings, normals_of_table
    from daco.files.remote import require_local
    from daco.synthetic.sensitivity import quick_sentences

    console, errors = Output(), Output(stderr=True)
    require_rate(false_alarm_rate)
    target = require_local(out, "A model")
    if out.endswith(("/", "\\")):
        target.mkdir(parents=True, exist_ok=True)
    require_folder(target)
    views = "+".join(readout) if readout else None
    is_blend = _check_config(config)
    if is_table(clips):
        _require_defaults(context, clips)
        gathered = normals_of_table(clips, readout=views, all_views=is_blend, session_by=session_by)
    else:
        networks = list(backbone)
        all_views = is_blend and views is None  # a blend takes all views that nobody named
        if all_views and "logmel" not in networks:
            networks.append("logmel")
        here = device if engine == "local" else "cpu"  # workers of a cluster load it, too
        net = load("+".join(networks), weights, here)
        if all_views and len(net.networks) == 1:
            views = "+".join(net.default_views)
        with progress_bars(errors) as report:
            gathered = normals_of_recordings(
                clips,
                net,
                readout=views,
                channel=channel,
                machine_level=machine_level,
                domain_level=domain_level,
                session_by=session_by,
                understood=lambda text: errors.notes([text]),
                progress=partial(report, "embedding"),
                engine=engine,
                weights=weights,
                device=device,
            )
    errors.notes(gathered.warnings)
    machines = gathered.machines
    paths = model_paths([each.machine for each in machines], target)
    paths[0].parent.mkdir(exist_ok=True)
    results = fit_machines(
        machines,
        config=config,
        false_alarm_rate=false_alarm_rate,
        siblings=int(siblings) if siblings.isdecimal() else siblings,
        max_normals=max_normals,
        keep_suspicious=keep_suspicious,
        workers=jobs_for(len(machines), workers, engine),
        engine=engine,
    )
    models, failures, replaced = _write_models(errors, results, paths)
    fitted = [models[path] for path in paths if path in models]
    if len(fitted) < MANY:
        _show_each(console, fitted, verbose)
    else:
        _show_many(console, fitted, verbose)
    show_files(console, list(models), replaced)
    if len(fitted) == 1:
        with interruptible("The model was written."), progress_bars(errors) as report:
            sentences = quick_sentences(fitted[0], partial(report, "injecting faults"))
        console.write(*sentences)
    errors.notes(_advice(fitted, backbone))
    skipped = (*gathered.skipped, *_listed(fitted, "left_out"))
    show_skipped(console, skipped)
    if failures:
        raise _failure(failures, len(paths))
    if skipped:
        raise typer.Exit(shared.SKIPPED_EXIT)


def _check_config(config: str) -> bool:
    """Whether it is a blend; an error before any recording is read, where nothing can score it."""
    from daco.detector.fit import CHOOSE
    from daco.detector.modelfields import require_usable
    from daco.method.config import ScoreConfig
    from daco.method.external import installed_scorer

    if config == CHOOSE:
        return False
    base = ScoreConfig.parse(require_usable(config)).base
    for label in base.labels:
        installed_scorer(label)
    return base.is_blend


def _require_defaults(context: typer.Context, table: Location) -> None:
    """Refuse options that would be ignored for a table."""
    sources = {name: context.get_parameter_source(name) for name in _OF_RECORDINGS}
    given = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{table} contains embeddings. Leave out what is for recordings: {names}.")


def _write_models(
    errors: Output, results: Iterator[tuple[int, MachineModel | DacoError]], paths: Sequence[Path]
) -> tuple[dict[Path, MachineModel], list[DacoError], list[Path]]:
    """Write each model when it is finished.

    Returns the models by their files, why others could not be fitted, and files that keep replaced
    models.
    """
    from daco.files.atomic import replace_file

    models: dict[Path, MachineModel] = {}
    failures: dict[int, DacoError] = {}
    replaced = []
    with (
        interruptible(lambda: f"{len(models)} of {len(paths)} models were written."),
        progress_bars(errors) as report,
    ):
        for index, result in results:
            if isinstance(result, DacoError):
                failures[index] = result
            else:
                replaced.append(replace_file(paths[index], result.to_bytes()))
                models[paths[index]] = result
            report("fitting", len(models) + len(failures), len(paths))
    return models, [failures[index] for index in sorted(failures)], [*filter(None, replaced)]


def _failure(failures: Sequence[DacoError], total: int) -> DacoError:
    """The error of the only machine, or one that names all machines that could not be fitted."""
    if total == 1:
        return failures[0]
    head = f"{len(failures)} of {total} machines could not be fitted."
    tail = "The models of the others were written." if len(failures) < total else ""
    return type(failures[0])("\n".join([head, *map(str, failures), tail]).rstrip())


def _show_each(console: Output, models: Sequence[MachineModel], verbose: bool) -> None:
    """Print what each model rests on."""
    for model in models:
        console.write(model.machine, style="bold")
        if thinned_from := model.provenance.get("thinned_from"):
            console.write(f"{len(model):,} recordings represent {thinned_from:,}.")
        show_model(console, model, verbose=verbose)


def _show_many(console: Output, models: Sequence[MachineModel], verbose: bool) -> None:
    """Print the number of recordings of each machine, and how many have each warning."""
    sizes = [sorted(model.domain_sizes.values(), reverse=True) for model in models]
    rows = [
        {"machine": model.machine, "recordings": "+".join(map(str, size))}
        for model, size in zip(models, sizes, strict=True)
    ]
    console.table(rows, ["machine"], ["recordings"])
    warnings = Counter(warning for model in models for warning in model.warnings())
    shown = warnings.most_common(None if verbose else _SHOWN)
    console.notes((f"{quantity(count, 'machine')}: {text}" for text, count in shown), "warning")
    if len(warnings) > len(shown):
        console.write(f"--verbose prints {len(warnings) - len(shown)} more warnings.")


def _listed(models: Sequence[MachineModel], key: str) -> list[tuple[str, str]]:
    """Name and reason of normals that are ``left_out``, ``kept`` or ``doubtful``."""
    return [pair for model in models for pair in model.provenance.get(key, {}).items()]


def _advice(models: Sequence[MachineModel], backbone: Sequence[str]) -> list[str]:
    """Which normals a person should listen to, and which network would find more faults."""
    from importlib.util import find_spec

    from daco.backbones.weights import SOURCES

    notes = []
    if kept := _listed(models, "kept"):
        names = name_list(f"{name} ({reason})" for name, reason in kept)
        notes.append(f"Kept {quantity(kept, 'suspicious normal')}: {names}.")
    for name, reason in _listed(models, "doubtful"):
        notes.append(f"Listen to {name}. It may be of another machine: {reason}.")
    of_recordings = any(model.frontend and "root" in model.provenance for model in models)
    if of_recordings and backbone == ["logmel"] and find_spec("torch"):
        quickest_first = ("mn04", *SOURCES)
        for name in [name for name in quickest_first if SOURCES[name].path.is_file()][:1]:
            notes.append(
                f"The network {name} is installed. Beside the views it found 6 more of 100 faults "
                f"on real machines: repeat daco fit with --backbone logmel --backbone {name}."
            )
    return notes
