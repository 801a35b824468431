"""Real workers: they are shared, bounded by the kernel, replaced when they end, and retired."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from field_models import LOGMEL
from service_process import faulty, model, normal, wait_until
from two_microphones import POLICIES, RATE, both

from daco.audio.microphones import needs_both
from daco.detector.model import MachineModel
from daco.detector.verdict import judge
from daco.embedding.frontend import Listener
from daco.monitoring.service.model_server import load_detector
from daco.monitoring.service.registry import Registry
from daco.monitoring.service.schemas import Problem
from daco.monitoring.service.settings import Settings
from daco.monitoring.service.workers import ModelServer, ModelServerLostError, WorkerPool

pytestmark = pytest.mark.anyio


def settings(folder, **changed):
    (folder / "models").mkdir(exist_ok=True)
    return Settings(
        models=folder / "models", database="sqlite:///x.db", keep_audio="none", **changed
    )


def new_server(folder, **changed):
    server = ModelServer(settings(folder, **changed), folder)
    assert "error" not in server.load("press", model().to_bytes())
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A model server with one model; each test has workers of its own."""
    os.environ["DACO_TOKEN"] = "a-secret-of-the-service"
    try:
        server = new_server(tmp_path_factory.mktemp("server"))
    finally:
        del os.environ["DACO_TOKEN"]
    yield server
    server.end()


@pytest.fixture
async def pool(server):
    """One worker that has done a job; four jobs may wait."""
    pool = WorkerPool(1, 4, 20.0)
    pool.use(server)
    await score(pool)
    yield pool
    pool._server = None  # the next test uses it
    pool.close()
    while workers(server):
        pass


@pytest.fixture
def new_pool(tmp_path):
    """A function that makes a server and a pool with other limits."""
    with ExitStack() as pools:

        def make(seconds=20.0, **changed):
            server, pool = new_server(tmp_path, **changed), WorkerPool(1, 4, seconds)
            pools.callback(pool.close)
            pool.use(server)
            return server, pool

        yield make


async def score(pool, data=None, machine="press"):
    verdict, _ = await pool.score(machine, "a.wav", normal() if data is None else data)
    return verdict


def workers(server) -> list[int]:
    pid = server.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def only_worker(server) -> int:
    """The worker that is left when those that ended have gone."""
    wait_until(lambda: len(workers(server)) == 1)
    return workers(server)[0]


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory) -> bytes:
    """400 s at 48 kHz in some megabytes of FLAC: 77 MB as float32."""
    path = tmp_path_factory.mktemp("long") / "long.flac"
    soundfile.write(path, np.random.default_rng(0).normal(0, 1e-4, 400 * 48000), 48000)
    return path.read_bytes()


async def test_a_worker_judges_as_the_library_does(pool):
    bad = await score(pool, faulty())
    expected = judge(model(), Listener(model().frontend), faulty(), name="a.wav")
    assert bad.alarm
    assert not (await score(pool)).alarm
    rounded = {"score": 0, "p_value": 0, "nearest_distance": 0, "domain_weights": {}}
    assert replace(bad, **rounded) == replace(expected, **rounded)
    assert bad.score == pytest.approx(expected.score, abs=1e-6)  # float32
    with pytest.raises(Problem) as damaged:
        await score(pool, b"RIFF nonsense")
    assert damaged.value.status == 400
    assert "/" not in damaged.value.detail


async def test_a_job_whose_worker_ends_is_done_by_another(pool, server):
    first = only_worker(server)
    os.kill(first, signal.SIGSTOP)
    job = asyncio.create_task(score(pool))
    await asyncio.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    assert not (await job).alarm
    assert only_worker(server) != first
    assert pool.restarts == 1


@pytest.mark.parametrize("refills", [True, False])
async def test_an_idle_worker_that_ends_is_replaced(pool, server, refills):
    first = only_worker(server)
    os.kill(first, signal.SIGKILL)
    while refills and not pool.restarts:
        pool.refill()
    assert not (await score(pool)).alarm
    assert only_worker(server) != first
    assert pool.restarts == 1


