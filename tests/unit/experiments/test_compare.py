"""Studies side by side, and other systems with them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from random_studies import random_study

from daco.errors import InputError
from daco.experiments.compare import compare_runs


@pytest.fixture(scope="module")
def runs():
    return {"first": random_study(eval=5), "second": random_study(eval=6, seed=1)}


def system(study, config="raw-k1"):
    """The scores of a configuration as those of another system, with folders in its names."""
    test = study.test_clips[study.test_clips["set"] == "eval"]
    table = test[["machine", "section", "split", "clip"]].assign(score=test[config])
    return table.assign(clip="data/" + table["clip"]).sample(frac=1, random_state=0)


def test_every_run_has_its_rules_choices_and_correlations(runs):
    comparison = compare_runs(runs)
    assert comparison.runs == ["first", "second"]
    for name, run in runs.items():
        rules = comparison.rules[comparison.rules["run"] == name]
        assert rules["eval_score"].tolist() == pytest.approx(run.rules()["eval_score"].tolist())
    assert comparison.choices["configuration"].tolist() == ["ldn-ratio-K1"] * 2
    assert set(comparison.transfer["over"]) == {"families", "machines"}
    assert comparison.notes == ()
    document = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert set(document) == {"runs", "rules", "choices", "transfer", "differences", "notes"}


def test_differences_between_runs_are_over_the_machines_that_both_have(runs):
    table = compare_runs(runs).differences
    (row,) = table[table["against"] == "second"].to_dict("records")
    assert (row["run"], row["n"], row["over"]) == ("first", 5, "machines")
    own = table[(table["run"] == "first") & (table["against"] != "second")]
    assert set(own["first"]) == {"ldn-ratio-K1"}
    assert "blend" in set(own["second"])


def test_a_system_is_scored_on_the_labels_of_the_runs(runs):
    first = runs["first"]
    comparison = compare_runs(runs, {"theirs": system(first)})
    grid = first.grid().set_index("configuration")["eval_score"]
    row = comparison.rules.iloc[-1]
    assert (row["run"], row["rule"], row["n_machines"]) == ("theirs", "system", 5)
    assert row["eval_score"] == pytest.approx(grid["raw-k1"])
    table = comparison.differences
    against = table[(table["run"] == "first") & (table["against"] == "theirs")]
    expected = grid["ldn-ratio-K1"] - grid["raw-k1"]
    assert against["value"].tolist() == pytest.approx([expected])


def test_a_system_must_have_clips_of_a_run(runs):
    other = system(runs["first"])
    with pytest.raises(InputError, match="'theirs' has scores of no evaluation machine"):
        compare_runs(runs, {"theirs": other.assign(machine="other")})
    with pytest.raises(InputError, match=r"'theirs', eval0: the table has no row .* 1 clip"):
        compare_runs(runs, {"theirs": other.drop(other.index[other["machine"] == "eval0"][:1])})


def test_notes_say_what_the_runs_do_not_share():
    small = random_study(eval=2, sections=3, rule="paper")
    names = [name for name in small.candidates if name != "conf-soft-m0-k1"]
    other = random_study(labelled=("dev",))
    settings = other.run["settings"] | {"candidates": names}
    notes = compare_runs(
        {"few": small, "open": replace(other, run=other.run | {"settings": settings})}
    ).notes
    tokens = ("few 5, open 4", "few: 2 machines", "open")
    assert all(token in note for token, note in zip(tokens, notes, strict=True))
