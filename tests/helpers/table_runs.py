"""Run folders whose tables are drawn at random: no machine is scored."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from daco.experiments.result import CLIPS, CRITERIA, StudyResult
from daco.files.hashing import sha256_of_file
from daco.version import __version__

DEV = ("fan", "pump", "valve")
EVAL = ("Sander", "ToothBrush")
GRID = ("raw-k1", "conf-soft-m0-k1", "ratio-hard-k1", "conf-soft-m30-k1")
DECIDED = ("conf-soft-m0-k1", "blend")
N_TEST = 24

_ORIGIN = {"backbone": "logmel", "weights_sha256": "0" * 64, "sample_rate": "16000"}
_STRENGTHS = {"raw-k1": 2.0, "conf-soft-m0-k1": 1.0}  # the dev pick, and the guarded pick


def random_run(folder, *, labelled=False, grid=GRID):
    """Write a run of three development and two evaluation machines, and read it.

    Evaluation clips have labels and domains only if `labelled`; all else is the same every time.
    The second configuration has the smallest criterion.
    """
    rng = np.random.default_rng(0)
    machines = [("dev", name) for name in DEV] + [("eval", name) for name in EVAL]
    clips = pd.concat([_clips(*key, [*grid, "blend"], rng) for key in machines], ignore_index=True)
    measures = pd.DataFrame({"measure": ["balance"] * 3 + ["resample"] * 20})
    measures["split"] = [*range(3), *range(20)]
    keys = pd.DataFrame(machines, columns=["set", "machine"]).assign(section="00")
    configs = pd.DataFrame({"configuration": grid, "value": 0.1 * ((np.arange(len(grid)) - 1) % 4)})
    criteria = keys.merge(configs, how="cross").merge(measures, how="cross")
    criteria["value"] += rng.uniform(0.3, 0.32, len(criteria))
    if not labelled:
        hidden = (clips["set"] == "eval") & (clips["split"] == "test")
        clips.loc[hidden, ["label", "domain"]] = [-1, ""]
    folder.mkdir(parents=True, exist_ok=True)
    clips.to_parquet(folder / CLIPS)
    criteria.to_parquet(folder / CRITERIA)
    facts = {"n_source": 30, "n_target": 10, "n_test": N_TEST, "pseudo": None}
    run = {
        "schema": 1,
        "daco": __version__,
        "created": "2026-06-01T00:00:00+00:00",
        "inputs": [
            {"role": role, "sha256": "0" * 64, "metadata": _ORIGIN} for role in ("dev", "eval")
        ],
        "settings": {
            "candidates": list(grid),
            "compared": ["blend"],
            "rule": "guarded",
            "seed": 0,
            "splits": 3,
            "false_alarm_rate": 0.1,
            "readout": "mean",
            "decided": list(DECIDED),
        },
        "years": {"dev": None, "eval": None},
        "machines": [{"set": s, "machine": m, "section": "00", **facts} for s, m in machines],
        "tables": {name: sha256_of_file(folder / name) for name in (CLIPS, CRITERIA)},
    }
    choice = StudyResult(clips, criteria, run).choose("guarded")
    (folder / "run.json").write_text(json.dumps({**run, "choice": choice.to_dict()}))
    return StudyResult.read(folder)


def _clips(which, machine, configs, rng):
    """40 normals and 24 test clips, of which the second half is of the target domain."""
    n = 40 + N_TEST
    test = np.arange(n) >= 40
    domains = np.repeat(["source", "target", "source", "target"], [30, 10, 12, 12])
    labels = np.where(test, np.arange(n) % 2, 0)
    names = [f"section_00_source_train_normal_{i:04d}.wav" for i in range(40)]
    names += [f"section_00_{i:04d}.wav" for i in range(N_TEST)]
    table = pd.DataFrame(
        {
            "set": which,
            "machine": machine,
            "section": "00",
            "split": np.where(test, "test", "train"),
            "clip": names,
            "domain": domains,
            "label": labels.astype(np.int8),
            "weight_target": np.where(test, 0.5, np.nan),
        }
    )
    for config in configs:
        table[config] = rng.normal(size=n) + labels * _STRENGTHS.get(config, 0.5)
    for config in DECIDED:
        table[f"p:{config}"] = np.where(test, rng.uniform(size=n), np.nan)
    return table


def write_truth(folder, clips):
    """The evaluator's files for the labelled evaluation clips of a run."""
    test = clips[(clips["set"] == "eval") & (clips["split"] == "test")]
    codes = {"data": test["label"], "domain": (test["domain"] == "target").astype(int)}
    for kind, values in codes.items():
        (folder / f"ground_truth_{kind}").mkdir(parents=True)
        for machine, rows in test.groupby("machine"):
            pairs = zip(rows["clip"], values[rows.index], strict=True)
            path = folder / f"ground_truth_{kind}" / f"ground_truth_{machine}_section_00_test.csv"
            path.write_text("".join(f"{clip},{value}\n" for clip, value in pairs))
    return folder
