"""One function over many items, in this process, in others and in threads."""

from __future__ import annotations

import os
import sys
from operator import truediv

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from daco.compute import require_engine, run
from daco.compute.parallel import _connect
from daco.errors import DataError, InputError, MissingExtraError

ENGINES = [("local", 1), ("local", 2), ("threads", 2)]


def half(number):
    if number == 3:
        raise DataError("three")
    return number / 2


def threads_of_blas(size):
    np.eye(size) @ np.eye(size)
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.mark.parametrize(("engine", "jobs"), ENGINES)
class TestRun:
    def test_the_error_of_one_item_does_not_stop_the_others(self, engine, jobs):
        items = ((number, (number,)) for number in range(6))
        results = dict(run(half, items, jobs=jobs, engine=engine))
        assert isinstance(results.pop(3), DataError)
        assert results == {0: 0, 1: 0.5, 2: 1, 4: 2, 5: 2.5}

    def test_items_are_taken_as_workers_become_free(self, engine, jobs):
        taken = 0

        def items():
            nonlocal taken
            for number in range(2000):
                taken += 1
                yield number, (number,)

        results = run(half, items(), jobs=jobs, engine=engine)
        next(results)
        assert taken < 2000
        assert sum(1 for _ in results) == 1999

    def test_a_mistake_in_the_code_is_raised(self, engine, jobs):
        with pytest.raises(ZeroDivisionError):
            list(run(truediv, [(0, (1, 0)), (1, (1, 1))], jobs=jobs, engine=engine))

    def test_so_is_an_error_while_items_are_read(self, engine, jobs):
        def items():
            yield 0, (0,)
            raise DataError("unreadable")

        with pytest.raises(DataError, match="unreadable"):
            list(run(half, items(), jobs=jobs, engine=engine))


@pytest.mark.parametrize("engine", ["local", "threads"])
def test_workers_share_the_cores(engine):
    found = dict(run(threads_of_blas, [(0, (2,)), (1, (3,))], jobs=2, engine=engine))
    assert found[0] <= {1}


def test_one_local_worker_is_this_process():
    assert list(run(os.getpid, [(0, ())], jobs=1)) == [(0, os.getpid())]
    with pytest.raises(InputError, match="at least 1"):
        run(os.getpid, [], jobs=0)


@pytest.mark.parametrize("engine", ["dask", "head:6379", ""])
def test_an_unknown_engine_is_refused(engine):
    with pytest.raises(InputError, match=r"must be local, ray, or the address"):
        require_engine(engine)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "somewhere", "host:x"])
def test_a_cluster_that_does_not_answer_is_refused_at_once(address, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(DataError, match=rf"cluster of {address} cannot be used"):
        require_engine("ray")
    if address.startswith("ray://"):
        with pytest.raises(DataError, match="cannot be used"):
            require_engine(address)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install .daco-asd\[ray\]"):
        require_engine("ray")


@pytest.fixture
def flaky_cluster(monkeypatch):
    """Sets how often the workers of a cluster are lost, and when."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    starts = []

    def lose(lost, when="work"):
        class Workers:
            def __enter__(self):
                starts.append(self)
                if when == "start" and len(starts) <= lost:
                    raise ray.exceptions.ActorDiedError()
                return self

            def __exit__(self, *_):
                pass

            def __call__(self, block):
                if len(starts) <= lost:
                    raise ray.exceptions.ActorDiedError() if when == "work" else ValueError("1 CPU")
                return [function(*arguments) for function, arguments, _ in block]

        monkeypatch.setattr("daco.compute.parallel._connect", lambda *_: None)
        monkeypatch.setattr("daco.compute.parallel._count_workers", lambda *_: 1)
        monkeypatch.setattr("daco.compute.parallel._ray_workers", lambda *_: Workers())
        monkeypatch.delenv("RAY_ADDRESS", raising=False)

    return lose


@pytest.mark.parametrize("when", ["start", "work", "too few CPUs"])
@pytest.mark.parametrize("lost", [2, 3])
def test_workers_of_a_cluster_that_are_lost_are_started_again(flaky_cluster, lost, when):
    flaky_cluster(lost, when)
    results = run(len, [("word", ("abc",)), ("none", ("",))], engine="ray")
    if lost < 3:
        assert list(results) == [("word", 3), ("none", 0)]
    else:
        with pytest.raises(DataError, match="cannot be used"):
            list(results)


@pytest.mark.parametrize("failures", [2, 3])
def test_a_busy_cluster_is_asked_again(monkeypatch, failures):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    asked = []

    def init(*_, **__):
        asked.append(1)
        if len(asked) <= failures:
            raise ConnectionAbortedError("Failure from server:\nTraceback\nRuntimeError: too slow")

    monkeypatch.setattr(ray, "init", init)
    if failures < 3:
        _connect(ray, "ray://host:10001")
    else:
        with pytest.raises(DataError, match=r"cannot be used \(RuntimeError: too slow\)"):
            _connect(ray, "ray://host:10001")
    assert len(asked) == 3


@pytest.mark.parametrize("error", [DataError, ValueError])
def test_an_error_while_items_are_read_does_not_end_a_run_on_a_cluster_in_silence(
    flaky_cluster, error
):
    flaky_cluster(0)

    def items():
        yield 0, ("abc",)
        raise error("unreadable")

    with pytest.raises(error, match="unreadable"):
        list(run(len, items(), engine="ray"))
