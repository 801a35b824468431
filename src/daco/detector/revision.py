"""Revisions of a model: add or remove normals, or calibrate with new ones.

Configuration and false-alarm rate stay; ``updates`` in the provenance lists the revisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.views import join_views
from daco.detector.model import MachineModel, parse_names, timestamp
from daco.detector.modelcheck import require_bank_size
from daco.detector.reference import parse_sessions, reference_fields
from daco.errors import InputError
from daco.method.bank import Clips, Domains, NormalBank
from daco.text import name_list, quantity
from daco.validation import as_embeddings, as_float32, match_domains
from daco.version import __version__

_MAX_UPDATES = 100
_NAMED = 20

NewClips = tuple[NDArray[np.float32], NDArray[np.int32], tuple[str, ...]]


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
    """Add normals of one domain, known or new, to a model.

    Parameters
    ----------
    model : MachineModel
    X : (k, D), or {view: (k, D)}
        Embeddings of the new normals.
    domain : str
        Their domain.
    clip_names, clip_sha256, sessions : k texts
        As in :meth:`MachineModel.fit`.
    calibrate : bool
        Whether the new clips replace the reference scores of the domain: each half of them is
        scored by the bank with the other half.
    ranges : mapping, optional
        The ranges of sound levels of all normals.
    note : mapping, optional
        Stored in the provenance with the time and the counts.

    Returns
    -------
    MachineModel
        A new model; `model` does not change.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.model import MachineModel
    >>> from daco.detector.revision import add_normals
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, ["old"] * 50 + ["new"] * 10, machine="press")
    >>> add_normals(model, rng.normal(size=(2, 16)) + 1, "new", ["a.wav", "b.wav"])
    MachineModel('press', conf-soft-m0-k1: 12 new and 50 old clips, 16-d, rate 0.1)
    """
    new, when = _rows(model, X), timestamp()
    if calibrate and len(new) < 2:
        raise InputError(
            "One new clip is not enough: calibrate with at least two clips, better with 25."
        )
    count, labels = len(new), [model.domains[code] for code in model.clip_domains]
    known, added = model.sessions, parse_sessions(sessions, count)
    if calibrate:
        added = tuple(f"{when} {len(model)} {1 + (2 * row >= count)}" for row in range(count))
        before = zip(labels, known or ("",) * len(model), strict=True)
        known = tuple("" if label == domain else name for label, name in before)
    hashes = model.clip_sha256, tuple(clip_sha256)
    added_rows = {row.tobytes() for row in new}  # clips cannot be in the bank and new to it
    stays = [row.tobytes() not in added_rows for row in model.new_embeddings]
    if calibrate:
        codes = zip(stays, model.new_domains.tolist(), strict=True)
        stays = [stay and model.domains[code] != domain for stay, code in codes]
    return _revise(
        model,
        np.concatenate([model.embeddings, new]),
        [*labels, *[domain] * count],
        {"action": "added", "domain": domain, "clips": count, "when": when, **(note or {})},
        new=_new_clips(model, np.array(stays, np.bool_)),
        when={domain: when} if calibrate else None,
        clip_names=(*model.clip_names, *parse_names(clip_names, count)),
        clip_sha256=_joined(*hashes, len(model), count),
        sessions=_joined(known, added, len(model), count),
        ranges=model.ranges if ranges is None else ranges,
    )


def remove_normals(
    model: MachineModel, names: Sequence[str], *, note: Mapping[str, Any] | None = None
) -> MachineModel:
    """Remove normals from a model by name.

    Parameters
    ----------
    model : MachineModel
    names : sequence of str
        Names of the normals to remove, as ``daco inspect --normals`` lists them.
    note : mapping, optional
        Stored in the provenance with the time and the counts.

    Returns
    -------
    MachineModel
        A new model; `model` does not change.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.model import MachineModel
    >>> from daco.detector.revision import remove_normals
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, ["old"] * 50 + ["new"] * 10, machine="press")
    >>> remove_normals(model, ["3", "55"])
    MachineModel('press', conf-soft-m0-k1: 9 new and 49 old clips, 16-d, rate 0.1)
    """
    unknown = sorted(set(names) - set(model.clip_names))
    if unknown:
        raise InputError(
            f"The model has no normal called {name_list(unknown)}. daco inspect --normals lists "
            "the names."
        )
    rows = np.flatnonzero(~np.isin(model.clip_names, list(names)))
    labels = [model.domains[model.clip_domains[row]] for row in rows]
    lost = sorted(set(model.domains) - set(labels))
    if lost:
        raise InputError(
            f"{name_list(lost)} would have no normals. Keep at least one of each domain."
        )
    done = {"action": "removed", "clips": len(model) - len(rows), "names": list(names)[:_NAMED]}
    return _revise(
        model,
        model.embeddings[rows],
        labels,
        {**done, "when": timestamp(), **(note or {})},
        new=_new_clips(model, slice(None)),
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
    """Replace reference scores by those of new normals, which do not enter the bank.

    Parameters
    ----------
    model : MachineModel
    X : (k, D), or {view: (k, D)}
        Embeddings of the new normals.
    domains : k labels, optional
        The domain of each clip; by default the one that it fits best. New clips replace earlier
        ones of the same domain; the reference scores of other domains stay.
    clip_names : k texts, optional
        Names of the recordings; row numbers by default.
    ranges, note : mapping, optional
        As in `add_normals`.

    Returns
    -------
    MachineModel
        A new model; `model` does not change.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.model import MachineModel
    >>> from daco.detector.revision import calibrate_with
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, ["old"] * 50 + ["new"] * 10, machine="press")
    >>> model = calibrate_with(model, rng.normal(size=(25, 16)) + 1, ["new"] * 25)
    >>> model.basis["new"]["kind"], model.basis["new"]["clips"], model.basis["old"]["kind"]
    ('new', 25, 'training')
    """
    new, known = _rows(model, X), {row.tobytes() for row in model.embeddings}
    names = parse_names(clip_names, len(new))
    copies = [name for name, row in zip(names, new, strict=True) if row.tobytes() in known]
    if copies:
        raise InputError(
            f"The bank has {quantity(copies, 'clip')} of these already: {name_list(copies)}. "
            "Calibrate with recordings that are not in the model."
        )
    if domains is None:
        codes = model.bank.examine(new, model.config).weights.argmax(axis=1)
    else:
        codes = match_domains(domains, model.domains, len(new), "domains")
    rows, others, other_names = _new_clips(model, ~np.isin(model.new_domains, codes))
    when, found = timestamp(), [model.domains[code] for code in codes]
    counts = {name: found.count(name) for name in sorted(set(found))}
    return _revise(
        model,
        model.embeddings,
        [],
        {"action": "calibrated", "clips": counts, "when": when, **(note or {})},
        new=(
            np.concatenate([rows, new]),
            np.concatenate([others, codes]).astype(np.int32),
            (*other_names, *names),
        ),
        when=dict.fromkeys(counts, when),
        ranges=model.ranges if ranges is None else ranges,
    )


def _rows(model: MachineModel, X: Clips) -> NDArray[np.float32]:
    rows = join_views(X, model.bands)[0]
    return as_float32(as_embeddings(rows, dim=model.embeddings.shape[1]), "X")


def _new_clips(model: MachineModel, rows: Any) -> NewClips:
    """Embeddings, domains and names of some of the normals that are not in the bank."""
    embeddings = model.new_embeddings.reshape(-1, model.embeddings.shape[1])[rows]
    names = np.array(model.new_names, dtype=object)[rows].tolist()
    return embeddings, model.new_domains[rows], tuple(names)


def _joined(
    known: tuple[str, ...], added: tuple[str, ...], old: int, count: int
) -> tuple[str, ...]:
    """Texts of the known and the added clips, "" where they are missing; () where all are."""
    if not known and not added:
        return ()
    return (*(known or ("",) * old), *(added or ("",) * count))


def _revise(
    model: MachineModel,
    embeddings: NDArray[np.float32],
    labels: Sequence[str],
    update: dict[str, Any],
    *,
    new: NewClips,
    when: Mapping[str, str] | None = None,
    **changes: Any,
) -> MachineModel:
    """The model with other normals; `when` are the times of domains' new reference clips."""
    require_bank_size(len(embeddings) + len(new[0]))
    bank = model.bank  # or an error: the scorer is another one here
    if labels:
        bank = NormalBank(embeddings, labels, bands=model.bands)
    codes = np.array([bank.domains.index(name) for name in model.domains], np.int32)[new[1]]
    history = [*model.provenance.get("updates", []), {"daco_version": __version__, **update}]
    provenance = {**model.provenance, "updates": history[-_MAX_UPDATES:]}
    if len(history) > _MAX_UPDATES:
        earlier = model.provenance.get("earlier_updates", 0)
        provenance["earlier_updates"] = earlier + len(history) - _MAX_UPDATES
    sessions = changes.get("sessions", model.sessions)
    revised = replace(
        model,
        embeddings=embeddings,
        provenance=provenance,
        new_embeddings=new[0],
        new_domains=codes,
        new_names=new[2],
        **changes,
        **reference_fields(bank, model.config, sessions, (new[0], codes), model.basis, when),
    )
    return revised.with_bank(bank)
