"""The manual is short and complete: words, endings, tables of contents and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS
from shared_data import ROOT

PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
NAMES = [page.relative_to(DOCS).as_posix() for page in PAGES]
MANUAL = [name for name in NAMES if not name.startswith("reference/")]
LIMIT = 17_500
"""Words of all pages together; the reference is not read from beginning to end."""

_CODE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.M | re.S)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_INCLUDED = re.compile(r"^```\{include\} (\S+)$", re.M)
_QUOTED = re.compile(r"^```\{literalinclude\}.*?^```$", re.M | re.S)
_TREE = re.compile(r"^```\{toctree\}$(.*?)^```$", re.M | re.S)


def words(name: str) -> int:
    """The words of a page with what it includes, without quoted code and included tables."""
    page = DOCS / name
    text = _QUOTED.sub("", page.read_text(encoding="utf-8"))
    for included in _INCLUDED.findall(text):
        lines = (page.parent / included).read_text(encoding="utf-8").splitlines()
        text += "\n".join(line for line in lines if not line.startswith("|"))
    return len(text.split())


def test_the_manual_has_no_more_words_than_its_limit():
    assert sum(map(words, MANUAL)) <= LIMIT


def test_every_page_is_in_a_table_of_contents():
    listed = {"index"}
    for page in PAGES:
        for tree in _TREE.findall(page.read_text(encoding="utf-8")):
            for line in tree.splitlines():
                if line and not line.startswith(":"):
                    entry = line.rpartition("<")[2].rstrip(">")
                    found = (page.parent / entry).resolve().relative_to(DOCS)
                    listed.add(found.as_posix())
    sources = [*PAGES, *sorted((DOCS / "notebooks").glob("*.ipynb"))]
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in sources}
    assert listed == pages


def links(page: Path) -> list[str]:
    """The files that a page links to, or shows as pictures, as it writes them."""
    found = _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    paths = [link.partition("#")[0] for link in found if not re.match(r"[a-z]+:", link)]
    return [path for path in paths if path]


GENERATED = {DOCS / "images" / "rooms.svg"}
"""Drawn when the manual is built."""


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_a_page_links_to_files_that_exist(page):
    targets = [(page.parent / link).resolve() for link in links(page)]
    assert [path for path in targets if not path.is_file() and path not in GENERATED] == []


def test_links_are_found_where_they_are(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "[a](b.md#c), [d](https://e.f), [g](#h) and ![i](j.png)\n\n```text\n[k](l.md)\n```\n",
        encoding="utf-8",
    )
    assert links(page) == ["b.md", "j.png"]
