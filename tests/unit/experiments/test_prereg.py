"""Freezing and verifying: what was changed is found and named."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from small_runs import GRID, small_study

from daco.errors import DataError, InputError
from daco.experiments.prereg import KNOWN, document_hash, freeze, is_intact, read_preregistration
from daco.experiments.study_tables import write_json
from daco.experiments.verification import verify


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A study before the evaluation labels are out."""
    folder = tmp_path_factory.mktemp("frozen")
    small_study(folder)
    return folder / "run"


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """The same study with evaluation labels."""
    folder = tmp_path_factory.mktemp("later")
    small_study(folder, labelled=True)
    return folder / "run"


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


@pytest.fixture
def prereg(run, tmp_path):
    write_json(freeze(run, created="2026-06-01", beside=tmp_path), tmp_path / "prereg.json")
    return tmp_path / "prereg.json"


def changed(result):
    return {check.what: check.detail for check in result.checks if check.status == "changed"}


def statuses(result):
    return {check.what: check.status for check in result.checks}


def edit(path, change, *, rehash=False):
    document = json.loads(path.read_text())
    change(document)
    if rehash:
        document["sha256"] = document_hash(document)
    path.write_text(json.dumps(document))


# ------------------------------------------------------------------------------------- freezing


def test_a_preregistration_holds_what_the_choice_rests_on(run, tmp_path):
    document = freeze(run, created="2026-06-01", beside=tmp_path)
    selection = json.loads((run / "selection.json").read_text())
    assert document["frozen"]["config"] == selection["chosen"]["config"]
    assert document["frozen"]["rule"] == "criterion, both vetoes"
    assert document["dev_pick"] in GRID
    assert document["default"] == "conf-soft-m0-k1"
    assert document["created"] == "2026-06-01T00:00:00+00:00"
    assert document["settings"] == {
        "seed": 0,
        "n_splits": 3,
        "readout": "embedding",
        "false_alarm_rate": 0.1,
        "domains": {"source": "source", "target": "target"},
    }
    assert [row["config"] for row in document["grid"]] == list(GRID)
    assert set(document["grid"][0]) == {"config", "dev_omega", "crit_dev", "crit_paper"}
    assert [each["role"] for each in document["inputs"]] == ["dev", "eval"]
    assert document["inputs"][0]["metadata"]["weights_sha256"] == "0" * 64
    assert document["run"]["folder"] == "run"
    assert document[KNOWN] is False
    assert {"grid.csv", "per_machine.csv", "selection.json", "stats.json", "run.json"} <= set(
        document["artifacts"]
    )
    assert "machines/eval_Sander_section_00.npz" in document["artifacts"]
    assert not {"cost.csv", "report.html", "report.json"} & set(document["artifacts"])
    assert is_intact(document)


