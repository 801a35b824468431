"""The submission package: what is in it, and what is refused."""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from small_runs import DEV, EVAL, N_TEST, small_study

from daco.data.dcase import machine_sections
from daco.errors import DataError, InputError
from daco.evaluation.evaluate import evaluate_scores
from daco.evaluation.scorefiles import parse_rows
from daco.experiments.metafile import read_authors, to_yaml
from daco.experiments.result import StudyResult
from daco.experiments.submission import validate_submission, write_submission

LABEL = "Kato_Hitachi_task2_1"
FOLDER = f"task2/{LABEL}"
AUTHORS = [
    {
        "firstname": "Aoi",
        "lastname": 'Kato "the: third"',
        "email": "aoi@example.org",
        "affiliation": {"institution": "Hitachi", "location": "Tōkyō"},
    },
    {"firstname": "B", "lastname": "Müller"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    small_study(folder)
    return StudyResult.read(folder / "run")


@pytest.fixture
def package(run, tmp_path):
    write_submission(run, LABEL, tmp_path / "package.zip")
    return tmp_path / "package.zip"


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def repacked(package, change):
    """The package with other members: some replaced, or what a function makes of them."""
    files = {name: text.encode() for name, text in members(package).items()}
    change(files) if callable(change) else files.update(change)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    package.write_bytes(buffer.getvalue())
    return package


def meta_of(path):
    return members(path)[f"{FOLDER}/{LABEL}.meta.yaml"]


# ------------------------------------------------------------------------------------- contents


def test_a_package_has_scores_and_decisions_of_every_evaluation_machine(run, package):
    chosen = run.selection["chosen"]["config"]
    files = members(package)
    assert sorted(files) == sorted(
        [
            f"{FOLDER}/{LABEL}.meta.yaml",
            *(f"{FOLDER}/anomaly_score_{machine}_section_00_test.csv" for machine in EVAL),
            *(f"{FOLDER}/decision_result_{machine}_section_00_test.csv" for machine in EVAL),
        ]
    )
    scored = {each.machine: each for each in run.machine_scores() if each.split == "eval"}
    for name in EVAL:
        machine = scored[name]
        rows = {
            kind: parse_rows(files[f"{FOLDER}/{kind}_{name}_section_00_test.csv"], kind, "", [])
            for kind in ("anomaly_score", "decision_result")
        }
        names, scores = rows["anomaly_score"]
        assert [f"{each}.wav" for each in names] == machine.names.tolist()
        assert scores.tolist() == machine.of(chosen).tolist()
        alarms = machine.p_values(chosen) <= 0.1
        assert rows["decision_result"][1].tolist() == alarms.tolist()


def test_the_package_is_read_back(run, tmp_path):
    written = write_submission(run, LABEL, tmp_path / "a.zip")
    assert written.systems == {LABEL: dict.fromkeys(EVAL, N_TEST)}
    assert written.year is None
    assert written.notes == (
        "Sander, ToothBrush: not the evaluation machines of any year from 2020 to 2026.",
        "The meta file names no authors.",
        "The technical report is missing.",
    )
    assert validate_submission(tmp_path / "a.zip").systems == written.systems


@pytest.mark.parametrize("year", [2022, 2026])
def test_machines_of_a_whole_year_are_recognised(run, tmp_path, year):
    machine = next(each for each in run.machine_scores() if each.split == "eval")
    keys = sorted(machine_sections(year)["eval"])
    whole = tuple(replace(machine, machine=name, section=section) for name, section in keys)
    written = write_submission(replace(run, machines=whole), LABEL, tmp_path / "a.zip")
    assert (written.year, len(written.systems[LABEL])) == (year, len(keys))


def test_the_same_run_gives_the_same_bytes(run, package, tmp_path):
    write_submission(run, LABEL, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == package.read_bytes()


def test_another_configuration_and_rate(run, tmp_path):
    alarms = {}
    for rate in (0.01, 0.1, 0.5):
        path = tmp_path / f"{rate}.zip"
        written = write_submission(run, LABEL, path, config="blend", false_alarm_rate=rate)
        extrapolated = any("the smallest" in note for note in written.notes)
        assert extrapolated == (rate == 0.01)
        alarms[rate] = sum(
            text.count(",1\n") for name, text in members(path).items() if "decision" in name
        )
        assert f"p-value of at most {rate:g} " in meta_of(path)
        assert 'name: "DACo blend"' in meta_of(path)
    assert alarms[0.1] < alarms[0.5]


def test_a_configuration_without_decisions_is_refused(run, tmp_path):
    other = next(name for name in run.grid["config"] if name not in run.machine_scores()[0].decided)
    with pytest.raises(InputError, match=f"no decisions of '{other}'"):
        write_submission(run, LABEL, tmp_path / "a.zip", config=other)
    assert not (tmp_path / "a.zip").exists()


def test_the_technical_report_lies_beside_the_system(run, tmp_path):
    report = tmp_path / "report.pdf"
    report.write_bytes(b"%PDF-1.7\n")
    write_submission(run, LABEL, tmp_path / "a.zip", report=report)
    assert members(tmp_path / "a.zip")[f"{FOLDER}.technical_report.pdf"] == "%PDF-1.7\n"
    report.write_bytes(b"<html>")
    with pytest.raises(InputError, match="is not a PDF file"):
        write_submission(run, LABEL, tmp_path / "b.zip", report=report)
    assert not (tmp_path / "b.zip").exists()


# ------------------------------------------------------------------------------------ meta file


@pytest.fixture
def meta(run, tmp_path):
    """The meta file of a system with authors and a network of known size."""
    (tmp_path / "authors.json").write_text(json.dumps(AUTHORS))
    cost = pd.DataFrame({"quantity": ["embedding", "parameters"], "value": [3.0, 90.27]})
    write_submission(
        replace(run, cost=cost),
        LABEL,
        tmp_path / "a.zip",
        config="conf-soft-m0-k1",
        authors=read_authors(tmp_path / "authors.json"),
    )
    return meta_of(tmp_path / "a.zip")


@pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="PyYAML is not installed")
def test_the_meta_file_is_yaml(run, meta):
    import yaml

    document = yaml.safe_load(meta)
    assert document["submission"]["label"] == LABEL
    first, second = document["submission"]["authors"]
    assert first["lastname"] == AUTHORS[0]["lastname"]
    assert first["affiliation"]["location"] == "Tōkyō"
    assert (first["corresponding"], second["corresponding"]) == (True, False)
    assert second["email"] is None
    assert document["system"]["complexity"] == {"total_parameters": 90270000, "MACS": None}
    described = document["system"]["description"]
    assert described["input_sampling_rate"] == "16kHz"
    assert described["machine_learning_method"] == "k-NN (k=1)"
    assert described["data_augmentation"] is None
    results = document["results"]["development_dataset"]
    assert set(results) == set(DEV)
    rows = run.per_machine.query("split == 'dev' and config == 'conf-soft-m0-k1'")
    for row in rows.itertuples():
        assert results[row.machine] == {
            "auc_source": round(row.auc_source, 2),
            "auc_target": round(row.auc_target, 2),
            "pauc": round(row.pauc, 2),
        }


@pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="PyYAML is not installed")
def test_unlabelled_development_machines_have_null_results(run, tmp_path):
    table = run.per_machine.copy()
    table.loc[table["machine"] == "fan", ["auc_source", "auc_target", "pauc"]] = np.nan
    write_submission(replace(run, per_machine=table), LABEL, tmp_path / "a.zip")
    assert "    fan:\n      auc_source: !!null\n" in meta_of(tmp_path / "a.zip")


def test_awkward_values_survive_yaml():
    import yaml

    value = {
        "no": {"null": 'a "b" \\ c\n\t# d', "3DPrinter": 0.1, "on": [{"a": None}, {"b": True}]},
        "é: -": "- x",
        "x": "null",
        "numbers": {"a": 1e-300, "b": -3, "c": 1.0},
    }
    read = yaml.safe_load(to_yaml(value))
    # YAML 1.1 wants a dot in 1e-300, which JSON does not write: no metric is that small
    assert float(read["numbers"].pop("a")) == value["numbers"].pop("a")
    assert read == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "at least one author"),
        ('[{"firstname": "A"}]', "a firstname and a lastname"),
        ('[{"firstname": "A", "lastname": "B", "mail": "x"}]', "no 'mail'. Did you mean 'email'"),
        ('[{"firstname": "A", "lastname": "B", "affiliation": "C"}]', "is an object"),
    ],
)
def test_authors_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "authors.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_authors(path)


