"""``daco watch``: judge every recording that arrives in a folder."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from daco.commands.modeltext import note, printable, say
from daco.commands.output import Output
from daco.commands.score import ALARM_EXIT

if TYPE_CHECKING:
    from daco.monitoring.notify import Courier
    from daco.monitoring.store import Added, Store
    from daco.monitoring.watch import Event, ModelInUse, ScoredRecording, Watcher

_DAY = 24 * 3600.0
_LAST_DELIVERIES = 30.0  # seconds that the end waits for messages on their way
_SHARE = 0.2  # of the time that may go into looking at a large folder


class Tell(StrEnum):
    """What a webhook is told."""

    all = "all"
    alarms = "alarms"


def watch(
    model: Annotated[Path, typer.Argument(help="A model made by daco fit.")],
    folder: Annotated[Path, typer.Argument(help="Where recordings arrive, at any depth.")],
    db: Annotated[
        str | None, typer.Option(help="Database URL. Default: daco.db beside the model.")
    ] = None,
    alarm: Annotated[
        str, typer.Option(help="Anomalous clips among the last ones; off: every one alarms.")
    ] = "3/5",
    recovery: Annotated[
        int | None, typer.Option(help="Normal clips in a row that end an alarm. Default: n of k/n.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(help="Web address that is told of clips and alarms.")
    ] = None,
    webhook_secret: Annotated[
        str | None,
        typer.Option(envvar="DACO_WEBHOOK_SECRET", help="Signs what it is told.", metavar="TEXT"),
    ] = None,
    tell: Annotated[Tell, typer.Option(help="What the webhook is told.")] = Tell.all,
    settle: Annotated[
        float, typer.Option(help="Seconds a file must stand still to count as written.", min=0)
    ] = 2.0,
    poll: Annotated[float, typer.Option(help="Seconds from one look to the next.", min=0.01)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Judge what is there, then end.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if an alarm was opened.")
    ] = False,
    window: Annotated[
        float | None, typer.Option(help="Cut recordings into windows of so many seconds.")
    ] = None,
    hop: Annotated[
        float | None, typer.Option(help="Seconds from one window to the next. Default: no overlap.")
    ] = None,
    aggregate: Annotated[
        str, typer.Option(help="Windows that count: max, mean, or top3 for the worst three.")
    ] = "max",
    weights: Annotated[Path | None, typer.Option(help="Checkpoint, if not downloaded.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    keep_days: Annotated[
        float | None, typer.Option(help="Forget clips and alarms after so many days.", min=0)
    ] = None,
) -> None:
    """Judge every recording that arrives in a folder, exactly once, and raise alarms.

    Files that are still being written wait. Results go to a database, which
    daco serve shows; the same command goes on where it was interrupted,
    however that happened. A recording is new when its bytes are: a file that
    is overwritten is judged again, one that is touched is not.

    Ends with Ctrl-C. Exit codes: 0; 3 an alarm was opened, with --exit-code;
    2 a mistake in the call or the model.
    """
    from daco.detector.verdict import ScoreOptions, parse_aggregate
    from daco.embedding.frontend import cut
    from daco.monitoring.alarms import AlarmRule
    from daco.monitoring.notify import Courier, Webhook
    from daco.monitoring.store import Store
    from daco.monitoring.watch import ModelInUse, Watcher

    console, errors = Output(), Output(stderr=True)
    rule = AlarmRule.parse(alarm, recovery=recovery)
    parse_aggregate(aggregate)
    cut(1, 1, window, hop)  # a mistake in these is not the recordings'
    target = Webhook.parse(webhook, webhook_secret) if webhook else None
    in_use = ModelInUse(model, ScoreOptions(window, hop, aggregate, weights, device))
    url = db or f"sqlite:///{model.absolute().parent / 'daco.db'}"
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(url, rule=rule, events=_events(target, tell)))
        watcher = Watcher(in_use, folder, store, settle=settle)
        _introduce(errors, in_use, watcher, store)
        courier = None
        if target is not None:
            outbox = store.outbox.of(in_use.machine)
            courier = stack.enter_context(
                Courier(outbox, target, lambda sentence: note(errors, [sentence]))
            )
        ending = stack.enter_context(_until_told_to_end())
        session = _Session(console, errors, watcher, courier, keep_days)
        if once:
            session.once(settle, ending)
        else:
            session.keep_on(poll, ending)
        session.conclude(ending)
    if exit_code and session.opened:
        raise typer.Exit(ALARM_EXIT)


class _Session:
    """One run of the command: what it tells, and what it has counted."""

    def __init__(
        self,
        console: Console,
        errors: Console,
        watcher: Watcher,
        courier: Courier | None,
        keep_days: float | None,
    ) -> None:
        self.console, self.errors = console, errors
        self.watcher, self.courier, self.keep_days = watcher, courier, keep_days
        self.clips = self.anomalous = self.unusable = self.opened = 0
        self._pruned_at: float | None = None

    def once(self, settle: float, ending: threading.Event) -> None:
        """Judge what is there and stands still."""
        self._prune_daily()
        self._look(ending, second_try=False)
        if self.watcher.waiting and not ending.wait(settle):
            self._look(ending, second_try=False)
        if waiting := self.watcher.waiting:
            from daco.text import name_list, quantity

            still = f"{quantity(waiting, 'file')} still being written: {name_list(waiting)}."
            note(self.errors, [f"{still} Left for the next run."])

    def keep_on(self, poll: float, ending: threading.Event) -> None:
        """Look again and again until told to end."""
        while not ending.is_set():
            self._prune_daily()
            self._look(ending)
            ending.wait(max(poll, self.watcher.look_seconds * (1 / _SHARE - 1)))

    def conclude(self, ending: threading.Event) -> None:
        """Say what was done, and give messages that are on their way a moment."""
        from daco.monitoring.store import StoreError
        from daco.text import quantity

        if self.courier is not None:
            with suppress(StoreError):  # then they are kept as well
                left = self.courier.finish(1.0 if ending.is_set() else _LAST_DELIVERIES)
                if left:
                    note(self.errors, [f"{quantity(left, 'message')} not delivered yet; kept."])
        said = f"{quantity(self.clips, 'clip')}, {self.anomalous} anomalous, "
        said += quantity(self.opened, "alarm")
        if self.unusable:
            said += f"; {quantity(self.unusable, 'file')} could not be used"
        say(self.errors, f"{said}.")

    def _look(self, ending: threading.Event, *, second_try: bool = True) -> None:
        for event in self.watcher.poll(second_try=second_try, stop=ending.is_set):
            self._tell(event)

    def _tell(self, event: Event) -> None:
        from daco.monitoring.watch import ScoredRecording, UnusableFile

        now = f"{datetime.now():%H:%M:%S}"
        if isinstance(event, ScoredRecording):
            self.clips += 1
            self.anomalous += event.verdict.alarm
            for line in clip_lines(now, event, self._width()):
                self.console.print(line, soft_wrap=True)
            self._tell_alarm(event.added)
            if self.courier is not None:
                self.courier.hurry()
        elif isinstance(event, UnusableFile):
            self.unusable += 1
            name, reason = printable(event.name), printable(event.reason)
            self.console.print(
                Text.assemble(now, " ", ("unusable", "yellow"), f" {name}: {reason}"),
                soft_wrap=True,
            )
        else:
            note(self.errors, [event.text])

    def _tell_alarm(self, added: Added) -> None:
        if added.opened is not None:
            self.opened += 1
            rule = self.watcher.store.policy.rule
            among = f", {rule.k} of the last {rule.n} clips anomalous" if rule.n > 1 else ""
            text = f"         ALARM {added.opened} of {self.watcher.model.machine}{among}"
            self.console.print(Text(printable(text), "bold white on red"), soft_wrap=True)
        for number in added.recovered:
            self.console.print(Text(f"         alarm {number} is over", "green"), soft_wrap=True)

    def _width(self) -> int | None:
        """Columns a line may have; a log has room for whole names."""
        return self.console.width if self.console.is_terminal else None

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
            note(self.errors, [str(error)])
        self.watcher.forget_gone()  # others may have removed clips as well, as daco serve does
        self._pruned_at = now


def clip_lines(now: str, scored: ScoredRecording, width: int | None) -> Iterator[Text]:
    """A judged recording as a line, and one for every reason to mistrust the score."""
    verdict = scored.verdict
    sign, decision, style = ("<=", "normal ", "green")
    if verdict.alarm:
        sign, decision, style = (">", "ANOMALY", "bold red")
    head = f" {verdict.score:>7.4g} {sign:>2} {verdict.threshold:<7.4g} "
    name, nearest = printable(verdict.name), printable(verdict.nearest)
    if width is not None:
        room = max(20, width - len(now) - 1 - len(decision) - len(head) - len("  ~ "))
        rest = max(room // 3, room - cell_len(name))
        nearest = fitted(nearest, rest)
        name = fitted(name, room - cell_len(nearest))
    yield Text.assemble(now, " ", (decision, style), head, name, ("  ~ " + nearest, "dim"))
    for reason in verdict.reasons:
        line = Text(f"         {printable(reason)}", "yellow")
        line.truncate(width or line.cell_len, overflow="ellipsis")
        yield line


def fitted(text: str, width: int | None) -> str:
    """A text in so many columns, its beginning given up: names differ at their ends.

    >>> fitted("2026/03/press_0042.wav", 15)
    '…press_0042.wav'
    """
    if width is None or cell_len(text) <= width:
        return text
    cut = text
    while cut and cell_len(cut) > width - 1:
        cut = cut[1:]
    return set_cell_size(f"…{cut}", max(width, 1)).rstrip()


def _events(target: object | None, tell: Tell) -> tuple[str, ...]:
    from daco.monitoring.store import CLIP_SCORED, EVENTS

    if target is None:
        return ()
    return EVENTS if tell is Tell.all else tuple(each for each in EVENTS if each != CLIP_SCORED)


def _introduce(errors: Console, in_use: ModelInUse, watcher: Watcher, store: Store) -> None:
    from daco.text import quantity

    model = in_use.model
    say(
        errors,
        f"{in_use.machine}: {quantity(len(model), 'normal')}, threshold {model.threshold:.4g} for "
        f"a false-alarm rate of {model.false_alarm_rate:g} per clip; alarm {store.policy.rule}.",
    )
    say(errors, f"Watching {watcher.folder}", wrap=False)
    say(errors, f"Results in {store.database.label}", wrap=False)
    note(errors, model.cautions(), "caution")


@contextmanager
def _until_told_to_end() -> Iterator[threading.Event]:
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