def test_the_same_run_and_date_give_the_same_bytes(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1780272000")
    texts = set()
    for name in "ab":
        write_json(freeze(run, beside=tmp_path), tmp_path / name)
        texts.add((tmp_path / name).read_bytes())
    assert len(texts) == 1
    assert freeze(run)["created"] == "2026-06-01T00:00:00+00:00"
    assert freeze(run, created="2026-06-01T09:30+09:00")["created"] == "2026-06-01T00:30:00+00:00"


def test_dates_that_are_none(run, monkeypatch):
    with pytest.raises(InputError, match="'June' is not a date"):
        freeze(run, created="June")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH must be seconds"):
        freeze(run)


def test_labels_that_nobody_scored_yet_are_known_labels(run):
    """Half the labels give no official score, but whoever has them has looked."""
    path = run / "machines/eval_Sander_section_00.npz"
    with np.load(path) as file:
        arrays = dict(file)
    arrays["labels"][0] = 1
    np.savez(path, **arrays)
    assert freeze(run)[KNOWN] is True


def test_a_choice_that_does_not_follow_is_not_frozen(run):
    # run.json knows the hash of the file that is edited now
    edit(run / "run.json", lambda d: d["artifacts"].pop("selection.json"))
    edit(run / "selection.json", lambda d: d["chosen"].update(config="raw-k1"))
    with pytest.raises(DataError, match="chose 'raw-k1', and the rule picks 'conf-"):
        freeze(run)


def test_a_run_that_was_edited_after_it_finished_is_not_frozen(run):
    path = run / "grid.csv"
    path.write_text(path.read_text().replace("7", "8", 1))
    with pytest.raises(DataError, match=r"grid\.csv in .* changed after the run was finished"):
        freeze(run)


# ------------------------------------------------------------------------------------ tampering


def test_an_untouched_preregistration_verifies(prereg):
    result = verify(prereg)
    assert result.ok
    assert statuses(result) == {
        "document": "ok",
        "choice": "ok",
        "artifacts": "ok",
        "choice from grid.csv": "ok",
    }
    assert (result.config, result.evaluation_known) == (
        json.loads(prereg.read_text())["frozen"]["config"],
        False,
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["frozen"].update(config="raw-k1"),
        lambda d: d.update(created="2026-05-01T00:00:00+00:00"),
        lambda d: d.update({KNOWN: True}),
        lambda d: d["grid"][0].update(crit_dev=0.0),
        lambda d: d["settings"].update(seed=1),
        lambda d: d.update(remark="all is well"),
        lambda d: d.pop("sha256"),
        lambda d: d.update(sha256="0" * 64),
    ],
)
def test_an_edit_of_the_document_is_found(prereg, change):
    edit(prereg, change)
    result = verify(prereg)
    assert not result.ok
    assert list(changed(result)) == ["document"]
    assert result.scores == ()  # nothing else in it is looked at


def test_another_layout_of_the_same_document_is_no_edit(prereg):
    document = json.loads(prereg.read_text())
    prereg.write_text(json.dumps(dict(reversed(document.items())), indent=4))
    assert verify(prereg).ok


def test_a_folder_that_is_no_run_and_an_unfinished_study(tmp_path, run):
    with pytest.raises(DataError, match="not a finished run"):
        freeze(tmp_path)
    (run / "run.json").unlink()
    with pytest.raises(DataError, match=r"is not finished: it has no run\.json"):
        freeze(run)


def test_a_frozen_pick_with_a_made_up_hash_does_not_follow_from_its_grid(prereg):
    edit(prereg, lambda d: d["frozen"].update(config="raw-k1"), rehash=True)
    found = changed(verify(prereg))
    assert set(found) == {"choice", "choice from grid.csv"}
    assert "frozen: raw-k1" in found["choice"]


def test_a_made_up_document_with_a_fitting_hash(prereg):
    edit(prereg, lambda d: [d.pop(name) for name in ("grid", "artifacts")], rehash=True)
    with pytest.raises(DataError, match="has no grid, artifacts: 'daco freeze' did not write it"):
        verify(prereg)


def test_a_grid_that_cannot_be_read(prereg, run):
    (run / "grid.csv").write_bytes(b"\xff\xfe\x00")
    assert set(changed(verify(prereg))) == {"grid.csv", "artifacts", "choice from grid.csv"}


def test_a_grid_that_would_pick_another(prereg, run):
    frozen = json.loads(prereg.read_text())["frozen"]["config"]
    path = run / "grid.csv"
    table = pd.read_csv(path)
    table.loc[table["config"] == frozen, "dev_omega"] = 1.0  # the veto excludes it
    table.to_csv(path, index=False)
    assert f"frozen: {frozen}" in changed(verify(prereg))["choice from grid.csv"]


