"""Commands on recordings, tables and models in an object store, as a user types them."""

from __future__ import annotations

import json
import re

import pytest
from command_line import refused, run
from drill import write_normals
from object_store import ObjectStore, object_server
from small_runs import DEV, GRID, machine_table

from daco.backbones import load
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips

TIMES = ("cost.csv", "run.json")
"""Files of a study that tell how long it took."""


@pytest.fixture(scope="module")
def store():
    """A store that the environment tells the way to, as that of a plant would be."""
    with object_server() as (host, client), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}")
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


def test_clips_are_listed(press, there, tmp_path):
    said = ok("clips", there("press"), "--manifest", there("lists/press.csv"))
    assert f"13 clips of 1 machine in {there('press')}" in said
    assert re.search(r"train +day +- +- +8 +0.5 +16k +1", said)
    again = ok("clips", there("lists/press.csv"), "--manifest", tmp_path / "here.csv")
    assert "13 clips of 1 machine" in again
    assert "13 clips of 1 machine" in ok("clips", tmp_path / "here.csv")


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
    assert "the size or time of recordings" in str(changed)


def test_a_model_is_fitted_to_recordings_there_and_scores_others(press, table, there, tmp_path):
    here, of_store = tmp_path / "here.daco", tmp_path / "there.daco"
    ok("fit", press, "--out", here, "--readout", "mod")
    options = ("--readout", "mod", "--keep-embeddings", there("k.parquet"))
    ok("fit", there("press"), "--out", of_store, *options)
    assert vectors(there("k.parquet")) == vectors(table)
    ok("fit", there("k.parquet"), "--out", tmp_path / "of_table.daco")
    facts = [json.loads(ok("inspect", model, "--json")) for model in (here, of_store)]
    for name in ("basis", "config", "normals", "domains", "frontend"):
        assert facts[0][name] == facts[1][name]
    assert facts[1]["provenance"]["root"] == there("press")
    local = json.loads(ok("score", here, press / "day" / "day00.wav", "--json"))
    remote = json.loads(ok("score", of_store, there("press/day/day00.wav"), "--json"))
    assert remote["name"] == there("press/day/day00.wav")
    assert remote["score"] == local["score"]
    whole = ok("score", of_store, there("press/night"), "--json").splitlines()
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


def test_a_study_reads_its_tables_from_the_store(there, store, tmp_path):
    dev = machine_table(tmp_path / "dev.parquet", DEV)
    store.put("tables/dev.parquet", dev.read_bytes())
    (tmp_path / "grid").write_text("\n".join(GRID))
    common = ("--grid", tmp_path / "grid", "--splits", 3, "--workers", 1, "--no-report")
    ok("study", "--dev", dev, "--out", tmp_path / "here", *common)
    ok("study", "--dev", there("tables/dev.parquet"), "--out", tmp_path / "there", *common)
    files = sorted(path.name for path in (tmp_path / "here").iterdir() if path.is_file())
    assert files == sorted(path.name for path in (tmp_path / "there").iterdir() if path.is_file())
    for name in set(files) - {*TIMES}:
        here, from_there = ((tmp_path / run / name).read_bytes() for run in ("here", "there"))
        assert from_there == here, name
    inputs = [
        json.loads((tmp_path / run / "run.json").read_text())["inputs"] for run in ("here", "there")
    ]
    assert inputs[0] == inputs[1]
    error = refused("study", "--dev", dev, "--out", there("run"), *common)
    assert "A study can only be written to this computer" in str(error)


def test_mistakes_are_told_in_a_sentence(press, there, tmp_path):
    wrong = {
        ("embed", there("nothing"), "--out", tmp_path / "e.parquet"): "/nothing does not exist.",
        ("embed", press, "--out", "s3://nowhere/e.parquet"): "there is no such bucket",
        ("embed", press, "--out", there("e.csv")): "extension .parquet",
        ("inspect", there("none.daco")): "none.daco",
        ("select", there("none.parquet")): "No such file or directory",
    }
    for command, token in wrong.items():
        assert token in str(refused(*command)), command
    assert "name a bucket" in run("clips", "s3://", code=2).output
    assert "is not a known file system" in run("clips", "nonsense://x", code=2).output


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO:FutureWarning")
@pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning")
def test_workers_of_a_cluster_read_from_the_store_themselves(press, table, there, store, cluster):
    """The cluster's own environment knows nothing of the store: all is in the address."""
    out = there("ray/emb.parquet")
    way = f"?endpoint_override={store.host}&scheme=http"
    clips = f"s3://testing:testing@{store.bucket}/press{way}"
    ok("embed", clips, "--out", out, "--engine", "ray")
    assert vectors(out) == vectors(table)
    said = ok("embed", clips, "--out", out, "--engine", "ray")
    assert f"{out} is finished: 13 clips" in said
