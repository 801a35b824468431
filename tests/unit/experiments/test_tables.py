"""The export: pictures as SVG and PNG, tables as CSV, LaTeX and Markdown."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from random_studies import NAUGHTY, report_study

from daco.experiments.export import table_files, write_export


@pytest.fixture(scope="module")
def study():
    return report_study(eval=("pump", NAUGHTY))


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    paths = write_export(study, folder / "here")
    written = {path for path in folder.rglob("*") if path.is_file()}
    assert set(paths) == written
    return folder / "here"


def test_pictures_and_tables_have_all_forms(folder):
    figures = {path.stem for path in (folder / "figures").iterdir()}
    tables = {path.stem for path in (folder / "tables").iterdir()}
    assert {"transfer_criterion", "frontier", "coverage", "machines_eval"} < figures
    assert {"rules", "grid", "machines", "coverage_by_machine", "differences"} < tables
    for name in figures:
        assert ET.parse(folder / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((folder / "tables").iterdir())) == 3 * len(tables)


def test_csv_has_all_digits(study, folder):
    read = pd.read_csv(folder / "tables" / "grid.csv")
    np.testing.assert_allclose(read["eval_score"], study.grid()["eval_score"], rtol=1e-12)


TABLE = pd.DataFrame(
    {"machine": ["a_b & 5 %", "c|d"], "score": [-1.25, np.nan], "n_machines": [3, 4]}
)


def test_latex_is_escaped_and_rounded():
    latex = table_files("compared", TABLE)["tex"]
    assert r"a\_b \& 5 \% & $-$1.25 & 3 \\" in latex
    assert r"c|d & -- & 4 \\" in latex
    assert r"\begin{tabular}{lrr}" in latex
    assert r"\label{tab:compared}" in latex
    assert r"95 \% intervals" in latex


def test_markdown_is_rounded_and_aligned():
    lines = table_files("compared", TABLE)["md"].splitlines()
    assert lines[0].split("|")[1:3] == [" machine   ", "   score "]
    assert lines[1] == "|:----------|--------:|-----------:|"
    assert "−1.25" in lines[2]
