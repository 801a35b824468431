"""Revisions of a model: add or remove normals, or calibrate with new ones.

Configuration and false-alarm rate stay; ``updates`` in the provenance lists the revisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from daco.data.views import join_views
from daco.detector.model import MachineModel, parse_names, timestamp
from daco.detector.modelfields import require_bank_size
from daco.detector.reference import parse_sessions, reference_fields
from daco.errors import InputError
from daco.files.atomic import PREVIOUS, replace_file
from daco.method.bank import Clips, Domains, NormalBank
from daco.text import name_list, quantity
from daco.validation import Bools, Float32s, as_float32, match_domains
from daco.version import __version__

_MAX_UPDATES = 100
_NAMED = 20


def add_normals(
    model: MachineModel,
    X: Clips,
    domain: str,
    clip_names: Sequence[str],
    *,
    clip_sha256: Sequence[str] = (),
    sessions: Sequence[str] | None = None,
    calibrate: bool = False,
    ranges: Mapping[str, Any] | None = None,
    note: Mapping[str, Any] | None = None,
) -> MachineModel:
    """Return a model with more normals of one domain, known or new; the given one does not change.

    Parameters
    ----------
    model, X, domain
        The model, and embeddings (k, D) or {view: (k, D)} of the new normals of a domain.
    clip_names, clip_sha256, sessions : k texts
        As in :meth:`MachineModel.fit`.
    calibrate : bool
        Whether the new clips replace the reference scores of the domain: each half of them is
        scored by the bank with the other half.
    ranges, note : mapping, optional
        The ranges of sound levels of all normals, and what else the provenance shall tell.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.model import MachineModel
    >>> from daco.detector.revision import add_normals, remove_normals
    >>> X = np.random.default_rng(0).normal(size=(62, 16)) + 1
    >>> model = MachineModel.fit(X[2:], ["old"] * 50 + ["new"] * 10, machine="press")
    >>> remove_normals(add_normals(model, X[:2], "new", ["a.wav", "b.wav"]), ["3", "a.wav"])
    MachineModel('press', blend: 11 new and 49 old clips, 16-d, rate 0.1)
    """
    rows, when = _rows(model, X), timestamp()
    old, count, labels = len(model), len(rows), _labels(model)
    known, added = model.sessions or ("",) * old, parse_sessions(sessions, count) or ("",) * count
    added_rows = {row.tobytes() for row in rows}  # clips cannot be in the bank and new to it
    stays = np.array([row.tobytes() not in added_rows for row in model.new_embeddings], np.bool_)
    if calibrate:
        if count < 2:
            raise InputError("Calibrate with at least two clips, better with 25. Got one.")
        added = tuple(f"{when} {old} {1 + (2 * row >= count)}" for row in range(count))
        pairs = zip(labels, known, strict=True)
        known = tuple("" if label == domain else session for label, session in pairs)
        stays &= np.array([model.domains[code] != domain for code in model.new_domains], np.bool_)
    hashes = (*(model.clip_sha256 or ("",) * old), *(clip_sha256 or ("",) * count))
    return _revised(
        model,
        {"action": "added", "domain": domain, "clips": count, "when": when, **(note or {})},
        when={domain: when} if calibrate else {},
        labels=[*labels, *[domain] * count],
        embeddings=np.concatenate([model.embeddings, rows]),
        clip_names=(*model.clip_names, *parse_names(clip_names, count)),
        clip_sha256=hashes if any(hashes) else (),
        sessions=(*known, *added) if any((*known, *added)) else (),
        ranges=model.ranges if ranges is None else ranges,
        **_new_clips(model, stays),
    )


def remove_normals(model: MachineModel, names: Sequence[str]) -> MachineModel:
    """Return a model without the normals of these names (``daco inspect --normals``)."""
    unknown = sorted(set(names) - set(model.clip_names))
    if unknown:
        raise InputError(
            f"The model has no normal called {name_list(unknown)}. daco inspect --normals lists "
            "the names."
        )
    rows = [row for row, name in enumerate(model.clip_names) if name not in set(names)]
    labels = [_labels(model)[row] for row in rows]
    lost = sorted(set(model.domains) - set(labels))
    if lost:
        raise InputError(
            f"{name_list(lost)} would have no normals. Keep at least one of each domain."
        )
    done = {"action": "removed", "clips": len(model) - len(rows), "names": list(names)[:_NAMED]}
    return _revised(
        model,
        {**done, "when": timestamp()},
        labels=labels,
        embeddings=model.embeddings[rows],
        clip_names=tuple(model.clip_names[row] for row in rows),
        clip_sha256=tuple(model.clip_sha256[row] for row in rows if model.clip_sha256),
        sessions=tuple(model.sessions[row] for row in rows if model.sessions),
    )


def calibrate_with(
    model: MachineModel,
    X: Clips,
    domains: Domains | None = None,
    clip_names: Sequence[str] | None = None,
    *,
    ranges: Mapping[str, Any] | None = None,
    note: Mapping[str, Any] | None = None,
) -> MachineModel:
    """Return a model whose reference scores are those of new normals, which it does not learn.

    Parameters
    ----------
    model, X
        The model, and embeddings (k, D) or {view: (k, D)} of normals that are not in it.
    domains : k labels, optional
        By default the domain that each clip fits best. New clips replace earlier ones of the same
        domain; the reference scores of other domains stay.
    clip_names, ranges, note
        As in `add_normals`.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.model import MachineModel
    >>> from daco.detector.revision import calibrate_with
    >>> X = np.random.default_rng(0).normal(size=(85, 16)) + 1
    >>> model = MachineModel.fit(X[25:], ["old"] * 50 + ["new"] * 10, machine="press")
    >>> calibrate_with(model, X[:25], ["new"] * 25).reference.kinds
    {'new': 'new', 'old': 'training'}
    """
    rows, known = _rows(model, X), {row.tobytes() for row in model.embeddings}
    names = parse_names(clip_names, len(rows))
    copies = [name for name, row in zip(names, rows, strict=True) if row.tobytes() in known]
    if copies:
        raise InputError(
            f"The bank has {quantity(copies, 'clip')} of these already: {name_list(copies)}. "
            "Calibrate with recordings that are not in the model."
        )
    if domains is None:
        codes = model.score(rows).weights.argmax(axis=1)
    else:
        codes = match_domains(domains, model.domains, len(rows), "domains")
    when, labels = timestamp(), [model.domains[code] for code in codes]
    counts = {name: labels.count(name) for name in sorted(set(labels))}
    others = _new_clips(model, ~np.isin(model.new_domains, codes))
    return _revised(
        model,
        {"action": "calibrated", "clips": counts, "when": when, **(note or {})},
        when=dict.fromkeys(counts, when),
        new_embeddings=np.concatenate([others["new_embeddings"], rows]),
        new_domains=np.concatenate([others["new_domains"], codes]).astype(np.int32),
        new_names=(*others["new_names"], *names),
        ranges=model.ranges if ranges is None else ranges,
    )


def undo(path: Path) -> MachineModel:
    """Swap a model file and the version before it, which is returned."""
    previous = path.with_name(path.name + PREVIOUS)
    if not previous.exists():
        raise InputError(
            f"There is no earlier version of the model to go back to: {previous.name} is not "
            "beside it."
        )
    model = MachineModel.load(previous)
    replace_file(path, previous.read_bytes())
    return model


def _rows(model: MachineModel, X: Clips) -> Float32s:
    return as_float32(join_views(X, model.views)[0], "X")


def _labels(model: MachineModel) -> list[str]:
    return [model.domains[code] for code in model.clip_domains]


def _new_clips(model: MachineModel, rows: Bools) -> dict[str, Any]:
    """The fields of those normals that are not in the bank and stay."""
    pairs = zip(model.new_names, rows, strict=True)
    return {
        "new_embeddings": model.new_embeddings[rows],
        "new_domains": model.new_domains[rows],
        "new_names": tuple(name for name, stays in pairs if stays),
    }


def _revised(
    model: MachineModel,
    update: Mapping[str, Any],
    *,
    when: Mapping[str, str] | None = None,
    labels: Sequence[str] = (),
    **changes: Any,
) -> MachineModel:
    """The model with other normals, and with a new bank where their `labels` are given."""
    bank = model.bank  # or an error: an external scorer is another one here
    fields = vars(model) | changes
    new = fields["new_embeddings"]
    require_bank_size(len(fields["embeddings"]) + len(new))
    if labels:
        bank = NormalBank(fields["embeddings"], list(labels), views=model.views)
    # A new domain changes the numbers of the others.
    codes = np.array([bank.domains.index(name) for name in model.domains], np.int32)
    codes = codes[fields["new_domains"]]
    how = bank, model.config, model.siblings, fields["sessions"], (new, codes) if len(new) else None
    history = [*model.provenance.get("updates", []), {"daco_version": __version__, **update}]
    earlier = model.provenance.get("earlier_updates", 0) + max(0, len(history) - _MAX_UPDATES)
    provenance = {**model.provenance, "updates": history[-_MAX_UPDATES:]}
    if earlier:
        provenance["earlier_updates"] = earlier
    changes |= reference_fields(*how, model.basis, when)
    changes |= {"new_domains": codes, "provenance": provenance}
    return replace(model, **changes).with_bank(bank)
