"""Score files of DCASE 2020, 2021 and 2022, evaluated as the challenge of each year did."""

from __future__ import annotations

import numpy as np
import pytest
from early_years import (
    make_list_of_2020,
    make_truth_of_2021,
    make_truth_of_2022,
    names_of_2020,
    names_of_2021,
    names_of_2022,
)
from scipy.stats import hmean
from sklearn.metrics import roc_auc_score

from daco.data.dcase import machine_sections
from daco.errors import DataError
from daco.evaluation.evaluate import evaluate_scores, rank_systems
from daco.evaluation.metrics import harmonic_mean, official_score
from daco.evaluation.results import MachineEvaluation, machine_values
from daco.evaluation.scorefiles import (
    DECISIONS,
    parse_file_name,
    read_score_files,
    score_file_name,
    write_decisions,
    write_scores,
)

LABELS = np.repeat([0, 1], 4)  # of names_of_2020, and of a domain of names_of_2021


def pauc(labels, scores):
    return roc_auc_score(labels, scores, max_fpr=0.1)


def names_of(year, section, anonymous=False):
    if year == 2020:
        return names_of_2020(section, anonymous=anonymous)
    if year == 2021:
        return [n for names in names_of_2021(section, anonymous=anonymous).values() for n in names]
    return (
        [f"section_{section}_{i:04d}.wav" for i in range(16)]
        if anonymous
        else names_of_2022(section)
    )


def write_system(folder, year, part, seed=0):
    """Scores of every section, which rise with the label, by machine and section."""
    rng = np.random.default_rng(seed)
    written = {}
    for machine, section in sorted(machine_sections(year)[part]):
        names = names_of(year, section, anonymous=part == "eval")
        scores = rng.normal(size=len(names)) + np.tile(LABELS, len(names) // 8)
        write_scores(folder, machine, section, names, scores)
        written[machine, section] = scores
    return written


# ---------------------------------------------------------------------------------- file names


@pytest.mark.parametrize(
    ("domain", "year", "name"),
    [
        ("all", 2020, "anomaly_score_fan_id_03.csv"),
        ("source", 2021, "anomaly_score_fan_section_03_source_test.csv"),
        (None, None, "anomaly_score_fan_section_03_test.csv"),
    ],
)
def test_names_of_files_lead_back_to_their_machine(domain, year, name):
    assert score_file_name("fan", "03", domain=domain) == name
    assert parse_file_name(name) == ("anomaly_score", "fan", "03", year)


def test_the_two_files_of_a_section_of_2021_are_read_as_one(tmp_path):
    names = names_of(2021, "03", anonymous=True)
    first = write_scores(tmp_path, "fan", "03", names, np.arange(16.0))
    write_decisions(tmp_path, "fan", "03", names, np.arange(16) % 2)
    assert first.name == "anomaly_score_fan_section_03_source_test.csv"
    assert len(list(tmp_path.iterdir())) == 4
    scores, decisions = read_score_files(tmp_path)
    assert [f"{name}.wav" for name in scores.names] == names
    assert (scores.year, scores.path, scores.values.tolist()) == (2021, first, list(range(16)))
    assert decisions.kind == DECISIONS
    # one file of both domains beside them is too many
    first.with_name(score_file_name("fan", "03")).write_text(first.read_text())
    with pytest.raises(DataError, match=r"same machine and section as in .*_source_test\.csv"):
        read_score_files(tmp_path)


# ------------------------------------------------------------------------------ official scores


def test_2020_averages_ids_and_then_machines(tmp_path):
    written = write_system(tmp_path, 2020, "dev")
    result = evaluate_scores(tmp_path)
    expected = {}
    for (machine, section), scores in written.items():
        pair = roc_auc_score(LABELS, scores), pauc(LABELS, scores)
        expected.setdefault(machine, []).append(pair)
        found = next(m for m in result.machines if (m.machine, m.section) == (machine, section))
        assert [found.metrics[n] for n in ("auc", "pauc")] == pytest.approx(100 * np.array(pair))
        assert found.official == ("auc", "pauc")
        assert "auc_all" not in found.metrics
    means = [np.mean(pairs, axis=0) for pairs in expected.values()]
    assert result.year == 2020
    assert result.official_score == pytest.approx(100 * np.mean(means))
    assert result.arithmetic_mean["pauc"] == pytest.approx(100 * np.mean(means, axis=0)[1])
    # six machines: Student's t interval of the mean of their means
    scores = 100 * np.mean(means, axis=1)
    reach = 2.570581835636314 * np.std(scores, ddof=1) / np.sqrt(6)
    assert result.interval == pytest.approx((scores.mean() - reach, scores.mean() + reach))


def test_2021_takes_each_domain_by_itself(tmp_path):
    written = write_system(tmp_path, 2021, "dev")
    result = evaluate_scores(tmp_path, year=2021)
    values = []
    for each in result.machines:
        scores = written[each.machine, each.section].reshape(2, 8)
        literal = [roc_auc_score(LABELS, one) for one in scores]
        literal += [pauc(LABELS, one) for one in scores]
        names = ("auc_source", "auc_target", "pauc_source", "pauc_target")
        assert each.official == names
        assert [each.metrics[name] for name in names] == pytest.approx(100 * np.array(literal))
        values += literal
    assert len(values) == 7 * 3 * 4
    assert result.year == 2021
    assert result.official_score == pytest.approx(100 * hmean(values))


def test_the_nearest_folder_with_a_year_says_it(tmp_path):
    """Names of development clips are the same in 2021 and 2022, and the metrics are not."""
    folder = tmp_path / "dcase2022" / "DCASE2021T2-dev" / "scores"
    write_system(folder, 2021, "dev")
    by_folder, given = evaluate_scores(folder), evaluate_scores(folder, year=2021)
    assert (by_folder.year, by_folder.official_score) == (2021, given.official_score)
    other = evaluate_scores(folder, year=2022, partial=True)
    assert other.official_score != given.official_score


def test_files_of_each_domain_say_the_year(tmp_path):
    write_system(tmp_path / "a", 2021, "dev")
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "a").iterdir():
        lines = path.read_text().splitlines(keepends=True)
        for domain, rows in (("source", lines[:8]), ("target", lines[8:])):
            name = path.name.replace("_test.csv", f"_{domain}_test.csv")
            (tmp_path / "b" / name).write_text("".join(rows))
    a, b = evaluate_scores(tmp_path / "a", year=2021), evaluate_scores(tmp_path / "b")
    assert (b.year, b.official_score) == (2021, a.official_score)


