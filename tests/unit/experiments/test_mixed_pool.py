"""Studies with detectors of other libraries and with scores of other systems in the grid."""

from __future__ import annotations

import csv
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.ensemble import IsolationForest
from synthetic_machines import small_table

import daco
from daco.errors import ConfigError, DataError, InputError
from daco.experiments import grids
from daco.experiments.grids import mixed_grid, read_grid
from daco.method.criterion import held_out_halves

GRID = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1"]
SPLITS = 3
TREES = IsolationForest(n_estimators=5, random_state=0)
study = partial(daco.study, n_splits=SPLITS, workers=1)


def machine_bank(table, name):
    """A machine's bank, its test vectors, and the rows of both."""
    mine = table.columns["machine"] == name
    train, test = (
        np.flatnonzero(mine & (table.columns["split"] == each)) for each in ("train", "test")
    )
    bank = daco.NormalBank(table.matrix()[train], table.columns["domain"][train])
    return bank, table.matrix()[test], train, test


def write_scores(path, tables, score, drop=()):
    """A score table of what ``score(bank, X_test)`` returns, in an order of its own."""
    rows = []
    for table in tables:
        for name in dict.fromkeys(table.columns["machine"]):
            bank, X_test, train, test = machine_bank(table, name)
            for at, split, values in zip(
                (train, test), ("train", "test"), score(bank, X_test), strict=True
            ):
                clips = zip(
                    table.columns["path"][at], table.columns["domain"][at], values, strict=True
                )
                rows += [(clip, name, domain, split, value) for clip, domain, value in clips]
    kept = [row for row in rows[::-1] if row[0] not in drop]
    with path.open("w", newline="") as opened:
        csv.writer(opened).writerows([("path", "machine", "domain", "split", "score"), *kept])
    return path


def nearest(bank, X_test):
    """What raw-k1 says."""
    return bank.leave_one_out("raw-k1")[:, 0], bank.score(X_test, "raw-k1")[:, 0]


@pytest.fixture(scope="module")
def tables():
    return small_table("fan", "pump"), small_table("valve", "saw")