def test_a_swapped_and_a_deleted_artifact(prereg, run, later):
    shutil.copy(later / "stats.json", run / "stats.json")
    (run / "machines/dev_fan_section_00.npz").unlink()
    found = changed(verify(prereg))
    assert found["stats.json"] == "not the file that was frozen"
    assert found["machines/dev_fan_section_00.npz"] == "missing"
    total = len(json.loads(prereg.read_text())["artifacts"])
    assert found["artifacts"] == f"{total - 2} of {total} files as frozen"


def test_run_and_document_can_be_moved_together_or_apart(prereg, run, tmp_path):
    there = tmp_path / "elsewhere"
    there.mkdir()
    moved = shutil.move(prereg, there / "prereg.json")
    assert statuses(verify(moved))["artifacts"] == "unknown"
    assert verify(moved).ok
    assert statuses(verify(moved, frozen=run))["artifacts"] == "ok"
    shutil.move(run, there / "run")
    assert statuses(verify(moved))["artifacts"] == "ok"
    with pytest.raises(DataError, match="is not a folder"):
        verify(moved, frozen=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "is not a preregistration"),
        ('{"schema": 1, "what": "other"}', "is not a preregistration"),
        ('{"schema": 99, "what": "daco preregistration"}', "newer daco"),
    ],
)
def test_what_is_no_preregistration(tmp_path, text, message):
    path = tmp_path / "prereg.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_preregistration(path)
    with pytest.raises(DataError, match="does not exist"):
        read_preregistration(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"is a folder\. Give a file"):
        read_preregistration(tmp_path)


# ------------------------------------------------------------------------------------ later runs


def test_a_later_run_scores_the_frozen_pick(prereg, later):
    result = verify(prereg, run=later)
    assert result.ok
    assert set(statuses(result).values()) == {"ok"}
    assert {"grid", "seed", "dev input", "eval input", "dev weights_sha256"} <= set(
        statuses(result)
    )
    grid = {line.split(",")[0]: line for line in (later / "grid.csv").read_text().splitlines()}
    omega = [float(grid[row["config"]].split(",")[2]) for row in result.scores]
    assert grid["config"].split(",")[2] == "eval_omega"
    assert [row["eval_omega"] for row in result.scores] == omega
    for delta, row in zip(result.deltas, result.scores[1:], strict=True):
        assert (delta["against"], delta["second"]) == (row["pick"], row["config"])
        assert delta["delta"] == pytest.approx(omega[0] - row["eval_omega"], abs=1e-6)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["ok"] is True


def test_other_settings_of_a_later_run_are_named(prereg, tmp_path):
    small_study(tmp_path / "other", grid=GRID[::-1], seed=4, n_splits=2)
    found = changed(verify(prereg, run=tmp_path / "other/run"))
    assert found["grid"] == "in another order, which breaks ties"
    assert found["seed"] == "4, frozen: 0"
    assert found["n_splits"] == "2, frozen: 3"
    assert found["dev scores, criteria"].startswith("differ by up to 0.")


def test_other_inputs_and_weights_of_a_later_run_are_named(prereg, later, tmp_path):
    other = shutil.copytree(later, tmp_path / "other")

    def swap(document):
        document["daco_version"] = "99.0"
        document["inputs"][0]["sha256"] = "f" * 64
        document["inputs"][1]["metadata"]["weights_sha256"] = "1" * 64

    edit(other / "run.json", swap)
    found = changed(verify(prereg, run=other))
    assert set(found) == {"daco version", "dev input", "eval weights_sha256"}
    assert found["eval weights_sha256"] == "111111111111..., frozen: 000000000000..."


def test_a_later_run_with_another_grid(prereg, tmp_path):
    frozen = json.loads(prereg.read_text())["frozen"]["config"]
    rest = [config for config in GRID if config != frozen]
    small_study(tmp_path / "other", grid=[*rest, "raw-k2"], labelled=True)
    result = verify(prereg, run=tmp_path / "other/run")
    assert changed(result)["grid"] == f"without {frozen} and with raw-k2"
    assert "frozen pick" not in {row["pick"] for row in result.scores}
    assert result.deltas == ()
