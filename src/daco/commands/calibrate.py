"""``daco calibrate``: decisions from new normal recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from daco.commands import options as shared
from daco.commands.console import Output, show_skipped
from daco.commands.options import (
    Location,
    OnError,
    location_argument,
    option,
    require_folder,
)
from daco.commands.update import (
    gather_normals,
    normals_of_machine,
    save_model,
    usable_normals,
)
from daco.errors import DacoError, DataError, InputError
from daco.text import name_list, quantity, suggestion

# The caution needs three anomalous recordings that are more than half of all. Of 10 to 40 later
# clips of the same conditions, at most 30 % were anomalous on two real machines and 10 % on 24
# synthetic ones. Another type of machine exceeds a half in 122 of 168 synthetic pairs and on the
# real fan (72 to 92 % of bearing clips), but seldom on the real bearing (4 to 60 % of fan clips).
# A condition that the model does not have exceeds it in 23 of 24: no score tells it from another
# machine, so the caution names both.
_FEWEST = 3
_UNLIKE = (
    "{} of {} recordings were anomalous before, where {:g} % would be usual. Most of them do not "
    "sound like the recordings of this model. Check that they are recordings of this machine, "
    "from the same microphone, and that it was healthy. If the machine runs in a condition that "
    "the model does not have, use daco update --domain with a new name instead."
)
_UNCERTAIN = 0.03  # of injected faults: fewer than before by chance
_COSTLY = (
    "This calibration costs detection: the new alarm limit catches {} of {} injected faults, the "
    "old one {}. If the recordings are of the healthy machine, that is the price of fewer false "
    "alarms. If not, go back with daco update --undo."
)

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.embedding.normals import Normals


def calibrate(
    model: shared.ModelPath,
    normals: Annotated[
        Location,
        location_argument(
            "Use these new normal recordings (a file, folder or manifest) or embeddings. The model "
            "must not have them already."
        ),
    ],
    domain: Annotated[
        str | None,
        option(
            "Assign all to this operating condition. The default is that of their folder, or the "
            "best fit."
        ),
    ] = None,
    out: Annotated[Path | None, option("Write the model here instead of replacing MODEL.")] = None,
    keep_suspicious: shared.KeepSuspicious = False,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    on_error: shared.OnErrorOption = OnError.skip,
    domain_level: shared.DomainLevel = None,
    verbose: shared.Verbose = False,
) -> None:
    """Set the alarm limit of a model from new recordings of the healthy machine.

    The recordings of a model sound more normal to it than new ones do. New recordings, 25 of each
    operating condition, show what to expect. They do not become part of the model. They replace
    earlier calibration recordings of the same condition; a condition without new recordings stays
    as it is. daco leaves out copies and suspicious recordings, also those
    outside the usual range of levels. With --keep-suspicious they count, and such levels are
    normal from then on. MODEL.previous keeps the replaced model for daco update --undo.

    Exit codes: 0 success, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.commands.fit import model_paths
    from daco.detector.model import MachineModel
    from daco.detector.ranges import ranges_of, widen_ranges
    from daco.detector.revision import calibrate_with

    console, errors = Output(), Output(stderr=True)
    require_folder(out)
    before = MachineModel.load(model)
    target = model if out is None else model_paths([before.machine], out)[0]
    gathered = gather_normals(
        errors, before, normals, weights, device, on_error, domain_level, None
    )
    errors.notes(gathered.warnings)
    clips = normals_of_machine(before, gathered)
    domains = _domains(before, clips, domain, normals.name)
    if domains is None:
        codes = before.score(clips.embeddings).weights.argmax(axis=1)
        clips = replace(clips, domains=tuple(before.domains[code] for code in codes))
    else:
        clips = replace(clips, domains=domains)
    clips, left = usable_normals(errors, before, clips, keep_suspicious)
    if not len(clips):
        raise DataError(
            "The model already has all of these clips. Calibrate with recordings that it does not "
            "have."
        )
    anomalous = int(before.score(clips.embeddings).anomalous.sum())
    after = calibrate_with(
        before,
        clips.embeddings,
        clips.domains,
        clips.names,
        ranges=widen_ranges(before.ranges, ranges_of(clips)) if keep_suspicious else None,
        note=clips.origin,
    )
    counts = after.provenance["updates"][-1]["clips"]
    found = " and ".join(f"{count} of {name}" for name, count in counts.items())
    how = "" if domains else ", each assigned to the condition that it fits best"
    done = f"Calibrated with {quantity(len(clips), 'new recording')}: {found}{how}. "
    were = "was" if anomalous == 1 else "were"
    done += f"With the old alarm limit, {anomalous} of them {were} anomalous. "
    done += "Make sure that the machine was healthy."
    save_model(console, before, after, target, verbose, done)
    if anomalous >= _FEWEST and 2 * anomalous > len(clips):
        usual = 100 * before.false_alarm_rate
        console.notes([_UNLIKE.format(anomalous, len(clips), usual)], "warning")
    console.notes(_cost(before, after), "warning")
    show_skipped(console, (*gathered.skipped, *left), code=shared.SKIPPED_EXIT)


def _cost(before: MachineModel, after: MachineModel) -> list[str]:
    """A warning where the new alarm limit notices fewer injected faults than the one before."""
    from daco.embedding.frontend import Listener
    from daco.synthetic.sensitivity import detection_rates, quick_faults

    frontend = before.frontend
    is_quick = frontend is not None and all(view.backbone == "logmel" for view in frontend.views)
    if not is_quick or "root" not in before.provenance:
        return []
    try:
        faults = quick_faults(before, Listener(frontend))
    except (DacoError, OSError):  # the recordings of the model are no longer there, or too few
        return []
    counts = []
    for model in (before, after):
        rates = detection_rates(model, faults)
        counts.append(int(rates.loc[rates["fault"] != "", "caught"].sum()))
        total = int(rates.loc[rates["fault"] != "", "clips"].sum())
    if counts[1] >= counts[0] - _UNCERTAIN * total:
        return []
    return [_COSTLY.format(counts[1], total, counts[0])]


def _domains(
    model: MachineModel, clips: Normals, domain: str | None, folder: str
) -> tuple[str, ...] | None:
    """The domain of each clip; None where the model has to find it."""
    if domain is not None:
        if domain not in model.domains:
            raise InputError(
                f"The model has the domains {name_list(model.domains)}, but not {domain!r}."
                f"{suggestion(domain, model.domains)} Add a new domain with daco update."
            )
        return (domain,) * len(clips)
    own = sorted(set(clips.domains))
    if set(own) <= set(model.domains):
        return clips.domains
    if len(own) > 1:
        raise InputError(
            f"The new clips have the domains {name_list(own)}, but the model has "
            f"{name_list(model.domains)}. Give --domain, or a manifest with the model's domains."
        )
    return (folder,) * len(clips) if folder in model.domains else None
