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
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from daco.commands import options as shared
from daco.commands.console import Output
from daco.commands.options import argument, flag, option
from daco.errors import InputError
from daco.text import name_list, printable, quantity

if TYPE_CHECKING:
    from daco.monitoring.config import PlantConfig
    from daco.monitoring.engine import Plant, Summary
    from daco.monitoring.store import Outcome, Recording, StoredClip

_WORDS = {"normal": ("normal ", "green"), "anomalous": ("ANOMALY", "bold red")}


def watch(
    plant: Annotated[
        Path, argument("Use this daco.toml, a folder with one, or the model file of one machine.")
    ] = Path("."),
    source: Annotated[
        str | None,
        argument(
            "Judge this source with a model file: a folder with all folders below it, an rtsp:// "
            "or http:// stream, or 16-bit sound on standard input (pcm:RATE)."
        ),
    ] = None,
    db: shared.Database = None,
    alarm: shared.AlarmRuleOption = None,
    recover: Annotated[
        int | None, option("End an alarm after this many normal recordings. The default is n.")
    ] = None,
    adapt: Annotated[
        bool | None, flag("--adapt", "Adapt the alarm limit to the machine, slowly.")
    ] = None,
    expect_every: Annotated[
        str | None, option("Raise an alarm when no recording comes for twice this time: '10 min'.")
    ] = None,
    notify: Annotated[
        list[str] | None, option("Send alarms to this Apprise address. Repeat it for more.")
    ] = None,
    webhook: Annotated[str | None, option("Send signed messages to this web address.")] = None,
    settle: Annotated[
        float | None, option("Take a file as complete after this many seconds without change.")
    ] = None,
    window: shared.Window = None,
    hop: shared.Hop = None,
    aggregate: Annotated[
        str | None, option("Decide by the worst window (max), by the mean, or by top3.")
    ] = None,
    once: Annotated[bool, flag("--once", "Judge the recordings that are there, then end.")] = False,
    exit_code: Annotated[bool, flag("--exit-code", "Exit with 3 if an alarm was opened.")] = False,
) -> None:
    """Judge every recording of a plant exactly once, and raise alarms.

    It runs the same engine as daco serve, without the page. Give the daco.toml of a plant; or the
    model of one machine and the source of its recordings, with the options that daco.toml has as
    keys. After any interruption the same command continues.

    Ctrl-C ends the command. Exit codes: 0 success, 3 an alarm was opened (with --exit-code), 1
    recordings could not be stored, 2 a mistake in the call, daco.toml or a model.
    """
    from daco.monitoring.engine import Plant

    machine = {
        "alarm": alarm,
        "recover": recover,
        "adapt": adapt,
        "expect_every": expect_every,
        "settle": None if settle is None else f"{max(settle, 0.001):g} s",
        "window": None if window is None else f"{window:g} s",
        "hop": None if hop is None else f"{hop:g} s",
        "aggregate": aggregate,
    }
    telling = {"urls": notify, "webhook": webhook}
    config = _config(plant, source, db, machine, telling)
    if once and not any(each.folder for each in config.machine.values()):
        raise InputError("--once is for folders of recordings; live sound has no end.")
    console, errors = Output(), Output(stderr=True)
    with _logging(errors), _ending_signals() as ending:
        running = Plant(config, say=lambda sentence: errors.notes([sentence]))
        terminal = _Terminal(console, running)
        try:
            _introduce(errors, running)
            running.on_outcome.append(terminal.show)
            if once:
                summary = running.once(ending.is_set)
                _conclude(errors, summary)
                failed = bool(summary.failures)
            else:
                running.start()
                while not ending.wait(0.5) and not running.is_over:
                    pass
                failed = False
            errors.write(terminal.counts())
        finally:
            running.stop()
    if failed:
        raise typer.Exit(1)
    if exit_code and terminal.opened:
        raise typer.Exit(shared.ALARM_EXIT)


def _config(
    plant: Path,
    source: str | None,
    db: str | None,
    machine: dict[str, Any],
    telling: dict[str, Any],
) -> PlantConfig:
    """The configuration of a plant, or of one machine with a model and a source."""
    from daco.detector.modelfile import SUFFIX
    from daco.monitoring.config import PlantConfig
    from daco.monitoring.tables import LIVE_SCHEMES

    if plant.suffix != SUFFIX or plant.is_dir():
        given = [name for name, value in machine.items() if value is not None]
        if source is not None or given:
            what = "a source" if source is not None else f"--{given[0].replace('_', '-')}"
            raise InputError(f"{what} is for one model. Write it into daco.toml.")
        return PlantConfig.load(plant, service={"database": db}, notify=telling)
    if source is None:
        raise InputError("Give the folder of the recordings, too: daco watch MODEL FOLDER.")
    is_live = source.partition(":")[0] in LIVE_SCHEMES
    if not is_live and not Path(source).is_dir():
        raise InputError(f"{source} is not a folder. Give the folder of the recordings.")
    name = plant.name.removesuffix(SUFFIX)
    return PlantConfig.load(
        None,
        service={
            "database": shared.database_of(db, plant),
            "recordings": plant.absolute().parent / "kept",
        },
        notify=telling,
        machine={name: {**machine, "model": plant, "stream" if is_live else "folder": source}},
    )


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
        title = printable(self._machines[clip.machine].name)
        rule = self._machines[clip.machine].rule
        why = f": {rule.k} of the last {rule.n} recordings are {clip.state}" if rule.n > 1 else ""
        if rule.adds_up:
            why = ": the evidence of its recordings adds up"
        for number in outcome.opened:
            self.opened += 1
            self._print(Text(f"         ALARM {number}, {title}{why}", "bold white on red"))
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
def _logging(errors: Output) -> Iterator[None]:
    """Print what the engine reports as notes."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.notes([record.getMessage()], record.levelname.lower())

    handler, log = Notes(logging.WARNING), logging.getLogger("daco.monitoring")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def _ending_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C ends at once."""
    ending = threading.Event()
    before: dict[int, Any] = {}

    def end(number: int, _: object) -> None:
        ending.set()
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.signal(number, end)
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
