"""Evaluation of score files: official numbers where they fit the truth, one report where not.

The cases are those that the official evaluator of 2024 was run on; each test says what daco
does instead.
"""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from dcase_trees import anonymous, labelled_test, make_truth

from daco.errors import DataError, InputError
from daco.evaluation.evaluate import evaluate_scores, find_systems, rank_systems
from daco.evaluation.intervals import machine_jackknife, score_interval
from daco.evaluation.metrics import QUANTITIES, decision_metrics, machine_metrics, official_score
from daco.evaluation.scorefiles import DECISIONS, score_file_name, write_decisions, write_scores

NAMES = anonymous(8)
LABELS = np.arange(8) % 2  # as in make_truth: odd clips are anomalies
DOMAINS = np.where(np.arange(8) < 4, "source", "target")
MACHINES = ("RoboticArm", "Scanner")


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


def edit(system, machine, change, name=score_file_name):
    path = system / name(machine)
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def report_of(system, truth=None, **options):
    with pytest.raises(DataError) as error:
        evaluate_scores(system, truth, **options)
    return str(error.value)


# -------------------------------------------------------------------------------- what is right


def test_official_numbers_of_each_machine_and_of_all(system, truth, scores):
    result = evaluate_scores(system, truth)
    fractions = {m: machine_metrics(scores[m], LABELS, DOMAINS) for m in MACHINES}
    assert [each.machine for each in result.machines] == list(MACHINES)
    for each in result.machines:
        assert each.clips == 8
        for name, fraction in fractions[each.machine].items():
            assert each.metrics[name] == 100 * fraction
        pooled = machine_metrics(scores[each.machine], LABELS, ["all"] * 8)
        assert each.metrics["auc_all"] == 100 * pooled["auc_all"]
    assert result.official_score == pytest.approx(100 * official_score(fractions), rel=1e-12)
    paucs = [100 * fractions[m]["pauc"] for m in MACHINES]
    assert result.arithmetic_mean["pauc"] == pytest.approx(np.mean(paucs))
    assert result.harmonic_mean["pauc"] == pytest.approx(2 / sum(1 / p for p in paucs))
    assert (result.partial, result.missing, result.notes) == (False, (), ())
    assert result.system == system.name
    percent = [[100 * value for value in fractions[m].values()] for m in MACHINES]
    assert result.interval == pytest.approx(score_interval(percent))
    assert result.interval[0] < result.official_score < result.interval[1]


def test_the_result_is_plain_values(system, truth):
    result = evaluate_scores(system, truth)
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert document["official_score"] == result.official_score
    assert document["machines"][1]["machine"] == "Scanner"
    assert document["machines"][1]["auc_source"] == result.machines[1].metrics["auc_source"]
    assert document["partial"] is False


def test_order_of_rows_does_not_matter(system, truth):
    before = evaluate_scores(system, truth)

    def shuffle(lines):
        random.Random(0).shuffle(lines)
        return lines

    edit(system, "Scanner", shuffle)
    assert evaluate_scores(system, truth) == before


@pytest.mark.parametrize("column", [1, 2])
def test_labelled_names_are_those_clips_too(system, truth, scores, column):
    """The second name of a clip, and the third where hidden attributes were published."""
    before = evaluate_scores(system, truth)
    path = truth / "ground_truth_attributes/ground_truth_Scanner_section_00_test.csv"
    rows = [line.split(",") for line in path.read_text().split()]
    rows = [[anon, f"{stem}_noAttribute", f"{stem}.wav"] for anon, stem in rows]
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    other = {row[0]: row[column] for row in rows}
    names = [other[name].removesuffix(".wav") + ".wav" for name in NAMES]
    write_scores(system, "Scanner", "00", names, scores["Scanner"])
    assert evaluate_scores(system, truth) == before


def test_the_baselines_file_names(system, truth):
    before = evaluate_scores(system, truth)
    for machine in MACHINES:
        name = f"anomaly_score_DCASE2024T2{machine}_section_00_test_seed13711_id(0_)_Eval.csv"
        (system / score_file_name(machine)).rename(system / name)
    assert evaluate_scores(system, truth) == before


def test_names_with_label_and_domain_need_no_truth(tmp_path):
    names = labelled_test("_ac_0.03")
    scores = np.arange(8.0)
    labels = [int("anomaly" in name) for name in names]
    domains = ["target" if "_target_" in name else "source" for name in names]
    write_scores(tmp_path, "fan", "00", names, scores)
    write_scores(tmp_path, "fan", "01", names, scores[::-1])
    first, second = evaluate_scores(tmp_path).machines
    wanted = machine_metrics(scores, labels, domains)
    assert first.metrics["auc_target"] == 100 * wanted["auc_target"]
    assert second.section == "01"
    assert second.metrics["auc_target"] == 100 * (1 - wanted["auc_target"])


