"""``daco calibrate``: decisions from new normal recordings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daco.commands import options as shared
from daco.commands.console import Output, show_basis, show_domains, show_skipped
from daco.commands.options import Location, OnError, location_argument, option
from daco.commands.update import gather_normals, normals_of_machine
from daco.errors import DataError, InputError
from daco.text import name_list, quantity, suggestion

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.normals import Normals


def calibrate(
    model: shared.ModelPath,
    normals: Annotated[
        Location,
        location_argument(
            "New normal recordings, which the model does not have: a file, folder or manifest; "
            "or embeddings."
        ),
    ],
    domain: Annotated[
        str | None,
        option("Domain of the new clips. Default: their own, or the one that each fits best."),
    ] = None,
    out: Annotated[Path | None, option("Write the model here instead of replacing MODEL.")] = None,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    on_error: shared.OnErrorOption = OnError.fail,
    domain_level: shared.DomainLevel = None,
) -> None:
    """Set what counts as anomalous from new recordings of the healthy machine.

    Normals that a model was fitted to have siblings of the same recording in it, and score lower
    than any recording of tomorrow. Scores of 25 new recordings of each domain show what tomorrow
    is like. They do not enter the model's bank. A domain without new recordings stays as it is;
    earlier ones of the same domain are replaced.

    Exit codes: 0 all well, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.commands.fit import model_paths
    from daco.detector.model import MachineModel
    from daco.detector.revision import calibrate_with

    console, errors = Output(), Output(stderr=True)
    before = MachineModel.load(model)
    target = model if out is None else model_paths([before.machine], out)[0]
    gathered = gather_normals(
        errors, before, normals, weights, device, on_error, domain_level, None
    )
    errors.notes(gathered.oddities)
    clips = normals_of_machine(before, gathered)
    rows = _unknown(errors, before, clips)
    domains = _domains(before, clips, rows, domain)
    names, vectors = [clips.names[row] for row in rows], clips.embeddings[rows]
    anomalous = int(before.score(vectors).alarms.sum())
    after = calibrate_with(before, vectors, domains, names, note=clips.origin)
    after.save(target)
    console.write(after.machine, style="bold")
    counts = after.provenance["updates"][-1]["clips"]
    found = " and ".join(f"{count} of {name}" for name, count in counts.items())
    fitting = "" if domains else ", by what each fits best"
    console.write(f"calibrated with {quantity(rows, 'new recording')}: {found}{fitting}")
    console.write(
        f"{anomalous} of them were anomalous to the model before; be sure that the machine was "
        "healthy when they were made"
    )
    show_domains(console, after, before)
    show_basis(console, after)
    console.write(f"{target}: sha256 {before.sha256[:12]} -> {after.sha256[:12]}", wrap=False)
    console.notes(after.cautions(), "caution")
    show_skipped(console, gathered.skipped)
    if gathered.skipped:
        raise typer.Exit(shared.SKIPPED_EXIT)


def _unknown(errors: Output, model: MachineModel, clips: Normals) -> list[int]:
    """Rows of the clips that the model does not have; the others are named."""
    vectors, hashes = {row.tobytes() for row in model.embeddings}, {*model.clip_sha256, ""}
    known = [
        row
        for row in range(len(clips))
        if clips.embeddings[row].tobytes() in vectors
        or (clips.sha256s and clips.sha256s[row] in hashes - {""})
    ]
    names = name_list(clips.names[row] for row in known)
    if len(known) == len(clips):
        raise DataError(
            f"All {len(known)} clips are in the model already: {names}. Calibrate with recordings "
            "that the model does not have."
        )
    if known:
        errors.notes([f"{quantity(known, 'clip')} left out, in the model already: {names}."])
    return [row for row in range(len(clips)) if row not in set(known)]


def _domains(
    model: MachineModel, clips: Normals, rows: list[int], domain: str | None
) -> list[str] | None:
    """The domain of each clip; None where the model has to find it."""
    if domain is not None:
        if domain not in model.domains:
            raise InputError(
                f"The model has the domains {name_list(model.domains)}, and no {domain!r}."
                f"{suggestion(domain, model.domains)} A new one begins with daco update."
            )
        return [domain] * len(rows)
    own = [clips.domains[row] for row in rows]
    if set(own) <= set(model.domains):
        return own
    if len(Counter(own)) > 1:
        raise InputError(
            f"The new clips are of the domains {name_list(sorted(set(own)))}, the model has "
            f"{name_list(model.domains)}. Give --domain, or a manifest with the model's domains."
        )
    return None
