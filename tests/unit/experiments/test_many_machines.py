"""What a study of many machines holds, says and shows."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from synthetic_machines import synthetic_machine, synthetic_table

import daco
from daco.data import lazy_table as tablerows
from daco.errors import DataError, InputError
from daco.experiments import faultfiles, inputs
from daco.experiments.inputs import machines_of, name_domains, read_table
from daco.experiments.study_tables import FiledScores
from daco.files.hashing import sha256_of_file
from daco.files.remote import parse_location

GRID = ["raw-k1", "conf-soft-m0-k1", "ratio-soft-k1"]
SIZE = {"n_source": 30, "n_target": 8, "n_test": 16, "dim": 6}


def table(role, count, **size):
    return synthetic_table(
        synthetic_machine(f"{role}{i}", [i, *role.encode()], **SIZE | size) for i in range(count)
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    for role in ("dev", "eval"):
        table(role, 3).write(folder / f"{role}.parquet")
    return daco.study(
        folder / "dev.parquet",
        folder / "eval.parquet",
        grid=GRID,
        out=folder / "run",
        workers=1,
        n_splits=3,
    )


def test_scores_of_a_run_with_a_folder_are_read_when_asked_for(run):
    scores = run.machine_scores()
    assert isinstance(scores, FiledScores)
    assert [(m.split, m.title) for m in scores] == [
        (split, f"{split}{i}") for split in ("dev", "eval") for i in range(3)
    ]
    assert [m.title for m in scores[-2:]] == ["eval1", "eval2"]
    assert scores[0].scores.shape == (16, 4)  # of the grid, and the blend
    assert [m.title for m in run.machine_scores({("dev", "dev2"), ("eval", "eval0")})] == [
        "dev2",
        "eval0",
    ]


def test_a_result_in_memory_has_its_scores(run):
    kept = daco.study(table("dev", 3), table("eval", 3), grid=GRID, workers=1, n_splits=3)
    for one, two in zip(kept.machine_scores(), run.machine_scores(), strict=True):
        np.testing.assert_array_equal(one.scores, two.scores)
    assert [m.title for m in kept.machine_scores([("eval", "eval1")])] == ["eval1"]
    assert kept.selection == run.selection


def test_a_report_of_few_machines_shows_all_of_them(run, tmp_path):
    page = run.report(tmp_path).read_text()
    summary = json.loads((tmp_path / "report.json").read_text())
    assert len(summary["distributions"]) == 6
    assert len(summary["tables"]["per_machine"]["rows"]) == 6 + 2  # and all of a set together
    assert summary["shown_machines"] == ""
    assert "Shown are" not in page


def test_a_report_of_many_machines_shows_those_of_the_lowest_score(run, tmp_path, monkeypatch):
    monkeypatch.setattr("daco.experiments.highlights.SHOWN_MACHINES", 2)
    monkeypatch.setattr("daco.experiments.figures.scatter.NAMED_MACHINES", 2)
    page = run.report(tmp_path).read_text()
    summary = json.loads((tmp_path / "report.json").read_text())
    chosen = run.selection["chosen"]["config"]
    rows = run.per_machine[run.per_machine["config"] == chosen].copy()
    rows["score"] = 3 / (1 / rows[["auc_source", "auc_target", "pauc"]]).sum(axis=1)
    lowest = set(rows.nsmallest(2, "score")["machine"])
    assert {one["machine"] for one in summary["distributions"]} == lowest
    for name in ("per_machine", "diagnostics"):
        assert {row[0] for row in summary["tables"][name]["rows"]} - {"all machines"} == lowest
    rows = summary["tables"]["per_machine"]["rows"]
    scores = {row[1]: row[5] for row in rows if row[0] == "all machines"}
    grid = run.grid.set_index("config").loc["raw-k1"]
    assert scores == pytest.approx({"dev": grid["dev_omega"], "eval": grid["eval_omega"]})
    said = f"Shown are the 2 machines of 6 that score lowest under {chosen}"
    assert said in page
    assert summary["shown_machines"].startswith(said)
    assert all(said in summary["tables"][n]["caption"] for n in ("per_machine", "diagnostics"))
    assert summary["study"]["machines"]["eval"]["all"] == ["eval0", "eval1", "eval2"]


def test_only_some_of_many_failures_are_named(monkeypatch):
    monkeypatch.setattr(inputs, "_NAMED", 2)
    few = table("dev", 5, n_source=4, n_target=2)
    with pytest.raises(DataError) as error:
        daco.study(few, grid=["ldn-ratio-K16"], workers=1)
    lines = str(error.value).splitlines()
    assert lines[0] == "No machine is left to work on."
    assert lines[1].startswith("dev machine dev0 is left out: 'ldn-ratio-K16' needs")
    assert lines[2].startswith("dev machine dev1 is left out: ")
    assert lines[3] == "3 more machines are left out."


@pytest.fixture
def faults(tmp_path):
    """Faults of all machines of a table, in a file, their rows in no order."""
    clips = table("dev", 3)
    rng = np.random.default_rng(0)
    rows = [np.flatnonzero(clips.columns["machine"] == f"dev{i}")[25:35] for i in range(3)]
    listed = [(row, kind) for mine in rows for row in mine for kind in ("", "rub", "whistle")]
    listed = [listed[at] for at in rng.permutation(len(listed))]
    vectors = np.array(
        [clips.matrix()[row] + (kind != "") * rng.normal(size=6) for row, kind in listed]
    )
    made = daco.EmbeddingTable.from_arrays(
        vectors,
        path=[clips.columns["path"][row] for row, _ in listed],
        machine=[clips.columns["machine"][row] for row, _ in listed],
        domain=[clips.columns["domain"][row] for row, _ in listed],
        fault=[kind for _, kind in listed],
    )
    made.write(tmp_path / "faults.parquet")
    clips.write(tmp_path / "dev.parquet")
    return clips, made, tmp_path


def test_faults_in_a_file_are_those_in_memory(faults, monkeypatch):
    clips, made, folder = faults
    options = {"grid": GRID, "workers": 1, "n_splits": 3}
    here = daco.study(clips, faults=made, **options)
    monkeypatch.setattr(inputs, "BUDGET", 1)
    there = daco.study(folder / "dev.parquet", faults=folder / "faults.parquet", **options)
    assert set(here.viability["basis"]) == {"injected faults"}
    assert here.viability.equals(there.viability)


def test_faults_enter_the_fingerprint_wherever_they_are(faults):
    clips, made, folder = faults
    prints = []
    for source, given in ((clips, made), (folder / "dev.parquet", folder / "faults.parquet")):
        read = read_table(source)
        names = name_domains([read])
        machines = machines_of(read, "dev", names)
        plain = [machine.fingerprint for machine in machines]
        with_them, _ = faultfiles.with_faults(machines, {"dev": read}, [given], names, None)
        prints.append([machine.fingerprint for machine in with_them])
        assert not set(prints[-1]) & set(plain)
    assert prints[0] == prints[1]


def test_faults_of_another_size_are_told_before_anything_is_scored(faults, tmp_path):
    clips, made, _ = faults
    other = daco.EmbeddingTable(made.columns, {"embedding": made.matrix()[:, :4].copy()}, {})
    with pytest.raises(InputError, match="has 4 values, and 6 in the study"):
        daco.study(clips, faults=other, grid=GRID, out=tmp_path / "run", workers=1)
    assert not list((tmp_path / "run" / "machines").iterdir())


def test_faults_of_all_machines_are_checked_in_one_reading(faults, monkeypatch):
    clips, _, folder = faults
    read = []
    rows = tablerows.StoredTable.rows
    monkeypatch.setattr(
        tablerows.StoredTable, "rows", lambda *given: read.append(1) or rows(*given)
    )
    names = name_domains([clips])
    machines = machines_of(clips, "dev", names)
    given = [folder / "faults.parquet"]
    with_them, _ = faultfiles.with_faults(machines, {"dev": clips}, given, names, None)
    assert len(with_them) == 3
    assert len(read) == 1


@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_a_table_that_changes_during_a_study_is_noticed(tmp_path, how):
    path, out = tmp_path / "dev.parquet", tmp_path / "run"
    table("dev", 3).write(path)
    table("dev", 2).write(tmp_path / "other.parquet")

    def change(stage, done, total):
        if (stage, done) == ("examining", 1):
            path.unlink()
            if how == "replaced":
                (tmp_path / "other.parquet").rename(path)

    said = "changed while it was read" if how == "replaced" else "cannot be read"
    with pytest.raises(DataError, match=rf"dev\.parquet: {said}"):
        daco.study(path, grid=GRID, n_splits=3, workers=1, out=out, progress=change)
    assert not (out / "run.json").exists()


def test_a_remote_table_has_the_hash_of_its_content(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    content = np.random.default_rng(0).bytes(9_000_000)  # more than is fetched at once
    (tmp_path / "a").write_bytes(content)
    fsspec.filesystem("memory").pipe("/hashed/a", content)
    there = parse_location("memory://hashed/a")
    assert (
        sha256_of_file(there)
        == sha256_of_file(tmp_path / "a")
        == hashlib.sha256(content).hexdigest()
    )
