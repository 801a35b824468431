"""The tables of the page about files: their columns are those that the commands write."""

from __future__ import annotations

import csv
import io
import json
import re

import pandas as pd
import pyarrow.parquet as pq
import pytest
import safetensors
import sqlalchemy as sa
from command_line import run
from pages import DOCS
from synthetic_machines import synthetic_machine, synthetic_table

import daco
from daco.monitoring.store import Store

PAGE = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
GRID = ["raw-k1", "conf-soft-m0-k1", "conf-soft-m30-k1", "ldn-ratio-K1"]
SECTIONS = {
    part.partition("\n")[0].replace("\\", ""): part
    for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]
}


def described(section: str) -> list[str]:
    """The names in the first cells of the tables of a section, in their order."""
    cells = re.findall(r"^\| (`[^|]+`) \|", SECTIONS[section], flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def header(text: str) -> list[str]:
    return next(csv.reader(io.StringIO(text)))


@pytest.fixture(scope="module")
def fan(tmp_path_factory):
    """A synthetic fan, its embedding table and its model."""
    root = tmp_path_factory.mktemp("plant")
    size = ("--source", 24, "--test", 8, "--seconds", 1)
    run("synth", root / "clips", "--machine", "fan", *size, "--workers", 1)
    readouts = ("--readout", "mod", "--readout", "env")
    run("embed", root / "clips", "--out", root / "fan.parquet", *readouts)
    model = ("--config", "raw-k1", "--out", root / "fan.daco")
    run("fit", root / "fan.parquet", "--readout", "mod", *model)
    return root


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of a study of two development and two evaluation machines."""
    folder = tmp_path_factory.mktemp("study") / "run"
    dev, evaluation = (
        synthetic_table([synthetic_machine(name, seed, 30, 10, 20, 8) for name in names])
        for seed, names in enumerate([("fan", "pump"), ("valve", "motor")])
    )
    daco.study(dev, evaluation, grid=GRID, out=folder, n_splits=10, workers=1)
    return folder


def test_a_run_folder(study):
    assert {path.name for path in study.iterdir()} == set(described("Run folder")) - {"report.html"}
    facts = json.loads((study / "run.json").read_text(encoding="utf-8"))
    assert set(described("run.json")) <= set(facts)
    clips, criteria = (
        pd.read_parquet(study / name) for name in ("clips.parquet", "criteria.parquet")
    )
    names = described("clips.parquet")
    fixed = [name for name in names if "<" not in name]
    scores = [*GRID, "blend"]
    decided = [name for name in clips if name.startswith("p:")]
    assert list(clips) == [*fixed, *scores, *decided]
    assert names[len(fixed) :] == ["<configuration>", "p:<configuration>"]
    assert "p:blend" in decided
    assert list(criteria) == described("criteria.parquet")
    measures = SECTIONS["criteria.parquet"]
    for measure in criteria["measure"].unique():
        domain = measure.replace("source", "<domain>").replace("target", "<domain>")
        assert f"`{domain}`" in measures


def test_the_manifest(fan, tmp_path):
    run("clips", fan / "clips", "--manifest", tmp_path / "clips.csv")
    columns = described("Manifest")
    assert list(pd.read_csv(tmp_path / "clips.csv")) == columns[:-1]
    assert columns[-1] == "session"


KINDS = {"text": "string", "integer": "int32", "0 or 1": "int8", "list of float32": "fixed_size"}


@pytest.mark.parametrize("command", ["embed", "inject"])
def test_the_embedding_table(command, fan, tmp_path):
    path = fan / "fan.parquet"
    if command == "inject":
        path = tmp_path / "faults.parquet"
        readouts = ("--readout", "mod", "--readout", "env")
        run("inject", fan / "clips", "--out", path, "--per-domain", 1, *readouts)
    schema = pq.read_schema(path)
    page = SECTIONS["Manifest"] + SECTIONS["Embedding table"]
    rows = re.findall(r"^\| `([^`]+)` \| (text|integer|0 or 1|list of float32)", page, flags=re.M)
    known = {name.replace("<readout>", "env"): KINDS[kind] for name, kind in rows}
    absent = {"embed": ["fault", "level_db"], "inject": ["audio_sha256", "quality"]}[command]
    expected = {name: known[name] for name in known if name not in ("session", *absent)}
    written = {field.name: str(field.type) for field in schema}
    assert written.keys() == expected.keys()
    for name, kind in expected.items():
        assert written[name].startswith(kind), name
    keys = {key.decode() for key in schema.metadata if key.startswith(b"daco.")}
    assert keys <= {f"daco.{name}" for name in described("Embedding table")}


def test_the_model(fan):
    with safetensors.safe_open(fan / "fan.daco", "np") as file:
        tensors, metadata = set(file.keys()), file.metadata()
        keys = json.loads(file.get_tensor("model").tobytes())
    assert {*tensors, *keys} == set(described("Model"))
    assert all(f"`{key}`" in SECTIONS["Model"] for key in metadata)


def test_the_verdicts(fan):
    clips = next((fan / "clips").rglob("test"))
    text = run("score", fan / "fan.daco", clips, "--csv").stdout
    expected = described("Verdicts")
    names = {"weight.<domain>": ("source", "target"), "view.<view>": ("mod",)}
    columns = [
        each.partition("<")[0] + name for each in expected for name in names.get(each, ("",))
    ]
    assert header(text) == columns


def test_the_rates_of_faults(fan, tmp_path):
    clips, out = next((fan / "clips").rglob("train")), tmp_path / "rates.csv"
    plan = ("--per-domain", 2, "--fault", "rub")
    run("sensitivity", fan / "fan.daco", clips, *plan, "--out", out)
    assert list(pd.read_csv(out)) == described("Rates of faults")


def test_the_metrics(study, tmp_path):
    out = tmp_path / "metrics.csv"
    run("evaluate", study, "--out", out)
    assert list(pd.read_csv(out)) == described("Metrics")


def test_the_tables_of_the_database(tmp_path):
    url = f"sqlite:///{tmp_path / 'daco.db'}"
    Store.open(url).close()
    engine = sa.create_engine(url)
    tables = sa.inspect(engine).get_table_names()
    engine.dispose()
    assert set(tables) - {"sqlite_sequence"} == set(described("Database"))
