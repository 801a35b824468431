"""The estimators keep scikit-learn's contract."""

from __future__ import annotations

import pytest
from sklearn.svm import OneClassSVM
from sklearn.utils.estimator_checks import parametrize_with_checks

from daco import DACo, LabelFreeSearch

pytestmark = pytest.mark.filterwarnings("ignore::daco.errors.DacoWarning")

SELF_MATCH = (
    "a clip of the bank finds itself at distance 0, so predict on the training clips raises no "
    "alarm; fit_predict leaves each clip out, as LocalOutlierFactor does"
)


def expected_failures(estimator):
    failing = {"check_outliers_train": SELF_MATCH, "check_outliers_fit_predict": SELF_MATCH}
    if getattr(estimator, "scorer", None) is not None:  # which looks for no nearest clip
        del failing["check_outliers_train"]
    return failing


@parametrize_with_checks(
    [DACo(), DACo(scorer=OneClassSVM()), LabelFreeSearch()],
    expected_failed_checks=expected_failures,
)
def test_estimator_contract(estimator, check):
    check(estimator)
