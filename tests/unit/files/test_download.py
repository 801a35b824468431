"""Files over a network that breaks off, lies and repeats itself."""

from __future__ import annotations

import hashlib
import json
import os
import random
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from broken_server import serving, unused_port

import daco.files.download.transfer
import daco.files.download.web
import daco.files.lock
from daco.errors import DownloadError, InputError, WeightsError
from daco.files.download import download_weights, install_weights
from daco.files.download.checkpoints import WeightSource
from daco.files.download.transfer import fetch, parse_checksum, part_of
from daco.files.download.web import HostUnreachableError, Policy, fetch_json, host_of
from daco.files.download.zenodo import RECORDS, list_record
from daco.files.lock import hold_lock

BODY = random.Random(0).randbytes(100_000)
SHA256 = "sha256:" + hashlib.sha256(BODY).hexdigest()
MD5 = "md5:" + hashlib.md5(BODY, usedforsecurity=False).hexdigest()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def policy(pauses):
    return Policy(timeout=5.0, sleep=pauses.append)


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir() if path.name not in ("file", "file.lock"))


def test_a_file_is_fetched_verified_and_nothing_else_remains(server, policy, tmp_path):
    seen = []
    fetched = fetch(
        server.add("/f", BODY),
        tmp_path / "new" / "file",
        size=len(BODY),
        checksum=SHA256,
        policy=policy,
        progress=lambda have, total: seen.append((have, total)),
    )
    assert fetched.path.read_bytes() == BODY
    assert (fetched.size, fetched.checksum, fetched.verified) == (len(BODY), SHA256, True)
    assert (fetched.status, fetched.note) == ("fetched", None)
    assert leftovers(tmp_path / "new") == []
    assert seen[-1] == (len(BODY), len(BODY))
    assert seen == sorted(seen)


def test_a_complete_file_is_not_fetched_again(server, policy, tmp_path):
    (tmp_path / "file").write_bytes(BODY)
    fetched = fetch(server.add("/f", BODY), tmp_path / "file", checksum=MD5, policy=policy)
    assert fetched.status == "present"
    assert server.requests == []


def test_a_wrong_file_under_the_name_is_moved_aside(server, policy, tmp_path):
    (tmp_path / "file").write_bytes(b"something else")
    fetched = fetch(server.add("/f", BODY), tmp_path / "file", checksum=SHA256, policy=policy)
    assert fetched.path.read_bytes() == BODY
    assert (tmp_path / "file.bad").read_bytes() == b"something else"
    assert "moved to file.bad" in fetched.note
    assert SHA256 in fetched.note


@pytest.mark.parametrize("known_size", [True, False])
@pytest.mark.parametrize("etag", ['"v1"', None, 'W/"v1"'])
@pytest.mark.parametrize(
    "cuts", [[0], [1], [99_999], [30_000, 40_000], [1, 1, 1, 50_000], [0, 0, 0, 0]]
)
def test_a_broken_transfer_is_continued(server, policy, tmp_path, cuts, etag, known_size):
    url = server.add("/f", BODY, cuts=list(cuts), etag=etag)
    size = len(BODY) if known_size else None
    fetch(url, tmp_path / "file", size=size, checksum=SHA256, policy=policy)
    assert (tmp_path / "file").read_bytes() == BODY
    starts, have = [], 0
    for cut in cuts:
        have += cut
        starts.append(f"bytes={have}-" if have else None)
    assert server.ranges() == [None, *starts]
    validators = {headers.get("If-Range") for _, headers in server.requests if "Range" in headers}
    assert validators <= ({'"v1"'} if etag == '"v1"' else {None})


def test_without_a_known_size_a_close_without_length_is_the_end(server, policy, tmp_path):
    url = server.add("/f", BODY, length=False)
    assert fetch(url, tmp_path / "file", policy=policy).verified is False
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_chunked_answer_without_its_end_counts_as_broken(server, policy, tmp_path):
    url = server.add("/f", BODY, chunked=True)
    with pytest.raises(DownloadError, match="broke off"):
        fetch(url, tmp_path / "file", policy=policy)
    assert not (tmp_path / "file").exists()


