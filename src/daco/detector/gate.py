"""The gate for normals: which of them not to use, and whether a model hears faults at all.

One bad normal of ten sets the largest score of its domain, and no fault is above it. What is
silent, clipped, of another rate or length, a copy, or unlike all others is left out, with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from daco.audio.quality import Quality, length_reasons
from daco.data.views import Bands, Views
from daco.detector.model import MachineModel
from daco.detector.normals import Normals
from daco.errors import DataError
from daco.method.config import RAW_CONFIG
from daco.method.distances import cosine_distances, equal_views, unit_rows
from daco.method.pseudo_anomalies import moved_normals
from daco.text import name_list
from daco.validation import Float64s, Floats, encode_domains

FAR = 2.0
"""How many times farther than usual the second nearest normal of a clip unlike the others is. On
two real machines honest normals reach 1.4 with four views and 2.6 with one, rarely."""

FEWEST = 8
"""Normals of a domain, below which nobody can say which one is unlike the others."""

MOST = 1 / 3
"""The largest share of a domain's normals that is left out without asking."""

_SAMPLE = 512  # normals of a domain whose distances from each other are looked at
_BLOCK = 1024
_LISTED = 10
_MOVED = (4.0, 16.0, 64.0)  # distances that faults may have, in usual distances between neighbours


def suspicious_normals(normals: Normals, known: MachineModel | None = None) -> dict[int, str]:
    """Normals that should not be used, by row, with a reason each.

    Parameters
    ----------
    normals : Normals
        Of one machine. Without qualities, vectors alone are looked at.
    known : MachineModel, optional
        A model that they are to be added to: its normals are compared with, too, and copies are
        not looked for.

    Returns
    -------
    dict of str
        ``silent``, ``clipped``, ``rate``, ``short``, ``long``, ``copy`` or ``unlike``, with a colon
        and what was found after it.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.gate import suspicious_normals
    >>> from daco.detector.normals import Normals
    >>> X = np.random.default_rng(0).normal(size=(10, 16)).astype(np.float32) + 3
    >>> X[3], X[7] = -X[3], X[1]
    >>> names = tuple(f"{row}.wav" for row in range(10))
    >>> suspicious_normals(Normals("fan", X, ("new",) * 10, names, None, {}))[7]
    'copy: of 1.wav'
    """
    usual = None if known is None or known.frontend is None else known.frontend.seconds
    found = _bad_recordings(normals, usual) | ({} if known is not None else _copies(normals))
    good = np.array([row for row in range(len(normals)) if row not in found], np.intp)
    if len(good):
        X, labels = normals.embeddings[good], [normals.domains[row] for row in good]
        if known is not None:
            X = np.concatenate([X, known.embeddings])
            labels += [known.domains[code] for code in known.clip_domains]
        for row, times in zip(good.tolist(), oddness(X, labels, normals.bands), strict=False):
            if times > FAR:
                found[row] = (
                    f"unlike: {times:.1f} times farther from the others than they are from each "
                    "other"
                )
    return dict(sorted(found.items()))


def _bad_recordings(normals: Normals, seconds: float | None) -> dict[int, str]:
    """Problems of the sound, a rate or a length that is not that of the domain."""
    views = () if normals.frontend is None else normals.frontend.views
    heard = max((view.sample_rate for view in views), default=None)
    by_domain: dict[str, list[Quality]] = {}
    for domain, quality in zip(normals.domains, normals.qualities, strict=False):
        if quality is not None:
            by_domain.setdefault(domain, []).append(quality)
    overall = Counter(_band(each, heard) for each in chain.from_iterable(by_domain.values()))
    reasons: dict[int, str] = {}
    for row, quality in enumerate(normals.qualities):
        if quality is None:
            continue
        others = by_domain[normals.domains[row]]
        usual = seconds or float(np.median([each["seconds"] for each in others]))
        rates = Counter(_band(each, heard) for each in others)
        rate = max(rates, key=lambda each: (rates[each], overall[each], each))
        problems = [*quality["reasons"], *length_reasons(quality["seconds"], usual)]
        if _band(quality, heard) != rate:
            problems.append(f"rate: {quality['sample_rate']} Hz, the others have {rate} Hz")
        if problems:
            reasons[row] = "; ".join(problems)
    return reasons


def _band(quality: Quality, heard: int | None) -> int:
    """The sample rate as far as a network hears it: what lies above does not count."""
    rate = quality["sample_rate"]
    return rate if heard is None else min(rate, heard)


