"""The submission: what is in its files, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from random_studies import DEV, N_TEST, random_run

from daco.data.dcase import machine_sections
from daco.errors import DacoError, InputError
from daco.experiments.submission import to_yaml, write_submission

LABEL = "Kato_Hitachi_task2_1"
EVAL = ("Sander", "ToothBrush")
CHOSEN = "conf-soft-m0-k1"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return random_run(tmp_path_factory.mktemp("study") / "run")


def read(path):
    return pd.read_csv(path, header=None, names=["clip", "value"]).set_index("clip")["value"]


def meta_of(folder):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((folder / f"task2/{LABEL}/{LABEL}.meta.yaml").read_text("utf-8"))


def test_scores_and_decisions_are_those_of_the_table(run, tmp_path):
    written = write_submission(run, LABEL, tmp_path)
    assert (written.config, written.clips) == (CHOSEN, dict.fromkeys(EVAL, N_TEST))
    assert written.notes == ("Sander, ToothBrush: not the evaluation machines of any year.",)
    kinds = ("anomaly_score", "decision_result")
    names = {f"{kind}_{machine}_section_00_test.csv" for kind in kinds for machine in EVAL}
    assert {path.name for path in written.folder.iterdir()} == names | {f"{LABEL}.meta.yaml"}
    for machine in EVAL:
        rows = run.test_clips[run.test_clips["machine"] == machine].set_index("clip")
        scores, alarms = (
            read(written.folder / f"{kind}_{machine}_section_00_test.csv") for kind in kinds
        )
        pd.testing.assert_series_equal(scores, rows[CHOSEN], check_names=False, rtol=1e-15)
        assert (alarms == (rows[f"p:{CHOSEN}"] <= 0.1)).all()


def test_another_configuration_and_rate_of_a_second_system(run, tmp_path):
    alarms = []
    for number, rate in ((2, 0.01), (3, 0.5)):
        label = f"Kato_Hitachi_task2_{number}"
        settings = run.run["settings"] | {"false_alarm_rate": rate}
        changed = replace(run, run=run.run | {"settings": settings})
        other = write_submission(changed, label, tmp_path, config="blend")
        assert any("p-values are extrapolated" in note for note in other.notes) == (rate < 1 / 11)
        paths = other.folder.glob("decision_result_*")
        alarms.append(sum(read(path).sum() for path in paths))
    assert alarms[0] < alarms[1]
    assert len([*(tmp_path / "task2").iterdir()]) == 2


def test_machines_of_a_whole_year_are_recognised(run, tmp_path):
    own = run.clips[run.clips["machine"] == EVAL[0]]
    keys = sorted(machine_sections(2022)["eval"])
    clips = pd.concat([own.assign(machine=machine, section=section) for machine, section in keys])
    written = write_submission(replace(run, clips=clips), LABEL, tmp_path)
    assert (len(written.clips), written.notes) == (len(keys), ())


def test_the_meta_file_is_yaml(run, tmp_path):
    clips = run.clips.copy()
    clips.loc[clips["machine"] == "slider", "label"] = -1
    inputs = [
        {**each, "metadata": {**each["metadata"], "parameters": "90270000"}}
        for each in run.run["inputs"]
    ]
    changed = replace(run, clips=clips, run={**run.run, "inputs": inputs})
    write_submission(changed, LABEL, tmp_path)
    document = meta_of(tmp_path)
    assert document["submission"]["label"] == LABEL
    described = document["system"]["description"]
    assert (described["input_sampling_rate"], described["embeddings"]) == ("16kHz", "logmel")
    assert "0.1" in described["decision_making"]
    assert described["data_augmentation"] is None  # for the authors to fill in
    assert document["system"]["complexity"] == {"total_parameters": 90_270_000, "MACS": None}
    results = document["results"]["development_dataset"]
    assert set(results) == set(DEV)
    metrics = run.metrics([CHOSEN]).set_index("machine").loc["fan"]
    for name in ("auc_source", "auc_target", "pauc"):
        assert results["fan"][name] == pytest.approx(metrics[name], abs=0.005)
        assert results["slider"][name] is None
    without_dev = replace(run, clips=run.clips.query("set == 'eval'"))
    write_submission(without_dev, LABEL, tmp_path / "other")
    assert meta_of(tmp_path / "other")["results"]["development_dataset"] is None


def test_awkward_values_survive_yaml():
    yaml = pytest.importorskip("yaml")
    for text in ('Kato "the: third"', "no", "Müller\n- x # y", 0.1, None):
        assert yaml.safe_load(f"a: {to_yaml(text)}") == {"a": text}


@pytest.mark.parametrize(
    "label", ["Kato_Hitachi_task2_5", "Kato_Hitachi", "K A_H_task2_1", "../Kato_H_task2_1"]
)
def test_a_wrong_label_is_refused(run, tmp_path, label):
    with pytest.raises(InputError, match="such as Kato_Hitachi_task2_1"):
        write_submission(run, label, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {"config": "raw-k2"}, "no p-values of 'raw-k2'"),
        ({"set": "dev"}, {}, "no scores of evaluation machines"),
        ({"blend": float("nan")}, {"config": "blend"}, "80 clips of Sander, ToothBrush have no"),
    ],
)
def test_what_a_run_cannot_submit(run, tmp_path, columns, options, message):
    changed = replace(run, clips=run.clips.assign(**columns))
    with pytest.raises(DacoError) as error:
        write_submission(changed, LABEL, tmp_path, **options)
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_have_been_edited_stays(run, tmp_path):
    folder = write_submission(run, LABEL, tmp_path).folder
    meta = folder / f"{LABEL}.meta.yaml"
    meta.write_text("filled in")
    with pytest.raises(InputError, match="already exists"):
        write_submission(run, LABEL, tmp_path)
    assert meta.read_text() == "filled in"
