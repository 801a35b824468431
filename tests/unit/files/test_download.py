"""Files over a network that breaks off and lies."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path

import pytest
from broken_server import serving

from daco.errors import DownloadError
from daco.files import download
from daco.files.download import fetch
from daco.files.zenodo import RECORDS, list_record

BODY = random.Random(0).randbytes(100_000)
SHA256 = "sha256:" + hashlib.sha256(BODY).hexdigest()
MD5 = "md5:" + hashlib.md5(BODY, usedforsecurity=False).hexdigest()


@pytest.fixture(autouse=True)
def _no_proxy_and_no_waiting(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.mark.parametrize("checksum", [SHA256, MD5])
def test_a_connection_that_breaks_off_is_tried_again(server, tmp_path, checksum):
    url, path = server.add("/file", BODY, cuts=[60_000]), tmp_path / "new" / "file"
    seen = []
    assert fetch(url, path, checksum, lambda *counts: seen.append(counts)) == path
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert len(server.requests) == 2
    assert [each.name for each in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("served", "name", "token"),
    [
        ({"body": b"<html>log in</html>"}, "file", "hash"),
        ({"answers": [403] * (download.RETRIES + 1)}, "file", "403"),
        ({"body": BODY}, "a file/x", "a file"),
    ],
)
def test_a_failure_is_named_and_leaves_nothing(server, tmp_path, served, name, token):
    (tmp_path / "a file").write_bytes(b"")
    with pytest.raises(DownloadError, match=token):
        fetch(server.add("/file", **served), tmp_path / name, SHA256)
    assert [each.name for each in tmp_path.iterdir()] == ["a file"]


def test_only_http(tmp_path):
    with pytest.raises(DownloadError, match="file:///etc/passwd"):
        fetch("file:///etc/passwd", tmp_path / "file", SHA256)


def add_record(server, monkeypatch, files):
    monkeypatch.setenv("DACO_ZENODO_API", server.url + "/api")
    record = RECORDS[2023]["dev"]
    server.add(f"/api/records/{record}", json.dumps({"files": files}).encode())


def entry(name, **changes):
    link = {"self": f"https://zenodo.org/api/records/1/files/{name}/content"}
    return {"key": name, "size": 5, "checksum": MD5, "links": link} | changes


def test_a_record_lists_the_last_revision_of_each_machine(server, monkeypatch):
    names = ("dev_fan.zip", "dev_fan_r2.zip", "dev_data_ToyCar.zip", "readme.txt")
    add_record(server, monkeypatch, [entry(name) for name in names])
    archives = list_record(2023, "dev", Path())
    assert [each.name for each in archives] == ["dev_fan_r2.zip", "dev_data_ToyCar.zip"]
    assert archives[0].url.startswith(server.url)  # the mirror, not Zenodo itself


@pytest.mark.parametrize(
    "files",
    [
        None,
        [],
        [entry("readme.txt")],
        [{"key": "dev_fan.zip"}],
        [entry("dev_fan.zip", checksum="")],
    ],
)
def test_a_record_that_cannot_be_used(server, monkeypatch, files):
    add_record(server, monkeypatch, files)
    with pytest.raises(DownloadError):
        list_record(2023, "dev", Path())
