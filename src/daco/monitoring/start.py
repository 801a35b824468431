"""From recordings of healthy machines to models and a ``daco.toml``: what ``daco start`` does."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from daco.backbones import load
from daco.data.clips import ONE_DOMAIN, ClipTable
from daco.data.folders import meaning_of_folders
from daco.data.sources import read_clips
from daco.detector.fit import fit_machines
from daco.detector.gate import require_few, suspicious_normals
from daco.detector.model import MachineModel
from daco.detector.revision import calibrate_with
from daco.embedding.frontend import Listener
from daco.embedding.normals import Normals, NormalsByMachine, normals_of_recordings
from daco.errors import DacoError
from daco.files.atomic import atomic_write, replace_file
from daco.monitoring.expectation import expectation_of_model
from daco.synthetic.sensitivity import caught_from, detection_rates, quick_faults
from daco.text import loudness_in_words, name_list, quantity

Progress = Callable[[str, int, int | None], None]

NEW = 25
"""Recordings of an operating condition that are kept aside to set the alarm limit."""

_ENOUGH = 3 * NEW  # of a condition, so that most of them are left to learn from
_FAULTS = {"impacts": "knocking", "tones": "a new tone"}


@dataclass(frozen=True)
class FittedMachine:
    """A machine with its model, and what became of its recordings."""

    id: str
    model: MachineModel
    conditions: dict[str, int]  #: recordings of each
    left_out: dict[str, str]  #: reason by recording
    kept_aside: int  #: recordings that set the alarm limit
    notices: str  #: a sentence; empty where it was not measured


def levels_of(table: ClipTable) -> dict[str, int]:
    """The folder levels of a plant: folders directly in it are machines, as people store them.

    Empty where the usual reading is right: more levels, a data set, a manifest.
    """
    names = {clip.domain for clip in table.clips}
    in_folders = all(
        meaning_of_folders(clip.path).names.get(1) == clip.domain for clip in table.clips
    )
    if not in_folders or len(table.machines) > 1 or names <= {"source", "target", ONE_DOMAIN}:
        return {}
    return {"machine_level": 1}


def gather(
    recordings: Path,
    progress: Progress,
    machine_level: int | None = None,
    domain_level: int | None = None,
) -> NormalsByMachine:
    """Embed the healthy recordings of all machines of a folder."""
    levels: dict[str, Any] = {"machine_level": machine_level, "domain_level": domain_level}
    if machine_level is None and domain_level is None:
        levels = levels_of(read_clips(recordings))
    network = load("logmel")
    return normals_of_recordings(
        recordings,
        network,
        readout="+".join(network.default_views),
        progress=lambda done, of: progress("listening", done, of),
        understood=lambda _: None,
        **levels,
    )


def fit_plant(
    machines: Sequence[Normals], ids: Sequence[str], folder: Path, progress: Progress
) -> Iterator[FittedMachine | DacoError]:
    """Fit, calibrate and write the model of each machine into a folder, and try faults on it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (normals, name) in enumerate(zip(machines, ids, strict=True)):
        progress("fitting", number, len(machines))
        try:
            fitted = _fit(normals, name)
        except DacoError as error:
            yield type(error)(f"{normals.machine}: {error}")
            continue
        replace_file(folder / f"{name}.daco", fitted.model.to_bytes())
        yield replace(fitted, notices=_what_it_notices(fitted.model))
    progress("fitting", len(machines), len(machines))


def _fit(normals: Normals, name: str) -> FittedMachine:
    suspicious = suspicious_normals(normals)
    require_few(normals, suspicious)
    good = normals.take(np.delete(np.arange(len(normals)), list(suspicious)))
    aside = rows_aside(good.domains)
    learned = good.take(np.delete(np.arange(len(good)), aside))
    ((_, model),) = fit_machines([learned])
    if isinstance(model, DacoError):
        raise model
    if aside:
        new = good.take(aside)
        model = calibrate_with(model, new.embeddings, new.domains, new.names)
    reasons = {normals.names[row]: reason for row, reason in suspicious.items()}
    reasons |= model.provenance.get("left_out", {})
    conditions = dict(Counter(good.domains))
    return FittedMachine(name, model, conditions, reasons, len(aside), "")


def rows_aside(conditions: Sequence[str]) -> list[int]:
    """The last recordings of every condition that has enough of them.

    >>> rows_aside(["slow"] * 80 + ["fast"] * 10)[:2], len(rows_aside(["slow"] * 74))
    ([55, 56], 0)
    """
    rows: dict[str, list[int]] = {}
    for row, condition in enumerate(conditions):
        rows.setdefault(condition, []).append(row)
    return sorted(row for own in rows.values() if len(own) >= _ENOUGH for row in own[-NEW:])


