"""``daco inject``: normal recordings with synthetic faults, embedded."""

from __future__ import annotations

from functools import partial

from daco.commands import options as shared
from daco.commands.console import Output, progress_bars
from daco.commands.options import require_folder
from daco.text import quantity


def inject(
    clips: shared.Clips,
    out: shared.OutTable,
    backbone: shared.Backbones = ["logmel"],  # noqa: B006
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    precision: shared.Precision = "fp32",
    readout: shared.Readouts = None,
    channel: shared.Channel = "0",
    per_domain: shared.PerDomain = 20,
    level: shared.Levels = None,
    fault: shared.Faults = None,
    seed: shared.Seed = 0,
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
) -> None:
    """Add synthetic faults to normal recordings and embed both.

    daco takes only training clips and no clip that is labelled as an anomaly. The table has a row
    for each clean recording, followed by its versions with faults; the columns fault and level_db
    describe them. The veto of daco study uses the table to exclude configurations that miss
    faults. A fault level is relative to the recording.

    Exit codes: 0 success, 2 a mistake in the call or the data.
    """
    from daco.audio.microphones import parse_channel
    from daco.backbones import load
    from daco.data.sources import read_clips
    from daco.embedding.output import replaceable
    from daco.synthetic.faults import KINDS, LEVELS
    from daco.synthetic.injection import Plan, choose_recordings, inject_recordings

    console, errors = Output(), Output(stderr=True)
    plan = Plan(fault or KINDS, level or LEVELS, seed)
    policy = parse_channel(channel)
    require_folder(out)
    replaceable(out)
    table = read_clips(clips, machine_level=machine_level, domain_level=domain_level)
    errors.notes(table.remarks)
    chosen = choose_recordings(table, per_domain, seed)
    net = load("+".join(backbone), weights, device, precision)
    with progress_bars(errors) as report:
        progress = partial(report, "injecting")
        faults = inject_recordings(
            chosen, net, plan, readouts=readout, channel=policy, progress=progress
        )
    faults.write(out)
    versions = quantity(len(plan.kinds) * len(plan.levels), "fault")
    recordings = quantity(len(chosen), "recording")
    console.write(f"{out}: {recordings}, each clean and with {versions}", wrap=False)
    levels = ", ".join(f"{each:g}" for each in plan.levels)
    console.write(f"{', '.join(plan.kinds)} at {levels} dB")
