"""DACo and LabelFreeSearch: scikit-learn estimators on embeddings and domains.

``anomaly_score`` is high for anomalies, as everywhere in daco. Only scikit-learn's own
methods (``score_samples``, ``decision_function``, ``predict``) have the opposite sign.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from daco.data.views import Bands, Views, is_by_view, join_views
from daco.detector.reference import parse_sessions, reference_for
from daco.detector.thresholds import FALSE_ALARM_RATE, require_rate
from daco.errors import DacoWarning, InputError
from daco.method.bank import Clips, Domains, NormalBank
from daco.method.choice import choose_config
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool
from daco.method.criterion import CHOICE_SPLITS
from daco.method.external import Candidates, parse_pool, with_scorer
from daco.validation import Float64s, Floats, as_embeddings, match_domains

if TYPE_CHECKING:
    import pandas as pd


class _Detector(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """The scikit-learn methods of a fitted detector, whose sign means normal."""

    def _joined(self, X: Clips) -> tuple[Floats, Views]:
        """The rows to fit, of all views side by side, and how they are divided."""
        if not is_by_view(X):
            return join_views(self._embeddings(X, reset=True), self.bands)
        rows, views = join_views(X, self.bands)
        return self._embeddings(rows, reset=True), views

    def _embeddings(self, X: Any, *, reset: bool) -> Any:
        if is_by_view(X):  # the bank knows its views
            return X
        embeddings = as_embeddings(X)
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except ValueError as error:  # other features, or their names in another order
            raise InputError(f"{error} Embed clips as the bank's were.") from None
        return embeddings

    def _refuse_domains(self, y: object) -> None:
        """Raise an error for domain names that were passed as `y`."""
        values = np.asarray(y, dtype=object).ravel().tolist()
        text = next((value for value in values if isinstance(value, str | bytes)), None)
        if text is not None:
            text = text.item() if isinstance(text, np.generic) else text  # its plain text
            raise InputError(
                f"The second argument of fit is y, which {type(self).__name__} ignores, and it "
                f"holds text such as {text!r}. Pass domains by name: "
                f"{type(self).__name__}().fit(X, domains=domains)."
            )

    def _fitted(self) -> DACo:
        """The detector that judges."""
        raise NotImplementedError

    def anomaly_score(self, X: Clips) -> Float64s:
        """Compute the anomaly score of each clip, (n,); higher is more anomalous."""
        detector = self._fitted()
        return detector.bank_.score(self._embeddings(X, reset=False), detector.config_)[:, 0]

    def domain_weights(self, X: Clips) -> Float64s:
        """Compute how strongly each clip belongs to each of ``domains_``, (n, G); rows sum to 1."""
        return self._examine(X)[1]

    def p_values(self, X: Clips) -> Float64s:
        """Compute the p-value of each clip, (n,): about the share of normals that score as high."""
        return self._fitted().reference_.p_values(*self._examine(X))

    def score_samples(self, X: Clips) -> Float64s:
        """Return the negated ``anomaly_score``, (n,): in scikit-learn, high scores mean normal."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Clips) -> Float64s:
        """Return the threshold of each clip minus its score, (n,); negative is anomalous."""
        scores, weights = self._examine(X)
        return self._fitted().reference_.thresholds(weights, self.false_alarm_rate) - scores

    def predict(self, X: Clips) -> NDArray[np.int_]:
        """Return -1 for clips with a p-value of at most ``false_alarm_rate``, else +1, (n,)."""
        return np.where(self.p_values(X) <= self.false_alarm_rate, -1, 1)

    def fit_predict(
        self,
        X: Clips,
        y: object = None,
        *,
        domains: Domains | None = None,
        groups: Sequence[str] | None = None,
    ) -> NDArray[np.int_]:
        """Fit, then predict the clips of the bank, each scored by the others."""
        self.fit(X, y, domains=domains, groups=groups)
        detector = self._fitted()
        own = detector.bank_.leave_one_out(detector.config_)[:, 0]
        weights = np.eye(len(self.domains_))[detector.bank_.clip_domains]
        return np.where(detector.reference_.p_values(own, weights) <= self.false_alarm_rate, -1, 1)

    def _examine(self, X: Clips) -> tuple[Float64s, Float64s]:
        """Scores and domain weights."""
        require_rate(self.false_alarm_rate)  # may have changed since the fit
        detector = self._fitted()
        found = detector.bank_.examine(self._embeddings(X, reset=False), detector.config_)
        return found.scores[:, 0], found.weights

    @property
    def thresholds_(self) -> dict[Any, float]:
        """The anomaly score above which a clip of one domain alone is anomalous, by domain."""
        return self._fitted().reference_.domain_thresholds(self.false_alarm_rate)

    @property
    def offset_(self) -> float:
        """With one domain ``decision_function`` is ``score_samples - offset_``."""
        return -max(self.thresholds_.values())