def test_a_second_call_continues_the_part(server, pauses, tmp_path):
    url = server.add("/f", BODY, cuts=[60_000])
    once = Policy(tries=1, sleep=pauses.append)
    with pytest.raises(DownloadError, match="run the same command again") as caught:
        fetch(url, tmp_path / "file", checksum=SHA256, policy=once)
    assert str(part_of(tmp_path / "file")) in str(caught.value)
    assert part_of(tmp_path / "file").read_bytes() == BODY[:60_000]
    fetched = fetch(url, tmp_path / "file", checksum=SHA256, policy=once)
    assert fetched.status == "resumed"
    assert server.ranges() == [None, "bytes=60000-"]
    assert server.requests[1][1]["If-Range"] == '"v1"'
    assert leftovers(tmp_path) == []


def test_a_server_that_ignores_ranges_starts_from_the_first_byte(server, policy, tmp_path):
    url = server.add("/f", BODY, ranges=False, cuts=[60_000])
    fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.ranges() == [None, "bytes=60000-"]


def test_a_file_that_changed_meanwhile_is_not_mixed(server, policy, tmp_path):
    part_of(tmp_path / "file").write_bytes(b"x" * 500)
    url = server.add("/f", BODY, etag='"v2"')
    (tmp_path / "file.part.json").write_text(json.dumps({"url": url, "if_range": '"v1"'}))
    fetch(url, tmp_path / "file", policy=policy)  # no checksum: the validator alone protects
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.requests[0][1]["If-Range"] == '"v1"'


def test_without_checksum_and_validator_a_part_is_not_trusted(server, policy, tmp_path):
    part_of(tmp_path / "file").write_bytes(b"x" * 500)
    fetch(server.add("/f", BODY, etag=None), tmp_path / "file", policy=policy)
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.ranges() == [None]


def test_pieces_that_do_not_fit_are_fetched_once_more_in_one(server, policy, tmp_path):
    part_of(tmp_path / "file").write_bytes(b"x" * 500)
    url = server.add("/f", BODY)
    fetched = fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert fetched.path.read_bytes() == BODY
    assert server.ranges() == ["bytes=500-", None]
    assert fetched.status == "fetched"


@pytest.mark.parametrize("size", [None, len(BODY)])
def test_a_part_that_was_complete_only_needs_its_name(server, policy, tmp_path, size):
    part_of(tmp_path / "file").write_bytes(BODY)
    fetch(server.add("/f", BODY), tmp_path / "file", size=size, checksum=SHA256, policy=policy)
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.ranges() == (["bytes=100000-"] if size is None else [])


def test_a_part_longer_than_the_file_is_dropped(server, policy, tmp_path):
    part_of(tmp_path / "file").write_bytes(BODY + b"more")
    url = server.add("/f", BODY)
    fetch(url, tmp_path / "file", size=len(BODY), checksum=SHA256, policy=policy)
    assert server.ranges() == [None]


def test_a_range_from_another_place_is_not_appended(server, policy, tmp_path):
    url = server.add("/f", BODY, cuts=[60_000], shift=7)
    fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.ranges() == [None, "bytes=60000-", None]


def test_with_a_known_size_a_length_too_long_does_not_matter(server, policy, tmp_path):
    url = server.add("/f", BODY, lie=40_000)
    fetch(url, tmp_path / "file", size=len(BODY), checksum=SHA256, policy=policy)
    assert (tmp_path / "file").read_bytes() == BODY
    assert len(server.requests) == 1


def test_with_a_known_size_a_length_too_short_is_a_broken_transfer(server, policy, tmp_path):
    url = server.add("/f", BODY, lie=-40_000)
    with pytest.raises(DownloadError, match="after 60000 of 100000 bytes"):
        fetch(url, tmp_path / "file", size=len(BODY), checksum=SHA256, policy=policy)
    assert not (tmp_path / "file").exists()
    server.routes["/f"].lie = 0
    fetch(url, tmp_path / "file", size=len(BODY), checksum=SHA256, policy=policy)
    assert server.ranges()[-1] == "bytes=60000-"


def test_a_length_too_long_is_found_out_by_the_checksum(server, policy, tmp_path):
    url = server.add("/f", BODY, lie=5)
    fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.ranges() == [None, "bytes=100000-"]


def test_a_length_too_short_is_found_out_by_the_checksum(server, policy, tmp_path):
    url = server.add("/f", BODY, lie=-5)
    with pytest.raises(DownloadError, match="wrong checksum"):
        fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("lie", [-5, 5])
