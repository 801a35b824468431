"""Checks of normals: which of them are suspicious, and whether a model detects anything.

One bad normal of ten can hide all faults, because it sets the largest score of its domain. Clips
that are silent, clipped, copies, of another rate or length, or unlike all others are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from daco.audio.quality import length_reasons
from daco.backbones.levels import CENTRES
from daco.data.views import Views
from daco.detector.model import MachineModel
from daco.detector.ranges import check_levels, rate_reasons
from daco.detector.reference import score_as_new
from daco.embedding.normals import Normals
from daco.errors import DataError
from daco.method.config import RAW_CONFIG, ScoreConfig
from daco.method.distances import cosine_distances, equal_views, unit_rows
from daco.method.viability import moved_normals
from daco.text import name_list, quantity
from daco.validation import Float64s, Floats, Indices

FAR = 2.5
"""How many times farther than usual the second nearest normal of a clip unlike the others is.
Good normals of two real machines reach 1.2; of ten that differ much, 1 in 2,000 exceeds it."""

FAR_IN_BANDS = 4.0
"""The same for the levels of its octave bands, which views ignore. Ten good normals of ten machines
reach 4.4 at most; a clip of another machine that sounds different reaches 5 and more."""

DOUBTFUL = 1.8
"""How many times farther than usual the octave bands of a normal are that a person should listen
to. Each of 50 fan clips among 43 bearing normals reaches it, and one or two of 43 good normals."""

DOUBTFUL_LISTED = 3

LEAST_USUAL = 3.0
"""Decibels that two normals usually differ by in their octave bands, at the least: about 1 dB in
each of the eight, which is hardly heard. Otherwise some clips of any steady hum are named."""

FEWEST = 8
"""Fewest normals of a domain among which one can be called unlike the others."""

MOST = 1 / 3
"""The largest share of a domain's normals that is left out without asking."""

_LEAST = 1e-2  # times, for copies
_SAMPLE = 512  # normals of a domain whose distances from each other are looked at
_BLOCK = 1024
_LISTED = 10
_BANDS = slice(1, 1 + len(CENTRES))  # of the sound levels
_STRENGTHS = (4.0, 16.0, 64.0)  # distances of faults, in usual distances between neighbours
_THAN_USUAL = "times farther from the others than they are from each other"

Distances = Callable[[Floats, Floats], Floats]


def suspicious_normals(normals: Normals, known: MachineModel | None = None) -> dict[int, str]:
    """Find normals of one machine that should not be used, with a reason for each row.

    A reason is ``silent``, ``clipped``, ``rate``, ``channels``, ``short``, ``long``, ``copy``,
    ``off``, ``range`` or ``unlike``, a colon and the details. Without qualities and levels, only
    embeddings are compared. Normals for a `known` model are compared with its normals as well,
    clips of its domains must be within its ranges, and copies are not searched.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.gate import suspicious_normals
    >>> from daco.embedding.normals import Normals
    >>> X = np.random.default_rng(0).normal(size=(10, 16)).astype(np.float32) + 3
    >>> X[3], X[7] = -X[3], X[1]
    >>> names = tuple(f"{row}.wav" for row in range(10))
    >>> suspicious_normals(Normals("fan", X, ("new",) * 10, names, None, {}))[7]
    'copy: of 1.wav'
    """
    reasons = _bad_recordings(normals, known)
    if known is None:
        reasons |= {row: f"copy: of {name}" for row, name in find_copies(normals).items()}
    else:
        for row, guard in enumerate(check_levels(known.ranges, normals.levels, len(normals))):
            if guard is not None and normals.domains[row] in known.domains:
                reasons.setdefault(row, guard.reason)
    good = [row for row in range(len(normals)) if row not in reasons]
    for row, times, in_bands in zip(good, *_farther(normals.take(good), known), strict=True):
        if times > FAR:
            reasons[row] = f"unlike: {times:.1f} {_THAN_USUAL}"
        elif in_bands > FAR_IN_BANDS:
            reasons[row] = f"unlike: in its octave bands {in_bands:.1f} {_THAN_USUAL}"
    return dict(sorted(reasons.items()))


