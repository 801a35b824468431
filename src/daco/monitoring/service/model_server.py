"""The process that holds the models and forks the workers that score recordings.

It follows requests from `workers.ModelServer` on a socket: load a model, given as the bytes of its
file; drop one; fork a worker. All workers share its one copy of models and networks, and a fork
takes milliseconds; the processes of a pool would each load everything, and again after a crash.

Recordings are decoded in workers only. Signals of the kernel end a worker whose job takes too long,
and its memory is bounded. Messages are JSON, never pickles: what a worker sends is not trusted.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
from copy import copy
from dataclasses import asdict, dataclass, replace
from math import ceil
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from daco.audio.formats import AudioLimits
from daco.audio.microphones import needs_both
from daco.detector.gate import list_normals
from daco.detector.model import MachineModel
from daco.detector.verdict import judge, verdict_of
from daco.embedding.frontend import Frontend, Listener
from daco.errors import AudioError, DacoError
from daco.files.hashing import sha256_of_bytes
from daco.monitoring.service.recordings import draw_spectrogram

log = logging.getLogger("daco.monitoring.service.model_server")


@dataclass(frozen=True)
class JobLimits:
    """Seconds and bytes that one job may take, and the limits of a recording."""

    seconds: float
    memory: int
    audio: AudioLimits


@dataclass(frozen=True)
class Detector:
    """A model and its listener; None for a model of embeddings."""

    model: MachineModel
    listener: Listener | None


def main(handle: int) -> None:
    """Follow requests until the service closes the connection."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    # A terminal or service manager signals all processes at once. Work in progress is finished;
    # this process ends when the service closes the connection.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes ended workers
    control = Connection(handle)
    with contextlib.suppress(EOFError, ConnectionError):
        settings = json.loads(control.recv_bytes())
        limits = JobLimits(
            settings["seconds"], settings["memory"], AudioLimits(**settings["audio_limits"])
        )
        tempfile.tempdir = settings["scratch"]
        _follow(control, settings["weights"], limits)


def _follow(control: Connection, weights: dict[str, str], limits: JobLimits) -> None:
    detectors: dict[str, Detector] = {}
    listeners: dict[Frontend, Listener] = {}
    changed = True
    while True:
        request = json.loads(control.recv_bytes())
        if request["do"] == "load":
            data = control.recv_bytes()
            try:
                detector = load_detector(data, weights, listeners)
            except (DacoError, MemoryError) as error:
                _send(control, {"error": str(error) or "it does not fit into memory."})
                continue
            detectors[request["machine"]] = detector
            changed = True
            _send(control, _description(detector.model))
        elif request["do"] == "drop":
            detectors.pop(request["machine"], None)
        else:
            if changed:  # later collections must not touch, and so copy, pages workers share
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                changed = False
            _fork_worker(control, detectors, limits)


def _fork_worker(control: Connection, detectors: dict[str, Detector], limits: JobLimits) -> None:
    with socket.socket(fileno=os.dup(control.fileno())) as descriptors:
        _, handles, _, _ = socket.recv_fds(descriptors, 1, 1)
    connection = Connection(handles[0])
    if os.fork() == 0:
        code = 1
        try:
            control.close()
            serve_jobs(connection, detectors, limits)
            code = 0
        except (EOFError, ConnectionError, KeyboardInterrupt):
            code = 0  # the service closed the connection
        except BaseException:
            log.exception("a worker failed")
        finally:
            os._exit(code)
    connection.close()


def _send(connection: Connection, reply: dict[str, Any], data: bytes = b"") -> None:
    connection.send_bytes(json.dumps(reply, allow_nan=False).encode())
    connection.send_bytes(data)


