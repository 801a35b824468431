"""``daco select`` as a user types it, on two real machines."""

from __future__ import annotations

import json

import numpy as np
import published_runs as published
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


@pytest.fixture(scope="module")
def document(real):
    return json.loads(run("--train", real, "--json").stdout)


def test_the_criteria_are_those_of_the_banks(document):
    for choice in document["machines"]:
        table = real_table(choice["machine"], embeddings="logmel_mod").select(split="train")
        bank = daco.NormalBank(table.matrix(), table.columns["domain"])
        balance = bank.exact_balance(blind_pool())
        assert list(choice["criterion"].values()) == pytest.approx(balance.values.tolist())
        assert choice["domains"] == {"source": 990, "target": 10}
        assert choice["floor"] == pytest.approx(0.357, abs=0.005)  # as published


def test_the_choice_on_real_machines_is_inside_the_noise(document):
    """The paper's advice holds on these two: keep the default."""
    for choice in (*document["machines"], document["common"]):
        assert choice["use"] == "conf-soft-m0-k1"


def test_what_the_user_reads(real):
    text = said("select", "--train", real)
    assert "agreement" in text
    assert "bearing: use conf-soft-m0-k1;" in text
    assert "of 100 resamples" in text
    assert "One for all machines: use conf-soft-m0-k1" in text


def test_a_dev_grid_guards_a_larger_grid(real, tmp_path):
    folder = published.write_run(tmp_path / "beats", "beats")
    guarded = run("--train", real, "--grid", "51", "--dev-grid", folder / "grid.csv", "--json")
    document = json.loads(guarded.stdout)
    assert len(document["candidates"]) == 45
    assert set(document["dev_vetoed"]) >= {"ldn-diff-K16", "conf-soft-m0-k1"}
    assert document["notes"]
    assert {choice["pick"] for choice in document["machines"]} <= set(document["candidates"])


def test_what_the_label_free_veto_cuts_is_shown_and_not_used(real):
    head = "The label-free veto (embedding-space pseudo-anomalies) excludes"
    assert f"{head} none of the 9" in said("select", "--train", real)
    wide = said("select", "--train", real, "--grid", "51")
    assert "excludes ldn-diff-K16 for bearing." in wide
    assert "use ldn-diff-K16" not in wide


def test_out_holds_what_json_prints(real, document, tmp_path):
    run("--train", real, "--out", tmp_path / "choice.json")
    assert json.loads((tmp_path / "choice.json").read_text()) == document


def test_seed_and_splits_change_the_criterion(real, document):
    other = json.loads(run("--train", real, "--seed", 1, "--splits", 5, "--json").stdout)
    assert (other["seed"], other["n_splits"]) == (1, 5)
    assert other["machines"][0]["criterion"] != document["machines"][0]["criterion"]


def test_a_grid_of_ones_own(real, tmp_path):
    grid = tmp_path / "grid.txt"
    grid.write_text("raw-k1  # the baseline\nratio-soft-k1\n")
    document = json.loads(run("--train", real, "--grid", grid, "--json").stdout)
    assert document["candidates"] == ["raw-k1", "ratio-soft-k1"]


def small(tmp_path, **columns):
    X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) + 2
    path = tmp_path / "small.parquet"
    EmbeddingTable.from_arrays(X, **{"machine": "saw", **columns}).write(path)
    return path


def test_one_domain_falls_back_to_the_default(tmp_path):
    text = said("select", "--train", small(tmp_path, domain="all"))
    assert "saw: use conf-soft-m0-k1; one domain" in text


def test_a_long_name_and_many_domains_fit(tmp_path):
    name = "a-machine-with-a-name-longer-than-any-column-of-the-table"
    domain = [f"condition {i % 8}" for i in range(40)]
    said("select", "--train", small(tmp_path, machine=name, domain=domain))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, [], "without a domain"),
        ({"domain": "all", "split": "test"}, [], "no clip of split 'train'"),
        ({"domain": ["a", "b"] * 20}, ["--readout", "cls"], "no readout 'cls'"),
        ({"domain": ["a", "b"] * 20}, ["--grid", "12"], "There is no grid '12'"),
        ({"domain": ["a", "b"] * 20}, ["--dev-grid", "missing.csv"], "missing.csv"),
        ({"domain": ["a", "b"] * 20}, ["--out", "nowhere/a.json"], "nowhere is not a folder"),
    ],
)
def test_mistakes_are_named(tmp_path, columns, options, message):
    error = refused("select", "--train", small(tmp_path, **columns), *options)
    assert message in str(error)
