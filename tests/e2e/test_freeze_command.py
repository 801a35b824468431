"""``daco freeze``, ``verify`` and ``submission`` as a user types them."""

from __future__ import annotations

import json
import re

import pytest
from command_line import refused, run, said
from random_studies import random_run, write_truth

LABEL = "Kato_Hitachi_task2_1"
KNOWN = "Evaluation labels were known when this was frozen."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """run, before the labels are out; later, with them; evaluator, the organisers' labels."""
    root = tmp_path_factory.mktemp("frozen")
    random_run(root / "run")
    later = random_run(root / "later", labelled=True)
    write_truth(root / "evaluator", later.clips)
    return root


@pytest.fixture
def study(folder, monkeypatch):
    monkeypatch.chdir(folder)
    yield folder
    (folder / "p.json").unlink(missing_ok=True)


def frozen_score(*options):
    rows = json.loads(run("verify", "p.json", *options, "--json").stdout)
    assert rows["ok"] is True
    return f"{rows['scores'][0]['score']['value']:.2f}"


def test_freeze_then_verify_when_the_labels_are_out(study):
    printed = said("freeze", "run", "--out", "p.json")
    text = (study / "p.json").read_text()
    assert printed.startswith("Frozen: conf-soft-m0-k1 (rule: guarded) The smallest criterion")
    assert "No evaluation label was known." in printed
    assert f"SHA-256 {json.loads(text)['sha256']}" in printed

    assert "nothing is scored: see --truth. Nothing changed." in said("verify", "p.json")
    scored = said("verify", "p.json", "--truth", "evaluator")
    pattern = r"dev pick raw-k1 [\d.]+ \[[\d.]+, [\d.]+\] -[\d.]+ \[-[\d.]+, -?[\d.]+\]"
    assert re.search(pattern, scored)
    assert frozen_score("--run", "later") in scored

    (study / "p.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    assert "Changed: document." in said("verify", "p.json", code=1)


def test_known_labels_are_said_and_nothing_is_overwritten(study):
    printed = said("freeze", "later", "--out", "p.json", "--config", "blend")
    assert "Frozen: blend Named, not chosen by a rule." in printed
    assert KNOWN in printed
    assert KNOWN in said("verify", "p.json")
    assert "already exists" in str(refused("freeze", "run", "--out", "p.json"))


def test_a_submission_is_evaluated_to_the_score_of_the_run(study):
    printed = said("submission", "run", "--label", LABEL, "--out", "package")
    assert f"{LABEL}: conf-soft-m0-k1 on 2 machines Sander: 40 clips" in printed
    assert f"Written: package/task2/{LABEL}" in printed
    said("freeze", "run", "--out", "p.json")
    evaluated = said("evaluate", f"package/task2/{LABEL}", "--truth", "evaluator")
    assert frozen_score("--truth", "evaluator") in evaluated
