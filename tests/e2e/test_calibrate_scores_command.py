"""``daco calibrate-scores`` as a user types it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from command_line import refused, run, said
from dcase_trees import make_truth

import daco
from daco.data.table import EmbeddingTable
from daco.evaluation.scorefiles import DECISIONS, SCORES, read_score_files


def clips(machine="fan", seed=0):
    """A table of 40 normals and 60 test clips, and vectors in which domains can be told apart."""
    rng = np.random.default_rng(seed)
    domains = np.array(["source"] * 30 + ["target"] * 10 + ["source", "target"] * 30)
    labels = np.array([0] * 40 + [0] * 30 + [1] * 30)
    shift = (domains == "target") * 3.0
    rows = pd.DataFrame(
        {
            "path": [f"{machine}/{number:03d}.wav" for number in range(100)],
            "machine": machine,
            "domain": domains,
            "split": ["train"] * 40 + ["test"] * 60,
            "label": labels,
            "score": rng.normal(size=100) + shift + 2 * labels,
        }
    )
    rows["weight_target"] = np.where(domains == "target", 0.9, 0.2)
    rows["weight_source"] = 1 - rows["weight_target"]
    vectors = rng.normal(size=(100, 4)) * 0.3 + np.where(
        shift[:, None] > 0, [1, 0, 0, 0], [0, 1, 0, 0]
    )
    return rows, vectors


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """own.csv and other.parquet of two machines, and the embeddings of the same clips."""
    monkeypatch.chdir(tmp_path)
    (fan, fan_vectors), (pump, pump_vectors) = clips("fan"), clips("pump", 1)
    rows = pd.concat([fan, pump])
    rows.to_csv("own.csv", index=False)
    rows.assign(score=-np.exp(-rows["score"])).sample(frac=1, random_state=0).to_parquet(
        "other.parquet"
    )
    names = [f"elsewhere/{path}" for path in rows["path"]]
    EmbeddingTable.from_arrays(
        np.concatenate([fan_vectors, pump_vectors]),
        path=names,
        **{name: rows[name].tolist() for name in ("machine", "domain", "split")},
    ).write("emb.parquet")
    return rows


def test_weights_of_the_table_calibrate_its_scores(tables):
    printed = said("calibrate-scores", "own.csv", "--out", "out")
    assert re.search(r"criterion as given m0 .* own \d\.\d+ \d\.\d+", printed)
    assert "Choice without labels: conf-soft-m" in printed
    assert "Official scores, from labels that the choice did not use" in printed
    assert "2 machines are too few" in printed
    assert "Written: 4 files in out" in printed
    files = read_score_files("out")
    assert [(file.kind, file.machine) for file in files] == [
        (SCORES, "fan"),
        (SCORES, "pump"),
        (DECISIONS, "fan"),
        (DECISIONS, "pump"),
    ]
    config = re.search(r"labels: (\S+);", printed)[1]
    for file in files[:2]:
        rows = tables[tables["machine"] == file.machine]
        normals, test = rows[rows["split"] == "train"], rows[rows["split"] == "test"]
        assert list(file.names) == [path[-7:-4] for path in test["path"]]
        expected = daco.calibrate_scores(
            {"own": normals["score"]},
            normals["domain"],
            {"own": test["score"]},
            test[["weight_source", "weight_target"]],
            [config],
            n_splits=1,
        )
        np.testing.assert_allclose(file.values, expected.scores[:, 0], rtol=1e-12)


def test_the_columns_of_the_criterion_are_the_candidates(tables, monkeypatch):
    monkeypatch.setattr("daco.method.config._STRENGTHS", (0, 5))
    printed = said("calibrate-scores", "own.csv", "other.parquet")
    value = r" \d\.\d+" * 4
    assert re.search(f"criterion as given m0 m5 zscore .* own{value} other{value} ", printed)


def test_embeddings_give_the_domain_weights(tables):
    printed = said("calibrate-scores", "own.csv", "--embeddings", "emb.parquet", "--out", "out")
    vectors = EmbeddingTable.read("emb.parquet").select(machine="pump").matrix()
    rows = tables[tables["machine"] == "pump"]
    config = re.search(r"labels: (\S+);", printed)[1]
    expected = daco.calibrate_scores(
        {"own": rows["score"][:40]},
        rows["domain"][:40],
        {"own": rows["score"][40:]},
        (vectors[:40], vectors[40:]),
        [config],
        n_splits=1,
    )
    written = next(file for file in read_score_files("out") if file.machine == "pump")
    np.testing.assert_allclose(written.values, expected.scores[:, 0], rtol=1e-9)


def test_the_rate_sets_the_decisions(tables):
    alarms = {}
    for rate in ("0.01", "0.5"):
        run("calibrate-scores", "own.csv", "--out", rate, "--false-alarm-rate", rate)
        alarms[rate] = np.concatenate([file.values for file in read_score_files(rate)[2:]])
    assert (alarms["0.01"] <= alarms["0.5"]).all()
    assert alarms["0.01"].sum() < alarms["0.5"].sum()


def test_several_systems_vote(tables):
    both = ("own.csv", "other.parquet")
    note = run("calibrate-scores", *both).stderr
    assert "cannot tell which system detects more" in " ".join(note.split())
    printed = said("calibrate-scores", *both, "--config", "recommended")
    assert "Used instead, because of --config: vote." in printed
    for name in ("vote", "ext-own", "ext-other"):
        assert f" {name} " in printed


def test_a_configuration_can_be_named(tables):
    printed = said("calibrate-scores", "own.csv", "--config", "conf-soft-m300-ext-own")
    assert "Used instead, because of --config: conf-soft-m300-ext-own." in printed
    assert "'vote' is not among" in str(refused("calibrate-scores", "own.csv", "--config", "vote"))


def test_true_domains_are_a_diagnostic(tables):
    tables.filter(regex="^(?!weight)").to_csv("own.csv", index=False)
    printed = run("calibrate-scores", "own.csv", "--true-domains").stderr
    assert "New clips have none." in " ".join(printed.split())
    error = refused("calibrate-scores", "own.csv")
    assert "Give --embeddings, or columns weight_source, weight_target" in str(error)


def test_one_machine_and_wrong_truth_are_said(tables, tmp_path):
    tables[tables["machine"] == "fan"].to_csv("own.csv", index=False)
    assert "1 machine is too few" in said("calibrate-scores", "own.csv")
    truth = tmp_path / "truth" / "ground_truth_data"
    truth.mkdir(parents=True)
    error = refused("calibrate-scores", "own.csv", "--truth", truth.parent)
    assert "ground_truth" in str(error)


def test_challenge_files_with_embeddings_and_the_organisers_truth(tmp_path):
    """Anonymous test clips: their domains come from embeddings, their labels from the truth."""
    rows, vectors = clips()
    rows = rows.iloc[[*range(40), *range(40, 100, 2), *range(41, 100, 2)]]  # source, then target
    order = rows.index
    train = [f"section_00_{d}_train_normal_{i:04d}" for i, d in enumerate(rows["domain"][:40])]
    test = [f"section_00_{i:04d}" for i in range(60)]
    folder = tmp_path / "system"
    folder.mkdir()
    for split, names, scores in (
        ("train", train, rows["score"][:40]),
        ("test", test, rows["score"][40:]),
    ):
        lines = [
            f"{name}.wav,{score!r}" for name, score in zip(names, scores.tolist(), strict=True)
        ]
        (folder / f"anomaly_score_fan_section_00_{split}.csv").write_text("\n".join(lines))
    paths = [f"fan/{name}.wav" for name in [*train, *test]]
    EmbeddingTable.from_arrays(vectors[order], path=paths, machine="fan").write(
        tmp_path / "emb.parquet"
    )
    truth = make_truth(tmp_path / "truth", "fan", [f"{name}.wav" for name in test])
    out = tmp_path / "out"
    printed = said(
        *("calibrate-scores", folder, "--embeddings", tmp_path / "emb.parquet"),
        *("--truth", truth, "--out", out),
    )
    official = said("evaluate", out, "--truth", truth)
    score = re.search(r"Official score: (\d+\.\d\d)", official)[1]
    assert re.search(rf" (conf|zscore)-soft\S* {score} ", printed)


def test_without_labels_nothing_is_evaluated(tables):
    tables.drop(columns="label").to_csv("own.csv", index=False)
    printed = said("calibrate-scores", "own.csv")
    assert "Choice without labels" in printed
    assert "Official" not in printed


def test_one_domain_needs_no_weights(tables):
    tables[["path", "machine", "split", "score"]].to_csv("own.csv", index=False)
    printed = said("calibrate-scores", "own.csv", "--out", "out")
    assert "conf-soft-m0-ext-own; no candidate has a criterion" in printed
    given = tables[(tables["split"] == "test") & (tables["machine"] == "fan")]["score"]
    (calibrated,) = [f for f in read_score_files("out") if (f.kind, f.machine) == (SCORES, "fan")]
    assert np.array_equal(np.argsort(given), np.argsort(calibrated.values))


def test_systems_of_one_name_are_told_apart_by_their_folders(tables, tmp_path):
    for name in ("1st", "2nd"):
        (tmp_path / name).mkdir()
        tables.to_csv(tmp_path / name / "own.csv", index=False)
    printed = said("calibrate-scores", "1st/own.csv", "2nd/own.csv")
    assert "s1st_own" in printed
    assert "s2nd_own" in printed
    for name in ("1st", "s1st"):
        tables.to_csv(f"{name}.csv", index=False)
    printed = said("calibrate-scores", "1st.csv", "s1st.csv", "--config", "vote")
    assert "because of --config: vote" in printed  # there are two
    error = refused("calibrate-scores", "own.csv", "own.csv")
    assert "Give each system once" in str(error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv"], "nothing.csv: cannot be read"),
        (["own.csv", "--false-alarm-rate", "2"], "2.0"),
        (["own.csv", "--config", "conf"], "Unknown configuration 'conf'"),
        (["own.csv", "--embeddings", "own.csv"], "own.csv"),
        (["own.csv", "fan.csv"], "fan.csv: pump lacks scores of normals"),
        (["fan.csv", "own.csv"], "fan.csv: pump lacks scores of normals"),
        (["own.csv", "few.csv"], "few.csv has no row or several for 1 clip: fan/050.wav"),
        (["own.csv", "--embeddings", "half.parquet"], "The embedding table (pump, section 00) has"),
    ],
)
def test_mistakes_end_with_a_sentence(tables, arguments, message):
    tables[tables["machine"] == "fan"].to_csv("fan.csv", index=False)
    tables[tables["path"] != "fan/050.wav"].to_csv("few.csv", index=False)
    EmbeddingTable.read("emb.parquet").select(machine="fan").write("half.parquet")
    assert message in " ".join(str(refused("calibrate-scores", *arguments)).split())