def test_without_checksum_a_length_other_than_the_known_size_is_refused(
    server, policy, tmp_path, lie
):
    url = server.add("/f", BODY, lie=lie)
    with pytest.raises(DownloadError, match=f"should have 100000 bytes.*{100_000 + lie}"):
        fetch(url, tmp_path / "file", size=len(BODY), policy=policy)


def test_a_wrong_hash_states_expected_got_and_what_was_done(server, policy, tmp_path):
    other = b"y" * len(BODY)
    got = "sha256:" + hashlib.sha256(other).hexdigest()
    with pytest.raises(DownloadError) as caught:
        fetch(server.add("/f", other), tmp_path / "file", checksum=SHA256, policy=policy)
    assert f"expected {SHA256}, got {got}; it was deleted and is not used" in str(caught.value)
    assert leftovers(tmp_path) == []
    assert not (tmp_path / "file").exists()
    assert len(server.requests) == 1


def test_a_login_page_instead_of_the_file_is_called_one(server, policy, tmp_path):
    url = server.add("/f", b"\n<!DOCTYPE html><title>Sign in</title>")
    with pytest.raises(DownloadError, match="web page, perhaps of a proxy"):
        fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)


def test_not_found_is_said_at_once(server, policy, pauses, tmp_path):
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1 answered 404 .* for file\."):
        fetch(server.url + "/absent", tmp_path / "file", policy=policy)
    assert (len(server.requests), pauses) == (1, [])


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_a_server_that_is_busy_is_asked_again_after_growing_pauses(
    server, policy, pauses, tmp_path, status
):
    url = server.add("/f", BODY, answers=[(status, {}), (status, {}), (status, {})])
    fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert pauses == [1.0, 2.0, 4.0]


def test_the_pause_a_server_asks_for_is_kept(server, policy, pauses, tmp_path):
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
    reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 30)}
    answers = [(429, {"Retry-After": "7"}), (503, {"Retry-After": date}), (429, reset)]
    answers.append((503, {"Retry-After": "soon"}))
    url = server.add("/f", BODY, answers=answers)
    fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert pauses == [7.0, pytest.approx(60, abs=5), pytest.approx(30, abs=5), 8.0]


def test_a_pause_that_is_too_long_ends_the_transfer(server, policy, pauses, tmp_path):
    url = server.add("/f", BODY, answers=[(503, {"Retry-After": "86400"})])
    with pytest.raises(DownloadError, match="asks to wait 86400 s"):
        fetch(url, tmp_path / "file", policy=policy)
    assert pauses == []


def test_tries_are_bounded(server, policy, pauses, tmp_path):
    url = server.add("/f", BODY, answers=[(503, {})] * 100)
    with pytest.raises(DownloadError, match=r"failed 5 times in a row.*answered 503"):
        fetch(url, tmp_path / "file", policy=policy)
    assert (len(server.requests), pauses) == (5, [1.0, 2.0, 4.0, 8.0])


def test_progress_starts_the_count_of_tries_anew(server, policy, tmp_path, monkeypatch):
    monkeypatch.setattr(daco.files.download.web, "_ENOUGH_PROGRESS", 10_000)
    url = server.add("/f", BODY, cuts=[10_000] * 9)
    fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert len(server.requests) == 10


def test_redirects_are_followed_with_the_range(server, policy, tmp_path):
    server.add("/f", BODY, cuts=[10])
    url = server.add("/a", answers=[(302, {"Location": "/f"}), (307, {"Location": "/f"})])
    fetch(url, tmp_path / "file", checksum=SHA256, policy=policy)
    assert server.ranges() == [None, None, "bytes=10-", "bytes=10-"]


def test_a_redirect_loop_ends(server, policy, tmp_path):
    url = server.add("/a", answers=[(302, {"Location": "/b"})] * 99)
    server.add("/b", answers=[(302, {"Location": "/a"})] * 99)
    with pytest.raises(DownloadError, match=r"redirects file (in a circle|too often)"):
        fetch(url, tmp_path / "file", policy=policy)
    assert len(server.requests) <= 7


