"""Watchdog: alarms about missing recordings and about daco itself, and what is done regularly.

Problems that the parts of a plant report become open alarms of the kind ``daco`` and are cleared
when they are over, also those of a process that was killed.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from daco.errors import DacoError
from daco.monitoring.alarms import DACO, NO_RECORDINGS
from daco.monitoring.drift import WINDOW, drift_of_clips
from daco.monitoring.store.records import MachineSummary, StoreError
from daco.monitoring.store.retention import forget_sources, prune, stored_audio
from daco.monitoring.units import duration_text

if TYPE_CHECKING:
    from daco.monitoring.engine import Plant
    from daco.monitoring.tables import MachineConfig

TICK = 5.0
"""Seconds between two looks at everything."""

LATE = 2.0
"""Times the expected interval after which recordings are missed: one may be lost."""

PATIENCE = 60.0
"""Seconds that the database may fail before people are told without it."""

PRUNE_SECONDS = 6 * 3600.0
DRIFT_SECONDS = 300.0

log = logging.getLogger("daco.monitoring")

Key = tuple[str | None, str, str]

# Other computers may use the same database: each clears its own alarms only.
_HERE = f" on {socket.gethostname()}"


class Watchdog:
    """Looks after a plant in a thread of its own, by a clock that only goes forward."""

    def __init__(self, plant: Plant, clock: Callable[[], float] = time.monotonic) -> None:
        self._plant, self._clock = plant, clock
        self._lock = threading.Lock()
        self._problems: dict[Key, str] = {}
        self._last_clip: dict[str, tuple[int, float]] = {}
        self._started = clock()
        self._pruned_at = clock() - PRUNE_SECONDS + 60.0
        self._drift_at: dict[str, tuple[int, float]] = {}
        self._store_problem: str | None = None
        self._failing_since, self._told = 0.0, False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look regularly."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def report(self, machine: str | None, cause: str, problem: str | None) -> None:
        """Record a problem, one per machine and cause; None when it is over."""
        self._set((machine, DACO, cause if machine else cause + _HERE), problem)

    def problems(self, machine: str | None) -> list[str]:
        """Sentences about a machine, or about daco as a whole."""
        with self._lock:
            found = [text for (whose, _, _), text in self._problems.items() if whose == machine]
        if machine is None and self._store_problem is not None:
            found.append(self._store_problem)
        return found

    def _set(self, key: Key, problem: str | None) -> None:
        with self._lock:
            if problem is None:
                if self._problems.pop(key, None) is not None:
                    log.info("%sover: %s", f"{key[0]}: " if key[0] else "", key[2])
                return
            if key not in self._problems:
                log.warning("%s%s", f"{key[0]}: " if key[0] else "", problem)
            self._problems[key] = problem

    def _run(self) -> None:
        while not self._stop.wait(TICK):
            try:
                self.tick()
            except Exception:  # whatever fails, it looks again
                log.exception("The watchdog failed.")

    def tick(self) -> None:
        """Look at everything once."""
        store = self._plant.store
        try:
            store.check()
            heard = {each.machine: each for each in store.machines_summary()}
            for machine in self._plant.config.machine.values():
                self._guard(f"watchdog {machine.id}", self._look_at, machine, heard.get(machine.id))
            self._guard("watchdog disk", self._look_at_disk)
            if self._clock() - self._pruned_at >= PRUNE_SECONDS:
                self._pruned_at = self._clock()
                self._guard("watchdog retention", self._prune)
            store.return_from_shelf()
            self._synchronise()
            if self._store_problem is not None:
                log.info("The database can be used again.")
            self._store_problem, self._told = None, False
        except StoreError as error:
            if self._store_problem is None:
                log.error("%s", error)
                self._failing_since = self._clock()
            self._store_problem = str(error)
            # Messages wait in the database as well, so that this one goes without it.
            if self._clock() - self._failing_since >= PATIENCE and not self._told:
                self._told = True
                self._plant.notifier.tell_now(f"No recording can be stored: {error}")

    def _guard(self, cause: str, look: Callable[..., None], *values: Any) -> None:
        """Call a function whose failure is an alarm, and does not keep the others from looking."""
        problem = None
        try:
            look(*values)
        except StoreError:
            raise
        except Exception as error:
            problem = f"A part of daco fails ({cause}: {type(error).__name__}). See its log."
            if problem not in self.problems(None):
                log.exception("%s", problem)
        self.report(None, cause, problem)

    def _look_at(self, machine: MachineConfig, heard: MachineSummary | None) -> None:
        self._plant.models.get(machine.id)
        problem = self._plant.models.problem(machine.id)
        sentence = problem and f"The model of {machine.name} cannot be used: {problem}"
        self.report(machine.id, "model", sentence)
        self._set((machine.id, NO_RECORDINGS, "recordings"), self._silence(machine, heard))
        self._look_for_drift(machine, heard)

    def _silence(self, machine: MachineConfig, heard: MachineSummary | None) -> str | None:
        """A sentence when a machine has sent nothing for too long, by a clock that cannot jump."""
        now, local = self._clock(), datetime.now().astimezone()
        last = None if heard is None else heard.last
        number = 0 if last is None else last.id
        if self._last_clip.get(machine.id, (-1, 0.0))[0] != number:
            age = 0.0
            if last is not None and machine.id not in self._last_clip:
                # A time in the future says that a clock was wrong: counted from now on.
                age = max(0.0, (datetime.now(UTC) - last.received_at).total_seconds())
            self._last_clip[machine.id] = (number, now - age)
        if machine.hours is not None and local not in machine.hours:
            self._last_clip[machine.id] = (number, now)
        out = heard is not None and heard.out_of_service_since is not None
        if machine.expect_every is None or out:
            return None
        silent = now - self._last_clip[machine.id][1]
        if silent <= LATE * machine.expect_every.total_seconds():
            return None
        expected = duration_text(machine.expect_every)
        since = datetime.now().astimezone() - timedelta(seconds=silent)
        return (
            f"{machine.name}: no recording since {since:%Y-%m-%d %H:%M}; one is expected every "
            f"{expected}."
        )

    def _look_for_drift(self, machine: MachineConfig, heard: MachineSummary | None) -> None:
        model = self._plant.models.get(machine.id)
        if heard is None or heard.last is None or model is None:
            return
        number, at = self._drift_at.get(machine.id, (0, -DRIFT_SECONDS))
        if number == heard.last.id or self._clock() - at < DRIFT_SECONDS:
            return
        self._drift_at[machine.id] = (heard.last.id, self._clock())
        drift = drift_of_clips(self._plant.store.clips(machine.id, WINDOW), model.info)
        sentence = None
        if drift is not None and drift.stale:
            sentence = f"The alarm limit of {machine.name} is out of date. {drift.sentence}"
        self.report(machine.id, "limit", sentence)

    def _look_at_disk(self) -> None:
        recordings = self._plant.recordings
        if recordings is not None and recordings.has_space():
            self.report(None, "disk", None)

    def _prune(self) -> None:
        database = self._plant.store.database
        try:
            removal = prune(database, self._plant.config.keep_of)
            self.report(None, "retention", " ".join(removal.problems) or None)
            for folder in self._plant.folders.folders:
                files = list(folder.arrivals.processed)
                if files:  # none: the drive may be away
                    gone = folder.is_removed(files)
                    forget_sources(database, folder.machine, folder.prefix, gone)
            if self._plant.recordings is not None:
                self._plant.recordings.prune(lambda names: stored_audio(database, names))
        except StoreError:
            raise
        except DacoError as error:
            log.warning("Old recordings could not be removed: %s", error)

    def _synchronise(self) -> None:
        """Open alarms for the problems there are, and clear those that are over."""
        store = self._plant.store
        with self._lock:
            problems = dict(self._problems)
        for (machine, kind, cause), text in problems.items():
            store.raise_alarm(machine, kind, cause, text)
        # Whether a receiver works again is known when it has taken a message.
        undecided = {name + _HERE for name in self._plant.notifier.undecided()}
        for machine, kind, cause in store.open_causes():
            ours = machine in self._plant.config.machine or cause.endswith(_HERE)
            if ours and (machine, kind, cause) not in problems and cause not in undecided:
                store.clear_alarm(machine, kind, cause)
        self._plant.notifier.wake()
