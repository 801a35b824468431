"""Ranges of the normals' levels: whether the machine is on and the recording can be judged.

They do not change the score. A clip outside them is neither normal nor anomalous; its state is the
reason, for instance a stopped machine or a moved microphone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daco.backbones.levels import QUANTITIES
from daco.embedding.provenance import Frontend

if TYPE_CHECKING:
    from daco.embedding.normals import Normals

NORMAL, ANOMALOUS = "normal", "anomalous"
OFF, OUT_OF_RANGE, RECORDER_FAULT = "off", "out of range", "recorder fault"
"""States of a recording that replace the decision of the score."""

FAULTY_SOUND = ("silent", "clipped", "short", "long", "rate")
"""Codes of the reasons that are a recorder fault."""

MARGIN_DB = 6.0
"""Added to the normals' range of every level: sessions differ by so much."""

MARGIN_DUTY = 30.0
DUTY, FLATNESS = QUANTITIES.index("duty"), QUANTITIES.index("flatness")
_SILENCE = -140.0  # dB
_ALONE_DB, _ENOUGH = 12.0, 10


def learn_ranges(levels: ArrayLike, sample_rates: Iterable[int] = ()) -> dict[str, Any]:
    """Learn the ranges of the levels of normals, as plain JSON.

    The levels (N, Q) are those of :func:`daco.backbones.levels.sound_levels`. A level may lie 6 dB
    outside the normals', plus their standard deviation (by a factor ``1 + 5 / n`` larger for n
    clips); the duty 30 % below them; the flatness half as far from that of white noise as the
    flattest of them. Of ten clips or more, a single one whose level is more than 12 dB below or
    above all others does not count.

    >>> levels = np.full((20, 11), -40.0)
    >>> levels[:, 0] = np.linspace(-41, -39, 20)
    >>> learn_ranges(levels)["limits"]["level"]
    [-47.8, -32.2]
    """
    values = np.asarray(levels, np.float64)
    count, values = len(values), values[np.argsort(values[:, 0], kind="stable")]
    if count >= _ENOUGH:
        gaps = np.diff(values[:, 0]) > _ALONE_DB
        values = values[int(gaps[0]) : count - int(gaps[-1])]
    margin = MARGIN_DB + values.std(axis=0) * (1 + 5 / len(values))
    low, high = values.min(axis=0) - margin, values.max(axis=0) + margin
    low[DUTY], high[DUTY] = values[:, DUTY].min() - MARGIN_DUTY, 100
    low[FLATNESS], high[FLATNESS] = _SILENCE, values[:, FLATNESS].max() / 2
    pairs = np.stack([low, high], axis=1).round(1).tolist()
    limits = dict(zip(QUANTITIES, pairs, strict=True))
    return {"clips": count, "sample_rates": sorted(set(sample_rates)), "limits": limits}


def ranges_of(normals: Normals) -> dict[str, Any] | None:
    """The ranges of the levels of a machine's normals, or None if the levels are unknown."""
    rates = {quality["sample_rate"] for quality in normals.qualities if quality is not None}
    return None if normals.levels is None else learn_ranges(normals.levels, rates)


def widen_ranges(
    ranges: Mapping[str, Any] | None, more: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Ranges that hold what each of two do; None where one of them is not known."""
    if ranges is None or more is None:
        return None
    limits = {
        name: [min(low, more["limits"][name][0]), max(high, more["limits"][name][1])]
        for name, (low, high) in ranges["limits"].items()
    }
    rates = sorted({*ranges["sample_rates"], *more["sample_rates"]})
    return {"clips": ranges["clips"] + more["clips"], "sample_rates": rates, "limits": limits}


class Guard(NamedTuple):
    """The state of a clip outside the ranges, and a reason with the figures."""

    state: str
    reason: str


def check_levels(
    ranges: Mapping[str, Any] | None, levels: ArrayLike | None, count: int
) -> list[Guard | None]:
    """For each of `count` clips None, or why it cannot be judged.

    Without the ranges of a model or levels (count, Q) all clips can be judged.

    >>> normal = np.array([*[-40.0] * 9, 100, -5])
    >>> ranges = learn_ranges(np.stack([normal] * 20))
    >>> quiet = normal - [*[20.0] * 9, 0, 0]
    >>> [guard and guard.state for guard in check_levels(ranges, [normal, quiet], 2)]
    [None, 'off']
    """
    if ranges is None or levels is None:
        return [None] * count
    low, high = np.array([ranges["limits"][name] for name in QUANTITIES]).T
    guards: list[Guard | None] = []
    for row in np.asarray(levels, np.float64):
        excess = np.maximum(low - row, row - high)
        outside = [at for at in np.argsort(-excess, kind="stable").tolist() if excess[at] > 0]
        if not outside:
            guards.append(None)
            continue
        is_off = row[0] < low[0] and (row[:DUTY] <= high[:DUTY]).all()
        at = 0 if is_off else outside[0]
        usual = f"{low[at]:g} to {high[at]:g} {'%' if at == DUTY else 'dB'}"
        figures = f"{QUANTITIES[at]} {row[at]:.1f}, the range of the normals is {usual}"
        others = ", ".join(QUANTITIES[other] for other in outside[1:])
        if is_off:
            guards.append(Guard(OFF, f"off: {figures}; no band is louder than usual"))
        else:
            also = f"; also {others}" if others else ""
            guards.append(Guard(OUT_OF_RANGE, f"range: {figures}{also}"))
    return guards


def rate_reasons(sample_rate: int, usual: Sequence[int], frontend: Frontend | None) -> list[str]:
    """``rate``, if a recording has another bandwidth than `usual`, the rates of the normals."""
    highest = max((view.sample_rate for view in frontend.views), default=0) if frontend else 0
    limit = highest or max(sample_rate, *usual, 0)
    if not usual or min(sample_rate, limit) in {min(rate, limit) for rate in usual}:
        return []
    rates = " and ".join(f"{rate} Hz" for rate in usual)
    return [f"rate: {sample_rate} Hz, the normals have {rates}"]