def test_2022_sets_a_domains_normals_against_all_anomalies_of_the_section(tmp_path):
    written = write_system(tmp_path, 2022, "dev")
    result = evaluate_scores(tmp_path, year=2022)
    labels, domains = np.tile(LABELS, 2), np.repeat(["source", "target"], 8)
    values = []
    for each in result.machines:
        scores = written[each.machine, each.section]
        literal = []
        for domain in ("source", "target"):
            used = (labels == 1) | (domains == domain)
            literal.append(roc_auc_score(labels[used], scores[used]))
        literal.append(pauc(labels, scores))
        assert [each.metrics[n] for n in each.official] == pytest.approx(100 * np.array(literal))
        # as in the example of the evaluator's README: equally many normals in both domains
        both = np.mean(literal[:2])
        assert each.metrics["auc_all"] == pytest.approx(100 * both)
        values += literal
    assert len(values) == 7 * 3 * 3
    assert result.official_score == pytest.approx(100 * hmean(values))


TRUTHS = {
    2020: lambda folder: make_list_of_2020(folder / "eval_data_list.csv"),
    2021: lambda folder: make_truth_of_2021(folder / "dcase2021_task2_evaluator"),
    2022: lambda folder: make_truth_of_2022(folder / "dcase2022_evaluator"),
}


