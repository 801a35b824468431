"""``daco fit``: normal recordings to a model file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from daco.commands.embed import SKIPPED_EXIT, OnError
from daco.commands.modeltext import note, say, show_domains, show_skipped
from daco.commands.options import DomainLevel
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.commands.progress import stages
from daco.detector.thresholds import FALSE_ALARM_RATE, require_rate
from daco.errors import DacoError, DataError, InputError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.normals import Gathered, Normals

_SHOWN = 5
_UNSAFE = re.compile(r"[^\w.-]+")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def fit(
    clips: Annotated[
        Place,
        typer.Argument(
            help="Normal recordings: a folder, DCASE data set or manifest; or their embeddings.",
            parser=as_place,
        ),
    ],
    out: Annotated[
        Place, typer.Option(help="The model file; a folder for several machines.", parser=as_place)
    ],
    backbone: Annotated[str, typer.Option(help="Frozen network, such as mn04.")] = "logmel",
    weights: Annotated[Path | None, typer.Option(help="Checkpoint, if not downloaded.")] = None,
    config: Annotated[
        str, typer.Option(help="auto chooses from the normals; recommended; or a name.")
    ] = "auto",
    false_alarm_rate: Annotated[
        float, typer.Option(help="Share of normals of each domain that may be flagged.")
    ] = FALSE_ALARM_RATE,
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
        Place | None,
        typer.Option(help="Keep them in this .parquet; resumes after a kill.", parser=as_place),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that fit. Default: one per core from 40 machines on.", min=1),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where clips and machines are worked on: local, or ray.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray cluster: auto, host:6379 or ray://host:10001.")
    ] = None,
    domain_level: DomainLevel = None,
) -> None:
    """Fit a detector to normal recordings: one model file per machine.

    Only training clips are read, and none that is labelled an anomaly. Nothing is trained.
    A machine that cannot be fitted is named at the end; the models of the others are written.

    Exit codes: 0 all well, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.compute import require_engine

    console, errors = Output(), Output(stderr=True)
    require_engine(engine, address)
    require_rate(false_alarm_rate)
    _require_config(config)
    if isinstance(out, Path) and not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder. Create it, or choose another --out.")
    with _connection(engine, address):
        gathered = _gather(
            errors,
            clips,
            backbone,
            weights,
            readout,
            channel,
            device,
            on_error,
            keep_embeddings,
            engine,
            domain_level,
        )
        note(errors, gathered.oddities)
        targets = model_paths([each.machine for each in gathered.machines], out)
        made, failures = _fit_all(
            errors, gathered.machines, targets, config, false_alarm_rate, workers, engine
        )
    show_models(console, made, targets)
    show_skipped(console, gathered.skipped)
    if failures:
        raise _failed(failures, len(targets))
    if gathered.skipped:
        raise typer.Exit(SKIPPED_EXIT)


def model_paths(machines: Sequence[str], out: Place) -> list[Place]:
    """Where the model of each machine goes; what is not a model is never replaced."""
    from daco.detector.modelfile import SUFFIX, is_model

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


def show_models(console: Console, made: dict[int, MachineModel], targets: list[Place]) -> None:
    """All that there is to say about a few models; one line for each of many."""
    from daco.compute.processes import MANY

    models = [(made[index], targets[index]) for index in sorted(made)]
    if len(targets) < MANY:
        for model, path in models:
            show_fit(console, model, path)
            note(console, model.cautions(), "caution")
    elif models:
        _show_many(console, models)


def show_fit(console: Console, model: MachineModel, file: Place) -> None:
    """What was made, why so, and what it will do."""
    say(console, model.machine, style="bold")
    say(console, f"configuration {model.config}: {model.reason}")
    show_domains(console, model)
    say(
        console,
        f"threshold {model.threshold:.4g} for a false-alarm rate of {model.false_alarm_rate:g} in "
        "each domain",
    )
    size = file.stat().st_size
    say(console, f"{file}: {size / 1000:,.0f} kB, sha256 {model.sha256[:12]}", wrap=False)


