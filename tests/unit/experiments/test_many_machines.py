"""Vectors and faults in files: read in parts, and the same as in memory."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic_machines import synthetic_machine, synthetic_table

import daco
from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError
from daco.experiments import inputs
from daco.experiments.inputs import name_domains, read_table
from daco.experiments.machine import Settings, key_of
from daco.experiments.machine_data import machines_of
from daco.files.hashing import sha256_of_file
from daco.files.remote import parse_location

OPTIONS = {"grid": ["raw-k1", "conf-soft-m0-k1", "ratio-soft-k1"], "n_splits": 3, "workers": 1}
SIZE = {"n_source": 30, "n_target": 8, "n_test": 16, "dim": 6}


@pytest.fixture(scope="module")
def clips():
    return synthetic_table(synthetic_machine(f"dev{i}", [i], **SIZE) for i in range(3))


@pytest.fixture(scope="module")
def faults(clips):
    """Faults of all machines, their rows in no order."""
    rng = np.random.default_rng(0)
    rows = [np.flatnonzero(clips.columns["machine"] == f"dev{i}")[25:35] for i in range(3)]
    listed = [(row, kind) for mine in rows for row in mine for kind in ("", "rub", "whistle")]
    listed = [listed[at] for at in rng.permutation(len(listed))]
    at = [row for row, _ in listed]
    moved = [(kind != "") * rng.normal(size=6) for _, kind in listed]
    columns = {name: clips.columns[name][at].tolist() for name in ("path", "machine", "domain")}
    return daco.EmbeddingTable.from_arrays(
        clips.matrix()[at] + np.array(moved), **columns, fault=[kind for _, kind in listed]
    )


def test_tables_in_files_give_the_rows_of_those_in_memory(clips, faults, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "BUDGET", 3000)  # bytes: two of the three machines
    clips.write(tmp_path / "dev.parquet")
    faults.write(tmp_path / "faults.parquet")
    here = daco.study(clips, faults=faults, **OPTIONS)
    there = daco.study(tmp_path / "dev.parquet", faults=[tmp_path / "faults.parquet"], **OPTIONS)
    pd.testing.assert_frame_equal(here.clips, there.clips)
    pd.testing.assert_frame_equal(here.criteria, there.criteria)
    assert {each["pseudo"]["basis"] for each in there.run["machines"]} == {"injected faults"}
    roles = {each["role"]: each["sha256"] for each in there.run["inputs"]}
    assert roles["faults"] == sha256_of_file(tmp_path / "faults.parquet")


def test_vectors_of_many_machines_are_read_at_once(clips, tmp_path, monkeypatch):
    clips.write(tmp_path / "dev.parquet")
    calls, vectors = [], EmbeddingTable.vectors
    monkeypatch.setattr(
        EmbeddingTable, "vectors", lambda *given: calls.append(1) or vectors(*given)
    )
    table = read_table(tmp_path / "dev.parquet")
    machines = machines_of(table, "dev", name_domains([table]))
    assert [len(each.loaded().X_test) for each in machines] == [16, 16, 16]
    assert len(calls) == 1


def test_whatever_enters_the_rows_changes_their_key(clips):
    names = name_domains([clips])
    fan = machines_of(clips, "dev", names)[0].loaded()
    settings = Settings(("raw-k1",))
    changed = [
        {"set": "eval"},
        {"vectors": fan.vectors * 2},
        {"labels": 1 - fan.labels},
        {"domains": fan.domains[::-1]},
        {"clips": fan.clips[::-1]},
        {"systems": {"mine": (None, np.zeros(16))}},
        {"systems": {"mine": (None, np.ones(16))}},
    ]
    keys = [key_of(replace(fan, **each), settings) for each in ({}, *changed)]
    assert len(set(keys)) == len(keys)
    again = machines_of(clips, "dev", names)[0].loaded()
    assert key_of(again, replace(settings, n_jobs=4)) == keys[0]


def test_faults_that_do_not_fit_are_told_before_anything_is_scored(clips, faults, tmp_path):
    narrow = daco.EmbeddingTable(faults.columns, {"embedding": faults.matrix()[:, :4].copy()}, {})
    with pytest.raises(InputError, match="4 values"):
        daco.study(clips, faults=narrow, out=tmp_path / "run", **OPTIONS)
    assert not list((tmp_path / "run" / "parts").iterdir())
    other = {**faults.columns, "machine": np.full(len(faults), "lathe", object)}
    strange = daco.EmbeddingTable(other, faults.matrices, {})
    with pytest.raises(DataError, match="Not one fault"):
        daco.study(clips, faults=strange, **OPTIONS)


def test_a_remote_table_has_the_hash_of_its_content():
    pytest.importorskip("upath", reason="universal_pathlib is not installed")
    fsspec = pytest.importorskip("fsspec")
    content = np.random.default_rng(0).bytes(9_000_000)  # more than is fetched at once
    fsspec.filesystem("memory").pipe("/hashed/a", content)
    found = sha256_of_file(parse_location("memory://hashed/a"))
    assert found == hashlib.sha256(content).hexdigest()
