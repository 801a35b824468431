"""Freezing and verifying: what was changed is found and named."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from random_studies import FROZEN_GRID, random_run

from daco.errors import DataError, InputError
from daco.evaluation.official import official_scores
from daco.experiments.freeze import KNOWN, document_hash, freeze, read_preregistration, verify
from daco.experiments.result import StudyResult

CHOSEN = "conf-soft-m0-k1"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """A study before the evaluation labels are out and with them, and its preregistration."""
    folder = tmp_path_factory.mktemp("frozen")
    freeze(random_run(folder / "run"), folder / "prereg.json")
    random_run(folder / "later", labelled=True)
    return folder


@pytest.fixture
def run(frozen, tmp_path):
    return StudyResult.read(shutil.copytree(frozen / "run", tmp_path / "run"))


@pytest.fixture
def later(frozen, tmp_path):
    return StudyResult.read(shutil.copytree(frozen / "later", tmp_path / "later"))


@pytest.fixture
def prereg(frozen, run, tmp_path):
    return Path(shutil.copy(frozen / "prereg.json", tmp_path))


def details(result, status):
    return {check.what: check.detail for check in result.checks if check.status == status}


def edit(path, change, *, rehash=False):
    document = json.loads(path.read_text())
    change(document)
    if rehash:
        document["sha256"] = document_hash(document)
    path.write_text(json.dumps(document))


def test_a_preregistration_holds_what_the_choice_rests_on(run, prereg):
    document = read_preregistration(prereg)
    choice = run.choose("guarded")
    assert document["frozen"] == {
        "configuration": choice.config,
        "rule": "guarded",
        "reason": choice.reason,
    }
    assert document["picks"]["dev pick"] == run.choose("dev").config
    assert [row["configuration"] for row in document["grid"]] == list(FROZEN_GRID)
    assert {"dev_score", "criterion_dev"} <= set(document["grid"][0])
    assert "eval_score" not in document["grid"][0]
    assert all(document[name] == run.run[name] for name in ("settings", "inputs", "tables"))
    assert (document["run"], document[KNOWN]) == ("run", False)
    age = datetime.now(UTC) - datetime.fromisoformat(document["created"])
    assert timedelta(seconds=-1) < age < timedelta(minutes=5)
    assert document["sha256"] == document_hash(document)


def test_a_label_that_nobody_scored_yet_is_a_known_label(run, tmp_path):
    """Half the labels give no official score, but whoever has them has looked."""
    clips = run.clips.copy()
    clips.loc[clips["label"].idxmin(), "label"] = 1
    assert freeze(replace(run, clips=clips), tmp_path / "p.json")[KNOWN] is True


def test_a_configuration_can_be_named(run, tmp_path):
    document = freeze(run, tmp_path / "p.json", "blend")
    assert document["frozen"]["configuration"] == document["picks"]["frozen pick"] == "blend"
    result = verify(tmp_path / "p.json")
    assert result.ok
    assert "named" in details(result, "note")["choice"]
    with pytest.raises(InputError, match=r"no scores of 'blent'\. Did you mean 'blend'"):
        freeze(run, tmp_path / "q.json", "blent")


def test_a_run_that_changed_is_not_frozen(run, tmp_path):
    other = {**run.run, "choice": {"config": "raw-k1"}}
    with pytest.raises(DataError, match="changed after the run"):
        freeze(replace(run, run=other), tmp_path / "p.json")
    run.criteria.assign(value=0.5).to_parquet(run.folder / "criteria.parquet")
    with pytest.raises(DataError, match="changed after the run"):
        freeze(run, tmp_path / "p.json")
    with pytest.raises(InputError, match="run in a folder"):
        freeze(StudyResult(run.clips, run.criteria, run.run), tmp_path / "p.json")
    assert not (tmp_path / "p.json").exists()


def test_an_untouched_preregistration_verifies(prereg):
    result = verify(prereg)
    assert result.ok
    expected = {"document", "clips.parquet", "criteria.parquet", "grid", "choice", "dev input"}
    assert expected <= set(details(result, "ok")) == {check.what for check in result.checks}
    content = json.loads(prereg.read_text())
    assert (result.document, result.scores) == (content, [])
    prereg.write_text(json.dumps(dict(reversed(content.items())), indent=4))
    assert verify(prereg).ok  # another layout of the same document


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["frozen"].update(configuration="raw-k1"),
        lambda d: d.update({KNOWN: True}),
        lambda d: d["grid"][0].update(criterion_dev=0.0),
        lambda d: d.pop("sha256"),
    ],
)
def test_an_edit_of_the_document_is_found(prereg, later, change):
    edit(prereg, change)
    result = verify(prereg, run=later.folder)
    assert list(details(result, "changed")) == ["document"]
    assert (result.document, result.scores) == ({}, [])  # nothing else in it is looked at


def test_a_forged_document_does_not_follow_from_the_tables(prereg):
    edit(prereg, lambda d: d["frozen"].update(configuration="raw-k1"), rehash=True)
    assert details(verify(prereg), "changed") == {
        "choice": f"the rule 'guarded' picks {CHOSEN}, frozen: raw-k1"
    }


def test_a_changed_and_a_deleted_table(prereg, run):
    run.clips.assign(blend=0.0).to_parquet(run.folder / "clips.parquet")
    (run.folder / "criteria.parquet").unlink()
    assert set(details(verify(prereg), "changed")) == {"clips.parquet", "criteria.parquet"}


def test_run_and_document_can_be_moved_together_or_apart(prereg, run, tmp_path):
    there = tmp_path / "elsewhere"
    there.mkdir()
    moved = shutil.move(prereg, there / "prereg.json")
    assert verify(moved).ok
    assert "--run" in details(verify(moved), "note")["frozen run"]
    with pytest.raises(InputError, match="with --run"):
        verify(moved, truth=tmp_path)
    assert "choice" in details(verify(moved, run=run.folder), "ok")
    with pytest.raises(DataError, match="not a finished run"):
        verify(moved, run=tmp_path / "nowhere")
    shutil.move(run.folder, there / "run")
    assert "choice" in details(verify(moved), "ok")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 3}', '{"schema": 1, "what": "daco"}'])
def test_what_is_not_a_preregistration(tmp_path, run, text):
    path = tmp_path / "prereg.json"
    path.write_text(text)
    for wrong in (path, tmp_path / "none.json", tmp_path):
        with pytest.raises(DataError, match="is not a"):
            read_preregistration(wrong)
    with pytest.raises(DataError, match="already exists"):
        freeze(run, path)


def test_a_later_run_scores_the_frozen_pick(prereg, later):
    result = verify(prereg, run=later.folder)
    assert result.ok
    assert {"grid", "choice", "dev input", "settings"} <= set(details(result, "ok"))
    metrics = later.metrics().query("set == 'eval'")
    expected = official_scores(metrics)
    assert [row["pick"] for row in result.scores][:2] == ["frozen pick", "dev pick"]
    for row in result.scores:
        score, difference = row["score"], row["difference"]
        assert score.value == pytest.approx(expected[row["configuration"]])
        assert score.low < score.value < score.high
        assert score.n == 2
        if difference is not None:
            delta = expected[CHOSEN] - score.value
            assert difference.value == pytest.approx(delta, abs=1e-9)
            assert difference.low <= difference.value <= difference.high


def test_what_does_not_change_the_choice_is_only_noted(prereg, later, monkeypatch):
    """Another version, other settings, and a table to which labels were added."""

    def change(document):
        document["daco"] = "99.0"
        document["settings"].update(seed=4, false_alarm_rate=0.05)
        document["inputs"][1].update(sha256="f" * 64)

    edit(later.folder / "run.json", change)
    monkeypatch.setattr("daco.experiments.freeze.__version__", "98.0")
    result = verify(prereg, run=later.folder)
    assert result.ok
    notes = details(result, "note")
    assert notes["settings"] == "other seed, false_alarm_rate"
    assert notes["daco"].startswith("98.0, 99.0, frozen with")
    assert "same clips and vectors" in details(result, "ok")["eval input"]


@pytest.mark.parametrize(("shift", "same"), [(5e-5, True), (5e-4, False)])
def test_numbers_agree_within_the_printed_digits(prereg, later, shift, same):
    changed = later.criteria.assign(value=later.criteria["value"] + shift)
    changed.to_parquet(later.folder / "criteria.parquet")
    found = details(verify(prereg, run=later.folder), "changed")
    assert ("grid" in found) != same
    if not same:
        assert "criterion_dev by up to 0.0005" in found["grid"]


def test_other_inputs_and_another_grid_are_named(prereg, later, tmp_path):
    edit(later.folder / "run.json", lambda d: d["machines"][0].update(vectors="others"))
    system = {"role": "system", "name": "mine", "sha256": "f" * 64}
    edit(prereg, lambda d: d["inputs"].append(system), rehash=True)
    assert details(verify(prereg, run=later.folder), "changed") == {
        "dev input": "the run has other clips and vectors",
        "mine": "the run has another file, or none",
    }
    grid = dict.fromkeys(("raw-k1", CHOSEN, "raw-k2"), (0.5, 1.0, None))
    other = random_run(tmp_path / "other", grid=grid)
    grid = details(verify(prereg, run=other.folder), "changed")["grid"]
    assert grid == "not in both: conf-soft-m30-k1, ratio-hard-k1, raw-k2"
    # A number that only one side knows is another number, but a new kind of number is none.
    edit(prereg, lambda d: d["grid"][0].update(dev_score=None), rehash=True)
    assert "dev_score by up to inf" in details(verify(prereg), "changed")["grid"]
    edit(prereg, lambda d: [row.pop("dev_score") for row in d["grid"]], rehash=True)
    assert "grid" in details(verify(prereg), "ok")
