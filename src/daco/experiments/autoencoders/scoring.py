"""Scores of a clip from the residual of its context vectors: squared error and two distances.

A residual is (vectors, 640), input less reconstruction; read as rows of 128 mel bands, five per
vector. Both distances are Mahalanobis distances of such rows, with one covariance per domain, and
the smallest over the domains counts.

The published code averages all entries of ``E P E'``, E the rows and P the inverse covariance. That
is ``ebar' P ebar`` of the mean row, in which residuals of opposite signs cancel. The textbook
distance averages the diagonal alone. They are two detectors with two names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.experiments.autoencoders.features import MELS

SIMPLE, SELECTIVE, BY_ROW = "ae-mse", "ae-maha", "ae-maha-row"
SYSTEMS = (SIMPLE, SELECTIVE, BY_ROW)
"""Mean squared error; the published distance; the textbook one."""

_SMALLEST = 1e-12  # share of the largest eigenvalue; below it float32 residuals are rounding

Residual = NDArray[np.float32]
Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Covariance:
    """A domain's covariance of residual rows, and how many vectors it rests on."""

    matrix: Matrix
    vectors: int


def covariances(
    batches: Iterable[tuple[Residual, NDArray[np.integer]]], names: Sequence[str]
) -> dict[str, Covariance]:
    """Covariance of each domain's residual rows, as published.

    Rows are centred on the mean of their domain in their batch, not in all batches, and the sum
    is divided by the number of *vectors* less one: about five times a covariance. The factor is
    one for all domains; the centring takes more from a domain with few vectors in a batch.

    Parameters
    ----------
    batches : iterable of (residual, codes)
        The domain of each vector as an index of `names`.
    names : sequence of str

    Returns
    -------
    dict
        By domain; one without two vectors is left out.
    """
    sums = np.zeros((len(names), MELS, MELS))
    counts = np.zeros(len(names), dtype=np.int64)
    for residual, codes in batches:
        for code in np.unique(codes):
            mine = residual[codes == code]
            rows = mine.reshape(-1, MELS).astype(np.float64)
            rows -= rows.mean(axis=0)
            sums[code] += rows.T @ rows
            counts[code] += len(mine)
    return {
        name: Covariance(total / (count - 1), int(count))
        for name, total, count in zip(names, sums, counts, strict=True)
        if count > 1
    }


def precisions(found: Mapping[str, Covariance]) -> dict[str, Matrix]:
    """Inverses of the covariances that have one; a domain without is left out.

    The published code takes the source's covariance for a target domain without clips, which is
    the same as leaving it out of the smallest distance.

    Raises
    ------
    NotEnoughClipsError
        No domain has an inverse.
    """
    inverses: dict[str, Matrix] = {}
    for name, covariance in found.items():
        values = np.linalg.eigvalsh(covariance.matrix)
        if values[0] > _SMALLEST * values[-1]:
            inverses[name] = np.asarray(np.linalg.inv(covariance.matrix), np.float64)
    if not inverses:
        sizes = ", ".join(f"{each.vectors} of {name!r}" for name, each in found.items()) or "none"
        raise NotEnoughClipsError(
            f"The covariance of the {MELS} mel bands' residuals cannot be inverted in any domain "
            f"(vectors: {sizes}). Add training clips, or longer ones, of the full bandwidth."
        )
    return inverses


def clip_scores(residual: Residual, inverses: Mapping[str, Matrix]) -> dict[str, float]:
    """The three scores of one clip; higher is more anomalous.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.experiments.autoencoders.scoring import clip_scores
    >>> residual = np.ones((3, 640), np.float32)
    >>> residual[::2] = -1
    >>> scores = clip_scores(residual, {"source": np.eye(128), "target": 9 * np.eye(128)})
    >>> {name: round(score, 3) for name, score in scores.items()}
    {'ae-mse': 1.0, 'ae-maha': 14.222, 'ae-maha-row': 128.0}
    """
    if not inverses:
        raise InputError("A Mahalanobis distance needs the inverse covariance of one domain.")
    rows = residual.reshape(-1, MELS).astype(np.float64)
    mean = rows.mean(axis=0)
    moment = rows.T @ rows / len(rows)
    return {
        SIMPLE: float(np.trace(moment) / MELS),
        SELECTIVE: min(float(mean @ inverse @ mean) for inverse in inverses.values()),
        # The mean of e' P e over all rows e is the sum of the entries of P times E'E / rows.
        BY_ROW: min(float((inverse * moment).sum()) for inverse in inverses.values()),
    }
