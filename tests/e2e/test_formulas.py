"""Every formula of the manual is what the library computes, or a quotation of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pages import DOCS
from scipy.stats import t

import daco
from daco.detector.decision import ReferenceScores
from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.evaluation.official import score_difference, score_estimate
from daco.method import paper
from daco.monitoring.alarms import AlarmRule

_MARKED = re.compile(r"^% formula: (\S+)\n```python\n(.*?)^```$", re.M | re.S)
_CLOSE = {"rtol": 1e-10, "atol": 1e-12}
"""Quantities of order 1 in float64: a few roundings of 1e-16."""


def marked_formulas(page: str) -> dict[str, str]:
    """The code below each ``% formula: name`` of a page."""
    return dict(_MARKED.findall((DOCS / page).read_text(encoding="utf-8")))


# --------------------------------------------------------------------------------------- concepts

CONCEPTS = marked_formulas("concepts.md")


def check_p_value(found: Any) -> None:
    rng = np.random.default_rng(1)
    scores, codes = rng.normal(size=40), np.repeat([0, 1], [29, 11])
    reference = ReferenceScores(scores, codes, ("source", "target"))
    parts = [scores[codes == code] for code in (0, 1)]
    for a, share in [(-3.0, 0.5), (0.1, 0.9), (scores[3], 0.3), (scores[35], 0.0)]:
        weights = np.array([share, 1 - share])
        expected = reference.p_values([a], [weights])[0]
        np.testing.assert_allclose(found(a, weights, parts), expected, **_CLOSE)
    far, certain = scores.max() + 1, np.array([1.0, 0.0])
    smallest = reference.smallest(certain)
    np.testing.assert_allclose(found(far, certain, parts), smallest, **_CLOSE)
    p_value = reference.p_values([far], [certain])[0]
    assert p_value < smallest
    assert reference.extrapolated(p_value, certain)


def check_alarm(found: Any) -> None:
    rule = AlarmRule()
    assert found([0.9, 0.1, 0.2, 0.01, 0.3, 0.1])
    assert not found([0.1, 0.1, 0.2, 0.01, 0.3, 0.9])
    assert found.__defaults__ == (daco.DACo().false_alarm_rate, rule.k, rule.n)


def check_interval(found: Any) -> None:
    metrics = np.random.default_rng(3).uniform(55, 65, (6, 3))
    score, reach = paper.official_score(metrics), found(metrics)
    machines = pd.DataFrame(metrics, columns=QUANTITIES).assign(
        machine=list("abcdef"), section="00", configuration="x"
    )
    known = score_estimate(machines)
    assert (score - reach, score + reach) == pytest.approx((known.low, known.high), abs=1e-9)


CHECKS = {
    "p-value": ("p_value", check_p_value),
    "alarm": ("alarm", check_alarm),
    "interval-over-machines": ("reach", check_interval),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_formula_of_the_concepts_is_what_the_library_computes(name):
    assert list(CONCEPTS) == list(CHECKS)
    page: dict[str, Any] = {"np": np, "t": t, "paper": paper}
    for code in CONCEPTS.values():
        exec(code, page)
    function, check = CHECKS[name]
    check(page[function])


def test_the_pictures_of_the_concepts_are_those_that_their_script_draws(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import concept_pictures

    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    drawn = concept_pictures.draw_all()
    assert re.findall(r"\]\(_static/([\w.-]+)\)", text) == list(drawn)
    for name, content in drawn.items():
        kept = (DOCS / "_static" / name).read_text(encoding="utf-8")
        assert _words(kept) == _words(content.decode())


def _words(svg: str) -> list[str]:
    """All text of a picture: its labels, and the numbers in them."""
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


# ---------------------------------------------------------------------------------------- metrics

METRICS = marked_formulas("reference/metrics.md")


@pytest.mark.parametrize("seed", range(5))
def test_the_formulas_of_the_metrics_are_what_the_library_computes(seed):
    assert list(METRICS) == ["auc", "pauc", "official-score", "jackknife"]
    rng = np.random.default_rng(seed)
    labels, domains = (
        np.repeat([0, 1], [30, 25]),
        rng.permutation(np.resize(["source", "target"], 55)),
    )
    scores = np.round(rng.normal(size=55) + labels, 1)  # with ties
    page = {"np": np, "t": t, "scores": scores, "domains": domains}
    page |= {"normal": labels == 0, "anomalous": scores[labels == 1]}
    for code in METRICS.values():
        exec(code, page)
    expected = daco.machine_metrics(scores, labels, domains)
    found = [page[name] for name in ("auc_source", "auc_target", "partial")]
    np.testing.assert_allclose(found, list(expected.values()), **_CLOSE)
    table = rng.uniform(40, 60, (2, 6, 3))
    left_out = [
        page["official"](np.delete(table[0], i, 0)) - page["official"](np.delete(table[1], i, 0))
        for i in range(6)
    ]
    se, reach = page["jackknife"](left_out)
    first, second = (
        pd.DataFrame(each, columns=QUANTITIES).assign(
            machine=range(6), section="00", configuration="a"
        )
        for each in table
    )
    known = score_difference(first, second)
    assert known.high - known.value == pytest.approx(se * reach)
    assert page["official"]([0.0, 1.0]) == pytest.approx(harmonic_mean([0.0, 1.0]), rel=0.02)