class DACo(_Detector):
    """Anomaly detector with one false-alarm rate for all domains.

    Fitting stores normal embeddings; nothing is trained. A clip is anomalous if its p-value,
    against the reference scores of the domains that it fits, is at most the false-alarm rate.
    In all methods, X has one embedding per row, (n, D), or is a mapping {view: (n, D)}.

    Parameters
    ----------
    config : str or ScoreConfig
        How clips are scored. The default, ``"conf-soft-m0-k1"``, is that of the paper and
        calibrates each domain by itself; ``"vote"`` is the default of ``daco fit``.
    false_alarm_rate : float in (0, 1), default=0.1
        The share of normal clips of each domain that may be called anomalous.
    bands : int, or {view: int}
        Number of frequency bands in each row of X, which have equal lengths and follow each
        other. Only ``beam`` configurations use them. A mapping if X is a mapping of views.
    scorer : detector or {label: detector}, optional
        A detector of scikit-learn, PyOD or your own that replaces the base score of `config`, or
        joins its vote. It has ``fit`` and ``score_samples``, or ``decision_function`` with the
        sign of PyOD. The normals are scored by cross-fitting. With several by label,
        ``ext-<label>`` configurations use one of them, and a vote uses all.

    Attributes
    ----------
    reference_ : ReferenceScores
        Scores of normals with which clips are compared. After `fit` they are those of the bank,
        each computed without its recording session or its likely siblings, and the rate on new
        recordings is approximate. After `calibrate` they are those of the new clips.
    thresholds_ : dict
        The anomaly score above which a clip of one domain alone is anomalous.
    domains_ : tuple
        Domain names in the order of ``domain_weights``.
    bank_ : NormalBank
        The normal clips.

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
        false_alarm_rate: float = FALSE_ALARM_RATE,
        bands: Bands | Mapping[str, int] = 1,
        scorer: Any = None,
    ) -> None:
        self.config = config
        self.false_alarm_rate = false_alarm_rate
        self.bands = bands
        self.scorer = scorer

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
        self._refuse_domains(y)
        require_rate(self.false_alarm_rate)
        config, scorers = with_scorer(ScoreConfig.parse(self.config), self.scorer)
        rows, views = self._joined(X)
        sessions = parse_sessions(groups, len(rows))
        bank = NormalBank(rows, domains, bands=views, scorers=scorers)
        return self._fit_bank(bank, config, sessions)

    def _fit_bank(
        self, bank: NormalBank, config: ScoreConfig, sessions: Sequence[str] = ()
    ) -> Self:
        if config.assignment == "oracle":
            raise InputError(
                f"{config.name!r} needs the true domain of each clip, which a detector never has. "
                "Use its 'soft' or 'hard' form."
            )
        reference = reference_for(bank, config, sessions)
        # All that can fail is behind us: an earlier fit stays whole until here.
        self.config_ = config.name
        self.bank_ = bank
        self.domains_ = bank.domains
        self.reference_ = reference
        self._sessions = tuple(sessions)
        self._new = np.zeros((0, bank.dim)), np.zeros(0, np.int32)
        self._warn_of_rate()
        return self

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
        scores, weights = self._examine(X)
        codes = weights.argmax(axis=1)
        if domains is not None:
            codes = match_domains(domains, self.domains_, len(scores), "domains")
        rows = join_views(self._embeddings(X, reset=False), self.bank_.bands)[0]
        if not self.bank_.nearest(rows)[1].all():
            raise InputError("Some of these clips are in the bank. Calibrate with other clips.")
        kept = ~np.isin(self._new[1], codes)
        new_codes = np.concatenate([self._new[1][kept], codes]).astype(np.int32)
        self._new = np.concatenate([self._new[0][kept], rows]).astype(rows.dtype), new_codes
        self.reference_ = reference_for(self.bank_, self.config_, self._sessions, self._new)
        self._warn_of_rate()
        return self

    def _fitted(self) -> DACo:
        check_is_fitted(self, "bank_")
        return self

    def _warn_of_rate(self) -> None:
        for caution in self.reference_.cautions(self.false_alarm_rate):
            warnings.warn(caution, DacoWarning, stacklevel=4)


class LabelFreeSearch(_Detector):
    """Choose a configuration for one machine from its normal clips alone.

    It chooses as :func:`daco.method.choice.choose_config` does: the smallest criterion, unless the
    fixed default is as good within the noise. A veto excludes configurations that detect much
    fewer pseudo-anomalies than the others (:mod:`daco.method.viability`). After `fit` it scores
    clips as ``best_detector_`` does.

    Parameters
    ----------
    configs : iterable of str, ScoreConfig, detector or {label: detector or scores}, optional
        The candidates; by default the nine of :func:`daco.method.config.blind_pool`. A detector, or
        held-out scores of the N normals, adds its :func:`daco.method.config.calibrations_of`.
    n_splits, seed : int
        Number (200 by default) and seed of the random splits of the criterion.
    false_alarm_rate : float in (0, 1), default=0.1
        The rate of ``best_detector_``.
    bands : int, or {view: int}
        As for :class:`DACo`.
    veto : bool
        Whether configurations that do not detect pseudo-anomalies are excluded from the choice.

    Attributes
    ----------
    results_ : pandas.DataFrame
        ``config``, ``family``, ``criterion`` (mean over splits), ``split_sd`` (over splits),
        ``rank`` (by the criterion alone), ``pseudo_score`` (how well pseudo-anomalies are detected;
        chance is 0.5, nan without a veto) and ``vetoed``, in the order of `configs`.
    best_config_, reason_ : str
        The chosen configuration, and why it was chosen.
    best_detector_ : DACo
        The detector with this configuration.

    Examples
    --------
    >>> import daco, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 8)) + 1
    >>> X[50:] *= 3
    >>> search = daco.LabelFreeSearch(["raw-k1", "conf-soft-m0-k1"])
    >>> search.fit(X, domains=["source"] * 50 + ["target"] * 10).results_.columns.tolist()
    ['config', 'family', 'criterion', 'split_sd', 'rank', 'pseudo_score', 'vetoed']
    """

    def __init__(
        self,
        configs: Candidates | None = None,
        n_splits: int = CHOICE_SPLITS,
        seed: int = 0,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        bands: Bands | Mapping[str, int] = 1,
        veto: bool = True,
    ) -> None:
        self.configs = configs
        self.n_splits = n_splits
        self.seed = seed
        self.false_alarm_rate = false_alarm_rate
        self.bands = bands
        self.veto = veto

    def fit(
        self,
        X: Clips,
        y: object = None,
        *,
        domains: Domains | None = None,
        groups: Sequence[str] | None = None,
    ) -> Self:
        """Compare the candidates on the normals and fit ``best_detector_``; return the estimator.

        The arguments are those of :meth:`DACo.fit`; the criterion holds out whole sessions.
        """
        import pandas as pd

        self._refuse_domains(y)
        require_rate(self.false_alarm_rate)
        pool, scorers = parse_pool(blind_pool() if self.configs is None else self.configs)
        rows, views = self._joined(X)
        sessions = parse_sessions(groups, len(rows))
        bank = NormalBank(rows, domains, bands=views, scorers=scorers)
        choice = choose_config(
            rows,
            domains,
            pool,
            bands=views,
            n_splits=self.n_splits,
            seed=self.seed,
            veto=self.veto,
            bank=bank,
            sessions=sessions,
        )
        criterion = spread = rank = pseudo = np.full(len(pool), np.nan)
        if choice.balance is not None:
            criterion = choice.balance.values[: len(pool)]
            spread = choice.balance.splits[: len(pool)].std(axis=1)
            rank = np.argsort(np.argsort(list(choice.criterion.values()), kind="stable")) + 1.0
        if choice.pseudo is not None:
            judged = dict(zip(choice.pseudo.configs, choice.pseudo.score.tolist(), strict=True))
            pseudo = np.array([judged.get(config.name, np.nan) for config in pool])
        self.results_: pd.DataFrame = pd.DataFrame(
            {
                "config": [config.name for config in pool],
                "family": [config.family for config in pool],
                "criterion": criterion,
                "split_sd": spread,
                "rank": rank,
                "pseudo_score": pseudo,
                "vetoed": [config.name in choice.vetoed for config in pool],
            }
        )
        self.best_config_, self.reason_ = choice.config, choice.reason
        best = ScoreConfig.parse(self.best_config_)
        scorer = scorers or None if best.base.is_vote else scorers.get(best.base.label)
        detector = DACo(best.name, self.false_alarm_rate, self.bands, scorer)
        self.best_detector_ = detector._fit_bank(bank, best, sessions)
        as_given = rows if is_by_view(X) else X
        validate_data(self.best_detector_, as_given, reset=True, skip_check_array=True)
        self.domains_ = bank.domains
        return self

    def calibrate(self, X: Clips, domains: Domains | None = None) -> Self:
        """Replace reference scores by those of new normals, as :meth:`DACo.calibrate` does."""
        self._fitted().calibrate(X, domains)
        return self

    def _fitted(self) -> DACo:
        check_is_fitted(self, "best_detector_")
        detector: DACo = self.best_detector_
        return detector
