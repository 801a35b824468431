"""``daco select`` as a user types it, on two real machines."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import refused, said
from command_line import run as command
from real_tables import real_table

import daco
from daco.data.table import EmbeddingTable
from daco.method.config import blind_pool


def run(*arguments):
    return command("select", *arguments)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """All clips of a real fan and a real bearing, test clips among them."""
    path = tmp_path_factory.mktemp("real") / "emb.parquet"
    real_table("fan", "bearing", embeddings="logmel_mod").write(path)
    return path


def test_the_criteria_are_those_of_the_banks(real):
    for machine in json.loads(run(real, "--json").stdout)["machines"]:
        table = real_table(machine["machine"], embeddings="logmel_mod").select(split="train")
        bank = daco.NormalBank(table.matrix(), table.columns["domain"])
        balance = bank.exact_balance(blind_pool())
        assert list(machine["choice"]["criterion"].values()) == pytest.approx(
            balance.values.tolist()
        )
        assert machine["domains"] == {"source": 990, "target": 10}
        assert machine["floor"] == pytest.approx(0.357, abs=0.005)  # as published


def test_what_the_user_reads_is_inside_the_noise(real):
    """The paper's advice holds on these two: keep the default."""
    text = said("select", real)
    assert "bearing: use conf-soft-m0-k1;" in text
    assert "of 100 resamples" in text
    assert "One for all machines: use conf-soft-m0-k1" in text
    assert "The label-free veto excludes none of 9 candidates" in text


def test_what_the_label_free_veto_cuts_is_shown_and_not_used(real):
    wide = said("select", real, "--grid", "51")
    assert "excludes ldn-diff-K16 for bearing." in wide
    assert "use ldn-diff-K16" not in wide


def test_options_change_the_criterion_and_out_holds_what_json_prints(real, tmp_path):
    grid, out = tmp_path / "grid.txt", tmp_path / "choice.json"
    grid.write_text("raw-k1  # the baseline\nratio-soft-k1\n")
    options = (real, "--grid", grid, "--splits", 5, "--json")
    documents = [json.loads(run(*options, "--seed", seed, "--out", out).stdout) for seed in (0, 1)]
    assert json.loads(out.read_text()) == documents[1]
    assert documents[1]["candidates"] == ["raw-k1", "ratio-soft-k1"]
    assert [(each["seed"], each["n_splits"]) for each in documents] == [(0, 5), (1, 5)]
    first, second = (each["machines"][0]["choice"]["criterion"] for each in documents)
    assert first != second


def small(tmp_path, **columns):
    X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) + 2
    path = tmp_path / "small.parquet"
    EmbeddingTable.from_arrays(X, **{"machine": "saw", **columns}).write(path)
    return path


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, [], "without a domain"),
        ({"domain": ["a", "b"] * 20}, ["--grid", "12"], "'12'"),
        ({"domain": ["a", "b"] * 20}, ["--out", "nowhere/a.json"], "nowhere"),
    ],
)
def test_mistakes_are_named(tmp_path, columns, options, message):
    error = refused("select", small(tmp_path, **columns), *options)
    assert message in str(error)
