"""Commands on recordings, tables and models in an object store, as a user types them."""

from __future__ import annotations

import json
import re

import pytest
from command_line import refused, run
from drill import write_normals
from object_store import ObjectStore, object_server

from daco.backbones import load
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips


@pytest.fixture(scope="module")
def store():
    """A store that the environment tells the way to, as that of a plant would be."""
    with object_server() as (host, client):
        yield ObjectStore(host, client)


@pytest.fixture(scope="module")
def press(store, tmp_path_factory):
    """Recordings in two domains, here and there."""
    folder = write_normals(tmp_path_factory.mktemp("clips") / "press", {"day": 8, "night": 5})
    store.put_tree(folder, "press")
    return folder


@pytest.fixture(scope="module")
def table(press, tmp_path_factory):
    out = tmp_path_factory.mktemp("table") / "emb.parquet"
    embed_clips(read_clips(press), load("logmel"), out)
    return out


@pytest.fixture
def there(store):
    return lambda key: f"s3://{store.bucket}/{key}"


def vectors(path):
    return EmbeddingTable.read(path).matrix().tobytes()


def ok(*arguments):
    return run(*arguments).stdout.strip()


def test_clips_are_listed(press, there):
    said = ok("clips", there("press"), "--manifest", there("lists/press.csv"))
    assert f"13 clips of 1 machine in {there('press')}" in said
    assert re.search(r"train +day +- +- +8 +0.5 +16k +1", said)
    assert "13 clips of 1 machine" in ok("clips", there("lists/press.csv"))


def test_embed_from_the_store_into_the_store(press, table, there, store):
    out = there("tables/emb.parquet")
    said = ok("embed", there("press"), "--out", out)
    assert said.startswith(f"{out}: 13 clips in ")
    assert vectors(out) == vectors(table)
    assert store.keys("tables") == ["tables/emb.parquet"]
    assert f"{out} is finished: 13 clips" in ok("embed", there("press"), "--out", out)
    before = store.get("press/day/day00.wav")
    store.put("press/day/day00.wav", store.get("press/day/day01.wav"))
    changed = refused("embed", there("press"), "--out", out)
    store.put("press/day/day00.wav", before)
    assert "other recordings" in str(changed)


def test_a_model_is_fitted_and_used_with_recordings_there(press, table, there, tmp_path):
    here, of_there = tmp_path / "press.daco", tmp_path / "there.daco"
    ok("fit", press, "--out", here, "--readout", "mod")
    ok("fit", there("press"), "--out", of_there, "--readout", "mod")
    ok("embed", there("press"), "--out", there("k.parquet"))
    ok("fit", there("k.parquet"), "--out", tmp_path / "of_table.daco")
    facts = [json.loads(ok("inspect", model, "--json")) for model in (here, of_there)]
    for name in ("basis", "config", "normals", "domains", "frontend"):
        assert facts[0][name] == facts[1][name]
    assert facts[1]["provenance"]["root"] == there("press")
    clip = there("press/day/day00.wav")
    (line,) = ok("score", of_there, clip, "--json").splitlines()
    local = json.loads(ok("score", here, press / "day" / "day00.wav", "--json"))
    assert (json.loads(line)["name"], json.loads(line)["score"]) == (clip, local["score"])
    whole = ok("score", of_there, there("press/night"), "--json").splitlines()
    assert [json.loads(line)["name"] for line in whole] == [f"night0{i}.wav" for i in range(5)]


def test_normals_in_the_store_are_added_and_faulted(press, there, store, tmp_path):
    model = tmp_path / "press.daco"
    ok("fit", press / "day", "--out", model, "--false-alarm-rate", 0.2)
    said = ok(
        "update", model, there("press/night/night00.wav"), "--domain", "night", "--keep-suspicious"
    )
    assert "Added 1 recording. There are now 9." in said
    few = ("--per-domain", 1, "--fault", "tones", "--level", -6)
    ok("inject", press, "--out", tmp_path / "faults.parquet", *few)
    ok("inject", there("press"), "--out", there("faults.parquet"), *few)
    assert store.get("faults.parquet") == (tmp_path / "faults.parquet").read_bytes()


def test_mistakes_are_told_in_a_sentence(press, there, tmp_path):
    wrong = {
        ("embed", there("nothing"), "--out", tmp_path / "e.parquet"): "/nothing does not exist.",
        ("embed", press, "--out", "s3://nowhere/e.parquet"): "e.parquet: cannot be written",
        ("fit", press, "--out", there("m.daco")): "A model must be on this computer",
        ("study", "--dev", there("e.parquet"), "--out", there("run")): "must be on this computer",
    }
    for command, token in wrong.items():
        assert token in str(refused(*command)), command
    for call in (("inspect", there("x.daco")), ("clips", press, "--truth", there("truth"))):
        assert "this computer" in run(*call, code=2).output
    assert "name a bucket" in run("clips", "s3://", code=2).output


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO:FutureWarning")
@pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning")
def test_workers_of_a_cluster_read_from_the_store_themselves(press, table, there, store, cluster):
    """Their own configuration names the store."""
    cluster.aws_config.write_text(
        f"[default]\nendpoint_url = http://{store.host}\nregion = us-east-1\n"
        "aws_access_key_id = testing\naws_secret_access_key = testing\n"
    )
    out, clips = there("ray/emb.parquet"), there("press")
    ok("embed", clips, "--out", out, "--engine", "ray")
    assert vectors(out) == vectors(table)
    said = ok("embed", clips, "--out", out, "--engine", "ray")
    assert f"{out} is finished: 13 clips" in said
