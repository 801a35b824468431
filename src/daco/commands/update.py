"""``daco update``: more normals for a model, without training."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from daco.commands import options as shared
from daco.commands.console import Output, progress_bars, show_skipped
from daco.commands.models import show_files, show_model
from daco.commands.options import (
    Location,
    flag,
    location_argument,
    option,
    require_folder,
)
from daco.errors import InputError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.embedding.normals import Normals, Skipped


def update(
    model: shared.ModelPath,
    normals: Annotated[
        Location | None, location_argument("Add these normal recordings, or their embeddings.")
    ] = None,
    domain: Annotated[str | None, option("Add them to this operating condition.")] = None,
    remove: Annotated[list[str] | None, option("Remove this normal. Repeat it for more.")] = None,
    undo: Annotated[bool, flag("--undo", "Go back to the model before the last change.")] = False,
    out: Annotated[Path | None, option("Write the model here instead of replacing it.")] = None,
    keep_suspicious: shared.KeepSuspicious = False,
    and_calibrate: Annotated[bool, flag("--and-calibrate", "Set the alarm limit, too.")] = False,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
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
    from daco.detector import additions, revision
    from daco.detector.model import MachineModel

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
    before = MachineModel.load(model)
    target = target_of(before, model, out)
    if undo:
        found = quantity(len(revision.undo(model)), "healthy recording")
        console.write(f"The model has {found} again. --undo once more restores the other version.")
        return
    if normals is None or domain is None:
        after = revision.remove_normals(before, remove or [])
        removed = quantity(len(before) - len(after), "recording")
        done = f"Removed {removed}. There are now {len(after)}."
        save_model(console, before, after, target, verbose, done)
        return
    clips, skipped = gather_normals(
        errors,
        before,
        normals,
        weights=weights,
        device=device,
        domain_level=domain_level,
        session_by=session_by,
    )
    addition = additions.checked_addition(before, clips, domain, keep_suspicious)
    errors.notes(addition.notes)
    if not len(addition.clips):
        console.write("There is nothing to add. The model stays as it is.")
        return
    after = addition.apply(before, calibrate=and_calibrate)
    lost = len(before.new_names) - len(after.new_names)
    if not and_calibrate and lost > 0:
        moved = quantity(lost, "clip")
        errors.notes([f"{moved} of the last calibration became part of the normals."])
    done = f"Added {quantity(addition.clips, 'recording')}. There are now {len(after)}."
    save_model(console, before, after, target, verbose, done)
    show_skipped(console, (*skipped, *addition.left_out), code=shared.SKIPPED_EXIT)


def gather_normals(
    errors: Output, model: MachineModel, source: Location, **options: Any
) -> tuple[Normals, Skipped]:
    """New clips as those of the model, with notes, and recordings that could not be embedded."""
    from daco.detector.additions import new_normals

    with progress_bars(errors) as report:
        clips, gathered = new_normals(
            model, source, progress=partial(report, "embedding"), **options
        )
    errors.notes(gathered.warnings)
    return clips, gathered.skipped


def target_of(model: MachineModel, path: Path, out: Path | None) -> Path:
    """Where a changed model is written; an error where it cannot be."""
    from daco.detector.modelfile import model_paths

    require_folder(out)
    return path if out is None else model_paths([model.machine], out)[0]


def save_model(
    console: Output,
    before: MachineModel,
    after: MachineModel,
    path: Path,
    verbose: bool,
    done: str,
) -> None:
    """Write the new model, keep the one that it replaces, and show what was `done`."""
    from daco.detector.gate import require_detection
    from daco.files.atomic import replace_file

    require_detection(after)
    previous = replace_file(path, after.to_bytes())
    console.write(after.machine, style="bold")
    console.write(done)
    show_model(console, after, before, verbose)
    if verbose:
        console.write(f"sha256 {before.sha256[:12]} -> {after.sha256[:12]}")
    show_files(console, [path], [previous] if previous else [])
