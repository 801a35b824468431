"""The authors' 13 released systems as scores from elsewhere: table, calibration, files, metrics.

Only test scores are published. Every second normal of each domain, by name, plays the part of a
held-out normal; the true domains of the other clips are known, which makes this a diagnostic.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import run
from shared_data import shared

import daco
from daco.evaluation.evaluate import evaluate_scores
from daco.evaluation.score_tables import read_score_table
from daco.evaluation.scorefiles import write_scores
from daco.method.criterion import ks_distance

RELEASED = shared("published", "daco-experiments", "release", "scores")
SYSTEMS = sorted(path.parent.name for path in RELEASED.glob("*/dev"))
DOMAINS = ["source", "target"]


def test_the_authors_released_thirteen_systems():
    assert len(SYSTEMS) == 13


def with_held_out_normals(table):
    """All clips of a table; every second normal of a machine's domain is of the split train."""
    clips = table.clips.copy()
    normals = clips[clips["label"] == 0].sort_values("path")
    place = normals.groupby(["machine", "domain"]).cumcount()
    clips.loc[place.index[place % 2 == 0], "split"] = "train"
    return clips


@pytest.fixture(scope="module", params=SYSTEMS)
def released(request, tmp_path_factory):
    """The folder as it was released, and its table with held-out normals."""
    folder = RELEASED / request.param / "dev"
    path = tmp_path_factory.mktemp("tables") / "own.csv"
    with_held_out_normals(read_score_table(folder)).to_csv(path, index=False)
    return folder, read_score_table(path)


def test_uncalibrated_scores_give_the_metrics_of_the_originals(released, tmp_path):
    folder, table = released
    for (machine, section), clips in table.clips.groupby(["machine", "section"]):
        write_scores(tmp_path / "dev", machine, section, [*clips["path"]], clips["score"])
    assert evaluate_scores(tmp_path / "dev", year=2025) == evaluate_scores(folder, year=2025)


def test_calibrated_scores_are_evaluated_and_better_balanced(released, tmp_path):
    _, table = released
    gaps, clips = [], {}
    for key in table.machines:
        normals, test = table.machine(*key)
        true = np.array([[domain == name for name in DOMAINS] for domain in test["domain"]], float)
        calibrator = daco.DomainCalibrator().fit(normals["score"], normals["domain"])
        scores = np.array([test["score"], calibrator.transform(test["score"], weights=true)])
        write_scores(tmp_path, *key, [*test["path"]], scores[1])
        clips[key[0]] = len(test)
        for domain in DOMAINS:
            inside = (test["domain"] == domain).to_numpy()
            given, calibrated = scores[:, inside]
            # A domain's map keeps the order of its clips, up to rounding of quantiles below 1.
            assert np.diff(calibrated[np.argsort(given, kind="stable")]).min() > -1e-14
        parts = [(test["domain"] == d) & (test["label"] == 0) for d in DOMAINS]
        gaps.append([ks_distance(*(each[part] for part in parts)) for each in scores])
    evaluation = evaluate_scores(tmp_path, year=2025)
    assert {each.machine: each.clips for each in evaluation.machines} == clips
    assert set(clips.values()) == {200 - 50}
    before, after = np.mean(gaps, axis=0)
    # KS distances of 25 and 25 test normals: multiples of 1/25, 0.28 to 0.43 before.
    assert after <= before + 1e-12


def test_the_command_writes_what_evaluate_reads(tmp_path):
    path = tmp_path / "raw.csv"
    with_held_out_normals(read_score_table(RELEASED / "raw-k1" / "dev")).to_csv(path, index=False)
    out = tmp_path / "out"
    printed = run("calibrate-scores", path, "--true-domains", "--out", out).stdout
    assert "Written: 14 files" in printed
    document = json.loads(run("evaluate", out, "--json").stdout)
    assert f"{document['official_score']:.2f}" in printed
    assert [machine["clips"] for machine in document["machines"]] == [150] * 7
    assert all("f1_source" in machine for machine in document["machines"])
