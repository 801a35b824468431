"""External scorers: detectors of other libraries and tables of scores, as base scores.

A detector scores the normals of a bank by cross-fitting: it is fitted on some folds of the clips
and scores the others. A table has the scores that some system gave to normals it had not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import isclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.data.views import Views, first_view
from daco.errors import ConfigError, InputError, warn
from daco.method.config import Base, ScoreConfig, calibrations_of, parse_base, parse_grid
from daco.text import name_list, suggestion
from daco.validation import Bools, Float64s, Floats, Indices, finite_array

FOLDS = 5
"""Parts of the normals; each is scored by a detector that was fitted on the others."""

GROUP = "daco.scorers"
"""Entry points of installed scorers: a name, and a callable that returns a detector."""

Candidates = str | ScoreConfig | Iterable[Any]
Signs = bool | Mapping[str, bool] | None
_FEW = 20  # clips that show whether a score depends on the others


class ExternalScorers:
    """The external scorers of a bank; all scores are high for anomalies.

    A detector has ``fit`` and ``score_samples`` or ``decision_function``; a callable returns one.
    Clones are fitted on the first view. Others are tables of held-out scores of the bank's clips.
    The sign of a ``decision_function`` whose class does not tell it, as in PyOD, is given, or an
    attribute ``higher_is_anomalous`` of the detector. ``order`` groups the rows by domain; domain g
    is then ``starts[g]:starts[g + 1]``. The seed is that of the folds, and the ``random_state`` of
    detectors that have none.
    """

    def __init__(
        self,
        scorers: Mapping[str, Any],
        higher_is_anomalous: Signs,
        rows: Floats,
        views: Views,
        starts: Indices,
        order: Indices,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self._views, self._order, self._seed, self._n_jobs = views, order, seed, n_jobs
        self.higher_is_anomalous = higher_is_anomalous
        self._domains = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        self._scorers = {label: self._checked(label, each) for label, each in scorers.items()}
        self._fitted: dict[str, Any] = {}
        self._cross_fitted: dict[tuple[str, bytes], Float64s] = {}
        self.labels = tuple(scorers)  # those given; installed ones can be used as well
        # Banks without detectors keep no second copy of the vectors.
        if self.detectors or installed_scorers():
            self.rows = first_view(rows, views)[order]

    @property
    def detectors(self) -> dict[str, Any]:
        """The scorers that are fitted; the others are tables of scores."""
        return {label: each for label, each in self._scorers.items() if is_detector(each)}

    def within(
        self, label: str, members: Bools | None = None, groups: Sequence[Any] | None = None
    ) -> Float64s:
        """Scores (S, N) of the bank's clips, grouped by domain, by detectors that did not see them.

        `members` (S, N) are parts of the bank, by default all of it. Clips outside a part are
        scored by the detector of its members, members by cross-fitting among these. `groups` are
        recording sessions in the order of X, empty where unknown; a session is in one fold.
        """
        parts = np.ones((1, len(self._order)), np.bool_) if members is None else members
        scorer = self._scorer(label)
        if not is_detector(scorer):
            return np.tile(scorer, (len(parts), 1))
        # Equal parts are fitted once: the first splits of a seed are those of any longer list.
        known = self._cross_fitted if groups is None else {}
        missing = {
            (label, part.tobytes()): part for part in parts if (label, part.tobytes()) not in known
        }
        from joblib import Parallel, delayed

        score_part = delayed(self._part_scores)
        jobs = (score_part(label, part, groups) for part in missing.values())
        known.update(zip(missing, Parallel(n_jobs=self._n_jobs)(jobs), strict=True))
        return np.array([known[label, part.tobytes()] for part in parts])

    def _part_scores(self, label: str, inside: Bools, groups: Sequence[Any] | None) -> Float64s:
        """Scores (N,) of all clips by detectors of the clips of one part."""
        scores = np.empty(len(inside))
        if not inside.all():
            scores[~inside] = self._scores(label, self._fit(label, inside), self.rows[~inside])
        folds = self._folds(inside, groups)
        for fold in range(folds.max() + 1):
            held = folds == fold
            scores[held] = self._scores(label, self._fit(label, inside & ~held), self.rows[held])
        return scores

    def against(self, label: str, X: Any, scores: Mapping[str, ArrayLike] | None) -> Float64s:
        """Scores (n,) of new clips: of a table those given, else by the detector of all normals."""
        rows = first_view(self._views.rows(X), self._views)
        if not is_detector(self._scorer(label)):
            if scores is None or label not in scores:
                raise InputError(
                    f"'ext-{label}' is a table of scores. Pass the scores of the clips, too: "
                    f"scores={{{label!r}: ...}}."
                )
            return _table(label, scores[label], len(rows), "clip")
        if label not in self._fitted:
            self._fitted[label] = self._fit(label, np.ones(len(self._order), np.bool_))
            self._warn_of_batches(label)
        return self._scores(label, self._fitted[label], rows)

    def _checked(self, label: str, scorer: Any) -> Any:
        """A detector as it is, a table of scores grouped by domain."""
        _external_base(label)
        if is_detector(scorer):
            return scorer
        return _table(label, scorer, len(self._order), "normal of the bank")[self._order]

    def _scorer(self, label: str) -> Any:
        if label not in self._scorers:
            self._scorers[label] = self._checked(label, installed_scorer(label))
        return self._scorers[label]

    def _folds(self, inside: Bools, groups: Sequence[Any] | None) -> Indices:
        """The fold of each member, -1 for others: sessions of each domain, dealt at random."""
        drawn = np.random.default_rng(self._seed).permutation(len(inside))
        order = np.lexsort([drawn, self._domains])
        order = order[inside[order]]
        clips = self._order[order].tolist()
        sessions = [(groups is not None and groups[clip]) or ("clip", clip) for clip in clips]
        turn = {session: number for number, session in enumerate(dict.fromkeys(sessions))}
        folds = np.full(len(inside), -1, np.intp)
        folds[order] = [turn[session] % FOLDS for session in sessions]
        return folds

    def _fit(self, label: str, members: Bools) -> Any:
        try:
            detector = _new_detector(self._scorers[label], self._seed)
            detector.fit(self.rows[members])
        except Exception as error:  # whatever another library raises
            count = int(members.sum())
            raise InputError(f"{label} could not be fitted on {count} clips: {error}") from error
        return detector

    def _scores(self, label: str, detector: Any, rows: Floats) -> Float64s:
        """Anomaly scores of rows, (n,)."""
        signs = self.higher_is_anomalous
        given = signs.get(label) if isinstance(signs, Mapping) else signs
        method, sign = _scoring(label, detector, given)
        try:
            scores = method(rows.copy())  # it may change its input
        except Exception as error:  # whatever another library raises
            raise InputError(f"{label} could not score {len(rows)} clips: {error}") from error
        # Scores of one-class SVMs grow with the number of clips, and folds have fewer.
        size = np.sum(getattr(_last_step(detector), "dual_coef_", 1.0))
        return sign * _table(label, scores, len(rows), "clip") / size

    def _warn_of_batches(self, label: str) -> None:
        """Warn where a clip's score depends on the clips beside it."""
        few = self.rows[:_FEW]
        one, several = (self._scores(label, self._fitted[label], few[:n]) for n in (1, _FEW))
        if not np.allclose(one, several[:1], rtol=1e-3):
            warn(
                f"The scores of {label} depend on the other clips of a call, not on the normals "
                "alone. Score clips one by one, or choose another detector."
            )


