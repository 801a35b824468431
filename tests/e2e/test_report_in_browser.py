"""The report in a real browser: it works, it fits, it can be read, printed and used by keyboard."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise

import pytest
from browser_pages import CONTRAST, DESK, PHONE, watched_page
from random_studies import NAUGHTY, report_study

from daco.experiments.report import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A study with a machine whose name is an attack."""
    study = report_study(eval=("pump", NAUGHTY, "saw"))
    return write_report(study, tmp_path_factory.mktemp("report"))


@contextmanager
def opened(browser, path, viewport=DESK, **settings):
    """A page that loaded without an error and asked for nothing but its own pictures."""
    url = path.as_uri()
    with watched_page(browser, url, viewport, **settings) as (page, problems, requests):
        yield page
        assert problems == []
        assert [each for each in requests if not each.startswith("data:")] == [url]


def unfold(page):
    page.locator("details").evaluate_all("all => all.forEach(each => each.open = true)")


def test_the_first_screen_has_the_rules_and_the_choice(browser, report):
    with opened(browser, report) as page:
        rows = page.locator(".compare tbody tr")
        assert rows.count() >= 8
        assert page.locator(".compare .is-chosen").count() == 1
        heading = page.locator("h2", has_text="Chosen:").bounding_box()
        assert heading["y"] + heading["height"] < DESK["height"]
        assert page.locator("img").evaluate_all("all => all.every(each => each.naturalWidth > 0)")


@pytest.mark.parametrize("viewport", [DESK, PHONE, {"width": 320, "height": 640}])
def test_nothing_is_wider_than_the_screen(browser, report, viewport):
    with opened(browser, report, viewport) as page:
        unfold(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= viewport["width"]


def test_tables_sort_by_mouse_and_keyboard(browser, report):
    with opened(browser, report) as page:
        unfold(page)
        table = page.locator("#configurations table").last
        column = table.locator("thead th", has_text="eval score")
        index = column.evaluate("head => head.cellIndex")
        values = "(rows, at) => rows.map(row => Number(row.cells[at].dataset.value))"
        column.locator("button").click()
        assert column.get_attribute("aria-sort") == "descending"
        descending = table.locator("tbody tr").evaluate_all(values, index)
        assert descending == sorted(descending, reverse=True)
        column.locator("button").focus()
        page.keyboard.press("Enter")
        assert column.get_attribute("aria-sort") == "ascending"
        assert table.locator("tbody tr").evaluate_all(values, index) == sorted(descending)
        first = table.locator("thead th").first
        first.locator("button").click()
        assert table.locator("thead th[aria-sort]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(browser, report, scheme):
    with opened(browser, report, color_scheme=scheme) as page:
        unfold(page)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 30)"
        assert dark == (scheme == "dark")
        assert page.evaluate(CONTRAST) == []
        inverted = page.locator("figure img").first.evaluate("e => getComputedStyle(e).filter")
        assert (inverted != "none") == dark


def test_the_page_is_well_built(browser, report):
    with opened(browser, report) as page:
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        levels = page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3,h4')].map(e => Number(e.tagName[1]))"
        )
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
        links = page.evaluate("[...document.querySelectorAll('a')].map(e => e.hash.slice(1))")
        assert set(links) <= set(ids)
        assert page.title().endswith("daco study")
        assert page.evaluate("document.compatMode") == "CSS1Compat"


def test_the_first_stop_of_the_keyboard_skips_to_the_results(browser, report):
    with opened(browser, report) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.hash") == "#main"
        assert page.locator(".skip").bounding_box()["width"] > 50


def test_print_is_light_and_has_everything_open(browser, report):
    with opened(browser, report, {"width": 688, "height": 1000}, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
        assert page.locator("nav").is_hidden()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        for selector in ("figure", "tr", ".hero"):  # not broken between pages
            rule = page.locator(selector).first.evaluate("e => getComputedStyle(e).breakInside")
            assert rule == "avoid", selector
        assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
