"""The authors' published tables and released score files: their numbers must come back.

Quantities must match to the printed digits: the tolerance is half of the last one.
"""

from __future__ import annotations

import numpy as np
import pytest
from shared_data import shared

from daco.evaluation.evaluate import evaluate_scores
from daco.evaluation.intervals import clip_bootstrap
from daco.evaluation.metrics import QUANTITIES
from daco.evaluation.official import official_scores, score_estimate
from daco.evaluation.system_scores import read_system
from daco.experiments.calibrate import calibrate_scores
from daco.method.config import PAPER_CONFIG
from daco.method.paper import ks_distance
from reproduction.published import SETTINGS

RELEASED = shared("published", "daco-experiments", "release", "scores")
CONFIGS = sorted(path.parent.name for path in RELEASED.glob("*/dev"))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("part", ["dev", "eval"])
def test_official_scores_of_every_published_configuration(published, setting, part):
    metrics = published.metrics(setting, part).assign(section="00")
    scores = official_scores(metrics)
    wanted = published.grid(setting)[f"{part}_score"]
    # metrics have two decimals: the score is off by at most half of the last one
    assert scores[wanted.index].to_numpy() == pytest.approx(wanted.to_numpy(), abs=0.0051)
    rows = metrics[metrics["configuration"] == PAPER_CONFIG]
    estimate = score_estimate(rows)
    assert (estimate.value, estimate.n) == (scores[PAPER_CONFIG], rows["machine"].nunique())


def test_clip_bootstrap_on_the_released_dev_scores(published):
    clips, raw = (read_system(RELEASED / name / "dev") for name in (PAPER_CONFIG, "raw-k1"))
    assert clips["clip"].equals(raw["clip"])
    assert clips["machine"].nunique() == 7
    clips = clips.assign(raw=raw["score"])
    interval = clip_bootstrap(clips, "score", "raw", n_draws=1000)
    # released scores have ten decimals: the grid's four decimals of a percent come back
    grid = published.grid("45")["dev_score"]
    assert interval.estimate == pytest.approx(grid[PAPER_CONFIG] - grid["raw-k1"], abs=1e-4)
    # nothing is published for dev; calibration costs there, and clearly so
    assert -5 < interval.low < interval.estimate < interval.high < 0


# Released score files


def test_every_machine_and_the_official_score_of_every_released_configuration(published):
    assert len(CONFIGS) == 13
    wanted = published.metrics("beats", "dev").set_index(["configuration", "machine"])
    scores = published.grid("beats")["dev_score"]
    for config in CONFIGS:
        found = evaluate_scores(RELEASED / config / "dev", year=2025)
        assert found.machines["clips"].tolist() == [200] * 7
        for row in found.machines.to_dict("records"):
            printed = wanted.loc[(config, row["machine"]), list(QUANTITIES)].tolist()
            ours = [row[name] for name in QUANTITIES]
            assert ours == pytest.approx(printed, abs=0.005 + 1e-9)  # two decimals
        assert found.official_score == pytest.approx(scores[config], abs=0.00005 + 1e-9)  # four


@pytest.mark.parametrize("system", CONFIGS)
def test_calibrated_scores_keep_their_order_and_are_better_balanced(system):
    """Every second normal of a domain plays a held-out one; weights are the true domains."""
    clips = read_system(RELEASED / system / "dev")
    normals = clips[clips["label"] == 0].sort_values("clip")
    place = normals.groupby(["machine", "domain"]).cumcount()
    clips.loc[place.index[place % 2 == 0], "split"] = "train"
    table = calibrate_scores(clips.assign(weight_target=(clips["domain"] == "target") * 1.0))
    assert set(table.groupby("machine").size()) == {200 - 50}
    for _, own in table.groupby(["machine", "domain"]):
        calibrated = own.sort_values("given", kind="stable")["score"]
        # A domain's map keeps the order of its clips, up to rounding of quantiles below 1.
        assert np.diff(calibrated).min() > -1e-14
    gaps = []
    for _, own in table[table["label"] == 0].groupby("machine"):
        domains = [each for _, each in own.groupby("domain")]
        gaps.append([ks_distance(*(each[name] for each in domains)) for name in ("given", "score")])
    before, after = np.mean(gaps, axis=0)
    # KS distances of 25 and 25 test normals: multiples of 1/25, 0.28 to 0.43 before.
    assert after <= before + 1e-12
