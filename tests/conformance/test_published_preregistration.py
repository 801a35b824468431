"""The 2026 forward test: frozen from what the authors froze, verified with what came out.

Ground truth appeared on 2026-07-08, after the grids of ``prereg2026_*`` were published.
"""

from __future__ import annotations

import csv

import pytest
from shared_data import shared

from daco.experiments.prereg import KNOWN, freeze
from daco.experiments.study_tables import write_json
from daco.experiments.verification import verify
from daco.method.selection import choose

POLICIES = ("ch0", "mix")
FROZEN = {"ch0": "ratio-hard-k2", "mix": "conf-soft-m0-k1"}
# frozen pick, dev pick, fixed default
SCORES = {"ch0": (58.97, 57.76, 60.10), "mix": (55.03, 53.44, 55.03)}
# frozen pick minus dev pick, minus default: difference -+ 1.96 standard errors
DELTAS = {
    "ch0": [(1.21, -1.97, 4.39), (-1.13, -2.33, 0.07)],
    "mix": [(1.59, -0.65, 3.83), (0.0, 0.0, 0.0)],
}


def make_run(folder, study, policy, split):
    """A run's folder with the two tables that the authors published, of one channel policy."""
    folder.mkdir()
    results = shared("published", "daco-experiments", "results")
    with (results / f"{study}_grid.csv").open(newline="") as file:
        grid = [row for row in csv.DictReader(file) if row.pop("policy") == policy]
    with (results / f"{study}_per_machine_{policy}.csv").open(newline="") as file:
        machines = [{"split": split, **row} for row in csv.DictReader(file) if row.pop("policy")]
    for name, rows in (("grid.csv", grid), ("per_machine.csv", machines)):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return folder


@pytest.fixture(params=POLICIES)
def policy(request):
    return request.param


@pytest.fixture
def document(policy, tmp_path):
    run = make_run(tmp_path / "frozen", "prereg2026", policy, "dev")
    return freeze(run, created="2026-06-01", beside=tmp_path)


@pytest.fixture
def verified(policy, document, tmp_path):
    write_json(document, tmp_path / "prereg.json")
    later = make_run(tmp_path / "later", "e8_2026", policy, "eval")
    return verify(tmp_path / "prereg.json", run=later)


def test_the_frozen_pick_and_what_it_rests_on(policy, document):
    assert document["frozen"]["config"] == FROZEN[policy]
    assert document["veto"] == "both"  # of which dev scores are all that was published
    assert document[KNOWN] is False
    assert len(document["grid"]) == 51
    assert len(document["vetoed"]) == 6  # strict: the one on the floor falls too
    columns = {"config": "config", "dev_score": "dev_omega", "criterion": "crit_dev"}
    grid = {name: [row[key] for row in document["grid"]] for name, key in columns.items()}
    assert choose(grid, "paper").config == FROZEN[policy]


def test_everything_that_was_published_twice_matches(verified):
    assert verified.ok
    statuses = {check.what: check.status for check in verified.checks}
    assert {name for name, status in statuses.items() if status == "ok"} == {
        *("document", "choice", "artifacts", "choice from grid.csv"),
        *("grid", "dev scores, criteria", "choice on the run"),
    }
    assert set(statuses.values()) == {"ok", "unknown"}  # the files do not record seeds


def test_the_scores_of_the_three_picks(policy, verified):
    assert [row["pick"] for row in verified.scores] == ["frozen pick", "dev pick", "fixed default"]
    for row, printed in zip(verified.scores, SCORES[policy], strict=True):
        assert round(row["eval_omega"], 2) == printed


def test_the_differences_with_their_intervals(policy, verified):
    for delta, printed in zip(verified.deltas, DELTAS[policy], strict=True):
        middle, reach = delta["delta"], 1.96 * delta["se"]
        ends = [middle, middle - reach, middle + reach]
        assert [round(value, 2) for value in ends] == list(printed)
        # Student's t of five machines
        assert delta["high"] - middle == pytest.approx(2.7764 * delta["se"], rel=1e-4)
        assert middle - delta["low"] == pytest.approx(2.7764 * delta["se"], rel=1e-4)