def _copies(normals: Normals) -> dict[int, str]:
    """Clips with the bytes or the vectors of an earlier one."""
    unit = equal_views(normals.embeddings, normals.bands)
    first: dict[bytes | str, int] = {}
    reasons = {}
    for row in range(len(normals)):
        keys = [unit[row].tobytes(), *(each for each in normals.sha256s[row : row + 1] if each)]
        earlier = next((first[key] for key in keys if key in first), None)
        if earlier is not None:
            reasons[row] = f"copy: of {normals.names[earlier]}"
        for key in keys:
            first.setdefault(key, row)
    return reasons


def oddness(X: Floats, domains: Sequence[str], bands: Bands = 1) -> Float64s:
    """How far each normal is from the others, where 1 is what two of its domain usually are.

    The distance to the second nearest normal of any domain, over the median distance between two
    normals of its domain (chords between unit vectors); the geometric mean over views. Two bad
    normals that are alike do not hide each other, and one that is near normals of another domain
    is not odd. It is 0 in domains with fewer than `FEWEST` normals.
    """
    codes = encode_domains(domains, len(X))[1]
    views = bands.split(X) if isinstance(bands, Views) else [X]
    logs = np.zeros(len(X))
    for view in views:
        unit = unit_rows(view)
        second = np.concatenate([_second(unit, at) for at in range(0, len(unit), _BLOCK)])
        for code in range(codes.max() + 1):
            rows = np.flatnonzero(codes == code)
            some = unit[rows[:: -(-len(rows) // _SAMPLE)]]
            pairs = cosine_distances(some, some)[np.triu_indices(len(some), 1)]
            usual = float(np.median(pairs)) if len(pairs) else 0.0
            ratio = second[rows] / usual if usual > 0 else np.ones(len(rows))
            logs[rows] += 0.5 * np.log(np.maximum(ratio, 1e-2))
    few = np.bincount(codes)[codes] < FEWEST
    return np.asarray(np.where(few, 0.0, np.exp(logs / len(views))))


def _second(unit: Floats, start: int) -> Float64s:
    """Distances of a block of clips to the second nearest other clip, or the nearest of one."""
    block = unit[start : start + _BLOCK]
    distances = cosine_distances(block, unit).astype(np.float64)
    distances[np.arange(len(block)), start + np.arange(len(block))] = np.inf
    nearest = np.sort(np.partition(distances, min(1, len(unit) - 1), axis=1)[:, :2], axis=1)
    return np.asarray(np.where(np.isfinite(nearest[:, -1]), nearest[:, -1], nearest[:, 0]))


def require_few(normals: Normals, suspicious: Mapping[int, str]) -> None:
    """Raise `DataError` where more than a third of the normals of a domain are suspicious."""
    sizes = Counter(normals.domains)
    for domain, count in Counter(normals.domains[row] for row in suspicious).items():
        if count > MOST * sizes[domain]:
            listed = [
                f"{normals.names[row]} ({reason})"
                for row, reason in suspicious.items()
                if normals.domains[row] == domain
            ]
            raise DataError(
                f"{count} of {sizes[domain]} normals of {domain} are suspicious, more than a "
                f"third: {name_list(listed, _LISTED)}. Listen to them, and record or choose other "
                "normals. If they are what the machine sounds like, insist with "
                "--keep-suspicious."
            )


def require_hearing(model: MachineModel) -> None:
    """Raise `DataError` where nothing far from a domain's normals is anomalous to the model.

    Normals of each domain are moved (`moved_normals`) by 4, 16 and 64 times the usual distance
    between nearest normals. Those that are then that far from all normals are as faults are; a
    bank that covers all directions has none.
    """
    codes = model.clip_domains
    by_domain = [np.flatnonzero(codes == code) for code in range(len(model.domains))]
    rows = np.concatenate([mine[:: -(-len(mine) // _SAMPLE)] for mine in by_domain])
    vectors = equal_views(model.embeddings, model.bands)[rows]
    labels = np.array(model.domains)[codes[rows]]
    moved = moved_normals(vectors, labels, strengths=_MOVED, repeats=1)
    scored = model.score(moved.vectors)
    usual = model.bank.leave_one_out(RAW_CONFIG)[:, 0]
    for name, mine in zip(model.domains, by_domain, strict=True):
        far = scored.nearest_distance > _MOVED[0] * np.median(usual[mine])
        far &= moved.domains[moved.origin] == name
        if far.any() and not scored.alarms[far].any():
            raise DataError(
                f"Nothing is anomalous to this model in {name}: {int(far.sum())} vectors that "
                f"are {_MOVED[0]:g} to {_MOVED[-1]:g} times as far from the normals as these are "
                "from each other all pass. Some of the normals are unlike the others, or there "
                "are too few: leave them out, or record more."
            )
