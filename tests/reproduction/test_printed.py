"""The printed values as data: complete, transcribed as the paper has them, and how they compare."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise

import pytest
from shared_data import shared

from reproduction.check import RECIPES, STATUSES
from reproduction.printed import (
    ERRATA,
    NUMBER,
    PLACES,
    PRINTED,
    PrintedValue,
    Recomputed,
    agrees,
    decimals,
    number,
    text_of,
)

IN_PAPER = [each for each in PRINTED if PLACES[each.place]["in_paper"]]


def test_every_value_has_its_own_id_and_a_known_place():
    assert len({each.id for each in PRINTED}) == len(PRINTED)
    assert list(dict.fromkeys(each.place for each in PRINTED)) == list(PLACES)
    assert len(IN_PAPER) == 544


def test_every_value_has_a_recipe_or_says_why_not():
    for each in PRINTED:
        assert each.rule in ("", "name", "below", "above", "at least"), each.id
        assert bool(each.numbers) == (each.rule != "name"), each.id
        if not each.recipe:
            assert each.status in STATUSES, each.id
            assert each.note, each.id


def test_every_recipe_is_used():
    used = set()
    for each in PRINTED:
        words = shlex.split(each.recipe)
        while words:
            used.add(words[0])
            words = words[3:] if words[0] == "over" else []  # the recipe that is repeated
    assert used == set(RECIPES)


def test_errata_are_numbered_and_every_reference_exists():
    assert list(ERRATA) == list(range(1, 17))
    assert {each.erratum for each in PRINTED} - {0} <= set(ERRATA)


def test_a_repeated_value_is_printed_alike():
    """One quantity to the same digits in two places is one text, or one was mistyped."""
    seen = {}
    for each in PRINTED:
        if each.recipe and not each.rule and not each.erratum:
            for at, text in enumerate(each.numbers):
                key = each.recipe, at, decimals(text)
                assert seen.setdefault(key, float(text)) == float(text), each.id


# The comparison


def printed(text, **fields):
    return PrintedValue("id", "Table II", "what", text, **fields)


@pytest.mark.parametrize(
    ("value", "rule", "agreeing", "other"),
    [
        # half a unit of the last printed digit
        ("55.83", "", number(55.8287), number(55.8351)),
        ("2.1", "", number(2.05), number(2.045)),
        ("45", "", number(45), number(44)),
        ("-0.10", "", number(-0.0953), number(0.0953)),
        ("55.83", "", number(55.83), number(float("nan"))),
        # a derived error is added to it
        ("0.83", "", number(0.82, error=0.006), number(0.82)),
        # as many numbers as are printed
        ("200", "", number(200), number(200, 199)),
        ("[0.1,0.2]", "", number(0.1, 0.2), number(0.1)),
        ("1", "below", number(0.9), number(1.0)),
        ("1", "above", number(1.1), number(1.0)),
        ("1", "at least", number(1.0), number(0.9)),
        ("raw-k1", "name", Recomputed(name="raw-k1"), Recomputed(name="raw-k2")),
    ],
)
def test_a_recomputed_value_agrees_with_what_it_would_be_printed_as(value, rule, agreeing, other):
    given = printed("about a point", value=value, rule=rule) if rule else printed(value)
    assert agrees(given, agreeing)
    assert not agrees(given, other)


def test_a_recomputed_value_has_two_digits_more():
    assert text_of(printed("59.3–59.6"), number(59.2719, 59.5508)) == "59.272,59.551"
    assert text_of(printed("45"), number(45)) == "45"


# The transcription, against the text of the paper

COMMANDS = re.compile(r"\\(?:emph|textbf|texttt|label|cref|Cref|cite)\b")
REPLACED = {"\\,": "", "\\ ": " ", "\\to": "→", "\\pm": "±", "--": "–", "~": " "}
SECTIONS = {
    "Section I": "intro", "": "related", "Section III": "setting", "Section IV": "method",
    "Section V": "setup", "Results": "results", "Section VI-A": "results-e1",
    "Section VI-B": "results-frontier", "Section VI-C": "results-transfer",
    "Section VI-D": "results-ablations", "Section VI-E": "results-ldn",
    "Section VI-F": "results-years", "Section VI-G": "results-efficiency",
    "Section VII": "discussion", "Section VIII": "conclusion",
}  # fmt: skip
FLOATS = {
    "Table I": "tab:selection", "Table II": "tab:backbones", "Table III": "tab:ldn",
    "Table IV": "tab:years", "Table V": "tab:efficiency", "Appendix": "tab:permachine",
    "Appendix, machines": "tab:permachine", "Fig. 2": "fig:gainsep", "Fig. 3": "fig:transfer",
}  # fmt: skip


def plain(latex):
    """LaTeX as the values are transcribed: no mathematics, no groups, single spaces."""
    text = COMMANDS.sub("", latex)
    for old, new in REPLACED.items():
        text = text.replace(old, new)
    return " ".join(re.sub(r"[${}\\]", "", text).split())


@pytest.fixture(scope="module")
def places():
    """The LaTeX of each place, sections without the tables and figures that float in them."""
    tex = shared("paper.tex").read_text(encoding="utf-8")
    floating = r"\\begin\{(?:table|figure)\*?\}.*?\\end\{(?:table|figure)\*?\}"
    floats = {re.search(r"\\label\{(\w+:\w+)\}", f)[1]: f for f in re.findall(floating, tex, re.S)}
    body = re.sub(floating, "", tex, flags=re.S)
    starts = [body.index(rf"\label{{sec:{label}}}") for label in SECTIONS.values()]
    ends = [*starts, body.index(r"\section*{Data and Code")]
    found = {name: body[a:b] for name, (a, b) in zip(SECTIONS, pairwise(ends), strict=True)}
    found["Abstract"] = body[body.index(r"\begin{abstract}") : body.index(r"\end{abstract}")]
    return found | {name: floats[label] for name, label in FLOATS.items()}


@pytest.mark.shared("paper.tex")
def test_every_printed_text_is_in_its_place(places):
    for each in IN_PAPER:
        alone = rf"(?<![\d.]){re.escape(each.printed)}(?!\d|\.\d)"  # 5.2: not in 55.2, not in 5.21
        assert re.search(alone, plain(places[each.place])), each.id


def cells(latex):
    """The cells of a table's rows, the header left out."""
    body = latex[latex.index(r"\midrule") : latex.index(r"\bottomrule")].replace(r"\midrule", "")
    rows = [[plain(cell) for cell in row.split("&")] for row in body.split(r"\\")]
    return [row for row in rows if len(row) > 1]


