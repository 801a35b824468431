"""The report in a real browser: it works, it fits, it can be read, printed and used by keyboard."""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import pairwise

import pytest
from browser_pages import CONTRAST, DESK, PHONE, watched_page
from playwright.sync_api import expect
from report_runs import NAUGHTY, published_study, small_study

from daco.experiments.report import render_html, summarise, write_report
from daco.experiments.report.pictures import page_pictures


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A study of the engine's own, with a machine whose name is an attack."""
    result = small_study(eval=("pump", NAUGHTY))
    return write_report(result, tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The paper's study at its full size."""
    result = published_study(tmp_path_factory.mktemp("published"))
    summary = summarise(result)
    path = result.folder / "report.html"
    path.write_text(render_html(summary, page_pictures(result, summary)), encoding="utf-8")
    return path


@contextmanager
def opened(browser, path, viewport=DESK, **settings):
    """A page that loaded without an error and asked for nothing."""
    url = path.as_uri()
    with watched_page(browser, url, viewport, **settings) as (page, problems, requests):
        yield page
        assert problems == []
        assert requests == [url]


def point(page, row, panel=0):
    return page.locator(".interactive svg").nth(panel).locator(f'.point[data-row="{row}"]')


def hover(page, row, panel=0):
    """Move the mouse to the middle of a point."""
    target = point(page, row, panel)
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


# The interactive picture


def test_pointing_at_a_configuration_shows_its_numbers(browser, published):
    with opened(browser, published) as page:
        assert page.locator(".interactive .point").count() == 2 * 51
        tooltip = page.locator("#tooltip")
        expect(tooltip).to_be_hidden()
        hover(page, 50, panel=1)  # conf-soft-m30-ldnK1
        expect(tooltip).to_be_visible()
        text = tooltip.inner_text()
        assert text.startswith("conf-soft-m30-ldnK1\ncalibrated LDN")
        assert "evaluation score\n61.03" in text
        assert "dev score\n56.60" in text
        assert "criterion, dev\n0.481" in text
        # the same configuration is marked in the other panel
        expect(page.locator(".point.on")).to_have_count(2)
        page.mouse.move(5, 5)
        expect(tooltip).to_be_hidden()
        expect(page.locator(".point.on")).to_have_count(0)


def test_the_tooltip_stays_on_the_page(browser, published):
    with opened(browser, published, PHONE) as page:
        for row in (0, 46, 48, 49):
            hover(page, row)
            expect(point(page, row)).to_have_class(re.compile(r"\bon\b"))
            box = page.locator("#tooltip").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]


def test_a_tap_shows_a_configuration_and_a_tap_beside_it_hides_it(browser, small):
    with opened(browser, small, PHONE, has_touch=True) as page:
        target = point(page, 0)
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator("#tooltip")).to_be_visible()
        page.locator("h1").tap()
        expect(page.locator("#tooltip")).to_be_hidden()


def test_the_picture_can_be_used_by_keyboard(browser, small):
    with opened(browser, small) as page:
        first = page.locator(".interactive svg").first
        assert first.locator('.point[tabindex="0"]').count() == 1  # one stop for Tab
        first.locator('.point[tabindex="0"]').focus()
        tooltip = page.locator("#tooltip")
        expect(tooltip).to_be_visible()
        seen = [tooltip.inner_text()]
        for _ in range(3):
            page.keyboard.press("ArrowRight")
            seen.append(tooltip.inner_text())
        assert len(set(seen)) == 4
        page.keyboard.press("ArrowLeft")
        assert tooltip.inner_text() == seen[2]
        label = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label.startswith(seen[2].splitlines()[0])
        page.keyboard.press("Escape")
        expect(tooltip).to_be_hidden()


# Tables


def column(page, table, index):
    return page.locator(f"{table} tbody tr").evaluate_all(
        "(rows, index) => rows.map(row => row.cells[index].textContent.trim())", index
    )


def test_tables_sort_by_number_and_by_name(browser, published):
    with opened(browser, published) as page:
        table = "#machines table"
        names, raw = column(page, table, 0), column(page, table, 2)
        heading = page.locator(f"{table} thead tr:last-child th").nth(2)
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == "descending"  # the best first
        assert column(page, table, 2) == sorted(raw, key=float, reverse=True)
        heading.locator("button").press("Enter")
        assert heading.get_attribute("aria-sort") == "ascending"
        assert column(page, table, 2) == sorted(raw, key=float)
        by_name = page.locator(f"{table} thead tr:last-child th").first
        by_name.locator("button").click()
        assert by_name.get_attribute("aria-sort") == "ascending"
        assert column(page, table, 0) == sorted(names, key=str.lower)
        assert page.locator(f"{table} [aria-sort]").count() == 1


