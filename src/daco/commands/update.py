"""``daco update``: more normals for a model, without training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daco.commands import options as shared
from daco.commands.console import Output, progress_bars, show_basis, show_domains, show_skipped
from daco.commands.options import Location, OnError, flag, location_argument, option
from daco.errors import DataError, InputError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.normals import Normals, NormalsByMachine


def update(
    model: shared.ModelPath,
    normals: Annotated[
        Location,
        location_argument("New normal recordings: a file, folder or manifest; or embeddings."),
    ],
    domain: Annotated[str, option("Domain of the new clips, known or new.")],
    out: Annotated[Path | None, option("Write the model here instead of replacing MODEL.")] = None,
    force: Annotated[bool, flag("--force", "Also add clips that sound anomalous.")] = False,
    and_calibrate: Annotated[
        bool, flag("--and-calibrate", "Judge by the new clips too: each half by the other half.")
    ] = False,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    on_error: shared.OnErrorOption = OnError.fail,
    domain_level: shared.DomainLevel = None,
    session_by: shared.SessionBy = None,
) -> None:
    """Add normal recordings to a model and calibrate it again; nothing is trained.

    Training clips are taken, and none that is labelled an anomaly; other clips only where there
    is no training clip. The configuration and the false-alarm rate stay. Clips that the bank holds
    already are left out, so that the same update twice changes nothing; clips of a known domain
    that sound anomalous to the model are named and need --force. With --and-calibrate the new
    clips, of one recording session, decide what is anomalous in their domain.

    Exit codes: 0 all well, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.commands.fit import model_paths
    from daco.detector.model import MachineModel
    from daco.detector.ranges import learn_ranges, widen_ranges
    from daco.detector.revision import add_normals

    console, errors = Output(), Output(stderr=True)
    before = MachineModel.load(model)
    target = model if out is None else model_paths([before.machine], out)[0]
    gathered = gather_normals(
        errors, before, normals, weights, device, on_error, domain_level, session_by
    )
    errors.notes(gathered.oddities)
    clips = normals_of_machine(before, gathered)
    new = newcomers(before, clips, _rows_of_domain(errors, clips, domain))
    errors.notes(new.similar)
    if new.known:
        listed = f"{quantity(new.known, 'clip')} left out, in the bank already"
        errors.notes([f"{listed}: {name_list(new.known)}."])
    if domain not in before.domains:
        errors.notes(
            [
                f"{domain} is a new domain beside {name_list(before.domains)}. "
                f"{len(new.anomalous)} of its {quantity(new.rows, 'clip')} sound anomalous to the "
                "model so far, as those of a new condition may: be sure that they are normal."
            ]
        )
    elif new.anomalous:
        _refuse_or_note(errors, before, new, force)
    if not new.rows:
        console.write("Nothing to add: the model stays as it is.")
        return
    levels = None if clips.levels is None else clips.levels[new.rows]
    more = None if levels is None else learn_ranges(levels, clips.sample_rates)
    after = add_normals(
        before,
        clips.embeddings[new.rows],
        domain,
        _unused_names(before, [clips.names[row] for row in new.rows], clips.origin),
        calibrate=and_calibrate,
        note={**clips.origin, "anomalous": len(new.anomalous), "forced": force},
        clip_sha256=[clips.sha256s[row] for row in new.rows] if clips.sha256s else (),
        ranges=widen_ranges(before.ranges, more),
        sessions=_sessions(errors, before, clips, new.rows),
    )
    after.save(target)
    _show(console, before, after, target)
    show_skipped(console, gathered.skipped)
    if gathered.skipped:
        raise typer.Exit(shared.SKIPPED_EXIT)


@dataclass(frozen=True)
class Newcomers:
    """Rows of the new clips to add, and names of those that are copies or sound anomalous."""

    rows: list[int]
    known: list[str]
    similar: list[str]
    anomalous: list[str]


def newcomers(model: MachineModel, clips: Normals, rows: list[int]) -> Newcomers:
    """Compare the new clips with the model as it is: copies, near copies, anomalies.

    A copy is never added: it and its original would have distance 0, which the calibration would
    take for the usual distance of normals. Of several views all must be those of one normal.
    """
    from daco.method.distances import equal_views

    scored = model.score(clips.embeddings[rows])
    known = {row.tobytes() for row in equal_views(model.embeddings, model.bands)}
    unit = equal_views(clips.embeddings[rows], model.bands)
    own = model.bank.leave_one_out("raw-k1")[:, 0]
    close = 0.5 * own[own > 0].min(initial=float("inf"))
    seen: set[bytes] = set()
    new = Newcomers([], [], [], [])
    for at, row in enumerate(rows):
        name, content = clips.names[row], clips.embeddings[row].tobytes()
        distance = scored.nearest_distance[at]
        copy = distance == 0 and (isinstance(model.bands, int) or unit[at].tobytes() in known)
        if copy or content in seen:
            new.known.append(name)
            continue
        if 0 < distance < close < float("inf"):
            nearest = model.clip_names[scored.nearest[at]]
            new.similar.append(f"{name} is closer to {nearest} than any two normals: a copy of it?")
        seen.add(content)
        if scored.alarms[at]:
            new.anomalous.append(name)
        new.rows.append(row)
    return new


