"""``daco calibrate``: decisions from new normal recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from daco.commands import options as shared
from daco.commands.console import Output, show_skipped
from daco.commands.options import Location, location_argument, option
from daco.commands.update import gather_normals, save_model, target_of
from daco.errors import DataError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel

# The caution needs three anomalous recordings that are more than half of all. Of 10 to 40 later
# clips of the same conditions, at most 30 % were anomalous on two real machines and 10 % on 24
# synthetic ones. Another type of machine exceeds a half in 122 of 168 synthetic pairs and on the
# real fan (72 to 92 % of bearing clips), but seldom on the real bearing (4 to 60 % of fan clips).
# A condition that the model does not have exceeds it in 23 of 24: no score tells it from another
# machine, so the caution names both.
_FEWEST = 3
_UNCERTAIN = 0.03  # of injected faults: fewer than before by chance


def calibrate(
    model: shared.ModelPath,
    normals: Annotated[Location, location_argument("Use these new normals, or their embeddings.")],
    domain: Annotated[str | None, option("Assign all to this operating condition.")] = None,
    out: Annotated[Path | None, option("Write the model here instead of replacing it.")] = None,
    keep_suspicious: shared.KeepSuspicious = False,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    domain_level: shared.DomainLevel = None,
    verbose: shared.Verbose = False,
) -> None:
    """Set the alarm limit of a model from new recordings of the healthy machine.

    The recordings of a model sound more normal to it than new ones do. New recordings, 25 of each
    operating condition, show what to expect. They do not become part of the model. They replace
    earlier calibration recordings of the same condition; a condition without new recordings stays
    as it is. daco leaves out copies and suspicious recordings, also those outside the usual range
    of levels. With --keep-suspicious they count, and such levels are normal from then on.
    MODEL.previous keeps the replaced model for daco update --undo.

    Exit codes: 0 success, 4 recordings were left out, 2 a mistake in the call or the data.
    """
    from daco.detector import additions
    from daco.detector.model import MachineModel
    from daco.detector.ranges import ranges_of, widen_ranges
    from daco.detector.revision import calibrate_with

    console, errors = Output(), Output(stderr=True)
    before = MachineModel.load(model)
    target = target_of(before, model, out)
    clips, skipped = gather_normals(
        errors, before, normals, weights=weights, device=device, domain_level=domain_level
    )
    clips, is_fitted = additions.in_known_domains(before, clips, domain, normals.name)
    clips, left_out, notes = additions.without_suspicious(before, clips, keep_suspicious)
    errors.notes(notes)
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
    of_each = " and ".join(f"{count} of {name}" for name, count in counts.items())
    how = ", each assigned to the condition that it fits best" if is_fitted else ""
    done = (
        f"Calibrated with {quantity(len(clips), 'new recording')}: {of_each}{how}. With the old "
        f"alarm limit, {anomalous} of them {'was' if anomalous == 1 else 'were'} anomalous. Make "
        "sure that the machine was healthy."
    )
    save_model(console, before, after, target, verbose, done)
    console.notes(_cautions(before, after, anomalous, len(clips)), "warning")
    show_skipped(console, (*skipped, *left_out), code=shared.SKIPPED_EXIT)


def _cautions(before: MachineModel, after: MachineModel, anomalous: int, count: int) -> list[str]:
    """Warnings about recordings unlike the model's, and about a limit that misses more faults."""
    from daco.synthetic.sensitivity import caught_by_both

    cautions = []
    if anomalous >= _FEWEST and 2 * anomalous > count:
        cautions.append(
            f"{anomalous} of {count} recordings were anomalous before, where "
            f"{100 * before.false_alarm_rate:g} % would be usual. Most of them do not sound like "
            "the recordings of this model. Check that they are recordings of this machine, from "
            "the same microphone, and that it was healthy. If the machine runs in a condition that "
            "the model does not have, use daco update --domain with a new name instead."
        )
    old, new, total = caught_by_both(before, after)
    if new < old - _UNCERTAIN * total:
        cautions.append(
            f"This calibration costs detection: the new alarm limit catches {new} of {total} "
            f"injected faults, the old one {old}. If the recordings are of the healthy machine, "
            "that is the price of fewer false alarms. If not, go back with daco update --undo."
        )
    return cautions