@pytest.mark.shared("paper.tex")
@pytest.mark.parametrize("table", ["Table I", "Table II", "Table III", "Table IV", "Table V"])
def test_tables_are_transcribed_cell_by_cell(places, table):
    """All numbers of a table's body, in its order: none left out, none out of place."""
    first = 2 if table == "Table I" else 1  # the columns before it name the row
    texts = [cell for row in cells(places[table]) for cell in row[first:]]
    ours = [
        each.printed
        for each in PRINTED
        if each.place == table
        and not each.what.startswith("caption")
        and each.rule != "name"
        and not each.id.endswith("algorithm-1")  # the same cell a second time
    ]
    assert NUMBER.findall(" ".join(ours)) == NUMBER.findall(" ".join(texts))


@pytest.mark.shared("paper.tex")
def test_the_appendix_is_transcribed_cell_by_cell(places):
    systems = ("raw-k1", "conf-soft-m0-k1", "conf-soft-m0-ldnK1")
    columns = [f"{s}.{q}" for s in systems for q in ("auc_source", "auc_target", "pauc")]
    wanted = {
        f"appendix.{row[0].split()[-1]}.{column}": cell
        for row in cells(places["Appendix"])
        if len(row) == 10
        for column, cell in zip(columns, row[1:], strict=True)
    }
    assert len(wanted) == 135
    assert wanted == {e.id: e.printed for e in PRINTED if e.place == "Appendix, machines"}


NO_RESULTS = {
    "Section III": {"0.1"},  # the range of the partial AUC
    "Section IV": {"0.01"},  # below which the criterion is called noise
    "Section V": {"0.438"},  # part of a checkpoint's name
    "Section VI-B": {"0.10"},  # a level, beside what was measured at it
    "Section VII": {"0.091", "0.005"},  # 1/11, and the distance called equal
}


@pytest.mark.shared("paper.tex")
@pytest.mark.parametrize("place", [p for p in PLACES if p.startswith(("Abs", "Sec", "Fig"))])
def test_no_decimal_number_of_the_text_is_left_out(places, place):
    text = re.sub(r"\\includegraphics\[.*?\]", "", places[place])
    written = set(re.findall(r"(?<![\d.])\d+\.\d+", plain(text)))
    ours = [text for e in PRINTED if e.place == place for text in NUMBER.findall(e.printed)]
    assert written - {text.lstrip("+-") for text in ours} == NO_RESULTS.get(place, set())
