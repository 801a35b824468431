"""DACo: a scikit-learn estimator on embeddings and domains.

``anomaly_score`` is high for anomalies, as everywhere in daco. Only scikit-learn's own
methods (``score_samples``, ``decision_function``, ``predict``) have the opposite sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from daco.data.views import is_by_view, join_views
from daco.detector.decision import (
    FALSE_ALARM_RATE,
    ROUNDING,
    ReferenceScores,
    is_anomalous,
    require_rate,
)
from daco.detector.reference import parse_sessions, reference_for, score_as_new
from daco.errors import ConfigError, InputError, warn
from daco.method.bank import Clips, Domains, NormalBank
from daco.method.config import DEFAULT_CONFIG, ScoreConfig
from daco.method.engine import ClipScores, refuse_oracle
from daco.method.external import with_scorer
from daco.method.siblings import AUTO
from daco.text import quantity
from daco.validation import Float64s, as_embeddings, match_domains

FEW = 10  # a domain with fewer normals gets a warning
_SMALLEST_P = 1e-300


class Detector(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """The methods that DACo and LabelFreeSearch share."""

    def _fitted(self) -> DACo:
        """The detector that judges."""
        raise NotImplementedError

    def anomaly_score(self, X: Clips) -> Float64s:
        """Compute the anomaly score of each clip, (n,); higher is more anomalous."""
        detector = self._fitted()
        return detector.bank_.score(self._embeddings(X), detector.config_)[:, 0]

    def domain_weights(self, X: Clips) -> Float64s:
        """Compute how strongly each clip belongs to each of ``domains_``, (n, G); rows sum to 1."""
        return self._examine(X).weights

    def p_values(self, X: Clips) -> Float64s:
        """Compute the p-value of each clip, (n,): about the share of normals that score as high.

        Below ``1 / (n + 1)``, with n reference scores, a p-value is extrapolated.
        """
        clips = self._examine(X)
        return self._fitted().reference_.p_values(clips.scores, clips.weights)

    def score_samples(self, X: Clips) -> Float64s:
        """Return the logarithm of the p-value, (n,): in scikit-learn, high scores mean normal."""
        return np.log(np.maximum(self.p_values(X), _SMALLEST_P))

    def decision_function(self, X: Clips) -> Float64s:
        """Return ``score_samples(X) - offset_``, (n,); negative is anomalous."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Clips) -> NDArray[np.int_]:
        """Return -1 for clips with a p-value of at most ``false_alarm_rate``, else +1, (n,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def fit_predict(
        self,
        X: Clips,
        y: object = None,
        *,
        domains: Domains | None = None,
        groups: Sequence[str] | None = None,
    ) -> NDArray[np.int_]:
        """Fit, then predict the clips of the bank by their reference scores.

        The p-value of a clip is the share of its domain's reference scores that are at least as
        high as its own.
        """
        self.fit(X, y, domains=domains, groups=groups)
        detector = self._fitted()
        scores, codes = detector._normals.scores, detector.bank_.clip_domains
        p_values = np.empty(len(scores))
        for code in range(len(self.domains_)):
            rows = codes == code
            ascending = np.sort(scores[rows])
            p_values[rows] = 1 - np.searchsorted(ascending, scores[rows]) / len(ascending)
        return np.where(is_anomalous(p_values, self.false_alarm_rate), -1, 1)

    @property
    def offset_(self) -> float:
        """The logarithm of the false-alarm rate: `decision_function` is `score_samples` less it."""
        require_rate(self.false_alarm_rate)  # may have changed since the fit
        return float(np.log(self.false_alarm_rate) + 2 * ROUNDING)

    @property
    def thresholds_(self) -> dict[Any, float]:
        """The anomaly score above which a clip of one domain alone is anomalous, by domain."""
        return self._fitted().reference_.domain_thresholds(self.false_alarm_rate)

    def _examine(self, X: Clips) -> ClipScores:
        detector = self._fitted()
        clips = detector.bank_.examine(self._embeddings(X), detector.config_)
        copies = int((clips.distance == 0).sum())
        if copies:
            warn(
                f"{quantity(copies, 'clip')} of {len(clips)} {'is' if copies == 1 else 'are'} in "
                "the bank, where they find themselves: they look normal whatever they are. Judge "
                "other clips, or use fit_predict for the clips of the bank."
            )
        return clips

    def _embeddings(self, X: Any, *, reset: bool = False) -> Any:
        if is_by_view(X):  # the bank knows its views
            return X
        embeddings = as_embeddings(X)
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except ValueError as error:  # other features, or their names in another order
            raise InputError(f"{error} Embed clips as the bank's were.") from None
        return embeddings

    def _bank(self, X: Clips, y: object, domains: Domains | None, **options: Any) -> NormalBank:
        """The bank of the normals to fit, checked."""
        text = [each for each in np.ravel(np.asarray(y, object)) if isinstance(each, str | bytes)]
        if text:
            name, first = type(self).__name__, np.asarray(text[0]).item()
            raise InputError(
                f"The second argument of fit is y, which {name} ignores, and it holds text such as "
                f"{first!r}. Pass domains by name: {name}().fit(X, domains=domains)."
            )
        require_rate(self.false_alarm_rate)
        rows, views = join_views(X if is_by_view(X) else self._embeddings(X, reset=True))
        bank = NormalBank(rows, domains, views=views, **options)
        copies = len(rows) - len(np.unique(rows, axis=0))
        if copies:
            warn(
                f"{quantity(copies, 'normal')} {'is a copy' if copies == 1 else 'are copies'} of "
                "others. Copies make the reference scores too low: leave them out."
            )
        few = [f"{size} of {name}" for name, size in bank.domain_sizes.items() if size < FEW]
        if few and len(bank.domains) > 1:
            warn(f"Few normals: {', '.join(few)}. Ten of each domain are a good start.")
        return bank


class DACo(Detector):
    """Anomaly detector with one false-alarm rate for all domains.

    Fitting stores normal embeddings; nothing is trained. A clip is anomalous if its p-value,
    against the reference scores of the domains that it fits, is at most the false-alarm rate.
    In all methods, X has one embedding per row, (n, D), or is a mapping {view: (n, D)}.

    Parameters
    ----------
    config : str or ScoreConfig, default="blend"
        How clips are scored. ``"conf-soft-m0-k1"`` is the default of the paper.
    k, m, assignment : optional
        Replace this part of `config` (:class:`daco.ScoreConfig`), for instance in a grid search.
    false_alarm_rate : float in (0, 1), default=0.1
        The share of normal clips of each domain that may be called anomalous.
    siblings : "auto" or int
        How many similar normals, likely of the same recording, are hidden from a clip of the bank
        for its reference score (:func:`daco.method.siblings.hide_siblings`). 0 declares that clips
        are independent. Sessions (`groups`) replace it.
    scorer : detector or {label: detector}, optional
        A detector of scikit-learn, PyOD or your own, whose scores replace the base score of
        `config`. With labels, the configurations ``ext-<label>`` and ``blend+<label>`` use them.
        The normals are scored by cross-fitting.
    scorer_higher_is_anomalous : bool, optional
        The sign of a `scorer` whose class does not tell it; True for PyOD.
    random_state : int, default=0
        Seed of the folds of the cross-fitting.
    n_jobs : int, optional
        Processes that fit the `scorer`, as in joblib.

    Attributes
    ----------
    reference_, reference_scores_ : ReferenceScores, (n,)
        Scores of normals with which clips are compared. After `fit` they are those of the bank,
        and the rate on new recordings is unknown. After `calibrate` they are those of new clips.
    thresholds_ : dict
        The anomaly score above which a clip of one domain alone is anomalous.
    offset_ : float
        The logarithm of the false-alarm rate.
    domains_ : tuple
        Domain names in the order of ``domain_weights``.
    bank_, config_ : NormalBank, str
        The normal clips and the configuration.

    Examples
    --------
    >>> import daco, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(110, 16)) + 1
    >>> detector = daco.DACo().fit(X, domains=["source"] * 100 + ["target"] * 10)
    >>> detector.predict([X[0] + 0.01, -X[0]])
    array([ 1, -1])
    >>> new = rng.normal(size=(50, 16)) + 1
    >>> detector.calibrate(new, ["source"] * 25 + ["target"] * 25).reference_.kinds
    {'source': 'new', 'target': 'new'}
    """

    def __init__(
        self,
        config: str | ScoreConfig = DEFAULT_CONFIG,
        *,
        k: int | None = None,
        m: float | None = None,
        assignment: str | None = None,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        siblings: str | int = AUTO,
        scorer: Any = None,
        scorer_higher_is_anomalous: bool | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.config = config
        self.k = k
        self.m = m
        self.assignment = assignment
        self.false_alarm_rate = false_alarm_rate
        self.siblings = siblings
        self.scorer = scorer
        self.scorer_higher_is_anomalous = scorer_higher_is_anomalous
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Clips,
        y: object = None,
        *,
        domains: Domains | None = None,
        groups: Sequence[str] | None = None,
    ) -> Self:
        """Store the normal clips and compute their reference scores; return the estimator.

        Parameters
        ----------
        X : (N, D), or {view: (N, D)}
            Embeddings of the normals.
        y : ignored
        domains : N labels, optional
            The domain of each clip; None for one domain.
        groups : N texts, optional
            The recording session of each clip. Reference scores are then computed without it.
        """
        parts: dict[str, Any] = {"k": self.k, "m": self.m, "assignment": self.assignment}
        changes = {name: value for name, value in parts.items() if value is not None}
        config = replace(ScoreConfig.parse(self.config), **changes)
        if self.k not in (None, config.k):
            raise ConfigError(f"{config.name!r} has no number of neighbours: leave k=None.")
        config, scorers = with_scorer(config, self.scorer)
        refuse_oracle([config])
        bank = self._bank(
            X,
            y,
            domains,
            scorers=scorers,
            scorer_higher_is_anomalous=self.scorer_higher_is_anomalous,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )
        return self._fit_bank(bank, config, parse_sessions(groups, len(bank)))

    def _fit_bank(self, bank: NormalBank, config: ScoreConfig, sessions: Sequence[str]) -> Self:
        normals = score_as_new(bank, config, self.siblings, sessions)
        reference = reference_for(bank, config, sessions, siblings=self.siblings, own=normals)
        # All that can fail is behind us: an earlier fit stays whole until here.
        self._normals = normals
        new = np.zeros((0, bank.views.dim)), np.zeros(0, np.int32)
        self._set_fitted(bank, config.name, reference, sessions, new)
        self._warn_of_rate()
        return self

    def _set_fitted(
        self, bank: NormalBank, config: str, reference: ReferenceScores, sessions: Any, new: Any
    ) -> None:
        self.bank_, self.domains_ = bank, bank.domains
        self.config_, self.reference_ = config, reference
        self._sessions, self._new = tuple(sessions), new

    @property
    def reference_scores_(self) -> Float64s:
        """The reference scores, (n,)."""
        return self.reference_.scores

    def calibrate(self, X: Clips, domains: Domains | None = None) -> Self:
        """Replace reference scores by those of new normals, which do not enter the bank.

        Parameters
        ----------
        X : (k, D), or {view: (k, D)}
            Embeddings of normals that are not in the bank; 25 of each domain are a good number.
        domains : k labels, optional
            The domain of each clip; by default the one that it fits best. A domain without a new
            clip keeps its reference scores.
        """
        check_is_fitted(self, "bank_")
        clips = self.bank_.examine(self._embeddings(X), self.config_)
        codes = clips.weights.argmax(axis=1)
        if domains is not None:
            codes = match_domains(domains, self.domains_, len(clips), "domains")
        if not clips.distance.all():
            raise InputError("Some of these clips are in the bank. Calibrate with other clips.")
        rows = self.bank_.views.rows(X)
        kept = ~np.isin(self._new[1], codes)
        new_rows = np.concatenate([self._new[0][kept], rows]).astype(rows.dtype)
        new = new_rows, np.concatenate([self._new[1][kept], codes]).astype(np.int32)
        how = self.bank_, self.config_, self._sessions, new, self.siblings
        self.reference_, self._new = reference_for(*how), new
        self._warn_of_rate()
        return self

    def save(self, path: Path | str, machine: str = "machine") -> None:
        """Write the detector to a model file, as ``daco fit`` does; `daco.load` reads it.

        The file has unit vectors in float32, of the bank and of the clips that calibrated it.
        """
        from daco.detector.model import MachineModel
        from daco.detector.revision import calibrate_with

        check_is_fitted(self, "bank_")
        bank, (new, codes) = self.bank_, self._new
        if bank._external.labels:
            raise InputError(
                "A model file holds no detector. Install it as an entry point of 'daco.scorers'."
            )
        names = np.array([str(name) for name in bank.domains])
        model = MachineModel.fit(
            np.hstack([view.unit for view in bank._banks])[np.argsort(bank._order)],
            names[bank.clip_domains],
            machine=machine,
            config=self.config_,
            false_alarm_rate=self.false_alarm_rate,
            siblings=self.siblings,
            groups=self._sessions or None,
            views=bank.views,
        )
        (calibrate_with(model, new, names[codes]) if len(new) else model).save(path)

    def _fitted(self) -> DACo:
        check_is_fitted(self, "bank_")
        return self

    def _warn_of_rate(self) -> None:
        for sentence in self.reference_.warnings(self.false_alarm_rate):
            warn(sentence)


def load(path: Path | str) -> DACo:
    """Read a model file as a detector of embeddings.

    Parameters
    ----------
    path : str or Path
        A file that :meth:`DACo.save` or ``daco fit`` wrote.

    Returns
    -------
    DACo

    Examples
    --------
    >>> import daco, numpy as np, tempfile
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     daco.DACo().fit(X).save(f"{folder}/press.daco", machine="press")
    ...     daco.load(f"{folder}/press.daco").predict([X[0] + 0.01, -X[0]])
    array([ 1, -1])
    """
    from daco.detector.model import MachineModel

    model = MachineModel.load(path)
    detector = DACo(model.config, false_alarm_rate=model.false_alarm_rate, siblings=model.siblings)
    new = model.new_embeddings.reshape(-1, model.views.dim), model.new_domains
    detector._set_fitted(model.bank, model.config, model.reference, model.sessions, new)
    if len(model.views.names) == 1:
        detector.n_features_in_ = model.views.dim
    return detector
