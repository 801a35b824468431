"""The built manual in a browser; ``make docs`` runs this after the build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from browser_pages import DESK, PHONE, started_browser, watched_page

MANUAL = Path(__file__).parent / "_build" / "html"
PAGES = sorted(
    page.relative_to(MANUAL).as_posix()
    for page in MANUAL.rglob("*.html")
    if not page.is_relative_to(MANUAL / "_modules") and page.name != "genindex.html"
)
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
WIDE_CODE = """() => [...document.querySelectorAll('.bd-article pre')]
    .filter(block => block.scrollWidth > block.clientWidth + 1)
    .map(block => block.textContent.split('\\n').sort((a, b) => b.length - a.length)[0])"""


@pytest.fixture(scope="module")
def browser():
    with started_browser() as started:
        yield started


@pytest.mark.parametrize("name", PAGES)
def test_text_and_code_fit(name, browser):
    for viewport in (DESK, PHONE):
        address = (MANUAL / name).as_uri()
        with watched_page(browser, address, viewport) as (page, _, requests):
            assert page.evaluate(OVERFLOW) <= 0, f"wider than {viewport['width']} px"
            assert viewport is PHONE or page.evaluate(WIDE_CODE) == []
            assert not [request for request in requests if request.startswith("http")]


@pytest.mark.parametrize("name", PAGES)
def test_no_page_tells_of_the_computer_that_built_it(name):
    text = (MANUAL / name).read_text(encoding="utf-8")
    assert str(MANUAL.parents[2]) not in text
    assert "environ({" not in text


def test_the_search_works_without_a_network(browser):
    address = (MANUAL / "search.html").as_uri() + "?q=calibrate"
    with watched_page(browser, address) as (page, _, requests):
        page.get_by_text("Search finished").wait_for()
        titles = page.locator("#search-results li > a").all_inner_texts()
    assert any("alarm" in title.lower() for title in titles), titles
    assert not [request for request in requests if request.startswith("http")]


@pytest.mark.parametrize(("folder", "compared"), [("start", True), ("guides", False)])
def test_a_build_compares_the_pages_for_newcomers(folder, compared, tmp_path):
    (tmp_path / folder).mkdir()
    text = "# Page\n\n```python\n1 + 1\n```\n\n```text\n3\n```\n"
    (tmp_path / folder / "page.md").write_text(text, encoding="utf-8")
    options = ["-q", "-C", "-b", "dummy", "-D", "extensions=myst_parser,notebook"]
    options += ["-D", f"root_doc={folder}/page"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(tmp_path), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("page.md:3: WARNING: line 3: the page states" in built.stderr) == compared
    assert built.stderr.count("WARNING") == compared


def test_notebooks_and_drawings_have_the_colours_of_a_dark_page(browser):
    page = browser.new_page(color_scheme="dark")
    page.goto((MANUAL / "notebooks" / "arrays-to-a-report.html").as_uri())
    table = page.locator(".cell_output .text_html").first
    assert table.evaluate("e => getComputedStyle(e).backgroundColor") == "rgba(0, 0, 0, 0)"
    page.goto((MANUAL / "concepts.html").as_uri())
    drawing = page.locator("img[src$='.svg']").first
    assert "invert" in drawing.evaluate("e => getComputedStyle(e).filter")
    page.close()
