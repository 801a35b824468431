"""``daco fit``: normal recordings to a model file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from daco.commands import options as shared
from daco.commands.console import (
    MANY,
    Output,
    interruptible,
    new_table,
    progress_bars,
    show_skipped,
)
from daco.commands.embed import load_network
from daco.commands.models import (
    alarm_limit,
    configuration,
    show_conditions,
    show_expectation,
    show_replaced,
)
from daco.commands.options import (
    Location,
    OnError,
    location_argument,
    location_option,
    option,
    require_folder,
)
from daco.errors import DacoError, DataError, InputError, NotEnoughClipsError
from daco.text import name_list, printable, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.embedding.normals import Normals, NormalsByMachine, Skipped

_SHOWN = 5
_UNSAFE = re.compile(r"[^\w.-]+")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # by Windows


def fit(
    clips: Annotated[
        Location,
        location_argument(
            "Use these normal recordings (a folder, DCASE data set or manifest) or embeddings."
        ),
    ],
    out: Annotated[
        str, option("Write this model file, or models into this folder (its name ends with /).")
    ],
    backbone: shared.Backbones = ["logmel"],  # noqa: B006
    weights: shared.Weights = None,
    config: Annotated[
        str,
        option("Score with the blend of all views, a choice without labels (choose), or a name."),
    ] = "blend",
    false_alarm_rate: Annotated[
        float, option("Allow this share of the healthy recordings to be called anomalous.")
    ] = shared.FALSE_ALARM_RATE,
    siblings: Annotated[
        str,
        option(
            "Set how many similar normals are hidden from a normal that is scored as if it were "
            "new: auto or a number."
        ),
    ] = "auto",
    max_normals: Annotated[
        int | None, option("Keep at most this many normals, chosen so that they represent all.")
    ] = None,
    readout: Annotated[
        list[str] | None,
        option("Use this readout of the network. Repeat it, or join names with +, for more views."),
    ] = None,
    channel: shared.Channel = "0",
    device: shared.Device = "cpu",
    on_error: shared.OnErrorOption = OnError.skip,
    keep_embeddings: Annotated[
        Location | None,
        location_option(
            "Keep the embeddings in this Parquet file, so that a stopped fit can continue."
        ),
    ] = None,
    workers: shared.FleetProcesses = None,
    engine: shared.Engine = "local",
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    session_by: shared.SessionBy = None,
    keep_suspicious: shared.KeepSuspicious = False,
    verbose: shared.Verbose = False,
) -> None:
    """Fit one model per machine to recordings of the healthy machine.

    daco reads only training clips and no clip that is labelled as an anomaly. It trains nothing.
    It leaves out and lists recordings that are silent, clipped, copies, of another sample rate,
    number of channels or length, or unlike all others; more than a third of an operating
    condition is an error. If a machine cannot
    be fitted, daco names it at the end and still writes the models of the others. MODEL.previous
    keeps a replaced model for daco update --undo.

    Exit codes: 0 success, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.compute import require_engine
    from daco.detector.decision import require_rate
    from daco.detector.fit import CHOOSE
    from daco.detector.modelfields import require_usable
    from daco.files.remote import require_local
    from daco.method.config import ScoreConfig
    from daco.method.external import installed_scorer
    from daco.validation import require_whole

    console, errors = Output(), Output(stderr=True)
    require_engine(engine)
    require_rate(false_alarm_rate)
    if max_normals is not None:
        require_whole(max_normals, "--max-normals", least=2)
    base = None if config == CHOOSE else ScoreConfig.parse(require_usable(config)).base
    for label in base.labels if base else ():
        installed_scorer(label)  # or say that there is none before recordings are read
    target = require_local(out, "A model")
    if out.endswith(("/", "\\")):
        target.mkdir(parents=True, exist_ok=True)
    require_folder(target)
    network = {"backbone": "+".join(backbone), "weights": weights, "device": device}
    gathered = _gather(
        errors,
        clips,
        network,
        engine,
        base is not None and base.is_blend,
        readout="+".join(readout) if readout else None,
        channel=channel,
        on_error=on_error.value,
        keep=keep_embeddings,
        machine_level=machine_level,
        domain_level=domain_level,
        session_by=session_by,
    )
    errors.notes(gathered.warnings)
    targets = model_paths([each.machine for each in gathered.machines], target)
    models, replaced, failures = _fit_all(
        errors,
        gathered.machines,
        targets,
        {
            "config": config,
            "false_alarm_rate": false_alarm_rate,
            "siblings": int(siblings) if siblings.isdecimal() else siblings,
            "max_normals": max_normals,
            "keep_suspicious": keep_suspicious,
        },
        workers,
        engine,
    )
    fitted = [models[index] for index in sorted(models)]
    shown = [(models[index], targets[index]) for index in sorted(models)]
    _show_models(console, shown, verbose)
    show_replaced(console, replaced)
    if len(fitted) == 1:
        _show_sensitivity(console, errors, fitted[0])
    errors.notes(_recommended_network(backbone, clips))
    skipped = (*gathered.skipped, *suspicious_of(fitted, "left_out"))
    show_skipped(console, skipped)
    if kept := suspicious_of(fitted, "kept"):
        names = name_list([f"{name} ({reason})" for name, reason in kept])
        errors.notes([f"Kept {quantity(kept, 'suspicious normal')}: {names}."])
    errors.notes(
        f"Listen to {name}. It may be of another machine: {reason}."
        for name, reason in suspicious_of(fitted, "doubtful")
    )
    if failures:
        raise _failure(failures, len(targets))
    if skipped:
        raise typer.Exit(shared.SKIPPED_EXIT)


