"""Metrics against numbers nobody here computed: golden files and the paper's artifacts."""

from __future__ import annotations

import csv
from collections import defaultdict

import numpy as np
import pytest
from shared_data import shared

from daco.evaluation.metrics import (
    false_positive_rates,
    fpr_coverage,
    grid_metrics,
    machine_metrics,
    official_score,
)

MACHINES = ("ToyCar", "ToyTrain", "bearing", "fan", "gearbox", "slider", "valve")
QUANTITIES = ("auc_source", "auc_target", "pauc")


def published(*parts):
    return shared("published", "daco-experiments", *parts)


def read_rows(name):
    with published("results", name).open(newline="") as file:
        return list(csv.DictReader(file))


def dev_clips(config, machine):
    """Scores, labels and domains of a released file; the file names carry the truth."""
    path = published(
        "release", "scores", config, "dev", f"anomaly_score_{machine}_section_00_test.csv"
    )
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    _, _, domains, _, kinds = zip(*(name.split("_")[:5] for name, _ in rows), strict=True)
    scores = np.array([float(score) for _, score in rows])
    return scores, np.array(kinds) == "anomaly", np.array(domains)


def released_configs():
    folders = published("release", "scores").glob("*/dev")
    configs = sorted(folder.parent.name for folder in folders)
    assert len(configs) == 13
    return configs


def test_golden_metrics_of_51_configurations():
    paths = sorted(shared("golden", "method").glob("*.npz"))
    assert paths
    for path in paths:
        with np.load(path) as golden:
            domains = np.where(golden["test_domains"] == 1, "target", "source")
            values, columns = grid_metrics(golden["scores"].T, golden["labels"], domains)
            assert columns == QUANTITIES
            assert np.abs(values - golden["metrics"]).max() < 1e-12, path.name


def test_published_metrics_of_every_released_dev_machine():
    # Printed with two decimals of a percent, so half of the last digit is all they say.
    wanted = {
        (row["config"], row["machine"]): [float(row[quantity]) for quantity in QUANTITIES]
        for row in read_rows("e45_beats_per_machine.csv")
        if row["split"] == "dev"
    }
    for config in released_configs():
        for machine in MACHINES:
            metrics = machine_metrics(*dev_clips(config, machine))
            ours = [100 * metrics[quantity] for quantity in QUANTITIES]
            assert ours == pytest.approx(wanted[config, machine], abs=0.005 + 1e-9), (
                config,
                machine,
            )


def test_published_dev_official_scores():
    # Printed with four decimals of a percent.
    wanted = {row["config"]: float(row["dev_omega"]) for row in read_rows("e45_beats_grid.csv")}
    for config in released_configs():
        metrics = {machine: machine_metrics(*dev_clips(config, machine)) for machine in MACHINES}
        score = 100 * official_score(metrics)
        assert score == pytest.approx(wanted[config], abs=0.00005 + 1e-9), config


def published_rates(system):
    rates = defaultdict(dict)
    for row in read_rows("fpr_coverage.csv"):
        if row["system"] == system and row["machine"] in MACHINES:
            key = row["machine"], float(row["nominal_fpr"])
            rates[key][row["domain"]] = float(row["empirical_fpr"])
    assert len(rates) == 5 * len(MACHINES)
    return rates


def test_published_false_alarm_rates_of_calibrated_scores():
    wanted = published_rates("daco-m0")
    for machine in MACHINES:
        for row in fpr_coverage(*dev_clips("conf-soft-m0-k1", machine)):
            # The released rates are multiples of 1/50: any difference would be at least 0.02.
            assert row.rates == pytest.approx(wanted[machine, row.level], abs=1e-9), machine


def test_published_false_alarm_rates_of_raw_scores_come_from_one_threshold():
    # The raw thresholds rest on training scores that were not released, but one threshold for
    # both domains must exist for every published pair of rates.
    for (machine, level), wanted in published_rates("raw").items():
        scores, labels, domains = dev_clips("raw-k1", machine)
        rates = false_positive_rates(scores, labels, domains, np.unique(scores))
        rows = [dict(zip(rates, row, strict=True)) for row in zip(*rates.values(), strict=True)]
        assert any(row == pytest.approx(wanted, abs=1e-9) for row in rows), (machine, level)
