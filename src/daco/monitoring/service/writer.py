"""The thread that writes clips: all waiting clips are committed together.

A request is answered only after its clip was committed, so that a 200 survives the death of the
process. Committing many clips at once makes that affordable.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence

from daco.monitoring.store import Added, NewClip, Store, StoreError

MOST_AT_ONCE = 256

Outcome = Added | Exception | None
Answer = asyncio.Future[Added | None]

log = logging.getLogger("daco.monitoring.service")


class Writer:
    """Commits clips in batches; `on_commit` is called in the event loop after each."""

    def __init__(self, store: Store, on_commit: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[NewClip, Answer] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Clips that wait to be committed."""
        return self._queue.qsize()

    async def add(self, clip: NewClip) -> Added | None:
        """Commit a clip; None if it was stored before.

        Raises
        ------
        StoreError
            It was not committed.
        """
        answer: Answer = self._loop.create_future()
        self._queue.put((clip, answer))
        return await answer

    async def close(self) -> None:
        """Commit what is waiting, then end."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = [self._queue.get()]
            while len(batch) < MOST_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get())
            waiting = [each for each in batch if each is not None]
            ended = len(waiting) < len(batch)
            if waiting:
                outcome = self._commit([clip for clip, _ in waiting])
                answers = [answer for _, answer in waiting]
                self._loop.call_soon_threadsafe(self._answer, answers, outcome)

    def _commit(self, clips: Sequence[NewClip]) -> list[Outcome]:
        try:
            return list(self._store.add_many(clips))
        except StoreError as error:
            log.error("clips could not be stored: %s", error)
            return [error] * len(clips)
        except Exception as error:
            log.exception("clips could not be stored")
            if len(clips) == 1:
                return [error]
        # One of them is at fault: store the others one by one.
        return [outcome for clip in clips for outcome in self._commit([clip])]

    def _answer(self, answers: Sequence[Answer], outcome: Sequence[Outcome]) -> None:
        for answer, result in zip(answers, outcome, strict=True):
            if answer.done():  # the client has gone; the clip is stored
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
        self._on_commit()
