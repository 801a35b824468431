"""LabelFreeSearch: a scikit-learn estimator that chooses a configuration without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from daco.data.views import is_by_view
from daco.detector.decision import FALSE_ALARM_RATE
from daco.detector.estimator import DACo, Detector
from daco.detector.reference import parse_sessions
from daco.method.bank import Clips, Domains
from daco.method.config import ScoreConfig, blind_pool
from daco.method.criterion import CHOICE_SPLITS
from daco.method.external import Candidates, parse_pool
from daco.method.selection import CRITERION_DIGITS, Choice, choose_config
from daco.method.siblings import AUTO


class LabelFreeSearch(Detector):
    """Choose a configuration for one machine from its normal clips alone.

    It chooses as :func:`daco.method.selection.choose_config` does, and judges clips as
    ``best_estimator_`` does.

    Parameters
    ----------
    configs : iterable of str, ScoreConfig, detector or {label: detector or scores}, optional
        The candidates; by default the nine of :func:`daco.method.config.blind_pool`. A detector, or
        held-out scores of the N normals, adds its :func:`daco.method.config.calibrations_of`.
    n_splits : int, default=200
        Number of random splits of the criterion.
    veto : bool
        Whether configurations that do not detect pseudo-anomalies are excluded from the choice.
    false_alarm_rate, siblings, scorer_higher_is_anomalous, n_jobs
        As for :class:`DACo`.
    random_state : int, default=0
        Seed of the splits, the resamples, the pseudo-anomalies and the folds.

    Attributes
    ----------
    cv_results_ : dict of arrays
        ``params``, ``param_config``, ``mean_criterion``, ``std_criterion`` (over splits),
        ``rank_criterion``, ``agreement`` (share of resamples with the smallest criterion),
        ``pseudo_score`` (how well pseudo-anomalies are detected; chance is 0.5) and ``vetoed``,
        in the order of `configs`; a DataFrame can be made of it.
    best_params_, best_index_, best_estimator_ : dict, int, DACo
        ``{"config": ...}``, its place among the candidates, and the detector with it.
    choice_ : Choice
        The choice with its reason.

    Examples
    --------
    >>> import daco, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 8)) + 1
    >>> X[50:] *= 3
    >>> search = daco.LabelFreeSearch(["raw-k1", "conf-soft-m0-k1"], n_splits=20)
    >>> search = search.fit(X, domains=["source"] * 50 + ["target"] * 10)
    >>> sorted(search.cv_results_)[:3]
    ['agreement', 'mean_criterion', 'param_config']
    """

    def __init__(
        self,
        configs: Candidates | None = None,
        *,
        n_splits: int = CHOICE_SPLITS,
        veto: bool = True,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        siblings: str | int = AUTO,
        scorer_higher_is_anomalous: bool | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.configs = configs
        self.n_splits = n_splits
        self.veto = veto
        self.false_alarm_rate = false_alarm_rate
        self.siblings = siblings
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
        """Compare the candidates on the normals and fit ``best_estimator_``; return the estimator.

        The arguments are those of :meth:`DACo.fit`; the criterion holds out whole sessions.
        """
        pool, scorers = parse_pool(blind_pool() if self.configs is None else self.configs)
        options: dict[str, Any] = {
            "scorer_higher_is_anomalous": self.scorer_higher_is_anomalous,
            "random_state": self.random_state,
            "n_jobs": self.n_jobs,
        }
        bank = self._bank(X, y, domains, scorers=scorers, **options)
        sessions = parse_sessions(groups, len(bank))
        choice = choose_config(
            bank,
            pool,
            n_splits=self.n_splits,
            seed=self.random_state,
            veto=self.veto,
            sessions=sessions,
        )
        best = ScoreConfig.parse(choice.config)
        used = {label: scorers[label] for label in best.base.labels if label in scorers}
        detector = DACo(
            best.name,
            false_alarm_rate=self.false_alarm_rate,
            siblings=self.siblings,
            scorer=used or None,
            **options,
        )._fit_bank(bank, best, sessions)
        names = [config.name for config in pool]
        if not is_by_view(X):
            validate_data(detector, X, reset=True, skip_check_array=True)
        self.best_estimator_ = detector
        self.best_params_ = {"config": choice.config}
        self.best_index_ = names.index(choice.config) if choice.config in names else -1
        self.choice_ = choice
        self.domains_ = bank.domains
        self.cv_results_ = _results(names, choice)
        return self

    def calibrate(self, X: Clips, domains: Domains | None = None) -> Self:
        """Replace reference scores by those of new normals, as :meth:`DACo.calibrate` does."""
        self._fitted().calibrate(X, domains)
        return self

    def _fitted(self) -> DACo:
        check_is_fitted(self, "best_estimator_")
        detector: DACo = self.best_estimator_
        return detector


def _results(names: Sequence[str], choice: Choice) -> dict[str, Any]:
    """The comparison of the candidates as columns."""
    mean = spread = rank = agreement = np.full(len(names), np.nan)
    if choice.balance is not None:
        mean, spread = choice.balance.values, choice.balance.splits.std(axis=1)
        rank = np.argsort(np.argsort(mean.round(CRITERION_DIGITS), kind="stable")) + 1.0
        resampled = choice.balance.resampled
        resampled = resampled[:, np.isfinite(resampled).all(axis=0)]
        if resampled.size:
            winners = resampled.argmin(axis=0)
            agreement = np.bincount(winners, minlength=len(names)) / len(winners)
    pseudo: Mapping[str, float] = {}
    if choice.pseudo is not None:
        pseudo = dict(zip(choice.pseudo.configs, choice.pseudo.score.tolist(), strict=True))
    return {
        "params": [{"config": name} for name in names],
        "param_config": np.array(names),
        "mean_criterion": mean,
        "std_criterion": spread,
        "rank_criterion": rank,
        "agreement": agreement,
        "pseudo_score": np.array([pseudo.get(name, np.nan) for name in names]),
        "vetoed": np.array([name in choice.vetoed for name in names]),
    }
