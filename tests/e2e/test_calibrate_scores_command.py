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


def machine(tables, name):
    """Normals and test clips of one machine."""
    rows = tables[tables["machine"] == name]
    return rows[rows["split"] == "train"], rows[rows["split"] == "test"]


def test_weights_of_the_table_calibrate_its_scores(tables):
    printed = said("calibrate-scores", "own.csv", "--out", "out")
    assert re.search(r"own \d\d\.\d\d \d\d\.\d\d", printed)
    assert "2 machines are too few" in printed
    assert "Written: 4 files in out" in printed
    files = read_score_files("out")
    assert [(file.kind, file.machine) for file in files] == [
        (SCORES, "fan"),
        (SCORES, "pump"),
        (DECISIONS, "fan"),
        (DECISIONS, "pump"),
    ]
    for scores, decisions in zip(files[:2], files[2:], strict=True):
        normals, test = machine(tables, scores.machine)
        assert list(scores.names) == [path[-7:-4] for path in test["path"]]
        calibrator = daco.DomainCalibrator().fit(normals["score"], normals["domain"])
        weights = test[["weight_source", "weight_target"]].to_numpy()
        expected = calibrator.transform(test["score"], weights=weights)
        np.testing.assert_allclose(scores.values, expected, rtol=1e-12)
        p_values = calibrator.p_values(test["score"], weights=weights)
        np.testing.assert_array_equal(decisions.values, p_values <= 0.1)


def test_embeddings_give_the_domain_weights(tables):
    run("calibrate-scores", "own.csv", "--embeddings", "emb.parquet", "--out", "out")
    vectors = EmbeddingTable.read("emb.parquet").select(machine="pump").matrix()
    normals, test = machine(tables, "pump")
    calibrator = daco.DomainCalibrator()
    calibrator.fit(normals["score"], normals["domain"], embeddings=vectors[:40])
    expected = calibrator.transform(test["score"], embeddings=vectors[40:])
    written = next(file for file in read_score_files("out") if file.machine == "pump")
    np.testing.assert_allclose(written.values, expected, rtol=1e-9)


def test_a_prior_strength_draws_domains_together(tables):
    for strength in ("0", "1000000"):
        run("calibrate-scores", "own.csv", "--strength", strength, "--out", strength)
    normals, test = machine(tables, "fan")
    pooled = daco.DomainCalibrator().fit(normals["score"]).transform(test["score"])
    far, near = (
        np.abs(read_score_files(each)[0].values - pooled).max() for each in ("0", "1000000")
    )
    assert near < 1e-3 < far


def test_the_rate_sets_the_decisions(tables):
    alarms = {}
    for rate in ("0.01", "0.5"):
        run("calibrate-scores", "own.csv", "--out", rate, "--false-alarm-rate", rate)
        alarms[rate] = np.concatenate([file.values for file in read_score_files(rate)[2:]])
    assert (alarms["0.01"] <= alarms["0.5"]).all()
    assert alarms["0.01"].sum() < alarms["0.5"].sum()


def test_several_systems_have_a_row_and_a_folder_each(tables):
    printed = said("calibrate-scores", "own.csv", "other.parquet", "--out", "out")
    assert "Written: 8 files" in printed
    for name in ("own", "other"):
        assert f" {name} " in printed
        assert len(read_score_files(f"out/{name}")) == 4


def test_true_domains_are_a_diagnostic(tables):
    tables.filter(regex="^(?!weight)").to_csv("own.csv", index=False)
    printed = run("calibrate-scores", "own.csv", "--true-domains").stderr
    assert "New clips have none." in " ".join(printed.split())
    error = refused("calibrate-scores", "own.csv")
    assert "Give --embeddings, or columns weight_source, weight_target" in str(error)


def test_one_machine_is_too_few(tables):
    tables[tables["machine"] == "fan"].to_csv("own.csv", index=False)
    assert "1 machine is too few" in said("calibrate-scores", "own.csv")


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
    run("calibrate-scores", folder, "--embeddings", tmp_path / "emb.parquet", "--out", out)
    official = said("evaluate", out, "--truth", truth)
    assert re.search(r"Official score: (\d+\.\d\d)", official)


def test_without_labels_nothing_is_evaluated(tables):
    tables.drop(columns="label").to_csv("own.csv", index=False)
    assert said("calibrate-scores", "own.csv") == ""


def test_one_domain_needs_no_weights(tables):
    tables[["path", "machine", "split", "score"]].to_csv("own.csv", index=False)
    run("calibrate-scores", "own.csv", "--out", "out")
    given = tables[(tables["split"] == "test") & (tables["machine"] == "fan")]["score"]
    (calibrated,) = [f for f in read_score_files("out") if (f.kind, f.machine) == (SCORES, "fan")]
    assert np.array_equal(np.argsort(given), np.argsort(calibrated.values))


def test_systems_of_one_name_are_told_apart_by_their_folders(tables, tmp_path):
    for name in ("1st", "2nd"):
        (tmp_path / name).mkdir()
        tables.to_csv(tmp_path / name / "own.csv", index=False)
    printed = said("calibrate-scores", "1st/own.csv", "2nd/own.csv")
    assert "1st_own" in printed
    assert "2nd_own" in printed
    error = refused("calibrate-scores", "own.csv", "own.csv")
    assert "Give each system once" in str(error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv"], "nothing.csv: cannot be read"),
        (["own.csv", "--false-alarm-rate", "2"], "2.0"),
        (["own.csv", "--embeddings", "own.csv"], "own.csv"),
        (["test.csv"], "test.csv: fan lacks scores of normals"),
        (["own.csv", "--embeddings", "half.parquet"], "The embedding table (pump, section 00) has"),
    ],
)
def test_mistakes_end_with_a_sentence(tables, arguments, message):
    tables[tables["split"] == "test"].to_csv("test.csv", index=False)
    EmbeddingTable.read("emb.parquet").select(machine="fan").write("half.parquet")
    assert message in " ".join(str(refused("calibrate-scores", *arguments)).split())
