"""700 random machines against the protocol's definition, word for word and in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from daco.evaluation.metrics import EPSILON, machine_metrics, official_score

TRIALS = 700
MAX_FPR = Fraction(1, 10)


def auc(normals, anomalies):
    """Share of pairs in which the anomaly scores higher; a tie is half a pair."""
    won = Fraction(0)
    for anomaly in anomalies:
        for normal in normals:
            if anomaly > normal:
                won += 1
            elif anomaly == normal:
                won += Fraction(1, 2)
    return won / (len(normals) * len(anomalies))


def roc(normals, anomalies):
    """Corners of the curve, from (0, 0), one for each threshold from the highest score down."""
    corners = [(Fraction(0), Fraction(0))]
    for threshold in sorted({*normals, *anomalies}, reverse=True):
        false_alarms = sum(score >= threshold for score in normals)
        hits = sum(score >= threshold for score in anomalies)
        corners.append((Fraction(false_alarms, len(normals)), Fraction(hits, len(anomalies))))
    return corners


def partial_auc(normals, anomalies):
    """Area under the curve up to the largest false-positive rate, McClish-standardised."""
    area = Fraction(0)
    corners = roc(normals, anomalies)
    for (x0, y0), (x1, y1) in pairwise(corners):
        if x0 >= MAX_FPR:
            break
        if x1 > MAX_FPR:  # cut the segment where it leaves the range
            y1 = y0 + (y1 - y0) * (MAX_FPR - x0) / (x1 - x0)
            x1 = MAX_FPR
        area += (x1 - x0) * (y0 + y1) / 2
    lowest, highest = MAX_FPR**2 / 2, MAX_FPR
    return (1 + (area - lowest) / (highest - lowest)) / 2


def literal(scores, labels, domains):
    anomalies = [score for score, label in zip(scores, labels, strict=True) if label]
    normals = [score for score, label in zip(scores, labels, strict=True) if not label]
    clips = list(zip(scores, labels, domains, strict=True))
    result = {}
    for domain in ("source", "target"):
        own = [score for score, label, where in clips if not label and where == domain]
        result[f"auc_{domain}"] = auc(own, anomalies)
    result["pauc"] = partial_auc(normals, anomalies)
    return result


def literal_official(machines):
    values = [max(value, Fraction(EPSILON)) for machine in machines for value in machine.values()]
    return len(values) / sum(1 / value for value in values)


def random_machine(rng):
    """Few or many clips, unbalanced domains, ties, constant, perfect and inverted scores."""
    most = int(rng.choice([2, 5, 12, 30]))
    sizes = rng.integers(1, most + 1, size=4)  # normal and anomalous, source and target
    sizes[3] *= rng.random() < 0.8  # anomalies of one domain only
    labels = np.repeat([0, 0, 1, 1], sizes)
    domains = np.repeat(["source", "target", "source", "target"], sizes)
    kind = rng.choice(["continuous", "tied", "constant", "perfect", "inverted"], p=_SHARES)
    scores = rng.normal(size=len(labels)) + rng.uniform(-1, 2) * labels
    if kind == "tied":
        scores = np.round(scores * rng.choice([0.5, 1, 3]))
    elif kind == "constant":
        scores = np.full(len(labels), rng.normal())
    elif kind != "continuous":
        scores = np.abs(scores) + np.where(labels == (kind == "perfect"), 100, 0)
    order = rng.permutation(len(labels))
    return scores[order].tolist(), labels[order].tolist(), domains[order].tolist()


_SHARES = (0.4, 0.45, 0.05, 0.05, 0.05)


@pytest.fixture(scope="module")
def trials():
    rng = np.random.default_rng(20260713)
    machines = [random_machine(rng) for _ in range(TRIALS)]
    return [(literal(*clips), machine_metrics(*clips)) for clips in machines]


def test_auc_is_the_exact_share_of_pairs_and_pauc_the_exact_area_rounded_once(trials):
    for exact, ours in trials:
        assert ours == {name: float(value) for name, value in exact.items()}
        assert list(ours) == list(exact)


def test_the_official_score_is_the_harmonic_mean_of_all_machines(trials):
    # Fifteen reciprocals, their sum and its reciprocal round after the metrics did: at most 16
    # relative errors of 2**-53 in a row. Measured: 7.5.
    for first in range(0, TRIALS, 5):
        exact, ours = zip(*trials[first : first + 5], strict=True)
        wanted = literal_official(exact)
        assert abs(Fraction(official_score(ours)) / wanted - 1) < Fraction(16, 2**53)


def test_the_trials_hold_what_they_are_for(trials):
    """Extremes, chance, and values between: a generator of easy cases would prove nothing."""
    found = {float(exact["auc_source"]) for exact, _ in trials}
    assert {0.0, 0.5, 1.0} <= found
    assert len(found) > 200
    assert {float(exact["pauc"]) for exact, _ in trials} >= {0.5, 1.0, 9 / 19}
