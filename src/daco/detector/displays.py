"""Pictures of fitted detectors, as scikit-learn's displays are: ``Display.from_estimator(...)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from daco.detector.decision import is_anomalous
from daco.errors import InputError
from daco.method.bank import Clips, Domains
from daco.validation import Float64s, match_domains

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from daco.detector.estimator import DACo, Detector
    from daco.detector.search import LabelFreeSearch


class _Display:
    """A picture that can be drawn again on other axes; `ax_` and `figure_` are the last ones."""

    ax_: Axes
    figure_: Any

    def _axes(self, ax: Axes | None) -> Axes:
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots()
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class ScoreDisplay(_Display):
    """Histogram of anomaly scores in each domain, with the limit above which clips are anomalous.

    Parameters
    ----------
    scores : {domain: (n,)}
    limits : {domain: float}

    Examples
    --------
    >>> import daco, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> detector = daco.DACo().fit(X, domains=["old"] * 40 + ["new"] * 20)
    >>> daco.ScoreDisplay.from_estimator(detector).ax_.get_xlabel()
    'anomaly score'
    """

    def __init__(self, scores: Mapping[Any, Float64s], limits: Mapping[Any, float]) -> None:
        self.scores = scores
        self.limits = limits

    @classmethod
    def from_estimator(
        cls,
        estimator: Detector,
        X: Clips | None = None,
        domains: Domains | None = None,
        *,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the scores of clips of known domain, by default the reference scores."""
        detector = estimator._fitted()
        values, codes = detector.reference_.scores, detector.reference_.clip_domains
        if X is not None:
            values = detector.anomaly_score(X)
            codes = _codes(detector, domains, len(values))
        scores = {name: values[codes == g] for g, name in enumerate(detector.domains_)}
        return cls(scores, estimator.thresholds_).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw the histograms."""
        axes = self._axes(ax)
        everything = np.concatenate(list(self.scores.values()))
        edges = np.histogram_bin_edges(everything, bins=30).tolist()
        for number, (name, values) in enumerate(self.scores.items()):
            colour = f"C{number}"
            shares = np.full(len(values), 1 / max(1, len(values)))
            axes.hist(values, edges, weights=shares, alpha=0.5, color=colour, label=str(name))
            axes.axvline(self.limits[name], color=colour, linestyle="--")
        axes.set(xlabel="anomaly score", ylabel="share of the domain")
        axes.legend(title="dashed: limit", loc="upper right")
        return self


class CalibrationDisplay(_Display):
    """Share of normal clips that are called anomalous at every false-alarm rate, by domain.

    The diagonal is a detector that keeps its word in every domain.

    Parameters
    ----------
    p_values : {domain: (n,)}
        P-values of normal clips.

    Examples
    --------
    >>> import daco, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> detector = daco.DACo().fit(rng.normal(size=(60, 16)) + 1)
    >>> display = daco.CalibrationDisplay.from_estimator(detector, rng.normal(size=(40, 16)) + 1)
    >>> display.ax_.get_xlabel()
    'false-alarm rate that was asked for'
    """

    def __init__(self, p_values: Mapping[Any, Float64s]) -> None:
        self.p_values = p_values

    @classmethod
    def from_estimator(
        cls,
        estimator: Detector,
        X: Clips,
        domains: Domains | None = None,
        *,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the rates on normal clips that are not in the bank, of known domains."""
        detector = estimator._fitted()
        values = detector.p_values(X)
        codes = _codes(detector, domains, len(values))
        by_domain = {name: values[codes == g] for g, name in enumerate(detector.domains_)}
        return cls({name: each for name, each in by_domain.items() if len(each)}).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw a line for each domain."""
        axes = self._axes(ax)
        rates = np.linspace(0, 0.5, 201)[1:]
        axes.plot([0, 0.5], [0, 0.5], color="0.6", linewidth=1, label="as asked for")
        for name, values in self.p_values.items():
            realised = [is_anomalous(values, rate).mean() for rate in rates]
            axes.step(rates, realised, where="post", label=f"{name} ({len(values)} clips)")
        axes.set(xlabel="false-alarm rate that was asked for", ylabel="share called anomalous")
        axes.set(xlim=(0, 0.5), ylim=(0, 1))
        axes.legend(loc="upper left")
        return self


class CriterionDisplay(_Display):
    """Criterion of each candidate with the middle 90 % of its resamples; small is balanced.

    Parameters
    ----------
    configs, chosen : sequence of str, str
    criterion, resampled : (C,), (C, R)

    Examples
    --------
    >>> import daco, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 8)) + 1
    >>> search = daco.LabelFreeSearch(n_splits=20).fit(X, domains=["a"] * 40 + ["b"] * 20)
    >>> daco.CriterionDisplay.from_estimator(search).ax_.get_xlabel()
    'criterion (KS distance between domains)'
    """

    def __init__(
        self, configs: Sequence[str], criterion: Float64s, resampled: Float64s, chosen: str
    ) -> None:
        self.configs = configs
        self.criterion = criterion
        self.resampled = resampled
        self.chosen = chosen

    @classmethod
    def from_estimator(cls, estimator: LabelFreeSearch, *, ax: Axes | None = None) -> Self:
        """Draw the comparison of a fitted search."""
        estimator._fitted()
        choice = estimator.choice_
        if choice.balance is None:
            raise InputError(f"There is no criterion to draw: {choice.reason}.")
        criterion, resampled = choice.balance.values, choice.balance.resampled
        return cls(list(choice.criterion), criterion, resampled, choice.config).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw one row for each candidate, the first on top."""
        axes = self._axes(ax)
        rows = np.arange(len(self.configs))[::-1]
        if self.resampled.size:
            low, high = np.nanquantile(self.resampled, (0.05, 0.95), axis=1)
            axes.hlines(rows, low, high, color="0.7", label="middle 90 % of the resamples")
        colours = ["C1" if name == self.chosen else "C0" for name in self.configs]
        axes.scatter(self.criterion, rows, c=colours, zorder=3)
        axes.set_yticks(rows, list(self.configs))
        axes.set(xlabel="criterion (KS distance between domains)", title=f"chosen: {self.chosen}")
        return self


def _codes(detector: DACo, domains: Domains | None, n: int) -> Any:
    if domains is None and len(detector.domains_) > 1:
        raise InputError("Pass the true domains of the clips: domains=...")
    names = [detector.domains_[0]] * n if domains is None else domains
    return match_domains(names, detector.domains_, n, "domains")
