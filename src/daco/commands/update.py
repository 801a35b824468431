"""``daco update``: more normals for a model, no training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console

from daco.commands.embed import SKIPPED_EXIT, OnError
from daco.commands.modeltext import note, say, show_domains, show_skipped
from daco.commands.options import DomainLevel
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.commands.progress import stages
from daco.errors import DataError, InputError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.normals import Gathered, Normals


@dataclass(frozen=True)
class Newcomers:
    """Which of the new clips to add, and what to say about them."""

    rows: tuple[int, ...]
    known: tuple[str, ...]
    similar: tuple[str, ...]
    anomalous: tuple[str, ...]


def update(
    model: Annotated[Path, typer.Argument(help="A model made by daco fit.")],
    normals: Annotated[
        Place,
        typer.Argument(
            help="New normal recordings: file, folder, manifest; or embeddings.", parser=as_place
        ),
    ],
    domain: Annotated[str, typer.Option(help="The domain of the new clips, known or new.")],
    out: Annotated[Path | None, typer.Option(help="Write here instead of replacing MODEL.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Add clips that sound anomalous, too.")
    ] = False,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint, if not downloaded.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    on_error: Annotated[
        OnError, typer.Option(help="At a file that cannot be used: stop, or leave it out.")
    ] = OnError.fail,
    domain_level: DomainLevel = None,
) -> None:
    """Add normal recordings to a model and calibrate it again; nothing is trained.

    Training clips are taken, and none that is labelled an anomaly; other clips only where there
    is no training clip. The configuration and the false-alarm rate stay. Clips that the bank holds
    already are left out, so that the same update twice changes nothing; clips of a known domain
    that sound anomalous to the model are named and need --force.

    Exit codes: 0 all well, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.commands.fit import model_paths
    from daco.detector.model import MachineModel

    console, errors = Output(), Output(stderr=True)
    before = MachineModel.load(model)
    target = model if out is None else model_paths([before.machine], out)[0]
    gathered = _gather(errors, before, normals, weights, device, on_error, domain_level)
    note(errors, gathered.oddities)
    clips = _of_machine(before, gathered)
    rows = _of_domain(errors, clips, domain)
    found = newcomers(before, clips, rows)
    note(errors, found.similar)
    if found.known:
        listed = f"{quantity(found.known, 'clip')} left out, in the bank already"
        note(errors, [f"{listed}: {name_list(found.known)}."])
    if domain not in before.domains:
        _announce(errors, before, domain, found)
    elif found.anomalous:
        _refuse_or_note(errors, before, found, force)
    if not found.rows:
        say(console, "Nothing to add: the model stays as it is.")
        return
    names = _new_names(before, [clips.names[row] for row in found.rows], clips.origin)
    after = before.updated(
        clips.embeddings[list(found.rows)],
        domain,
        names,
        note={**clips.origin, "anomalous": len(found.anomalous), "forced": force},
        clip_sha256=[clips.sha256s[row] for row in found.rows] if clips.sha256s else (),
    )
    after.save(target)
    _show(console, before, after, target)
    show_skipped(console, gathered.skipped)
    if gathered.skipped:
        raise typer.Exit(SKIPPED_EXIT)


def newcomers(model: MachineModel, clips: Normals, rows: list[int]) -> Newcomers:
    """Judge the new clips with the model as it is: copies, near copies, anomalies.

    A copy is never added: each of the two would find the other at distance 0, and the calibration
    would take that for how close normals are.
    """
    scored = model.score(clips.embeddings[rows])
    own = model.bank.leave_one_out("raw-k1")[:, 0]
    close = 0.5 * float(own[own > 0].min(initial=np.inf))
    seen: set[bytes] = set()
    add, known, similar, anomalous = [], [], [], []
    for at, row in enumerate(rows):
        name, content = clips.names[row], clips.embeddings[row].tobytes()
        nearest = model.clip_names[scored.nearest[at]]
        if scored.nearest_distance[at] == 0 or content in seen:
            known.append(name)
            continue
        if scored.nearest_distance[at] < close < np.inf:
            similar.append(f"{name} is closer to {nearest} than any two normals: a copy of it?")
        seen.add(content)
        if scored.alarms[at]:
            anomalous.append(name)
        add.append(row)
    return Newcomers(tuple(add), tuple(known), tuple(similar), tuple(anomalous))