def test_a_long_chain_of_redirects_ends(server, policy, tmp_path):
    for step in range(20):
        url = server.add(f"/{step}", answers=[(302, {"Location": f"/{step + 1}"})])
    with pytest.raises(DownloadError, match="too often"):
        fetch(server.url + "/0", tmp_path / "file", policy=policy)
    assert len(server.requests) == policy.redirects + 1
    assert url


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://127.0.0.1/f", "data:text/plain,x", "gopher://x/"]
)
def test_a_redirect_elsewhere_than_http_is_not_followed(server, policy, tmp_path, location):
    url = server.add("/a", answers=[(302, {"Location": location})])
    with pytest.raises(DownloadError, match="not followed"):
        fetch(url, tmp_path / "file", policy=policy)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://host/f", "/etc/passwd", "http://", ""]
)
def test_only_http_addresses_are_taken(url, tmp_path):
    with pytest.raises(InputError, match="http or https"):
        fetch(url, tmp_path / "file")


def test_a_redirect_from_https_to_http_is_not_followed():
    request = urllib.request.Request("https://zenodo.org/f")
    handler = daco.files.download.web._Redirects(5)
    assert handler.redirect_request(request, None, 302, "", {}, "https://elsewhere.org/f")
    with pytest.raises(urllib.error.HTTPError, match="from https to http"):
        handler.redirect_request(request, None, 302, "", {}, "http://zenodo.org/f")


def test_a_certificate_that_is_not_trusted_is_not_tried_again(policy, tmp_path, monkeypatch):
    error = ssl.SSLCertVerificationError("untrusted")
    error.verify_message = "self-signed certificate"

    def refuse(*_, **__):
        raise urllib.error.URLError(error)

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    with pytest.raises(DownloadError, match=r"self-signed certificate.*SSL_CERT_FILE"):
        fetch("https://zenodo.org/f", tmp_path / "file", policy=policy)


def test_a_trickle_is_not_waited_for(server, tmp_path):
    url = server.add("/f", BODY, drip=0.02)
    impatient = Policy(timeout=0.3, tries=2, backoff=0.0)
    started = time.monotonic()
    with pytest.raises(DownloadError, match=r"only \d+ bytes came in"):
        fetch(url, tmp_path / "file", checksum=SHA256, policy=impatient)
    assert time.monotonic() - started < 10


def test_a_server_that_falls_silent_times_out(server, tmp_path):
    url = server.add("/f", BODY, drip=30.0)
    with pytest.raises(DownloadError, match="no answer in time"):
        fetch(url, tmp_path / "file", policy=Policy(timeout=2.0, tries=1))
    assert part_of(tmp_path / "file").read_bytes() == BODY[:1]


def test_offline_is_one_sentence_with_host_and_a_way_out(policy, pauses, tmp_path):
    url = f"http://127.0.0.1:{unused_port()}/f"
    with pytest.raises(HostUnreachableError) as caught:
        fetch(url, tmp_path / "file", policy=policy, advice="use a mirror")
    message = str(caught.value)
    assert message.startswith("Cannot reach 127.0.0.1 for file (it refuses the connection)")
    assert message.endswith("; use a mirror.")
    assert message.count(". ") == 0
    assert len(pauses) == 1
    assert leftovers(tmp_path) == []


def test_a_name_that_is_not_known_is_offline_too(policy, tmp_path):
    with pytest.raises(HostUnreachableError, match=r"Cannot reach no-such-host\.invalid"):
        fetch("https://no-such-host.invalid/f", tmp_path / "file", policy=policy)


def test_a_second_address_stands_in(server, policy, tmp_path):
    dead = f"http://127.0.0.1:{unused_port()}/f"
    good = server.add("/f", BODY)
    fetch([dead, server.url + "/absent", good], tmp_path / "file", checksum=MD5, policy=policy)
    assert (tmp_path / "file").read_bytes() == BODY


def test_if_every_address_fails_each_reason_is_given(server, policy, tmp_path):
    dead = f"http://127.0.0.1:{unused_port()}/f"
    with pytest.raises(
        DownloadError, match=r"None of 2 addresses.*Cannot reach.*answered 404"
    ) as e:
        fetch([dead, server.url + "/absent"], tmp_path / "file", policy=policy)
    assert not isinstance(e.value, HostUnreachableError)


