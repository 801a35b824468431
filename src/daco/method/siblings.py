"""Likely siblings: clips of one recording, which a new clip does not have in the bank.

The leave-one-out score of a normal is too low where its siblings stay in the bank. To score normals
as if they were new, each is scored with its recording session hidden or, where that is not known,
with the normals that are likely of the same recording.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError
from daco.validation import Floats, Indices, is_whole

AUTO = "auto"

CHANCE = 0.3
"""A sibling is so near that only this share of independent clips would have such a neighbour."""

LEAST_SHARE, LARGEST_SHARE = 0.01, 0.1
"""The shares of a domain that are taken for siblings of a clip: at least the first where distances
grow as they do within recordings, at most the second."""

INDEPENDENT, RECORDINGS = 1.5, 1.75
"""The `_growth` up to which clips are independent, and from which on they are of recordings. It is
1.0 to 1.5 for independent Gaussian clips, and 1.7 to 4.2 for real machines."""


def require_siblings(siblings: str | int) -> None:
    """Raise `InputError` unless `siblings` is ``"auto"`` or a number."""
    if siblings != AUTO and not is_whole(siblings):
        raise InputError(
            f"The 'siblings' parameter must be 'auto' or an int >= 0. Got {siblings!r} instead."
        )


def hide_siblings(
    distances: Floats,
    clips: Indices,
    starts: Indices,
    siblings: str | int = AUTO,
    sessions: NDArray[Any] | None = None,
) -> Indices:
    """Set distances of clips of a bank to infinity where the normal is hidden, in place.

    With ``"auto"``, hidden from a clip are the clips of its own domain that are nearer to it than
    chance explains, and at least 1 % of the domain where distances grow as they do within
    recordings; never more than a tenth. A number hides as many nearest ones. A clip of a known
    session has that session hidden instead.

    The distances (n, N) are those of clips (n,), rows of the bank grouped by domain, to all
    normals, infinite to itself; domain g is rows ``starts[g]:starts[g + 1]``. Sessions (N,) are
    ``""`` where they are not known. Returned is how many others were hidden from each clip, (n,).
    """
    require_siblings(siblings)
    before = np.isinf(distances).sum(axis=1)
    known = np.zeros(len(clips), np.bool_)
    if sessions is not None:
        known = sessions[clips] != ""
        distances[(sessions[clips, None] == sessions) & known[:, None]] = np.inf
    for start, stop in pairwise(starts):
        rows = np.flatnonzero((clips >= start) & (clips < stop) & ~known)
        most = int(LARGEST_SHARE * (stop - start))
        if siblings != AUTO:
            most = min(int(siblings), (stop - start) // 3)
        if not most or not rows.size:
            continue
        within = distances[rows, start:stop]
        columns = np.argpartition(within, most - 1, axis=1)[:, :most]
        nearest = np.take_along_axis(within, columns, axis=1)
        order = np.argsort(nearest, axis=1)
        columns = np.take_along_axis(columns, order, axis=1)
        nearest = np.take_along_axis(nearest, order, axis=1)
        hidden = np.ones(nearest.shape, np.bool_)
        if siblings == AUTO:
            likely = np.clip((_growth(within) - INDEPENDENT) / (RECORDINGS - INDEPENDENT), 0, 1)
            least = round(LEAST_SHARE * likely * (stop - start))
            hidden = nearest < _chance_distances(within)[:, None]
            hidden[:, :least] = True
        np.put_along_axis(within, columns, np.where(hidden, np.inf, nearest), axis=1)
        distances[rows, start:stop] = within
    return np.isinf(distances).sum(axis=1) - before


def _chance_distances(within: Floats) -> Floats:
    """The distance of each clip within which independent clips seldom have a neighbour, (n,).

    Cube roots of squared distances between independent clips are nearly normal (Wilson and
    Hilferty); the median and the 10 % quantile of a clip's distances give their scale.
    """
    from scipy.special import ndtri

    size = within.shape[1]
    tenth, middle = (size - 1) // 10, (size - 1) // 2
    ordered = np.partition(within, (tenth, middle), axis=1)
    low, median = np.cbrt(ordered[:, tenth]), np.cbrt(ordered[:, middle])
    at_low, at_median, at_chance = ndtri([(tenth + 1) / size, (middle + 1) / size, CHANCE / size])
    steps = (at_chance - at_median) / (at_low - at_median)
    return np.maximum(median + (low - median) * steps, 0) ** 3


def _growth(within: Floats) -> float:
    """How much faster distances grow among the nearest sqrt(n) clips than at the very first.

    Of independent clips ``k * mean(log(d[k + 1] / d[k]))``, with ``d[k]`` the distance to the k-th
    nearest, is nearly the same for every k. It rises where a clip's own recording ends.
    """
    size = within.shape[1]
    reach = int(min(size**0.5, size / 10))
    if reach < 4:
        return 1.0  # too few to tell
    nearest = np.sort(np.partition(within, reach + 3, axis=1)[:, : reach + 4], axis=1)
    steps = np.diff(np.log(np.maximum(nearest, 1e-12)), axis=1).mean(axis=0)
    growth = steps * np.arange(1, reach + 4)
    smooth = (growth[:-2] + growth[1:-1] + growth[2:]) / 3
    return float(smooth[1:reach].max() / max(float(smooth[0]), 1e-12))
