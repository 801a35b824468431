"""The fields of a model: how each is stored in its file, and which values it may have.

`FIELDS` is the one list of them. Packing, reading and checking follow it, so that a new array is
one more line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from daco.audio.formats import DEFAULT_LIMITS
from daco.audio.microphones import parse_channel
from daco.backbones import NAMES, PRECISIONS
from daco.backbones.levels import QUANTITIES
from daco.data.views import Views
from daco.detector.decision import KINDS, SMALLEST_RATE
from daco.embedding.frontend import Frontend
from daco.errors import ConfigError, InputError, NotEnoughClipsError
from daco.files.hashing import is_sha256
from daco.method.config import ScoreConfig
from daco.method.siblings import AUTO
from daco.validation import is_utf8, is_whole

MAX_CLIPS = 10_000
"""Normals of one model: a day of 10 s clips. All pairs are compared when it first scores."""

MAX_NEIGHBOURS = 256
MAX_DOMAINS = 64
MAX_NAME = 1024
MAX_CONFIG = 64

DTYPES = {"F64": "<f8", "F32": "<f4", "I32": "<i4", "U8": "u1"}
"""Types of tensors, as safetensors and as NumPy call them."""

_PACKAGE = re.compile(r"[\w.-]{1,99} [\w.!+-]{1,99}", re.ASCII)


@dataclass(frozen=True)
class Tensor:
    """An array, or texts that follow a rule, in UTF-8 with a zero byte after each.

    Equal words in shapes are equal sizes. What may be unknown is "", or there are none at all.
    """

    dtype: str
    shape: tuple[str, ...]
    rule: Callable[[Any], bool] | None = None
    may_be_unknown: bool = False


@dataclass(frozen=True)
class Value:
    """A JSON value that follows a rule, and a function that makes what a model holds."""

    rule: Any
    unpack: Callable[[Any], Any] = lambda value: value


def follows(value: Any, rule: Any) -> bool:
    """Whether a JSON value follows a rule.

    A tuple holds alternatives, a list the rule of all items, a dict those of the keys, where `str`
    stands for any key, and a function decides. Other values must be equal.

    >>> follows({"a": [1, 2]}, {"a": [is_whole]}), follows("b", ("a", None))
    (True, False)
    """
    if isinstance(rule, tuple):
        return any(follows(value, each) for each in rule)
    if isinstance(rule, list):
        return isinstance(value, list) and all(follows(each, rule[0]) for each in value)
    if isinstance(rule, dict):
        if not isinstance(value, dict) or (str not in rule and set(value) != set(rule)):
            return False
        return all(follows(each, rule.get(key, rule.get(str))) for key, each in value.items())
    return bool(rule(value)) if callable(rule) else type(value) is type(rule) and value == rule


def _is_name(value: Any) -> bool:
    text = isinstance(value, str) and 0 < len(value) <= MAX_NAME
    return text and "\0" not in value and is_utf8(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9


def _is_count(value: Any) -> bool:
    return is_whole(value, least=1) and value <= MAX_CLIPS


def _is_channel(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and bool(parse_channel(value) == value)
    except InputError:
        return False


def _anything(value: Any) -> bool:
    return True


_VIEW = {
    "backbone": _is_name,
    "readout": _is_name,
    "sample_rate": lambda value: (
        is_whole(value) and DEFAULT_LIMITS.min_rate <= value <= DEFAULT_LIMITS.max_rate
    ),
    "channel": _is_channel,
    "precision": PRECISIONS,
    "resampler": ("soxr", "polyphase"),
    "weights_sha256": (None, is_sha256),
    "seconds": (None, lambda value: _is_number(value) and 0 < value < 1e6),
    "package": (None, lambda value: isinstance(value, str) and _PACKAGE.fullmatch(value)),
}
_RANGES = {
    "clips": _is_number,
    "sample_rates": [_is_number],
    "limits": dict.fromkeys(
        QUANTITIES, lambda value: follows(value, [_is_number]) and len(value) == 2
    ),
}
_BASIS = {
    "kind": KINDS,
    "clips": _is_count,
    "when": (None, _is_name),
    "sessions": (None, _is_count),
    "support": (None, _is_number),
    "siblings": (None, _is_number),
}


def _frontend(value: Any) -> Frontend | None:
    if value is None:
        return None
    others = tuple(Frontend(**each) for each in value.get("others", ()))
    return Frontend(**{**value, "others": others})


FIELDS: dict[str, Tensor | Value] = {
    "reference_scores": Tensor("F64", ("references",)),
    "reference_domains": Tensor("I32", ("references",)),
    "embeddings": Tensor("F32", ("clips", "features")),
    "clip_domains": Tensor("I32", ("clips",)),
    "clip_names": Tensor("U8", ("clips",), _is_name),
    "clip_sha256": Tensor("U8", ("clips",), is_sha256, may_be_unknown=True),
    "sessions": Tensor("U8", ("clips",), _is_name, may_be_unknown=True),
    "new_embeddings": Tensor("F32", ("new clips", "features")),
    "new_domains": Tensor("I32", ("new clips",)),
    "new_names": Tensor("U8", ("new clips",), _is_name),
    "machine": Value(_is_name),
    "config": Value(_is_name),
    "reason": Value(_is_name),
    "false_alarm_rate": Value(lambda value: _is_number(value) and SMALLEST_RATE <= value < 1),
    "siblings": Value((AUTO, is_whole)),
    "domains": Value([_is_name], tuple),
    "views": Value(
        {"names": [_is_name], "sizes": [is_whole]},
        lambda value: Views(tuple(value["names"]), tuple(value["sizes"])),
    ),
    "frontend": Value((None, _VIEW, {**_VIEW, "others": [_VIEW]}), _frontend),
    "basis": Value({str: _BASIS}),
    "ranges": Value((None, _RANGES)),
    "provenance": Value(
        {"updates": [{str: _anything}], "earlier_updates": is_whole, str: _anything}
    ),
}


def check_fields(model: Mapping[str, Any]) -> None:
    """Raise a `DacoError` unless these fields can make a model; no distance is computed."""
    sizes: dict[str, int] = {}
    for name, field in FIELDS.items():
        if isinstance(field, Tensor):
            _check_tensor(name, field, model[name], sizes)
            continue
        try:
            plain = json.loads(canonical_json(model[name]))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{name} must be plain JSON in UTF-8: {error}.") from None
        require(follows(plain, field.rule), f"{name} cannot be {plain!r:.200}.")
    require_bank_size(max(sizes["clips"] + sizes["new clips"], sizes["references"]))
    domains, views, frontend = model["domains"], model["views"], model["frontend"]
    every, several = list(range(len(domains))), f"of the {len(domains)} domains"
    require(0 < len(domains) <= MAX_DOMAINS, f"A model has 1 to {MAX_DOMAINS} domains.")
    require(list(domains) == sorted(set(domains)), "Domains must be different and sorted.")
    for name in ("clip_domains", "reference_domains"):
        found = sorted(set(model[name].tolist()))  # np.unique would load masked arrays
        require(found == every, f"{name} must have each {several}, and no others.")
    known = set(model["new_domains"].tolist()) <= set(every)
    require(known, f"A new clip is of none {several}.")
    require(set(model["basis"]) == set(domains), f"The basis must describe each {several}.")
    require(views.dim == sizes["features"], f"The views have {views.dim} features, the clips not.")
    for network in () if frontend is None else frontend.views:
        known = network.package is not None or network.backbone in NAMES
        require(known, f"There is no network {network.backbone!r:.60}.")
        count = len(frontend.views)
        require(count == len(views.names), f"The network has {count} views, the clips not.")
    needed = max(2, 1 + require_usable(model["config"]).k)
    if sizes["clips"] < needed:
        raise NotEnoughClipsError(
            f"{model['config']!r} needs at least {needed} normal clips, because each is judged by "
            f"the others. Got {sizes['clips']}: record more, or choose fewer neighbours."
        )


def _check_tensor(name: str, field: Tensor, value: Any, sizes: dict[str, int]) -> None:
    if field.may_be_unknown and not len(value):
        return
    shape = np.shape(value)
    for word, size in zip(field.shape, shape, strict=False):
        sizes.setdefault(word, size)
    expected = tuple(sizes.get(word) for word in field.shape)
    words = ", ".join(field.shape)
    require(shape == expected, f"{name} must be {expected} ({words}). Got {shape}.")
    if field.rule is None:
        require(value.dtype == DTYPES[field.dtype], f"{name} must be {field.dtype}.")
        require(bool(np.isfinite(value).all()), f"{name} contain NaN or inf.")
        return
    for text in value:
        known = field.rule(text) or (field.may_be_unknown and text == "")
        require(known, f"{name} cannot be {text!r:.60}.")


def require(holds: bool, message: str) -> None:
    """Raise an `InputError` with the message unless something holds."""
    if not holds:
        raise InputError(message)


def canonical_json(value: Any) -> bytes:
    """Sorted keys, no spaces, floats that read back the same, neither NaN nor infinity."""
    options: dict[str, Any] = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False}
    return json.dumps(value, ensure_ascii=False, default=_as_dict, **options).encode()


def _as_dict(value: Any) -> dict[str, Any]:
    if is_dataclass(value):  # the frontend of one view has no others
        return {name: each for name, each in vars(value).items() if each != ()}
    return dict(value)


def require_bank_size(count: int) -> None:
    """Raise `InputError` for more clips than a model may hold."""
    require(
        count <= MAX_CLIPS,
        f"A model holds at most {MAX_CLIPS:,} normals, and these are {count:,}. Thin them with "
        "daco fit --max-normals or daco.method.coreset.choose_normals: some hundreds of each "
        "domain are plenty.",
    )


def require_usable(config: str | ScoreConfig) -> ScoreConfig:
    """The configuration, if a detector can score with it in bounded memory."""
    if isinstance(config, str) and len(config) > MAX_CONFIG:
        raise ConfigError(f"A configuration's name has at most {MAX_CONFIG} characters.")
    parsed = ScoreConfig.parse(config)
    if parsed.assignment == "oracle":
        raise ConfigError(
            f"{parsed.name!r} needs the true domain of each clip, which no detector has. Use its "
            "'soft' or 'hard' form."
        )
    if parsed.k > MAX_NEIGHBOURS:
        raise ConfigError(f"{parsed.name!r}: a model looks at {MAX_NEIGHBOURS} neighbours at most.")
    return parsed