def _gather(
    errors: Console,
    model: MachineModel,
    source: Place,
    weights: Path | None,
    device: str,
    on_error: OnError,
    domain_level: int | None,
) -> Gathered:
    from daco.detector.normals import (
        is_table,
        normals_of_recordings,
        normals_of_table,
        require_alike,
    )
    from daco.embedding.frontend import Listener

    frontend = model.frontend
    if is_table(source):
        if domain_level is not None:
            raise InputError(
                f"{source} holds embeddings. --domain-level is for recordings: leave it out."
            )
        readout = frontend.readout if frontend else None
        gathered = normals_of_table(source, readout=readout, training=False)
        require_alike(gathered.machines[0].frontend, frontend, source)
        return gathered
    listener = Listener(frontend, weights=weights, device=device)
    with stages(errors) as progress:
        return normals_of_recordings(
            source,
            listener.net,
            readout=listener.frontend.readout,
            channel=listener.frontend.channel,
            training=False,
            on_error=on_error.value,
            progress=lambda done, total: progress("embedding", done, total),
            domain_level=domain_level,
        )


def _of_machine(model: MachineModel, gathered: Gathered) -> Normals:
    named = [each for each in gathered.machines if each.machine == model.machine]
    if len(named) == 1:
        return named[0]
    if len(gathered.machines) > 1:
        raise DataError(
            f"The new clips are of {len(gathered.machines)} machines "
            f"({name_list([each.machine for each in gathered.machines])}), none of them "
            f"{model.machine!r}. Give those of one machine."
        )
    return gathered.machines[0]


def _of_domain(errors: Console, clips: Normals, domain: str) -> list[int]:
    """Rows that belong to the domain; clips of a single one are what the user says they are."""
    found = sorted(set(clips.domains))
    if len(found) == 1:
        return list(range(len(clips)))
    rows = [row for row, name in enumerate(clips.domains) if name == domain]
    if not rows:
        raise DataError(
            f"The new clips are of the domains {name_list(found)}, none of them {domain!r}. Give "
            "those of one domain."
        )
    left = len(clips) - len(rows)
    note(errors, [f"{quantity(left, 'clip')} of other domains than {domain} left out."])
    return rows


def _announce(errors: Console, model: MachineModel, domain: str, found: Newcomers) -> None:
    note(
        errors,
        [
            f"{domain} is a new domain beside {name_list(model.domains)}. {len(found.anomalous)} "
            f"of its {quantity(found.rows, 'clip')} sound anomalous to the model so far, as those "
            "of a new condition may: be sure that they are normal."
        ],
    )


def _refuse_or_note(errors: Console, model: MachineModel, found: Newcomers, force: bool) -> None:
    expected = model.false_alarm_rate * len(found.rows)
    sentence = (
        f"{len(found.anomalous)} of {len(found.rows)} new clips sound anomalous to the model "
        f"(about {expected:.1f} normal ones would): {name_list(found.anomalous, 10)}."
    )
    if not force:
        raise InputError(
            f"{sentence} Listen to them. An anomaly in the bank hides all like it; if they are "
            "normal, add them with --force."
        )
    note(errors, [f"{sentence} Added, as --force asks."])


def _new_names(model: MachineModel, names: list[str], origin: dict[str, object]) -> list[str]:
    """Names that tell the new clips from those of the bank."""
    taken = set(model.clip_names)
    prefix = str(origin.get("source", "new"))
    return [f"{prefix}/{name}" if name in taken else name for name in names]


def _show(console: Console, before: MachineModel, after: MachineModel, path: Place) -> None:
    say(console, after.machine, style="bold")
    say(console, f"{quantity(len(after) - len(before), 'normal')} added, {len(after)} in all.")
    show_domains(console, after, before)
    say(
        console,
        f"threshold {before.threshold:.4g} -> {after.threshold:.4g} for a false-alarm rate of "
        f"{after.false_alarm_rate:g}; configuration {after.config} as before.",
    )
    say(console, f"{path}: sha256 {before.sha256[:12]} -> {after.sha256[:12]}", wrap=False)
    note(console, after.cautions(), "caution")
