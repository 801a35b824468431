"""Judge: scores recordings in guarded worker processes, with limits of time and memory.

Every worker is a `pebble.ProcessPool` of one process: a pool whose idle process was killed is
broken for good, and a new one takes its place.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pebble import ProcessExpired, ProcessPool

from daco.detector.verdict import ScoreOptions
from daco.errors import AudioError, DacoError
from daco.monitoring import worker
from daco.monitoring.models import ModelInUse
from daco.monitoring.store.records import BusyError
from daco.monitoring.worker import Judged, Limits, UnknownModelError

LOAD_SECONDS = 120.0
"""In which one model must be loaded."""

_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

log = logging.getLogger("daco.monitoring")


class UnusableRecordingError(DacoError):
    """A recording cannot be used; the message is the reason."""


class JudgeTimeoutError(DacoError):
    """A job took longer than it may."""


class WorkerLostError(DacoError):
    """The workers that did a job have ended."""


class Judge:
    """Hands jobs to a few worker processes; a worker that ends is replaced, its job tried again.

    More jobs than may wait are refused with a `BusyError`; `seconds` is the time that one may wait,
    and may take.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        waiting: int = 16,
        seconds: float = 20.0,
        limits: Limits | None = None,
        weights: Mapping[str, Path] | None = None,
        device: str = "cpu",
    ) -> None:
        for name in _ONE_THREAD:  # workers compute side by side, each in one thread
            os.environ.setdefault(name, "1")
        self.size, self.seconds, self.restarts = workers, seconds, 0
        self._most = workers + waiting
        self._given = limits or Limits(), dict(weights or {}), device
        # Threads of this process may hold locks when it is forked: a clean process forks.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["daco.monitoring.worker"])
        self._lock = threading.Lock()
        self._jobs = 0
        self._closed = False
        # The worker that was used last is taken first: it has the models.
        self._idle: queue.LifoQueue[ProcessPool] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(self._new_pool())

    @property
    def busy(self) -> int:
        """Workers that do a job."""
        return min(self._jobs, self.size)

    @property
    def queued(self) -> int:
        """Jobs that wait for a worker."""
        return max(0, self._jobs - self.size)

    def score(
        self,
        model: ModelInUse,
        recording: bytes | Path,
        name: str,
        options: ScoreOptions | None = None,
    ) -> Judged:
        """Judge a recording; an `UnusableRecordingError` says why it cannot be."""
        try:
            return self.ask(model, worker.score, recording, name, options or ScoreOptions())
        except AudioError as error:
            raise UnusableRecordingError(error.reason) from None
        except OSError as error:
            raise UnusableRecordingError(f"cannot be read ({error.strerror or error}).") from None
        except (BusyError, JudgeTimeoutError, WorkerLostError):
            raise
        except Exception:
            log.exception("%s: %s could not be judged", model.machine, name)
            raise UnusableRecordingError("it cannot be judged. The log says why.") from None

    def ask(self, model: ModelInUse, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function of `worker` on a model; its file is sent to workers that need it."""
        try:
            return self._run(function, model.file_sha256, None, *args)
        except UnknownModelError:
            seconds = self.seconds + LOAD_SECONDS
            return self._run(function, model.file_sha256, model.file, *args, seconds=seconds)

    def load(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function of `worker` that may take as long as loading a model."""
        return self._run(function, *args, seconds=LOAD_SECONDS)

    def call(self, function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
        """Run a function of a module within the limit of memory, such as one that draws."""
        return self._run(worker.call, function, args, seconds=seconds)

    def _run(self, function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
        """Run a job in a worker, in `self.seconds` or those that are given."""
        with self._lock:
            if self._jobs >= self._most:
                raise BusyError("Too many recordings are waiting. Try again in a few seconds.")
            self._jobs += 1
        try:
            try:
                return self._run_once(function, args, seconds or self.seconds)
            except WorkerLostError:
                return self._run_once(function, args, seconds or self.seconds)
        finally:
            with self._lock:
                self._jobs -= 1

    def _run_once(self, function: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> Any:
        try:
            pool = self._idle.get(timeout=max(seconds, self.seconds))
        except queue.Empty:
            raise BusyError("No worker was free in time. Try again in a few seconds.") from None
        is_fit = False
        try:
            future = pool.schedule(function, args=args, timeout=seconds)
            # The first job of a worker waits for its start; pebble ends it when its time is over.
            result = future.result(timeout=seconds + LOAD_SECONDS)
            is_fit = True
            return result
        except TimeoutError:
            raise JudgeTimeoutError(f"It took longer than {seconds:g} s.") from None
        except Exception as error:
            # pebble adds a traceback to errors of the job; others are of the pool.
            is_fit = hasattr(error, "traceback") and not isinstance(error, ProcessExpired)
            if not is_fit:
                raise WorkerLostError("The workers that did this job ended.") from None
            raise
        finally:
            self._idle.put(pool if is_fit else self._replace(pool))

    def _replace(self, pool: ProcessPool) -> ProcessPool:
        self.restarts += 1
        threading.Thread(target=_end, args=(pool,), daemon=True).start()
        if not self._closed:
            log.warning("A worker ended and is replaced.")
        return self._new_pool()

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(
            max_workers=1, initializer=worker.start, initargs=self._given, context=self._context
        )

    def close(self) -> None:
        """End all workers; jobs that are under way are finished first, those waiting fail."""
        self._closed = True
        for _ in range(self.size):
            try:
                _end(self._idle.get(timeout=self.seconds))
            except queue.Empty:
                return


def _end(pool: Any) -> None:
    pool.stop()
    pool.join()
