"""``daco update``: more normals for a model, without training."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from daco.commands import options as shared
from daco.commands.console import (
    Output,
    progress_bars,
    show_skipped,
)
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
    flag,
    location_argument,
    option,
    require_folder,
)
from daco.errors import DataError, InputError
from daco.files.atomic import PREVIOUS, replace_file
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.embedding.normals import Normals, NormalsByMachine


def update(
    model: shared.ModelPath,
    normals: Annotated[
        Location | None,
        location_argument(
            "Add these normal recordings (a file, folder or manifest) or embeddings."
        ),
    ] = None,
    domain: Annotated[
        str | None, option("Add them to this operating condition, which may be new.")
    ] = None,
    remove: Annotated[
        list[str] | None,
        option("Remove the normal with this name. Repeat it for more."),
    ] = None,
    undo: Annotated[bool, flag("--undo", "Go back to the model before the last change.")] = False,
    out: Annotated[Path | None, option("Write the model here instead of replacing MODEL.")] = None,
    keep_suspicious: shared.KeepSuspicious = False,
    and_calibrate: Annotated[
        bool, flag("--and-calibrate", "Set the alarm limit from the new clips, too.")
    ] = False,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    on_error: shared.OnErrorOption = OnError.skip,
    domain_level: shared.DomainLevel = None,
    session_by: shared.SessionBy = None,
    verbose: shared.Verbose = False,
) -> None:
    """Add normal recordings to a model, remove some, or undo the last change.

    daco takes training clips, and other clips only where there are no training clips. It never
    takes clips that are labelled as anomalies. The configuration and the false-alarm rate stay.
    Clips that the model already has are left out, so repeating an update changes nothing. Clips
    that are silent, clipped, of another sample rate or length, unlike all others, or outside the
    usual levels of a known domain are left out, too. Anomalous clips of a known domain are an
    error. --keep-suspicious adds all of them. With --and-calibrate the new clips, from one
    recording session, also set the threshold of their domain: each half of them is judged by the
    other normals. MODEL.previous keeps the replaced model for --undo.

    Exit codes: 0 success, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.commands.fit import model_paths
    from daco.detector.model import MachineModel, timestamp
    from daco.detector.ranges import ranges_of, widen_ranges
    from daco.detector.revision import add_normals, remove_normals

    console, errors = Output(), Output(stderr=True)
    adds = normals is not None
    if adds + bool(remove) + undo != 1 or (domain is not None and not adds):
        raise InputError(
            "Give one of the three: NORMALS with --domain to add clips, or --remove, or --undo."
        )
    if adds and domain is None:
        raise InputError("Give the domain of the new clips with --domain. It may be a new one.")
    if (undo and out is not None) or (and_calibrate and not adds):
        raise InputError("Use --undo without --out, and --and-calibrate only with new NORMALS.")
    require_folder(out)
    before = MachineModel.load(model)
    target = model if out is None else model_paths([before.machine], out)[0]
    if undo:
        _undo(console, model)
        return
    if normals is None or domain is None:
        save_model(console, before, remove_normals(before, remove or []), target, verbose)
        return
    gathered = gather_normals(
        errors, before, normals, weights, device, on_error, domain_level, session_by
    )
    errors.notes(gathered.warnings)
    clips = normals_of_machine(before, gathered)
    clips = clips.take(_rows_of_domain(errors, clips, domain))
    clips = replace(clips, domains=(domain,) * len(clips))
    clips, left = usable_normals(errors, before, clips, keep_suspicious)
    if not len(clips):
        console.write("There is nothing to add. The model stays as it is.")
        return
    taken, source = set(before.clip_names), clips.origin.get("source", "new")
    sessions = clips.sessions  # of their own where the model has sessions and they do not
    if before.sessions and not sessions:
        sessions = (f"added {timestamp()}",) * len(clips)
    anomalous = _anomalous(errors, before, clips, domain, keep_suspicious)
    after = add_normals(
        before,
        clips.embeddings,
        domain,
        [f"{source}/{name}" if name in taken else name for name in clips.names],
        calibrate=and_calibrate,
        note={**clips.origin, "anomalous": len(anomalous), "forced": keep_suspicious},
        clip_sha256=clips.sha256s,
        ranges=widen_ranges(before.ranges, ranges_of(clips)),
        sessions=sessions,
    )
    if not and_calibrate and len(after.new_names) < len(before.new_names):
        moved = quantity(len(before.new_names) - len(after.new_names), "clip")
        errors.notes([f"{moved} of the last calibration became part of the normals."])
    save_model(console, before, after, target, verbose)
    show_skipped(console, (*gathered.skipped, *left), code=shared.SKIPPED_EXIT)


