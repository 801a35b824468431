"""A worker process: one recording at a time is decoded and judged, within limits of the kernel.

What comes from outside is decoded here and nowhere else. Before every job an alarm clock and a
bound on processor time are set, whose signals end the process wherever it is, and memory is
bounded to what the worker had at its start and a share for the job. Whoever hands out the jobs
sees a closed connection and has another worker forked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from daco.audio.formats import AudioLimits
from daco.detector.model import MachineModel
from daco.detector.verdict import judge
from daco.embedding.frontend import Listener
from daco.errors import AudioError, DacoError
from daco.files.hashing import sha256_of_bytes
from daco.monitoring.service import pictures, wire

log = logging.getLogger("daco.monitoring.service.worker")


@dataclass(frozen=True)
class JobLimits:
    """What one job may take."""

    seconds: float
    memory: int
    audio: AudioLimits


@dataclass(frozen=True)
class Detector:
    """A model, and the listener that hears as its normals were heard; None: it cannot hear."""

    model: MachineModel
    listener: Listener | None


def serve(
    sock: socket.socket, detectors: Mapping[str, Detector], limits: JobLimits, scratch: Path
) -> None:
    """Do jobs until the other side closes the connection."""
    _confine(limits, scratch)
    while (message := wire.receive(sock)) is not None:
        header, payload = message
        _set_clocks(limits.seconds)
        reply, picture, usable = _do(header, payload, detectors, limits)
        _stop_clocks()
        wire.send(sock, reply, picture)
        if not usable:
            return


def _do(
    header: dict[str, Any], payload: bytes, detectors: Mapping[str, Detector], limits: JobLimits
) -> tuple[dict[str, Any], bytes, bool]:
    """The reply, its bytes, and whether this process is fit for another job."""
    try:
        if header["job"] == "score":
            return _score(header, payload, detectors, limits), b"", True
        return {}, _picture(header, limits), True
    except MemoryError:
        return {"error": "it takes more memory than a recording may."}, b"", False
    except AudioError as error:
        return {"error": str(error)}, b"", True
    except DacoError as error:
        log.warning("a recording could not be judged: %s", error)
        return {"error": "it cannot be judged."}, b"", True
    except Exception:
        log.exception("a job failed")
        return {"failed": True}, b"", False


def _score(
    header: dict[str, Any], payload: bytes, detectors: Mapping[str, Detector], limits: JobLimits
) -> dict[str, Any]:
    detector = detectors.get(header["machine"])
    if detector is None:
        return {"gone": True}
    if detector.listener is None:
        raise AudioError("the model was fitted on embeddings, so that it cannot hear recordings.")
    verdict = judge(
        detector.model, detector.listener, payload, name=header["name"], limits=limits.audio
    )
    return {"verdict": verdict.to_dict(), "sha256": sha256_of_bytes(payload)}


def _picture(header: dict[str, Any], limits: JobLimits) -> bytes:
    return pictures.spectrogram(
        Path(header["path"]),
        theme=header["theme"],
        sample_rate=header["sample_rate"],
        limits=limits.audio,
    )


def _confine(limits: JobLimits, scratch: Path) -> None:
    """Bounds that hold for the whole life of the process."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    tempfile.tempdir = str(scratch)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, limits.audio.bytes + (1 << 20))
    if (size := _address_space()) is not None:
        _lower(resource.RLIMIT_AS, size + limits.memory)


def _set_clocks(seconds: float) -> None:
    """From now on the kernel ends this process when its time is over."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    _lower(resource.RLIMIT_CPU, ceil(_cpu_seconds() + seconds) + 1)


def _stop_clocks() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)


def _lower(which: int, bound: int) -> None:
    _, hard = resource.getrlimit(which)
    soft = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS knows the limit and refuses to set it
        resource.setrlimit(which, (soft, hard))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _address_space() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
