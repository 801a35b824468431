"""Studies whose two tables are drawn at random: no machine is scored."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from daco.experiments.result import StudyResult
from daco.experiments.run_folder import CLIPS, CRITERIA, RUN
from daco.files.hashing import sha256_of_file
from daco.version import __version__

GRID = {  # criterion, distance of anomalies, AUC of pseudo-anomalies
    "raw-k1": (0.62, 1.0, 0.80),
    "conf-soft-m0-k1": (0.50, 1.4, 0.80),
    "ldn-ratio-K1": (0.47, 1.6, 0.80),
    "ratio-soft-k1": (0.52, 1.1, 0.80),
    "ldn-diff-K16": (0.40, 0.3, 0.52),
}
FROZEN_GRID = {  # the guarded pick is the second, the dev pick the first
    "raw-k1": (0.6, 2.0, None),
    "conf-soft-m0-k1": (0.3, 1.0, None),
    "ratio-hard-k1": (0.4, 0.5, None),
    "conf-soft-m30-k1": (0.5, 0.5, None),
}
DEV, EVAL = ("fan", "gearbox", "slider"), ("pump", "press", "saw", "mill", "drill")
MOVED = "embedding-space pseudo-anomalies"
N_NORMALS, N_TEST, N_RESAMPLES = (30, 10), 40, 30
NAUGHTY = '<script>alert("x")</script> & “Lüfter” $\\beta_1$ 風扇 -->'
"""A machine's name with everything in it that HTML, XML, LaTeX or Matplotlib might read."""

_KEY = ["set", "machine", "section"]


def random_study(
    dev=3,
    eval=3,
    sections=1,
    *,
    grid=GRID,
    compared=("blend",),
    labelled=("dev", "eval"),
    domains=("source", "target"),
    noise=0.002,
    seed=0,
    **settings,
):
    """A study of these machines, or of so many; `settings` are changed, such as its rule.

    `noise` is the deviation of the criterion between splits. Test clips of sets that are not
    `labelled` have no labels and, if there are two, no domains.
    """
    rng = np.random.default_rng(seed)
    names = {"dev": dev, "eval": eval}
    for which, given in names.items():
        names[which] = [f"{which}{i}" for i in range(given)] if isinstance(given, int) else given
    machines = [(which, name) for which, given in names.items() for name in given]
    keys = [(*key, f"{section:02d}") for key in machines for section in range(sections)]
    columns = [*_KEY, "configuration", "measure", "split", "value"]
    criteria = [pd.DataFrame(columns=columns)]
    if len(domains) > 1:
        criteria = [_criteria(key, grid, noise, rng) for key in keys]
    clips = pd.concat([_clips(key, domains, grid, compared, rng) for key in keys])
    clips = clips.reset_index(drop=True)
    hidden = (clips["split"] == "test") & ~clips["set"].isin(labelled)
    clips.loc[hidden, ["label", "domain"]] = [-1, "" if len(domains) > 1 else domains[0]]
    run = {
        "schema": 2,
        "daco": __version__,
        "created": "2026-07-08T12:00:00+00:00",
        "platform": {"python": "3.11.2"},
        "inputs": [_input(which) for which in names],
        "settings": {
            "candidates": list(grid),
            "compared": list(compared),
            "rule": "guarded",
            "seed": 0,
            "splits": 20,
            "false_alarm_rate": 0.1,
            "readout": "mean",
        }
        | settings,
        "years": {"dev": None, "eval": None},
        "domains": {"source": "source", "target": "target"},
        "machines": [_facts(key, grid, key[0] in labelled) for key in keys],
        "notes": [],
        "times": {"read": 1.0, "score": 5.25, "report": 2.0, "total": 10.5},
        "tables": {CLIPS: 8 * "fedcba98"},
    }
    result = StudyResult(clips, pd.concat(criteria, ignore_index=True), run)
    run["choice"] = result.choose(run["settings"]["rule"]).to_dict()
    return result


