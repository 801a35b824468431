"""Real workers: they are shared, bounded by the kernel, replaced when they die, and retired."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from service_process import RATE, faulty, model, normal, wait_until

from daco.monitoring.service.machines import Registry
from daco.monitoring.service.pool import OverloadedError, Pool
from daco.monitoring.service.processes import Job, Nursery, NurseryLostError, WorkerLostError
from daco.monitoring.service.settings import Settings

JOB = {"job": "score", "machine": "press", "name": "a.wav"}


def settings(folder, **changed):
    (folder / "models").mkdir(exist_ok=True)
    return Settings(
        models=folder / "models", database="sqlite:///x.db", keep_audio="none", **changed
    )


@pytest.fixture(scope="module")
def run():
    """Runs coroutines in one event loop for all tests, so that they can share a nursery."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="module")
def nursery(run, tmp_path_factory):
    """A nursery that knows one model; each test has workers of its own."""
    os.environ["DACO_TOKEN"] = "a-secret-of-the-service"
    try:
        found = run(new_nursery(tmp_path_factory.mktemp("nursery")))
    finally:
        del os.environ["DACO_TOKEN"]
    yield found
    run(found.end())


async def new_nursery(folder, **changed):
    nursery = await Nursery.start(settings(folder, **changed), folder)
    await nursery.load("press", model().to_bytes())
    await nursery.open()
    return nursery


@pytest.fixture
def pool(run, nursery):
    """One worker, at work once already; four jobs may wait."""
    pool = Pool(1, 4, 20.0)
    wait_until(lambda: not workers(nursery))
    run(pool.adopt(nursery))
    run(pool.do(JOB, normal()))
    yield pool
    pool._nursery = None  # which is left to the next test
    run(pool.close())


def workers(nursery) -> list[int]:
    pid = nursery.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def only_worker(nursery) -> int:
    (pid,) = workers(nursery)
    return pid


def long_recording(folder) -> bytes:
    """400 s at 48 kHz in some megabytes of FLAC: 77 MB as float32."""
    path = folder / "long.flac"
    soundfile.write(path, np.random.default_rng(0).normal(0, 1e-4, 400 * 48000), 48000)
    return path.read_bytes()


def test_a_worker_judges_as_the_library_does(run, pool, nursery):
    from daco.detector.verdict import judge
    from daco.embedding.frontend import Listener

    good, bad, damaged = (
        run(pool.do(JOB, data))[0] for data in (normal(), faulty(), b"RIFF nonsense")
    )
    expected = judge(model(), Listener(model().frontend), faulty(), name="a.wav").to_dict()
    assert bad["verdict"]["alarm"]
    assert not good["verdict"]["alarm"]
    assert bad["verdict"]["score"] == pytest.approx(expected["score"], abs=1e-6)  # float32
    assert bad["verdict"]["nearest"] == expected["nearest"]
    assert "/" not in damaged["error"]


def test_a_worker_that_dies_on_a_job_is_replaced_and_the_job_is_done_by_another(run, pool, nursery):
    first = only_worker(nursery)

    async def scenario():
        os.kill(first, signal.SIGSTOP)
        job = asyncio.create_task(pool.do(JOB, normal()))
        await asyncio.sleep(0.1)
        os.kill(first, signal.SIGKILL)
        return await job

    assert "verdict" in run(scenario())[0]
    assert only_worker(nursery) != first
    assert pool.restarts == 1


def test_a_worker_that_died_idle_is_replaced_and_nobody_notices(run, pool, nursery):
    first = only_worker(nursery)

    async def scenario():
        os.kill(first, signal.SIGKILL)
        while not pool.restarts:
            await asyncio.sleep(0.01)
        return await pool.do(JOB, normal())

    assert "verdict" in run(scenario())[0]
    assert pool.restarts == 1


def test_more_jobs_than_may_wait_are_refused_at_once(run, pool, nursery):
    pid = only_worker(nursery)

    async def scenario():
        os.kill(pid, signal.SIGSTOP)
        jobs = [asyncio.create_task(pool.do(JOB, normal(n))) for n in range(5)]
        await asyncio.sleep(0.05)
        assert pool.is_full
        assert (pool.busy, pool.queued) == (1, 4)
        started = time.monotonic()
        with pytest.raises(OverloadedError):
            await pool.do(JOB, normal())
        assert time.monotonic() - started < 30  # and not for as long as the worker is stopped
        os.kill(pid, signal.SIGCONT)
        return await asyncio.gather(*jobs)

    assert ["verdict" in reply for reply, _ in run(scenario())] == [True] * 5
    assert pool.queued == 0


def test_a_job_nobody_waits_for_any_more_gives_its_place_back(run, pool, nursery):
    pid = only_worker(nursery)

    async def scenario():
        os.kill(pid, signal.SIGSTOP)
        jobs = [asyncio.create_task(pool.do(JOB, normal())) for _ in range(3)]
        await asyncio.sleep(0.05)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        assert pool.queued == 0
        os.kill(pid, signal.SIGCONT)
        return await pool.do(JOB, normal())

    assert "verdict" in run(scenario())[0]