def test_numbers_sort_by_value_and_unknown_ones_come_last(browser, published):
    with opened(browser, published) as page:
        table = "#statistics table"
        heading = page.locator(f"{table} thead th").nth(1).locator("button")
        for _ in range(2):  # descending, then ascending; as text, a minus sign sorts elsewhere
            heading.click()
            values = column(page, table, 1)
            known = [float(v.replace("−", "-")) for v in values if v != "–"]
            assert values[len(known) :] == ["–"] * (len(values) - len(known))
            assert len(known) < len(values)
        assert known == sorted(known)


# Room


OVERFLOWING = """() => [...document.querySelectorAll('body *')].filter(element => {
    const box = element.getBoundingClientRect();
    const scrolls = element.closest('.scroll, nav ul, #tooltip, .skip, .hidden');
    return box.width && !scrolls && !element.closest('svg')
        && (box.right > innerWidth + 1 || box.left < -1);
}).map(element => element.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("name", ["small", "published"])
def test_nothing_is_wider_than_the_screen(browser, request, name):
    with opened(browser, request.getfixturevalue(name)) as page:
        page.locator("details").evaluate_all("all => all.forEach(each => each.open = true)")
        for width in (320, 390, 768, 1280):
            page.set_viewport_size({"width": width, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OVERFLOWING) == []


def test_a_wide_table_scrolls_in_its_own_box_and_keeps_its_headings(browser, published):
    with opened(browser, published, PHONE) as page:
        box = page.locator("#machines .scroll")
        wide, seen = box.evaluate("e => [e.scrollWidth, e.clientWidth]")
        assert wide > seen
        box.evaluate("e => { e.scrollLeft = 200; e.scrollTop = 300; }")
        left = box.bounding_box()["x"]
        first = box.locator("tbody th").nth(9).bounding_box()
        assert first["x"] == pytest.approx(left, abs=1)
        top = box.bounding_box()["y"]
        assert box.locator("thead").bounding_box()["y"] == pytest.approx(top, abs=1)


CUT_OFF = """() => [...document.querySelectorAll('svg.picture')].flatMap(svg => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < frame.left - 3 || box.right > frame.right + 3
            || box.top < frame.top - 3 || box.bottom > frame.bottom + 3;
    }).map(text => text.textContent);
})"""


def test_no_text_of_a_picture_is_cut_off_or_too_small_on_a_phone(browser, published):
    with opened(browser, published, PHONE) as page:
        assert page.locator("svg.picture text").count() > 200
        assert page.evaluate(CUT_OFF) == []
        heights = page.locator(".pair svg.picture text, .beside svg.picture text").evaluate_all(
            "all => all.map(e => parseFloat(getComputedStyle(e).fontSize) *"
            " Math.hypot(e.getCTM().a, e.getCTM().b))"
        )
        assert min(heights) > 8  # pixels: the smallest are names beside points


# Reading


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(browser, published, scheme):
    with opened(browser, published, color_scheme=scheme) as page:
        page.locator("details").evaluate_all("all => all.forEach(each => each.open = true)")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 30)"
        assert dark == (scheme == "dark")
        assert page.evaluate(CONTRAST) == []


def test_the_page_is_well_built(browser, small):
    with opened(browser, small) as page:
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        levels = page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3,h4')].map(e => Number(e.tagName[1]))"
        )
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
        unnamed = page.evaluate(
            "[...document.querySelectorAll('svg:not([aria-hidden])')]"
            ".filter(e => !e.getAttribute('aria-label') || !e.getAttribute('role')).length"
        )
        assert unnamed == 0
        assert page.evaluate(
            "[...document.querySelectorAll('th')].every(e => e.hasAttribute('scope'))"
        )
        links = page.evaluate("[...document.querySelectorAll('a')].map(e => e.hash.slice(1))")
        assert set(links) <= set(ids)
        assert page.title().endswith("daco study")
        assert page.evaluate("document.compatMode") == "CSS1Compat"
        assert NAUGHTY in page.inner_text("body")


# Paper


def test_print_is_light_and_has_everything_open(browser, published):
    with opened(browser, published, {"width": 688, "height": 1000}, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") in (
            "rgb(255, 255, 255)",
            "rgba(0, 0, 0, 0)",
        )
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert page.locator("nav").is_hidden()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        tables = page.locator("#transfer details table").all()
        assert len(tables) == 2
        assert all(table.is_visible() for table in tables)
        assert page.evaluate("document.documentElement.scrollWidth") <= 688
        for selector in ("figure:not(.table)", "tr", ".hero"):  # not broken between pages
            rule = page.locator(selector).first.evaluate("e => getComputedStyle(e).breakInside")
            assert rule == "avoid", selector
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0
        pdf = page.pdf(prefer_css_page_size=True)
        assert pdf.startswith(b"%PDF")
        assert 6 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") <= 20
