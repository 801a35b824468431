"""Score files of DCASE 2020, 2021 and 2022, evaluated as the challenge of each year did."""

from __future__ import annotations

import numpy as np
import pytest
from early_years import make_truth_of_2021, names_of_2020, names_of_2021, names_of_2022
from scipy.stats import hmean
from sklearn.metrics import roc_auc_score

from daco.data.dcase import machine_sections
from daco.evaluation.evaluate import EvaluationError, evaluate_scores
from daco.evaluation.scorefiles import write_scores

LABELS = np.repeat([0, 1], 4)  # of names_of_2020, and of a domain of names_of_2021


def report_of(*arguments):
    with pytest.raises(EvaluationError) as error:
        evaluate_scores(*arguments)
    return str(error.value)


def names_of(year, section, hidden=False):
    if year == 2020:
        return names_of_2020(section)
    if year == 2021:
        return [n for names in names_of_2021(section, anonymous=hidden).values() for n in names]
    return names_of_2022(section)


def write_system(folder, year, part, seed=0):
    """Scores of every section, which rise with the label, by machine and section."""
    rng = np.random.default_rng(seed)
    written = {}
    for machine, section in sorted(machine_sections(year)[part]):
        names = names_of(year, section, hidden=part == "eval")
        written[machine, section] = rng.normal(size=len(names)) + np.tile(LABELS, len(names) // 8)
        write_scores(folder, machine, section, names, written[machine, section])
    return written


def literal_metrics(year, scores):
    """The definition of the year, word for word."""

    def both(labels, values):
        return [roc_auc_score(labels, values), roc_auc_score(labels, values, max_fpr=0.1)]

    if year == 2020:
        return both(LABELS, scores)
    parts = scores.reshape(2, 8)
    if year == 2021:
        return np.transpose([both(LABELS, part) for part in parts]).ravel().tolist()
    labels, domains = np.tile(LABELS, 2), np.repeat([0, 1], 8)
    used = [(labels == 1) | (domains == domain) for domain in (0, 1)]
    aucs = [roc_auc_score(labels[each], scores[each]) for each in used]
    return [*aucs, both(labels, scores)[1]]


@pytest.mark.parametrize("year", [2020, 2021, 2022])
def test_the_metrics_and_the_score_of_an_early_year(tmp_path, year):
    written = write_system(tmp_path, year, "dev")
    result = evaluate_scores(tmp_path, year=year)
    literal = {key: literal_metrics(year, scores) for key, scores in written.items()}
    for row in result.machines.to_dict("records"):
        wanted = 100 * np.array(literal[row["machine"], row["section"]])
        assert [row[name] for name in result.official] == pytest.approx(wanted)
    names = {machine for machine, _ in literal}
    of_machines = [[v for (m, _), v in literal.items() if m == name] for name in names]
    arithmetic = np.mean([np.mean(values) for values in of_machines])
    expected = arithmetic if year == 2020 else hmean(list(literal.values()), axis=None)
    assert result.official_score == pytest.approx(100 * expected)
    assert result.systems["n_machines"][0] == len(names)


def test_the_nearest_folder_with_a_year_says_it(tmp_path):
    """Names of development clips are the same in 2021 and 2022, and the metrics are not."""
    folder = tmp_path / "dcase2022" / "DCASE2021T2-dev" / "scores"
    write_system(folder, 2021, "dev")
    by_folder, given = evaluate_scores(folder), evaluate_scores(folder, year=2021)
    assert (by_folder.year, by_folder.official_score) == (2021, given.official_score)
    assert evaluate_scores(folder, year=2022, partial=True).official_score != given.official_score


def test_a_missing_section_and_a_missing_domain_are_named(tmp_path):
    write_system(tmp_path / "a", 2020, "dev")
    (tmp_path / "a/anomaly_score_ToyCar_id_04.csv").unlink()
    assert "no valid score file for 1 section of 23: ToyCar 04" in report_of(tmp_path / "a")
    write_system(tmp_path / "b", 2021, "eval")
    (tmp_path / "b/anomaly_score_fan_section_04_target_test.csv").unlink()
    text = report_of(tmp_path / "b", make_truth_of_2021(tmp_path / "truth"))
    assert "section_04_source_test.csv: 8 clips without a row: sec" in text