def test_a_full_disk_is_noticed_before(server, policy, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 50_000})
    monkeypatch.setattr(daco.files.download.transfer.shutil, "disk_usage", lambda _: usage)
    url = server.add("/f", BODY)
    with pytest.raises(DownloadError, match=r"needs 0.00 GB, but .* free"):
        fetch(url, tmp_path / "file", size=len(BODY), policy=policy)
    assert server.requests == []
    with pytest.raises(DownloadError, match="free"):
        fetch(url, tmp_path / "file", policy=policy)  # the size as the server announces it
    assert not part_of(tmp_path / "file").exists()


def test_a_folder_that_cannot_be_made_is_named(policy, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(DownloadError, match=r"Cannot write .*taken"):
        fetch("http://127.0.0.1:1/f", tmp_path / "taken" / "file", policy=policy)


def test_two_at_once_fetch_once(server, tmp_path):
    url = server.add("/f", BODY[:2000], drip=0.0005)
    checksum = "sha256:" + hashlib.sha256(BODY[:2000]).hexdigest()
    results = []
    threads = [
        threading.Thread(
            target=lambda: results.append(fetch(url, tmp_path / "file", checksum=checksum))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.status for result in results) == [
        "fetched",
        "present",
        "present",
        "present",
    ]
    assert len(server.requests) == 1
    assert leftovers(tmp_path) == []


def test_a_lock_held_by_another_process_is_waited_for_and_named(tmp_path):
    script = (
        "import pathlib, sys, time; from daco.files.lock import hold_lock\n"
        "with hold_lock(pathlib.Path(sys.argv[1]), 1): print('held', flush=True); time.sleep(60)"
    )
    path = tmp_path / "file"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DownloadError, match=r"Another process.*file.lock"):
            fetch("http://127.0.0.1:1/f", path, policy=Policy(lock_wait=0.2))
        holder.kill()  # its lock goes with it, the lock file stays
        holder.wait()
        with hold_lock(path, 5.0):
            pass
    assert leftovers(tmp_path) == []


def test_json_is_read_with_the_same_patience(server, policy, pauses):
    url = server.add("/j", b'{"a": 1}', answers=[(504, {})], cuts=[3])
    assert fetch_json(url, policy=policy) == {"a": 1}
    assert len(pauses) == 2
    with pytest.raises(DownloadError, match="not JSON"):
        fetch_json(server.add("/html", b"<html>"), policy=policy)
    with pytest.raises(DownloadError, match="longer than"):
        fetch_json(server.add("/long", b"1" * (9 << 20)), policy=policy)


@pytest.mark.parametrize("text", ["", "md5:", "md5:xyz", "crc32:00000000", "sha256:" + "0" * 63])
def test_a_checksum_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="not a checksum"):
        parse_checksum(text)


def test_the_host_of_a_malformed_address_is_an_input_error():
    with pytest.raises(InputError):
        host_of("http://[::1")


def source(url="http://127.0.0.1:1/w", **changes):
    pins = {"sha256": SHA256.removeprefix("sha256:"), "md5": None, "size": len(BODY), **changes}
    return WeightSource(name="net", file_name="net.pt", urls=(url,), licence="MIT", **pins)


def test_weights_go_to_their_folder(server, policy, tmp_path, monkeypatch):
    monkeypatch.setenv("DACO_WEIGHTS_DIR", str(tmp_path))
    fetched = download_weights(source(server.add("/w", BODY)), policy=policy)
    assert fetched.path == tmp_path / "net" / "net.pt"
    assert fetched.verified


@pytest.mark.parametrize("place", ["net.pt", "net/net.pt"])
def test_weights_in_a_mirror_filled_by_hand_are_not_fetched(tmp_path, monkeypatch, place):
    monkeypatch.setenv("DACO_WEIGHTS_DIR", str(tmp_path))
    (tmp_path / "net").mkdir()
    (tmp_path / place).write_bytes(BODY)
    fetched = download_weights(source())
    assert (fetched.path, fetched.status) == (tmp_path / place, "present")


def test_weights_offline_name_both_ways_out(policy, tmp_path):
    with pytest.raises(HostUnreachableError, match=r"--weights FILE.*DACO_WEIGHTS_DIR"):
        download_weights(source(), tmp_path, policy=policy)


