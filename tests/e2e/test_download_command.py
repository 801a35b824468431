"""``daco download`` against a server on this machine."""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import zipfile

import pytest
from broken_server import serving, unused_port
from command_line import run

from daco.backbones.weights import SOURCES
from daco.data.sources import read_clips
from daco.errors import DownloadError, InputError
from daco.files.download import WeightSource
from daco.files.zenodo import RECORDS

WEIGHTS = random.Random(1).randbytes(300_000)


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DACO_WEIGHTS_DIR", str(tmp_path / "weights"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts


@pytest.fixture
def server(monkeypatch):
    with serving() as running:
        monkeypatch.setenv("DACO_ZENODO_API", running.url + "/api")
        source = WeightSource(
            name="beats",
            file_name="beats.pt",
            url=running.add("/beats.pt", WEIGHTS),
            sha256=hashlib.sha256(WEIGHTS).hexdigest(),
            licence="MIT",
        )
        monkeypatch.setitem(SOURCES, "beats", source)
        yield running


def download(*arguments):
    return run("download", *arguments).output


def archive(machine, *folders, extra=()):
    names = {
        "train": "section_00_source_train_normal_0000_noAttribute.wav",
        "test": "section_00_target_test_anomaly_0000_noAttribute.wav",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for folder in folders:
            opened.writestr(f"{machine}/{folder}/{names[folder]}", b"RIFF" + machine.encode())
        for name in extra:
            opened.writestr(name, b"x")
    return buffer.getvalue()


@pytest.fixture
def records(server):
    ids = RECORDS[2026]
    server.add_record(
        ids["dev"],
        {
            "dev_fan.zip": archive("fan", "train", "test"),
            "dev_ToyCar_r2.zip": archive("ToyCar", "train", "test"),
        },
    )
    server.add_record(ids["train"], {"eval_data_Sander_train.zip": archive("Sander", "train")})
    server.add_record(ids["test"], {"eval_data_Sander_test.zip": archive("Sander", "test")})
    return server


def fetched_archives(server):
    paths = (path for path in server.requests if path.endswith("/content"))
    return sorted(path.split("/")[-2] for path in paths)


def test_weights_are_fetched_once_and_verified(server, tmp_path):
    for _ in range(2):
        assert str(tmp_path / "weights" / "beats" / "beats.pt") in download("weights", "beats")
    assert (tmp_path / "weights" / "beats" / "beats.pt").read_bytes() == WEIGHTS
    assert len(server.requests) == 1


def test_offline_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("DACO_ZENODO_API", f"http://127.0.0.1:{unused_port()}/api")
    with pytest.raises(DownloadError, match=r"Cannot reach 127\.0\.0\.1.*DACO_ZENODO_API"):
        download("dataset", "--year", 2026, tmp_path / "data")
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{unused_port()}")
    with pytest.raises(
        DownloadError, match=r"Cannot reach zenodo\.org.*HTTPS_PROXY.*copy it to.*DACO_W"
    ):
        download("weights", "panns")


def test_a_data_set_is_fetched_unpacked_and_readable(records, tmp_path):
    assert "4 archives" in download("dataset", "--year", 2026, tmp_path)
    root = tmp_path / "dcase2026t2"
    assert sorted(path.name for path in root.iterdir()) == ["dev_data", "eval_data"]
    assert not list(tmp_path.rglob("*.zip"))
    table = read_clips(root)
    assert len(table) == 6
    assert {(clip.year, clip.machine) for clip in table} == {
        (2026, "fan"),
        (2026, "ToyCar"),
        (2026, "Sander"),
    }
    again = download("dataset", "--year", 2026, root)  # the data set's own folder is understood too
    assert again.count("unpacked") >= 4
    assert len(fetched_archives(records)) == 4


def test_a_data_set_can_be_narrowed_down_and_archives_be_carried_by_hand(records, tmp_path):
    kept = tmp_path / "dcase2026t2" / "dev_data" / "raw"
    kept.mkdir(parents=True)
    (kept / "dev_ToyCar_r2.zip").write_bytes(archive("ToyCar", "train", "test"))
    download("dataset", "--year", 2026, tmp_path, "--machine", "Sander")
    download("dataset", "--year", 2026, tmp_path, "--split", "dev")
    both = ["eval_data_Sander_test.zip", "eval_data_Sander_train.zip"]
    assert fetched_archives(records) == ["dev_fan.zip", *both]
    assert (tmp_path / "dcase2026t2" / "eval_data" / "raw" / "Sander" / "train").is_dir()


def test_what_was_deleted_by_hand_or_replaced_in_the_record_is_fetched_again(records, tmp_path):
    command = ("dataset", "--year", 2026, tmp_path, "--machine", "Sander", "--split", "train")
    download(*command)
    (machine,) = (tmp_path / "dcase2026t2").rglob("Sander")
    shutil.rmtree(machine)
    download(*command)
    assert len(list(machine.rglob("*.wav"))) == 1
    longer = archive("Sander", "train", extra=["Sander/attributes_00.csv"])
    records.add_record(RECORDS[2026]["train"], {"eval_data_Sander_train.zip": longer})
    download(*command)
    assert (machine / "attributes_00.csv").exists()
    assert fetched_archives(records) == ["eval_data_Sander_train.zip"] * 3


def test_one_bad_archive_does_not_stop_the_others(records, tmp_path):
    route = f"/api/records/{RECORDS[2026]['dev']}/files/dev_fan.zip/content"
    good = records.routes[route].body
    records.routes[route].body = good[:-1] + b"!"
    records.add_record(
        RECORDS[2026]["test"],
        {"eval_data_Sander_test.zip": archive("Sander", "test", extra=["../../evil"])},
    )
    with pytest.raises(DownloadError, match="1 of 4 archives failed"):
        download("dataset", "--year", 2026, tmp_path / "data")
    (stray,) = tmp_path.rglob("evil")  # zipfile keeps it below the folder
    assert stray.is_relative_to(tmp_path / "data" / "dcase2026t2" / "eval_data")
    raw = tmp_path / "data" / "dcase2026t2"
    assert {path.parent.parent.name for path in raw.rglob("*.wav")} == {"ToyCar", "Sander"}
    records.routes[route].body = good
    records.add_record(
        RECORDS[2026]["test"], {"eval_data_Sander_test.zip": archive("Sander", "test")}
    )
    download("dataset", "--year", 2026, tmp_path / "data")
    assert len(read_clips(raw)) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dataset", "x"], "Which year"),
        (["dataset", "x", "--year", "2022"], "2022"),
        (["dataset", "x", "--year", "2026", "--machine", "toycar"], "Did you mean 'ToyCar'"),
        (["weights", "logmel"], "has no weights"),
        (["weights", "beats", "--year", "2026"], "belong to a data set"),
    ],
)
def test_a_users_mistake_is_told(records, arguments, message):
    with pytest.raises(InputError, match=message):
        download(*arguments)
