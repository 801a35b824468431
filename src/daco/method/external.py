"""External scorers: detectors of other libraries and tables of scores, as base scores.

A detector scores the normals of a bank by cross-fitting: it is fitted on some folds of the clips
and scores the others. A table has scores that some system gave to normals it had not seen.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from inspect import isclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.views import Views
from daco.errors import ConfigError, DacoWarning, InputError
from daco.method.bases import Base, parse_base
from daco.method.config import ScoreConfig, calibrations_of, parse_grid
from daco.text import name_list, suggestion
from daco.validation import Bools, Float64s, Floats, Indices, finite_array

FOLDS = 5
"""Parts of the normals; each is scored by a detector that was fitted on the others."""

GROUP = "daco.scorers"
"""Entry points of installed scorers: a name, and a callable that returns a detector."""

_FEW = 20  # clips that show whether a score depends on the others
Candidates = str | ScoreConfig | Iterable[Any]


class ExternalScorers:
    """The external scorers of a bank.

    Parameters
    ----------
    scorers : {label: detector or (N,) scores}
        A detector has ``fit`` and ``score_samples`` (high for normals) or, as in PyOD,
        ``decision_function`` (high for anomalies); a callable returns one. Clones are fitted, with
        ``random_state=0`` where it is None. Scores are held-out scores of the bank's clips.
    rows : (N, D)
        Embeddings; detectors are fitted on those of the first view.
    views : Views
        How they are divided.
    starts : (G + 1,)
        Domain g is rows ``starts[g]:starts[g + 1]``, once rows are grouped by domain.
    order : (N,)
        What groups the rows by domain.
    """

    def __init__(
        self,
        scorers: Mapping[str, Any],
        rows: Floats,
        views: Views,
        starts: Indices,
        order: Indices,
    ) -> None:
        self._views, self._starts, self._order = views, starts, order
        self._tables: dict[str, Float64s] = {}
        self._detectors: dict[str, Any] = {}
        self._fitted: dict[str, Any] = {}
        self._cross_fitted: dict[str, Float64s] = {}
        for label, scorer in scorers.items():
            self._add(label, scorer)
        self.given = dict(scorers)
        """Those that the bank was given, by label; they take part in its votes."""
        # Banks without detectors keep no second copy of the vectors.
        if self._detectors or installed_scorers():
            self._rows = views.split(rows)[0][order]

    def _add(self, label: str, scorer: Any) -> None:
        _external_base(label)
        if is_detector(scorer):
            self._detectors[label] = scorer
            return
        scores = finite_array(scorer, f"Scores of {label!r}", 1)
        if len(scores) != len(self._order):
            raise InputError(
                f"{label!r} has {len(scores)} scores, and the bank has {len(self._order)} clips. "
                "Give one held-out score for each normal, in the order of X."
            )
        self._tables[label] = scores[self._order]

    def require(self, base: Base) -> None:
        """Raise an error unless there is such a scorer, given or installed."""
        if base.label not in self._detectors and base.label not in self._tables:
            self._add(base.label, installed_scorer(base.label))

    def within(
        self, base: Base, members: Bools | None = None, groups: Sequence[Any] | None = None
    ) -> Float64s:
        """Scores (S, N) of the bank's clips, by detectors that have not seen them.

        Parameters
        ----------
        members : (S, N) bool, optional
            Parts of the bank. Clips outside are scored by the detector of all members, members by
            cross-fitting among these. None: the whole bank.
        groups : N labels, optional
            Clips of one group are in one fold.
        """
        self.require(base)
        if base.label in self._tables:
            return np.tile(self._tables[base.label], (1 if members is None else len(members), 1))
        if members is None and groups is None and base.label in self._cross_fitted:
            return self._cross_fitted[base.label]
        everyone = np.ones((1, len(self._order)), np.bool_) if members is None else members
        scores = np.empty(everyone.shape)
        for row, inside in zip(scores, everyone, strict=True):
            if not inside.all():
                row[~inside] = self._fitted_scores(base, inside, ~inside)
            folds = self._folds(inside, groups)
            for fold in range(folds.max() + 1):
                held = folds == fold
                row[held] = self._fitted_scores(base, inside & ~held, held)
        if members is None and groups is None:
            self._cross_fitted[base.label] = scores
        return scores

    def against(self, base: Base, X: Any, scores: Mapping[str, ArrayLike] | None) -> Float64s:
        """Scores (n,) of new clips: of a table those given, else by the detector of all normals."""
        self.require(base)
        rows, label = self._views.split(self._views.rows(X))[0], base.label
        if label in self._tables:
            if scores is None or label not in scores:
                raise InputError(
                    f"{base.name!r} is a table of scores. Pass the scores of the clips, too: "
                    f"scores={{{label!r}: ...}}."
                )
            values = finite_array(scores[label], f"Scores of {label!r}", 1)
            if len(values) != len(rows):
                raise InputError(f"Scores of {label!r}: {len(values)} for {len(rows)} clips.")
            return values
        if label not in self._fitted:
            detector = self._fit(base, np.ones(len(self._order), np.bool_))
            few = self._rows[:_FEW]
            together, alone = (_anomaly_scores(label, detector, each) for each in (few, few[:1]))
            if not np.allclose(together[:1], alone, rtol=1e-3):
                warnings.warn(
                    f"The scores of {label} depend on the other clips of a call, not on the "
                    "normals alone. Score clips one by one, or choose another detector.",
                    DacoWarning,
                    stacklevel=2,
                )
            self._fitted[label] = detector
        return _anomaly_scores(label, self._fitted[label], rows)

    def _folds(self, inside: Bools, groups: Sequence[Any] | None) -> NDArray[np.intp]:
        """The fold of each member, -1 for others: equal shares of each domain, drawn at random."""
        drawn = np.random.default_rng(0).permutation(len(inside))
        labels = drawn if groups is None else np.asarray(groups)[self._order]
        folds = np.full(len(inside), -1, np.intp)
        fold_of: dict[Any, int] = {}
        for start, stop in pairwise(self._starts):
            for clip in start + np.argsort(drawn[start:stop]):
                if inside[clip]:
                    folds[clip] = fold_of.setdefault(labels[clip], len(fold_of) % FOLDS)
        return folds

    def _fit(self, base: Base, members: Bools) -> Any:
        try:
            detector = _new_detector(self._detectors[base.label])
            detector.fit(self._rows[members])
        except Exception as error:  # whatever a library of others raises
            raise InputError(
                f"{base.label} could not be fitted on {int(members.sum())} clips: {error}"
            ) from error
        return detector

    def _fitted_scores(self, base: Base, members: Bools, clips: Bools) -> Float64s:
        return _anomaly_scores(base.label, self._fit(base, members), self._rows[clips])


def parse_pool(pool: Candidates) -> tuple[list[ScoreConfig], dict[str, Any]]:
    """Configurations of names, detectors and tables side by side, and the scorers among them.

    Parameters
    ----------
    pool : one or several configurations, detectors and {label: detector or scores}
        A detector is labelled by its class. Every scorer stands for its `calibrations_of`.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> from daco.method.external import parse_pool
    >>> configs, scorers = parse_pool(["raw-k1", IsolationForest()])
    >>> len(configs), list(scorers)
    (8, ['IsolationForest'])
    """
    single = isinstance(pool, str | ScoreConfig | Mapping) or is_detector(pool)
    if single or not isinstance(pool, Iterable):
        pool = [pool]
    names: list[str | ScoreConfig] = []
    scorers: dict[str, Any] = {}
    for each in pool:
        if isinstance(each, str | ScoreConfig):
            names.append(each)
            continue
        labelled = each if isinstance(each, Mapping) else {_label(each, scorers): each}
        for label, scorer in labelled.items():
            if label in scorers:
                raise ConfigError(f"Two scorers of the pool have the label {label!r}.")
            scorers[label] = scorer
            names += calibrations_of(_external_base(label))
    return parse_grid(names), scorers


def _external_base(label: str) -> Base:
    base = parse_base(f"ext-{label}")
    if base is None:
        raise ConfigError(
            f"A scorer's label is a letter, then letters, digits, '_' or '.'. Got {label!r}."
        )
    return base


def with_scorer(config: ScoreConfig, scorer: Any) -> tuple[ScoreConfig, dict[str, Any]]:
    """A configuration with a detector in the place of its base, unless that is a vote.

    Of several scorers by label, a configuration has the one that it names, and a vote has all.

    >>> from sklearn.svm import OneClassSVM
    >>> config, scorers = with_scorer(ScoreConfig.parse("zscore-hard-k1"), OneClassSVM())
    >>> config.name, list(scorers)
    ('zscore-hard-ext-OneClassSVM', ['OneClassSVM'])
    """
    if scorer is None:
        return config, {}
    if isinstance(scorer, Mapping) and scorer:
        if not config.base.is_vote and config.base.label not in scorer:
            raise ConfigError(
                f"{config.name!r} uses none of the scorers {name_list(scorer)}. Choose a vote, or "
                f"a configuration such as 'ext-{next(iter(scorer))}'."
            )
        return config, dict(scorer)
    if not is_detector(scorer):
        raise ConfigError(
            "The 'scorer' parameter must be a detector with 'fit', or several by label; an "
            f"installed scorer is a configuration, 'ext-<name>'. Got {type(scorer).__name__} "
            "instead."
        )
    base = Base("ext", label=config.base.label or _class_name(scorer))
    if not config.base.is_vote:
        config = replace(config, base=base)
    return config, {base.label: scorer}


def without_tables(configs: Sequence[ScoreConfig], tables: Collection[str]) -> list[ScoreConfig]:
    """The configurations that can score any clip: no table of scores, and no vote that counts one.

    >>> [each.name for each in without_tables(parse_grid(["raw-k1", "vote", "ext-a"]), {"a"})]
    ['raw-k1']
    """
    able = (c for c in configs if c.base.label not in tables)
    return [config for config in able if not (tables and config.base.is_vote)]


def _class_name(scorer: Any) -> str:
    """The name of a detector's class, or of the callable that returns it."""
    name = getattr(scorer, "__name__", type(scorer).__name__)
    return re.sub(r"\W", "", name, flags=re.ASCII).lstrip("0123456789_") or "scorer"


