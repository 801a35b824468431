"""``daco inject`` and ``daco sensitivity`` as people type them."""

from __future__ import annotations

import pandas as pd
import pytest
from command_line import refused, run, said
from shared_data import shared

from daco.data.table import EmbeddingTable


def test_inject_writes_the_agreed_table(drill, tmp_path):
    out = tmp_path / "faults.parquet"
    plan = ("--per-domain", 3, "--level", -12, "--level", -3, "--fault", "rub")
    command = ("inject", drill[0], "--out", out, *plan)
    text = said(*command)
    assert "6 recordings, each clean and with 2 faults" in text
    assert "rub at -12, -3 dB" in text
    table = EmbeddingTable.read(out)
    assert table.columns["fault"].tolist() == ["", "rub", "rub"] * 6
    assert table.columns["level_db"].tolist() == [None, "-12", "-3"] * 6
    before = out.read_bytes()
    run(*command)
    assert out.read_bytes() == before
    # Rows with a fault are normals to no command.
    error = refused("fit", out, "--out", tmp_path / "model.daco")
    assert "no normal training clip" in str(error)


@pytest.mark.parametrize(
    ("command", "match"),
    [
        ("inject {} --out nowhere/faults.parquet", "not a folder"),
        ("inject {} --out faults.csv", "parquet"),
        ("inject {} --out faults.parquet --fault crack", "impacts"),
        ("sensitivity {}.daco {} --level 99", "decibels"),
        ("sensitivity {}.daco {} --picture s.pdf", ".svg or .png"),
    ],
)
def test_a_mistake_in_the_call_is_said_before_any_work(
    command, match, drill, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = [word.format(drill[0]) for word in command.split()]
    assert match in str(refused(*words))


def levels(*decibels):
    return [word for level in decibels for word in ("--level", level)]


def test_sensitivity_says_what_is_caught(drill, tmp_path):
    table, picture = tmp_path / "s.csv", tmp_path / "s.png"
    text = said(
        *("sensitivity", drill[1], drill[0], *levels(-24, -6, 12)),
        *("--out", table, "--picture", picture, "--per-domain", 6),
    )
    assert "modulation: caught from" in text
    assert "6 of day, 6 of night, of which 12 are in the model" in text
    assert "warning: Each rate in day comes from 6 recordings" in text
    assert "off: caught from 25% of the time (-6 dB) in day and night" in text
    rates = pd.read_csv(table, keep_default_na=False)
    assert len(rates) == 2 + 10 * 2 * 3
    assert rates["fault"].tolist()[:2] == ["", ""]
    assert (rates["low"] <= rates["rate"]).all()
    assert (rates["rate"] <= rates["high"]).all()
    assert picture.read_bytes().startswith(b"\x89PNG")
    few = ("--fault", "impacts", *levels(-18), "--rate", 0.5, "--out", table, "--per-domain", 6)
    run("sensitivity", drill[1], drill[0], *few)
    at_half = pd.read_csv(table, keep_default_na=False)
    assert at_half["by_score"][:2].sum() > rates["by_score"][:2].sum()  # without a fault


@pytest.mark.shared("real", "audio")
def test_on_the_recordings_of_a_real_fan(tmp_path):
    fan, model = shared("real", "audio", "fan"), tmp_path / "fan.daco"
    run("fit", fan, "--out", model, "--false-alarm-rate", 0.1, "--readout", "mod")
    text = said(
        *("sensitivity", model, fan, *levels(-80, -6), "--per-domain", 4),
        *("--fault", "modulation", "--fault", "rub", "--out", tmp_path / "s.csv"),
    )
    found = pd.read_csv(tmp_path / "s.csv", keep_default_na=False).to_dict("records")
    assert [row["in_model"] for row in found] == [4] * 10
    flagged = {row["domain"]: row["caught"] for row in found if row["fault"] == ""}
    for row in found:
        if row["level_db"] in (-6, "-6.0"):
            assert row["rate"] == 1
        elif row["level_db"] in (-80, "-80.0"):  # no fault at all
            assert row["caught"] == flagged[row["domain"]]
    assert "rub: caught from half of the machine's loudness (-6 dB) in source and target." in text
