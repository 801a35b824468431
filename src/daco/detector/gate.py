"""Checks of normals: which of them are suspicious, and whether a model detects anything.

One bad normal of ten can hide all faults, because it sets the largest score of its domain. Clips
that are silent, clipped, copies, of another rate or length, or unlike all others are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from daco.audio.quality import length_reasons
from daco.backbones.levels import CENTRES
from daco.data.views import Bands, Views
from daco.detector.model import MachineModel
from daco.detector.modelcheck import scorers_of
from daco.detector.normals import Normals
from daco.detector.ranges import check_levels, rate_reasons
from daco.detector.reference import sessions_that_count
from daco.errors import DataError
from daco.method.config import RAW_CONFIG
from daco.method.distances import cosine_distances, equal_views, unit_rows
from daco.method.pseudo_anomalies import moved_normals
from daco.method.siblings import likely_siblings, scores_of_normals
from daco.text import name_list, quantity
from daco.validation import Float64s, Floats, encode_domains

FAR = 2.5
"""How many times farther than usual the second nearest normal of a clip unlike the others is.
Good normals of two real machines reach 1.2; of ten that differ much, 1 in 2,000 exceeds it."""

FAR_IN_BANDS = 4.0
"""The same for the levels of its octave bands, which views ignore. Ten good normals of ten machines
reach 4.4 at most; a clip of another machine that sounds different reaches 5 and more."""

FEWEST = 8
"""Fewest normals of a domain among which one can be called unlike the others."""

MOST = 1 / 3
"""The largest share of a domain's normals that is left out without asking."""

_LEAST = 1e-2  # times, for copies
_SAMPLE = 512  # normals of a domain whose distances from each other are looked at
_BLOCK = 1024
_LISTED = 10
_TOO_FEW = "Some of the normals are unlike the others, or there are too few: record more."
_DEAF = (
    "Its scorer does not notice their direction: normalise vectors in it, or choose another one."
)
_MOVED = (4.0, 16.0, 64.0)  # distances that faults may have, in usual distances between neighbours