async def test_more_jobs_than_may_wait_are_refused_at_once(pool, server):
    pid = only_worker(server)
    os.kill(pid, signal.SIGSTOP)
    jobs = [asyncio.create_task(score(pool, normal(n))) for n in range(5)]
    await asyncio.sleep(0.05)
    assert pool.is_full
    assert (pool.busy, pool.queued) == (1, 4)
    with pytest.raises(Problem) as caught:
        await score(pool)
    assert caught.value.status == 503
    os.kill(pid, signal.SIGCONT)
    assert not any(verdict.alarm for verdict in await asyncio.gather(*jobs))
    assert pool.queued == 0


async def test_a_job_whose_client_has_gone_leaves_the_queue(pool, server):
    pid = only_worker(server)
    os.kill(pid, signal.SIGSTOP)
    jobs = [asyncio.create_task(score(pool)) for _ in range(3)]
    await asyncio.sleep(0.05)
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    assert pool.queued == 0
    os.kill(pid, signal.SIGCONT)
    assert not (await score(pool)).alarm


async def test_workers_have_one_thread_no_token_and_no_core_dumps(pool, server):
    process = Path(f"/proc/{only_worker(server)}")
    assert "Threads:\t1\n" in (process / "status").read_text()
    assert b"a-secret" not in (process / "environ").read_bytes()
    limits = {
        line[:25].strip(): line[26:].split()[0]
        for line in (process / "limits").read_text().splitlines()
    }
    assert limits["Max core file size"] == "0"
    assert int(limits["Max address space"]) < 4e9
    assert int(limits["Max cpu time"]) < 100


async def test_a_job_that_takes_too_long_is_ended_by_the_kernel(new_pool, long_recording):
    server, pool = new_pool(0.5, job_seconds=0.5)
    pid = only_worker(server)
    with pytest.raises(Problem) as caught:
        await score(pool, long_recording)  # decoding and embedding 400 s takes seconds
    assert caught.value.status == 504
    wait_until(lambda: pid not in workers(server))
    assert pool.restarts == 1


async def test_a_job_that_takes_too_much_memory_is_refused_and_its_worker_replaced(
    new_pool, long_recording
):
    _, pool = new_pool(job_memory=60_000_000, max_body=15_000_000)
    with pytest.raises(Problem, match="memory"):
        await score(pool, long_recording)
    assert not (await score(pool)).alarm
    assert pool.restarts == 1


async def test_workers_outlive_the_server_that_forked_them(new_pool):
    server, pool = new_pool()
    await score(pool)
    server.process.kill()
    server.process.wait()
    with pytest.raises(ModelServerLostError):
        server.fork(1.0)
    assert not (await score(pool)).alarm


@pytest.mark.parametrize("policy", POLICIES)
def test_a_model_is_loaded_for_as_many_microphones_as_it_takes(policy):
    frontend = replace(LOGMEL, channel=policy, seconds=None)
    listener = Listener(frontend)
    waves = [both(seed, seconds=1) for seed in range(12)]
    given = waves if needs_both(policy) else [pair[0] for pair in waves]
    X = np.vstack([listener.embed_waveform(each, RATE).embeddings for each in given])
    fitted = MachineModel.fit(X, ["day"] * 12, machine="press", frontend=frontend, config="raw-k1")
    assert load_detector(fitted.to_bytes(), {}, {}).model.sha256 == fitted.sha256


