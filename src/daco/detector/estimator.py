"""DACo and LabelFreeSearch: scikit-learn estimators on embeddings and domains.

``anomaly_score`` is high for anomalies, as everywhere in daco. Only scikit-learn's own
methods (``score_samples``, ``decision_function``, ``predict``) have the opposite sign.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from daco.data.views import Bands, Views, is_by_view, join_views
from daco.detector.thresholds import FALSE_ALARM_RATE, more_clips_for, require_rate, threshold_for
from daco.errors import DacoWarning, InputError
from daco.method.bank import Clips, Domains, NormalBank
from daco.method.choice import choose_config
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.method.criterion import CHOICE_SPLITS
from daco.validation import Float64s, Floats, as_embeddings

if TYPE_CHECKING:
    import pandas as pd


class _Detector(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn's side of a fitted detector: the sign that means normal."""

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
        """An error for domain names in the place of scikit-learn's labels, which is ignored."""
        values = np.asarray(y, dtype=object).ravel().tolist()
        text = next((value for value in values if isinstance(value, str | bytes)), None)
        if text is not None:
            text = text.item() if isinstance(text, np.generic) else text  # its plain text
            raise InputError(
                f"The second argument of fit is y, which {type(self).__name__} ignores, and it "
                f"holds text such as {text!r}. Pass domains by name: "
                f"{type(self).__name__}().fit(X, domains=domains)."
            )

    def anomaly_score(self, X: Clips) -> Float64s:
        """How anomalous each clip is: (n,), higher is more anomalous."""
        raise NotImplementedError

    def score_samples(self, X: Clips) -> Float64s:
        """The negated ``anomaly_score``: scikit-learn calls the normal high."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Clips) -> Float64s:
        """Threshold less anomaly score: negative is an alarm."""
        scores = self.anomaly_score(X)
        return self.threshold_ - scores

    def predict(self, X: Clips) -> NDArray[np.int_]:
        """+1 for normal, -1 for an alarm (anomaly score above ``threshold_``)."""
        return np.where(self.anomaly_score(X) > self.threshold_, -1, 1)

    def fit_predict(
        self, X: Clips, y: object = None, *, domains: Domains | None = None
    ) -> NDArray[np.int_]:
        """Fit, and predict the clips of the bank, each scored with itself left out."""
        self.fit(X, y, domains=domains)
        return np.where(self._own_scores > self.threshold_, -1, 1)

    @property
    def offset_(self) -> float:
        """``decision_function`` is ``score_samples - offset_``."""
        return -float(self.threshold_)


class DACo(_Detector):
    """Anomaly detector with one threshold for all domains.

    Fitting stores normal embeddings; nothing is trained. Scores are calibrated per domain,
    so that one threshold raises about the same rate of false alarms in each.

    Parameters
    ----------
    config : str or ScoreConfig
        How clips are scored. The default, full equalisation of domains, is the paper's
        recommendation when nothing else is known.
    false_alarm_rate : float in (0, 1)
        The share of normal clips of each domain that the threshold may flag.
    bands : int, or {view: int}
        Each row of X is that many bands of equal length, one after the other; only ``beam``
        configurations see them. By view where X is a mapping with an array for each view.

    Attributes
    ----------
    threshold_ : float
        An anomaly score above it is an alarm. It holds the rate in every domain of the bank
        (:func:`daco.detector.thresholds.threshold_for`). For new clips the rate is approximate:
        ten clips describe a domain poorly, and a new recording session shifts it.
    leave_one_out_rates_ : dict
        The share of each domain's own clips that the threshold flags, each left out: look at
        it before trusting the rate.
    domains_ : tuple
        Domain names in the order of ``domain_weights``.
    bank_ : NormalBank

    Examples
    --------
    >>> import daco, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(110, 16)) + 1
    >>> detector = daco.DACo().fit(X, domains=["source"] * 100 + ["target"] * 10)
    >>> detector.predict([X[0] + 0.01, -X[0]])
    array([ 1, -1])
    >>> round(detector.threshold_, 3)
    0.948
    """

    def __init__(
        self,
        config: str | ScoreConfig = DEFAULT_CONFIG,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        bands: Bands | Mapping[str, int] = 1,
    ) -> None:
        self.config = config
        self.false_alarm_rate = false_alarm_rate
        self.bands = bands

    def fit(self, X: Clips, y: object = None, *, domains: Domains | None = None) -> Self:
        """Keep the normal clips ``X``, (N, D) or {view: (N, D)}; ``y`` is ignored, and no text."""
        self._refuse_domains(y)
        require_rate(self.false_alarm_rate)
        ScoreConfig.parse(self.config)
        rows, views = self._joined(X)
        return self._fit_bank(NormalBank(rows, domains, bands=views))

    def _fit_bank(self, bank: NormalBank) -> Self:
        config = ScoreConfig.parse(self.config)
        if config.assignment == "oracle":
            raise InputError(
                f"{config.name!r} needs the true domain of each clip, which a detector never has. "
                "Use its 'soft' or 'hard' form."
            )
        own = bank.leave_one_out(config)[:, 0]
        # All that can fail is behind us: an earlier fit stays whole until here.
        self.config_ = config.name
        self.bank_ = bank
        self.domains_ = bank.domains
        self._own_scores = own
        self.threshold_ = self.threshold_at(self.false_alarm_rate)
        flagged = own > self.threshold_
        self.leave_one_out_rates_ = {
            name: float(flagged[bank.clip_domains == code].mean())
            for code, name in enumerate(bank.domains)
        }
        self._warn_of_floor()
        return self

    def threshold_at(self, false_alarm_rate: float) -> float:
        """The threshold for another false-alarm rate; no refit."""
        check_is_fitted(self, "bank_")
        codes = self.bank_.clip_domains
        return threshold_for(self.config_, self._own_scores, codes, false_alarm_rate)

    def anomaly_score(self, X: Clips) -> Float64s:
        """How anomalous each clip is: (n,), higher is more anomalous."""
        check_is_fitted(self, "bank_")
        return self.bank_.score(self._embeddings(X, reset=False), self.config_)[:, 0]

    def domain_weights(self, X: Clips) -> Float64s:
        """How strongly each clip belongs to each of ``domains_``: (n, G), rows sum to 1."""
        check_is_fitted(self, "bank_")
        config = ScoreConfig.parse(self.config_)
        by = config if config.assignment else DEFAULT_CONFIG
        return self.bank_.domain_weights(self._embeddings(X, reset=False), by)

    def _warn_of_floor(self) -> None:
        name, size = min(self.bank_.domain_sizes.items(), key=lambda item: item[1])
        if more := more_clips_for(self.false_alarm_rate, size):
            warnings.warn(
                f"false_alarm_rate={self.false_alarm_rate:g} is below {1 / (size + 1):.3g}, the "
                f"smallest rate that the {size} clips of domain {name!r} support; the threshold "
                f"there is extrapolated. {size + more} clips would support it.",
                DacoWarning,
                stacklevel=4,
            )


class LabelFreeSearch(_Detector):
    """Choose a configuration for one machine from its normal clips alone.

    The choice is that of :func:`daco.method.choice.choose_config`: the smallest balance criterion,
    unless the fixed default is as good within the noise of the criterion. A balanced configuration
    may still detect nothing, which the criterion cannot see: the default pool therefore holds only
    configurations known to be viable, and a veto excludes those that detect much fewer
    pseudo-anomalies, made of the normals, than the others (:mod:`daco.method.viability`).

    Parameters
    ----------
    configs : iterable of str or ScoreConfig, optional
        The pool. None: the paper's nine for per-machine selection, ``config.blind_pool()``.
    n_splits, seed
        Of the criterion.
    false_alarm_rate : float
        Of ``best_detector_``.
    bands : int, or {view: int}
        Of the rows of X, as for :class:`DACo`.
    veto : bool
        Whether configurations that do not detect pseudo-anomalies are excluded from the choice.

    Attributes
    ----------
    results_ : pandas.DataFrame
        ``config``, ``family``, ``criterion`` (its mean), ``split_sd`` (over splits), ``rank``
        (by the criterion alone), ``pseudo_score`` (how well pseudo-anomalies are detected; chance
        is 0.5, nan without a veto) and ``vetoed``, in the order of the pool.
    best_config_ : str
    best_detector_ : DACo
    reason_ : str
        Why it was chosen.

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
        configs: Iterable[str | ScoreConfig] | None = None,
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

    def fit(self, X: Clips, y: object = None, *, domains: Domains | None = None) -> Self:
        """Compare the pool on the normal clips ``X``; ``y`` is ignored, and may not hold text."""
        import pandas as pd

        self._refuse_domains(y)
        require_rate(self.false_alarm_rate)
        pool = blind_pool() if self.configs is None else parse_grid(self.configs)
        rows, views = self._joined(X)
        bank = NormalBank(rows, domains, bands=views)
        choice = choose_config(
            rows,
            domains,
            pool,
            bands=views,
            n_splits=self.n_splits,
            seed=self.seed,
            veto=self.veto,
            bank=bank,
        )
        criterion = spread = rank = pseudo = np.full(len(pool), np.nan)
        if choice.balance is not None:
            criterion = choice.balance.values[: len(pool)]
            spread = choice.balance.splits[: len(pool)].std(axis=1)
            rank = np.argsort(np.argsort(list(choice.criterion.values()), kind="stable")) + 1.0
        if choice.pseudo is not None:
            pseudo = choice.pseudo.score
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
        self.best_detector_ = DACo(self.best_config_, self.false_alarm_rate, self.bands)._fit_bank(
            bank
        )
        given = rows if is_by_view(X) else X
        validate_data(self.best_detector_, given, reset=True, skip_check_array=True)
        self._own_scores = self.best_detector_._own_scores
        self.threshold_ = self.best_detector_.threshold_
        self.domains_ = bank.domains
        return self

    def anomaly_score(self, X: Clips) -> Float64s:
        """How anomalous each clip is to the chosen detector."""
        check_is_fitted(self, "best_detector_")
        return self.best_detector_.bank_.score(self._embeddings(X, reset=False), self.best_config_)[
            :, 0
        ]

    def domain_weights(self, X: Clips) -> Float64s:
        """How strongly each clip belongs to each of ``domains_``."""
        check_is_fitted(self, "best_detector_")
        return self.best_detector_.domain_weights(X)
