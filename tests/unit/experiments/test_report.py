"""The report: it compares rules, says what is not known, and cannot be broken by names."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from random_studies import EVAL, NAUGHTY, report_study

from daco.experiments.report import cautions, compare_rules, render, why, write_report
from daco.experiments.tables import format_cell, tables_of


class Page(HTMLParser):
    """Collects texts, and checks that tags are closed in the order they were opened."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, html):
        super().__init__()
        self.open, self.texts, self.tags = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module", autouse=True)
def empty_images():
    """Most of the time of a page is spent on its pictures; test_figures.py looks at these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daco.experiments.report.svg_bytes", lambda *args, **options: b"")
        yield


@pytest.fixture(scope="module")
def study():
    return report_study()


@pytest.fixture(scope="module")
def html(study):
    return render(study)


@pytest.fixture(scope="module")
def tables(study):
    return tables_of(study)


def section(html, name):
    """The text of one section of a page."""
    return Page(html.partition(f'<section id="{name}">')[2].partition("</section>")[0]).text


# The file


def test_a_report_is_one_file_without_network(study, html, tmp_path):
    path = write_report(study, tmp_path / "new" / "folder")
    assert path.read_text(encoding="utf-8") == html  # the same study gives the same page
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]
    assert "http" not in re.sub(r"data:[^\"]*", "", html).replace("http-equiv", "")
    assert not re.search(r"@import|url\(", html)


# The first screen


def test_rules_are_compared_with_their_intervals_over_machines(study, html):
    rules = study.rules().set_index("rule")
    header = Page(html.partition("<header>")[2].partition("</header>")[0]).text
    assert f"Official score of {len(EVAL)} evaluation machines" in header
    assert f"Chosen: {study.run['choice']['config']}" in header
    assert why(study.run["choice"]) in header
    for rule in ("guarded", "paper", "fixed", "blend", "oracle"):
        row = rules.loc[rule]
        interval = f"{row['eval_low']:.1f} to {row['eval_high']:.1f}"
        assert f"{row['configuration']} {row['eval_score']:.2f} {interval}" in header


# Honest sentences


def cautions_of(study, tables):
    return list(cautions(tables, study.run["choice"], compare_rules(tables["rules"], "guarded")))


def test_few_machines_are_too_few(study, tables):
    few = report_study(eval=EVAL[:4])
    assert any("too few" in each for each in cautions_of(few, tables_of(few)))
    assert not any("too few" in each for each in cautions_of(study, tables))


def differences(low, high, over="machines"):
    row = {"rules": "blend", "first": "a", "second": "b", "value": 2.0, "low": low, "high": high}
    return pd.DataFrame([row | {"n": 8, "over": over}])


@pytest.mark.parametrize(
    ("table", "tokens", "may_be_chance"),
    [
        (differences(-1.0, 5.0), ["2.0", "−1.0", "+5.0", "8 machines"], True),
        (differences(1.0, 3.0), ["2.0", "+1.0", "+3.0", "8 machines"], False),
        (differences(None, None), ["2.0"], False),
        # an interval over machines counts more than one over clips
        (pd.concat([differences(-1.0, 5.0), differences(1.0, 3.0, "clips")]), ["−1.0"], True),
    ],
)
def test_a_difference_has_its_interval_and_says_over_what(
    study, tables, table, tokens, may_be_chance
):
    found = cautions_of(study, tables | {"differences": table})
    (sentence,) = [each for each in found if each.startswith("a scores")]
    assert all(token in sentence for token in tokens)
    assert ("may be chance" in sentence) == may_be_chance


def test_a_choice_below_a_random_pick_and_within_the_noise_is_called_that(study, tables):
    rules = study.rules()
    rules.loc[rules["rule"] == "random", "eval_score"] = 99.0
    assert any("at random" in each for each in cautions_of(study, tables | {"rules": rules}))
    near = study.stability()["within_noise"].sum() - 1
    assert any(f" {near} " in f" {each}" for each in cautions_of(study, tables))


# What a study does not have


@pytest.mark.parametrize(
    "options",
    [{"eval": ()}, {"labelled": ()}, {"domains": ("all",)},
     {"dev": ("fan",), "eval": ("saw",), "grid": ["raw-k1"], "compared": ()}],
)  # fmt: skip
def test_a_study_without_something_has_a_whole_page(options):
    study = report_study(**options)
    config = study.run["choice"]["config"]
    page = Page(render(replace(study, clips=study.clips.drop(columns=f"p:{config}"))))
    assert f"Chosen: {config}" in page.text
    assert ("Official score of" in page.text) == ("labelled" not in options)


def test_unlabelled_evaluation_machines_have_decisions(study):
    decisions = tables_of(report_study(labelled=("dev",)))["decisions"]
    rows = decisions[decisions["set"] == "evaluation"]
    assert len(rows) == len(EVAL)
    assert (rows["unlabelled"] == 40).all()
    assert rows["normals"].isna().all()


def test_of_many_machines_the_lowest_are_shown(study, monkeypatch):
    for module in ("report", "tables"):
        monkeypatch.setattr(f"daco.experiments.{module}.SHOWN_MACHINES", 4)
    table = tables_of(study)["machines"]
    assert table.loc[table["set"] == "evaluation", "machine"].nunique() == 4
    assert "the 4 machines" in Page(render(study)).text


# Tables, provenance, names


def test_tables_state_the_numbers_of_the_study(study, tables):
    pd.testing.assert_frame_equal(
        tables["grid"].drop(columns="method"), study.grid().dropna(axis=1, how="all")
    )
    assert set(tables["vetoed"]["configuration"]) == set(study.run["choice"]["vetoed"])
    assert tables["compared"]["configuration"].unique().tolist() == ["blend"]


def test_names_and_notes_are_text_everywhere(html):
    assert "lathe" not in section(html, "missing")
    study = report_study(("fan",), (NAUGHTY,), grid=["raw-k1"])
    study.run["notes"].append("The machine lathe was left out: <no clips>.")
    other = render(study)
    assert "<script>alert" not in other
    assert NAUGHTY in Page(other).text
    assert "lathe was left out: <no clips>." in section(other, "missing")


def test_pictures_and_tables_have_texts(html):
    tags = Page(html).tags
    assert all(len(attributes["alt"]) > 20 for tag, attributes in tags if tag == "img")
    assert sum(tag == "table" for tag, _ in tags) == sum(tag == "caption" for tag, _ in tags)
    assert all("scope" in attributes for tag, attributes in tags if tag == "th")


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [(None, ".2f", "–"), (float("nan"), ".2f", "–"), (-0.5, ".1f", "−0.5"), (0.125, ".1%", "12.5%"),
     (7.0, ".0f", "7"), (12, ".2f", "12"), (True, ".2f", "yes"), ("a-b", ".2f", "a-b")],
)  # fmt: skip
def test_cells(value, form, text):
    assert format_cell(value, form) == text
