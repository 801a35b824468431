"""The way of one clip through the package, from its embedding to a verdict."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from daco.detector.model import MachineModel
from daco.detector.verdict import judge_embeddings

HEAVY = {"numba", "pandas", "matplotlib", "sklearn", "torch"}
JUDGE = """
import json, sys
import numpy as np
from daco.detector.model import MachineModel
from daco.detector.verdict import judge_embeddings
model = MachineModel.load(sys.argv[1])
verdicts = list(judge_embeddings(model, np.ones((1, 16)), ["a.wav"]))
print(json.dumps([verdicts[0].state, sorted(set(sys.modules))]))
"""


def fitted(config):
    X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    return MachineModel.fit(X, ["source"] * 50 + ["target"] * 10, machine="fan", config=config)


def daco_calls(function):
    """(module, function) of every call of a function in daco."""
    calls = []

    def watch(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.partition(".")[0] == "daco":
            calls.append((module, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


def test_one_clip_passes_few_modules_and_functions():
    """Warm: the first clip computes what all clips share."""
    model, clip = fitted("conf-soft-m0-k1"), np.ones((1, 16))
    first = list(judge_embeddings(model, clip, ["a.wav"]))
    calls = daco_calls(lambda: first.extend(judge_embeddings(model, clip, ["a.wav"])))
    assert first[0] == first[1]
    modules = {module for module, _ in calls}
    assert len(modules) <= 12, sorted(modules)
    assert len([name for name in modules if name.startswith("daco.method.")]) <= 8
    assert len(calls) <= 120, calls


@pytest.mark.parametrize("config", ["conf-soft-m0-k1", "blend"])
def test_a_clip_is_judged_without_the_libraries_of_studies(config, tmp_path):
    path = tmp_path / "fan.daco"
    fitted(config).save(path)
    command = [sys.executable, "-c", JUDGE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    state, loaded = json.loads(done.stdout)
    assert state == "normal"
    assert HEAVY.isdisjoint(loaded)
