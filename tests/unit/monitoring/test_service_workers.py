"""Real workers: they are shared, bounded by the kernel, replaced when they end, and retired."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
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


def settings(folder, **changed):
    (folder / "models").mkdir(exist_ok=True)
    return Settings(
        models=folder / "models", database="sqlite:///x.db", keep_audio="none", **changed
    )


@pytest.fixture(scope="module")
def run():
    """Runs coroutines in one event loop for all tests, so that they can share a server."""
    with asyncio.Runner() as runner:
        yield runner.run


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
def pool(run, server):
    """One worker that has done a job; four jobs may wait."""
    pool = WorkerPool(1, 4, 20.0)
    pool.use(server)
    run(score(pool))
    yield pool
    pool._server = None  # the next test uses it
    pool.close()
    while workers(server):
        pass


@asynccontextmanager
async def own_pool(folder, seconds=20.0, **changed):
    server = new_server(folder, **changed)
    pool = WorkerPool(1, 4, seconds)
    pool.use(server)
    try:
        yield server, pool
    finally:
        pool.close()


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


def test_a_worker_judges_as_the_library_does(run, pool):
    bad = run(score(pool, faulty()))
    expected = judge(model(), Listener(model().frontend), faulty(), name="a.wav")
    assert bad.alarm
    assert not run(score(pool)).alarm
    assert replace(bad, score=0, p_value=0, nearest_distance=0, domain_weights={}) == replace(
        expected, score=0, p_value=0, nearest_distance=0, domain_weights={}
    )
    assert bad.score == pytest.approx(expected.score, abs=1e-6)  # float32
    with pytest.raises(Problem) as damaged:
        run(score(pool, b"RIFF nonsense"))
    assert damaged.value.status == 400
    assert "/" not in damaged.value.detail


def test_a_job_whose_worker_ends_is_done_by_another(run, pool, server):
    first = only_worker(server)

    async def scenario():
        os.kill(first, signal.SIGSTOP)
        job = asyncio.create_task(score(pool))
        await asyncio.sleep(0.1)
        os.kill(first, signal.SIGKILL)
        return await job

    assert not run(scenario()).alarm
    assert only_worker(server) != first
    assert pool.restarts == 1


@pytest.mark.parametrize("refills", [True, False])
def test_an_idle_worker_that_ends_is_replaced(run, pool, server, refills):
    first = only_worker(server)
    os.kill(first, signal.SIGKILL)
    while refills and not pool.restarts:
        pool.refill()
    assert not run(score(pool)).alarm
    assert only_worker(server) != first
    assert pool.restarts == 1


def test_more_jobs_than_may_wait_are_refused_at_once(run, pool, server):
    pid = only_worker(server)

    async def scenario():
        os.kill(pid, signal.SIGSTOP)
        jobs = [asyncio.create_task(score(pool, normal(n))) for n in range(5)]
        await asyncio.sleep(0.05)
        assert pool.is_full
        assert (pool.busy, pool.queued) == (1, 4)
        with pytest.raises(Problem) as caught:
            await score(pool)
        assert caught.value.status == 503
        os.kill(pid, signal.SIGCONT)
        return await asyncio.gather(*jobs)

    assert not any(verdict.alarm for verdict in run(scenario()))
    assert pool.queued == 0


def test_a_job_whose_client_has_gone_leaves_the_queue(run, pool, server):
    pid = only_worker(server)

    async def scenario():
        os.kill(pid, signal.SIGSTOP)
        jobs = [asyncio.create_task(score(pool)) for _ in range(3)]
        await asyncio.sleep(0.05)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        assert pool.queued == 0
        os.kill(pid, signal.SIGCONT)
        return await score(pool)

    assert not run(scenario()).alarm


def test_workers_have_one_thread_no_token_and_no_core_dumps(pool, server):
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


def test_a_job_that_takes_too_long_is_ended_by_the_kernel(run, tmp_path, long_recording):
    async def scenario():
        async with own_pool(tmp_path, 0.5, job_seconds=0.5) as (server, pool):
            await score(pool)
            pid = only_worker(server)
            with pytest.raises(Problem) as caught:
                await score(pool, long_recording)
            assert caught.value.status == 504
            while pid in workers(server):
                await asyncio.sleep(0.01)
            assert pool.restarts == 1

    # Decoding, resampling and embedding 400 s takes seconds.
    run(asyncio.wait_for(scenario(), 60))


def test_a_job_that_takes_too_much_memory_is_refused_and_its_worker_replaced(
    run, tmp_path, long_recording
):
    async def scenario():
        limits = {"job_memory": 60_000_000, "max_body": 15_000_000}
        async with own_pool(tmp_path, **limits) as (_, pool):
            with pytest.raises(Problem, match="memory"):
                await score(pool, long_recording)
            assert not (await score(pool)).alarm
            assert pool.restarts == 1

    run(scenario())


def test_workers_outlive_the_server_that_forked_them(run, tmp_path):
    async def scenario():
        async with own_pool(tmp_path) as (server, pool):
            await score(pool)
            server.process.kill()
            server.process.wait()
            with pytest.raises(ModelServerLostError):
                server.fork(1.0)
            return await score(pool)

    assert not run(scenario()).alarm


@pytest.mark.parametrize("policy", POLICIES)
def test_a_model_is_loaded_for_as_many_microphones_as_it_takes(policy):
    frontend = replace(LOGMEL, channel=policy, seconds=None)
    listener = Listener(frontend)
    waves = [both(seed, seconds=1) for seed in range(12)]
    given = waves if needs_both(policy) else [pair[0] for pair in waves]
    X = np.vstack([listener.hear_waveform(each, RATE).embeddings for each in given])
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

    def test_models_come_change_break_and_go(self, run, registry):
        folder, pool = registry.folder, registry.pool
        path = folder / "press.daco"
        run(registry.refresh())
        assert registry.is_loaded
        assert not registry.snapshot.machines

        model().save(path)
        (folder / "note.txt").write_text("no model")
        (folder / ".hidden.daco").write_text("no model")
        run(registry.refresh())
        first = registry.get("press")
        assert first.model_sha256 == model().sha256
        assert first.domains == {"source": 30, "target": 10}
        assert first.index_of["train/press_007.wav"] == 7

        other = model().at_rate(0.2)
        other.save(path)
        run(registry.refresh())
        assert registry.get("press").model_sha256 == other.sha256
        assert run(score(pool)).model_sha256 == other.sha256

        good = path.read_bytes()
        path.write_bytes(good[: len(good) // 2])
        run(registry.refresh())
        kept = registry.get("press")
        assert kept.model_sha256 == other.sha256
        assert "truncated" in kept.problem
        assert str(folder) not in kept.problem
        assert not registry.snapshot.problems
        assert run(score(pool)).model_sha256 == other.sha256

        path.write_bytes(good)
        run(registry.refresh())
        assert registry.get("press").problem is None

        path.unlink()
        run(registry.refresh())
        assert registry.get("press") is None
        with pytest.raises(Problem, match="any more"):
            run(score(pool))
        assert [change for _, change in registry.changes] == [
            "added",
            "changed",
            "broken",
            "removed",
        ]

    def test_only_the_model_that_changed_is_loaded_again(self, run, registry, monkeypatch):
        loaded = []
        load = ModelServer.load

        def counted(self, machine, data):
            loaded.append(machine)
            return load(self, machine, data)

        monkeypatch.setattr(ModelServer, "load", counted)
        for name in ("press", "fan"):
            model().save(registry.folder / f"{name}.daco")
        run(registry.refresh())
        server = registry.server
        run(registry.refresh())
        model().at_rate(0.2).save(registry.folder / "fan.daco")
        run(registry.refresh())
        assert registry.server is server
        assert loaded == ["fan", "press", "fan"]

    def test_files_that_are_no_models_are_named_with_their_reason(self, run, registry):
        folder = registry.folder
        (folder / "broken.daco").write_bytes(b"no model at all, but long enough for one")
        (folder / "bad name.daco").write_bytes(b"x")
        (folder / "folder.daco").mkdir()
        os.mkfifo(folder / "pipe.daco")
        model().save(folder / "Lüfter-2.daco")
        replace(model(), frontend=None).save(folder / "vectors.daco")
        run(registry.refresh())
        assert sorted(registry.snapshot.machines) == ["Lüfter-2", "vectors"]
        problems = registry.snapshot.problems
        assert sorted(problems) == ["bad name.daco", "broken.daco", "folder.daco", "pipe.daco"]
        assert "letters" in problems["bad name.daco"]
        assert all(str(folder) not in problem for problem in problems.values())
        with pytest.raises(Problem, match="cannot score recordings"):
            run(score(registry.pool, machine="vectors"))

    def test_a_server_that_ended_is_started_again_with_what_was_good(self, run, registry):
        path = registry.folder / "press.daco"
        model().save(path)
        run(registry.refresh())
        registry.server.process.kill()
        registry.server.process.wait()
        path.write_bytes(b"")
        run(registry.refresh())
        assert registry.server.is_alive
        assert run(score(registry.pool)).model_sha256 == model().sha256
