"""Studies whose tables are drawn at random: no machine is scored."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from daco.experiments.result import StudyResult

GRID = ("raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1", "ratio-soft-k1", "ldn-diff-K16")
CRITERIA = (0.62, 0.50, 0.47, 0.52, 0.40)
STRENGTHS = (1.0, 1.4, 1.6, 1.1, 0.3)
PSEUDO = (0.80, 0.80, 0.80, 0.80, 0.52)
"""Of each configuration: criterion, distance of anomalies, AUC of pseudo-anomalies."""

MOVED = "embedding-space pseudo-anomalies"
MEASURES = [
    f"pseudo_{name}_{domain}" for name in ("auc", "pauc") for domain in ("source", "target")
]


def random_study(n_dev=3, n_eval=3, sections=1, *, seed=0, labelled=("dev", "eval"), **changes):
    """A study of `GRID` and of ``blend``; `changes` are settings, such as its rule.

    Every machine has 20 normals and 40 test clips in each section. Test clips of sets that are not
    `labelled` have no labels and no domains.
    """
    rng = np.random.default_rng(seed)
    keys = [
        (which, f"{which}{machine}", f"{section:02d}")
        for which, count in (("dev", n_dev), ("eval", n_eval))
        for machine in range(count)
        for section in range(sections)
    ]
    clips = pd.concat([_clips(key, rng) for key in keys], ignore_index=True)
    hidden = (clips["split"] == "test") & ~clips["set"].isin(labelled)
    clips.loc[hidden, ["label", "domain"]] = [-1, ""]
    pseudo = {"basis": MOVED, "domains": ["source", "target"], "detectable": [], "warnings": []}
    facts = {"n_source": 15, "n_target": 5, "n_test": 40, "pseudo": pseudo | {"plain": [0.8] * 4}}
    run = {
        "settings": {"candidates": list(GRID), "compared": ["blend"], "rule": "guarded"} | changes,
        "years": {"dev": None, "eval": None},
        "machines": [
            {"set": key[0], "machine": key[1], "section": key[2], "labelled": key[0] in labelled}
            | facts
            for key in keys
        ],
    }
    criteria = pd.concat([_criteria(key, rng) for key in keys], ignore_index=True)
    result = StudyResult(clips, criteria, run)
    run["choice"] = result.choose(run["settings"]["rule"]).to_dict()
    return result


def _clips(key, rng):
    test = np.arange(60) >= 20
    labels = np.where(test, np.arange(60) % 2, 0)
    names = ("set", "machine", "section")
    table = pd.DataFrame(dict(zip(names, key, strict=True)), index=range(60))
    table["split"] = np.where(test, "test", "train")
    table["clip"] = [f"{key[1]}_{key[2]}_{i:03d}" for i in range(60)]
    table["domain"] = np.repeat(["source", "target"] * 2, [15, 5, 20, 20])
    table["label"] = labels
    for config, strength in zip((*GRID, "blend"), (*STRENGTHS, 1.8), strict=True):
        table[config] = rng.normal(size=60) + strength * labels
    table["p:blend"] = np.where(test, rng.uniform(size=60), np.nan)
    return table


def _criteria(key, rng):
    rows = []
    for config, criterion, auc in zip(GRID, CRITERIA, PSEUDO, strict=True):
        for measure, count in (("balance", 20), ("resample", 30)):
            values = criterion + rng.normal(0, 0.002, count)
            rows += [(*key, config, measure, split, value) for split, value in enumerate(values)]
        rows += [(*key, config, measure, -1, auc) for measure in MEASURES]
    columns = ["set", "machine", "section", "configuration", "measure", "split", "value"]
    return pd.DataFrame(rows, columns=columns)


def write_run(result, folder):
    """The folder of a run with the tables of a result."""
    folder.mkdir(parents=True)
    result.clips.to_parquet(folder / "clips.parquet")
    result.criteria.to_parquet(folder / "criteria.parquet")
    (folder / "run.json").write_text(json.dumps(result.run))
    return folder