def write_run(result, folder):
    """Write the folder of a run with the tables of a result, and return it."""
    folder.mkdir(parents=True)
    result.clips.to_parquet(folder / CLIPS)
    result.criteria.to_parquet(folder / CRITERIA)
    hashes = {name: sha256_of_file(folder / name) for name in (CLIPS, CRITERIA)}
    (folder / RUN).write_text(json.dumps(result.run | {"tables": hashes}))
    return folder


def random_run(folder, *, labelled=False, grid=FROZEN_GRID):
    """A run of three development and two evaluation machines, written and read again."""
    sets = ("dev", "eval") if labelled else ("dev",)
    result = random_study(DEV, ("Sander", "ToothBrush"), grid=grid, labelled=sets)
    return StudyResult.read(write_run(result, folder))


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


def _clips(key, domains, grid, compared, rng):
    """40 normals and 40 test clips of a section."""
    sizes = [*N_NORMALS[: len(domains)], *[N_TEST // len(domains)] * len(domains)]
    n = sum(sizes)
    test = np.arange(n) >= n - N_TEST
    table = pd.DataFrame(dict(zip(_KEY, key, strict=True)), index=range(n))
    table["split"] = np.where(test, "test", "train")
    table["clip"] = [f"section_{key[2]}_{i:04d}.wav" for i in range(n)]
    table["domain"] = np.repeat([*domains, *domains], sizes)
    table["label"] = np.where(test, np.arange(n) % 2, 0)
    strengths = {name: strength for name, (_, strength, _) in grid.items()}
    strengths |= dict.fromkeys(compared, 1.8)
    noise = pd.DataFrame(rng.normal(size=(n, len(strengths))), columns=list(strengths))
    scores = noise + np.outer(table["label"], list(strengths.values()))
    p_values = (1 / (1 + np.exp(2 * scores)))[test].reindex(table.index).add_prefix("p:")
    return pd.concat([table, scores, p_values], axis=1)


def _criteria(key, grid, noise, rng):
    rows = []
    for config, (criterion, _, auc) in grid.items():
        for measure, count in (("balance", 20), ("resample", N_RESAMPLES)):
            values = criterion + rng.normal(0, noise, count)
            rows += [(*key, config, measure, split, value) for split, value in enumerate(values)]
        if auc is not None:
            pseudo = [f"pseudo_{n}_{d}" for n in ("auc", "pauc") for d in ("source", "target")]
            rows += [(*key, config, measure, -1, auc) for measure in pseudo]
    return pd.DataFrame(rows, columns=[*_KEY, "configuration", "measure", "split", "value"])


def _facts(key, grid, labelled):
    is_judged = all(auc is not None for _, _, auc in grid.values())
    pseudo = {"basis": MOVED, "domains": ["source", "target"], "detectable": [], "warnings": []}
    return {
        **dict(zip(_KEY, key, strict=True)),
        "n_source": N_NORMALS[0],
        "n_target": N_NORMALS[1],
        "n_test": N_TEST,
        "labelled": labelled,
        "vectors": "".join(key),
        "pseudo": pseudo | {"plain": [0.8] * 4} if is_judged else None,
    }


def _input(which):
    origin = {"backbone": "logmel", "weights_sha256": "0" * 64, "sample_rate": "16000"}
    file = {"role": which, "name": which, "path": f"{which}.parquet", "sha256": 8 * "0123abcd"}
    return file | {"metadata": origin}


REPORT_GRID = [
    *("raw-k1", "conf-soft-m0-k1", "conf-soft-m10-k1", "conf-hard-m30-k2", "ratio-soft-k1"),
    *("zscore-hard-k1", "ldn-ratio-K1", "conf-soft-m0-ldnK1"),
]


def report_study(dev=DEV, eval=EVAL, *, grid=REPORT_GRID, **options):
    """A study whose configurations differ less in criterion than its splits do."""
    criteria = np.linspace(0.55, 0.5, len(grid))
    drawn = np.random.default_rng(0).uniform(0.5, 1.5, len(grid))
    values = zip(criteria.tolist(), drawn.tolist(), [None] * len(grid), strict=True)
    named = dict(zip(grid, values, strict=True))
    return random_study(dev, eval, grid=named, noise=0.2, **options)