@pytest.fixture(scope="module")
def with_table(tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("systems")
    path = write_scores(folder / "mine.csv", tables, nearest)
    grid = [*GRID, "blend+mine"]
    return study(*tables, grid=grid, systems={"mine": path}, out=folder / "run")


def test_a_system_is_a_base_score_with_its_calibrations(with_table):
    names = with_table.grid["config"].tolist()
    assert names[:4] == [*GRID, "blend+mine"]
    assert names[4:6] == ["ext-mine", "conf-soft-m0-ext-mine"]
    assert names[-1] == "zscore-soft-ext-mine"
    assert len(names) == 11
    assert with_table.grid.notna().all().all()
    assert with_table.provenance["systems"][0]["system"] == "mine"


def test_the_scores_of_a_built_in_configuration_score_as_that_configuration(with_table):
    """Below the smallest normal, distances end at 0 and scores of other systems nowhere."""
    for machine in with_table.machine_scores():
        domains, own = machine.own_domains, machine.own_of("raw-k1")
        least = max(own[domains == each].min() for each in ("source", "target"))
        above = machine.of("raw-k1") >= least
        assert above.sum() > 20
        np.testing.assert_array_equal(machine.of("ext-mine"), machine.of("raw-k1"))
        np.testing.assert_allclose(
            machine.of("conf-soft-m0-ext-mine")[above],
            machine.of("conf-soft-m0-k1")[above],
            rtol=1e-9,
        )
    scores = with_table.grid.set_index("config")
    assert scores["eval_omega"]["ext-mine"] == scores["eval_omega"]["raw-k1"]


def test_the_criterion_of_a_table_compares_its_held_out_scores(tables, with_table):
    for name in ("fan", "pump"):
        bank, X_test, train, _ = machine_bank(tables[0], name)
        own = nearest(bank, X_test)[0]
        domains = tables[0].columns["domain"][train]
        sizes = [int((domains == each).sum()) for each in ("source", "target")]
        grouped = np.concatenate([own[domains == each] for each in ("source", "target")])
        ends = np.cumsum([0, *sizes])
        expected = np.mean(
            [
                ks_2samp(*(grouped[a:b][held[a:b]] for a, b in pairwise(ends))).statistic
                for held in held_out_halves(sizes, SPLITS, 0)
            ]
        )
        row = with_table.per_machine.query("machine == @name and config == 'ext-mine'")
        assert row["balance_ks"].item() == pytest.approx(expected, rel=1e-12)


def test_the_label_free_veto_does_not_judge_tables_and_says_so(with_table, tmp_path):
    judged = {row["config"] for row in with_table.selection["label_free_veto"]["configs"]}
    assert judged == set(GRID)  # and not the blend that needs the table
    assert any("does not judge tables of scores" in line for line in with_table.missing)
    assert daco.StudyResult.read(with_table.folder).report(tmp_path).is_file()


def test_a_table_that_knows_more_is_chosen(tables, tmp_path):
    """It has the criterion of equal domains and detects all anomalies."""
    rng = np.random.default_rng(0)

    def better(bank, X_test):
        label = np.tile(np.repeat([0, 1], len(X_test) // 4), 2)
        return rng.normal(size=len(bank)), rng.normal(size=len(X_test)) + 6 * label

    path = write_scores(tmp_path / "mine.csv", tables, better)
    grid = ["raw-k1", "ldn-ratio-K1"]  # without the default, which stays within the noise
    for veto in ("dev", "both"):
        result = study(*tables, grid=[*grid, "blend+mine"], systems={"mine": path}, veto=veto)
        assert "mine" in result.selection["chosen"]["config"]
        assert result.selection["chosen"]["eval_omega"] > 90
    plain = study(*tables, grid=grid)
    blends = [
        next(row["eval_omega"] for row in each.selection["rows"] if row["rule"] == "blend")
        for each in (result, plain)
    ]
    assert blends[0] == blends[1]  # a system enters a blend by name only
    named = result.grid.set_index("config")["eval_omega"]
    assert named["blend+mine"] > blends[0] + 5


def test_other_scores_are_other_results(tables, with_table, tmp_path):
    """In the folder of the run nothing but the system's file is new."""
    calls = []
    path = tmp_path / "mine.csv"
    for score in (nearest, lambda *given: [2 * each for each in nearest(*given)]):
        write_scores(path, tables, score)
        options = {"systems": {"mine": path}, "out": with_table.folder}
        grid = [*GRID, "blend+mine"]
        study(*tables, grid=grid, **options, progress=lambda *call: calls.append(call))
    assert calls[:3] == [("scoring", 4, 4), ("examining", 4, 4), ("deciding", 4, 4)]
    assert calls[3] == ("scoring", 0, 4)


def test_clips_without_a_score_are_named(tables, tmp_path):
    drop = {"pump/00003.wav", "pump/00005.wav"}
    path = write_scores(tmp_path / "mine.csv", tables, nearest, drop)
    with pytest.raises(InputError, match=r"dev machine pump.* 2 clips: pump/00003\.wav"):
        study(*tables, grid=GRID, systems={"mine": path})
    write_scores(path, [tables[0], small_table("valve")], nearest)
    with pytest.raises(DataError, match="saw lacks scores"):
        study(*tables, grid=GRID, systems={"mine": path})


def test_a_detector_takes_part_in_criterion_choice_and_veto(tables, tmp_path):
    dev = tables[0]
    grid = [*GRID, {"trees": TREES}, "blend+trees"]
    result = study(dev, grid=grid, out=tmp_path / "run")
    for machine in result.machine_scores():
        bank, X_test, _, _ = machine_bank(dev, machine.machine)
        given = daco.NormalBank(
            dev.matrix()[machine_bank(dev, machine.machine)[2]],
            machine.own_domains,
            scorers={"trees": TREES},
        )
        names = ["conf-soft-m0-ext-trees", "blend+trees"]
        expected = given.score(X_test, names)
        found = np.column_stack([machine.of(name) for name in names])
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        criterion = given.balance(["ext-trees"], SPLITS, 0)
        row = result.per_machine.query("machine == @machine.title and config == 'ext-trees'")
        assert row["balance_ks"].item() == pytest.approx(criterion.item(), rel=1e-12)
        np.testing.assert_allclose(machine.of("blend"), bank.score(X_test, "blend")[:, 0])
    judged = {row["config"] for row in result.selection["label_free_veto"]["configs"]}
    assert "conf-soft-m0-ext-trees" in judged
    assert "IsolationForest(n_estimators=5" in result.provenance["scorers"]["trees"]
    assert result.report().is_file()


def test_another_parameter_of_a_detector_is_another_result(tables, tmp_path):
    calls = []
    options = {"out": tmp_path / "run", "progress": lambda *call: calls.append(call)}
    for n_estimators in (4, 4, 6):
        trees = IsolationForest(n_estimators=n_estimators)
        study(tables[0], grid=["raw-k1", trees], **options)
    firsts = [call for call in calls if call[0] == "scoring"]
    assert firsts[0] == ("scoring", 0, 2)
    assert firsts[3] == ("scoring", 2, 2)
    assert firsts[4] == ("scoring", 0, 2)


def test_installed_scorers_are_found_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(grids, "installed_scorer", lambda label: {"trees": TREES}[label])
    configs, detectors = mixed_grid(read_named(tmp_path, "raw-k1", "conf-soft-m0-ext-trees"))
    assert [config.name for config in configs] == ["raw-k1", "conf-soft-m0-ext-trees"]
    assert detectors == {"trees": TREES}
    assert mixed_grid("raw-k1,ext-trees")[1] == {"trees": TREES}


def test_a_grid_of_the_paper_has_its_size_as_a_name():
    assert [len(mixed_grid(size)[0]) for size in (9, "9", 45, 51)] == [9, 9, 45, 51]


def read_named(folder, *names):
    path = folder / "grid.txt"
    path.write_text("\n".join(names))
    return path


def test_names_with_commas_between_them_are_a_grid():
    assert [config.name for config in read_grid("raw-k1,blend")] == ["raw-k1", "blend"]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"grid": ["ext-nobody"]}, ConfigError, "no scorer 'nobody'"),
        ({"grid": [{"mine": np.zeros(48)}]}, InputError, "as files, systems="),
        ({"systems": {"no name": "x.csv"}}, ConfigError, "name of a system"),
        ({"systems": {"mine": "nowhere.csv"}}, Exception, "nowhere"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_computed(tables, options, kind, message):
    with pytest.raises(kind, match=message):
        study(tables[0], **{"grid": GRID, **options})