def parse_pool(pool: Candidates) -> tuple[list[ScoreConfig], dict[str, Any]]:
    """Configurations of names, detectors and {label: detector or scores}, and these scorers.

    A detector is labelled by its class. Every scorer stands for its `calibrations_of`.

    >>> from sklearn.ensemble import IsolationForest
    >>> configs, scorers = parse_pool(["raw-k1", IsolationForest()])
    >>> len(configs), list(scorers)
    (8, ['IsolationForest'])
    """
    single = isinstance(pool, str | ScoreConfig | Mapping) or is_detector(pool)
    names: list[str | ScoreConfig] = []
    scorers: dict[str, Any] = {}
    for each in [pool] if single or not isinstance(pool, Iterable) else pool:
        if isinstance(each, str | ScoreConfig):
            names.append(each)
            continue
        for label, scorer in _labelled(each).items():
            if label in scorers:
                raise ConfigError(
                    f"Two scorers have the label {label!r}. Give them by label: {{label: scorer}}."
                )
            scorers[label] = scorer
            names += calibrations_of(_external_base(label))
    return parse_grid(names), scorers


def with_scorer(config: ScoreConfig, scorer: Any) -> tuple[ScoreConfig, dict[str, Any]]:
    """The configuration and the scorers of a bank with external detectors.

    A detector replaces the base score of a configuration. If the configuration names external
    scorers, ``ext-<label>`` or ``blend+<label>``, it keeps its meaning. Several detectors are given
    by label, and the configuration must name one of them.

    >>> from sklearn.svm import OneClassSVM
    >>> with_scorer(ScoreConfig.parse("zscore-hard-k1"), OneClassSVM())[0].name
    'zscore-hard-ext-OneClassSVM'
    """
    if scorer is None:
        return config, {}
    named, scorers = config.base.labels, _labelled(scorer)
    if isinstance(scorer, Mapping) or len(named) > 1:
        if not set(named) & set(scorers):
            raise ConfigError(
                f"{config.name!r} uses none of the scorers {name_list(scorers)}. Choose a "
                "configuration that names one, 'ext-<label>' or 'blend+<label>'."
            )
        return config, scorers
    if named:
        return config, {named[0]: scorer}
    label = _external_base(next(iter(scorers))).label
    return replace(config, scorer="ext", label=label), scorers


