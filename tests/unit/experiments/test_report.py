"""The report: it compares rules, says what is not known, and cannot be broken by names."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from report_runs import COMPARED, DEV, EVAL, GRID, NAUGHTY, made_study

from daco.errors import DataError
from daco.experiments.report import (
    cautions,
    compare_rules,
    explain,
    format_cell,
    render,
    result_html,
    write_report,
)
from daco.experiments.tables import SHOWN_MACHINES, tables_of
from daco.method.config import paper_grid


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
    return made_study()


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
    for _, attributes in Page(html).tags:
        assert attributes.get("src", "data:image/svg+xml;base64,").startswith("data:image/svg+xml;")
        assert attributes.get("href", "#").startswith(("#", "data:,"))


def test_a_folder_that_cannot_be_made_is_named(study, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file.*cannot be written"):
        write_report(study, tmp_path / "file" / "report")


# The first screen


def test_rules_are_compared_with_their_intervals_over_machines(study, html):
    rules = study.rules().set_index("rule")
    header = Page(html.partition("<header>")[2].partition("</header>")[0]).text
    assert f"Official score of {len(EVAL)} evaluation machines in percent" in header
    assert "95 % intervals over machines" in header
    for rule in ("guarded", "paper", "fixed", "blend", "oracle"):
        row = rules.loc[rule]
        interval = f"{row['eval_low']:.1f} to {row['eval_high']:.1f}"
        assert f"{row['configuration']} {row['eval_score']:.2f} {interval}" in header


def test_a_criterion_has_its_floor(html):
    assert "its criterion would still be about 0." in section(html, "configurations")


def test_places_on_the_axis_follow_the_scores(study):
    found = compare_rules(study.rules(), "guarded")
    rows = sorted(found["rows"], key=lambda row: row["value"])
    places = [row["at"]["value"] for row in rows]
    assert places == sorted(places)
    assert all(0 < row["at"]["low"] <= row["at"]["value"] for row in rows if row["low"] > 0)
    assert [row["rule"] for row in rows if row["is_chosen"]] == ["guarded"]


def test_the_choice_is_explained(study, html):
    choice = study.run["choice"]
    header = Page(html.partition("<header>")[2].partition("</header>")[0]).text
    assert f"Chosen: {choice['config']}" in header
    assert choice["reason"][1:] in header
    assert re.search(r"\d+ of 20 resamples", header)


def test_every_configuration_has_its_own_explanation():
    names = [config.name for config in paper_grid()]
    assert len({explain(name) for name in names}) == len(names)
    assert "the ranking of all clips together weighs as much as 30 clips" in explain(
        "conf-soft-m30-k1"
    )
    assert "diagnostic" in explain("conf-oracle-m0-k1")
    assert explain("mine") == "A configuration of the study’s own."


# Honest sentences


def told(study, **changes):
    tables = tables_of(study) | changes
    comparison = compare_rules(tables["rules"], "guarded")
    return list(cautions(tables, study.run["choice"], comparison))


@pytest.mark.parametrize(("n", "text"), [(1, "1 machine is"), (4, "4 machines are"), (5, None)])
def test_few_machines_are_too_few(n, text):
    sentences = told(made_study(eval=EVAL[:n]))
    assert any("too few" in each for each in sentences) == (text is not None)
    assert text is None or f"{text} too few to tell a difference from chance." in sentences


def differences(value, low, high, rules="blend", over="machines", n=8):
    row = {"rules": rules, "first": "a", "second": "b", "value": value, "low": low, "high": high}
    return pd.DataFrame([row | {"n": n, "over": over}])


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            differences(-2.0, -3.0, 1.0),
            "a scores 2.0 points less than b (blend), which may be chance: 95 % interval −3.0 to "
            "+1.0 over 8 machines.",
        ),
        (
            differences(2.0, 1.0, 3.0, "dev, oracle"),
            "a scores 2.0 points more than b (dev score, best in hindsight): 95 % interval +1.0 to "
            "+3.0 over 8 machines.",
        ),
        (differences(2.0, None, None), "a scores 2.0 points more than b (blend)."),
    ],
)
def test_a_difference_has_its_interval_and_says_over_what(study, table, text):
    assert text in told(study, differences=table)


def test_an_interval_over_machines_counts_more_than_one_over_clips(study):
    both = pd.concat([differences(2.0, -1.0, 5.0), differences(2.0, 1.0, 3.0, over="clips")])
    sentences = [each for each in told(study, differences=both) if each.startswith("a scores")]
    assert len(sentences) == 1
    assert "may be chance" in sentences[0]


def test_a_choice_below_a_random_pick_is_called_that(study):
    rules = study.rules()
    rules.loc[rules["rule"] == "random", "eval_score"] = 99.0
    assert any("drawn at random scores" in each for each in told(study, rules=rules))


def test_configurations_within_the_noise_are_counted(study):
    near = study.stability()["within_noise"].sum() - 1
    assert any(f"{near} other configuration" in each for each in told(study))


# What a study does not have


def test_without_evaluation_machines_development_scores_are_shown_and_named():
    html = render(made_study(eval=()))
    text = Page(html).text
    assert f"Official score of {len(DEV)} development machines" in text
    assert "Nothing here was tried on evaluation machines." in text
    assert "it cannot be shown what predicts them" in section(html, "transfer")


def test_without_labels_nothing_is_claimed():
    html = render(made_study(labelled=()))
    text = Page(html).text
    assert "No labels are known, so nothing here shows how well anything is detected" in text
    assert "Official score of" not in text
    assert "AUC and pAUC cannot be computed" in section(html, "machines")
    assert "clips whose domain is not known" in section(html, "alarms")
    assert "Realised rates need labelled test normals." in section(html, "alarms")


def test_unlabelled_evaluation_machines_have_decisions(study):
    decisions = tables_of(made_study(labelled=("dev",)))["decisions"]
    rows = decisions[decisions["set"] == "evaluation"]
    assert len(rows) == len(EVAL)
    assert (rows["unlabelled"] == 40).all()
    assert rows["normals"].isna().all()


def test_one_domain_has_neither_criterion_nor_balance():
    html = render(made_study(domains=("all",)))
    assert "Official score of 5 evaluation machines" in Page(html).text
    assert "The balance needs labelled machines with two domains" in section(html, "balance")
    assert "The criterion was not resampled." in section(html, "stability")


def test_one_configuration_on_one_machine():
    html = render(made_study(("fan",), ("saw",), grid=["raw-k1"], compared=(), decided=()))
    assert "No p-values of raw-k1 were computed." in section(html, "alarms")


def test_of_many_machines_the_lowest_are_shown():
    names = [f"m{at:02d}" for at in range(60)]
    study = made_study(eval=names, grid=GRID[:3])
    table = tables_of(study)["machines"]
    assert table.drop_duplicates(["set", "machine"]).shape[0] == SHOWN_MACHINES
    assert f"Shown are the {SHOWN_MACHINES} machines that score lowest" in Page(render(study)).text


def test_notes_of_the_run_are_what_is_missing(html):
    assert "notes nothing that was left out" in section(html, "missing")
    noted = made_study(("fan",), (), grid=["raw-k1"])
    noted.run["notes"].append("The machine lathe was left out: <no clips>.")
    assert "lathe was left out: <no clips>." in section(render(noted), "missing")


# Tables, provenance, names


def test_tables_state_the_numbers_of_the_study(study, tables):
    pd.testing.assert_frame_equal(
        tables["grid"].drop(columns="method"), study.grid().dropna(axis=1, how="all")
    )
    assert set(tables["vetoed"]["configuration"]) == set(study.run["choice"]["vetoed"])
    assert tables["compared"]["configuration"].unique().tolist() == COMPARED


def test_decisions_count_the_clips_with_small_p_values(study, tables):
    row = tables["decisions"].iloc[0]
    clips = study.test_clips
    own = clips[(clips["machine"] == row["machine"]) & (clips["domain"] == row["domain"])]
    p_values = own.loc[own["label"] == 1, f"p:{study.run['choice']['config']}"]
    assert row["detected"] == pytest.approx((p_values <= 0.1).mean())
    assert row["anomalies"] == len(p_values)


def test_the_papers_threshold_is_a_labelled_row(html):
    alarms = section(html, "alarms")
    assert "paper's threshold" in alarms
    assert "nothing else on this page uses it" in alarms


def test_provenance_has_inputs_hashes_and_the_time_of_the_whole_study(html):
    text = section(html, "provenance")
    assert f"dev.parquet sha256 {8 * '0123abcd'}" in text
    assert f"clips.parquet {8 * 'fedcba98'}" in text
    assert "total 10.5" in text


def test_a_name_is_text_everywhere():
    study = made_study(eval=(NAUGHTY, "saw"))
    html = render(study)
    assert "<script>alert" not in html
    assert NAUGHTY in Page(html).text


def test_pictures_and_tables_have_texts(html):
    tags = Page(html).tags
    assert all(len(attributes["alt"]) > 20 for tag, attributes in tags if tag == "img")
    assert sum(tag == "table" for tag, _ in tags) == sum(tag == "caption" for tag, _ in tags)
    assert all("scope" in attributes for tag, attributes in tags if tag == "th")


def test_a_notebook_shows_the_choice_and_every_rule(study):
    shown = result_html(study)
    assert "<caption" in shown
    assert study.run["choice"]["config"] in shown.partition("</caption>")[0]
    assert all(f"<td>{rule}</td>" in shown for rule in study.rules()["rule"])


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [(None, ".2f", "–"), (float("nan"), ".2f", "–"), (-0.5, ".1f", "−0.5"), (0.125, ".1%", "12.5%"),
     (7.0, ".0f", "7"), (12, ".2f", "12"), (True, ".2f", "yes"), ("a-b", ".2f", "a-b")],
)  # fmt: skip
def test_cells(value, form, text):
    assert format_cell(value, form) == text
