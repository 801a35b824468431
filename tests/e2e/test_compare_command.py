"""``daco compare`` as a user types it."""

from __future__ import annotations

import json
import shutil

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
    assert "95 % over machines beats eat open ─" in text
    assert "[" in text.split("Choice minus others")[1]
    assert "30 of 30 resamples pick it" in text
    assert "few: 2 machines are too few to tell a difference from chance." in text


def test_runs_in_folders_of_one_name_are_told_apart_by_their_paths(folders, tmp_path):
    again = shutil.copytree(folders["eat"], tmp_path / "eat")
    document = json.loads(run("compare", folders["eat"], again, "--json").stdout)
    assert document["runs"] == [str(folders["eat"]), str(again)]


def test_a_run_is_compared_with_others_only(folders):
    assert "every run once" in str(refused("compare", folders["eat"], folders["eat"]))
