"""The authors' 13 released systems as scores from elsewhere: table, calibration, files, metrics.

Only test scores are published. Every second normal of each domain, by name, plays the part of a
held-out normal; the weights of the other clips are their true domains.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from command_line import run
from shared_data import shared

from daco.evaluation.evaluate import evaluate_scores
from daco.evaluation.official import metrics_table, official_scores
from daco.evaluation.system_scores import read_system
from daco.experiments.calibrate import calibrate_scores
from daco.method.paper import ks_distance

RELEASED = shared("published", "daco-experiments", "release", "scores")
SYSTEMS = sorted(path.parent.name for path in RELEASED.glob("*/dev"))


def test_the_authors_released_thirteen_systems():
    assert len(SYSTEMS) == 13


def with_held_out_normals(system):
    """The clips of a system; every second normal of a machine's domain is of the split train."""
    clips = read_system(RELEASED / system / "dev")
    normals = clips[clips["label"] == 0].sort_values("clip")
    place = normals.groupby(["machine", "domain"]).cumcount()
    clips.loc[place.index[place % 2 == 0], "split"] = "train"
    return clips.assign(weight_target=(clips["domain"] == "target").astype(float))


@pytest.mark.parametrize("system", SYSTEMS)
def test_calibrated_scores_keep_their_order_and_are_better_balanced(system):
    table = calibrate_scores(with_held_out_normals(system))
    assert set(table.groupby("machine").size()) == {200 - 50}
    for _, clips in table.groupby(["machine", "domain"]):
        calibrated = clips.sort_values("given", kind="stable")["score"]
        # A domain's map keeps the order of its clips, up to rounding of quantiles below 1.
        assert np.diff(calibrated).min() > -1e-14
    gaps = []
    for _, normals in table[table["label"] == 0].groupby("machine"):
        domains = [clips for _, clips in normals.groupby("domain")]
        gaps.append([ks_distance(*(each[name] for each in domains)) for name in ("given", "score")])
    before, after = np.mean(gaps, axis=0)
    # KS distances of 25 and 25 test normals: multiples of 1/25, 0.28 to 0.43 before.
    assert after <= before + 1e-12


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_the_command_writes_what_evaluate_reads(tmp_path, name):
    path, out = tmp_path / "raw.csv", tmp_path / name
    clips = with_held_out_normals("raw-k1").rename(columns={"clip": "path"})
    clips.to_csv(path, index=False)
    printed = run("calibrate-scores", path, "--out", out).stdout
    calibrated = calibrate_scores(read_system(path))
    expected = official_scores(metrics_table(calibrated, ["score"]))["score"]
    evaluation = evaluate_scores(out)
    assert evaluation.official_score == pytest.approx(expected)
    assert f"{expected:.2f}" in printed
    assert evaluation.machines["clips"].tolist() == [150] * 7
    assert evaluation.machines["f1_source"].notna().all()
    if out.suffix:
        written = pd.read_parquet(out)
        assert (written["decision"] == (written["p_value"] <= 0.1)).all()