class TestRegistry:
    @pytest.fixture
    def registry(self, tmp_path):
        pool = WorkerPool(1, 4, 20.0)
        changes = []
        registry = Registry(
            settings(tmp_path), pool, tmp_path, lambda *change: changes.append(change)
        )
        registry.pool, registry.changes, registry.folder = pool, changes, tmp_path / "models"
        yield registry
        pool.close()

    async def test_models_come_change_break_and_go(self, registry):
        folder, pool = registry.folder, registry.pool
        path = folder / "press.daco"
        await registry.refresh()
        assert registry.is_loaded
        assert not registry.snapshot.machines

        model().save(path)
        (folder / "note.txt").write_text("no model")
        (folder / ".hidden.daco").write_text("no model")
        await registry.refresh()
        first = registry.get("press")
        assert first.model_sha256 == model().sha256
        assert first.domains == {"source": 30, "target": 10}
        assert first.index_of["train/press_007.wav"] == 7

        other = model().at_rate(0.2)
        other.save(path)
        await registry.refresh()
        assert registry.get("press").model_sha256 == other.sha256
        assert (await score(pool)).model_sha256 == other.sha256

        good = path.read_bytes()
        path.write_bytes(good[: len(good) // 2])
        await registry.refresh()
        kept = registry.get("press")
        assert kept.model_sha256 == other.sha256
        assert "truncated" in kept.problem
        assert str(folder) not in kept.problem
        assert not registry.snapshot.problems
        assert (await score(pool)).model_sha256 == other.sha256

        path.write_bytes(good)
        await registry.refresh()
        assert registry.get("press").problem is None

        path.unlink()
        await registry.refresh()
        assert registry.get("press") is None
        with pytest.raises(Problem, match="any more"):
            await score(pool)
        assert [change for _, change in registry.changes] == [
            "added",
            "changed",
            "broken",
            "removed",
        ]

    async def test_only_the_model_that_changed_is_loaded_again(self, registry, monkeypatch):
        loaded = []
        load = ModelServer.load

        def counted(self, machine, data):
            loaded.append(machine)
            return load(self, machine, data)

        monkeypatch.setattr(ModelServer, "load", counted)
        for name in ("press", "fan"):
            model().save(registry.folder / f"{name}.daco")
        await registry.refresh()
        server = registry.server
        await registry.refresh()
        model().at_rate(0.2).save(registry.folder / "fan.daco")
        await registry.refresh()
        assert registry.server is server
        assert loaded == ["fan", "press", "fan"]

    async def test_files_that_are_no_models_are_named_with_their_reason(self, registry):
        folder = registry.folder
        (folder / "broken.daco").write_bytes(b"no model at all, but long enough for one")
        (folder / "bad name.daco").write_bytes(b"x")
        (folder / "folder.daco").mkdir()
        os.mkfifo(folder / "pipe.daco")
        model().save(folder / "Lüfter-2.daco")
        replace(model(), frontend=None).save(folder / "vectors.daco")
        await registry.refresh()
        assert sorted(registry.snapshot.machines) == ["Lüfter-2", "vectors"]
        problems = registry.snapshot.problems
        assert sorted(problems) == ["bad name.daco", "broken.daco", "folder.daco", "pipe.daco"]
        assert "letters" in problems["bad name.daco"]
        assert all(str(folder) not in problem for problem in problems.values())
        with pytest.raises(Problem, match="cannot score recordings"):
            await score(registry.pool, machine="vectors")

    async def test_all_models_together_are_bounded(self, registry, monkeypatch):
        for name in ("fan", "press"):
            model().save(registry.folder / f"{name}.daco")
        size = (registry.folder / "fan.daco").stat().st_size
        monkeypatch.setattr("daco.monitoring.service.registry.MOST_BYTES", 2 * size - 1)
        await registry.refresh()
        assert list(registry.snapshot.machines) == ["fan"]
        assert "too large" in registry.snapshot.problems["press.daco"]

    async def test_a_server_that_ended_is_started_again_with_what_was_good(self, registry):
        path = registry.folder / "press.daco"
        model().save(path)
        await registry.refresh()
        registry.server.process.kill()
        registry.server.process.wait()
        path.write_bytes(b"")
        await registry.refresh()
        assert registry.server.is_alive
        assert (await score(registry.pool)).model_sha256 == model().sha256