def load_detector(
    data: bytes, weights: dict[str, str], listeners: dict[Frontend, Listener]
) -> Detector:
    """The detector of a model file; models that differ only in `seconds` share a network."""
    model = MachineModel.from_bytes(data)
    if model.frontend is None:
        model.score(model.embeddings[:1])
        return Detector(model, None)
    network = replace(model.frontend, seconds=None)
    if network not in listeners:
        listeners[network] = Listener(network, weights=weights.get(network.backbone))
    listener = copy(listeners[network])
    listener.frontend = model.frontend
    # Compute here what is computed once, so that no worker has to do it again.
    rate = listener.frontend.sample_rate
    shape = (2, 2 * rate) if needs_both(listener.frontend.channel) else 2 * rate
    noise = np.random.default_rng(0).normal(scale=0.01, size=shape).astype(np.float32)
    verdict_of(model, listener.embed_waveform(noise, rate), name="warm-up")
    return Detector(model, listener)


def _description(model: MachineModel) -> dict[str, Any]:
    """The fields of `registry.Machine`."""
    return {
        "machine": model.machine,
        "config": model.config,
        "thresholds": model.thresholds,
        "basis": model.basis_sentence,
        "false_alarm_rate": model.false_alarm_rate,
        "domains": model.domain_sizes,
        "model_sha256": model.sha256,
        "sample_rate": model.frontend.sample_rate if model.frontend else None,
        "backbone": model.frontend.backbone if model.frontend else None,
        "created": str(model.provenance.get("created", "")) or None,
        "names": model.clip_names,
        "sha256s": model.clip_sha256 or ("",) * len(model),
        "reference": {
            "scores": model.reference.scores.tolist(),
            "clip_domains": model.reference.clip_domains.tolist(),
            "domains": model.reference.domains,
            "bounded": model.reference.bounded,
        },
    }


def serve_jobs(connection: Connection, detectors: dict[str, Detector], limits: JobLimits) -> None:
    """Do jobs until the other side closes the connection, or one makes the process unfit."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_FSIZE, limits.audio.bytes + (1 << 20))
    if (size := _address_space()) is not None:
        _limit(resource.RLIMIT_AS, size + limits.memory)
    ends = False
    while not ends:
        job, data = json.loads(connection.recv_bytes()), connection.recv_bytes()
        # From here on the kernel ends this process when its time is over.
        signal.setitimer(signal.ITIMER_REAL, limits.seconds)
        _limit(resource.RLIMIT_CPU, ceil(_cpu_seconds() + limits.seconds) + 1)
        reply, picture = _do(job, data, detectors, limits.audio)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(connection, reply, picture)
        ends = "ends" in reply


def _do(
    job: dict[str, Any], data: bytes, detectors: dict[str, Detector], limits: AudioLimits
) -> tuple[dict[str, Any], bytes]:
    """The reply to a job, and its picture; ``ends`` says that this process takes no more jobs."""
    try:
        if job["do"] == "draw":
            return {}, draw_spectrogram(Path(job["path"]), job["theme"], job["sample_rate"], limits)
        detector = detectors.get(job["machine"])
        if detector is None:
            return {"unknown": True}, b""
        if job["do"] == "normals":
            return {"normals": [asdict(each) for each in list_normals(detector.model)]}, b""
        if detector.listener is None:
            raise AudioError("the model was fitted on embeddings and cannot score recordings.")
        verdict = judge(detector.model, detector.listener, data, name=job["name"], limits=limits)
        return {"verdict": verdict.to_dict(), "sha256": sha256_of_bytes(data)}, b""
    except MemoryError:
        return {"error": "it takes more memory than a recording may.", "ends": True}, b""
    except AudioError as error:
        return {"error": str(error)}, b""
    except DacoError as error:
        log.warning("a recording could not be judged: %s", error)
        return {"error": "it cannot be judged."}, b""
    except Exception:
        log.exception("a job failed")
        return {"failed": True, "ends": True}, b""


def _limit(which: int, bound: int) -> None:
    _, hard = resource.getrlimit(which)
    soft = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses to set some limits
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


if __name__ == "__main__":
    main(int(sys.argv[1]))
