"""Bad normals on the command line: ``fit``, ``inspect --normals``, ``update --remove`` and back."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import soundfile
from command_line import printed, refused, run

from daco.detector.model import MachineModel
from daco.errors import InputError
from daco.synthetic.factory import synth_factory

RATE = 16000


@pytest.fixture(scope="module")
def factory(tmp_path_factory):
    """A bearing with 12 source and 10 target normals, and a valve."""
    root = tmp_path_factory.mktemp("factory")
    sizes = {"n_source": 12, "n_target": 10, "n_test": 4, "seconds": 3, "workers": 1}
    synth_factory(root, machines=["bearing", "valve"], **sizes)
    return root / "dev_data" / "raw"


@pytest.fixture
def bearing(factory, tmp_path):
    """Its normals alone, and the path of one of the target domain."""
    shutil.copytree(factory / "bearing" / "train", tmp_path / "bearing" / "train")
    return tmp_path / "bearing", sorted((tmp_path / "bearing" / "train").glob("*target*"))[4]


@pytest.fixture(scope="module")
def clean(factory, tmp_path_factory):
    """A model of the good normals, of which the gate leaves out none."""
    root = tmp_path_factory.mktemp("clean")
    shutil.copytree(factory / "bearing" / "train", root / "bearing" / "train")
    printed("fit", root / "bearing", "--out", root / "bearing.daco")
    assert len(MachineModel.load(root / "bearing.daco")) == 22
    return root / "bearing.daco"


@pytest.fixture
def model(clean, tmp_path):
    return shutil.copy(clean, tmp_path / "bearing.daco")


def spoil(path, kind, factory):
    """Replace a recording by a bad one."""
    wave, _ = soundfile.read(path)
    if kind == "other":
        shutil.copy(sorted((factory / "valve" / "train").glob("*target*"))[0], path)
    elif kind == "low":
        soundfile.write(path, wave[::2], RATE // 2)
    else:
        made = {
            "silent": 0 * wave,
            "short": wave[:RATE],
            "clipped": np.clip(wave / wave.std(), -1, 1),
        }
        soundfile.write(path, made[kind], RATE)


KINDS = {
    "silent": "silent: -inf dB of full scale",
    "short": "short: 1 s, the normals have 3 s",
    "low": "rate: 8000 Hz, the normals have 16000 Hz",
    "clipped": "clipped: ",
    "other": "unlike: in its octave bands",
}


def test_fit_leaves_out_bad_normals_and_names_them(factory, bearing, tmp_path):
    folder, _ = bearing
    train = folder / "train"
    paths = [*sorted(train.glob("*source*"))[:3], *sorted(train.glob("*target*"))[:2]]
    for path, kind in zip(paths, KINDS, strict=True):
        spoil(path, kind, factory)
    said = printed("fit", folder, "--out", tmp_path / "m.daco", code=4)
    assert "Left out 5 recordings:" in said
    model = MachineModel.load(tmp_path / "m.daco")
    assert model.domain_sizes == {"source": 9, "target": 8}
    shown = printed("inspect", tmp_path / "m.daco")
    assert "left out" in shown
    for path, reason in zip(paths, KINDS.values(), strict=True):
        assert f"{path.name}: {reason}" in said
        assert reason.partition(":")[0] in shown
        assert not any(path.name in name for name in model.clip_names)


def test_a_table_knows_as_much_as_the_recordings_and_a_person_may_insist(
    factory, bearing, tmp_path
):
    folder, path = bearing
    spoil(path, "short", factory)
    printed("embed", folder, "--out", tmp_path / "e.parquet")
    said = printed("fit", tmp_path / "e.parquet", "--out", tmp_path / "m.daco", code=4)
    assert f"{path.name}: {KINDS['short']}" in said
    said = printed("fit", tmp_path / "e.parquet", "--out", tmp_path / "m.daco", "--keep-suspicious")
    assert f"Kept 1 suspicious normal: train/{path.name} (short: 1 s" in said
    assert len(MachineModel.load(tmp_path / "m.daco")) == 22
    listed = printed("inspect", tmp_path / "m.daco", "--normals", "--json")
    assert json.loads(listed)["normal_list"][0]["warning"] == KINDS["short"]


def test_normals_are_listed_with_the_most_suspicious_first(model):
    shown = run("inspect", model, "--normals").stdout
    assert "There are 2 more. --json lists all." in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    rows = json.loads(run("inspect", model, "--normals", "--json").stdout)["normal_list"]
    assert {row["row"] for row in rows} == set(range(22))
    names = MachineModel.load(model).clip_names
    assert [names[row["row"]] for row in rows] == [row["name"] for row in rows]


def test_a_normal_is_removed_and_comes_back(model):
    before = MachineModel.load(model)
    content, name = model.read_bytes(), before.clip_names[15]
    said = printed("update", model, "--remove", name, "--remove", before.clip_names[0])
    assert "Removed 2 recordings. There are now 20." in said
    assert "bearing.daco.previous. daco update --undo restores it" in said
    after = MachineModel.load(model)
    assert name not in after.clip_names
    assert after.domain_sizes == {"source": 11, "target": 9}
    assert after.provenance["updates"][-1]["names"] == [name, before.clip_names[0]]
    assert model.with_name("bearing.daco.previous").read_bytes() == content
    changed = model.read_bytes()
    assert "22 healthy recordings" in printed("update", model, "--undo")
    assert model.read_bytes() == content
    printed("update", model, "--undo")  # and forward again
    assert model.read_bytes() == changed


def test_what_cannot_be_removed_or_undone_changes_nothing(model, tmp_path):
    content = model.read_bytes()
    for arguments in (
        ["--remove", "nothing.wav"],
        ["--undo"],
        [],
        ["--undo", "--remove", "x"],
        [tmp_path, "--remove", "x"],
        [tmp_path],  # of which domain?
        ["--domain", "target"],
    ):
        assert isinstance(refused("update", model, *arguments), InputError), arguments
    assert model.read_bytes() == content
    assert not model.with_name("bearing.daco.previous").exists()
