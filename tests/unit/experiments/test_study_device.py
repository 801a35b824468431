"""A study with a device gives the tables of one without.

``cpu:0`` is torch's name of the CPU: everything is computed as on a GPU.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
from same_products import same_products
from synthetic_machines import synthetic_machine, synthetic_table
from tolerances import of_distances

import daco
from daco.errors import InputError, MissingExtraError
from daco.experiments import device as device_room
from daco.experiments import inputs
from daco.experiments import machine as machine_room
from daco.experiments.inputs import machines_of, name_domains, read_table
from daco.experiments.labelfree import select_label_free

torch = pytest.importorskip("torch")

DEVICE = "cpu:0"
SHAPES = [(40, 8, 40), (30, 10, 24), (40, 8, 40), (55, 5, 12)]
MIXED = ["raw-k1", "varmin-K4", "conf-soft-m0-k1", "conf-soft-m0-varmin-K4", "ldn-ratio-K1"]
TABLES = ("grid", "per_machine", "balances", "stability", "baselines", "viability", "coverage")


def table(role, shapes=SHAPES):
    machines = [
        synthetic_machine(f"{role}{i}", [i, *role.encode()], *shape, dim=16)
        for i, shape in enumerate(shapes)
    ]
    return synthetic_table(machines)


# Float32 distances of another library, divided by spreads of a hundredth and more. A count that
# differs by one, in an AUC or a KS distance, moves it by more.
TOLERANCE = 100 * of_distances(16)


def assert_alike(one, two):
    close = {"rtol": TOLERANCE, "atol": TOLERANCE}
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(one, name), getattr(two, name), **close)
    assert one.selection == two.selection
    for first, second in zip(one.machine_scores(), two.machine_scores(), strict=True):
        np.testing.assert_allclose(first.scores, second.scores, **close)
        np.testing.assert_allclose(first.own, second.own, **close)


@pytest.fixture
def nothing_here(monkeypatch):
    """A bank that is made in this process would fail."""
    monkeypatch.setattr(machine_room, "NormalBank", None)


@pytest.mark.parametrize("grid", ["51", MIXED, ["varmin-K4", "raw-k1"], ["varmin-K4"]])
def test_a_device_gives_the_tables_of_the_cpu_engine(grid):
    options = {"grid": grid, "workers": 1, "n_splits": 2}
    here = daco.study(table("dev"), table("eval"), **options)
    with same_products():  # a near tie of two clips is decided by the last bit of a product
        there = daco.study(table("dev"), table("eval"), device=DEVICE, **options)
    assert_alike(here, there)
    assert here.provenance["device"] == {"name": "cpu"}
    quantity = there.cost.set_index("quantity")["value"]
    assert quantity["one machine, all configurations"] > 0
    known = there.provenance["device"]
    assert (known["name"], known["torch"]) == (DEVICE, torch.__version__)
    assert known["configurations"] == there.grid["config"].nunique()


def test_processes_finish_what_the_device_began():
    options = {"grid": "9", "n_splits": 3}
    alone = daco.study(table("dev"), device=DEVICE, workers=1, **options)
    assert_alike(alone, daco.study(table("dev"), device=DEVICE, workers=2, **options))


def test_scores_and_criteria_do_not_come_from_a_bank(nothing_here):
    full = table("dev")
    machines = machines_of(full, "dev", name_domains([full]))
    settings = machine_room.Settings(("raw-k1", "conf-soft-m0-k1"), n_splits=3)
    prepare = device_room.on_device(device_room.scores_of_machines, DEVICE)
    for _, arguments in prepare(enumerate(machines), settings):
        assert arguments[0].X.size == 0  # they need not travel
        assert machine_room.score_machine(*arguments)["own"].shape[1] == 2


def test_machines_pass_through_the_device_in_groups(monkeypatch):
    whole = daco.study(table("dev"), grid="9", workers=1, device=DEVICE, n_splits=3)
    sizes = []
    share = device_room.scores_of_machines
    monkeypatch.setattr(device_room, "GROUP", 2 * 88 * (16 * 4 + 9 * 8))
    monkeypatch.setattr(
        "daco.experiments.run.scores_of_machines",
        lambda machines, *rest: sizes.append(len(machines)) or share(machines, *rest),
    )
    parts = daco.study(table("dev"), grid="9", workers=1, device=DEVICE, n_splits=3)
    assert sizes == [3, 1]
    assert_alike(whole, parts)


def test_what_is_filed_is_not_computed_again_on_whichever_device(tmp_path, nothing_here):
    options = {"grid": ["raw-k1", "conf-soft-m0-k1"], "out": tmp_path / "run", "workers": 1}
    with pytest.raises(TypeError):  # the examination has a bank; scores are filed by then
        daco.study(table("dev"), device=DEVICE, **options)
    assert len(list((tmp_path / "run" / "machines").glob("*.npz"))) == 4
    (tmp_path / "run" / "machines" / "dev_dev1_section_00.npz").unlink()
    calls = []
    with pytest.raises(TypeError):
        daco.study(
            table("dev"), device=DEVICE, progress=lambda *call: calls.append(call), **options
        )
    assert calls[:2] == [("scoring", 3, 4), ("scoring", 4, 4)]


def test_a_machine_without_test_clips_is_scored_beside_the_others():
    full = table("dev")
    machine, split = full.columns["machine"], full.columns["split"]
    keep = ~((machine == "dev1") & (split == "test"))
    columns = {name: values[keep] for name, values in full.columns.items()}
    cut = daco.EmbeddingTable(columns, {"embedding": full.matrix()[keep]}, {})
    options = {"grid": MIXED, "workers": 1, "n_splits": 3}
    assert_alike(daco.study(cut, **options), daco.study(cut, device=DEVICE, **options))


def test_a_machine_of_too_few_clips_is_named_as_by_the_cpu_engine():
    full = table("dev", [(40, 8, 40), (12, 4, 8)])
    told = []
    for device in ("cpu", DEVICE):
        result = daco.study(full, grid="51", workers=1, n_splits=3, device=device)
        told.append([line for line in result.missing if "left out" in line])
    assert told[0][0].startswith("dev machine dev1 is left out: ")
    assert told[0] == told[1]


def test_what_the_device_has_no_memory_for_the_cpu_engine_computes(monkeypatch):
    def refuse(*given):
        raise InputError("cuda ran out of memory")

    here = daco.study(table("dev"), grid="9", workers=1, n_splits=3)
    monkeypatch.setattr("daco.method.machines._chunk_size", refuse)
    assert_alike(here, daco.study(table("dev"), grid="9", workers=1, n_splits=3, device=DEVICE))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this computer has a GPU")
def test_a_device_that_is_not_there_is_told_before_anything_is_read(tmp_path):
    for ask in (
        lambda: daco.study("absent.parquet", out=tmp_path / "run", device="cuda"),
        lambda: select_label_free(table("dev"), device="cuda"),
    ):
        with pytest.raises(InputError, match="The device 'cuda' cannot be used") as error:
            ask()
        assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_device_without_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"daco-asd\[torch\]"):
        daco.study("absent.parquet", device="cuda")


def test_a_device_and_a_cluster_are_refused_together():
    with pytest.raises(InputError, match="is for the engine local"):
        daco.study("absent.parquet", device=DEVICE, engine="ray")
    with pytest.raises(InputError, match="is for the engine local"):
        select_label_free(table("dev"), device=DEVICE, engine="ray")


@pytest.mark.parametrize("candidates", [None, MIXED])
def test_a_choice_without_labels_is_the_same_on_a_device(candidates):
    full = table("dev", [*SHAPES, (12, 4, 8)])  # the last has too few clips for some
    columns = dict(full.columns)
    columns["domain"] = np.where(columns["machine"] == "dev2", "one", columns["domain"])
    full = daco.EmbeddingTable(columns, full.matrices, {})
    found = [select_label_free(full, candidates, device=device) for device in ("cpu", DEVICE)]
    assert json.dumps(found[0].to_dict()) == json.dumps(found[1].to_dict())


# Tables whose vectors stay in their files


@pytest.fixture
def shuffled(tmp_path):
    """Machines of two roles, their clips in no order, in a file; and the same in memory."""
    found = {}
    for role in ("dev", "eval"):
        full = table(role)
        order = np.random.default_rng(3).permutation(len(full))
        columns = {name: values[order] for name, values in full.columns.items()}
        found[role] = daco.EmbeddingTable(columns, {"embedding": full.matrix()[order]}, {})
        found[role].write(tmp_path / f"{role}.parquet")
    return tmp_path, found


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("budget", [1, inputs.BUDGET])
def test_a_file_gives_the_bits_of_the_table_in_memory(shuffled, monkeypatch, device, budget):
    folder, full = shuffled
    monkeypatch.setattr(inputs, "BUDGET", budget)
    options = {"grid": MIXED, "workers": 1, "n_splits": 3, "device": device}
    here = daco.study(full["dev"], full["eval"], **options)
    stored = daco.study(
        folder / "dev.parquet", folder / "eval.parquet", out=folder / "run", **options
    )
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(here, name), getattr(stored, name))
    assert here.selection == stored.selection
    for one, two in zip(here.machine_scores(), stored.machine_scores(), strict=True):
        np.testing.assert_array_equal(one.scores, two.scores)
        np.testing.assert_array_equal(one.own, two.own)


def test_fingerprints_do_not_depend_on_where_the_vectors_are(shuffled):
    folder, full = shuffled
    stored = read_table(folder / "dev.parquet")
    names = name_domains([stored])
    pairs = zip(
        machines_of(stored, "dev", names), machines_of(full["dev"], "dev", names), strict=True
    )
    for one, two in pairs:
        assert one.fingerprint == two.fingerprint == two.loaded().fingerprint


def test_a_fresh_study_reads_no_machine_twice_to_score_it(shuffled, monkeypatch):
    folder, _ = shuffled
    monkeypatch.setattr(inputs, "BUDGET", 1)
    asked = []
    vectors = inputs.VectorReader.vectors
    monkeypatch.setattr(
        inputs.VectorReader, "vectors", lambda self, m: asked.append(m) or vectors(self, m)
    )
    daco.study(folder / "dev.parquet", grid="9", workers=1, out=folder / "run", n_splits=3)
    assert asked == [0, 1, 2, 3] * 2  # scoring, examining


def test_a_choice_without_labels_is_the_same_from_a_file(shuffled, monkeypatch):
    folder, full = shuffled
    expected = select_label_free(full["dev"]).to_dict()
    for budget in (1, inputs.BUDGET):
        monkeypatch.setattr(inputs, "BUDGET", budget)
        assert select_label_free(read_table(folder / "dev.parquet")).to_dict() == expected
