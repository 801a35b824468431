"""Pictures of detectors: what they draw, and what they need."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import daco
from daco.errors import InputError

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(80, 8)) + 1, RNG.normal(size=(40, 8)) + 1
DOMAINS = ["old"] * 60 + ["young"] * 20
TRUE = ["old"] * 30 + ["young"] * 10


@pytest.fixture(autouse=True)
def _close():
    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def detector():
    return daco.DACo().fit(X, domains=DOMAINS)


def test_scores_are_drawn_by_domain_with_their_limits(detector):
    display = daco.ScoreDisplay.from_estimator(detector)
    lines = {line.get_xdata()[0] for line in display.ax_.lines}
    assert lines == set(detector.thresholds_.values())
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == ["old", "young"]
    shares = [sum(bar.get_height() for bar in bars) for bars in display.ax_.containers]
    assert shares == pytest.approx([1, 1])
    assert sum(map(len, display.scores.values())) == 80
    other = daco.ScoreDisplay.from_estimator(detector, NEW, TRUE)
    np.testing.assert_array_equal(other.scores["old"], detector.anomaly_score(NEW)[:30])


def test_calibration_is_the_share_of_p_values_at_most_each_rate(detector):
    display = daco.CalibrationDisplay.from_estimator(detector, NEW, TRUE)
    p_values = detector.p_values(NEW)
    np.testing.assert_array_equal(display.p_values["young"], p_values[30:])
    old = display.ax_.lines[1]  # the first is the diagonal
    rates, realised = old.get_data()
    np.testing.assert_allclose(realised, [(p_values[:30] <= r * (1 + 1e-9)).mean() for r in rates])
    with pytest.raises(InputError, match="true domains"):
        daco.CalibrationDisplay.from_estimator(detector, NEW)


def test_the_criterion_of_every_candidate_is_a_row():
    pool = ["raw-k1", "conf-soft-m0-k1"]
    search = daco.LabelFreeSearch(pool, n_splits=10).fit(X, domains=DOMAINS)
    display = daco.CriterionDisplay.from_estimator(search)
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == pool
    np.testing.assert_allclose(display.criterion, search.cv_results_["mean_criterion"])
    assert search.best_params_["config"] in display.ax_.get_title()
    with pytest.raises(InputError, match="no criterion to draw"):
        daco.CriterionDisplay.from_estimator(daco.LabelFreeSearch(pool, n_splits=2).fit(X))


def test_pictures_are_drawn_on_given_axes_and_again(detector):
    _, (left, right) = plt.subplots(1, 2)
    display = daco.ScoreDisplay.from_estimator(detector, ax=left)
    assert display.ax_ is left
    assert display.plot(ax=right).ax_ is right
    assert display.figure_ is right.figure
    alone = daco.DACo().fit(X)
    assert list(daco.CalibrationDisplay.from_estimator(alone, NEW).p_values) == ["all"]
    assert daco.ScoreDisplay.from_estimator(alone, NEW).limits == alone.thresholds_


def test_what_is_not_fitted_is_refused():
    with pytest.raises(NotFittedError):
        daco.ScoreDisplay.from_estimator(daco.DACo())
    with pytest.raises(NotFittedError):
        daco.CriterionDisplay.from_estimator(daco.LabelFreeSearch())
