"""Changes of a model that people ask for on the page: its healthy recordings and its limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from daco.detector.gate import find_copies, require_detection
from daco.detector.model import MachineModel
from daco.detector.ranges import ranges_of, widen_ranges
from daco.detector.revision import add_normals, calibrate_with, remove_normals
from daco.embedding.frontend import Listener
from daco.embedding.normals import Normals
from daco.errors import AudioError, InputError
from daco.files.hashing import sha256_of_file
from daco.text import name_list, quantity

Revision: TypeAlias = Literal["remove", "add", "calibrate"]

FEWEST_TO_CALIBRATE = 10
"""Recordings; better are 25 of each operating condition."""


def revised(
    model: MachineModel,
    listener: Listener,
    revision: Revision,
    names: Sequence[str],
    paths: Sequence[Path],
) -> tuple[MachineModel, str]:
    """Return the model after a revision, and what was done in words.

    `names` are those of healthy recordings to remove, or of the recordings at `paths`, which a
    person has called healthy: each belongs to the operating condition that it fits best.
    """
    if revision == "remove":
        after = remove_normals(model, names)
        require_detection(after)
        return after, f"Removed {quantity(names, 'healthy recording')}; {len(after)} are left."
    clips, left_out = _embedded(model, listener, names, paths)
    anomalous = int(model.score(clips.embeddings).anomalous.sum())
    if revision == "add":
        after = model
        for condition in sorted(set(clips.domains)):
            own = clips.take([row for row, name in enumerate(clips.domains) if name == condition])
            after = add_normals(
                after,
                own.embeddings,
                condition,
                own.names,
                clip_sha256=own.sha256s,
                sessions=("added on the page",) * len(own) if after.sessions else None,
                ranges=None if own.levels is None else widen_ranges(after.ranges, ranges_of(own)),
                note={"source": "the page", "anomalous": anomalous},
            )
        done = f"Added {quantity(clips.names, 'healthy recording')}; there are now {len(after)}."
    else:
        if len(clips) < FEWEST_TO_CALIBRATE:
            raise InputError(
                f"Choose at least {FEWEST_TO_CALIBRATE} recordings of the healthy machine, better "
                f"25 of each operating condition. {quantity(clips.names, 'recording')} can be used."
            )
        after = calibrate_with(
            model, clips.embeddings, clips.domains, clips.names, note={"source": "the page"}
        )
        done = f"The alarm limit comes from {quantity(clips.names, 'recording')} now."
    require_detection(after)
    if anomalous:
        done += f" {anomalous} of them sounded different before: a fault among them hides its like."
    if left_out:
        done += f" Left out: {name_list(left_out)}."
    return after, done


def _embedded(
    model: MachineModel, listener: Listener, names: Sequence[str], paths: Sequence[Path]
) -> tuple[Normals, list[str]]:
    """The recordings that can be used, and the names and reasons of the others."""
    vectors, levels, kept, hashes, left_out = [], [], [], [], []
    for name, path in zip(names, paths, strict=True):
        try:
            recording = listener.embed(path)
        except AudioError as error:
            left_out.append(f"{name} ({error.reason})")
            continue
        if recording.reasons:
            left_out.append(f"{name} ({recording.reasons[0]})")
            continue
        vectors.append(recording.embeddings[0])
        levels.append(recording.levels)
        kept.append(name)
        hashes.append(sha256_of_file(path))
    if not kept:
        raise InputError(f"None of the recordings can be used: {name_list(left_out)}.")
    rows = np.stack(vectors)
    codes = model.score(rows).weights.argmax(axis=1)
    known = [each for each in levels if each is not None]
    clips = Normals(
        model.machine,
        rows,
        tuple(model.domains[code] for code in codes),
        tuple(kept),
        model.frontend,
        {},
        views=model.views,
        sha256s=tuple(hashes),
        levels=np.concatenate(known) if len(known) == len(kept) else None,
    )
    copies = find_copies(clips, model)
    left_out += [f"{clips.names[row]} (the model has it: {name})" for row, name in copies.items()]
    clips = clips.take([row for row in range(len(clips)) if row not in copies])
    if not len(clips):
        raise InputError(f"The model has all of these recordings already: {name_list(left_out)}.")
    taken = set(model.clip_names)
    unique = tuple(f"added/{name}" if name in taken else name for name in clips.names)
    return replace(clips, names=unique), left_out
