"""What the worker processes do: load models, decode and score recordings, within limits.

Recordings and models are decoded here only. A worker keeps the models that it used last, by the
hash of their files; `UnknownModelError` asks the other side (`daco.monitoring.judge`) for the file.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from daco.audio.decode import probe
from daco.audio.formats import AudioLimits
from daco.audio.microphones import needs_both
from daco.detector.decision import ReferenceScores
from daco.detector.gate import list_normals
from daco.detector.model import MachineModel
from daco.detector.verdict import ScoreOptions, Verdict, judge, verdict_of
from daco.embedding.frontend import Frontend, Listener
from daco.errors import AudioError, ModelError
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.monitoring.healthy import HealthyProfile
from daco.monitoring.profiles import findings_of
from daco.monitoring.revising import Revision, revised
from daco.monitoring.times import tagged_time

MOST_BYTES = 1 << 29
"""Model files whose models a worker keeps."""


class UnknownModelError(Exception):
    """The worker does not have the model: send its file."""


@dataclass(frozen=True)
class Limits:
    """Bytes that one job may take, and the limits of a recording."""

    memory: int = 1 << 30
    audio: AudioLimits = field(default_factory=AudioLimits)


@dataclass(frozen=True)
class ModelInfo:
    """What others need to know about a model."""

    machine: str
    sha256: str
    domains: Mapping[str, int]  #: normals of each
    false_alarm_rate: float
    basis: str
    warnings: tuple[str, ...]
    sample_rate: int | None
    ranges: Mapping[str, Any] | None = field(repr=False)
    frontend: Frontend | None = field(repr=False)
    reference: ReferenceScores = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    sha256s: tuple[str, ...] = field(repr=False)


class Judged(NamedTuple):
    """The verdict on a recording, and what else its bytes say."""

    verdict: Verdict
    sha256: str
    tagged_at: datetime | None  #: when it was recorded, by its tags


@dataclass(frozen=True)
class Detector:
    """A model and its listener, and the size of its file."""

    model: MachineModel
    listener: Listener
    size: int


_limits = Limits()
_weights: Mapping[str, Path] = {}
_device = "cpu"
_detectors: OrderedDict[str, Detector] = OrderedDict()
_listeners: dict[Frontend, Listener] = {}


def start(limits: Limits, weights: Mapping[str, Path], device: str) -> None:
    """Set the limits of this process; runs once in every worker."""
    global _limits, _weights, _device
    _limits, _weights, _device = limits, weights, device
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def describe(data: bytes) -> ModelInfo:
    """Load a model and describe it; raises whatever makes it unusable."""
    model = _load(sha256_of_bytes(data), data).model
    assert model.frontend is not None
    return ModelInfo(
        machine=model.machine,
        sha256=model.sha256,
        domains=dict(model.domain_sizes),
        false_alarm_rate=model.false_alarm_rate,
        basis=model.basis_sentence,
        warnings=tuple(model.warnings()),
        sample_rate=model.frontend.sample_rate,
        ranges=model.ranges,
        frontend=model.frontend,
        reference=model.reference,
        names=model.clip_names,
        sha256s=model.clip_sha256 or ("",) * len(model),
    )


def score(
    file_sha256: str,
    file: bytes | None,
    recording: bytes | Path,
    name: str,
    options: ScoreOptions,
) -> Judged:
    """Judge a recording."""
    detector = _load(file_sha256, file)
    with limited_memory(_limits.memory):
        if isinstance(recording, bytes):
            sha256 = sha256_of_bytes(recording)
        else:
            probe(recording, _limits.audio)  # before all of it is read: it may be anything
            sha256 = sha256_of_file(recording)
        verdict = judge(
            detector.model,
            detector.listener,
            recording,
            name=name,
            options=options,
            limits=_limits.audio,
        )
        return Judged(verdict, sha256, tagged_time(recording))


def normals(file_sha256: str, file: bytes | None) -> list[Any]:
    """The normals of a model, the most suspicious first."""
    return list_normals(_load(file_sha256, file).model)


def explain(profile: HealthyProfile, recording: bytes | Path) -> list[dict[str, Any]]:
    """What sounds different in a recording from the healthy ones of its machine."""
    return [each.to_dict() for each in findings_of(recording, profile)]


def revise(
    file_sha256: str, file: bytes, revision: Revision, names: list[str], paths: list[Path]
) -> tuple[bytes, str]:
    """The file of a model after a revision, and what was done in words."""
    detector = _load(file_sha256, file)
    with limited_memory(_limits.memory):
        model, done = revised(detector.model, detector.listener, revision, names, paths)
        return model.to_bytes(), done


def call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Any heavy work, with the limit of memory."""
    with limited_memory(_limits.memory):
        return function(*args)


def _load(sha256: str, file: bytes | None) -> Detector:
    if sha256 in _detectors:
        _detectors.move_to_end(sha256)
        return _detectors[sha256]
    if file is None:
        raise UnknownModelError
    detector = _detector(file)
    _detectors[sha256] = detector
    while len(_detectors) > 1 and sum(each.size for each in _detectors.values()) > MOST_BYTES:
        _detectors.popitem(last=False)
    return detector


def _detector(file: bytes) -> Detector:
    """The detector of a model file; models that differ only in `seconds` share a network."""
    model = MachineModel.from_bytes(file)
    if model.frontend is None:
        raise ModelError("the model was fitted on embeddings and cannot score recordings.")
    network = replace(model.frontend, seconds=None)
    if network not in _listeners:
        weights = _weights.get(network.backbone)
        _listeners[network] = Listener(network, weights=weights, device=_device)
    listener = copy(_listeners[network])
    listener.frontend = model.frontend
    # What is computed once is computed here, outside of the limit of a recording.
    rate = model.frontend.sample_rate
    shape = (2, 2 * rate) if needs_both(model.frontend.channel) else 2 * rate
    noise = np.random.default_rng(0).normal(scale=0.01, size=shape).astype(np.float32)
    verdict_of(model, listener.embed_waveform(noise, rate), name="warm-up")
    return Detector(model, listener, len(file))


@contextlib.contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Let the process take only so many bytes more than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except OSError:  # not Linux: time is limited all the same
        yield
        return
    bound = pages * os.sysconf("SC_PAGE_SIZE") + more
    if hard != resource.RLIM_INFINITY:
        bound = min(bound, hard)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    except MemoryError:
        raise AudioError("it takes more memory than a recording may.") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
