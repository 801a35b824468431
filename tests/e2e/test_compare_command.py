"""``daco compare`` as a user types it."""

from __future__ import annotations

import json

import pytest
from command_line import refused, run, said
from random_studies import random_study, write_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    studies = {
        "beats": random_study(eval=5),
        "eat": random_study(eval=5, seed=1),
        "open": random_study(labelled=("dev",), seed=2),
        "few": random_study(eval=2, sections=3, seed=3),
    }
    return {name: write_run(study, root / name) for name, study in studies.items()}


def test_runs_are_shown_in_blocks_that_fit_a_terminal(folders):
    text = said("compare", *folders.values())
    assert "95 % over machines beats eat open guarded" in text
    assert "[" in text.split("Choice minus others")[1]
    assert "30 of 30 resamples pick it" in text
    assert "open has no evaluation labels" in text
    assert "few: 2 machines are too few to tell a difference from chance." in text


def test_json_has_the_numbers_and_runs_have_names(folders):
    options = (folders["beats"], folders["eat"], "--name", "BEATs", "--name", "EAT", "--json")
    document = json.loads(run("compare", *options).stdout)
    assert document["runs"] == ["BEATs", "EAT"]
    (between,) = [row for row in document["differences"] if row["against"] == "EAT"]
    assert between["low"] < between["value"] < between["high"]
    assert (between["n"], between["over"]) == (5, "machines")


def test_another_system_is_compared_on_the_clips_of_a_run(folders, tmp_path):
    clips = random_study(eval=5).test_clips.query("set == 'eval'")
    table = clips.rename(columns={"clip": "path", "blend": "score"})
    columns = ["path", "machine", "section", "split", "score"]
    table[columns].to_csv(tmp_path / "theirs.csv", index=False)
    system = f"theirs={tmp_path / 'theirs.csv'}"
    document = json.loads(run("compare", folders["beats"], "--system", system, "--json").stdout)
    scores = {row["rule"]: row["eval_score"] for row in document["rules"]}
    assert scores["system"] == pytest.approx(scores["blend"])
    # a run is a system, too: the configuration that it chose
    own = run("compare", folders["beats"], "--system", f"again={folders['beats']}", "--json")
    scores = {row["rule"]: row["eval_score"] for row in json.loads(own.stdout)["rules"]}
    assert scores["system"] == pytest.approx(scores["guarded"])


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("eat", "eat"), (), "called 'eat'. Tell them apart with --name"),
        (("eat", "beats"), ("--name", "EAT"), "2 runs but 1 names"),
        ((".",), (), "not a finished run"),
        (("eat",), ("--system", "theirs"), "NAME=TABLE"),
    ],
)
def test_mistakes_are_named(folders, names, options, message, tmp_path):
    runs = (folders.get(name, tmp_path) for name in names)
    assert message in str(refused("compare", *runs, *options))