def _bad_recordings(normals: Normals, known: MachineModel | None) -> dict[int, str]:
    """Problems of the sound; a rate or length that is not that of the domain, or of the model."""
    frontend = None if known is None else known.frontend
    rates = None if known is None or known.ranges is None else known.ranges["sample_rates"]
    given = {row: each for row, each in enumerate(normals.qualities) if each is not None}
    kinds = {row: (each["sample_rate"], each["channels"]) for row, each in given.items()}
    everywhere = Counter(kinds.values())
    reasons: dict[int, str] = {}
    for domain in {normals.domains[row] for row in given}:
        rows = [row for row in given if normals.domains[row] == domain]
        seconds = float(np.median([given[row]["seconds"] for row in rows]))
        seconds = (frontend and frontend.seconds) or seconds
        counts = Counter(kinds[row] for row in rows)
        usual = max(counts, key=lambda kind: (counts[kind], everywhere[kind], kind))
        for row in rows:
            rate, channels = kinds[row]
            problems = [*given[row]["reasons"], *length_reasons(given[row]["seconds"], seconds)]
            if rates is not None:
                problems += rate_reasons(rate, rates, normals.frontend)
            elif rate != usual[0]:
                problems.append(f"rate: {rate} Hz, the normals have {usual[0]} Hz")
            if rates is None and channels != usual[1]:
                problems.append(f"channels: {channels}, the normals have {usual[1]}")
            if problems:
                reasons[row] = "; ".join(problems)
    return reasons


def find_copies(normals: Normals, known: MachineModel | None = None) -> dict[int, str]:
    """Clips with the bytes or vectors of an earlier one, or of a model's, and the name of that."""
    first: dict[bytes | str, str] = {}
    if known is not None:
        for row, vector in enumerate(equal_views(known.embeddings, known.views)):
            for key in (vector.tobytes(), *known.clip_sha256[row : row + 1]):
                first[key] = known.clip_names[row]
    copies: dict[int, str] = {}
    for row, vector in enumerate(equal_views(normals.embeddings, normals.views)):
        keys = [vector.tobytes(), *filter(None, normals.sha256s[row : row + 1])]
        earlier = [first[key] for key in keys if key in first]
        if earlier:
            copies[row] = earlier[0]
        for key in keys:
            first.setdefault(key, normals.names[row])
    return copies


def _farther(normals: Normals, known: MachineModel | None) -> tuple[Float64s, Float64s]:
    """How many times farther each normal is than usual, by its vector and by its octave bands."""
    X, labels, in_bands = normals.embeddings, list(normals.domains), np.zeros(len(normals))
    if not len(normals):
        return in_bands, in_bands
    if normals.levels is not None:
        bands = normals.levels[:, _BANDS]
        shapes = bands - bands.mean(axis=1, keepdims=True)
        in_bands = _times_farther(shapes, labels, cdist, LEAST_USUAL)
    if known is not None:
        X = np.concatenate([X, known.embeddings])
        labels += [known.domains[code] for code in known.clip_domains]
    return unlikeness(X, labels, normals.views)[: len(normals)], in_bands


def doubtful_normals(normals: Normals) -> dict[int, str]:
    """At most three normals to listen to, the most doubtful first.

    Another machine can be as near as another speed; its octave bands are farther than usual.
    """
    if normals.levels is None or not len(normals):
        return {}
    second, times = _second_nearest(normals.levels[:, _BANDS], cdist), np.zeros(len(normals))
    for members in _large_domains(normals.domains):
        times[members] = second[members] / max(float(np.median(second[members])), LEAST_USUAL)
    odd = [row for row in np.argsort(-times)[:DOUBTFUL_LISTED].tolist() if times[row] > DOUBTFUL]
    return {row: f"{times[row]:.1f} {_THAN_USUAL} by its octave bands" for row in odd}


def unlikeness(X: Floats, domains: Sequence[str], views: Views | None = None) -> Float64s:
    """How far each normal is from the others, where 1 is what two of its domain usually are.

    The distance to the second nearest normal of any domain, over the median distance between two
    normals of its domain (chords between unit vectors); the geometric mean over views. It is 0 in
    domains with fewer than `FEWEST` normals.
    """
    parts = [X] if views is None else views.split(X)
    squares = np.array(
        [_times_farther(unit_rows(part), domains, cosine_distances) for part in parts]
    )
    return np.exp(0.5 * np.log(np.maximum(squares, _LEAST)).mean(axis=0)) * (squares[0] > 0)


