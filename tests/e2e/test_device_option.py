"""``--device`` of ``daco study`` and ``daco select``, as a user types it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from command_line import refused, run
from synthetic_machines import synthetic_machine, synthetic_table
from tolerances import of_distances

from daco.experiments.result import StudyResult

torch = pytest.importorskip("torch")


# Float32 distances of another library, divided by spreads of a hundredth and more.
TOLERANCE = 100 * of_distances(8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for role in ("dev", "eval"):
        sizes = ((40, 8, 16), (30, 10, 24))
        synthetic_table(
            synthetic_machine(f"{role}{i}", [i, *role.encode()], *size, dim=8)
            for i, size in enumerate(sizes)
        ).write(folder / f"{role}.parquet")
    return folder


def test_a_study_on_a_device_files_what_the_cpu_engine_files(folder):
    found = []
    for device in ("cpu", "cpu:0"):  # torch's name of the CPU: the way of a GPU
        out = folder / device.replace(":", "-")
        options = ("--dev", folder / "dev.parquet", "--eval", folder / "eval.parquet")
        options += ("--out", out, "--workers", 1, "--splits", 3, "--no-report", "--grid", "9")
        run("study", *options, "--device", device)
        found.append(StudyResult.read(out))
        assert json.loads((out / "run.json").read_text())["device"]["name"] == device
    for name in ("grid", "per_machine", "balances"):
        one, two = (getattr(each, name) for each in found)
        pd.testing.assert_frame_equal(one, two, rtol=TOLERANCE, atol=TOLERANCE)
    assert found[0].selection == found[1].selection


def test_a_choice_without_labels_is_the_same_on_a_device(folder):
    options = ("--train", folder / "dev.parquet", "--json", "--device")
    printed = [run("select", *options, device).stdout for device in ("cpu", "cpu:0")]
    assert json.loads(printed[0])["machines"]
    assert printed[0] == printed[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this computer has a GPU")
@pytest.mark.parametrize("command", [("study", "--dev", "--out", "run"), ("select", "--train")])
def test_a_gpu_that_is_not_there_is_one_sentence(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, option, *rest = command
    message = str(refused(name, option, "absent.parquet", *rest, "--device", "cuda"))
    assert "The device 'cuda' cannot be used" in message
    assert "absent.parquet" not in message  # it was not looked for
    assert not (tmp_path / "run").exists()