def _show_many(console: Console, models: Sequence[tuple[MachineModel, Place]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from daco.commands.modeltext import printable

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("machine", overflow="fold")
    table.add_column("normals", justify="right")
    table.add_column("configuration")
    for heading in ("threshold", "flagged"):
        table.add_column(heading, justify="right", no_wrap=True)
    cautions: Counter[str] = Counter()
    for model, _ in models:
        sizes = model.domain_sizes
        flagged = sum(
            round(rate * sizes[name]) for name, rate in model.leave_one_out_rates().items()
        )
        clips = "+".join(str(size) for size in sorted(sizes.values(), reverse=True))
        name = escape(printable(model.machine))
        table.add_row(name, clips, model.config, f"{model.threshold:.4g}", str(flagged))
        cautions.update(model.cautions())
    console.print(table)
    size = sum(path.stat().st_size for _, path in models)
    configs = Counter(model.config for model, _ in models).most_common()
    chosen = ", ".join(f"{config} {count:,}" for config, count in configs[:_SHOWN])
    rest = f" and {len(configs) - _SHOWN} more" if len(configs) > _SHOWN else ""
    say(console, f"configurations: {chosen}{rest}")
    say(
        console,
        f"{models[0][1].parent}: {quantity(models, 'model')}, {size / 1e6:,.1f} MB",
        wrap=False,
    )
    for text, count in cautions.most_common(_SHOWN):
        note(console, [f"{quantity(count, 'machine')}: {text}"], "caution")
    if len(cautions) > _SHOWN:
        note(console, [f"{len(cautions) - _SHOWN} more of this kind; see daco inspect"], "caution")


def _fit_all(
    errors: Console,
    machines: Sequence[Normals],
    targets: Sequence[Place],
    config: str,
    false_alarm_rate: float,
    workers: int | None,
    engine: str,
) -> tuple[dict[int, MachineModel], dict[int, DacoError]]:
    """Each model written when it is ready, and what was wrong with those that are missing."""
    from daco.compute.processes import SCORING, worker_pool, workers_for
    from daco.detector.fit import fit_machines

    made: dict[int, MachineModel] = {}
    failures: dict[int, DacoError] = {}
    workers = workers_for(len(machines), workers, engine)
    try:
        with stages(errors) as progress, worker_pool(workers, engine, None, SCORING) as pool:
            found = fit_machines(
                machines, config=config, false_alarm_rate=false_alarm_rate, pool=pool
            )
            for index, model in found:
                if isinstance(model, DacoError):
                    failures[index] = model
                else:
                    _create(targets[index].parent)
                    model.save(targets[index])
                    made[index] = model
                progress("fitting", len(made) + len(failures), len(machines))
    except KeyboardInterrupt:
        errors.print(f"Interrupted. {len(made)} of {len(machines)} models were written.")
        raise typer.Exit(130) from None
    return made, failures


def _create(folder: Place) -> None:
    from daco.files.atomic import write_error

    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None


def _failed(failures: dict[int, DacoError], total: int) -> DacoError:
    order = sorted(failures)
    first = failures[order[0]]
    if total == 1:
        return first
    head = f"{len(failures)} of {total} machines could not be fitted."
    tail = "The models of the others were written." if len(failures) < total else ""
    return type(first)("\n".join([head, *(str(failures[i]) for i in order), tail]).rstrip())


@contextmanager
def _connection(engine: str, address: str | None) -> Iterator[None]:
    """One connection for the embedding and the fits."""
    if engine != "ray":
        yield
        return
    from daco.compute.ray import connected

    with connected(address):
        yield


def _gather(
    errors: Console,
    clips: Place,
    backbone: str,
    weights: Path | None,
    readout: str | None,
    channel: str,
    device: str,
    on_error: OnError,
    keep: Place | None,
    engine: str,
    domain_level: int | None,
) -> Gathered:
    from daco.audio.microphones import parse_channel
    from daco.backbones import load
    from daco.detector.normals import is_table, normals_of_recordings, normals_of_table

    if is_table(clips):
        given = (backbone, weights, channel, device, domain_level)
        if given != ("logmel", None, "0", "cpu", None):
            raise InputError(
                f"{clips} holds embeddings, made already. --backbone, --weights, --channel, "
                "--device and --domain-level are for recordings: leave them out."
            )
        return normals_of_table(clips, readout=readout)
    policy = parse_channel(channel)
    with errors.status(f"loading {backbone}..."):
        # Workers of a cluster load it themselves; here it only tells what it is.
        here = device if engine == "local" else "cpu"
        net = load(backbone, weights=weights, device=here)
    place = None
    if engine == "ray":
        from daco.embedding.cluster import RayEmbedding

        place = RayEmbedding(net, weights=weights, device=device)
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
                engine=place,
                domain_level=domain_level,
            )
    except KeyboardInterrupt:
        kept = "Finished work is kept; the same command goes on." if keep else ""
        errors.print(f"Interrupted. {kept}".rstrip())
        raise typer.Exit(130) from None


def _require_config(config: str) -> None:
    """A wrong name is said before an hour of embedding."""
    from daco.detector.model import AUTO, RECOMMENDED
    from daco.detector.modelcheck import require_usable

    if config not in (AUTO, RECOMMENDED):
        require_usable(config)
