"""``daco fit`` and ``daco select`` for many machines: side by side, to the same bytes."""

from __future__ import annotations

import contextlib
import json
import os
import signal

import numpy as np
import pytest
from command_line import refused, run, signalled
from service_process import wait_until

from daco.compute import run as run_each
from daco.data.table import EmbeddingTable
from daco.detector.model import MachineModel
from daco.errors import DataError, NotEnoughClipsError
from daco.experiments.select import select_label_free

MACHINES = 24


def fleet(path, machines=MACHINES, *, poor=()):
    """Embeddings of normals: 40 of one domain and 8 of another; 1 clip of `poor` machines."""
    rng = np.random.default_rng(0)
    X, machine, domain = [], [], []
    for index in range(machines):
        sizes = {"old": 1, "new": 0} if index in poor else {"old": 40, "new": 8}
        for name, size in sizes.items():
            X.append(rng.normal(size=(size, 12)) + 1 + (name == "new"))
            machine += [f"machine {index:02}"] * size
            domain += [name] * size
    table = EmbeddingTable.from_arrays(np.vstack(X), machine=machine, domain=domain)
    table.write(path)
    return path


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_models_of_several_processes_have_the_bytes_of_one_and_are_of_their_machines(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    path = fleet(tmp_path / "e.parquet")
    printed = [
        run("fit", path, "--out", tmp_path / f"by{n}", "--workers", n).stdout for n in (1, 2)
    ]
    assert len(bytes_of(tmp_path / "by1")) == MACHINES
    assert bytes_of(tmp_path / "by1") == bytes_of(tmp_path / "by2")
    assert printed[0].replace("by1", "by2") == printed[1]
    table = EmbeddingTable.read(path)
    rows = table.columns["machine"] == "machine 07"
    X, domains = table.matrix()[rows], table.columns["domain"][rows]
    expected = MachineModel.fit(X, domains, machine="machine 07")
    found = MachineModel.load(tmp_path / "by1" / "machine-07.daco")
    assert (found.config, found.reason) == (expected.config, expected.reason)
    np.testing.assert_array_equal(found.reference_scores, expected.reference_scores)
    np.testing.assert_array_equal(found.embeddings, expected.embeddings)
    assert found.provenance["created"] == "2023-11-14T22:13:20Z"


def test_many_machines_take_a_line_each(tmp_path):
    text = run(
        *("fit", fleet(tmp_path / "e.parquet"), "--out", tmp_path / "models"),
        *("--workers", 1, "--false-alarm-rate", 0.05),
    ).stdout
    lines = text.replace(str(tmp_path), "").splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert sum(line.startswith("machine ") for line in lines) == 1 + MACHINES  # and the heading
    assert [line[:10] for line in lines[2:5]] == ["machine 00", "machine 01", "machine 02"]
    words = " ".join(text.split())
    assert f"{MACHINES} models, " in words
    assert f"warning: {MACHINES} machines: A false-alarm rate of 0.05 is below" in words
    few = [fleet(tmp_path / "f.parquet", 2), "--out", tmp_path / "few"]
    assert run("fit", *few).stdout.count("false alarms on new ones") == 2
    assert "2 models were replaced." in run("fit", *few).stdout
    assert len(list((tmp_path / "few").glob("*.daco.previous"))) == 2


def test_a_machine_that_cannot_be_fitted_is_named_and_the_others_are_kept(tmp_path):
    machines, poor = 4, {1, 2}
    table = fleet(tmp_path / "e.parquet", machines, poor=poor)
    error = refused("fit", table, "--out", tmp_path / "models", "--workers", 1)
    assert isinstance(error, NotEnoughClipsError)
    head, *named, tail = str(error).splitlines()
    assert head == f"{len(poor)} of {machines} machines could not be fitted."
    assert [line[:11] for line in named] == [f"machine {index:02}:" for index in sorted(poor)]
    assert tail == "The models of the others were written."
    assert len(bytes_of(tmp_path / "models")) == machines - len(poor)


def test_a_process_that_is_killed_ends_the_others_with_a_sentence():
    message = r"A worker process was killed, .* again with fewer --workers"
    for _ in range(2):  # also where it is known already
        with pytest.raises(DataError, match=message):
            list(run_each(os._exit, [(0, (9,)), (1, (9,))], jobs=2))


def test_an_interruption_leaves_whole_models_and_no_process(tmp_path):
    """Ctrl-C reaches the workers, too; they say nothing of it."""
    table = fleet(tmp_path / "e.parquet", 60)
    folder = tmp_path / "models"
    command = ("fit", table, "--out", folder, "--workers", "2")
    with signalled(signal.SIGINT, ".daco", 4, *command) as daco:
        stdout, stderr = daco.communicate()
    assert daco.returncode == 130
    assert (stdout, stderr) == ("", "Interrupted. 3 of 60 models were written.\n")
    models = list(folder.iterdir())
    assert len(models) == 3
    for model in models:
        MachineModel.load(model)

    def has_ended():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daco.pid, 0)
            return False
        return True

    wait_until(has_ended)


# --- a choice ---


def test_the_choice_of_several_processes_is_that_of_one(tmp_path):
    table, grid = fleet(tmp_path / "e.parquet"), "conf-soft-m0-k1,raw-k1"
    options = ("select", table, "--grid", grid, "--splits", 2, "--workers")
    one, two = (run(*options, workers, "--json").stdout for workers in (1, 2))
    assert one == two
    assert len(json.loads(one)["machines"]) == MACHINES
    text = " ".join(run(*options, 1).stdout.split())
    assert "machine clips use criterion floor" in text
    assert all(f" machine {number:02} 40+8 " in text for number in range(MACHINES))
    assert f" for {MACHINES} machines. --json has the reasons." in text


def test_machines_that_cannot_be_judged_are_left_out_and_named():
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    table = EmbeddingTable.from_arrays(
        X, machine=np.repeat(["a", "b", "c"], 20), domain=["old", "new"] * 30
    )
    X[[5, 45]] = np.nan  # which no table on disk may have
    selection = select_label_free(table, ["raw-k1"])
    assert [choice.machine for choice in selection.machines] == ["b"]
    named = [line for line in selection.notes if "is left out: " in line]
    assert [line[0] for line in named] == ["a", "c"]
    X[25] = np.nan
    with pytest.raises(DataError, match="No machine is left"):
        select_label_free(table, ["raw-k1"])
