"""Tables as Markdown, LaTeX and CSV: what is escaped, how numbers look, what is refused."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest

from daco.errors import InputError
from daco.experiments.tables import format_cell, latex, to_csv, to_latex, to_markdown

FRAME = pd.DataFrame({"rule": ["dev score", "oracle"], "eval": [55.8287, np.nan], "n": [8, 8]})


def test_numbers_have_two_decimals_and_what_is_missing_is_a_dash():
    lines = to_markdown(FRAME).splitlines()
    assert lines[1] == "|---|---:|---:|"
    assert lines[2:] == ["| dev score | 55.83 | 8 |", "| oracle | – | 8 |"]


def test_a_format_and_a_title_are_per_column():
    text = to_markdown({"delta": [-1.206, 1.71]}, titles={"delta": "Δ"}, formats={"delta": "+.1f"})
    assert text.splitlines() == ["| Δ |", "|---:|", "| −1.2 |", "| +1.7 |"]


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (0.04, "p", "0.040"),
        (0.0004, "p", "<0.001"),
        (0, "p", "<0.001"),
        (True, ".2f", "yes"),
        (np.float32(0.5), ".3f", "0.500"),
        (np.int64(-3), ".2f", "−3"),
        (float("nan"), ".2f", "–"),
        ("raw-k1", ".2f", "raw-k1"),
    ],
)
def test_written(value, spec, text):
    assert format_cell(value, spec) == text


def test_a_cell_cannot_break_out_of_a_markdown_table():
    text = to_markdown({"machine": ["a|b", "two\nlines", "*bold* <b> `code` [x](y)", "\\"]})
    assert len(text.splitlines()) == 6
    assert text.splitlines()[2:] == [
        r"| a\|b |",
        "| two lines |",
        r"| \*bold\* \<b\> \`code\` \[x\](y) |",
        r"| \\ |",
    ]


def test_latex_reads_no_command_from_a_cell():
    assert latex(r"50 % of $x_1$ & {a}~^#\input") == (
        r"50 \% of \$x\_1\$ \& \{a\}\textasciitilde{}\textasciicircum{}\#\textbackslash{}input"
    )
    assert latex("−1 ± 2 – ρ Ω") == r"$-$1 $\pm$ 2 -- $\rho$ $\Omega$"


def test_latex_sets_a_heading_over_a_group_of_columns():
    table = {"machine": ["fan"], ("raw-k1", "source"): [61.2], ("raw-k1", "target"): [41.2]}
    lines = to_latex(table, "AUC (%)", "tab:auc").splitlines()
    assert lines[2:5] == [r"\caption{AUC (\%)}", r"\label{tab:auc}", r"\begin{tabular}{lrr}"]
    assert lines[6:9] == [
        r" & \multicolumn{2}{c}{raw-k1} \\",
        r"\cmidrule(lr){2-3}",
        r"machine & source & target \\",
    ]
    columns = lines[4].removeprefix(r"\begin{tabular}{").removesuffix("}")
    assert lines[10].count("&") == len(columns) - 1


def test_other_forms_write_group_and_name():
    table = {("raw-k1", "source"): [61.2]}
    assert to_markdown(table).splitlines()[0] == "| raw-k1 source |"
    assert to_csv(table) == "raw-k1 source\n61.2\n"


def test_csv_reads_back_exactly():
    table = {"machine": ['a,"b"\nc', "風扇"], "auc": [1 / 3, None]}
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert rows == [["machine", "auc"], ['a,"b"\nc', "0.3333333333"], ["風扇", ""]]


def test_a_table_without_rows_keeps_its_headings():
    empty = {"rule": [], "eval": []}
    assert to_markdown(empty).splitlines() == ["| rule | eval |", "|---|---|"]
    assert r"rule & eval \\" in to_latex(empty, "", "x")
    assert to_csv(empty) == "rule,eval\n"


@pytest.mark.parametrize("writer", [to_markdown, to_csv])
def test_columns_of_different_length_are_refused(writer):
    with pytest.raises(InputError, match="one length"):
        writer({"a": [1], "b": [1, 2]})
    with pytest.raises(InputError, match="at least one column"):
        writer({})
