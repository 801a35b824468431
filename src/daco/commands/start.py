"""``daco start``: from recordings of healthy machines to a running page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from daco.commands import options as shared
from daco.commands.console import Output, progress_bars
from daco.commands.options import argument, flag, option
from daco.commands.plant import monitor_packages
from daco.errors import DacoError, InputError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.monitoring.start import FittedMachine

_SHOWN = 10


def start(
    recordings: Annotated[Path, argument("Use the folder of each machine in this one.")],
    out: Annotated[Path, option("Write daco.toml, models and inboxes into this folder.")] = Path(
        "."
    ),
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    no_serve: Annotated[bool, flag("--no-serve", "End before the monitor starts.")] = False,
) -> None:
    """Set up a monitor from recordings of healthy machines, and start it.

    Each folder in RECORDINGS is a machine; folders below it are its operating conditions. daco
    leaves out recordings that are silent, clipped or unlike the others, learns every machine,
    keeps a part aside to set the alarm limit where there are enough, tries which faults it would
    notice, and writes daco.toml, which you can edit. Then it shows the page, like daco serve.

    Exit codes: 0 success, 2 a mistake in the call or the recordings, 130 after Ctrl-C.
    """
    with monitor_packages():
        from daco.monitoring import start as plant

    from daco.detector.modelfile import safe_names

    errors = Output(stderr=True)
    file = out / "daco.toml"
    if file.exists():
        raise InputError(
            "this plant is set up already. Start it with daco serve, or choose another --out.",
            path=file,
        )
    if not recordings.is_dir():
        raise InputError("there is no such folder. Give the folder of recordings.", path=recordings)
    with progress_bars(errors) as report:
        gathered = plant.gather(recordings, report, machine_level, domain_level)
        names = [each.machine for each in gathered.machines]
        found = list(plant.fit_plant(gathered.machines, safe_names(names), out / "models", report))
    errors.notes(str(each) for each in found if isinstance(each, DacoError))
    fitted = [
        (name, each)
        for name, each in zip(names, found, strict=True)
        if not isinstance(each, DacoError)
    ]
    if not fitted:
        raise InputError("no machine could be learned from these recordings.", path=recordings)
    titles, machines = zip(*fitted, strict=True)
    plant.write_toml(file, machines, titles, recordings)
    _show(Output(), fitted, out)
    errors.notes(f"not usable: {path} ({why})" for path, why in gathered.skipped[:_SHOWN])
    if not no_serve:
        from daco.commands.serve import serve

        serve(out)


def _show(console: Output, fitted: list[tuple[str, FittedMachine]], out: Path) -> None:
    """What daco took for machines and conditions, what to expect of each, and what to do next."""
    from daco.monitoring.start import sentences

    console.write(f"daco took these folders for {quantity(fitted, 'machine')}:")
    for title, machine in fitted[:_SHOWN]:
        first, *others = sentences(machine)
        console.write(f"{title}: {first}", style="bold")
        console.write(*(f"- {sentence}" for sentence in others))
    if len(fitted) > _SHOWN:
        console.write(f"and {len(fitted) - _SHOWN} more; daco inspect shows each model.")
    inboxes = name_list([f"inbox/{machine.id}" for _, machine in fitted], 3)
    console.write(f"Written: daco.toml, models/ and inbox/ in {out.absolute()}", wrap=False)
    console.write(
        f"New recordings go into {inboxes}.",
        "Other sources, messages and alarms: edit daco.toml, then run daco serve again.",
        "Try the messages with daco notify --test.",
    )
