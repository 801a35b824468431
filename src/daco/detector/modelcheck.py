"""What must hold of a model, whoever made it: the checks of its values and the bounds on them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.detector.thresholds import require_rate
from daco.errors import ConfigError, InputError, NotEnoughClipsError
from daco.method.config import ScoreConfig
from daco.validation import is_utf8, is_whole

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.embedding.frontend import Frontend

MAX_CLIPS = 10_000
"""Normals of one model: a day of 10 s clips. All pairs are compared when it is loaded."""

MAX_NEIGHBOURS = 256
"""Of a configuration: neighbour lists are this long for every clip."""

MAX_NAME = 1024
MAX_CONFIG = 64
MAX_DOMAINS = 64

SHA256 = re.compile(r"[0-9a-f]{64}")


def require_bank_size(count: int) -> None:
    """An error for more clips than a model may hold."""
    if count > MAX_CLIPS:
        raise InputError(
            f"A model holds at most {MAX_CLIPS:,} normals, and these are {count:,}. Take a part of "
            "them: some hundreds of each domain are plenty."
        )


def require_usable(config: str | ScoreConfig) -> str:
    """The name of a configuration that a detector can score with, in bounded memory."""
    if (
        isinstance(config, str) and len(config) > MAX_CONFIG
    ):  # before anybody turns thousands of digits into a number
        raise ConfigError(f"A configuration's name has at most {MAX_CONFIG} characters.")
    parsed = ScoreConfig.parse(config)
    if parsed.assignment == "oracle":
        raise ConfigError(
            f"{parsed.name!r} needs the true domain of each clip, which no detector has. Use its "
            "'soft' or 'hard' form."
        )
    reach = max(part.neighbours for part in parsed.base.parts())
    if reach > MAX_NEIGHBOURS:
        raise ConfigError(
            f"{parsed.name!r} looks at {reach} neighbours; a model looks at "
            f"{MAX_NEIGHBOURS} at most."
        )
    return parsed.name


def check_model(model: MachineModel) -> None:
    """Everything that must hold of a model, whoever made it; no bank is built for it."""
    for name, text, longest in (
        ("machine", model.machine, MAX_NAME),
        ("reason", model.reason, 4 * MAX_NAME),
    ):
        _require_text(name, text, longest)
    for text in model.domains:
        _require_text("domain", text, MAX_NAME)
    for text in model.clip_names:
        _require_text("clip name", text, MAX_NAME)
    if list(model.domains) != sorted(set(model.domains)) or not model.domains:
        raise InputError(f"The domains must be different and sorted. Got {model.domains!r}.")
    if len(model.domains) > MAX_DOMAINS:
        raise InputError(
            f"A model tells at most {MAX_DOMAINS} domains apart. Got {len(model.domains)}."
        )
    require_usable(model.config)
    _check_arrays(model)
    require_rate(model.false_alarm_rate)
    if not isinstance(model.threshold, float) or not np.isfinite(model.threshold):
        raise InputError(f"The threshold must be a finite number. Got {model.threshold!r}.")
    if model.frontend is not None:
        _check_frontend(model.frontend)
    _check_provenance(model.provenance)


def _check_provenance(provenance: Mapping[str, Any]) -> None:
    try:
        json.dumps(dict(provenance), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"The provenance must be plain JSON: {error}.") from None
    updates, earlier = provenance.get("updates", []), provenance.get("earlier_updates", 0)
    listed = isinstance(updates, list) and all(isinstance(each, dict) for each in updates)
    if not listed or type(earlier) is not int or earlier < 0:
        raise InputError("The updates of the provenance must be a list of objects.")


def _check_arrays(model: MachineModel) -> None:
    count = len(model.embeddings)
    expected: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
        "embeddings": (np.float32, (count, model.embeddings.shape[-1])),
        "clip_domains": (np.int32, (count,)),
        "own_scores": (np.float64, (count,)),
    }
    for name, (dtype, shape) in expected.items():
        array = getattr(model, name)
        if array.dtype != dtype or array.shape != shape or not array.size:
            raise InputError(
                f"The {name} must be {np.dtype(dtype)} of shape {shape}. Got {array.dtype} of "
                f"shape {array.shape}."
            )
        if not np.isfinite(array).all():
            raise InputError(f"The {name} contain NaN or inf.")
    dim = model.embeddings.shape[1]
    if type(model.bands) is not int or model.bands < 1 or dim % model.bands:
        raise InputError(f"The bands must divide the {dim} features. Got {model.bands!r}.")
    require_bank_size(count)
    if len(model.clip_names) != count:
        raise InputError(f"There are {len(model.clip_names)} clip names for {count} clips.")
    if model.clip_sha256 and len(model.clip_sha256) != count:
        raise InputError(f"There are {len(model.clip_sha256)} hashes for {count} clips.")
    for text in model.clip_sha256:
        if text and not SHA256.fullmatch(text):
            raise InputError(f"The hash of a recording must be a SHA-256. Got {text!r:.80}.")
    if not (model.clip_domains.min() >= 0 and model.clip_domains.max() < len(model.domains)):
        raise InputError(f"A clip's domain is none of the {len(model.domains)} domains.")
    empty = [name for name, size in model.domain_sizes.items() if not size]
    if empty:
        raise InputError(f"The domain {empty[0]!r} has no clip.")
    if count < 2:
        raise NotEnoughClipsError(
            "A model needs 2 normal clips, each judged by the others. Got 1: record more."
        )


def _check_frontend(frontend: Frontend) -> None:
    from daco.audio.formats import DEFAULT_LIMITS
    from daco.audio.microphones import parse_channel
    from daco.backbones import NAMES, PRECISIONS

    known = frontend.backbone in NAMES and frontend.precision in PRECISIONS
    rate = frontend.sample_rate
    if not known or frontend.resampler not in ("soxr", "polyphase") or not is_whole(rate):
        raise InputError(f"No such network: {asdict(frontend)}.")
    if not DEFAULT_LIMITS.min_rate <= rate <= DEFAULT_LIMITS.max_rate:
        raise InputError(f"The network's sample rate cannot be {rate} Hz.")
    _require_text("readout", frontend.readout, MAX_NAME)
    spelled = parse_channel(frontend.channel)
    if spelled != frontend.channel:
        raise InputError(f"The channel {frontend.channel!r} must be written {spelled!r}.")
    pin = frontend.weights_sha256
    if pin is not None and not (isinstance(pin, str) and SHA256.fullmatch(pin)):
        raise InputError(f"The hash of the weights must be a SHA-256. Got {pin!r}.")
    seconds = frontend.seconds
    if seconds is not None and not (isinstance(seconds, float) and 0 < seconds < 1e6):
        raise InputError(f"The length of the normals must be in seconds. Got {seconds!r}.")


def _require_text(what: str, text: Any, longest: int) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= longest or "\0" in text:
        raise InputError(f"A {what} is a text of 1 to {longest} characters. Got {text!r:.60}.")
    if not is_utf8(text):
        raise InputError(f"The {what} {text!r:.60} cannot be written as UTF-8.")