def _what_it_notices(model: MachineModel) -> str:
    """Which faults the model notices, from which loudness on, in few recordings."""
    if model.frontend is None:
        return ""
    try:
        rates = detection_rates(model, quick_faults(model, Listener(model.frontend)))
    except DacoError:
        return ""
    worst: dict[str, float] = {}
    for fault, _, from_db, *_ in caught_from(rates).itertuples(index=False, name=None):
        level = math.inf if from_db != from_db else float(from_db)
        worst[fault] = max(worst.get(fault, -math.inf), level)
    seconds = model.frontend.seconds or 10.0
    words = [_in_words(fault, level, seconds) for fault, level in worst.items()]
    return ", ".join(words)


def _in_words(fault: str, level_db: float, seconds: float) -> str:
    """A fault and the level from which on it is noticed, in words.

    >>> _in_words("impacts", -12.0, 10.0), _in_words("off", -10.0, 10.0)
    ("knocking at a quarter of the machine's loudness", 'a stop of 1 s')
    """
    if fault == "off":  # its level is the share of the time
        share = 10 ** (level_db / 10)
        return "no stop" if math.isinf(level_db) else f"a stop of {seconds * share:.2g} s"
    if math.isinf(level_db):
        return f"{_FAULTS[fault]} only if it is louder than the machine"
    return f"{_FAULTS[fault]} at {loudness_in_words(level_db)}"


def sentences(fitted: FittedMachine) -> list[str]:
    """What a plant engineer should know about a machine's model."""
    model, conditions = fitted.model, fitted.conditions
    heard = quantity(sum(conditions.values()), "healthy recording")
    if len(conditions) > 1:
        parts = name_list([f"{name} {count}" for name, count in conditions.items()])
        heard += f" in {len(conditions)} operating conditions ({parts})"
    lines = [f"{heard}."]
    if fitted.left_out:
        kinds = Counter(reason.partition(":")[0] for reason in fitted.left_out.values())
        reasons = name_list([f"{count} {kind}" for kind, count in kinds.items()])
        lines.append(f"Left out, because they are suspicious: {reasons}.")
    if fitted.kept_aside:
        lines.append(f"The alarm limit rests on {fitted.kept_aside} recordings kept aside.")
    else:
        lines.append("The alarm limit rests on these recordings alone; 25 new ones make it sure.")
    lines += expectation_of_model(model)
    if fitted.notices:
        lines.append(f"It notices {fitted.notices}.")
    return lines


def write_toml(
    file: Path, machines: Sequence[FittedMachine], titles: Sequence[str], root: Path
) -> None:
    """Write the configuration of a new plant."""
    text = _HEAD + "".join(
        _MACHINE.format(
            id=_key(each.id),
            title=_quoted(title),
            model=_quoted(f"models/{each.id}.daco"),
            folder=_quoted(f"inbox/{each.id}"),
            healthy=_quoted(_healthy(each.model, root, file.parent)),
        )
        for each, title in zip(machines, titles, strict=True)
    )
    with atomic_write(file) as temporary:
        temporary.write_text(text, "utf-8")
        temporary.chmod(0o600)  # addresses of receivers contain passwords
    for each in machines:
        (file.parent / "inbox" / each.id).mkdir(parents=True, exist_ok=True)


def _healthy(model: MachineModel, root: Path, base: Path) -> str:
    """The folder of the recordings that a model was learned from."""
    folders = [os.path.dirname(name) for name in model.clip_names]
    found = root.absolute() / (os.path.commonpath(folders) if folders else "")
    inside = found.is_relative_to(base.absolute())
    return (found.relative_to(base.absolute()) if inside else found).as_posix()


def _quoted(text: str) -> str:
    """A string of TOML, which JSON's are too."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    """A key of TOML: bare where it can be."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _quoted(name)


_HEAD = """\
# The plant that daco listens to. Start it with:  daco serve
# What is in force, and where it comes from:      daco serve --check

[service]
address = "127.0.0.1:8477"        # the page; other computers need a token, see the manual
database = "sqlite:///daco.db"    # results and alarms
keep_audio = "anomalous"          # which recordings are kept to listen to: all, none
audio_size = "2 GB"               # the oldest go first

[notify]                          # try it with:  daco notify --test
# urls = ["mailto://user:password@example.com", "ntfy://topic"]    # see the manual for others
# mqtt = "mqtt://127.0.0.1:1883"
# webhook = "https://example.com/hook"
cooldown = "30 min"               # between messages about the same machine
# quiet_hours = "22:00-6:00"      # messages wait until these hours end
"""

_MACHINE = """
[machine.{id}]
title = {title}
model = {model}
folder = {folder}
healthy = {healthy}
alarm = "3 of 5"                  # or "every" odd recording, or "off"
off = "normal"                    # "alarm": tell when the machine stands still
# expect_every = "10 min"         # tell when no recording came for twice as long
# hours = "mon-fri 6:00-22:00"    # running hours
"""
