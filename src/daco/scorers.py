"""Base anomaly scores: k-NN distance, local density normalisation, Mahalanobis, mixture.

Higher is more anomalous. A base is ``(scorer, neighbours)``, as in ``ScoreConfig.base``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.config import ScoreConfig
from daco.distances import PairwiseDistances, unit_rows
from daco.errors import ConfigError, InputError, NotEnoughClipsError
from daco.neighbours import (
    DENSITY_FLOOR,
    DenseMinima,
    NeighbourLists,
    dense_minima,
    query_minima,
)
from daco.validation import Floats, as_embeddings, encode_domains

Base = tuple[str, int]
BaseScores = dict[Base, Floats]


def reach_of(bases: Sequence[Base]) -> int:
    """The largest number of neighbours the bases look at."""
    return max(neighbours for _, neighbours in bases)


def scores_within(
    distances: PairwiseDistances,
    lists: NeighbourLists,
    domain_starts: NDArray[np.intp],
    bases: Sequence[Base],
    members: NDArray[np.bool_] | None = None,
    with_domains: bool = True,
) -> tuple[BaseScores, Floats | None]:
    """Score every clip of the bank against subsets of the bank, itself excluded.

    Parameters
    ----------
    members : (S, N) bool or None
        The subsets; None is the whole bank (S = 1), which gives leave-one-out scores.
    with_domains : bool
        Also find the distance to the nearest member of each domain.

    Returns
    -------
    scores : {base: (S, N)}
    domain_distance : (S, G, N), or None when it was not asked for
    """
    orders = sorted({neighbours for _, neighbours in bases})
    if members is None:
        members = np.ones((1, len(distances)), np.bool_)
        sums = lists.sums(orders)[None]
    else:
        farthest = max((k for scorer, k in bases if scorer == "knn"), default=0)
        outside = sum(order <= farthest for order in orders)
        sums = np.stack(
            [lists.subset_sums(distances, member, orders, outside) for member in members]
        )
    sum_of = {order: sums[:, column] for column, order in enumerate(orders)}
    scores: BaseScores = {b: sum_of[b[1]] / b[1] for b in bases if b[0] == "knn"}
    ratio, difference = _normalised(bases)
    if not (ratio or difference or with_domains):
        return scores, None
    found = dense_minima(
        distances,
        members,
        domain_starts,
        _densities(ratio, sum_of, sums[:, 0]),
        _densities(difference, sum_of, sums[:, 0]),
    )
    return scores | _named(ratio, difference, found), found.domain


def scores_against(
    query_distances: Floats,
    lists: NeighbourLists | None,
    domain_starts: NDArray[np.intp],
    bases: Sequence[Base],
) -> tuple[BaseScores, Floats]:
    """Score new clips, given their (N, n) distances, against the whole bank.

    Returns the scores {base: (1, n)} and the distance to each domain, (1, G, n).
    """
    scores: BaseScores = {}
    nearest = [neighbours for scorer, neighbours in bases if scorer == "knn"]
    if nearest:
        by_clip = query_distances.T.copy()  # partitioned in place, so never a view
        by_clip.partition(max(nearest) - 1, axis=1)
        sums = np.cumsum(np.sort(by_clip[:, : max(nearest)], axis=1), axis=1)
        scores.update({("knn", k): sums[None, :, k - 1] / k for k in nearest})
    ratio, difference = _normalised(bases)
    sum_of: dict[int, Floats] = {}
    if ratio or difference:
        assert lists is not None
        orders = sorted({neighbours for _, neighbours in ratio + difference})
        sum_of = dict(zip(orders, lists.sums(orders)[:, None], strict=True))
    like = query_distances[None, :, 0]
    found = query_minima(
        query_distances,
        domain_starts,
        _densities(ratio, sum_of, like),
        _densities(difference, sum_of, like),
    )
    return scores | _named(ratio, difference, found), found.domain


def _normalised(bases: Sequence[Base]) -> tuple[list[Base], list[Base]]:
    """The bases that divide by a density, and those that subtract one."""
    ratio = [base for base in bases if base[0] == "ldn-ratio"]
    return ratio, [base for base in bases if base[0] == "ldn-diff"]


def _densities(bases: list[Base], sum_of: dict[int, Floats], like: Floats) -> Floats:
    """(S, len(bases), N) densities, of the shape (S, N) and dtype of ``like``."""
    stacked = np.empty((like.shape[0], len(bases), like.shape[1]), like.dtype)
    for column, (_, neighbours) in enumerate(bases):
        np.maximum(sum_of[neighbours], DENSITY_FLOOR, out=stacked[:, column])
    return stacked


def _named(ratio: list[Base], difference: list[Base], found: DenseMinima) -> BaseScores:
    # Densities here are sums of d; the published ones are sums of d/2, as is their distance.
    # That cancels in the ratio and halves the difference.
    named: BaseScores = {base: found.ratio[:, i] for i, base in enumerate(ratio)}
    return named | {base: found.difference[:, i] / 2 for i, base in enumerate(difference)}


def leave_one_out_scores(X: ArrayLike, config: str | ScoreConfig = "raw-k1") -> Floats:
    """Score of each clip against all the others, with an uncalibrated configuration.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.scorers import leave_one_out_scores
    >>> leave_one_out_scores(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]), "raw-k1")
    array([1., 0., 0.])
    """
    config = ScoreConfig.parse(config)
    if config.calibration is not None:
        raise ConfigError(
            f"leave_one_out_scores takes a raw or ldn configuration, not {config.name!r}. "
            "Use NormalBank.leave_one_out for calibrated ones."
        )
    unit = unit_rows(as_embeddings(X))
    if len(unit) <= config.neighbours:
        raise NotEnoughClipsError(
            f"{config.name!r} needs {config.neighbours + 1} clips: each has {config.neighbours} "
            f"neighbours. X has {len(unit)}."
        )
    distances = PairwiseDistances(unit)
    lists = NeighbourLists(distances, config.neighbours)
    starts = np.array([0, len(unit)])
    return scores_within(distances, lists, starts, [config.base], with_domains=False)[0][
        config.base
    ][0]


def selective_mahalanobis(
    X_train: ArrayLike,
    domains: Sequence[Hashable] | NDArray[Any] | None,
    X_test: ArrayLike,
    covariance_domain: Hashable | None = None,
) -> NDArray[np.float64]:
    """Smallest squared Mahalanobis distance to a domain's mean.

    One Ledoit-Wolf covariance, of the domain ``covariance_domain`` (default: the one with
    most clips, the source in the paper), serves all domains: ten clips support none.
    """
    from sklearn.covariance import LedoitWolf

    train = as_embeddings(X_train, "X_train").astype(np.float64)
    test = as_embeddings(X_test, "X_test", dim=train.shape[1]).astype(np.float64)
    names, codes = encode_domains(domains, len(train))
    if covariance_domain is None:
        chosen = int(np.bincount(codes).argmax())
    elif covariance_domain in names:
        chosen = names.index(covariance_domain)
    else:
        raise InputError(
            f"covariance_domain is {covariance_domain!r}; the domains are "
            f"{', '.join(map(repr, names))}."
        )
    if np.count_nonzero(codes == chosen) < 2:
        raise NotEnoughClipsError(
            f"A covariance needs 2 clips; domain {names[chosen]!r} has 1. Record more of it."
        )
    model = LedoitWolf(store_precision=False).fit(train[codes == chosen])
    centred = np.stack([test - train[codes == g].mean(axis=0) for g in range(len(names))])
    squared = np.einsum("gnd,gnd->gn", _solved(model.covariance_, centred), centred)
    return np.asarray(squared.min(axis=0))


def _solved(covariance: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Vectors times the inverse covariance; a Cholesky factor is five times an inverse's speed."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh

    flat = vectors.reshape(-1, vectors.shape[-1])
    try:
        solved = cho_solve(cho_factor(covariance), flat.T).T
    except LinAlgError:  # shrunk by nothing at all: clips that are all equal, or span too little
        solved = flat @ pinvh(covariance)
    return np.asarray(solved).reshape(vectors.shape)


def gaussian_mixture(
    X_train: ArrayLike, X_test: ArrayLike, n_components: int = 2, seed: int = 0
) -> NDArray[np.float64]:
    """Negative log-likelihood under a diagonal Gaussian mixture of all normals."""
    from sklearn.mixture import GaussianMixture

    train = as_embeddings(X_train, "X_train").astype(np.float64)
    test = as_embeddings(X_test, "X_test", dim=train.shape[1]).astype(np.float64)
    if len(train) < n_components:
        raise NotEnoughClipsError(
            f"A mixture of {n_components} components needs as many clips. X_train has {len(train)}."
        )
    mixture = GaussianMixture(
        n_components, covariance_type="diag", reg_covar=1e-4, random_state=seed
    )
    return np.asarray(-mixture.fit(train).score_samples(test))