def suspicious_normals(normals: Normals, known: MachineModel | None = None) -> dict[int, str]:
    """Find normals that should not be used, with a reason for each.

    Parameters
    ----------
    normals : Normals
        The normals of one machine. Without qualities and levels, only embeddings are compared.
    known : MachineModel, optional
        The model that the normals are for. They are then compared with its normals as well, clips
        of its domains must be within its ranges, and copies are not searched.

    Returns
    -------
    {int: str}
        The reason of each suspicious row: ``silent``, ``clipped``, ``rate``, ``short``, ``long``,
        ``copy``, ``off``, ``range`` or ``unlike``, then a colon and the details.

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
    found = _bad_recordings(normals, known)
    if known is None:
        found |= {row: f"copy: of {name}" for row, name in find_copies(normals).items()}
    else:
        guards = check_levels(known.ranges, normals.levels, len(normals))
        for row, guard in enumerate(guards):
            if guard is not None and normals.domains[row] in known.domains:
                found.setdefault(row, guard.reason)
    good = np.array([row for row in range(len(normals)) if row not in found], np.intp)
    if len(good):
        X, labels = normals.embeddings[good], [normals.domains[row] for row in good]
        if known is not None:
            X = np.concatenate([X, known.embeddings])
            labels += [known.domains[code] for code in known.clip_domains]
        told = "times farther from the others than they are from each other"
        for row, times in zip(good.tolist(), oddness(X, labels, normals.bands), strict=False):
            if times > FAR:
                found[row] = f"unlike: {times:.1f} {told}"
        if normals.levels is not None:
            levels = normals.levels[good, 1 : 1 + len(CENTRES)]
            shapes = levels - levels.mean(axis=1, keepdims=True)
            times_in_bands = _times_farther(shapes, labels[: len(good)], cdist)
            for row, times in zip(good.tolist(), times_in_bands, strict=True):
                if times > FAR_IN_BANDS:
                    found.setdefault(row, f"unlike: in its octave bands {times:.1f} {told}")
    return dict(sorted(found.items()))


def _bad_recordings(normals: Normals, known: MachineModel | None) -> dict[int, str]:
    """Problems of the sound; a rate or length that is not that of the domain, or of the model."""
    given = {row: each for row, each in enumerate(normals.qualities) if each is not None}
    everywhere = Counter(each["sample_rate"] for each in given.values())
    reasons: dict[int, str] = {}
    for domain in set(normals.domains):
        qualities = {row: each for row, each in given.items() if normals.domains[row] == domain}
        if not qualities:
            continue
        seconds = float(np.median([each["seconds"] for each in qualities.values()]))
        if known is not None and known.frontend is not None:
            seconds = known.frontend.seconds or seconds
        counts = Counter(each["sample_rate"] for each in qualities.values())
        rates = [max(counts, key=lambda rate: (counts[rate], everywhere[rate], rate))]
        if known is not None and known.ranges is not None:
            rates = known.ranges["sample_rates"]
        for row, quality in qualities.items():
            problems = [
                *quality["reasons"],
                *length_reasons(quality["seconds"], seconds),
                *rate_reasons(quality["sample_rate"], rates, normals.frontend),
            ]
            if problems:
                reasons[row] = "; ".join(problems)
    return reasons


def find_copies(normals: Normals, known: MachineModel | None = None) -> dict[int, str]:
    """Clips with the bytes or vectors of an earlier one, or of a model's, and the name of that."""
    first: dict[bytes | str, str] = {}
    found: dict[int, str] = {}
    banks = [(normals.embeddings, normals.sha256s, normals.names)]
    if known is not None:
        banks.insert(0, (known.embeddings, known.clip_sha256, known.clip_names))
    for vectors, hashes, names in banks:
        found.clear()
        for row, vector in enumerate(equal_views(vectors, normals.bands)):
            keys = [vector.tobytes(), *filter(None, hashes[row : row + 1])]
            earlier = next((first[key] for key in keys if key in first), None)
            if earlier is not None:
                found[row] = earlier
            for key in keys:
                first.setdefault(key, names[row])
    return found


def oddness(X: Floats, domains: Sequence[str], bands: Bands = 1) -> Float64s:
    """How far each normal is from the others, where 1 is what two of its domain usually are.

    The distance to the second nearest normal of any domain, over the median distance between two
    normals of its domain (chords between unit vectors); the geometric mean over views. It is 0 in
    domains with fewer than `FEWEST` normals.
    """
    views = bands.split(X) if isinstance(bands, Views) else [X]
    squares = np.array([_times_farther(unit_rows(v), domains, cosine_distances) for v in views])
    return np.exp(0.5 * np.log(np.maximum(squares, _LEAST)).mean(axis=0)) * (squares[0] > 0)


