"""Other scorers of the paper beside the method, and systems that are only compared."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from study_tables import rows_of
from synthetic_machines import small_table

import daco
from daco.errors import DataError, InputError
from daco.evaluation.scorefiles import write_scores
from daco.experiments.baselines import gaussian_mixture, selective_mahalanobis

study = partial(daco.study, grid=["raw-k1", "conf-soft-m0-k1"], n_splits=2, workers=1)


@pytest.fixture(scope="module")
def tables():
    return small_table("fan", "pump"), small_table("valve")


def write_system(folder, *tables):
    """Challenge files with the scores 0, 1, 2, ... of the test clips of each machine."""
    folder.mkdir()
    for table in tables:
        for machine in table.machines:
            names = table.select(machine=machine, split="test").column("path")
            write_scores(folder, machine, "00", names, np.arange(len(names)))
    return folder


def test_the_other_scorers_of_the_paper_are_columns(tables):
    dev, _ = tables
    plain, result = study(dev), study(dev, baselines=True)
    assert result.compared == ["blend", "sel-maha", "gmm2", "conf-oracle-m30-k1"]
    pd.testing.assert_frame_equal(result.clips[plain.clips.columns], plain.clips)
    train, test = (dev.select(machine="pump", split=split) for split in ("train", "test"))
    found, domains = rows_of(result, "pump"), train.column("domain")
    X, X_test = train.matrix(), test.matrix()
    np.testing.assert_allclose(found["sel-maha"], selective_mahalanobis(X, domains, X_test))
    np.testing.assert_allclose(found["gmm2"], gaussian_mixture(X, X_test))
    oracle = daco.NormalBank(X, domains).score(
        X_test, "conf-oracle-m30-k1", domains=test.column("domain")
    )
    np.testing.assert_allclose(found["conf-oracle-m30-k1"], oracle[:, 0])
    assert rows_of(result, "pump", "train")["gmm2"].isna().all()
    assert result.metrics(["gmm2"])["pauc"].notna().all()


def test_a_system_without_scores_of_normals_is_compared_only(tables, tmp_path):
    folder = write_system(tmp_path / "ae", *tables)
    plain, result = study(*tables), study(*tables, systems={"ae": folder})
    assert (result.candidates, result.compared) == (plain.candidates, ["blend", "ext-ae"])
    assert result.run["choice"] == plain.run["choice"]
    assert result.test_clips.groupby("machine")["ext-ae"].apply(list).map(
        lambda scores: scores == list(range(40))
    ).all()  # fmt: skip
    assert result.metrics(["ext-ae"])["auc_target"].notna().all()
    [given] = [each for each in result.run["inputs"] if each["role"] == "system"]
    assert (given["name"], given["path"]) == ("ae", "ae")


def test_a_system_may_lack_a_whole_set_but_nothing_less(tables, tmp_path):
    dev_alone = write_system(tmp_path / "dev", tables[0])
    result = study(*tables, systems={"ae": dev_alone})
    assert "System 'ae' has no scores of the eval machines." in result.run["notes"]
    assert result.metrics(["ext-ae"]).set_index("set")["pauc"].isna().to_dict() == {
        "dev": False,
        "eval": True,
    }
    file = dev_alone / "anomaly_score_fan_section_00_test.csv"
    file.write_text("\n".join(file.read_text().splitlines()[1:]))
    with pytest.raises(InputError, match="dev machine fan: the table has no row or several for 1"):
        study(*tables, systems={"ae": dev_alone})
    file.unlink()
    with pytest.raises(DataError, match="no scores of dev machine fan"):
        study(*tables, systems={"ae": dev_alone})
    with pytest.raises(DataError, match="no scores of dev machine saw"):
        study(small_table("saw"), systems={"ae": write_system(tmp_path / "other", tables[1])})