def _recommended_network(backbones: Sequence[str], clips: Location) -> list[str]:
    """A hint at a network whose weights are on this computer, where none is used."""
    from importlib.util import find_spec

    from daco.backbones.weights import SOURCES, find_weights
    from daco.data.table import is_table
    from daco.errors import WeightsError

    if list(backbones) != ["logmel"] or is_table(clips) or find_spec("torch") is None:
        return []
    for name in ("mn04", *SOURCES):  # the quickest first
        try:
            find_weights(name)
        except WeightsError:
            continue
        return [
            f"The network {name} is installed. Beside the views it found 6 more of 100 faults on "
            f"real machines: repeat daco fit with --backbone logmel --backbone {name}."
        ]
    return []


def suspicious_of(models: Iterable[MachineModel], key: str) -> Skipped:
    """Name and reason of normals that are ``left_out``, ``kept`` or ``doubtful``."""
    return tuple(pair for model in models for pair in model.provenance.get(key, {}).items())


def model_paths(machines: Sequence[str], out: Path) -> list[Path]:
    """The model file of each machine; an error where a file exists that is no model."""
    from daco.detector.modelfile import SUFFIX, is_model

    if len(machines) == 1 and not out.is_dir():
        paths = [out]
    else:
        if not out.is_dir() and (out.exists() or out.suffix == SUFFIX):
            raise InputError(
                f"{out} is the name of one file, but there are {len(machines)} machines "
                f"({name_list(machines)}). Give a folder."
            )
        paths = [out / f"{name}{SUFFIX}" for name in safe_names(machines)]
    for path in paths:
        if path.exists() and not is_model(path):
            raise DataError(f"{path} exists already and is not a model. Choose another name.")
    return paths


def safe_names(machines: Sequence[str]) -> list[str]:
    """File names for machines, whatever they are called; all different, also without case.

    >>> safe_names(["fan", "../fan", "Fan", "press 2/old"])
    ['fan', 'fan-2', 'Fan-3', 'press-2-old']
    """
    names: dict[str, str] = {}
    for machine in machines:
        stem = _UNSAFE.sub("-", machine).strip(".-_ ")[:80] or "machine"
        stem = f"{stem}-" if _RESERVED.fullmatch(stem) else stem
        name, number = stem, 1
        while name.casefold() in names:
            number += 1
            name = f"{stem}-{number}"
        names[name.casefold()] = name
    return list(names.values())


def _show_models(
    console: Output, models: Sequence[tuple[MachineModel, Path]], verbose: bool
) -> None:
    """Print the details of a few models, or one line for each of many."""
    if len(models) >= MANY:
        _show_many(console, models, verbose)
        return
    for model, file in models:
        console.write(model.machine, style="bold")
        show_conditions(console, model, verbose=verbose)
        if thinned_from := model.provenance.get("thinned_from"):
            console.write(f"They represent {quantity(thinned_from, 'recording')}.")
        console.write(alarm_limit(model))
        show_expectation(console, model)
        if verbose:
            for line in configuration(model):
                console.write(line)
        sha256 = f", sha256 {model.sha256[:12]}" if verbose else ""
        console.write(f"{file}: {file.stat().st_size / 1000:,.0f} kB{sha256}", wrap=False)
        console.notes(model.warnings(), "warning")


def _show_sensitivity(console: Output, errors: Output, model: MachineModel) -> None:
    """Which faults the model would notice, in three lines; a sentence where it takes too long."""
    from daco.embedding.frontend import Listener
    from daco.synthetic.sensitivity import quick_sensitivity, sentences

    if model.frontend is None or "root" not in model.provenance:
        console.write("daco can measure which faults the model catches only in recordings.")
    elif any(view.backbone != "logmel" for view in model.frontend.views):
        console.write("Run daco sensitivity to measure which faults the model catches.")
    else:
        try:
            with interruptible("The model was written."), progress_bars(errors) as report:
                progress = partial(report, "injecting faults")
                found = quick_sensitivity(model, Listener(model.frontend), progress)
        except NotEnoughClipsError:
            console.write("There are too few recordings to measure which faults the model catches.")
            return
        except DacoError as error:
            console.write(f"daco could not measure which faults the model catches: {error}")
            return
        clips = quantity(int(found.loc[found["fault"] == "", "clips"].sum()), "recording")
        console.write(f"Synthetic faults in {clips}, levels relative to the recording:")
        for sentence in sentences(found):
            console.write(f"- {sentence}")