def _label(scorer: Any, before: Mapping[str, Any]) -> str:
    if not is_detector(scorer):
        raise ConfigError(
            "A pool has names of configurations, detectors with 'fit', and mappings from a label "
            f"to scores of the normals. Got {type(scorer).__name__}."
        )
    name = _class_name(scorer)
    names = (f"{name}{number}" for number in range(2, len(before) + 2))
    return next(label for label in (name, *names) if label not in before)


@cache
def installed_scorers() -> dict[str, Any]:
    """Entry points of the group ``daco.scorers`` by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def installed_scorer(label: str) -> Any:
    """A new detector of an installed scorer."""
    known = installed_scorers()
    if label not in known:
        listed = f"Installed are {name_list(sorted(known))}." if known else "None is installed."
        raise ConfigError(
            f"There is no scorer {label!r}: the bank was not given one, and no package has an "
            f"entry point of that name in the group {GROUP!r}. {listed}{suggestion(label, known)}"
        )
    try:
        return _new_detector(known[label].load())
    except Exception as error:  # whatever a package of others raises
        raise ConfigError(
            f"The installed scorer {label!r} ({known[label].value}) could not be loaded: {error}"
        ) from error


def is_detector(scorer: Any) -> bool:
    """Whether a scorer is fitted, or a table of scores."""
    return hasattr(scorer, "fit") or callable(scorer)


def _new_detector(scorer: Any) -> Any:
    """An unfitted detector that scores new clips, the same whenever it is fitted."""
    from sklearn.base import clone

    if isclass(scorer) or not hasattr(scorer, "fit"):
        detector = scorer()
    elif hasattr(scorer, "get_params"):
        detector = clone(scorer)
    else:
        detector = deepcopy(scorer)
    if hasattr(detector, "get_params"):
        for name, value in detector.get_params(deep=True).items():
            parameter = name.split("__")[-1]
            if parameter == "random_state" and value is None:
                detector.set_params(**{name: 0})
            # Without it LocalOutlierFactor scores nothing but the clips that it was fitted on.
            if parameter == "novelty" and value is False:
                detector.set_params(**{name: True})
    return detector


def _anomaly_scores(label: str, detector: Any, rows: Floats) -> Float64s:
    """Scores that are high for anomalies, (n,)."""
    from sklearn.base import OutlierMixin

    last = getattr(detector, "steps", [(None, detector)])[-1][1]  # of a Pipeline
    # Scores of one-class SVMs grow with the number of clips, and folds have fewer than the bank.
    scale = -np.sum(getattr(last, "dual_coef_", 1.0))
    method = getattr(detector, "score_samples", None)
    if method is None:
        method = getattr(detector, "decision_function", None)
        if not isinstance(last, OutlierMixin):
            scale = -scale  # PyOD's are high for anomalies
    if method is None:
        raise InputError(f"{label} has neither 'score_samples' nor 'decision_function'.")
    try:
        values: ArrayLike = method(rows.copy())  # it may change them
    except Exception as error:  # whatever a library of others raises
        raise InputError(f"{label} could not score {len(rows)} clips: {error}") from error
    scores = np.asarray(values, np.float64)
    if scores.shape != (len(rows),) or not np.isfinite(scores).all():
        raise InputError(
            f"{label} must give one finite score for each of {len(rows)} clips. Got the shape "
            f"{scores.shape}, {int((~np.isfinite(scores)).sum())} of the values not finite."
        )
    return scores / scale
