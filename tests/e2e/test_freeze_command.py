"""``daco freeze``, ``verify`` and ``submission`` as a user types them."""

from __future__ import annotations

import json
import re

import pytest
from command_line import refused, run, said
from random_studies import random_run, write_truth

LABEL = "Kato_Hitachi_task2_1"


@pytest.fixture
def study(tmp_path, monkeypatch):
    """run, before the labels are out; later, with them; evaluator, the organisers' labels."""
    monkeypatch.chdir(tmp_path)
    random_run(tmp_path / "run")
    later = random_run(tmp_path / "later", labelled=True)
    write_truth(tmp_path / "evaluator", later.clips)
    return tmp_path


def test_freeze_then_verify_when_the_labels_are_out(study):
    printed = said("freeze", "run", "--out", "p.json")
    document = json.loads((study / "p.json").read_text())
    assert printed.startswith("Frozen: conf-soft-m0-k1 (rule: guarded) The smallest criterion")
    assert "No evaluation label was known." in printed
    assert f"SHA-256 {document['sha256']}" in printed
    assert "commit the file to a public repository" in printed

    assert "nothing is scored: see --truth. Nothing changed." in said("verify", "p.json")
    scored = said("verify", "p.json", "--truth", "evaluator")
    pattern = r"dev pick raw-k1 [\d.]+ \[[\d.]+, [\d.]+\] -[\d.]+ \[-[\d.]+, -?[\d.]+\]"
    assert re.search(pattern, scored)
    assert "intervals over machines" in scored
    assert "2 machines are too few to tell a difference from chance." in scored
    rows = json.loads(run("verify", "p.json", "--run", "later", "--json").stdout)
    assert rows["ok"] is True
    assert f"{rows['scores'][0]['score']['value']:.2f}" in scored

    text = (study / "p.json").read_text()
    (study / "p.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    assert "Changed: document." in said("verify", "p.json", code=1)


def test_known_labels_are_said_and_nothing_is_overwritten(study):
    printed = said("freeze", "later", "--out", "p.json", "--config", "blend")
    assert "Frozen: blend Named, not chosen by a rule." in printed
    assert "Evaluation labels were known when this was frozen." in printed
    assert "Evaluation labels were known when this was frozen." in said("verify", "p.json")
    assert "already exists" in str(refused("freeze", "run", "--out", "p.json"))


def test_a_submission_is_evaluated_to_the_score_of_the_run(study):
    printed = said("submission", "run", "--label", LABEL, "--out", "package")
    assert f"{LABEL}: conf-soft-m0-k1 on 2 machines Sander: 40 clips" in printed
    assert f"Written: package/task2/{LABEL}" in printed
    evaluated = said("evaluate", f"package/task2/{LABEL}", "--truth", "evaluator")
    said("freeze", "run", "--out", "p.json")
    rows = json.loads(run("verify", "p.json", "--truth", "evaluator", "--json").stdout)
    assert f"{rows['scores'][0]['score']['value']:.2f}" in evaluated


@pytest.mark.parametrize("command", ["submission . --label A_B_task2_1 --out a", "verify a.json"])
def test_mistakes_end_in_a_sentence(study, command):
    assert str(refused(*command.split())).startswith((". is not a finished run", "a.json is not"))
