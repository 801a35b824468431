"""``daco watch``: score every recording that arrives in a folder."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from daco.commands import options as shared
from daco.commands.console import Output
from daco.commands.options import argument, flag, option
from daco.text import name_list, printable, quantity

if TYPE_CHECKING:
    from daco.monitoring.adaptation import Adaptation
    from daco.monitoring.notify import WebhookSender
    from daco.monitoring.store import Addition, Store
    from daco.monitoring.watch import Event, ModelInUse, NewVerdict, Watcher

_DECISIONS = {"normal": ("normal ", "green"), "anomalous": ("ANOMALY", "bold red")}
_DAY = 24 * 3600.0
_LAST_DELIVERIES = 30.0  # seconds that the end waits for messages on their way
_SHARE = 0.2  # of the time that may be spent on listing a large folder


class Tell(StrEnum):
    """Which messages a webhook gets."""

    all = "all"
    alarms = "alarms"


def watch(
    model: shared.ModelPath,
    folder: Annotated[Path, argument("Watch this folder and all folders below it.")],
    db: shared.Database = None,
    alarm: shared.AlarmRuleOption = "3/5",
    recovery: Annotated[
        int | None, option("End an alarm after this many normal clips. The default is n of k/n.")
    ] = None,
    adapt: Annotated[
        bool, flag("--adapt", "Adapt the threshold to the machine, slowly and as people answer.")
    ] = False,
    commission: Annotated[
        int | None,
        option("Declare the machine healthy for this number of clips, once per model.", min=10),
    ] = None,
    webhook: Annotated[
        str | None, option("Send messages about clips and alarms to this web address.")
    ] = None,
    webhook_secret: Annotated[
        str | None,
        typer.Option(
            envvar="DACO_WEBHOOK_SECRET", help="Sign messages with this secret.", metavar="TEXT"
        ),
    ] = None,
    tell: Annotated[Tell, option("Send all messages, or only those about alarms.")] = Tell.all,
    settle: Annotated[
        float, option("Take a file as complete after this many seconds without change.", min=0)
    ] = 2.0,
    poll: Annotated[
        float, option("Wait this many seconds before the next look at the folder.", min=0.01)
    ] = 1.0,
    once: Annotated[bool, flag("--once", "Score the recordings that are there, then end.")] = False,
    exit_code: Annotated[bool, flag("--exit-code", "Exit with 3 if an alarm was opened.")] = False,
    window: shared.Window = None,
    hop: shared.Hop = None,
    aggregate: shared.Aggregate = "max",
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    keep_days: shared.KeepDays = None,
) -> None:
    """Score every recording that arrives in a folder, exactly once, and raise alarms.

    daco waits for files that are still being written. It stores the results in a database, which
    daco serve can show. After any interruption the same command continues. An overwritten file is
    scored again if its bytes changed.

    Ctrl-C ends the command. Exit codes: 0 success, 3 an alarm was opened (with --exit-code), 2 a
    mistake in the call or the model.
    """
    from daco.detector.verdict import ScoreOptions, parse_aggregate
    from daco.embedding.frontend import cut
    from daco.monitoring.alarms import AlarmRule
    from daco.monitoring.notify import Webhook, WebhookSender
    from daco.monitoring.store import Store, StoreError
    from daco.monitoring.watch import ModelInUse, Watcher

    console, errors = Output(), Output(stderr=True)
    rule = AlarmRule.parse(alarm, recovery=recovery)
    parse_aggregate(aggregate)
    cut(1, 1, window, hop)  # reports a mistake in the options before any recording is read
    target = Webhook.parse(webhook, webhook_secret) if webhook else None
    in_use = ModelInUse(model, ScoreOptions(window, hop, aggregate, weights, device))
    url = shared.database_of(db, model)
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(url, rule=rule, events=_events(target, tell)))
        adapt = adapt or commission is not None
        watcher = Watcher(in_use, folder, store, adapt=adapt, settle=settle)
        _introduce(errors, in_use, watcher, store)
        if adapt:
            _introduce_adaptation(errors, in_use, store, commission)
        courier = None
        if target is not None:
            outbox = store.outbox.of(in_use.machine)
            courier = stack.enter_context(
                WebhookSender(outbox, target, lambda sentence: errors.notes([sentence]))
            )
        ending = stack.enter_context(_ending_signals())
        session = _Session(console, errors, watcher, courier, keep_days)
        if once:
            session.once(settle, ending)
        else:
            session.keep_on(poll, ending)
        session.conclude(ending)
        if adapt:
            with suppress(StoreError):
                errors.notes([_adaptation(in_use, store).sentence()], "adapted")
    if exit_code and session.opened:
        raise typer.Exit(shared.ALARM_EXIT)


@dataclass
class _Session:
    """One run of the command, with its counts."""

    console: Output
    errors: Output
    watcher: Watcher
    courier: WebhookSender | None
    keep_days: float | None
    clips: int = 0
    states: Counter[str] = field(default_factory=Counter)
    unusable: int = 0
    opened: int = 0
    _pruned_at: float | None = None

    def once(self, settle: float, ending: threading.Event) -> None:
        """Score the complete files of the folder."""
        self._prune_daily()
        self._look(ending, second_try=False)
        if self.watcher.waiting and not ending.wait(settle):
            self._look(ending, second_try=False)
        if waiting := self.watcher.waiting:
            names = name_list(waiting)
            self.errors.notes([f"Still being written, and left for the next run: {names}."])

    def keep_on(self, poll: float, ending: threading.Event) -> None:
        """Look at the folder again and again until `ending` is set."""
        while not ending.is_set():
            self._prune_daily()
            self._look(ending)
            ending.wait(max(poll, self.watcher.look_seconds * (1 / _SHARE - 1)))

    def conclude(self, ending: threading.Event) -> None:
        """Wait for messages on their way, and print the counts."""
        from daco.monitoring.store import StoreError

        if self.courier is not None:
            with suppress(StoreError):  # the messages are kept then, too
                left = self.courier.finish(1.0 if ending.is_set() else _LAST_DELIVERIES)
                if left:
                    sentence = "The next run sends them."
                    self.errors.notes(
                        [f"Not delivered yet: {quantity(left, 'message')}. {sentence}"]
                    )
        others = [f"{n} {state}, " for state, n in self.states.items() if state not in _DECISIONS]
        counts = f"{quantity(self.clips, 'clip')}, {self.states['anomalous']} anomalous, "
        counts += "".join(others) + quantity(self.opened, "alarm")
        if self.unusable:
            counts += f"; {quantity(self.unusable, 'file')} could not be used"
        self.errors.write(f"{counts}.")

    def _look(self, ending: threading.Event, *, second_try: bool = True) -> None:
        for event in self.watcher.poll(second_try=second_try, stop=ending.is_set):
            self._show(event)

    def _show(self, event: Event) -> None:
        from daco.monitoring.watch import NewVerdict, UnusableFile

        now = f"{datetime.now():%H:%M:%S}"
        if isinstance(event, NewVerdict):
            self.clips += 1
            self.states[event.verdict.state] += 1
            width = self.console.width if self.console.is_terminal else None
            for line in _clip_lines(now, event, width):
                self.console.print(line, soft_wrap=True)
            self._show_alarm(event.added, event.verdict.state)
            if self.courier is not None:
                self.courier.wake()
        elif isinstance(event, UnusableFile):
            self.unusable += 1
            text = f" {printable(event.name)}: {printable(event.reason)}"
            self.console.print(
                Text.assemble(now, " ", ("unusable", "yellow"), text), soft_wrap=True
            )
        else:
            self.errors.notes([event.text])

    def _show_alarm(self, added: Addition, state: str) -> None:
        if added.opened is not None:
            self.opened += 1
            rule = self.watcher.store.rule
            among = f": {rule.k} of the last {rule.n} clips are {state}" if rule.n > 1 else ""
            text = f"         ALARM {added.opened} of {self.watcher.model.machine}{among}"
            self.console.print(Text(printable(text), "bold white on red"), soft_wrap=True)
        for number in added.recovered:
            self.console.print(Text(f"         alarm {number} is over", "green"), soft_wrap=True)

    def _prune_daily(self) -> None:
        from daco.monitoring.store import StoreError

        now = time.monotonic()
        if self._pruned_at and now - self._pruned_at < _DAY:
            return
        store, machine = self.watcher.store, self.watcher.model.machine
        try:
            if self.keep_days is not None:
                store.prune(keep_days=self.keep_days, machine=machine)
        except StoreError as error:
            self.errors.notes([str(error)])
        self.watcher.forget_gone()  # daco serve may have removed clips as well
        self._pruned_at = now


def _clip_lines(now: str, scored: NewVerdict, width: int | None) -> Iterator[Text]:
    """One line for a scored recording, and one for every reason to mistrust the score."""
    verdict = scored.verdict
    sign = ">" if verdict.score > verdict.threshold else "<="
    decision, style = _DECISIONS.get(verdict.state, (f"{verdict.state:<7}", "yellow"))
    head = f" {verdict.score:>7.4g} {sign:>2} {verdict.threshold:<7.4g} "
    name, nearest = printable(verdict.name), printable(verdict.nearest)
    if width is not None:
        room = max(20, width - len(now) - 1 - len(decision) - len(head) - len("  ~ "))
        nearest = _shortened(nearest, max(room // 3, room - cell_len(name)))
        name = _shortened(name, room - cell_len(nearest))
    yield Text.assemble(now, " ", (decision, style), head, name, ("  ~ " + nearest, "dim"))
    for reason in verdict.reasons:
        if reason.startswith("views:"):  # of every anomaly; the page and the database have it
            continue
        line = Text(f"         {printable(reason)}", "yellow")
        line.truncate(width or line.cell_len, overflow="ellipsis")
        yield line


def _shortened(text: str, width: int) -> str:
    """The end of a text that is too long for a number of columns: names differ at their ends.

    >>> _shortened("2026/03/press_0042.wav", 15)
    '…press_0042.wav'
    """
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 1:
        text = text[1:]
    return set_cell_size(f"…{text}", max(width, 1)).rstrip()


def _events(target: object | None, tell: Tell) -> tuple[str, ...]:
    from daco.monitoring.store import CLIP_SCORED, EVENTS

    if target is None:
        return ()
    return EVENTS if tell is Tell.all else tuple(each for each in EVENTS if each != CLIP_SCORED)


def _introduce(errors: Output, in_use: ModelInUse, watcher: Watcher, store: Store) -> None:
    model = in_use.model
    errors.write(
        f"{in_use.machine}: {quantity(len(model), 'normal')}, alarm rule {store.rule}. The "
        f"false-alarm rate is {model.false_alarm_rate:g} per clip, estimated "
        f"{model.basis_sentence}."
    )
    errors.write(f"Watching {watcher.folder}", wrap=False)
    errors.write(f"Results in {store.database.label}", wrap=False)
    errors.notes(model.warnings(), "warning")


def _introduce_adaptation(
    errors: Output, in_use: ModelInUse, store: Store, commission: int | None
) -> None:
    """Print what was learned; declare the machine healthy, unless that was done for this model."""
    state, model = _adaptation(in_use, store), in_use.model
    if commission is not None and not state.declared_at:
        state = store.people.declare_healthy(
            in_use.machine,
            commission,
            "daco watch --commission",
            model_sha256=model.sha256,
            rate=model.false_alarm_rate,
        )
    errors.notes([state.sentence()], "adapted")


def _adaptation(in_use: ModelInUse, store: Store) -> Adaptation:
    """What was learned about the machine with this model."""
    from daco.monitoring.adaptation import for_model

    state, model = store.people.adaptation(in_use.machine), in_use.model
    return for_model(state, model.sha256, model.false_alarm_rate)


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
