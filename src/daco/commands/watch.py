"""``daco watch``: the monitor of a plant in a terminal."""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from daco.commands import options as shared
from daco.commands.console import Output
from daco.commands.options import argument, flag
from daco.commands.plant import PlantOrModel, monitor_packages, read_plant
from daco.errors import InputError
from daco.text import name_list, printable, quantity

if TYPE_CHECKING:
    from daco.monitoring.engine import Plant, Summary
    from daco.monitoring.store import Outcome, Recording, StoredClip

_WORDS = {"normal": ("normal ", "green"), "anomalous": ("ANOMALY", "bold red")}


def watch(
    plant: PlantOrModel = Path("."),
    source: Annotated[
        str | None,
        argument(
            "Judge this source with a model file: a folder with all folders below it, an rtsp:// "
            "or http:// stream, or 16-bit sound on standard input (pcm:RATE)."
        ),
    ] = None,
    db: shared.Database = None,
    alarm: shared.AlarmRuleOption = None,
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
    config = read_plant(plant, db, given)
    machines = config.machine.values()
    if not any(each.folder or each.stream or each.microphone for each in machines):
        raise InputError(
            "No machine has a source. Give one: daco watch MODEL FOLDER, or a key of daco.toml."
        )
    if once and not any(each.folder for each in machines):
        raise InputError("--once is for folders of recordings; live sound has no end.")
    console, errors = Output(), Output(stderr=True)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    with _ending_signals() as ending:
        running = Plant(config)
        terminal = _Terminal(console, running)
        summary = None
        try:
            _introduce(errors, running)
            running.on_outcome.append(terminal.show)
            if once:
                summary = running.once(ending.is_set)
                _conclude(errors, summary)
            else:
                running.start()
                while not ending.wait(0.5) and not running.is_over:
                    pass
            errors.write(terminal.counts())
        finally:
            running.stop()
    if summary is not None and summary.failures:
        raise typer.Exit(1)
    if exit_code and terminal.opened:
        raise typer.Exit(shared.ALARM_EXIT)


class _Terminal:
    """Prints outcomes as they come, from several threads, and counts them."""

    def __init__(self, console: Output, plant: Plant) -> None:
        self._console, self._machines = console, plant.config.machine
        self._lock = threading.Lock()
        self._states: Counter[str] = Counter()
        self._refused = self.opened = 0

    def show(self, recording: Recording, outcome: Outcome) -> None:
        """Print one outcome."""
        now = f"{datetime.now():%H:%M:%S} "
        prefix = f"{recording.machine}: " if len(self._machines) > 1 else ""
        name = printable(prefix + recording.name)
        with self._lock:
            if outcome.refused is not None:
                self._refused += 1
                reason = f" {name}: {printable(outcome.refused)}"
                self._print(Text.assemble(now, ("unusable", "yellow"), reason))
            elif outcome.clip is not None:
                self._states[outcome.clip.state] += 1
                self._show_clip(now, name, outcome.clip)
                self._show_alarms(outcome, outcome.clip)

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)

    def _show_clip(self, now: str, name: str, clip: StoredClip) -> None:
        """One line for a judged recording, and one for every reason to mistrust the verdict."""
        decision, style = _WORDS.get(clip.state, (f"{clip.state:<7}", "yellow"))
        figure = f" {clip.oddness:5.2f}  " if clip.state in _WORDS else "        "
        room = max(20, self._console.width - len(now + decision + figure))
        if len(name) > room:  # names differ at their ends
            name = f"…{name[1 - room :]}"
        self._print(Text.assemble(now, (decision, style), figure, name))
        for reason in clip.reasons:
            if not reason.startswith("views:"):  # of every anomaly; the page has it
                line = Text(f"         {printable(reason)}", "yellow")
                line.truncate(self._console.width, overflow="ellipsis")
                self._print(line)

    def _show_alarms(self, outcome: Outcome, clip: StoredClip) -> None:
        machine = self._machines[clip.machine]
        title = printable(machine.name)
        for number in outcome.opened:
            self.opened += 1
            line = f"         ALARM {number}, {title}: {clip.state} (rule: {machine.rule})"
            self._print(Text(line, "bold white on red"))
        for number in outcome.cleared:
            self._print(Text(f"         alarm {number}, {title}, is over", "green"))

    def counts(self) -> str:
        """What was printed, in one sentence."""
        parts = [quantity(self._states.total(), "recording")]
        parts.append(f"{self._states['anomalous']} anomalous")
        parts += [f"{n} {state}" for state, n in self._states.items() if state not in _WORDS]
        parts.append(quantity(self.opened, "alarm"))
        refused = f"; {quantity(self._refused, 'file')} could not be used" if self._refused else ""
        return f"{', '.join(parts)}{refused}."


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


@contextmanager
def _ending_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second one ends at once."""
    ending = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _: object) -> None:
        ending.set()
        signal.signal(number, before[signal.Signals(number)])

    try:
        for number in before:
            signal.signal(number, end)
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
