"""What an earlier version wrote is read with its results, or refused with what to do next.

The model file is in ``tests/unit/detector/test_modelfile.py``, the databases beside this file.
"""

from __future__ import annotations

import json
import shutil

import pytest
from command_line import refused, run
from shared_data import ROOT

from daco.detector.model import MachineModel
from daco.errors import DataError
from daco.experiments.report import write_report
from daco.experiments.result import StudyResult

GOLDEN = ROOT / "tests" / "golden"
RUN = GOLDEN / "run" / "run"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(RUN, tmp_path / "earlier")


def test_a_run_is_read_with_its_rules_and_choices(folder):
    pinned = json.loads((GOLDEN / "run" / "run.json").read_text())
    result = StudyResult.read(folder)
    assert result.candidates == pinned["candidates"]
    for rule, config in pinned["choices"].items():
        assert result.choose(rule).config == config
    rules = result.rules().set_index("rule")
    for column in ("dev_score", "eval_score"):
        # means of numbers in the tables, in another order at most
        assert rules[column].to_dict() == pytest.approx(pinned[f"{column}s"], abs=1e-9)


def test_a_run_is_reported_and_compared(folder, tmp_path):
    write_report(StudyResult.read(folder), folder)
    assert "blend" in (folder / "report.html").read_text("utf-8")
    text = run("compare", folder, shutil.copytree(folder, tmp_path / "again")).stdout
    assert "conf-soft-m0-k1" in text


@pytest.mark.parametrize("schema", [1, 3, "2", None])
def test_a_run_of_another_version_is_refused(folder, schema):
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(document | {"schema": schema}))
    for error in (
        refused("compare", folder, RUN),
        refused("compare", RUN, "--system", f"x={folder}"),
    ):
        assert isinstance(error, DataError)
        for token in (str(folder), f"schema {schema!r}", "Run the same study again"):
            assert token in str(error)


def test_a_model_is_changed_by_this_version_and_comes_back(tmp_path):
    model = shutil.copy(GOLDEN / "models" / "model.daco", tmp_path / "old.daco")
    before = MachineModel.load(model)
    run("update", model, "--remove", before.clip_names[0])
    after = MachineModel.load(model)
    assert after.clip_names == before.clip_names[1:]
    assert after.reference.kinds == before.reference.kinds
    run("update", model, "--undo")
    assert model.read_bytes() == (GOLDEN / "models" / "model.daco").read_bytes()