def usable_normals(
    errors: Output, model: MachineModel, clips: Normals, keep: bool
) -> tuple[Normals, list[tuple[str, str]]]:
    """The new clips without copies and suspicious ones, and names and reasons of the latter.

    A copy is never used: it and its original would have distance 0, which the calibration would
    take for the usual distance of normals.
    """
    from daco.detector.gate import find_copies, require_few, suspicious_normals

    if copies := find_copies(clips, model):
        names = name_list(f"{clips.names[row]} (of {name})" for row, name in copies.items())
        errors.notes([f"Left out {quantity(copies, 'copy', 'copies')}: {names}."])
        clips = clips.take([row for row in range(len(clips)) if row not in copies])
    suspicious = suspicious_normals(clips, model)
    left = [(clips.names[row], reason) for row, reason in suspicious.items()]
    if keep:
        errors.notes(f"Kept {name}: {reason}" for name, reason in left)
        return clips, []
    require_few(clips, suspicious)
    return clips.take([row for row in range(len(clips)) if row not in suspicious]), left


def _anomalous(
    errors: Output, model: MachineModel, clips: Normals, domain: str, force: bool
) -> list[str]:
    """The clips that sound anomalous to the model, which is an error in a known domain."""
    scored = model.score(clips.embeddings)
    own = model.bank.leave_one_out("raw-k1")[:, 0]
    close = 0.5 * own[own > 0].min(initial=float("inf"))
    for name, distance, nearest in zip(clips.names, scored.distance, scored.nearest, strict=True):
        if distance < close < float("inf"):
            known = model.clip_names[nearest]
            errors.notes([f"{name} may be a copy of {known}: no two normals are as similar."])
    anomalous = [name for name, odd in zip(clips.names, scored.anomalous, strict=True) if odd]
    if domain not in model.domains:
        errors.notes(
            [
                f"{domain} is a new domain beside {name_list(model.domains)}. The model finds "
                f"{len(anomalous)} of its {quantity(clips.names, 'clip')} anomalous. A new "
                "condition can cause this, but make sure that the clips are normal."
            ]
        )
    elif anomalous:
        sentence = (
            f"The model finds {len(anomalous)} of {len(clips)} new clips anomalous (about "
            f"{model.false_alarm_rate * len(clips):.1f} if all were normal): "
            f"{name_list(anomalous, 10)}."
        )
        if not force:
            raise InputError(
                f"{sentence} Listen to them. A fault among the normals hides all faults like it. "
                "If the clips are normal, add them with --keep-suspicious."
            )
        errors.notes([f"{sentence} They were added because of --keep-suspicious."])
    return anomalous


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
    from daco.data.table import EmbeddingTable, is_table
    from daco.embedding.frontend import Listener
    from daco.embedding.normals import (
        normals_of_recordings,
        normals_of_table,
        readout_for,
        require_alike,
    )

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
            f"The new clips belong to {len(names)} machines ({name_list(names)}), and none of them "
            f"is {model.machine!r}. Give the clips of one machine; if the folders are operating "
            "conditions, use --domain-level 1."
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
            f"The new clips have the domains {name_list(names)}, and none of them is {domain!r}. "
            "Give the clips of one domain."
        )
    left = len(clips) - len(rows)
    errors.notes([f"Left out {quantity(left, 'clip')} of other domains than {domain}."])
    return rows


def save_model(
    console: Output,
    before: MachineModel,
    after: MachineModel,
    path: Path,
    verbose: bool,
    done: str = "",
) -> None:
    """Write the new model, keep the one that it replaces, and show what was `done`."""
    from daco.detector.gate import require_detection

    require_detection(after)
    previous = replace_file(path, after.to_bytes())
    more = len(after) - len(before)
    how = "Added" if more > 0 else "Removed"
    console.write(after.machine, style="bold")
    added = f"{how} {quantity(abs(more), 'recording')}. There are now {len(after)}."
    console.write(done or added)
    show_conditions(console, after, before, verbose)
    console.write(alarm_limit(after))
    show_expectation(console, after)
    if verbose:
        for line in configuration(after):
            console.write(line)
        console.write(f"{path}: sha256 {before.sha256[:12]} -> {after.sha256[:12]}", wrap=False)
    show_replaced(console, [] if previous is None else [previous])
    console.notes(after.warnings(), "warning")


def _undo(console: Output, path: Path) -> None:
    """Swap a model and its previous version."""
    from daco.detector.model import MachineModel

    previous = path.with_name(path.name + PREVIOUS)
    if not previous.exists():
        raise DataError(f"{path} has no previous version: there is no {previous.name} beside it.")
    after = MachineModel.load(previous)
    replace_file(path, previous.read_bytes())
    normals = quantity(len(after), "healthy recording")
    console.write(f"The model has {normals} again. {previous.name} holds the other version.")
