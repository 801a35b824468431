"""``daco select`` as a user types it."""

from __future__ import annotations

import json

import pytest
from command_line import refused, run, said
from real_tables import real_table
from synthetic_machines import small_table, synthetic_machine, synthetic_table

import daco
from daco.data.table import EmbeddingTable
from daco.method.config import blind_pool


def test_the_criteria_are_those_of_the_banks(tmp_path):
    """Test clips of the table play no part."""
    synthetic_table([synthetic_machine("fan", 0, dim=16)]).write(tmp_path / "table.parquet")
    train = EmbeddingTable.read(tmp_path / "table.parquet").select(split="train")
    balance = daco.NormalBank(train.matrix(), train.column("domain")).exact_balance(blind_pool())
    (fan,) = json.loads(run("select", tmp_path / "table.parquet", "--json").stdout)["machines"]
    found = list(fan["choice"]["criterion"].values())
    assert found == pytest.approx(balance.values.tolist())
    assert fan["domains"] == {"source": 990, "target": 10}
    assert fan["floor"] == pytest.approx(0.357, abs=0.005)  # as published


@pytest.mark.shared("real", "embeddings")
def test_what_the_label_free_veto_cuts_is_shown_and_not_used(tmp_path):
    table = tmp_path / "table.parquet"
    real_table("fan", "bearing", embeddings="logmel_mod").write(table)
    text = said("select", table, "--splits", 50)
    assert "bearing: use conf-soft-m0-k1;" in text
    assert "of 100 resamples" in text
    assert "One for all machines: use conf-soft-m0-k1" in text
    assert "The label-free veto excludes none of 9 candidates" in text
    wide = said("select", table, "--splits", 50, "--grid", "raw-k1,conf-soft-m0-k1,ldn-diff-K16")
    assert "excludes ldn-diff-K16 for " in wide
    assert "use ldn-diff-K16" not in wide


def test_options_change_the_criterion(tmp_path):
    small_table("fan", "saw").write(tmp_path / "table.parquet")
    (tmp_path / "grid.txt").write_text("raw-k1  # the baseline\nratio-soft-k1\n")
    options = ("--grid", tmp_path / "grid.txt", "--splits", 5, "--json")
    command = ("select", tmp_path / "table.parquet", *options)
    documents = [json.loads(run(*command, "--seed", seed).stdout) for seed in (0, 1)]
    assert documents[1]["candidates"] == ["raw-k1", "ratio-soft-k1"]
    assert [(each["seed"], each["n_splits"]) for each in documents] == [(0, 5), (1, 5)]
    first, second = (each["machines"][0]["choice"]["criterion"] for each in documents)
    assert first != second
    assert "'12'" in str(refused("select", tmp_path / "table.parquet", "--grid", "12"))