# -------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("Kato_Hitachi_task2_5", "at most four systems, 1 to 4; this one is '5'"),
        ("Kato_Hitachi_task2_", "this one is ''"),
        ("Kato_Hitachi", "does not end in _task2_1"),
        ("Kato_task2_1", "letters, digits and hyphens"),
        ("Kato Aoi_Hitachi_task2_1", "letters, digits and hyphens"),
        ("../Kato_Hitachi_task2_1", "letters, digits and hyphens"),
    ],
)
def test_a_wrong_label_is_explained(run, tmp_path, label, why):
    with pytest.raises(InputError, match="such as Kato_Hitachi_task2_1") as error:
        write_submission(run, label, tmp_path / "a.zip")
    assert why in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "name", "options", "message"),
    [
        ({}, "a.zip", {"config": "raw-k2"}, "was not scored with 'raw-k2'"),
        ({}, "a.tar", {}, r"must end in \.zip"),
        ({"selection": {}}, "a.zip", {}, "does not state which configuration it chose"),
        ({}, "a.zip", {"false_alarm_rate": 0.0}, "'false_alarm_rate' parameter"),
        ({"machines": ()}, "a.zip", {}, "no scores of evaluation machines"),
    ],
)
def test_what_a_run_cannot_submit(run, tmp_path, change, name, options, message):
    with pytest.raises((InputError, DataError), match=message):
        write_submission(replace(run, **change), LABEL, tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


def test_an_older_package_stays_when_the_new_one_fails(run, package):
    before = package.read_bytes()
    with pytest.raises(InputError):
        write_submission(run, LABEL, package, config="raw-k2")
    assert package.read_bytes() == before


SCORES = f"{FOLDER}/anomaly_score_Sander_section_00_test.csv"
DECISIONS = f"{FOLDER}/decision_result_Sander_section_00_test.csv"
META = f"{FOLDER}/{LABEL}.meta.yaml"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda files: files.pop(META), f"{META} is missing"),
        (lambda files: files.pop(DECISIONS), "decisions of Sander are not of the same clips"),
        (lambda files: files.pop(SCORES), "decisions of Sander are not of the same clips"),
        ({SCORES: b"a.wav,nan\n"}, f"{SCORES}: not finite: line 1 (a.wav,nan)"),
        ({SCORES: b""}, f"{SCORES}: empty"),
        ({DECISIONS: b"a.wav,0.3\n"}, f"{DECISIONS}: neither 0 nor 1: line 1"),
        (
            lambda files: files.update({META: files[META].replace(b"task2_1", b"task2_2")}),
            "its label is Kato_Hitachi_task2_2, not Kato_Hitachi_task2_1",
        ),
        ({"x_test.csv": b"a.wav,1\n"}, "x_test.csv is not in task2/<label>/"),
        ({f"{FOLDER}/x.txt": b""}, "x.txt does not belong here"),
        ({"task2/../../x": b""}, "task2/../../x is not in task2/<label>/"),
        (
            lambda files: files.update(
                {name.replace("task2_1", "task2_2"): files[name] for name in [META, SCORES]}
            ),
            "the systems do not have the same machines",
        ),
        (lambda files: files.clear(), "0 systems; a team sends one to four"),
    ],
)
def test_a_package_with_a_fault_is_refused(package, change, problem):
    with pytest.raises(DataError) as error:
        validate_submission(repacked(package, change))
    assert problem in str(error.value)


def test_four_systems_may_share_a_package(package):
    def add(files):
        for name, content in list(files.items()):
            for number in "234":
                other = content.replace(b"task2_1", f"task2_{number}".encode())
                files[name.replace("task2_1", f"task2_{number}")] = other

    assert len(validate_submission(repacked(package, add)).systems) == 4


def test_what_is_no_zip(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match="is not a zip file"):
        validate_submission(tmp_path / "a.zip")
    with pytest.raises(DataError, match="is not a zip file"):
        validate_submission(tmp_path / "none.zip")


def test_unpacked_it_can_be_evaluated(tmp_path):
    """The package goes to the organisers, and their truth comes back to it."""
    result = small_study(tmp_path, labelled=True)
    write_submission(result, LABEL, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    evaluation = evaluate_scores(tmp_path / "unpacked" / FOLDER, tmp_path / "evaluator")
    chosen = result.grid.set_index("config")["eval_omega"][result.selection["chosen"]["config"]]
    assert evaluation.official_score == pytest.approx(chosen, rel=1e-12)  # another order of sums
    assert "f1_source" in evaluation.harmonic_mean
