"""Metrics against numbers nobody here computed: golden files and the paper's artifacts."""

from __future__ import annotations

import csv
from collections import defaultdict

import numpy as np
import pytest
from shared_data import shared

from daco.evaluation.metrics import QUANTITIES, false_positive_rates, grid_metrics

MACHINES = ("ToyCar", "ToyTrain", "bearing", "fan", "gearbox", "slider", "valve")


def published(*parts):
    return shared("published", "daco-experiments", *parts)


def read_rows(name):
    with published("results", name).open(newline="") as file:
        return list(csv.DictReader(file))


def raw_clips(machine):
    """Scores, labels and domains of a released file; the file names carry the truth."""
    name = f"anomaly_score_{machine}_section_00_test.csv"
    path = published("release", "scores", "raw-k1", "dev", name)
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    _, _, domains, _, kinds = zip(*(name.split("_")[:5] for name, _ in rows), strict=True)
    scores = np.array([float(score) for _, score in rows])
    return scores, np.array(kinds) == "anomaly", np.array(domains)


def test_golden_metrics_of_51_configurations():
    paths = sorted(shared("golden", "method").glob("*.npz"))
    assert paths
    for path in paths:
        with np.load(path) as golden:
            domains = np.where(golden["test_domains"] == 1, "target", "source")
            values, columns = grid_metrics(golden["scores"].T, golden["labels"], domains)
            assert columns == QUANTITIES
            assert np.abs(values - golden["metrics"]).max() < 1e-12, path.name


def published_raw_rates():
    rates = defaultdict(dict)
    for row in read_rows("fpr_coverage.csv"):
        if row["system"] == "raw" and row["machine"] in MACHINES:
            key = row["machine"], float(row["nominal_fpr"])
            rates[key][row["domain"]] = float(row["empirical_fpr"])
    assert len(rates) == 5 * len(MACHINES)
    return rates


def test_published_false_alarm_rates_of_raw_scores_come_from_one_threshold():
    # The raw thresholds rest on training scores that were not released, but one threshold for
    # both domains must exist for every published pair of rates.
    for (machine, level), wanted in published_raw_rates().items():
        scores, labels, domains = raw_clips(machine)
        rates = false_positive_rates(scores, labels, domains, np.unique(scores))
        rows = [dict(zip(rates, row, strict=True)) for row in zip(*rates.values(), strict=True)]
        assert any(row == pytest.approx(wanted, abs=1e-9) for row in rows), (machine, level)
