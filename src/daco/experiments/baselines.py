"""Other scorers on the same embeddings: what a study compares the method with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.experiments.inputs import SOURCE
from daco.validation import Float64s


def selective_mahalanobis(X: NDArray[Any], domains: NDArray[Any], X_test: NDArray[Any]) -> Float64s:
    """Smallest squared Mahalanobis distance to a domain's mean, all with the source's covariance.

    The covariance is Ledoit and Wolf's; ten target clips support none of their own.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh
    from sklearn.covariance import LedoitWolf

    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    covariance = LedoitWolf(store_precision=False).fit(X[domains == SOURCE]).covariance_
    names = np.unique(domains)
    centred = [X_test - X[domains == domain].mean(axis=0) for domain in names]
    vectors = np.concatenate(centred)
    try:  # five times as fast as an inverse
        solved = cho_solve(cho_factor(covariance), vectors.T).T
    except LinAlgError:  # shrunk by nothing: clips that are all equal, or span too little
        solved = vectors @ pinvh(covariance)
    squared = np.einsum("nd,nd->n", solved, vectors).reshape(len(names), -1)
    return np.asarray(squared.min(axis=0))


def gaussian_mixture(X: NDArray[Any], X_test: NDArray[Any]) -> Float64s:
    """Negative log-likelihood under a diagonal mixture of two Gaussians of all normals."""
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(2, covariance_type="diag", reg_covar=1e-4, random_state=0)
    return np.asarray(-mixture.fit(X.astype(np.float64)).score_samples(X_test.astype(np.float64)))