def test_decisions_add_precision_recall_and_f1(system, truth):
    rng = np.random.default_rng(0)
    decisions = {machine: rng.integers(0, 2, 8) for machine in MACHINES}
    for machine in MACHINES:
        write_decisions(system, machine, "00", NAMES, decisions[machine])
    result = evaluate_scores(system, truth)
    for each in result.machines:
        wanted = decision_metrics(decisions[each.machine], LABELS, DOMAINS)
        assert {name: each.metrics[name] for name in wanted} == {
            name: 100 * value for name, value in wanted.items()
        }
    assert "f1_target" in result.harmonic_mean
    (system / score_file_name("Scanner", kind=DECISIONS)).unlink()
    result = evaluate_scores(system, truth)
    assert result.notes == ("No decision file for Scanner, so no means of F1.",)
    assert "f1_target" not in result.harmonic_mean


# -------------------------------------------------------------------------------- what is wrong


SCANNER, ARM = map(score_file_name, ("Scanner", "RoboticArm"))
LABELLED = "section_00_source_test_normal_0000_spd_0"


@pytest.mark.parametrize(
    ("machine", "change", "parts"),
    [
        (  # the official evaluator gives the full score here: it never compares a name
            "Scanner",
            lambda lines: [line.replace("section_00_000", "clip_") for line in lines],
            [
                f"{SCANNER}: 8 rows with an unknown name: clip_0, clip_1, clip_2, clip_3, "
                "clip_4 and 3 more.",
                f"{SCANNER}: 8 clips without a row: section_00_000",
                "accepts wrong names silently, and skips a system that lacks a machine",
            ],
        ),
        ("Scanner", lambda s: s[:-1], [f"{SCANNER}: 1 clip without a row: section_00_0007"]),
        ("RoboticArm", lambda s: [*s, s[2]], [f"{ARM}: a repeated clip: line 9 ("]),
        (
            "RoboticArm",
            lambda lines: [*lines, f"{LABELLED}.wav,1\n"],
            [f"1 row of a clip that has another row: section_00_0000 = {LABELLED}"],
        ),
    ],
    ids=["wrong names in the right order", "missing", "double", "under both its names"],
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
        "no score file for 1 machine of 3: ToyCircuit",
    ):
        assert part in text


def test_a_missing_machine_is_an_error_or_makes_the_result_partial(system, truth):
    """The official evaluator skips such a system without a word and ends well."""
    whole = evaluate_scores(system, truth)
    (system / score_file_name("Scanner")).unlink()
    assert "no score file for 1 machine of 2: Scanner." in report_of(system, truth)
    result = evaluate_scores(system, truth, partial=True)
    assert result.partial
    assert result.missing == ("Scanner",)
    assert result.machines == whole.machines[:1]
    assert result.to_dict()["missing"] == ("Scanner",)
    edit(system, "RoboticArm", lambda lines: lines[1:])
    assert "1 clip without a row" in report_of(system, truth, partial=True)


def test_files_of_other_machines_are_named_and_left_out(system, truth, scores):
    before = evaluate_scores(system, truth)
    write_scores(system, "fan", "00", NAMES, scores["Scanner"])
    result = evaluate_scores(system, truth)
    assert result.machines == before.machines
    assert result.notes == (
        "1 score file without truth, left out: anomaly_score_fan_section_00_test.csv.",
    )


def test_scores_of_no_machine_of_the_truth(tmp_path, truth, scores):
    write_scores(tmp_path / "s", "fan", "00", NAMES, scores["Scanner"])
    assert "no score file for 2 machines of 2" in report_of(tmp_path / "s", truth)
    text = report_of(tmp_path / "s", truth, partial=True)
    assert "no score file belongs to a machine of the truth" in text


def test_years_must_agree(system, truth):
    with pytest.raises(DataError, match="is of 2024, the test clips without a label are of 2023"):
        evaluate_scores(system, truth, year=2023)
    name = "anomaly_score_DCASE2023T2Scanner_section_00_test_seed1_id(0_)_Eval.csv"
    (system / score_file_name("Scanner")).rename(system / name)
    with pytest.raises(DataError, match="is of 2024"):
        evaluate_scores(system, truth)
    assert "files of several years: 2023, 2024" in report_of(system, truth, year=2024)
    assert "2 files with names that contain no label and domain (anomaly_sc" in report_of(system)


