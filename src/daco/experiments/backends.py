"""Detectors that the paper compares nearest neighbours with: Mahalanobis distance, mixture."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.validation import as_embeddings, encode_domains


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
