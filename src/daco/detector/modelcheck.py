"""Checks of a model's file and fields, and the bounds on them."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from daco.audio.formats import DEFAULT_LIMITS
from daco.audio.microphones import parse_channel
from daco.backbones import NAMES, PRECISIONS
from daco.data.views import Views
from daco.detector.ranges import check_ranges
from daco.detector.reference import KINDS
from daco.detector.thresholds import require_rate
from daco.embedding.frontend import Frontend
from daco.errors import ConfigError, InputError, ModelError, NotEnoughClipsError
from daco.files.hashing import is_sha256
from daco.files.remote import Location, is_remote
from daco.method.config import ScoreConfig
from daco.method.external import installed_scorers
from daco.validation import is_utf8, is_whole

MAX_FILE = 1 << 31
MAX_CLIPS = 10_000
"""Normals of one model: a day of 10 s clips. All pairs are compared when it first scores."""

MAX_NEIGHBOURS = 256
"""Of a configuration: neighbour lists are this long for every clip."""

MAX_NAME = 1024
MAX_CONFIG = 64
MAX_DOMAINS = 64

_MISSING = "does not exist. Give a model made by daco fit."
_INSTALLED = re.compile(r"[A-Za-z][\w.-]{0,99} [\w.-]{1,99} [\w.!+-]{1,99}", re.ASCII)


def read_file(path: Location) -> bytes:
    """The content of a regular file of a size that a model can have."""
    if is_remote(path):
        try:
            _check_status(path.stat())
            return path.read_bytes()
        except FileNotFoundError:
            raise ModelError(_MISSING) from None
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            _check_status(status)
            data = file.read(status.st_size + 1)  # one more, to notice a file that grows meanwhile
    except FileNotFoundError:
        raise ModelError(_MISSING) from None
    except IsADirectoryError:
        raise ModelError("is a folder. Give a model made by daco fit.") from None
    except OSError as error:
        raise ModelError(f"cannot be opened ({error.strerror or error}).") from None
    if len(data) != status.st_size:
        raise ModelError("changed while it was read. Try again.")
    return data


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for a writer


def _check_status(status: Any) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ModelError("is a folder. Give a model made by daco fit.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError("not a regular file. Give a model made by daco fit.")
    if status.st_size > MAX_FILE:
        raise ModelError(f"{status.st_size:,} bytes are more than a model can have.")


def require_bank_size(count: int) -> None:
    """Raise `InputError` for more clips than a model may hold."""
    if count > MAX_CLIPS:
        raise InputError(
            f"A model holds at most {MAX_CLIPS:,} normals, and these are {count:,}. Thin them with "
            "daco fit --max-normals or daco.method.coreset.choose_normals: some hundreds of each "
            "domain are plenty."
        )


def require_usable(config: str | ScoreConfig) -> str:
    """The name of a configuration that a detector can score with, in bounded memory."""
    if isinstance(config, str) and len(config) > MAX_CONFIG:  # digits are parsed below
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


def scorers_of(config: str | ScoreConfig) -> dict[str, str]:
    """Labels of the external scorers of a configuration, and the packages that they come from."""
    labels = [base.label for base in ScoreConfig.parse(config).base.parts() if base.is_external]
    points = {label: installed_scorers().get(label) for label in labels}
    return {label: f"{p.dist.name} {p.dist.version}" if p else "" for label, p in points.items()}


def check_fields(model: Mapping[str, Any]) -> None:
    """Raise a `DacoError` unless these fields can make a model; no distance is computed."""
    _require_text("machine", model["machine"], MAX_NAME)
    _require_text("reason", model["reason"], 4 * MAX_NAME)
    domains = model["domains"]
    for text in domains:
        _require_text("domain", text, MAX_NAME)
    for text in (*model["clip_names"], *model["new_names"]):
        _require_text("clip name", text, MAX_NAME)
    for text in filter(None, model["sessions"]):
        _require_text("session", text, MAX_NAME)
    if list(domains) != sorted(set(domains)) or not domains:
        raise InputError(f"The domains must be different and sorted. Got {domains!r}.")
    if len(domains) > MAX_DOMAINS:
        raise InputError(f"A model has at most {MAX_DOMAINS} domains. Got {len(domains)}.")
    require_rate(model["false_alarm_rate"])
    _check_arrays(model)
    _check_clips(model, len(model["embeddings"]))
    if model["frontend"] is not None:
        bands, views = model["bands"], model["frontend"].views
        if len(views) != (len(bands.names) if isinstance(bands, Views) else 1):
            raise InputError(f"The network has {len(views)} views, but the embeddings do not.")
        for view in views:
            _check_frontend(view)
    _check_provenance(model["provenance"])
    _check_basis(model)
    if model["ranges"] is not None:
        check_ranges(model["ranges"])


def _check_basis(model: Mapping[str, Any]) -> None:
    basis = model["basis"]
    complete = set(basis) == set(model["domains"])
    for each in basis.values():
        when = each.get("when") if isinstance(each, Mapping) else 0
        dated = when is None or (isinstance(when, str) and len(when) <= MAX_CONFIG)
        complete = complete and dated and each.get("kind") in KINDS and is_whole(each.get("clips"))
        complete = complete and is_whole(each.get("sessions", 1), least=1)
    if not complete:
        raise InputError("The basis must describe the reference scores of each domain.")


def _check_arrays(model: Mapping[str, Any]) -> None:
    count, dim = len(model["embeddings"]), model["embeddings"].shape[-1]
    scores, new = len(model["reference_scores"]), len(model["new_names"])
    for name, dtype, shape in (
        ("embeddings", np.float32, (count, dim)),
        ("clip_domains", np.int32, (count,)),
        ("reference_scores", np.float64, (scores,)),
        ("reference_domains", np.int32, (scores,)),
        ("new_embeddings", np.float32, (new, dim)),
        ("new_domains", np.int32, (new,)),
    ):
        array = model[name]
        if name.startswith("new") and not new and not array.size:
            continue
        if array.dtype != dtype or array.shape != shape or not array.size:
            raise InputError(
                f"The {name} must be {np.dtype(dtype)} of shape {shape}. Got {array.dtype} of "
                f"shape {array.shape}."
            )
        if not np.isfinite(array).all():
            raise InputError(f"The {name} contain NaN or inf.")
    bands = model["bands"]
    if isinstance(bands, Views):
        if bands.dim != dim:
            raise InputError(f"The views have {bands.dim} features. The embeddings have {dim}.")
        for name in bands.names:
            _require_text("view", name, MAX_NAME)
    elif not is_whole(bands, least=1) or dim % bands:
        raise InputError(f"The bands must divide the {dim} features. Got {bands!r}.")


def _check_clips(model: Mapping[str, Any], count: int) -> None:
    require_bank_size(count)
    names = (("clip_names", "clip names"), ("clip_sha256", "hashes"), ("sessions", "sessions"))
    for name, what in names:
        given = len(model[name])
        if given != count and (given or name == "clip_names"):
            raise InputError(f"There are {given} {what} for {count} clips.")
    for text in model["clip_sha256"]:
        if text and not is_sha256(text):
            raise InputError(f"The hash of a recording must be a SHA-256. Got {text!r:.80}.")
    codes, domains = model["clip_domains"], model["domains"]
    if not (codes.min() >= 0 and codes.max() < len(domains)):
        raise InputError(f"A clip's domain is none of the {len(domains)} domains.")
    for which, each in (("clip", codes), ("reference score", model["reference_domains"])):
        if set(each.tolist()) != set(range(len(domains))):
            raise InputError(f"Each of the {len(domains)} domains must have a {which}.")
    if not np.isin(model["new_domains"], codes).all():
        raise InputError(f"The domain of a new clip is none of the {len(domains)} domains.")
    if count < 2:
        raise NotEnoughClipsError(
            "A model needs 2 normal clips, each judged by the others. Got 1: record more."
        )
    config = require_usable(model["config"])
    if config != model["config"]:
        raise InputError(f"The configuration {model['config']!r} must be written {config!r}.")
    needed = 1 + max(part.neighbours for part in ScoreConfig.parse(config).base.parts())
    if count < needed:
        raise NotEnoughClipsError(
            f"{config!r} needs a bank of {needed} clips; this one has {count}. Add normal clips or "
            "choose fewer neighbours."
        )


def _check_provenance(provenance: Mapping[str, Any]) -> None:
    try:
        json.dumps(dict(provenance), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"The provenance must be plain JSON: {error}.") from None
    updates = provenance.get("updates", [])
    listed = isinstance(updates, list) and all(isinstance(each, dict) for each in updates)
    if not listed or not is_whole(provenance.get("earlier_updates", 0)):
        raise InputError("The updates of the provenance must be a list of objects.")


def _check_frontend(frontend: Frontend) -> None:
    rate, others = frontend.sample_rate, f"{frontend.backbone} {frontend.package}"
    named = _INSTALLED.fullmatch(others) if frontend.package else frontend.backbone in NAMES
    known = named and frontend.precision in PRECISIONS
    if not known or frontend.resampler not in ("soxr", "polyphase") or not is_whole(rate):
        raise InputError(f"No such network: {asdict(frontend)}.")
    if not DEFAULT_LIMITS.min_rate <= rate <= DEFAULT_LIMITS.max_rate:
        raise InputError(f"The network's sample rate cannot be {rate} Hz.")
    _require_text("readout", frontend.readout, MAX_NAME)
    channel = parse_channel(frontend.channel)
    if channel != frontend.channel:
        raise InputError(f"The channel {frontend.channel!r} must be written {channel!r}.")
    pin = frontend.weights_sha256
    if pin is not None and not is_sha256(pin):
        raise InputError(f"The hash of the weights must be a SHA-256. Got {pin!r}.")
    seconds = frontend.seconds
    if seconds is not None and not (isinstance(seconds, float) and 0 < seconds < 1e6):
        raise InputError(f"The length of the normals must be in seconds. Got {seconds!r}.")


def _require_text(what: str, text: Any, longest: int) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= longest or "\0" in text:
        raise InputError(f"A {what} is a text of 1 to {longest} characters. Got {text!r:.60}.")
    if not is_utf8(text):
        raise InputError(f"The {what} {text!r:.60} cannot be written as UTF-8.")
