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
from daco.evaluation.system_scores import read_system


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
            "weight_target": np.where(domains == "target", 0.9, 0.2),
        }
    )
    rows["weight_source"] = 1 - rows["weight_target"]
    centres = np.where(shift[:, None] > 0, [1, 0, 0, 0], [0, 1, 0, 0])
    return rows, rng.normal(size=(100, 4)) * 0.3 + centres


@pytest.fixture
def table(tmp_path, monkeypatch):
    """own.csv of two machines, and emb.parquet, the embeddings of the same clips."""
    monkeypatch.chdir(tmp_path)
    (fan, fan_vectors), (pump, pump_vectors) = clips("fan"), clips("pump", 1)
    rows = pd.concat([fan, pump], ignore_index=True)
    rows.to_csv("own.csv", index=False)
    EmbeddingTable.from_arrays(
        np.concatenate([fan_vectors, pump_vectors]),
        path=[f"elsewhere/{path}" for path in rows["path"]],
        **{name: rows[name].tolist() for name in ("machine", "domain", "split")},
    ).write("emb.parquet")
    return rows


def calibrated(*options):
    """The table that the command writes, test clips by machine."""
    run("calibrate-scores", "own.csv", *options, "--out", "out.csv")
    return dict(tuple(pd.read_csv("out.csv").groupby("machine")))


def machine(table, name):
    """Normals and test clips of one machine."""
    rows = table[table["machine"] == name]
    return rows[rows["split"] == "train"], rows[rows["split"] == "test"]


@pytest.mark.parametrize("dropped", [[], ["weight_source"]])
def test_weights_of_the_table_calibrate_its_scores(table, dropped):
    """The weights of one domain follow from the others."""
    table.drop(columns=dropped).to_csv("own.csv", index=False)
    for name, rows in calibrated().items():
        normals, test = machine(table, name)
        calibrator = daco.DomainCalibrator().fit(normals["score"], normals["domain"])
        weights = test[["weight_source", "weight_target"]].to_numpy()
        np.testing.assert_allclose(rows["given"], test["score"], rtol=1e-12)
        expected = calibrator.transform(test["score"], weights=weights)
        np.testing.assert_allclose(rows["score"], expected, rtol=1e-12)
        p_values = calibrator.p_values(test["score"], weights=weights)
        np.testing.assert_array_equal(rows["decision"], p_values <= 0.1)
        assert rows["path"].tolist() == test["path"].tolist()


def test_official_scores_before_and_after_are_printed(table):
    printed = said("calibrate-scores", "own.csv", "--out", "out")
    for row in ("as given", "calibrated", "difference"):
        assert re.search(rf"{row} \d+\.\d\d \[-?[\d.]+, [\d.]+\]", printed)
    assert "over 2 machines" in printed
    assert "2 machines are too few" in printed
    assert "Written: 4 files, out" in printed
    folder = read_system("out")
    assert set(folder["decision"]) == {0, 1}
    names = table.loc[table["split"] == "test", "path"].str[-7:-4]
    assert folder["clip"].tolist() == names.tolist()


def test_embeddings_give_the_domain_weights(table):
    rows = calibrated("--embeddings", "emb.parquet")["pump"]
    vectors = EmbeddingTable.read("emb.parquet").select(machine="pump").matrix()
    normals, test = machine(table, "pump")
    calibrator = daco.DomainCalibrator()
    calibrator.fit(normals["score"], normals["domain"], embeddings=vectors[:40])
    expected = calibrator.transform(test["score"], embeddings=vectors[40:])
    np.testing.assert_allclose(rows["score"], expected, rtol=1e-9)


def test_challenge_files_with_embeddings_and_the_organisers_truth(tmp_path):
    """Anonymous test clips: their domains come from embeddings, their labels from the truth."""
    rows, vectors = clips()
    rows = rows.iloc[[*range(40), *range(40, 100, 2), *range(41, 100, 2)]]  # source, then target
    train = [f"section_00_{d}_train_normal_{i:04d}" for i, d in enumerate(rows["domain"][:40])]
    test = [f"section_00_{i:04d}" for i in range(60)]
    folder, out = tmp_path / "system", tmp_path / "out"
    folder.mkdir()
    scores = rows["score"].tolist()
    for split, names, values in (("train", train, scores[:40]), ("test", test, scores[40:])):
        lines = [f"{name}.wav,{value!r}\n" for name, value in zip(names, values, strict=True)]
        (folder / f"anomaly_score_fan_section_00_{split}.csv").write_text("".join(lines))
    paths = [f"fan/{name}.wav" for name in [*train, *test]]
    embeddings = tmp_path / "emb.parquet"
    EmbeddingTable.from_arrays(vectors[rows.index], path=paths, machine="fan").write(embeddings)
    truth = make_truth(tmp_path / "truth", "fan", [f"{name}.wav" for name in test])
    run("calibrate-scores", folder, "--embeddings", embeddings, "--out", out)
    assert re.search(r"Official score: \d+\.\d\d", said("evaluate", out, "--truth", truth))


def test_one_domain_needs_no_weights_and_unknown_labels_no_scores(table):
    table[["path", "machine", "split", "score"]].to_csv("own.csv", index=False)
    assert said("calibrate-scores", "own.csv") == ""
    rows = calibrated()["fan"]
    assert rows["label"].isna().all()
    assert np.array_equal(np.argsort(rows["given"]), np.argsort(rows["score"]))


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["own.csv", "--false-alarm-rate", "2"], ["2.0"]),
        (["test.csv"], ["fan: lacks scores of normals", "pump: lacks scores of normals"]),
        (["plain.csv"], ["fan: the domains", "pump: the domains", "weight_source, weight_target"]),
        (["own.csv", "--embeddings", "half.parquet"], ["pump: the embedding table has no row"]),
    ],
)
def test_mistakes_are_listed_for_all_machines(table, arguments, messages):
    table[table["split"] == "test"].to_csv("test.csv", index=False)
    table.filter(regex="^(?!weight)").to_csv("plain.csv", index=False)
    EmbeddingTable.read("emb.parquet").select(machine="fan").write("half.parquet")
    text = " ".join(str(refused("calibrate-scores", *arguments)).split())
    assert all(message in text for message in messages)
