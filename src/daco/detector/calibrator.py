"""DomainCalibrator: the paper's calibration and daco's p-values for the scores of any system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from daco.data.views import join_views
from daco.detector.decision import NEW, ReferenceScores
from daco.errors import InputError
from daco.method.bank import Clips, Domains, NormalBank
from daco.method.calibration import CalibratedScores, Support
from daco.method.config import RAW_CONFIG, ScoreConfig
from daco.method.domains import hard_weights
from daco.validation import Float64s, Floats, encode_domains, finite_array

_ROUNDING = 0.01  # weights in files have few digits


class DomainCalibrator(BaseEstimator):  # type: ignore[misc]
    """Make the scores of any system comparable between domains; higher means more anomalous.

    Parameters
    ----------
    m : float, default=0
        Prior strength: the weight of the map of all domains, in clips.
    assignment : {"soft", "hard"}
        Whether a clip is mapped by all domains, by weight, or by the one with the largest weight.

    Attributes
    ----------
    domains_ : tuple
        The sorted domains, in the order of the columns of weights.
    reference_ : ReferenceScores
        The scores of the normals.

    Examples
    --------
    >>> import daco, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> normals = np.concatenate([rng.normal(0, 1, 90), rng.normal(5, 1, 10)])
    >>> domains = ["source"] * 90 + ["target"] * 10
    >>> calibrator = daco.DomainCalibrator().fit(normals, domains)
    >>> calibrator.transform([3.0, 4.0], weights=[[1, 0], [0, 1]]).round(2)
    array([0.99, 0.23])
    >>> calibrator.p_values([3.0, 4.0], weights=[[1, 0], [0, 1]]).round(3)
    array([0.001, 0.818])
    """

    def __init__(self, m: float = 0, assignment: str = "soft") -> None:
        self.m = m
        self.assignment = assignment

    def fit(
        self, scores: ArrayLike, domains: Domains | None = None, *, embeddings: Clips | None = None
    ) -> Self:
        """Store the scores of normal clips on which the system was not trained.

        Parameters
        ----------
        scores : (N,)
        domains : N labels, optional
            None for one domain.
        embeddings : (N, D), or {view: (N, D)}, optional
            Of the normals, from any network, for weights by embeddings.
        """
        config = ScoreConfig("ext", label="scores", assignment=self.assignment, m=self.m)
        if self.assignment == "oracle":
            raise InputError("The 'assignment' parameter must be 'soft' or 'hard'. Got 'oracle'.")
        values = finite_array(scores, "scores", 1)
        names, codes = encode_domains(domains, len(values), "domains")
        bank = None
        if embeddings is not None:
            rows, views = join_views(embeddings)
            _require_as_many(values, rows)
            bank = NormalBank(rows, domains, views=views)
        order = np.argsort(codes, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.intp)
        kinds = dict.fromkeys(names, NEW)
        self.reference_ = ReferenceScores(values, codes.astype(np.int32), names, kinds=kinds)
        self.domains_ = names
        self._config, self._bank = config, bank
        self._support = Support(values[order][None], starts)
        return self

    def transform(
        self, scores: ArrayLike, *, weights: Any = None, embeddings: Clips | None = None
    ) -> Float64s:
        """Map scores of clips to quantiles of the normals, (n,).

        Parameters
        ----------
        scores : (n,)
        weights : (n, G), optional
            How strongly each clip belongs to each of ``domains_``; rows sum to 1. One domain
            needs none.
        embeddings : (n, D), or {view: (n, D)}, optional
            Of the clips, from which the paper's weights are computed instead.
        """
        values, shares = self._inputs(scores, weights, embeddings, NormalBank.domain_weights)
        if self.assignment == "hard":
            shares = hard_weights(-shares.T).T
        calibrated = CalibratedScores(values[None], self._support, signed=True)
        quantiles: Float64s = calibrated.calibrate(self._config, shares.T[None])[0]
        return quantiles

    def p_values(
        self, scores: ArrayLike, *, weights: Any = None, embeddings: Clips | None = None
    ) -> Float64s:
        """Compute weighted conformal p-values of clips, (n,); the arguments are as above.

        They are those of :class:`daco.DACo`; embeddings give its domain weights.
        """
        values, shares = self._inputs(scores, weights, embeddings, _decision_weights)
        return self.reference_.p_values(values, shares)

    def _inputs(
        self,
        scores: ArrayLike,
        weights: Any,
        embeddings: Clips | None,
        weights_of: Callable[[NormalBank, Clips], Float64s],
    ) -> tuple[Float64s, Float64s]:
        """Scores (n,) and weights (n, G) of clips, given or by their embeddings."""
        check_is_fitted(self, "reference_")
        values = finite_array(scores, "scores", 1)
        if embeddings is None:
            return values, self._given(weights, len(values))
        if self._bank is None:
            raise InputError("Pass the embeddings of the normals to fit as well.")
        shares = weights_of(self._bank, embeddings)
        _require_as_many(values, shares)
        return values, shares

    def _given(self, given: Any, n_clips: int) -> Float64s:
        """Checked weights (n, G); those of one domain need not be given."""
        if set(getattr(given, "columns", ())) == set(self.domains_):
            given = given[list(self.domains_)]  # a DataFrame's columns have names
        if given is None and len(self.domains_) == 1:
            return np.ones((n_clips, 1))
        columns = f"with a column for each of {', '.join(map(str, self.domains_))}"
        if given is None:
            raise InputError(f"Give domain weights {columns}, or embeddings of the clips.")
        weights = finite_array(given, "weights", 2)
        shares = (weights >= 0).all() and (abs(weights.sum(axis=1) - 1) <= _ROUNDING).all()
        if weights.shape != (n_clips, len(self.domains_)) or not shares:
            raise InputError(f"Weights of {n_clips} clips must be shares that sum to 1, {columns}.")
        return weights


def _decision_weights(bank: NormalBank, embeddings: Clips) -> Float64s:
    return bank.examine(embeddings, RAW_CONFIG).weights


def _require_as_many(scores: Float64s, embeddings: Floats) -> None:
    if len(scores) != len(embeddings):
        raise InputError(f"There are {len(scores)} scores and {len(embeddings)} embeddings.")
