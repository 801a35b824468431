"""``daco start``: from recordings of healthy machines to a running page."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

from daco.commands import options as shared
from daco.commands.console import Output, interruptible, progress_bars
from daco.commands.options import argument, flag, option
from daco.errors import DacoError, InputError, MissingExtraError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.monitoring.start import FittedMachine

_FEW = 5


def start(
    recordings: Annotated[
        Path,
        argument("Use the healthy recordings in this folder: one folder for each machine."),
    ],
    out: Annotated[Path, option("Write daco.toml, models and inboxes into this folder.")] = Path(
        "."
    ),
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    no_serve: Annotated[
        bool, flag("--no-serve", "End before the monitor starts. Run daco serve later.")
    ] = False,
) -> None:
    """Set up a monitor from recordings of healthy machines, and start it.

    Each folder in RECORDINGS is a machine; folders below it are its operating conditions. daco
    leaves out recordings that are silent, clipped or unlike the others, learns every machine,
    keeps a part aside to set the alarm limit where there are enough, tries which faults it would
    notice, and writes daco.toml, which you can edit. Then it shows the page, like daco serve.

    Exit codes: 0 success, 2 a mistake in the call or the recordings, 130 after Ctrl-C.
    """
    try:
        from daco.monitoring import start as plant
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f'The monitor needs more packages ({error.name}): pip install "daco-asd[serve]".'
        ) from None

    from daco.detector.modelfile import safe_names

    console, errors = Output(), Output(stderr=True)
    file = out / "daco.toml"
    if file.exists():
        raise InputError(
            "this plant is set up already. Start it with daco serve, or choose another --out.",
            path=file,
        )
    if not recordings.is_dir():
        raise InputError("there is no such folder. Give the folder of recordings.", path=recordings)
    with interruptible("Nothing was started."), progress_bars(errors) as report:
        gathered = plant.gather(recordings, report, machine_level, domain_level)
        names = [each.machine for each in gathered.machines]
        found = list(plant.fit_plant(gathered.machines, safe_names(names), out / "models", report))
    fitted = [each for each in found if not isinstance(each, DacoError)]
    errors.notes(str(each) for each in found if isinstance(each, DacoError))
    if not fitted:
        raise InputError("no machine could be learned from these recordings.", path=recordings)
    titles = [
        name for name, each in zip(names, found, strict=True) if not isinstance(each, DacoError)
    ]
    plant.write_toml(file, fitted, titles, recordings)
    _show(console, fitted, titles)
    for path, reason in gathered.skipped[:_FEW]:
        errors.notes([f"not usable: {path} ({reason})"])
    _conclude(console, out, fitted)
    if not no_serve:
        from daco.commands.serve import serve

        serve(out)


def _show(console: Output, machines: list[FittedMachine], titles: list[str]) -> None:
    """What daco took for machines and conditions, and what to expect of each."""
    from daco.monitoring.start import sentences

    console.write(f"daco took these folders for {quantity(machines, 'machine')}:")
    for machine, title in list(zip(machines, titles, strict=True))[: 2 * _FEW]:
        first, *others = sentences(machine)
        console.write(f"{title}: {first}", style="bold")
        for sentence in others:
            for line in wrap(sentence, 78, initial_indent="  ", subsequent_indent="    "):
                console.write(line)
    if len(machines) > 2 * _FEW:
        console.write(f"and {len(machines) - 2 * _FEW} more; daco inspect shows each model.")


def _conclude(console: Output, out: Path, machines: list[FittedMachine]) -> None:
    inboxes = name_list([f"inbox/{each.id}" for each in machines], 3)
    console.write("")
    console.write(f"Written: daco.toml, models/ and inbox/ in {out.absolute()}", wrap=False)
    console.write(f"New recordings go into {inboxes}.")
    console.write("Other sources, messages and alarms: edit daco.toml, then run daco serve again.")
    console.write("Try the messages with daco notify --test.")
