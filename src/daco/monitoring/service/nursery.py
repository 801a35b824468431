"""The process that loads models once and forks workers which share them.

It is started with one end of a socket pair. First come the models, each as the bytes of its
file, checked by `daco.detector.modelfile` like any file from outside; each is answered with what is
in it or why it cannot be used. Then every file descriptor that arrives becomes the connection of a
new worker. A set of models never changes: other models are another nursery. Forking takes
milliseconds, so that a worker that died is replaced before anybody waits, and all workers share
one copy of the models.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from daco.audio.formats import AudioLimits
from daco.audio.microphones import needs_both
from daco.detector.model import MachineModel
from daco.detector.verdict import verdict_of
from daco.embedding.frontend import Frontend, Listener
from daco.errors import DacoError
from daco.monitoring.service import wire
from daco.monitoring.service.worker import Detector, JobLimits, serve

FORK = b"F"

log = logging.getLogger("daco.monitoring.service.nursery")


def main(control: socket.socket) -> None:
    """Load models, then fork workers, until the service closes the connection."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    # A terminal or service manager signals all processes at once; work in progress is finished,
    # and the end of the service is the end of the connection.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries workers that died
    first = wire.receive(control)
    if first is None:
        return
    settings = first[0]
    detectors = _load(control, settings["weights"])
    if detectors is None:
        return
    limits = JobLimits(
        settings["seconds"], settings["memory"], AudioLimits(**settings["audio_limits"])
    )
    scratch = Path(settings["scratch"])
    gc.collect()
    gc.freeze()  # collecting must not copy the pages that workers share
    wire.send(control, {"ready": True})
    while True:
        data, handles, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        connection = socket.socket(fileno=handles[0])
        if os.fork() == 0:
            control.close()
            _work(connection, detectors, limits, scratch)
        connection.close()


def _work(
    connection: socket.socket, detectors: dict[str, Detector], limits: JobLimits, scratch: Path
) -> None:
    """The life of a worker; never returns into the nursery's code."""
    code = 1
    try:
        gc.enable()
        serve(connection, detectors, limits, scratch)
        code = 0
    except (ConnectionError, KeyboardInterrupt):
        code = 0  # the service has gone
    except BaseException:
        log.exception("a worker failed")
    finally:
        os._exit(code)


def _load(control: socket.socket, weights: dict[str, str]) -> dict[str, Detector] | None:
    """The detectors of all models that could be loaded; None if the service has gone."""
    detectors: dict[str, Detector] = {}
    listeners: dict[Frontend, Listener] = {}
    while (message := wire.receive(control)) is not None:
        header, data = message
        if header.get("done"):
            return detectors
        try:
            model = MachineModel.from_bytes(data)
            listener = None
            if model.frontend is not None:
                listener = _listener(model.frontend, weights, listeners)
            detector = Detector(model, listener)
            _warm_up(detector)
        except (DacoError, MemoryError) as error:
            reason = str(error) or "it does not fit into memory."
            wire.send(control, {"error": reason})
            continue
        detectors[header["id"]] = detector
        hashes = model.clip_sha256 or ("",) * len(model)
        wire.send(control, _described(model), "\0".join((*model.clip_names, *hashes)).encode())
    return None


def _listener(
    frontend: Frontend, weights: dict[str, str], known: dict[Frontend, Listener]
) -> Listener:
    """A listener; models that differ only in the usual length of clips share its network."""
    network = replace(frontend, seconds=None)
    if network not in known:
        known[network] = Listener(network, weights=weights.get(frontend.backbone))
    listener = copy(known[network])
    listener.frontend = frontend
    return listener


def _warm_up(detector: Detector) -> None:
    """Compute here what is computed once, so that no worker has to do it again."""
    model = detector.model
    if detector.listener is None:
        model.score(model.embeddings[:1])
        return
    rate = detector.listener.frontend.sample_rate
    shape = (2, 2 * rate) if needs_both(detector.listener.frontend.channel) else 2 * rate
    noise = np.random.default_rng(0).normal(scale=0.01, size=shape).astype(np.float32)
    verdict_of(model, detector.listener.hear_waveform(noise, rate), name="warm-up")


def _described(model: MachineModel) -> dict[str, Any]:
    """What the service has to know about a model; clips' names and hashes go as bytes."""
    return {
        "machine": model.machine,
        "config": model.config,
        "threshold": model.threshold,
        "false_alarm_rate": model.false_alarm_rate,
        "domains": model.domain_sizes,
        "model_sha256": model.sha256,
        "sample_rate": model.frontend.sample_rate if model.frontend else None,
        "backbone": model.frontend.backbone if model.frontend else None,
        "created": str(model.provenance.get("created", "")) or None,
    }


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
