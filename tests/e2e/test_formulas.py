"""Every formula of the manual, evaluated on random data, is what the library computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from pages import DOCS

import daco
from daco.detector.reference import ReferenceScores
from daco.evaluation.intervals import machine_jackknife, score_interval
from daco.evaluation.metrics import f1_ev, harmonic_mean
from daco.method.bank import NormalBank
from daco.method.bases import SCORERS
from daco.method.calibration import QuantileMap
from daco.method.criterion import held_out_halves, ks_distance
from daco.monitoring.alarms import AlarmRule

NAMES = ["source", "target"]
_MARKED = re.compile(r"^% formula: (\S+)\n```python\n(.*?)^```$", re.M | re.S)
_ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|", re.M)
_CLOSE = {"rtol": 1e-10, "atol": 1e-12}
"""Distances are of order 1 in float64: a few roundings of 1e-16, in a logarithm of 1e-3 more."""


def marked_formulas(page: str) -> dict[str, str]:
    """The code below each ``% formula: name`` of a page."""
    return dict(_MARKED.findall((DOCS / page).read_text(encoding="utf-8")))


def tables(page: str) -> dict[str, dict[str, str]]:
    """Formulas by name, in the tables of each section of a page."""
    sections = re.split(r"^## ", (DOCS / page).read_text(encoding="utf-8"), flags=re.M)
    found = {part.splitlines()[0]: dict(_ROW.findall(part)) for part in sections[1:]}
    return {title: rows for title, rows in found.items() if rows}


def random_machine(seed: int) -> dict[str, Any]:
    """Normals in an order that mixes the domains, one clip, and a far one."""
    rng = np.random.default_rng(seed)
    domains = rng.permutation(np.repeat(NAMES, [28, 12]))
    X = rng.normal(size=(40, 6)) + 1.5
    clip = rng.normal(size=6) if seed % 2 else X[3] + 0.3 * rng.normal(size=6)
    return {"X": X, "domains": domains, "clip": clip, "names": NAMES}


# --------------------------------------------------------------------------------------- concepts

CONCEPTS = marked_formulas("concepts.md")


def run_concepts(seed: int) -> dict[str, Any]:
    """The names that the formulas of the page define for a random machine, in its order."""
    from scipy.stats import norm, t

    names = {"np": np, "norm": norm, "t": t, "daco": daco, **random_machine(seed)}
    names["bank"] = NormalBank(names["X"], names["domains"])
    for code in CONCEPTS.values():
        exec(code, names)
    return names


def check_distances(page: dict[str, Any]) -> None:
    row, distance = page["bank"].nearest([page["clip"]])
    assert page["d"].argmin() == row[0]
    np.testing.assert_allclose(page["d"].min(), distance[0], **_CLOSE)


def check_base_score(page: dict[str, Any]) -> None:
    np.testing.assert_allclose(page["a"], scored(page, "raw-k1"), **_CLOSE)


def check_leave_one_out(page: dict[str, Any]) -> None:
    expected = page["bank"].leave_one_out("raw-k1")[:, 0]
    np.testing.assert_allclose(page["own"], expected, **_CLOSE)


def check_quantile_map(page: dict[str, Any]) -> None:
    own = page["own"]
    scores = [0, own.min() / 2, np.median(own), own.max(), 3 * own.max()]
    found = [page["quantile"](a, own) for a in scores]
    np.testing.assert_allclose(found, QuantileMap.fit(own)(scores), **_CLOSE)


def check_shrinkage(page: dict[str, Any]) -> None:
    for m in (0, 10, 300):
        found = page["weights"] @ [page["shrunk"](page["a"], g, m) for g in NAMES]
        np.testing.assert_allclose(found, scored(page, f"conf-soft-m{m}-k1"), **_CLOSE)


def check_weights(page: dict[str, Any]) -> None:
    expected = page["bank"].domain_weights([page["clip"]], "conf-soft-m0-k1")[0]
    np.testing.assert_allclose(page["weights"], expected, **_CLOSE)


def check_calibrated(page: dict[str, Any]) -> None:
    np.testing.assert_allclose(page["calibrated"], scored(page, "conf-soft-m0-k1"), **_CLOSE)


def check_ks(page: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(9, size=12), rng.integers(2, 12, size=5)
        assert page["ks"](a, b) == pytest.approx(ks_distance(a, b), abs=1e-15)


def check_criterion(page: dict[str, Any]) -> None:
    order = np.argsort(page["domains"], kind="stable")
    held = np.zeros((4, len(order)), bool)
    held[:, order] = held_out_halves([28, 12], 4)
    for config in ("raw-k1", "conf-soft-m10-k1"):
        found = np.mean([page["imbalance"](split, config) for split in held])
        assert found == pytest.approx(page["bank"].balance(config, n_splits=4)[0], abs=1e-12)


def check_vote(page: dict[str, Any]) -> None:
    np.testing.assert_allclose(page["vote"], scored(page, "vote"), **_CLOSE)


def check_p_values(page: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    reference, codes = rng.normal(size=40), np.repeat([0, 1], [29, 11])
    known = ReferenceScores(reference, codes, tuple(NAMES))
    for a, share in [(-3.0, 0.5), (0.1, 0.9), (1.5, 0.3), (4.0, 0.0), (9.0, 1.0)]:
        weights = np.array([share, 1 - share])
        found = page["clip_p_value"](a, weights, reference, codes)
        np.testing.assert_allclose(found, known.p_values([a], [weights])[0], **_CLOSE)


def check_alarm(page: dict[str, Any]) -> None:
    rule = AlarmRule()
    found = page["alarm"]
    assert found([0.9, 0.1, 0.2, 0.01, 0.3, 0.1])
    assert not found([0.1, 0.1, 0.2, 0.01, 0.3, 0.9])
    assert found.__defaults__ == (daco.DACo().false_alarm_rate, rule.k, rule.n)


def check_official_score(page: dict[str, Any]) -> None:
    metrics = np.random.default_rng(2).uniform(0.3, 1, (4, 3))
    machines = [
        dict(zip(("auc_source", "auc_target", "pauc"), row, strict=True)) for row in metrics
    ]
    assert page["official"](metrics) == pytest.approx(daco.official_score(machines), abs=1e-12)


def check_interval(page: dict[str, Any]) -> None:
    metrics = np.random.default_rng(3).uniform(55, 65, (6, 3))
    score, reach = page["official"](metrics), page["reach"](metrics)
    assert (score - reach, score + reach) == pytest.approx(score_interval(metrics), abs=1e-9)


CHECKS = {
    "distance": check_distances,
    "base-score": check_base_score,
    "leave-one-out-scores": check_leave_one_out,
    "quantile-map": check_quantile_map,
    "shrinkage": check_shrinkage,
    "soft-weights": check_weights,
    "calibrated-score": check_calibrated,
    "Kolmogorov-Smirnov-distance": check_ks,
    "criterion": check_criterion,
    "member": check_vote,
    "vote": check_vote,
    "p-value": check_p_values,
    "p-value-of-a-clip": check_p_values,
    "alarm": check_alarm,
    "official-score": check_official_score,
    "interval-over-machines": check_interval,
}


def scored(page: dict[str, Any], config: str) -> float:
    return float(page["bank"].score([page["clip"]], config)[0, 0])


def test_every_formula_of_the_concepts_is_checked():
    assert list(CONCEPTS) == list(CHECKS)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_formulas_of_the_concepts_are_what_the_library_computes(seed):
    page = run_concepts(seed)
    for check in CHECKS.values():
        check(page)


def test_the_formulas_in_sentences_are_what_the_library_computes():
    position, tail = "i / (n + 1)", "-log(1-score)"
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    assert f"`{position}`" in text
    assert f"`{tail}`" in text
    own = np.sort(np.random.default_rng(4).random(7))
    expected = [eval(position, {"i": i, "n": 7}) for i in range(1, 8)]
    np.testing.assert_allclose(QuantileMap.fit(own)(own), expected, **_CLOSE)
    bounded = ReferenceScores(own, [0] * 7, ("all",), bounded=True)
    scaled = ReferenceScores(eval(tail, {"log": np.log, "score": own}), [0] * 7, ("all",))
    score = (1 + own[-1]) / 2
    found = scaled.p_values([eval(tail, {"log": np.log, "score": score})], [[1.0]])
    np.testing.assert_allclose(bounded.p_values([score], [[1.0]]), found, **_CLOSE)


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


def test_every_formula_of_the_metrics_is_checked():
    assert list(METRICS) == ["auc", "pauc", "official-score", "f1-ev", "jackknife"]


@pytest.mark.parametrize("seed", range(5))
def test_the_formulas_of_the_metrics_are_what_the_library_computes(seed):
    from scipy.stats import t

    rng = np.random.default_rng(seed)
    labels, domains = np.repeat([0, 1], [30, 25]), rng.permutation(np.resize(NAMES, 55))
    scores = np.round(rng.normal(size=55) + labels, 1)  # with ties
    page = {"np": np, "t": t, "scores": scores, "domains": domains}
    page |= {"normal": labels == 0, "anomalous": scores[labels == 1]}
    for code in METRICS.values():
        exec(code, page)
    expected = daco.machine_metrics(scores, labels, domains)
    found = [page[name] for name in ("auc_source", "auc_target", "partial")]
    np.testing.assert_allclose(found, list(expected.values()), **_CLOSE)
    assert page["f1_ev"] == pytest.approx(f1_ev(scores, labels), abs=1e-12)
    table = rng.uniform(0, 100, (2, 6, 3))
    left_out = [
        page["official"](np.delete(table[0], i, 0)) - page["official"](np.delete(table[1], i, 0))
        for i in range(6)
    ]
    se, reach = page["jackknife"](left_out)
    known = machine_jackknife(*table)
    assert (se, reach) == pytest.approx((known.se, (known.high - known.delta) / known.se))
    assert page["official"]([0.0, 1.0]) == pytest.approx(harmonic_mean([0.0, 1.0]), rel=0.02)


# --------------------------------------------------------------------------------- configurations

CONFIGURATIONS = tables("reference/configurations.md")
SYMBOLS, BASES = CONFIGURATIONS["Symbols"], CONFIGURATIONS["Base scores"]
CALIBRATIONS = CONFIGURATIONS["Calibrations"]
NUMPY = {
    name: getattr(np, name)
    for name in (
        *("min", "mean", "sort", "log", "exp", "sum"),
        *("std", "var", "median", "argmin", "array"),
    )
}


def test_every_base_score_and_calibration_has_its_formula():
    stated = {re.sub(r"-[kK]\{[kK]\}|-k1\+ldnK1", "", name) for name in BASES}
    not_formulas = {"vote", "vote-paper", "ext"}  # on another page, or by another library
    assert stated == {"raw", "beam", *(set(SCORERS) - {"knn"} - not_formulas)}
    assert {name.split("-")[0] for name in CALIBRATIONS} == {
        *("conf", "ratio", "zscore"),
        *("soft", "hard"),
    }


def symbols_of(page: dict[str, Any], name: str, number: int) -> dict[str, Any]:
    """What the symbols of the page stand for, computed as the page says."""
    values = {**NUMPY, "k": number, "K": number, "domains": page["domains"], "names": NAMES}
    values |= {"normals": unit(page["X"]), "clip": unit(page["clip"])}
    for symbol, formula in SYMBOLS.items():
        values[symbol] = eval(formula, values)
        if symbol == "between":
            np.fill_diagonal(values["between"], np.inf)
            if name.startswith("dldn"):
                apart = page["domains"][:, None] != page["domains"]
                values["between"][apart] = np.inf
        if symbol == "v" and "log" in name:
            values["u"], values["v"] = np.log(values["u"]), np.log(values["v"])
    return values


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("name", BASES)
def test_a_base_score_is_its_formula(name, number):
    page = random_machine(number)
    values = symbols_of(page, name, number)
    bank = NormalBank(page["X"], page["domains"])
    clips = page["clip"][None]
    if name == "beam":
        banded = page["X"].reshape(40, 2, 3), page["clip"].reshape(2, 3)
        parts = unit(banded[0]), unit(banded[1])
        values["bands"] = [1 - parts[0][:, band] @ parts[1][band] for band in range(2)]
        bank, clips = NormalBank(banded[0], page["domains"]), banded[1][None]
    if name == "genrep":
        inside = values["between"].copy()
        inside[page["domains"][:, None] != page["domains"]] = np.inf
        nearest = [inside[page["domains"] == g].min(axis=1) for g in NAMES]
        values |= {"centre": np.array([part.mean() for part in nearest])}
        values |= {"spread": nearest[1].std()}
    if name.startswith("zmin"):
        members = ["raw-k1", "ldn-ratio-K1"]
        values["scores"] = bank.score(clips, members)[0]
        values["own"] = bank.leave_one_out(members).T
    found = bank.score(clips, name.format(k=number, K=number))[0, 0]
    np.testing.assert_allclose(found, eval(BASES[name], values), **_CLOSE)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("assignment", ["soft", "hard"])
@pytest.mark.parametrize("name", [name for name in CALIBRATIONS if "<base>" in name])
def test_a_calibration_is_its_formula(name, assignment, seed):
    page = random_machine(seed)
    values = symbols_of(page, name, 1)
    bank = NormalBank(page["X"], page["domains"])
    quantile = run_concepts(seed)["quantile"]
    own = bank.leave_one_out("raw-k2")[:, 0]
    a = bank.score([page["clip"]], "raw-k2")[0, 0]
    values |= {"a": a, "own": own, "m": 10, "pooled": quantile(a, own)}
    values["c"] = np.array([quantile(a, own[page["domains"] == g]) for g in NAMES])
    values["w"] = eval(CALIBRATIONS[assignment], values)
    config = name.replace("…", assignment).replace("{m}", "10").replace("<base>", "k2")
    found = bank.score([page["clip"]], config)[0, 0]
    # z-scores divide by a standard deviation plus 1e-12
    np.testing.assert_allclose(found, eval(CALIBRATIONS[name], values), rtol=1e-9, atol=1e-12)