def test_a_year_alone_says_which_machines_there_must_be(tmp_path):
    for machine in ("fan", "bearing"):
        write_scores(tmp_path, machine, "00", labelled_test(), np.arange(8.0))
    text = report_of(tmp_path, year=2025)
    assert "no score file for 5 machines of 7: ToyCar, ToyTrain, gearbox, slider, valve." in text
    assert evaluate_scores(tmp_path, year=2025, partial=True).partial
    with pytest.raises(InputError, match="machines of 2019 are not known"):
        evaluate_scores(tmp_path, year=2019)


def test_a_machine_that_cannot_be_measured_is_a_problem(tmp_path):
    names = labelled_test()
    write_scores(tmp_path / "a", "fan", "00", [n for n in names if "target" not in n], range(4))
    assert "no normal clip of the target domain" in report_of(tmp_path / "a")
    write_scores(tmp_path / "b", "fan", "00", [n for n in names if "normal" in n], range(4))
    assert "no anomaly (label 1)" in report_of(tmp_path / "b")


def test_what_is_no_truth(system, tmp_path):
    with pytest.raises(DataError, match="No folder ground_truth_data"):
        evaluate_scores(system, tmp_path)
    for kind in ("data", "domain"):
        (tmp_path / f"empty/ground_truth_{kind}").mkdir(parents=True)
    with pytest.raises(DataError, match="has no ground_truth_<machine>"):
        evaluate_scores(system, tmp_path / "empty")


def test_truth_files_that_contradict_each_other(system, truth):
    path = truth / "ground_truth_domain/ground_truth_Scanner_section_00_test.csv"
    path.write_text(path.read_text().replace("section_00_0003", "section_00_0009"))
    with pytest.raises(DataError, match=r"without a row for 1 \(section_00_0003\)"):
        evaluate_scores(system, truth)


# ------------------------------------------------------------------------------ several systems


def test_systems_are_ranked_by_path_and_failures_are_kept_apart(tmp_path, truth, scores):
    teams = tmp_path / "teams"
    for team, shift in (("alpha", 0.0), ("beta", 5.0), ("gamma", 0.0)):
        for machine in MACHINES:
            write_scores(
                teams / team / "system_1", machine, "00", NAMES, scores[machine] + shift * LABELS
            )
    (teams / "gamma/system_1" / score_file_name("Scanner")).unlink()
    (teams / "notes").mkdir()
    assert len(find_systems(teams)) == 3
    ranking = rank_systems(teams, truth)
    # equal names of two teams overwrite each other in the official evaluator
    assert [each.system for each in ranking.evaluations] == ["beta/system_1", "alpha/system_1"]
    assert ranking.evaluations[0].official_score == 100
    assert ranking.failures == {"gamma/system_1": ("no score file for 1 machine of 2: Scanner.",)}
    partial = rank_systems(teams, truth, partial=True)
    assert [each.system for each in partial.evaluations][-1] == "gamma/system_1"
    assert partial.failures == {}


def test_the_first_system_is_compared_with_each_other_on_the_same_machines(tmp_path):
    rng = np.random.default_rng(0)
    names = [name for tail in ("", "_a", "_b", "_c") for name in labelled_test(tail)]
    labels = np.array(["anomaly" in name for name in names])
    machines = ("fan", "pump", "valve", "slider", "gearbox")
    for machine in machines:
        noise = rng.normal(size=len(names))
        for system, gain in (("a", -1.0), ("b", 0.5), ("c", 50.0)):
            write_scores(tmp_path / system, machine, "00", names, noise + gain * labels)
    write_scores(tmp_path / "d", "fan", "00", names, rng.normal(size=len(names)))
    ranking = rank_systems(tmp_path)
    by_name = {each.system: each for each in ranking.evaluations}
    # d has one machine, so that it is compared with nothing
    assert [(each.first, each.second) for each in ranking.differences] == [("c", "b"), ("c", "a")]
    for each in ranking.differences:
        one, two = (
            [[m.metrics[q] for q in QUANTITIES] for m in by_name[name].machines]
            for name in (each.first, each.second)
        )
        found = machine_jackknife(one, two)
        assert each.delta == pytest.approx(found.delta, abs=1e-9)
        assert each.interval == pytest.approx((found.low, found.high), abs=1e-9)
        assert each.p_value == 2 / 2**5  # c is better on all five machines
        assert each.n_machines == 5
    assert by_name["d"].interval is None