def test_weights_with_only_an_md5_are_verified_by_it_and_without_pins_are_not(
    server, policy, tmp_path
):
    url = server.add("/w", BODY)
    by_md5 = source(url, sha256=None, md5=MD5.removeprefix("md5:"))
    assert download_weights(by_md5, tmp_path / "a", policy=policy).checksum == MD5
    unpinned = download_weights(source(url, sha256=None), tmp_path / "b", policy=policy)
    assert (unpinned.verified, unpinned.checksum) == (False, SHA256)


def test_weights_carried_by_hand_are_verified_and_copied(tmp_path):
    carried = tmp_path / "usb.pt"
    carried.write_bytes(BODY)
    fetched = install_weights(source(), carried, tmp_path / "weights")
    assert fetched.path.read_bytes() == BODY
    assert (fetched.status, fetched.verified) == ("installed", True)
    assert install_weights(source(), carried, tmp_path / "weights").status == "present"
    carried.write_bytes(b"other")
    with pytest.raises(WeightsError, match=r"expected sha256:.*got sha256:.*nothing was installed"):
        install_weights(source(), carried, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere" / "net").iterdir()) == []
    with pytest.raises(WeightsError, match="is not a file"):
        install_weights(source(), tmp_path / "absent", tmp_path / "weights")


def test_there_are_three_different_records_for_each_year():
    assert list(RECORDS) == [2023, 2024, 2025, 2026]
    ids = [record for records in RECORDS.values() for record in records.values()]
    assert all(list(records) == ["dev", "train", "test"] for records in RECORDS.values())
    assert len(set(ids)) == 12


def test_a_record_is_listed_by_machine_with_the_last_revision(server, policy):
    server.add_record(
        RECORDS[2026]["dev"],
        {
            "dev_ToyCar.zip": b"old",
            "dev_ToyCar_r2.zip": b"new",
            "dev_ToyCarEmu.zip": b"e",
            "dev_data_fan.zip": b"f",
            "README.md": b"",
        },
    )
    files = list_record(2026, "dev", api=server.url + "/api", policy=policy)
    assert [(file.machine, file.name) for file in files] == [
        ("fan", "dev_data_fan.zip"),
        ("ToyCar", "dev_ToyCar_r2.zip"),
        ("ToyCarEmu", "dev_ToyCarEmu.zip"),
    ]
    assert files[0].checksum == "md5:" + hashlib.md5(b"f", usedforsecurity=False).hexdigest()


def test_a_mirror_may_serve_the_record_as_it_was_copied(server, policy):
    record = RECORDS[2023]["test"]
    link = f"https://zenodo.org/api/records/{record}/files/eval_data_Vacuum_test.zip/content"
    entry = {
        "key": "eval_data_Vacuum_test.zip",
        "size": 1,
        "checksum": MD5,
        "links": {"self": link},
    }
    server.add(f"/api/records/{record}", json.dumps({"files": [entry]}).encode())
    (file,) = list_record(2023, "test", api=server.url + "/api/", policy=policy)
    assert file.url == link.replace("https://zenodo.org", server.url)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "lists no files"),
        ({}, "lists no files"),
        ({"files": []}, "holds no archives"),
        ({"files": [{"key": "dev_fan.zip", "size": 1}]}, "Without its checksum nothing"),
        ({"files": ["dev_fan.zip"]}, "without name, size"),
        (
            {"files": [{"key": "../x", "size": 1, "checksum": MD5, "links": {"self": "http://x"}}]},
            "holds no archives",
        ),
        (
            {
                "files": [
                    {"key": "dev_a.zip", "size": 1, "checksum": MD5, "links": {"self": "file:/"}}
                ]
            },
            "http or https",
        ),
        (
            {
                "files": [
                    {"key": "dev_a.zip", "size": -1, "checksum": MD5, "links": {"self": "http://x"}}
                ]
            },
            "wrong size",
        ),
    ],
)
def test_a_record_that_is_not_one_is_refused(server, policy, document, message):
    server.add(f"/api/records/{RECORDS[2023]['dev']}", json.dumps(document).encode())
    with pytest.raises(DownloadError, match=message):
        list_record(2023, "dev", api=server.url + "/api", policy=policy)


def test_a_year_or_split_that_does_not_exist_is_named():
    with pytest.raises(InputError, match=r"2022.*2023, 2024, 2025, 2026"):
        list_record(2022, "dev")
    with pytest.raises(InputError, match="dev, train, test"):
        list_record(2023, "validation")
