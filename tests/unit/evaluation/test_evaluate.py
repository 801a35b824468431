"""Evaluation of score files: official numbers where they fit the truth, one report where not."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from dcase_trees import anonymous, labelled_test, make_truth
from scipy.stats import hmean

from daco.errors import DataError, InputError
from daco.evaluation.evaluate import EvaluationError, evaluate_scores
from daco.evaluation.metrics import decision_metrics, machine_metrics, official_score
from daco.evaluation.official import score_difference
from daco.evaluation.scorefiles import DECISIONS, score_file_name, write_decisions, write_scores

NAMES = anonymous(8)
LABELS = np.arange(8) % 2  # as in make_truth: odd clips are anomalies
DOMAINS = np.where(np.arange(8) < 4, "source", "target")
MACHINES = ("RoboticArm", "Scanner")
SCANNER, ARM = map(score_file_name, ("Scanner", "RoboticArm"))


@pytest.fixture
def truth(tmp_path):
    folder = tmp_path / "dcase2024_task2_evaluator"
    for machine in MACHINES:
        make_truth(folder, machine, NAMES, shuffled=machine == "Scanner")
    return folder


@pytest.fixture
def scores():
    rng = np.random.default_rng(3)
    return {machine: rng.normal(size=8) + LABELS for machine in MACHINES}


@pytest.fixture
def system(tmp_path, scores):
    folder = tmp_path / "Kato_Hitachi_task2_1"
    for machine in MACHINES:
        write_scores(folder, machine, "00", NAMES, scores[machine])
    return folder


def edit(system, machine, change):
    path = system / score_file_name(machine)
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def report_of(path, truth=None, **options):
    with pytest.raises(EvaluationError) as error:
        evaluate_scores(path, truth, **options)
    return str(error.value)


def test_official_numbers_of_each_machine_and_of_all(system, truth, scores):
    result = evaluate_scores(system, truth)
    fractions = {m: machine_metrics(scores[m], LABELS, DOMAINS) for m in MACHINES}
    for row in result.machines.to_dict("records"):
        wanted = {name: 100 * value for name, value in fractions[row["machine"]].items()}
        assert {name: row[name] for name in wanted} == wanted
        assert row["clips"] == 8
    (row,) = result.systems.to_dict("records")
    assert (row["system"], row["n_machines"], row["missing"]) == (system.name, 2, [])
    assert row["official_score"] == pytest.approx(100 * official_score(fractions), rel=1e-12)
    assert row["low"] < row["official_score"] < row["high"]
    assert row["pauc"] == pytest.approx(100 * hmean([each["pauc"] for each in fractions.values()]))
    assert result.notes == ()
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert document["systems"][0]["official_score"] == result.official_score
    assert document["machines"][1]["machine"] == "Scanner"


def test_order_of_rows_and_names_of_the_baseline_do_not_matter(system, truth):
    before = evaluate_scores(system, truth).to_dict()
    edit(system, "Scanner", lambda lines: lines[::-1])
    for machine in MACHINES:
        name = f"anomaly_score_DCASE2024T2{machine}_section_00_test_seed13711_id(0_)_Eval.csv"
        (system / score_file_name(machine)).rename(system / name)
    assert evaluate_scores(system, truth).to_dict() == before


@pytest.mark.parametrize("column", [1, 2])
def test_labelled_names_are_those_clips_too(system, truth, scores, column):
    """The second name of a clip, and the third where hidden attributes were published."""
    before = evaluate_scores(system, truth).to_dict()
    path = truth / "ground_truth_attributes/ground_truth_Scanner_section_00_test.csv"
    rows = [line.split(",") for line in path.read_text().split()]
    rows = [[anon, f"{stem}_noAttribute", f"{stem}.wav"] for anon, stem in rows]
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    other = {row[0]: row[column] for row in rows}
    names = [other[name].removesuffix(".wav") + ".wav" for name in NAMES]
    write_scores(system, "Scanner", "00", names, scores["Scanner"])
    assert evaluate_scores(system, truth).to_dict() == before


def test_decisions_add_precision_recall_and_f1(system, truth):
    rng = np.random.default_rng(0)
    decisions = {machine: rng.integers(0, 2, 8) for machine in MACHINES}
    for machine in MACHINES:
        write_decisions(system, machine, "00", NAMES, decisions[machine])
    result = evaluate_scores(system, truth)
    for row in result.machines.to_dict("records"):
        wanted = decision_metrics(decisions[row["machine"]], LABELS, DOMAINS)
        assert {n: row[n] for n in wanted} == {n: 100 * value for n, value in wanted.items()}
    assert result.systems["f1_target"].notna().all()
    (system / score_file_name("Scanner", kind=DECISIONS)).unlink()
    result = evaluate_scores(system, truth)
    assert result.systems["f1_target"].isna().all()


def test_a_table_of_scores_is_evaluated_by_its_own_labels(tmp_path, system, truth, scores):
    table = pd.DataFrame({"path": NAMES, "machine": "Scanner", "split": "test"})
    table = table.assign(domain=DOMAINS, label=LABELS, score=scores["Scanner"])
    table.to_csv(tmp_path / "own.csv", index=False)
    own = evaluate_scores(tmp_path / "own.csv")
    by_truth = evaluate_scores(tmp_path / "own.csv", truth, partial=True)
    (system / ARM).unlink()
    official = evaluate_scores(system, truth, partial=True).official_score
    assert own.official_score == by_truth.official_score == official


LABELLED = "section_00_source_test_normal_0000_spd_0"


@pytest.mark.parametrize(
    ("machine", "change", "parts"),
    [
        (  # the official evaluator gives the full score here: it never compares a name
            "Scanner",
            lambda lines: [line.replace("section_00_000", "clip_") for line in lines],
            [
                f"{SCANNER}: 8 rows with an unknown name: clip_0",
                f"{SCANNER}: 8 clips without a row",
            ],
        ),
        ("Scanner", lambda s: s[:-1], [f"{SCANNER}: 1 clip without a row: section_00_0007"]),
        (
            "RoboticArm",
            lambda lines: [*lines, f"{LABELLED}.wav,1\n"],
            [f"1 row of a clip that has another row: section_00_0000 = {LABELLED}"],
        ),
    ],
    ids=["wrong names in the right order", "missing", "under both its names"],
)
def test_rows_that_are_not_those_of_the_clips_are_refused(system, truth, machine, change, parts):
    edit(system, machine, change)
    text = report_of(system, truth)
    assert all(part in text for part in parts)


def test_all_problems_of_all_files_are_told_at_once(system, truth):
    edit(system, "Scanner", lambda lines: ["file,score\n", *lines])
    edit(system, "RoboticArm", lambda lines: ["section_00_0000.wav,nan\n", *lines[1:]])
    (system / score_file_name("Scanner", kind=DECISIONS)).write_text("section_00_0000.wav,2\n")
    (system / score_file_name("Vacuum", kind=DECISIONS)).write_text("section_00_0000.wav,1\n")
    make_truth(truth, "ToyCircuit", NAMES)
    text = report_of(system, truth)
    assert "5 problems" in text
    for part in (
        "Scanner_section_00_test.csv: not a number (these files have no header): line 1",
        "RoboticArm_section_00_test.csv: not finite: line 1 (section_00_0000.wav,nan)",
        "decision_result_Scanner_section_00_test.csv: neither 0 nor 1: line 1",
        "decisions without scores for Vacuum",
        "no valid score file for 3 machines of 3: RoboticArm, Scanner, ToyCircuit",
    ):
        assert part in text


def test_a_missing_machine_is_an_error_or_makes_the_result_partial(system, truth):
    """The official evaluator skips such a system without a word and ends well."""
    whole = evaluate_scores(system, truth)
    (system / SCANNER).unlink()
    assert "no valid score file for 1 machine of 2: Scanner." in report_of(system, truth)
    result = evaluate_scores(system, truth, partial=True)
    assert result.systems["missing"][0] == ["Scanner"]
    assert result.machines.equals(whole.machines[:1])
    edit(system, "RoboticArm", lambda lines: lines[1:])
    assert "1 clip without a row" in report_of(system, truth, partial=True)


def test_files_of_other_machines_are_named_and_left_out(tmp_path, system, truth, scores):
    before = evaluate_scores(system, truth)
    write_scores(system, "fan", "00", NAMES, scores["Scanner"])
    result = evaluate_scores(system, truth)
    assert result.machines.equals(before.machines)
    assert result.notes == ("fan has no truth, and is left out.",)
    write_scores(tmp_path / "s", "fan", "00", NAMES, scores["Scanner"])
    text = report_of(tmp_path / "s", truth, partial=True)
    assert "no score file belongs to a machine of the truth" in text


def test_years_must_agree(system, truth):
    with pytest.raises(DataError, match="is of 2024, the test clips without a label are of 2023"):
        evaluate_scores(system, truth, year=2023)
    name = "anomaly_score_DCASE2023T2Scanner_section_00_test_seed1_id(0_)_Eval.csv"
    (system / SCANNER).rename(system / name)
    assert "files of several years: 2023, 2024" in report_of(system, truth)
    assert "2 files with names that contain no label and domain (anomaly_sc" in report_of(system)


def test_a_year_alone_says_which_machines_there_must_be(tmp_path):
    for machine in ("fan", "bearing"):
        write_scores(tmp_path, machine, "00", labelled_test(), np.arange(8.0))
    text = report_of(tmp_path, year=2025)
    assert "for 5 machines of 7: ToyCar, ToyTrain, gearbox, slider, valve." in text
    assert evaluate_scores(tmp_path, year=2025, partial=True).systems["missing"][0]
    with pytest.raises(InputError, match="machines of 2019 are not known"):
        evaluate_scores(tmp_path, year=2019)


def test_a_machine_that_cannot_be_measured_is_a_problem(tmp_path):
    names = [name for name in labelled_test() if "target" not in name]
    write_scores(tmp_path, "fan", "00", names, range(4))
    assert "no normal clip of the target domain" in report_of(tmp_path)


def test_systems_are_ranked_by_path_and_failures_are_kept_apart(tmp_path, truth, scores):
    teams = tmp_path / "teams"
    for team, shift in (("alpha", 0.0), ("beta", 5.0), ("gamma", 0.0)):
        for machine in MACHINES:
            shifted = scores[machine] + shift * LABELS
            write_scores(teams / team / "system_1", machine, "00", NAMES, shifted)
    (teams / "gamma/system_1" / SCANNER).unlink()
    (teams / "notes").mkdir()
    result = evaluate_scores(teams, truth)
    # equal names of two teams overwrite each other in the official evaluator
    assert result.systems["system"].tolist() == ["beta/system_1", "alpha/system_1"]
    assert result.official_score == pytest.approx(100)
    (problem,) = result.failures["gamma/system_1"]
    assert problem == "no valid score file for 1 machine of 2: Scanner."
    partial = evaluate_scores(teams, truth, partial=True)
    assert partial.systems["system"].iloc[-1] == "gamma/system_1"
    assert partial.failures == {}
    assert partial.differences["second"].tolist() == ["alpha/system_1"]  # the same machines only


def test_the_first_system_is_compared_with_each_other_over_machines(tmp_path):
    rng = np.random.default_rng(0)
    names = [name for tail in ("", "_a", "_b", "_c") for name in labelled_test(tail)]
    labels = np.array(["anomaly" in name for name in names])
    for machine in ("fan", "pump", "valve", "slider", "gearbox"):
        for section in ("00", "01"):
            noise = rng.normal(size=len(names))
            for system, gain in (("a", -1.0), ("b", 0.5), ("c", 50.0)):
                write_scores(tmp_path / system, machine, section, names, noise + gain * labels)
    result = evaluate_scores(tmp_path)
    columns = ["configuration", "machine", "section", *result.official]
    metrics = result.machines.rename(columns={"system": "configuration"})[columns]
    assert result.differences["second"].tolist() == ["b", "a"]
    for row in result.differences.to_dict("records"):
        one, two = (metrics[metrics["configuration"] == row[each]] for each in ("first", "second"))
        delta = score_difference(one, two)
        assert (row["delta"], row["low"], row["high"]) == (delta.value, delta.low, delta.high)
        assert row["p_value"] == 2 / 2**5  # c is better on all five machines; sections are merged
        assert row["n_machines"] == 5