def test_a_payload_is_never_written_out(run):
    """Errors format what they are about: of 320 KB that takes longer than scoring them."""

    async def job():
        return Job({}, b"x" * 320_000, asyncio.get_running_loop().create_future())

    assert len(repr(run(job()))) < 1000


def test_workers_have_one_thread_no_token_and_no_core_dumps(run, pool, nursery):
    process = Path(f"/proc/{only_worker(nursery)}")
    assert "Threads:\t1\n" in (process / "status").read_text()
    assert b"a-secret" not in (process / "environ").read_bytes()
    limits = {
        line[:25].strip(): line[26:].split()[0]
        for line in (process / "limits").read_text().splitlines()
    }
    assert limits["Max core file size"] == "0"
    assert int(limits["Max address space"]) < 4e9
    assert int(limits["Max cpu time"]) < 100


def test_a_picture_is_drawn_by_a_worker(run, pool, tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(faulty())
    job = {"job": "picture", "theme": "dark", "sample_rate": RATE}
    assert run(pool.do({**job, "path": str(path)}))[1].startswith(b"\x89PNG")
    said, nothing = run(pool.do({**job, "path": str(tmp_path / "missing.wav")}))
    assert not nothing
    assert str(tmp_path) not in said["error"]


def test_a_job_that_takes_too_long_is_ended_by_the_kernel(run, tmp_path):
    data = long_recording(tmp_path)

    async def scenario():
        nursery = await new_nursery(tmp_path, job_seconds=0.5)
        pool = Pool(1, 4, 0.5)
        await pool.adopt(nursery)
        await pool.do(JOB, normal())
        pid = only_worker(nursery)
        with pytest.raises(WorkerLostError) as caught:
            await pool.do(JOB, data)
        assert caught.value.timed_out
        while pid in workers(nursery):
            await asyncio.sleep(0.01)
        await pool.close()
        assert pool.restarts == 1

    # Decoding, resampling and embedding 400 s takes seconds.
    run(asyncio.wait_for(scenario(), 60))


def test_a_job_that_takes_too_much_memory_is_refused_and_its_worker_replaced(run, tmp_path):
    data = long_recording(tmp_path)

    async def scenario():
        nursery = await new_nursery(tmp_path, job_memory=60_000_000, max_body=15_000_000)
        pool = Pool(1, 4, 20.0)
        await pool.adopt(nursery)
        refused, _ = await pool.do(JOB, data)
        scored, _ = await pool.do(JOB, normal())
        await pool.close()
        return refused, scored, pool.restarts

    refused, scored, restarts = run(scenario())
    assert "memory" in refused["error"]
    assert "verdict" in scored
    assert restarts == 1


def test_workers_outlive_the_nursery_that_forked_them(run, tmp_path):
    async def scenario():
        nursery = await new_nursery(tmp_path)
        pool = Pool(1, 4, 20.0)
        await pool.adopt(nursery)
        await pool.do(JOB, normal())
        await nursery.kill()
        with pytest.raises(NurseryLostError):
            await pool._fork(nursery)
        reply, _ = await pool.do(JOB, normal())
        await pool.close()
        return reply

    assert "verdict" in run(scenario())


class TestRegistry:
    @pytest.fixture
    def registry(self, run, tmp_path):
        pool = Pool(1, 4, 20.0)
        changes = []
        registry = Registry(
            settings(tmp_path), pool, tmp_path, lambda *change: changes.append(change)
        )
        registry.pool, registry.changes, registry.folder = pool, changes, tmp_path / "models"
        yield registry
        run(pool.close())

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

        before = registry._nursery
        run(registry.refresh())
        assert registry._nursery is before  # nothing changed, nothing was loaded

        other = model().at_rate(0.2)
        other.save(path)
        run(registry.refresh())
        assert registry.get("press").model_sha256 == other.sha256
        assert run(pool.do(JOB, normal()))[0]["verdict"]["model_sha256"] == other.sha256

        good = path.read_bytes()
        path.write_bytes(good[: len(good) // 2])
        run(registry.refresh())
        kept = registry.get("press")
        assert kept.model_sha256 == other.sha256
        assert "truncated" in kept.problem
        assert str(folder) not in kept.problem
        assert not registry.snapshot.problems
        assert run(pool.do(JOB, normal()))[0]["verdict"]["model_sha256"] == other.sha256

        path.write_bytes(good)
        run(registry.refresh())
        assert registry.get("press").problem is None

        path.unlink()
        run(registry.refresh())
        assert registry.get("press") is None
        assert run(pool.do(JOB, normal()))[0] == {"gone": True}
        assert [change for _, change in registry.changes] == [
            "added",
            "changed",
            "broken",
            "removed",
        ]

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
        said, _ = run(registry.pool.do({**JOB, "machine": "vectors"}, normal()))
        assert "cannot hear" in said["error"]

    def test_a_nursery_that_died_is_started_again_with_what_was_good(self, run, registry):
        path = registry.folder / "press.daco"
        model().save(path)
        run(registry.refresh())
        run(registry._nursery.kill())
        path.write_bytes(b"")
        run(registry.refresh())
        assert registry._nursery.is_alive
        said, _ = run(registry.pool.do(JOB, normal()))
        assert said["verdict"]["model_sha256"] == model().sha256