def gather_normals(
    errors: Output,
    model: MachineModel,
    source: Location,
    weights: Path | None,
    device: str,
    on_error: OnError,
    domain_level: int | None,
    session_by: str | None,
) -> NormalsByMachine:
    """New normals of a table or of recordings, embedded as those of a model."""
    from daco.data.table import EmbeddingTable
    from daco.detector.normals import (
        is_table,
        normals_of_recordings,
        normals_of_table,
        readout_for,
        require_alike,
    )
    from daco.embedding.frontend import Listener

    frontend = model.frontend
    if is_table(source):
        if domain_level is not None:
            raise InputError(
                f"{source} contains embeddings. --domain-level is for recordings: leave it out."
            )
        readout = readout_for(EmbeddingTable.read(source), frontend, model.readout, source)
        gathered = normals_of_table(source, readout=readout, training=False, session_by=session_by)
        require_alike(gathered.machines[0].frontend, frontend, source)
        return gathered
    listener = Listener(frontend, weights=weights, device=device)
    with progress_bars(errors) as report:
        return normals_of_recordings(
            source,
            listener.net,
            readout="+".join(listener.readouts),
            channel=listener.frontend.channel,
            training=False,
            on_error=on_error.value,
            progress=partial(report, "embedding"),
            domain_level=domain_level,
            session_by=session_by,
        )


def normals_of_machine(model: MachineModel, gathered: NormalsByMachine) -> Normals:
    """The new normals of a model's machine; of any name, if there is only one machine."""
    names = [each.machine for each in gathered.machines]
    if names.count(model.machine) == 1:
        return gathered.machines[names.index(model.machine)]
    if len(names) > 1:
        raise DataError(
            f"The new clips are of {len(names)} machines ({name_list(names)}), none of them "
            f"{model.machine!r}. Give those of one machine."
        )
    return gathered.machines[0]


def _rows_of_domain(errors: Output, clips: Normals, domain: str) -> list[int]:
    """Rows that belong to the domain; clips of a single domain may have any other name."""
    names = sorted(set(clips.domains))
    if len(names) == 1:
        return list(range(len(clips)))
    rows = [row for row, name in enumerate(clips.domains) if name == domain]
    if not rows:
        raise DataError(
            f"The new clips are of the domains {name_list(names)}, none of them {domain!r}. Give "
            "those of one domain."
        )
    left = len(clips) - len(rows)
    errors.notes([f"{quantity(left, 'clip')} of other domains than {domain} left out."])
    return rows


def _refuse_or_note(errors: Output, model: MachineModel, new: Newcomers, force: bool) -> None:
    expected = model.false_alarm_rate * len(new.rows)
    sentence = (
        f"{len(new.anomalous)} of {len(new.rows)} new clips sound anomalous to the model "
        f"(about {expected:.1f} normal ones would): {name_list(new.anomalous, 10)}."
    )
    if not force:
        raise InputError(
            f"{sentence} Listen to them. An anomaly in the bank hides all like it; if they are "
            "normal, add them with --force."
        )
    errors.notes([f"{sentence} Added, as --force asks."])


def _unused_names(model: MachineModel, names: list[str], origin: dict[str, object]) -> list[str]:
    taken = set(model.clip_names)
    prefix = str(origin.get("source", "new"))
    return [f"{prefix}/{name}" if name in taken else name for name in names]


def _sessions(errors: Output, model: MachineModel, clips: Normals, rows: list[int]) -> list[str]:
    """Sessions of the new clips: one of their own where the model has sessions and they do not."""
    from daco.detector.model import timestamp

    if clips.sessions or not model.sessions:
        return [clips.sessions[row] for row in rows] if clips.sessions else []
    errors.notes(["The new clips count as one recording session; --session-by finds several."])
    return [f"added {timestamp()}"] * len(rows)


def _show(console: Output, before: MachineModel, after: MachineModel, path: Location) -> None:
    console.write(after.machine, style="bold")
    console.write(f"{quantity(len(after) - len(before), 'normal')} added, {len(after)} in all.")
    show_domains(console, after, before)
    console.write(f"configuration {after.config} as before")
    show_basis(console, after)
    console.write(f"{path}: sha256 {before.sha256[:12]} -> {after.sha256[:12]}", wrap=False)
    console.notes(after.cautions(), "caution")