def without_tables(configs: Sequence[ScoreConfig], tables: Collection[str]) -> list[ScoreConfig]:
    """The configurations that can score any clip: those that need no table of scores."""
    return [config for config in configs if not set(config.base.labels) & set(tables)]


def is_detector(scorer: Any) -> bool:
    """Whether a scorer is fitted; others are tables of scores."""
    return hasattr(scorer, "fit") or callable(scorer)


@cache
def installed_scorers() -> dict[str, EntryPoint]:
    """Entry points of the group ``daco.scorers`` by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def installed_scorer(label: str) -> Any:
    """A new detector of an installed scorer, or a `ConfigError` that lists those installed."""
    known = installed_scorers()
    if label not in known:
        listed = f"Installed are {name_list(sorted(known))}." if known else "None is installed."
        raise ConfigError(
            f"There is no scorer {label!r}: the bank was not given one, and no package has an "
            f"entry point of that name in the group {GROUP!r}. {listed}{suggestion(label, known)}"
        )
    try:
        return known[label].load()()
    except Exception as error:  # whatever another package raises
        raise ConfigError(
            f"The installed scorer {label!r} ({known[label].value}) could not be loaded: {error}"
        ) from error


def _labelled(scorer: Any) -> dict[str, Any]:
    """Scorers by label; a detector, or a callable that returns one, has its own name."""
    if isinstance(scorer, Mapping):
        return dict(scorer)
    if not is_detector(scorer):
        raise ConfigError(
            "A scorer is a detector with 'fit', or scores of the normals by label, {label: scores}."
            f" Got {type(scorer).__name__}."
        )
    return {getattr(scorer, "__name__", type(scorer).__name__): scorer}


def _external_base(label: str) -> Base:
    base = parse_base(f"ext-{label}")
    if base is None:
        raise ConfigError(
            "A scorer's label is a letter, then letters, digits, '_' or '.'. "
            f"Got {label!r}. Give the scorer by label: {{label: scorer}}."
        )
    return base


def _table(label: str, scores: ArrayLike, count: int, what: str) -> Float64s:
    values = finite_array(scores, f"Scores of {label!r}", 1)
    if len(values) != count:
        raise InputError(
            f"Scores of {label!r} must be one for each {what}, {count} in their order. "
            f"Got {len(values)}."
        )
    return values


def _new_detector(scorer: Any, seed: int) -> Any:
    """An unfitted detector that scores new clips, the same whenever it is fitted."""
    from sklearn.base import clone

    if isclass(scorer) or not hasattr(scorer, "fit"):
        return _new_detector(scorer(), seed)
    if not hasattr(scorer, "get_params"):
        return deepcopy(scorer)
    detector = clone(scorer)
    for name, value in detector.get_params(deep=True).items():
        parameter = name.split("__")[-1]
        if parameter == "random_state" and value is None:
            detector.set_params(**{name: seed})
        # Without it LocalOutlierFactor scores nothing but the clips that it was fitted on.
        if parameter == "novelty" and value is False:
            detector.set_params(**{name: True})
    return detector


def _last_step(detector: Any) -> Any:
    """The detector itself, or the last step of a Pipeline."""
    return getattr(detector, "steps", [(None, detector)])[-1][1]


def _scoring(label: str, detector: Any, given: bool | None) -> tuple[Any, int]:
    """The method that scores clips, and 1 if its scores are high for anomalies, else -1."""
    from sklearn.base import OutlierMixin

    last = _last_step(detector)
    given = getattr(last, "higher_is_anomalous", None) if given is None else given
    method = getattr(detector, "score_samples", getattr(detector, "decision_function", None))
    if method is None:
        raise InputError(f"{label} has neither 'score_samples' nor 'decision_function'.")
    high_for_normals = hasattr(detector, "score_samples") or isinstance(last, OutlierMixin)
    if high_for_normals and given:
        raise ConfigError(
            f"{label} follows scikit-learn: its scores are high for normals. Give "
            "scorer_higher_is_anomalous to other scorers only, by label."
        )
    if not high_for_normals and given is None:
        raise ConfigError(
            f"The class of {label} does not tell whether a high 'decision_function' is anomalous. "
            "Pass scorer_higher_is_anomalous=True, as for PyOD, or False."
        )
    return method, 1 if given else -1