def _times_farther(
    rows: Floats, domains: Sequence[str], distances: Distances, least: float = 0.0
) -> Float64s:
    """The distance to the second nearest row over the median within the domain; 0 for a few.

    The median counts as `least` where it is smaller.
    """
    second, times = _second_nearest(rows, distances), np.zeros(len(rows))
    for members in _large_domains(domains):
        some = rows[members[:: -(-len(members) // _SAMPLE)]]
        between = distances(some, some)[np.triu_indices(len(some), 1)]
        usual = max(least, float(np.median(between)))
        times[members] = np.maximum(second[members] / usual, _LEAST) if usual > 0 else 1.0
    return times


def _large_domains(domains: Sequence[str]) -> Iterator[Indices]:
    """The rows of each domain in which a normal can be called unlike the others."""
    names = np.array(domains)
    for name in sorted(set(domains)):
        rows = np.flatnonzero(names == name)
        if len(rows) >= FEWEST:
            yield rows


def _second_nearest(rows: Floats, distances: Distances) -> Float64s:
    """The distance of each row to the second nearest of the others."""
    second, near = np.empty(len(rows)), min(1, len(rows) - 1)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        among = distances(block, rows)
        among[np.arange(len(block)), start + np.arange(len(block))] = np.inf
        second[start : start + len(block)] = np.partition(among, near, axis=1)[:, near]
    return second


def require_few(normals: Normals, suspicious: Mapping[int, str]) -> None:
    """Raise `DataError` where more than a third of the normals of a domain are suspicious."""
    sizes = Counter(normals.domains)
    for domain, count in Counter(normals.domains[row] for row in suspicious).items():
        if count <= MOST * sizes[domain]:
            continue
        alike: dict[str, list[str]] = {}
        for row, reason in suspicious.items():
            if normals.domains[row] == domain:
                alike.setdefault(reason, []).append(normals.names[row])
        listed = [f"{name_list(names)} ({reason})" for reason, names in alike.items()]
        raise DataError(
            f"{count} of {quantity(sizes[domain], 'normal')} of {domain} "
            f"{'is' if count == 1 else 'are'} suspicious, more than a third: "
            f"{name_list(listed, _LISTED)}. Listen to them, and record or choose other "
            "normals. If the machine really sounds like this, daco fit, update and calibrate take "
            "them with --keep-suspicious."
        )


def require_detection(model: MachineModel) -> None:
    """Raise `DataError` where nothing far from a domain's normals is anomalous to the model.

    Normals are moved (`moved_normals`) by 4, 16 and 64 times the usual distance between nearest
    normals. Those that end up that far from all normals are taken for faults.
    """
    labels = np.array(model.domains)[model.clip_domains]
    moved = moved_normals(
        model.embeddings, labels, views=model.views, strengths=_STRENGTHS, repeats=1
    )
    scored = model.score(moved.vectors)
    nearest = model.bank.leave_one_out(RAW_CONFIG)[:, 0]
    for name in model.domains:
        is_far = scored.distance > _STRENGTHS[0] * np.median(nearest[labels == name])
        is_far &= moved.domains[moved.origin] == name
        if is_far.any() and not scored.anomalous[is_far].any():
            remedy = "Some normals are unlike the others, or there are too few: record more."
            if ScoreConfig.parse(model.config).base.labels:
                remedy = "Its scorer ignores their direction: normalise vectors in it."
            raise DataError(
                f"The model finds nothing anomalous in {name}, not even {int(is_far.sum())} "
                f"vectors {_STRENGTHS[0]:g} to {_STRENGTHS[-1]:g} times as far from the normals as "
                f"these are from each other. {remedy}"
            )


@dataclass(frozen=True)
class NormalRow:
    """A normal of a model among the others.

    ``row`` is its place in the model, ``session`` "" where it is not known. ``score`` is that of
    a clip that is new to the model, with its session or likely siblings hidden; ``p_value`` the
    share of its domain's normals that score as high. ``warning`` is a reason for suspicion or "".
    """

    row: int
    name: str
    domain: str
    session: str
    nearest_distance: float
    score: float
    p_value: float
    warning: str


def list_normals(model: MachineModel) -> list[NormalRow]:
    """The normals of a model, the most suspicious first."""
    labels = tuple(model.domains[code] for code in model.clip_domains)
    clips = model.embeddings, labels, model.clip_names
    normals = Normals(model.machine, *clips, None, {}, model.views, model.clip_sha256)
    warnings = {model.clip_names[row]: text for row, text in suspicious_normals(normals).items()}
    kept = model.provenance.get("kept")
    if isinstance(kept, dict):
        warnings |= kept
    scores = score_as_new(model.bank, model.config, model.siblings, model.sessions).scores
    nearest = model.bank.leave_one_out(RAW_CONFIG)[:, 0]
    listed = []
    for row, (name, label) in enumerate(zip(model.clip_names, labels, strict=True)):
        others = scores[model.clip_domains == model.clip_domains[row]]
        session = model.sessions[row] if model.sessions else ""
        distance, score = float(nearest[row]), float(scores[row])
        p_value, warning = float((others >= score).mean()), str(warnings.get(name, ""))
        listed.append(NormalRow(row, name, label, session, distance, score, p_value, warning))
    return sorted(listed, key=lambda each: (not each.warning, each.p_value, -each.nearest_distance))
