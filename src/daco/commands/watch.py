"""``daco watch``: the monitor of a plant in a terminal."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from daco.commands import options as shared
from daco.commands.console import Output
from daco.commands.models import JUDGED, headline
from daco.commands.options import argument, flag, option
from daco.commands.plant import PlantOrModel, monitor_packages, read_plant
from daco.errors import InputError
from daco.text import name_list, printable, quantity

if TYPE_CHECKING:
    from daco.monitoring.engine import Plant, Summary
    from daco.monitoring.store import Outcome, Recording

_INDENT = 9  # of lines below one that begins with the time


def watch(
    plant: PlantOrModel = Path("."),
    source: Annotated[
        str | None,
        argument(
            "Judge a folder, an rtsp:// or http:// stream, or sound on standard input (pcm:RATE)."
        ),
    ] = None,
    alarm: Annotated[
        str | None,
        option("Alarm at '3 of 5' anomalous recordings, at every one, at '1 a month', or off."),
    ] = None,
    once: Annotated[bool, flag("--once", "Judge the recordings that are there, then end.")] = False,
    exit_code: Annotated[bool, flag("--exit-code", "Exit with 3 if an alarm was opened.")] = False,
) -> None:
    """Judge every recording of a plant exactly once, and raise alarms.

    It runs the same engine as daco serve, without the page. Give the daco.toml of a plant; or the
    model of one machine and the source of its recordings. After any interruption the same command
    continues.

    Ctrl-C ends the command. Exit codes: 0 success, 3 an alarm was opened (with --exit-code), 1
    recordings could not be stored, 2 a mistake in the call, daco.toml or a model.
    """
    with monitor_packages():
        from daco.monitoring.engine import Plant
        from daco.monitoring.tables import LIVE_SCHEMES

    is_live = source is not None and source.partition(":")[0] in LIVE_SCHEMES
    if source is not None and not is_live and not Path(source).is_dir():
        raise InputError(f"{source} is not a folder. Give the folder of the recordings.")
    given = {"alarm": alarm, "stream" if is_live else "folder": source}
    config = read_plant(plant, given)
    machines = config.machine.values()
    if not any(each.folder or each.stream or each.microphone for each in machines):
        raise InputError(
            "No machine has a source. Give one: daco watch MODEL FOLDER, or a key of daco.toml."
        )
    if once and not any(each.folder for each in machines):
        raise InputError("--once is for folders of recordings; live sound has no end.")
    errors = Output(stderr=True)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # both end the loop below
    failures: Sequence[str] = ()
    running = Plant(config)
    terminal = _Terminal(Output(), running)
    try:
        _introduce(errors, running)
        running.on_outcome.append(terminal.show)
        if once:
            summary = running.once()
            failures = summary.failures
            _conclude(errors, summary)
        else:
            running.start()
            while not running.is_over:
                time.sleep(0.5)
    except KeyboardInterrupt:
        pass  # recordings under way are stored below, or judged by the next run
    finally:
        running.stop()
    errors.write(terminal.counts())
    if failures:
        raise typer.Exit(1)
    if exit_code and terminal.alarms:
        raise typer.Exit(shared.ALARM_EXIT)


class _Terminal:
    """Prints outcomes as they come, from several threads, and counts them."""

    def __init__(self, console: Output, plant: Plant) -> None:
        self._console, self._machines = console, plant.config.machine
        self._lock = threading.Lock()
        self.states: Counter[str] = Counter()
        self.alarms = self.unusable = 0

    def show(self, recording: Recording, outcome: Outcome) -> None:
        """Print one outcome: a recording with reasons to mistrust its verdict, and alarms."""
        machine = self._machines[recording.machine]
        name = recording.name
        if len(self._machines) > 1:
            name = f"{recording.machine}: {name}"
        with self._lock:
            if outcome.refused is not None:
                self.unusable += 1
                reason = printable(f" {name}: {outcome.refused}")
                self._print(Text.assemble(("unusable", "yellow"), reason))
            if outcome.clip is None:
                return
            state = outcome.clip.state
            self.states[state] += 1
            self._print(headline(state, outcome.clip.oddness, name))
            for reason in outcome.clip.reasons:
                if not reason.startswith("views:"):  # of every anomaly; the page has it
                    self._console.detail(reason, style="yellow", indent=_INDENT)
            for number in outcome.opened:
                self.alarms += 1
                text = f"ALARM {number}, {machine.name}: {state} (rule: {machine.rule})"
                self._console.detail(text, style="bold white on red", indent=_INDENT)
            for number in outcome.cleared:
                text = f"alarm {number}, {machine.name}, is over"
                self._console.detail(text, style="green", indent=_INDENT)

    def _print(self, line: Text) -> None:
        self._console.print(f"{datetime.now():%H:%M:%S}", line, soft_wrap=True)

    def counts(self) -> str:
        """What was printed, in one sentence."""
        others = [f"{n} {state}" for state, n in self.states.items() if state not in JUDGED]
        parts = [quantity(self.states.total(), "recording")]
        parts += [f"{self.states['anomalous']} anomalous", *others]
        parts.append(quantity(self.alarms, "alarm"))
        unusable = f"; {quantity(self.unusable, 'file')} could not be used" if self.unusable else ""
        return f"{', '.join(parts)}{unusable}."


def _introduce(errors: Output, plant: Plant) -> None:
    plant.load_models()
    for machine in plant.config.machine.values():
        model = plant.models.get(machine.id)
        if model is None:
            raise InputError(f"{machine.model}: {plant.models.problem(machine.id)}")
        normals = quantity(sum(model.info.domains.values()), "healthy recording")
        errors.write(f"{machine.name}: {normals}, alarm rule {machine.rule}.")
        if machine.folder is not None:
            errors.write(f"  watching {machine.folder}", wrap=False)
        errors.notes(model.info.warnings, "warning")
    errors.write(f"Results in {plant.store.database.label}", wrap=False)
    errors.write("The figure is the oddness: a recording is anomalous from 1 on.")


def _conclude(errors: Output, summary: Summary) -> None:
    if summary.waiting:
        names = name_list(summary.waiting)
        errors.notes([f"Still being written, and left for the next run: {names}."])
    if summary.undelivered:
        left = quantity(summary.undelivered, "message")
        errors.notes([f"Not delivered yet: {left}. The next run sends them."])
    errors.notes(summary.failures, "error")