def _show_many(console: Output, models: Sequence[tuple[MachineModel, Path]], verbose: bool) -> None:
    table = new_table(["machine"], box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("recordings", justify="right")
    if verbose:
        table.add_column("configuration")
        table.add_column("threshold", justify="right", no_wrap=True)
    warnings: Counter[str] = Counter()
    for model, _ in models:
        sizes = sorted(model.domain_sizes.items(), key=lambda item: -item[1])
        thresholds = " ".join(f"{model.thresholds[domain]:.4g}" for domain, _ in sizes)
        cells = ["+".join(str(size) for _, size in sizes), model.config, thresholds]
        table.add_row(escape(printable(model.machine)), *cells[: 3 if verbose else 1])
        warnings.update(model.warnings())
    console.print(table)
    size = sum(path.stat().st_size for _, path in models)
    counted = f"{quantity(models, 'model')}, {size / 1e6:,.1f} MB"
    console.write(f"{models[0][1].parent}: {counted}", wrap=False)
    common = [
        f"{quantity(count, 'machine')}: {text}" for text, count in warnings.most_common(_SHOWN)
    ]
    if len(warnings) > _SHOWN:
        common.append(f"daco inspect shows {len(warnings) - _SHOWN} more of this kind.")
    console.notes(common, "warning")


def _fit_all(
    errors: Output,
    machines: Sequence[Normals],
    targets: Sequence[Path],
    options: dict[str, Any],
    workers: int | None,
    engine: str,
) -> tuple[dict[int, MachineModel], list[Path], dict[int, DacoError]]:
    """Fit each machine and write its model at once.

    Returns the models, the files that keep replaced ones, and the errors of other machines.
    """
    from daco.compute import jobs_for
    from daco.detector.fit import fit_machines
    from daco.files.atomic import replace_file, write_error

    models: dict[int, MachineModel] = {}
    replaced: list[Path] = []
    failures: dict[int, DacoError] = {}
    workers = jobs_for(len(machines), workers, engine)
    with (
        interruptible(lambda: f"{len(models)} of {len(machines)} models were written."),
        progress_bars(errors) as report,
    ):
        for index, model in fit_machines(machines, **options, workers=workers, engine=engine):
            if isinstance(model, DacoError):
                failures[index] = model
            else:
                folder = targets[index].parent
                try:
                    folder.mkdir(exist_ok=True)
                except OSError as error:
                    raise write_error(folder, error) from None
                previous = replace_file(targets[index], model.to_bytes())
                replaced += [] if previous is None else [previous]
                models[index] = model
            report("fitting", len(models) + len(failures), len(machines))
    return models, replaced, failures


def _failure(failures: dict[int, DacoError], total: int) -> DacoError:
    order = sorted(failures)
    first = failures[order[0]]
    if total == 1:
        return first
    head = f"{len(failures)} of {total} machines could not be fitted."
    tail = "The models of the others were written." if len(failures) < total else ""
    return type(first)("\n".join([head, *(str(failures[i]) for i in order), tail]).rstrip())


def _gather(
    errors: Output,
    clips: Location,
    network: dict[str, Any],
    engine: str,
    all_views: bool,
    **options: Any,
) -> NormalsByMachine:
    """The normals of a table, or of recordings with the options of `normals_of_recordings`.

    ``all_views``: where no readout is named, those of the network without weights are views too.
    """
    from daco.audio.microphones import parse_channel
    from daco.data.table import is_table
    from daco.embedding.normals import normals_of_recordings, normals_of_table

    if is_table(clips):
        levels = options["machine_level"], options["domain_level"]
        given = (*network.values(), options["channel"], *levels)
        if given != ("logmel", None, "cpu", "0", None, None):
            raise InputError(
                f"{clips} contains embeddings. --backbone, --weights, --channel, --device, "
                "--machine-level and --domain-level are for recordings: leave them out."
            )
        chosen = {name: options[name] for name in ("readout", "session_by")}
        return normals_of_table(clips, all_views=all_views, **chosen)
    options["channel"] = parse_channel(options["channel"])
    by_default = all_views and options["readout"] is None
    if by_default and "logmel" not in network["backbone"].split("+"):
        network["backbone"] += "+logmel"
    net = load_network(errors, engine=engine, **network)
    if by_default and len(net.networks) == 1:
        options["readout"] = "+".join(net.default_views)
    advice = "Finished work is kept; the same command continues it." if options["keep"] else ""
    with interruptible(advice), progress_bars(errors) as report:
        return normals_of_recordings(
            clips,
            net,
            progress=partial(report, "embedding"),
            engine=engine,
            weights=network["weights"],
            device=network["device"],
            understood=lambda text: errors.notes([text]),
            **options,
        )
