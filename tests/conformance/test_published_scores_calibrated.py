"""The authors' 13 released systems as scores from elsewhere: table, calibration, files, metrics.

Only test scores are published. Every second normal of each domain, by name, plays the part of a
held-out normal; the weights of the other clips are their true domains.
"""

from __future__ import annotations

import numpy as np
import pytest
from shared_data import shared

from daco.evaluation.system_scores import read_system
from daco.experiments.calibrate import calibrate_scores
from daco.method.paper import ks_distance

RELEASED = shared("published", "daco-experiments", "release", "scores")
SYSTEMS = sorted(path.parent.name for path in RELEASED.glob("*/dev"))


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
