"""Judging in guarded processes: limits, kills, queues; and models that change under way."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from service_process import RATE, faulty, model, normal, wav

from daco.audio.formats import AudioLimits
from daco.errors import DacoError
from daco.monitoring import worker
from daco.monitoring.judge import Judge, JudgeTimeoutError, UnusableRecordingError
from daco.monitoring.models import Models
from daco.monitoring.worker import Limits


@pytest.fixture(scope="module")
def judge():
    made = Judge(2, seconds=20, waiting=4, limits=Limits(300 << 20, AudioLimits(bytes=1 << 26)))
    yield made
    made.close()


@pytest.fixture
def models(judge, tmp_path):
    model().save(tmp_path / "press.daco")
    return Models(
        {"press": SimpleNamespace(id="press", model=tmp_path / "press.daco", force=False)},
        partial(judge.load, worker.describe),
    )


def looked(models, path=None, content=None):
    """The model after its file has changed, and the time in which it is not looked at is over."""
    if content is not None:
        path.write_bytes(content)
    models._entries["press"].looked_at = -1000.0
    return models.get("press")


def ask_for(size):
    """Take memory."""
    return len(bytearray(size))


def test_bytes_and_files_get_the_verdict_of_the_model(judge, models, tmp_path):
    in_use = models.get("press")
    (tmp_path / "a.wav").write_bytes(faulty())
    judged = judge.score(in_use, faulty(), "a.wav")
    assert judge.score(in_use, tmp_path / "a.wav", "a.wav") == judged
    verdict = judged.verdict
    assert (verdict.state, verdict.model_sha256) == ("anomalous", model().sha256)
    assert judge.score(in_use, normal(), "n")[0].state == "normal"
    with pytest.raises(UnusableRecordingError):
        judge.score(in_use, tmp_path / "missing.wav", "missing.wav")
    assert in_use.info.names == model().clip_names
    assert len(judge.ask(in_use, worker.normals)) == 40


def test_time_and_memory_are_limited_and_the_next_job_is_done(judge, models):
    in_use = models.get("press")
    with pytest.raises(JudgeTimeoutError):
        judge.call(time.sleep, 60, seconds=0.3)
    with pytest.raises(DacoError, match="memory"):
        judge.call(ask_for, 1 << 31)
    assert judge.call(ask_for, 1 << 20) == 1 << 20
    hour = wav(np.zeros(RATE * 1800))  # 57 MB: decoding it takes more memory than is allowed
    with pytest.raises(UnusableRecordingError):
        judge.score(in_use, hour, "long.wav")
    assert judge.score(in_use, normal(), "n")[0].state == "normal"
    assert resource.getrlimit(resource.RLIMIT_AS) == (-1, -1)  # of this process


def test_a_changed_model_is_used_and_one_that_cannot_be_used_is_not(models, tmp_path, judge):
    path, first = tmp_path / "press.daco", models.get("press")
    second = looked(models, path, model(seed=100).to_bytes())
    assert second.info.sha256 == model(seed=100).sha256 != first.info.sha256
    damaged = bytearray(path.read_bytes())
    damaged[2000:2100] = bytes(100)
    foreign = replace(model(), machine="fan").to_bytes()
    for content, word in ((b"", "model"), (bytes(damaged), ""), (foreign, "another machine")):
        assert looked(models, path, content) is second
        assert word in models.problem("press")
        assert models.problem("press").endswith("The one before stays in use.")
    assert judge.score(second, normal(100), "n")[0].state == "normal"
    path.unlink()
    assert looked(models) is second
    assert "No such file" in models.problem("press")
    assert looked(models, path, model().to_bytes()).info.sha256 == first.info.sha256
    assert models.problem("press") is None
    models._machines["press"].force = True  # where that is meant
    assert looked(models, path, foreign).info.machine == "fan"


def test_no_exception_while_a_model_is_described_ends_anything(tmp_path):
    """As of a model whose basis lacks what its sentence needs."""
    model().save(tmp_path / "press.daco")
    errors = [KeyError("when"), MemoryError(), RuntimeError("bug"), None]

    def describe(data):
        error = errors.pop(0)
        if error is not None:
            raise error
        return SimpleNamespace(machine="press")

    place = SimpleNamespace(id="press", model=tmp_path / "press.daco", force=False)
    models = Models({"press": place}, describe)
    for row, word in enumerate(("KeyError", "MemoryError", "bug")):
        assert looked(models, place.model, model(seed=row).to_bytes()) is None
        assert word in models.problem("press")
    assert looked(models, place.model, model().to_bytes()) is not None
