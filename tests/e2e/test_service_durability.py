"""What was answered is stored, once, whatever happens to the process a moment later."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from postgres import postgres_server
from service_process import PATIENCE, ServiceProcess, faulty, normal, wait_until

from daco.detector.model import MachineModel
from daco.monitoring.service import schemas
from daco.monitoring.store import Store


class Load:
    """Threads that send clips until they are stopped or the service has gone."""

    def __init__(self, service: ServiceProcess, threads: int = 4) -> None:
        self.ids: list[int] = []
        self.others: list[int] = []
        self._service = service
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        with self._service.client(headers={"Content-Type": "audio/wav"}) as client:
            while not self._ended.is_set():
                try:
                    answer = client.post("/v1/machines/press/score", content=normal())
                except httpx.HTTPError:
                    return
                if answer.status_code == 200:
                    self.ids.append(answer.json()["clip"]["id"])
                else:
                    self.others.append(answer.status_code)

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def stored(database: str) -> list[int]:
    with Store.open(database) as store:
        return [clip.id for clip in store.clips("press", 10_000)]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """One that outlives what happens to its workers, models and database."""
    with ServiceProcess(tmp_path_factory.mktemp("lasting")) as running:
        yield running
        assert "Traceback" not in running.log


def test_kill_9_under_load_loses_no_answer_and_doubles_none(tmp_path):
    service = ServiceProcess(tmp_path)
    with service:
        load = Load(service)
        wait_until(lambda: len(load.ids) >= 30)
        service.end(signal.SIGKILL)
        load.stop()
        wait_until(lambda: not service.pids())  # nobody is left behind
    rows = stored(service.database)
    assert len(rows) == len(set(rows))
    assert set(load.ids) <= set(rows)
    assert len(load.ids) == len(set(load.ids))
    assert len(rows) - len(load.ids) <= 4  # committed, but not answered any more: one per thread

    with service:  # and it goes on where it was
        assert service.score(normal()).json()["clip"]["id"] > max(rows)
        load = Load(service)
        wait_until(lambda: len(load.ids) >= 10)
        # All processes at once, as a terminal or a service manager does it: work is finished.
        os.killpg(service.process.pid, signal.SIGTERM)
        service.process.wait(PATIENCE)
        load.stop()
    assert not [status for status in load.others if status != 503]
    assert set(load.ids) <= set(stored(service.database))
    assert "Traceback" not in service.log
    assert "graceful shutdown exceeded" not in service.log  # nor was anything cut off


def test_two_services_on_one_database_store_each_key_once_and_wait_for_their_server(tmp_path):
    """Both get the same recordings at once; ids, changes and the one alarm are common."""
    answers: dict[str, list[int]] = {f"clip-{number}": [] for number in range(12)}

    def post(service: ServiceProcess, key: str, sound: bytes) -> httpx.Response:
        headers = {"Content-Type": "audio/wav", "Idempotency-Key": key}
        with service.client(headers=headers) as client:
            return client.post("/v1/machines/press/score", content=sound)

    def send(service: ServiceProcess, keys: list[str]) -> None:
        for key in keys:
            sound = faulty(int(key.partition("-")[2]))
            answers[key].append(post(service, key, sound).json()["clip"]["id"])

    with postgres_server() as server, ExitStack() as services, ThreadPoolExecutor(3) as pool:
        table, machines = {"database": server.new_database()}, {"press": {"alarm": "2 of 3"}}
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        made = [ServiceProcess(tmp_path / name, machines, service=table) for name in ("one", "two")]
        one, two = pool.map(services.enter_context, made)
        order = list(answers)
        given = [(one, order), (two, order[::-1]), (two, order)]
        list(pool.map(lambda each: send(*each), given))
        seen = [service.get("/v1/changes", params={"after": 0}).json() for service in (one, two)]
        assert post(one, "clip-3", normal()).status_code == 409
        assert all(len(ids) == 3 and len(set(ids)) == 1 for ids in answers.values())
        assert sorted(stored(one.database)) == sorted(ids[0] for ids in answers.values())
        for clip in (*seen[0]["clips"], *seen[1]["clips"]):
            del clip["has_audio"]  # only the service that judged it has kept it
        assert seen[0]["clips"] == seen[1]["clips"]
        alarms = [(alarm["kind"], alarm["n_clips"]) for alarm in seen[0]["alarms"]]
        assert alarms == [("fault", 12)]

        server.stop()
        wait_until(lambda: not health(one).ready)
        assert str(server.folder) not in one.get("/healthz").text
        server.start()
        wait_until(lambda: health(one).ready)
        assert one.score(normal()).status_code == 200
        assert len(stored(one.database)) == 13


def test_uploads_are_judged_while_workers_die_and_models_change(service):
    path = service.folder / "models" / "press.daco"
    versions = [MachineModel.load(path), MachineModel.load(path).at_rate(0.2)]
    before = set(stored(service.database))
    load = Load(service, threads=2)

    def wait_for_more(count):
        known = len(load.ids)
        wait_until(lambda: len(load.ids) >= known + count)

    for version in versions[::-1] * 2:
        version.save(path)
        wait_until(lambda sha256=version.sha256: judged_by(service) == sha256)
        wait_for_more(5)
        wait_until(service.workers)
        os.kill(service.workers()[0], signal.SIGKILL)
        wait_for_more(5)
    load.stop()
    assert not load.others
    assert set(load.ids) == set(stored(service.database)) - before
    with Store.open(service.database) as store:
        used = {store.clip(number).model_sha256 for number in load.ids}
    assert used == {version.sha256 for version in versions}


def test_more_than_can_be_done_is_503_with_the_time_to_try_again(service):
    service.score(normal())
    workers = service.workers()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(40) as threads:
            jobs = [threads.submit(service.score, normal()) for _ in range(40)]
            wait_until(lambda: any(job.done() for job in jobs))
            refused = next(job.result() for job in jobs if job.done())
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
            statuses = {job.result().status_code for job in jobs}
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert statuses == {200, 503}


def judged_by(service):
    return service.score(normal(), record="false").json()["clip"]["model_sha256"]


def health(service):
    answer = service.get("/healthz")
    said = schemas.Health.model_validate(answer.json())
    assert answer.status_code == (200 if said.ready else 503)
    assert said.live
    assert said.ready == (said.reason is None)
    return said


def test_without_a_database_that_can_be_written_the_service_is_not_ready(service):
    clips, folder = len(stored(service.database)), service.folder
    assert health(service).ready
    (folder / "daco.db").rename(folder / "away.db")
    wait_until(lambda: not health(service).ready)
    assert health(service).reason == "The database cannot be used."
    refused = service.score(normal())
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert not (folder / "daco.db").exists()
    (folder / "away.db").rename(folder / "daco.db")
    wait_until(lambda: health(service).ready)
    assert service.score(normal()).status_code == 200
    assert len(stored(service.database)) == clips + 1
    assert service.log.count("not ready: ") == 1  # told once, not at every question
