"""Changes of a model that people ask for on the page: its healthy recordings and its limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from daco.detector.additions import Addition, in_known_domains
from daco.detector.gate import find_copies, require_detection
from daco.detector.model import MachineModel
from daco.detector.revision import calibrate_with, remove_normals
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
    odd = model.score(clips.embeddings).anomalous
    if revision == "add":
        after = model
        for condition in sorted(set(clips.domains)):
            rows = np.flatnonzero(np.array(clips.domains) == condition)
            own = Addition(clips.take(rows), (), (), int(odd[rows].sum()), forced=True)
            after = own.apply(after)
        done = f"Added {quantity(clips.names, 'healthy recording')}; there are now {len(after)}."
    else:
        if len(clips) < FEWEST_TO_CALIBRATE:
            raise InputError(
                f"Choose at least {FEWEST_TO_CALIBRATE} recordings of the healthy machine, better "
                f"25 of each operating condition. {quantity(clips.names, 'recording')} can be used."
            )
        after = calibrate_with(
            model, clips.embeddings, clips.domains, clips.names, note=clips.origin
        )
        done = f"The alarm limit comes from {quantity(clips.names, 'recording')} now."
    require_detection(after)
    if odd.any():
        done += f" {odd.sum()} of them sounded different before: a fault among them hides its like."
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
            reasons = recording.reasons
        except AudioError as error:
            reasons = (error.reason,)
        if reasons:
            left_out.append(f"{name} ({reasons[0]})")
            continue
        vectors.append(recording.embeddings[0])
        levels.append(recording.levels)
        kept.append(name)
        hashes.append(sha256_of_file(path))
    if not kept:
        raise InputError(f"None of the recordings can be used: {name_list(left_out)}.")
    known = [each for each in levels if each is not None]
    clips = Normals(
        model.machine,
        np.stack(vectors),
        ("",) * len(kept),
        tuple(kept),
        model.frontend,
        {"source": "the page"},
        views=model.views,
        sha256s=tuple(hashes),
        levels=np.concatenate(known) if len(known) == len(kept) else None,
    )
    clips, _ = in_known_domains(model, clips, None, "")
    copies = find_copies(clips, model)
    left_out += [f"{clips.names[row]} (the model has it: {name})" for row, name in copies.items()]
    if len(copies) == len(clips):
        raise InputError(f"The model has all of these recordings already: {name_list(left_out)}.")
    return clips.take([row for row in range(len(clips)) if row not in copies]), left_out
