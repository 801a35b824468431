"""Files over a network that breaks off, lies and repeats itself."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import subprocess
import sys
import threading

import pytest
from broken_server import serving, unused_port

from daco.errors import DownloadError, InputError, WeightsError
from daco.files import download
from daco.files.atomic import hold_lock
from daco.files.download import (
    HostUnreachableError,
    WeightSource,
    download_weights,
    fetch,
    install_weights,
    part_of,
)
from daco.files.zenodo import RECORDS, list_record

BODY = random.Random(0).randbytes(100_000)
SHA256 = "sha256:" + hashlib.sha256(BODY).hexdigest()
MD5 = "md5:" + hashlib.md5(BODY, usedforsecurity=False).hexdigest()
SIZE = len(BODY)


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The seconds that were waited; no proxy is used."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    waited = []
    monkeypatch.setattr(download, "sleep", waited.append)
    monkeypatch.setattr(download, "_CHUNK", 1000)
    return waited


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture
def file(tmp_path):
    return tmp_path / "file"


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir() if path.name not in ("file", "file.lock"))


class TestOneFile:
    def test_is_fetched_verified_and_nothing_else_remains(self, server, tmp_path):
        seen = []
        fetched = fetch(
            [server.add("/f", BODY)],
            tmp_path / "new" / "file",
            SHA256,
            SIZE,
            progress=lambda have, total: seen.append((have, total)),
        )
        assert fetched.path.read_bytes() == BODY
        assert (fetched.size, fetched.checksum, fetched.status) == (SIZE, SHA256, "fetched")
        assert fetched.note is None
        assert leftovers(tmp_path / "new") == []
        assert seen[-1] == (SIZE, SIZE)
        assert seen == sorted(seen)

    def test_is_not_fetched_again(self, server, file):
        file.write_bytes(BODY)
        assert fetch([server.add("/f", BODY)], file, MD5).status == "present"
        assert server.requests == []

    def test_another_one_under_the_name_is_moved_aside(self, server, file):
        file.write_bytes(b"something else")
        fetched = fetch([server.add("/f", BODY)], file, SHA256)
        assert fetched.path.read_bytes() == BODY
        assert file.with_name("file.bad").read_bytes() == b"something else"
        assert "moved to file.bad" in fetched.note

    def test_a_second_address_stands_in(self, server, file):
        dead = f"http://127.0.0.1:{unused_port()}/f"
        fetch([dead, server.url + "/absent", server.add("/f", BODY)], file, MD5)
        assert file.read_bytes() == BODY
        file.unlink()
        with pytest.raises(
            DownloadError, match=r"from any of 2 addresses.*Cannot reach.*answered 404"
        ) as caught:
            fetch([dead, server.url + "/absent"], file, MD5)
        assert not isinstance(caught.value, HostUnreachableError)

    def test_two_at_once_fetch_once(self, server, file):
        url = server.add("/f", BODY[:2000], drip=0.0005)
        checksum = "sha256:" + hashlib.sha256(BODY[:2000]).hexdigest()
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(fetch([url], file, checksum).status))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == ["fetched", "present", "present", "present"]
        assert len(server.requests) == 1

    def test_a_lock_of_another_process_is_waited_for_and_named(self, file, monkeypatch):
        script = (
            "import pathlib, sys, time; from daco.files.atomic import hold_lock\n"
            "with hold_lock(pathlib.Path(sys.argv[1]), 1):\n"
            "    print('held', flush=True); time.sleep(60)"
        )
        command = [sys.executable, "-c", script, str(file)]
        monkeypatch.setattr(download, "LOCK_WAIT", 0.2)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(DownloadError, match=r"Another process.*file.lock"):
                fetch(["http://127.0.0.1:1/f"], file, MD5)
            holder.kill()  # its lock goes with it, the lock file stays
            holder.wait()
            with hold_lock(file, 5.0):
                pass

    def test_a_full_disk_is_noticed_before(self, server, file, monkeypatch):
        usage = type("Usage", (), {"free": 50_000})
        monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
        with pytest.raises(DownloadError, match=r"needs 0.00 GB, but .* free"):
            fetch([server.add("/f", BODY)], file, MD5, SIZE)
        assert server.requests == []

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "taken").write_text("")
        with pytest.raises(DownloadError, match=r"Cannot write .*taken"):
            fetch(["http://127.0.0.1:1/f"], tmp_path / "taken" / "file", MD5)


class TestResuming:
    @pytest.mark.parametrize("known_size", [True, False])
    @pytest.mark.parametrize("cuts", [[0], [99_000], [30_000, 40_000], [1000, 1000, 1000, 50_000]])
    def test_a_broken_transfer_is_continued(self, server, file, cuts, known_size):
        url = server.add("/f", BODY, cuts=list(cuts))
        fetch([url], file, SHA256, SIZE if known_size else None)
        assert file.read_bytes() == BODY
        starts, have = [], 0
        for cut in cuts:
            have += cut
            starts.append(f"bytes={have}-" if have else None)
        assert server.ranges() == [None, *starts]

    def test_a_second_call_continues_the_part(self, server, file, monkeypatch):
        monkeypatch.setattr(download, "TRIES", 1)
        url = server.add("/f", BODY, cuts=[60_000])
        with pytest.raises(DownloadError, match="Run the same command again") as caught:
            fetch([url], file, SHA256)
        assert str(part_of(file)) in str(caught.value)
        assert part_of(file).read_bytes() == BODY[:60_000]
        assert fetch([url], file, SHA256).status == "resumed"
        assert server.ranges() == [None, "bytes=60000-"]
        assert leftovers(file.parent) == []

    @pytest.mark.parametrize(
        ("behaviour", "ranges"),
        [
            ({"ranges": False, "cuts": [60_000]}, [None, "bytes=60000-"]),
            ({"shift": 7, "cuts": [60_000]}, [None, "bytes=60000-", None]),
            ({"lie": 5}, [None, "bytes=100000-"]),
            ({"length": False}, [None]),
        ],
        ids=["ignores ranges", "sends another range", "announces too much", "announces nothing"],
    )
    def test_a_strange_server_does_no_harm(self, server, file, behaviour, ranges):
        fetch([server.add("/f", BODY, **behaviour)], file, SHA256)
        assert file.read_bytes() == BODY
        assert server.ranges() == ranges

    @pytest.mark.parametrize(
        ("part", "size", "ranges"),
        [
            (b"x" * 500, None, ["bytes=500-", None]),
            (BODY, SIZE, []),
            (BODY, None, ["bytes=100000-"]),
            (BODY + b"more", SIZE, [None]),
        ],
        ids=["of another version", "complete", "complete, size unknown", "too long"],
    )
    def test_a_part_that_was_left_behind(self, server, file, part, size, ranges):
        part_of(file).write_bytes(part)
        fetch([server.add("/f", BODY)], file, SHA256, size)
        assert file.read_bytes() == BODY
        assert server.ranges() == ranges

    def test_progress_starts_the_count_of_tries_anew(self, server, file, monkeypatch):
        monkeypatch.setattr(download, "_MUCH", 10_000)
        url = server.add("/f", BODY, cuts=[10_000] * 9)
        fetch([url], file, SHA256)
        assert len(server.requests) == 10

    def test_a_server_that_never_ends_is_stopped(self, server, file):
        with pytest.raises(DownloadError, match="more than the 50 bytes"):
            fetch([server.add("/f", BODY)], file, SHA256, 50)
        assert not file.exists()


class TestRefusals:
    def test_a_wrong_hash_states_expected_got_and_what_was_done(self, server, file):
        other = b"y" * SIZE
        got = "sha256:" + hashlib.sha256(other).hexdigest()
        with pytest.raises(DownloadError) as caught:
            fetch([server.add("/f", other)], file, SHA256)
        assert f"expected {SHA256}, got {got}; it was deleted and is not used" in str(caught.value)
        assert leftovers(file.parent) == []
        assert not file.exists()
        assert len(server.requests) == 1

    @pytest.mark.parametrize("behaviour", [{"lie": -5}, {"chunked": True}])
    def test_half_a_file_does_not_pass(self, server, file, behaviour):
        with pytest.raises(DownloadError, match=r"wrong checksum|broke off"):
            fetch([server.add("/f", BODY, **behaviour)], file, "md5:" + "0" * 32)
        assert not file.exists()

    def test_a_login_page_instead_of_the_file_is_called_one(self, server, file):
        url = server.add("/f", b"\n<!DOCTYPE html><title>Sign in</title>")
        with pytest.raises(DownloadError, match="web page, perhaps of a proxy"):
            fetch([url], file, SHA256)

    def test_not_found_is_said_at_once(self, server, file, pauses):
        with pytest.raises(DownloadError, match=r"127\.0\.0\.1 answered 404 .* for file\."):
            fetch([server.url + "/absent"], file, SHA256)
        assert (len(server.requests), pauses) == (1, [])

    @pytest.mark.parametrize(
        "location", ["file:///etc/passwd", "ftp://127.0.0.1/f", "data:text/plain,x", "/a"]
    )
    def test_a_redirect_elsewhere_than_http_or_in_a_circle_is_not_followed(
        self, server, file, location
    ):
        url = server.add("/a", answers=[(302, {"Location": location})] * 99)
        with pytest.raises(DownloadError, match="redirects to nowhere"):
            fetch([url], file, SHA256)
        assert not file.exists()

    def test_a_redirect_from_https_to_http_is_not_followed(self, server, file, monkeypatch):
        import requests

        def redirected(url, hooks, **options):
            response = requests.Response()
            response.url, response.raw = "http://elsewhere.org/f", io.BytesIO()
            hooks["response"](response)

        monkeypatch.setattr(requests, "get", redirected)
        with pytest.raises(DownloadError, match=r"http://elsewhere.org/f, which is not secure"):
            fetch(["https://zenodo.org/f"], file, SHA256)

    def test_redirects_are_followed_with_the_range(self, server, file):
        server.add("/f", BODY, cuts=[1000])
        url = server.add("/a", answers=[(302, {"Location": "/f"}), (307, {"Location": "/f"})])
        fetch([url], file, SHA256)
        assert server.ranges() == [None, None, "bytes=1000-", "bytes=1000-"]

    @pytest.mark.parametrize(
        "url", ["file:///etc/passwd", "ftp://host/f", "/etc/passwd", "http://", ""]
    )
    def test_only_http_addresses_are_taken(self, url, file):
        with pytest.raises(InputError, match="http or https"):
            fetch([url], file, SHA256)

    def test_a_certificate_that_is_not_trusted_is_not_tried_again(self, file, monkeypatch):
        import requests

        def refuse(*_, **__):
            raise requests.exceptions.SSLError("self-signed certificate")

        monkeypatch.setattr(requests, "get", refuse)
        with pytest.raises(DownloadError, match=r"self-signed certificate.*REQUESTS_CA_BUNDLE"):
            fetch(["https://zenodo.org/f"], file, SHA256)

    @pytest.mark.parametrize(
        ("host", "reason"),
        [("127.0.0.1", "it refuses the connection"), ("no.invalid", "its name cannot be resolved")],
    )
    def test_offline_is_one_sentence_with_host_and_a_way_out(self, file, pauses, host, reason):
        url = f"http://{host}:{unused_port()}/f"
        with pytest.raises(HostUnreachableError) as caught:
            fetch([url], file, SHA256, advice="use a mirror")
        assert str(caught.value).startswith(f"Cannot reach {host} for file ({reason})")
        assert str(caught.value).endswith("; use a mirror.")
        assert pauses == []
        assert leftovers(file.parent) == []


class TestPatience:
    @pytest.mark.parametrize("status", [429, 503])
    def test_a_busy_server_is_asked_again_after_growing_pauses(self, server, file, pauses, status):
        answers = [(status, {}), (status, {}), (status, {"Retry-After": "7"})]
        fetch([server.add("/f", BODY, answers=answers)], file, SHA256)
        assert pauses == [1.0, 2.0, 7.0]

    def test_a_server_that_falls_silent_is_not_waited_for(self, server, file, monkeypatch):
        monkeypatch.setattr(download, "TIMEOUT", 0.3)
        monkeypatch.setattr(download, "TRIES", 1)
        with pytest.raises(DownloadError, match="broke off"):
            fetch([server.add("/f", BODY, drip=30.0)], file, SHA256)
        assert not file.exists()

    @pytest.mark.parametrize(
        ("answers", "message", "expected"),
        [
            ([(503, {})] * 100, r"failed 5 times.*answered 503", [1.0, 2.0, 4.0, 8.0]),
            ([(503, {"Retry-After": "86400"})], r"answered 503.* same command again later", []),
        ],
    )
    def test_tries_and_pauses_are_bounded(self, server, file, pauses, answers, message, expected):
        with pytest.raises(DownloadError, match=message):
            fetch([server.add("/f", BODY, answers=answers)], file, SHA256)
        assert (len(server.requests), pauses) == (len(expected) + 1, expected)


def source(url="http://127.0.0.1:1/w"):
    pin = SHA256.removeprefix("sha256:")
    return WeightSource("net", "net.pt", (url,), pin, "MIT", SIZE)


class TestWeights:
    @pytest.fixture(autouse=True)
    def _folder(self, monkeypatch, tmp_path):
        monkeypatch.setenv("DACO_WEIGHTS_DIR", str(tmp_path / "weights"))

    def test_go_to_their_folder(self, server, tmp_path):
        fetched = download_weights(source(server.add("/w", BODY)))
        assert fetched.path == tmp_path / "weights" / "net" / "net.pt"

    @pytest.mark.parametrize("where", ["net.pt", "net/net.pt"])
    def test_in_a_mirror_filled_by_hand_are_not_fetched(self, tmp_path, where):
        path = tmp_path / "weights" / where
        path.parent.mkdir(parents=True)
        path.write_bytes(BODY)
        fetched = download_weights(source())
        assert (fetched.path, fetched.status) == (path, "present")

    def test_offline_both_ways_out_are_named(self):
        with pytest.raises(HostUnreachableError, match=r"--weights FILE.*DACO_WEIGHTS_DIR"):
            download_weights(source())

    def test_carried_by_hand_are_verified_and_copied(self, tmp_path):
        carried = tmp_path / "usb.pt"
        carried.write_bytes(b"other")
        with pytest.raises(
            WeightsError, match=r"expected sha256:.*got sha256:.*nothing was installed"
        ):
            install_weights(source(), carried)
        assert list((tmp_path / "weights" / "net").iterdir()) == []
        carried.write_bytes(BODY)
        fetched = install_weights(source(), carried)
        assert fetched.path.read_bytes() == BODY
        assert fetched.status == "installed"
        assert install_weights(source(), carried).status == "present"
        with pytest.raises(WeightsError, match="is not a file"):
            install_weights(source(), tmp_path / "absent")


class TestRecords:
    @pytest.fixture(autouse=True)
    def _mirror(self, server, monkeypatch):
        monkeypatch.setenv("DACO_ZENODO_API", server.url + "/api/")

    def test_are_listed_by_machine_with_the_last_revision(self, server):
        names = ("dev_ToyCar.zip", "dev_ToyCar_r2.zip", "dev_ToyCarEmu.zip", "dev_data_fan.zip")
        server.add_record(RECORDS[2026]["dev"], dict.fromkeys((*names, "README.md"), b"f"))
        server.routes[f"/api/records/{RECORDS[2026]['dev']}"].answers.append((504, {}))
        found = list_record(2026, "dev")
        assert [(archive.machine, archive.name) for archive in found] == [
            ("fan", "dev_data_fan.zip"),
            ("ToyCar", "dev_ToyCar_r2.zip"),
            ("ToyCarEmu", "dev_ToyCarEmu.zip"),
        ]
        assert found[0].checksum == "md5:" + hashlib.md5(b"f", usedforsecurity=False).hexdigest()

    def test_a_mirror_may_serve_the_record_as_it_was_copied(self, server):
        record, name = RECORDS[2023]["test"], "eval_data_Vacuum_test.zip"
        link = f"https://zenodo.org/api/records/{record}/files/{name}/content"
        entry = {"key": name, "size": 1, "checksum": MD5, "links": {"self": link}}
        server.add(f"/api/records/{record}", json.dumps({"files": [entry]}).encode())
        (archive,) = list_record(2023, "test")
        assert archive.url == link.replace("https://zenodo.org", server.url)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"key": "../x"}, "holds no archives"),
            ({"links": {"self": "file:/"}}, "http or https"),
            ({"size": -1}, "wrong size"),
            ({"checksum": "md5:xyz"}, "wrong size or checksum"),
            ({"checksum": None}, "Without its checksum nothing"),
        ],
    )
    def test_an_entry_that_is_wrong_is_refused(self, server, changes, message):
        good = {"key": "dev_a.zip", "size": 1, "checksum": MD5, "links": {"self": "http://x"}}
        document = json.dumps({"files": [good | changes]}).encode()
        server.add(f"/api/records/{RECORDS[2023]['dev']}", document)
        with pytest.raises(DownloadError, match=message):
            list_record(2023, "dev")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"[]", "lists no files"),
            (b"{}", "lists no files"),
            (b'{"files": []}', "holds no archives"),
            (b'{"files": ["dev_fan.zip"]}', "without name, size"),
            (b"<html>", "not JSON"),
        ],
    )
    def test_a_record_that_is_not_one_is_refused(self, server, content, message):
        server.add(f"/api/records/{RECORDS[2023]['dev']}", content)
        with pytest.raises(DownloadError, match=message):
            list_record(2023, "dev")

    def test_a_year_that_does_not_exist_is_named(self):
        with pytest.raises(InputError, match=r"2022.*2023, 2024, 2025, 2026"):
            list_record(2022, "dev")