def _times_farther(
    rows: Floats, domains: Sequence[str], distances: Callable[[Floats, Floats], Floats]
) -> Float64s:
    """The distance to the second nearest row over the median within the domain; 0 for a few."""
    codes = encode_domains(domains, len(rows))[1]
    second, near = np.empty(len(rows)), min(1, len(rows) - 1)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        found = distances(block, rows)
        found[np.arange(len(block)), start + np.arange(len(block))] = np.inf
        second[start : start + len(block)] = np.partition(found, near, axis=1)[:, near]
    times = np.zeros(len(rows))
    for code in range(codes.max() + 1):
        mine = np.flatnonzero(codes == code)
        some = rows[mine[:: -(-len(mine) // _SAMPLE)]]
        if len(mine) >= FEWEST:
            usual = float(np.median(distances(some, some)[np.triu_indices(len(some), 1)]))
            times[mine] = np.maximum(second[mine] / usual, _LEAST) if usual > 0 else 1.0
    return times


def require_few(normals: Normals, suspicious: Mapping[int, str]) -> None:
    """Raise `DataError` where more than a third of the normals of a domain are suspicious."""
    sizes = Counter(normals.domains)
    for domain, count in Counter(normals.domains[row] for row in suspicious).items():
        if count > MOST * sizes[domain]:
            alike: dict[str, list[str]] = {}
            for row, reason in suspicious.items():
                if normals.domains[row] == domain:
                    alike.setdefault(reason, []).append(normals.names[row])
            listed = [f"{name_list(names)} ({reason})" for reason, names in alike.items()]
            raise DataError(
                f"{count} of {quantity(sizes[domain], 'normal')} of {domain} "
                f"{'is' if count == 1 else 'are'} suspicious, more than a third: "
                f"{name_list(listed, _LISTED)}. Listen to them, and record or choose other "
                "normals. If the machine really sounds like this, pass --keep-suspicious."
            )


def require_hearing(model: MachineModel) -> None:
    """Raise `DataError` where nothing far from a domain's normals is anomalous to the model.

    Normals are moved (`moved_normals`) by 4, 16 and 64 times the usual distance between nearest
    normals. Those that end up that far from all normals are taken for faults.
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
                f"The model finds nothing anomalous in {name}, not even {int(far.sum())} vectors "
                f"{_MOVED[0]:g} to {_MOVED[-1]:g} times as far from the normals as these are from "
                f"each other. {_DEAF if scorers_of(model.config) else _TOO_FEW}"
            )


@dataclass(frozen=True)
class NormalRow:
    """A normal of a model among the others.

    ``row`` is its place in the model, ``session`` "" where it is not known. ``score`` is that of
    a clip that is new to the model, with its session or likely siblings hidden; ``p_value`` the
    share of its domain's normals that score as high. ``remark`` is a reason for suspicion or "".
    """

    row: int
    name: str
    domain: str
    session: str
    nearest_distance: float
    score: float
    p_value: float
    remark: str


def list_normals(model: MachineModel) -> list[NormalRow]:
    """The normals of a model, the most suspicious first.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.gate import list_normals
    >>> from daco.detector.model import MachineModel
    >>> X = np.random.default_rng(0).normal(size=(20, 16)) + 3
    >>> X[5] *= -1
    >>> first = list_normals(MachineModel.fit(X, machine="press", config="raw-k1"))[0]
    >>> first.name, first.p_value, first.remark.partition(":")[0]
    ('5', 0.05, 'unlike')
    """
    labels = tuple(model.domains[code] for code in model.clip_domains)
    hashes, sessions = model.clip_sha256, model.sessions or ("",) * len(model)
    normals = Normals(
        model.machine, model.embeddings, labels, model.clip_names, None, {}, model.bands, hashes
    )
    remarks = {model.clip_names[row]: text for row, text in suspicious_normals(normals).items()}
    if isinstance(kept := model.provenance.get("kept"), dict):
        remarks |= kept
    siblings = likely_siblings(model.bank)
    hidden = sessions_that_count(model.bank, model.sessions)
    scores = scores_of_normals(model.bank, model.config, siblings, hidden)
    codes = model.clip_domains
    own = [np.sort(scores[codes == code]) for code in range(len(model.domains))]
    p_values = [
        (len(own[code]) - int(np.searchsorted(own[code], score))) / len(own[code])
        for code, score in zip(codes, scores, strict=True)
    ]
    nearest = model.bank.leave_one_out(RAW_CONFIG)[:, 0]
    numbers = zip(nearest.tolist(), scores.tolist(), p_values, strict=True)
    texts = zip(model.clip_names, labels, sessions, strict=True)
    listed = [
        NormalRow(row, *text, *figures, str(remarks.get(text[0], "")))
        for row, (text, figures) in enumerate(zip(texts, numbers, strict=True))
    ]
    return sorted(listed, key=lambda each: (not each.remark, each.p_value, -each.nearest_distance))
