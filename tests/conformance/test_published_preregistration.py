"""The 2026 forward test: frozen from what the authors froze, scored with what came out.

Ground truth appeared on 2026-07-08, after the grids of ``prereg2026_*`` were published.
"""

from __future__ import annotations

import pandas as pd
import pytest
from shared_data import shared

from daco.experiments.choice import pick
from daco.experiments.freeze import score_picks

FROZEN = {"ch0": "ratio-hard-k2", "mix": "conf-soft-m0-k1"}
# frozen pick, dev pick, fixed default
SCORES = {"ch0": (58.97, 57.76, 60.10), "mix": (55.03, 53.44, 55.03)}
# frozen pick minus dev pick, minus default: difference -+ 1.96 standard errors
DELTAS = {
    "ch0": [(1.21, -1.97, 4.39), (-1.13, -2.33, 0.07)],
    "mix": [(1.59, -0.65, 3.83), (0.0, 0.0, 0.0)],
}
T_OF_FIVE = 2.7764  # 97.5 % quantile of Student's t with four degrees of freedom
NAMES = {"config": "configuration", "dev_omega": "dev_score", "crit_dev": "criterion_dev"}


def published(name, policy):
    table = pd.read_csv(shared("published", "daco-experiments", "results", name))
    return table[table["policy"] == policy].rename(columns=NAMES).reset_index(drop=True)


@pytest.fixture(params=FROZEN)
def policy(request):
    return request.param


@pytest.fixture
def grid(policy):
    return published("prereg2026_grid.csv", policy)


def test_the_rules_pick_what_the_authors_froze(policy, grid):
    choice = pick(grid, "guarded")
    assert choice.config == pick(grid, "paper").config == FROZEN[policy]
    assert len(grid) == 51
    assert len(choice.vetoed) == 6  # strict: the one on the floor falls too


def test_scores_and_differences_of_the_three_picks(policy, grid):
    metrics = published(f"e8_2026_per_machine_{policy}.csv", policy).assign(section="00")
    picks = {"frozen pick": FROZEN[policy], "dev pick": pick(grid, "dev").config}
    rows = score_picks({**picks, "fixed default": "conf-soft-m0-k1"}, metrics)
    assert tuple(round(row["score"].value, 2) for row in rows) == SCORES[policy]
    assert [row["score"].n for row in rows] == [5, 5, 5]
    for row, printed in zip(rows[1:], DELTAS[policy], strict=True):
        middle, low, high = (getattr(row["difference"], end) for end in ("value", "low", "high"))
        reach = (high - middle) / T_OF_FIVE * 1.96
        ends = [middle, middle - reach, middle + reach]
        assert ends == pytest.approx(printed, abs=0.00501)  # printed with two digits
        assert middle - low == pytest.approx(high - middle)
