"""Studies for the tests of figures and report: the two tables, from random scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from daco.experiments.result import StudyResult

GRID = [
    *("raw-k1", "conf-soft-m0-k1", "conf-soft-m10-k1", "conf-hard-m30-k2", "ratio-soft-k1"),
    *("zscore-hard-k1", "ldn-ratio-K1", "conf-soft-m0-ldnK1"),
]
COMPARED = ["blend"]
DEV, EVAL = ("fan", "gearbox", "slider"), ("pump", "press", "saw", "mill", "drill")
NAUGHTY = '<script>alert("x")</script> & “Lüfter” $\\beta_1$ 風扇 -->'
"""A machine's name with everything in it that HTML, XML, LaTeX or Matplotlib might read."""


def made_study(
    dev: Iterable[str] = DEV,
    eval: Iterable[str] = EVAL,
    *,
    labelled: Sequence[str] = ("dev", "eval"),
    domains: Sequence[str] = ("source", "target"),
    grid: Sequence[str] = GRID,
    compared: Sequence[str] = COMPARED,
    decided: Sequence[str] | None = None,
    seed: int = 0,
) -> StudyResult:
    """A study whose anomalies score higher than its normals, by as much as its machine has it.

    With one domain there is no criterion; without labels test clips have no domain either.
    """
    rng = np.random.default_rng(seed)
    names = [*grid, *compared]
    sets = {"dev": tuple(dev), "eval": tuple(eval)}
    places = [(which, name) for which, machines in sets.items() for name in machines]
    clips, criteria = [], []
    for which, machine in places:
        clips.append(_clips(rng, which, machine, domains, names, which in labelled))
        if len(domains) > 1:
            criteria.append(_criteria(rng, which, machine, grid))
    columns = ["set", "machine", "section", "configuration", "measure", "split", "value"]
    table = pd.concat(criteria) if criteria else pd.DataFrame(columns=columns)
    result = StudyResult(
        pd.concat(clips, ignore_index=True),
        table.reset_index(drop=True),
        _run(places, grid, compared, labelled),
    )
    result.run["choice"] |= result.choose().to_dict()
    chosen = result.run["choice"]["config"]
    for name in dict.fromkeys([chosen, "blend"]) if decided is None else decided:
        is_test = result.clips["split"] == "test"
        result.clips[f"p:{name}"] = (1 / (1 + 9 * result.clips[name])).where(is_test)
    return result


def _clips(
    rng: np.random.Generator,
    which: str,
    machine: str,
    domains: Sequence[str],
    names: Sequence[str],
    is_labelled: bool,
) -> pd.DataFrame:
    domain = [*np.repeat(domains, [24] + [6] * (len(domains) - 1)), *np.repeat(domains, 20)]
    n_train = len(domain) - 20 * len(domains)
    is_test = np.arange(len(domain)) >= n_train
    label = np.where(is_test, np.arange(len(domain)) % 2, 0)
    frame = pd.DataFrame(
        {
            "set": which,
            "machine": machine,
            "section": "00",
            "split": np.where(is_test, "test", "train"),
            "clip": [f"{at:04d}.wav" for at in range(len(domain))],
            "domain": domain,
            "label": label,
            "weight_target": np.nan,
        }
    )
    effect = rng.uniform(0.3, 1.5)
    scores = rng.random((len(frame), len(names))) + effect * rng.random(len(names)) * label[:, None]
    frame[list(names)] = scores
    if not is_labelled:
        frame.loc[is_test, "label"] = -1
        frame.loc[is_test, "domain"] = domains[0] if len(domains) == 1 else ""
    return frame


def _criteria(
    rng: np.random.Generator, which: str, machine: str, grid: Sequence[str]
) -> pd.DataFrame:
    parts = []
    for measure, n_splits in (("balance", 10), ("resample", 20)):
        index = pd.MultiIndex.from_product(
            [[which], [machine], ["00"], grid, [measure], range(n_splits)],
            names=["set", "machine", "section", "configuration", "measure", "split"],
        )
        level = np.repeat(np.linspace(0.55, 0.5, len(grid)), n_splits)
        values = level + rng.normal(0, 0.05, len(index))
        parts.append(pd.DataFrame({"value": values}, index=index).reset_index())
    return pd.concat(parts)


def _run(
    places: Sequence[tuple[str, str]],
    grid: Sequence[str],
    compared: Sequence[str],
    labelled: Sequence[str],
) -> dict[str, Any]:
    machine = {"section": "00", "key": "", "n_source": 24, "n_target": 6, "n_test": 40}
    return {
        "schema": 1,
        "daco": "0.1.0",
        "created": "2026-07-08T12:00:00+00:00",
        "platform": {"python": "3.11.2"},
        "inputs": [{"role": "dev", "name": "dev", "path": "dev.parquet", "sha256": 8 * "0123abcd"}],
        "settings": {
            "grid": "8",
            "candidates": list(grid),
            "compared": list(compared),
            "rule": "guarded",
            "seed": 0,
            "splits": 10,
            "false_alarm_rate": 0.1,
        },
        "years": {"dev": None, "eval": None},
        "domains": {"source": "source", "target": "target"},
        "machines": [
            machine | {"set": which, "machine": name, "labelled": which in labelled, "pseudo": None}
            for which, name in places
        ],
        "choice": {},
        "notes": [],
        "times": {"read": 1.0, "score": 5.25, "report": 2.0, "total": 10.5},
        "tables": {"clips.parquet": 8 * "fedcba98"},
    }
