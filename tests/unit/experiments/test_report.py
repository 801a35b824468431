"""The report: everything it shows is in report.json, it hides nothing, and it cannot be broken."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from report_runs import FIVE, NAUGHTY, published_study, small_study

import daco
from daco.errors import DataError
from daco.experiments.report import render_html, summarise, write_report
from daco.experiments.report.headline import below_default, explain, reading
from daco.experiments.report.pictures import page_pictures
from daco.experiments.report.summary import plain_json, tables_of
from daco.experiments.result import StudyResult
from daco.method.config import paper_grid

FIGURES = (
    *("transfer", "frontier", "gain_separability", "coverage", "distributions", "per_machine"),
    "vetoes",
)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return published_study(tmp_path_factory.mktemp("published"), clips=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_study(tmp_path_factory.mktemp("small") / "run")


@pytest.fixture(scope="module")
def report(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    assert write_report(small, folder) == folder / "report.html"
    return folder


def strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


class Page(HTMLParser):
    """Collects texts, and checks that tags are closed in the order they were opened."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self, html):
        super().__init__()
        self.open, self.texts, self.tags = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def tables_only(result, folder):
    """A folder with nothing but the two required tables of a run."""
    for name in ("grid.csv", "per_machine.csv"):
        (folder / name).write_bytes((result.folder / name).read_bytes())
    return folder


def page_of(result):
    """A page without pictures, which most statements do not need."""
    return Page(render_html(summarise(result), {}))


# What is written


def test_a_report_has_a_page_its_data_figures_and_tables(report):
    names = {str(path.relative_to(report)) for path in report.rglob("*") if path.is_file()}
    assert {"report.html", "report.json"} < names
    assert {f"figures/{name}.{end}" for name in FIGURES for end in ("svg", "png")} < names
    tables = {name for name in names if name.startswith("tables/")}
    stems = {name.rsplit(".", 1)[0] for name in tables}
    assert tables == {f"{stem}.{end}" for stem in stems for end in ("md", "tex", "csv")}
    assert {"tables/selection", "tables/per_machine", "tables/statistics"} < stems


def test_tables_read_back(report, small):
    rows = pd.read_csv(report / "tables" / "configurations.csv")
    assert rows["config"].tolist() == small.grid["config"].tolist()
    assert rows["eval_omega"][3] == pytest.approx(small.grid["eval_omega"][3], rel=1e-9)


def test_the_same_study_gives_the_same_bytes(small, report, tmp_path):
    write_report(small, tmp_path)
    for path in report.rglob("*"):
        if path.is_file():
            assert (tmp_path / path.relative_to(report)).read_bytes() == path.read_bytes(), path


def test_a_study_read_from_its_folder_has_the_same_report(small):
    assert page_of(StudyResult.read(small.folder)).text == page_of(small).text


def test_report_json_is_the_summary_and_the_page_is_rendered_from_it(small, report):
    stored = strict_json((report / "report.json").read_text(encoding="utf-8"))
    assert stored == summarise(small)
    assert render_html(stored, {}) == render_html(summarise(small), {})


def test_the_page_is_one_file_without_network(report):
    html = (report / "report.html").read_text(encoding="utf-8")
    assert "http://" not in html
    assert "https://" not in html
    assert not re.search(r"@import|url\((?!#)", html)
    for tag, attributes in Page(html).tags:
        assert tag not in ("img", "iframe", "object")
        assert attributes.get("src") is None
        assert attributes.get("href", "#").startswith(("#", "data:,"))
    assert len(html) < 2_000_000


