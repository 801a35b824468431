"""The thread that commits the clips of all others, many at once."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from daco.monitoring.store.records import ConflictError, NewClip, Outcome, StoreError

MOST_AT_ONCE = 256
"""Clips that are committed together."""

log = logging.getLogger("daco.monitoring")


class Writer:
    """A thread that commits all waiting clips together, by a function that adds many.

    Committing many clips at once makes it affordable that nothing is answered before it is on the
    disk.
    """

    def __init__(
        self, add_many: Callable[[Sequence[NewClip]], list[Outcome | ConflictError]]
    ) -> None:
        self._add_many = add_many
        self._queue: queue.SimpleQueue[tuple[NewClip, Future[Outcome]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def add(self, clip: NewClip) -> Outcome:
        """Commit a clip; a StoreError if it was not committed."""
        answer: Future[Outcome] = Future()
        self._queue.put((clip, answer))
        return answer.result()

    def close(self) -> None:
        """Commit what is waiting, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = [self._queue.get()]
            while len(batch) < MOST_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get())
            waiting = [each for each in batch if each is not None]
            ended = len(waiting) < len(batch)
            outcomes = self._commit([clip for clip, _ in waiting]) if waiting else []
            for (_, answer), outcome in zip(waiting, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)

    def _commit(self, new: Sequence[NewClip]) -> Sequence[Outcome | Exception]:
        try:
            return self._add_many(new)
        except StoreError as error:
            # One exception raised in many threads would mix their tracebacks.
            return [StoreError(error.reason) for _ in new]
        except Exception as error:
            if len(new) == 1:
                log.exception("A clip could not be stored.")
                return [error]
        # One of them is at fault: store the others one by one.
        return [outcome for clip in new for outcome in self._commit([clip])]
