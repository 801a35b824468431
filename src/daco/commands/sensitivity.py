"""``daco sensitivity``: from which fault level on a model catches it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from daco.commands import options as shared
from daco.commands.console import Output, progress_bars
from daco.commands.options import Location, location_argument, option, require_folder
from daco.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = 8  # levels that fit beside the names in 80 columns


def sensitivity(
    model: shared.ModelPath,
    normals: Annotated[Location, location_argument("Use these normals of the machine.")],
    out: Annotated[Path | None, option("Write all rates to this CSV file.")] = None,
    picture: Annotated[Path | None, option("Draw the rates to this .png or .svg file.")] = None,
    level: shared.Levels = None,
    fault: shared.Faults = None,
    per_domain: shared.PerDomain = 20,
    rate: shared.Rate = None,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    seed: shared.Seed = 0,
    domain_level: shared.DomainLevel = None,
) -> None:
    """Measure which faults a model catches, by kind and level.

    daco adds synthetic faults to normal recordings and scores them. The level of a fault is
    relative to the recording: at -20 dB it has a tenth of the amplitude. The default levels are
    -24 to 0 dB. A recording is caught when it is anomalous or outside the usual range of levels,
    and a fault from the level on at which 90 % of the recordings are. If the model has a
    recording, daco leaves it out of the model while it scores it.

    Exit codes: 0 success, 2 a mistake in the call or the data.
    """
    from daco.data.sources import read_clips
    from daco.detector.model import MachineModel
    from daco.embedding.frontend import Listener
    from daco.files.atomic import atomic_write
    from daco.synthetic import sensitivity as tables
    from daco.synthetic.faults import ALL_KINDS
    from daco.synthetic.injection import Plan

    console, errors = Output(), Output(stderr=True)
    plan = Plan(fault or ALL_KINDS, level or tables.LEVELS, seed)
    require_folder(out, picture)
    if picture is not None and picture.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"{picture}: The name of a picture must end in .svg or .png.")
    loaded = MachineModel.load(model)
    loaded = loaded if rate is None else loaded.at_rate(rate)
    clips = read_clips(normals, domain_level=domain_level)
    errors.notes(clips.remarks)
    listener = Listener(loaded.frontend, weights=weights, device=device)
    with progress_bars(errors) as report:
        progress = partial(report, "injecting")
        faults = tables.inject_for(
            loaded, clips, listener, plan, per_domain=per_domain, progress=progress
        )
        rates = tables.detection_rates(loaded, faults)
    console.write(loaded.machine, style="bold")
    _show(console, rates, loaded.false_alarm_rate)
    console.write(*tables.sentences(rates))
    console.notes(tables.warnings(rates, loaded, clips), "warning")
    if out is not None:
        with atomic_write(out) as temporary:
            rates.to_csv(temporary, index=False, lineterminator="\n")
        console.write(f"all rates: {out}", wrap=False)
    if picture is not None:
        from daco.experiments.figures.models import plot_sensitivity
        from daco.experiments.figures.style import save_picture

        save_picture(plot_sensitivity(rates, loaded.machine, loaded.false_alarm_rate), picture)
        console.write(f"picture: {picture}", wrap=False)


def _show(console: Output, rates: pd.DataFrame, false_alarm_rate: float) -> None:
    """Print the table of rates, and what its columns are."""
    from daco.synthetic.sensitivity import CAUGHT, caught_from

    levels = sorted(rates["level_db"].dropna().unique(), reverse=True)
    levels = levels[:: -(-len(levels) // _COLUMNS)][::-1]  # every so many, down from the highest
    headings = ["none", *(f"{each:g}" for each in levels)]
    rows = []
    for fault, domain, from_db, _, by in caught_from(rates).itertuples(index=False, name=None):
        own = rates[rates["fault"].isin(["", fault]) & (rates["domain"] == domain)]
        shares = own.loc[own["level_db"].isna() | own["level_db"].isin(levels), "rate"]
        cells = zip(headings, [f"{100 * share:.0f}" for share in shares], strict=True)
        start = "-" if from_db != from_db else f"{from_db:g}"
        rows.append({"fault": fault, "domain": domain, "by": by, "from": start, **dict(cells)})
    console.table(rows, ["fault", "domain"], ["by", "from", *headings])
    clean = rates[rates["fault"] == ""]
    counts = [f"{n} of {name}" for name, n in zip(clean["domain"], clean["clips"], strict=True)]
    console.write(
        "Percentage of recordings that are caught, without a fault (none) and at each level in dB "
        f"relative to the recording; 'from' is the level from which at least {CAUGHT:.0%} are "
        "caught, 'by' whether the score or the usual range of levels catches them. Recordings: "
        f"{', '.join(counts)}, of which {clean['in_model'].sum()} are in the model and were left "
        f"out of it. The model's false-alarm rate is {false_alarm_rate:g}."
    )