def test_a_folder_that_cannot_be_made_is_named(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file.*cannot be written"):
        write_report(small, tmp_path / "file" / "report")


def test_other_files_of_the_folder_are_left_alone(small, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    write_report(small_study(dev=("fan",), eval=(), labelled=(), grid=["raw-k1"]), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


# What it says


def test_the_first_screen_of_the_published_study(published):
    headline = summarise(published)["headline"]
    assert headline["config"] == "conf-soft-m0-ldnK1"
    assert headline["measure"] == "eval"
    assert headline["value"] == pytest.approx(61.05, abs=0.005)  # the paper's Table II
    by_role = {row["role"]: row for row in headline["comparison"]}
    printed = {"dev pick": 55.83, "fixed default": 59.34, "oracle": 61.05, "random": 57.8}
    for role, score in printed.items():
        assert by_role[role]["value"] == pytest.approx(score, abs=0.05)
    assert 0 < by_role["dev pick"]["at"]["value"] < by_role["chosen"]["at"]["value"] < 100


def test_the_published_study_is_read_as_the_paper_reads_it(published):
    sentences = summarise(published)["headline"]["reading"]
    # Section V-F: +5.2 [1.3, 9.2] over dev selection, +1.7 [-1.2, 4.6] over the default, with
    # 1.96 standard errors; Student's t of 8 machines has 2.365
    assert "scores 5.2 points more than the dev pick, a larger difference" in sentences[0]
    assert "(95 % interval 0.4 to 10.0)" in sentences[0]
    assert "1.7 points more than the fixed default, which may be chance: 8 machines" in sentences[1]
    assert sentences[2] == "No configuration of the grid would have scored higher."


def test_published_numbers_are_on_the_page(published):
    text = page_of(published).text
    for number in ("61.05", "59.34", "55.83", "59.63", "49.68", "+0.81", "−0.03", "+13.85"):
        assert number in text
    assert "conf-soft-m0-k1" in text.split("Dev-score veto.")[1][:200]  # removed by the strict veto


def delta(
    against="dev pick", difference=2.0, low=1.0, high=3.0, *, second="b", by="clip bootstrap"
):
    numbers = {"delta": difference, "low": low, "high": high}
    return {"against": against, "first": "a", "second": second, **numbers, "method": by}


def test_a_choice_that_failed_is_called_a_failure(published):
    lost = delta("fixed default", -9.66, -14.0, -5.0, by="machine jackknife")
    chosen = {"config": "ldn-diff-K16", "rule": "criterion", "eval_omega": 49.68}
    sentences = reading({**published.selection, "chosen": chosen, "deltas": [lost]}, 8)
    assert sentences[0].startswith("It scores 9.7 points less than the fixed default, a larger")
    assert "drawn at random scores more on average (57.8)" in sentences[1]


def test_an_interval_over_machines_counts_more_than_one_over_clips():
    clips, machines = delta(), delta(low=-1.0, high=5.0, by="machine jackknife")
    for order in ([clips, machines], [machines, clips]):
        assert "may be chance: 5 machines do not" in reading({"deltas": order}, 5)[0]
    sentence = reading({"deltas": [clips]}, 5)[0]
    assert "larger difference than the variation from clip to clip" in sentence


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("by", ["paired clip bootstrap", "machine jackknife"])
def test_below_five_machines_no_difference_is_called_larger_than_chance(n, by):
    numbers = "It scores 2.0 points more than the dev pick (95 % interval 1.0 to 3.0)."
    note = f"{n} machines are too few to tell a difference from chance."
    expected = [numbers, "The result of one machine may not hold for others." if n == 1 else note]
    assert reading({"deltas": [delta(by=by)]}, n) == expected


def test_the_same_configuration_is_not_compared_with_itself():
    same = delta("fixed default", 0.0, 0.0, 0.0, second="a")
    expected = "It is the fixed default: nothing was gained or lost by choosing."
    assert reading({"deltas": [same]}, 3) == [expected]


def test_equal_scores_are_no_difference():
    equal = delta("dev pick", 0.0, 0.0, 0.0, second="b")
    assert reading({"deltas": [equal]}, 6) == ["It scores as much as the dev pick."]


def test_every_configuration_has_its_own_explanation():
    names = [config.name for config in paper_grid()]
    texts = {explain(name) for name in names}
    assert len(texts) == len(names)
    assert "m = 30: the ranking of all clips together weighs as much as 30 clips" in explain(
        "conf-soft-m30-k1"
    )
    assert "diagnostic" in explain("conf-oracle-m0-k1")
    assert explain("mine") == "A configuration of the study’s own."


def test_shares_of_anomalous_clips_are_those_of_the_decisions(small):
    one = summarise(small)["distributions"][0]
    machine = small.machine_scores()[0]
    config = small.selection["chosen"]["config"]
    normals = machine.p_values(config)[(machine.labels == 0) & (machine.domains == "source")]
    source = one["domains"][0]
    assert source["name"] == "source"
    assert source["normal"] == {
        "n": len(normals),
        "anomalous": pytest.approx((normals <= 0.1).mean()),
    }


def test_a_rate_that_few_clips_cannot_support_is_flagged(small):
    provenance = {**small.provenance, "false_alarm_rate": 0.01}
    changed = replace(
        small,
        provenance=provenance,
        selection={**small.selection, "chosen": {"config": "conf-soft-m0-k1"}},
    )
    assert "Too few clips for this rate: they support 9 % and more." in page_of(changed).text


# What it hides and what it survives


def test_names_cannot_become_markup():
    result = small_study(dev=("fan", "<i>'&\""), eval=("pump", NAUGHTY), grid=FIVE)
    provenance = {**result.provenance, "missing": ["</script><script>alert(1)</script>"]}
    result = replace(result, provenance=provenance)
    summary = summarise(result)
    page = Page(render_html(summary, page_pictures(result, summary)))
    assert sum(tag == "script" for tag, _ in page.tags) == 2  # the data and the program
    assert not any(tag == "i" for tag, _ in page.tags)
    for text in (NAUGHTY, "<i>'&\"", "</script><script>alert(1)</script>"):
        assert text in page.text
    assert r"\$\textbackslash{}beta\_1\$ 風扇" in tables_of(result)["per_machine"].files()["tex"]


@pytest.mark.parametrize(
    ("what", "arguments", "measure", "says"),
    [
        ("no evaluation machines", {"eval": ()}, "dev", "No evaluation machines were given."),
        (
            "no evaluation labels",
            {"labelled": ("dev",)},
            "dev",
            "The labels of the evaluation machines are not known.",
        ),
        ("no labels", {"labelled": ()}, "criterion", "No machine has labels for its test clips."),
        ("no dev labels", {"labelled": ("eval",)}, "eval", "the veto of broken configurations"),
        ("one machine", {"dev": ("fan",), "eval": ()}, "dev", "1 development machine"),
        ("one configuration", {"grid": ["raw-k1"]}, "eval", "no local density normalisation"),
    ],
)
def test_what_is_not_known_is_said_and_the_rest_is_shown(what, arguments, measure, says):
    result = small_study(**{"grid": FIVE, **arguments})
    summary = strict_json(json.dumps(summarise(result)))
    figures = page_pictures(result, summary)
    page = Page(render_html(summary, figures))
    assert summary["headline"]["measure"] == measure
    assert says in page.text
    assert "configurations" in summary["tables"]
    assert len(summary["distributions"]) == len(result.machine_scores())
    for sentence in result.missing:
        assert sentence in page.text
    if measure == "dev":
        roles = {row["role"] for row in summary["headline"]["comparison"]}
        assert roles <= {"chosen", "dev pick", "fixed default", "blend of views"}
        assert "Nothing here was tried on evaluation machines." in page.text
    if measure != "eval":
        titles = [column["title"] for column in summary["tables"]["selection"]["columns"]]
        assert "eval score" not in titles
        assert not any(name.startswith("transfer") for name in figures)


def warned(small):
    """The study as if the label-free veto had excluded what was chosen."""
    chosen = small.selection["chosen"]["config"]
    names = [str(name) for name in small.grid["config"]]
    veto = {
        "basis": "injected faults",
        "limit": 60.0,
        "median": 65.0,
        "plain": 66.0,
        "cut": {chosen: "pseudo score 51.0, below the limit of 60.0"},
        "notes": ["A note of the veto."],
        "machines": [{"split": "dev", "machine": "fan"}],
        "by_role": {},
        "configs": [
            {"config": n, "pseudo_score": 51.0 if n == chosen else 70.0, "kept": n != chosen}
            for n in names
        ],
        "picks": names[0],
        "chosen_passes": False,
    }
    selection = {**small.selection, "label_free_veto": veto, "warnings": ["It is excluded."]}
    return replace(small, selection=selection)


def test_a_warning_is_on_the_first_screen_and_both_vetoes_are_side_by_side(small):
    result = warned(small)
    summary = summarise(result)
    assert summary["headline"]["warnings"] == ["It is excluded."]
    both = ["dev-score veto", "label-free veto"]
    assert (summary["vetoes"]["n_heard"], summary["vetoes"]["obeyed"]) == (1, both)
    rows = {row[0]: row[1] for row in summary["tables"]["vetoes"]["rows"]}
    chosen = result.selection["chosen"]["config"]
    assert rows[chosen] == "label-free veto"
    assert set(rows) == {chosen, *result.selection["veto"]["removed"]}
    page = page_of(result).text
    assert page.index("It is excluded.") < page.index("What predicts the evaluation score")
    for words in (
        "The veto does not rank configurations",
        "A note of the veto.",
        "with synthetic faults",
    ):
        assert words in page


def test_a_wide_grid_is_shown_by_family():
    grid = [*(config.name for config in paper_grid()), "ldn-mean-K16", "varmin-K4", "blend"]
    result = small_study(eval=("pump",), dev=("fan",), grid=grid)
    summary = summarise(result)
    rows = summary["tables"]["families"]["rows"]
    assert [row[0] for row in rows] == list(
        dict.fromkeys(daco.ScoreConfig.parse(name).family for name in grid)
    )
    assert sum(row[1] for row in rows) == len(grid)
    criterion = result.grid.set_index("config")["crit_dev"]
    for family, _, best, value, *_ in rows:
        members = [name for name in grid if daco.ScoreConfig.parse(name).family == family]
        assert value == pytest.approx(criterion[members].min())
        assert best in members
    local = [row[0] for row in summary["tables"]["ldn"]["rows"]]
    assert "ldn-mean-K16" in local
    assert not any("varmin" in name or "blend" in name for name in local)
    assert "By family" in page_of(result).text


def test_a_folder_without_a_choice_gets_a_report_that_makes_none(published, tmp_path):
    result = StudyResult.read(tables_only(published, tmp_path))
    summary = summarise(result)
    headline = summary["headline"]
    assert (headline["config"], headline["rule"], headline["resamples"]) == (None, None, None)
    by_role = {row["role"]: row["value"] for row in headline["comparison"]}
    assert set(by_role) == {"fixed default", "oracle", "random"}
    assert by_role["fixed default"] == pytest.approx(59.34, abs=0.005)
    assert "is not known" in headline["reading"][0]
    figures = page_pictures(result, summary)
    assert {"transfer_dev", "transfer_criterion", "frontier"} <= set(figures)
    page = Page(render_html(summary, figures))
    assert "No choice in this folder" in page.text
    assert "Chosen" not in page.text
    assert "every part of the study could be computed" not in page.text
    assert "No selection was made." in page.text
    assert "The provenance of this result is not known." in page.text
    assert [point["role"] for point in summary["points"] if point["role"]] == ["default"]


def test_the_gain_is_drawn_where_the_machines_table_has_the_separability(small, tmp_path):
    result = StudyResult.read(tables_only(small, tmp_path))
    shared = list(result.diagnostics.columns)
    expected = small.diagnostics.sort_values(["split", "machine"])[shared]
    found = result.diagnostics.sort_values(["split", "machine"])
    assert found["machine"].tolist() == expected["machine"].tolist()
    for name in ("separability_train", "target_auc_gain"):
        # tables hold ten significant digits
        assert found[name].tolist() == pytest.approx(expected[name].tolist(), abs=1e-7)
    assert "gain_separability" in page_pictures(result, summarise(result))


def test_the_first_screen_says_how_stable_the_choice_is(small):
    resamples = small.selection["resamples"]
    summary = summarise(small)
    assert summary["headline"]["resamples"] == plain_json(resamples)
    text = " ".join(page_of(small).text.split())
    assert f"of {resamples['n']} resamples of splits and clips" in text
    assert f"mean score of these picks {resamples['eval_omega']:.1f}" in text
    rows = summary["tables"]["stability"]["rows"]
    assert {row[0]: row[1] for row in rows} == resamples["picks"]


def test_picks_below_the_default_are_called_so():
    assert below_default(10, 72.7, 72.6) == below_default(10, None, 72.6) == []
    (sentence,) = below_default(10, 70.5, 72.6)
    assert "less than the fixed default (72.6)" in sentence


# Tables beside the page


def test_latex_tables_are_balanced(report):
    for path in (report / "tables").glob("*.tex"):
        text = path.read_text("utf-8")
        plain = re.sub(r"\\[{}\\]", "", text)
        assert plain.count("{") == plain.count("}"), path
        widths = {line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")}
        assert len(widths) <= 2, path  # a row of group headings has fewer cells
        assert text.count(r"\begin{") == text.count(r"\end{")


def test_the_appendix_of_the_paper_is_a_table(published):
    table = summarise(published)["tables"]["per_machine"]
    fan = next(row for row in table["rows"] if row[0] == "fan")
    assert [round(value, 1) for value in fan[2:5]] == [61.2, 41.2, 48.8]
    assert [round(value, 1) for value in fan[10:13]] == [43.4, 57.0, 52.3]
    assert {column["group"] for column in table["columns"]} == {
        "", "raw-k1", "conf-soft-m0-k1", "conf-soft-m0-ldnK1"
    }  # fmt: skip