@pytest.mark.parametrize("year", TRUTHS)
def test_evaluation_sets_need_the_truth(tmp_path, year):
    written = write_system(tmp_path / "system", year, "eval")
    with pytest.raises(DataError, match="contain no label and domain"):
        evaluate_scores(tmp_path / "system")
    result = evaluate_scores(tmp_path / "system", TRUTHS[year](tmp_path / "truth"))
    assert result.year == year
    assert [(m.machine, m.section) for m in result.machines] == sorted(
        machine_sections(year)["eval"]
    )
    if year != 2022:
        first = result.machines[0]
        scores = written[first.machine, first.section][:8]
        name = "auc" if year == 2020 else "auc_source"
        assert first.metrics[name] == pytest.approx(100 * roc_auc_score(LABELS, scores))


def test_a_missing_id_is_an_error_or_makes_the_result_partial(tmp_path):
    write_system(tmp_path, 2020, "dev")
    (tmp_path / "anomaly_score_ToyCar_id_04.csv").unlink()
    with pytest.raises(DataError, match="no score file for 1 section of 23: ToyCar 04"):
        evaluate_scores(tmp_path)
    assert evaluate_scores(tmp_path, partial=True).missing == ("ToyCar 04",)


def test_a_file_of_one_domain_of_2021_is_not_enough(tmp_path):
    write_system(tmp_path / "system", 2021, "eval")
    (tmp_path / "system/anomaly_score_fan_section_04_target_test.csv").unlink()
    truth = make_truth_of_2021(tmp_path / "evaluator")
    with pytest.raises(DataError, match=r"section_04_source_test\.csv: 8 clips without a row: sec"):
        evaluate_scores(tmp_path / "system", truth)


def test_clips_of_2021_in_files_of_another_form_are_measured_as_of_2021(tmp_path):
    write_system(tmp_path / "a", 2021, "eval")
    (tmp_path / "b").mkdir()
    for file in read_score_files(tmp_path / "a"):
        rows = zip(file.names, file.values.tolist(), strict=True)
        path = tmp_path / "b" / score_file_name(file.machine, file.section)
        path.write_text("".join(f"{name}.wav,{value!r}\n" for name, value in rows))
    truth = make_truth_of_2021(tmp_path / "evaluator")
    a, b = (evaluate_scores(tmp_path / name, truth) for name in "ab")
    assert (b.year, b.official_score) == (2021, a.official_score)


@pytest.mark.parametrize("year", TRUTHS)
def test_systems_are_compared_over_machines_not_sections(tmp_path, year):
    for seed, system in enumerate("ab"):
        write_system(tmp_path / system, year, "dev", seed)
    ranking = rank_systems(tmp_path, year=year)
    (difference,) = ranking.differences
    scores = [each.official_score for each in ranking.evaluations]
    assert difference.delta == pytest.approx(scores[0] - scores[1])
    assert difference.n_machines == (6 if year == 2020 else 7)
    assert difference.interval[0] < difference.delta < difference.interval[1]
    assert 2 / 2**difference.n_machines <= difference.p_value <= 1


# ------------------------------------------------ numbers printed in the evaluators' documentation


def test_2020_averages_as_in_the_evaluators_example():
    ids = {"05": (0.7480452830188679, 0.6356703078450845)}
    ids["06"] = (0.8309132075471697, 0.6985104270109235)
    ids["07"] = (0.8150188679245283, 0.645759682224429)
    machines = [
        MachineEvaluation("ToyCar", section, 0, {"auc": auc, "pauc": pauc}, ("auc", "pauc"))
        for section, (auc, pauc) in ids.items()
    ]
    averages = [0.7979924528301886, 0.6599801390268123]
    assert machine_values(machines, 2020)[0] == pytest.approx(averages, rel=1e-14)


def test_2021_averages_as_in_the_evaluators_example():
    source, target = (0.6669, 0.7014, 0.5834), (0.5229, 0.5357, 0.448452380952381)
    assert harmonic_mean([source, target]) == pytest.approx(0.5634700058286667, rel=1e-14)


def test_2022_scores_as_in_the_evaluators_example():
    # of 7 machines with 3 sections: harmonic means of 42 AUC and of 21 pAUC, and the score
    auc, partial = 0.5301047626828244, 0.5280441052754629
    of_all = {"auc_source": auc, "auc_target": auc, "pauc": partial}
    assert official_score([of_all]) == pytest.approx(0.5294160921841315, rel=1e-14)
