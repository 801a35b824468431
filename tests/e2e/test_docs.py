"""The documentation says what the code does: its code runs, and its outputs are what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS, notebook
from shared_data import ROOT

import daco


@pytest.mark.parametrize("name", notebook.PAGES)
def test_a_page_prints_what_it_states(name, tmp_path, monkeypatch):
    if missing := notebook.missing_package(DOCS / name):
        pytest.skip(f"the page needs {missing}")
    monkeypatch.chdir(tmp_path)
    notebook.unpack_artifacts(DOCS / name)
    found = notebook.differences(DOCS / name)
    assert not found, "\n\n".join(map(str, found))
    assert notebook.missing_pictures(DOCS / name) == []


def test_the_readme_prints_what_it_states(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "page.md").write_text(
        re.sub(r"<!-- (not run: .+) -->", "% \\1", text), encoding="utf-8"
    )
    found = notebook.differences(tmp_path / "page.md")
    assert not found, "\n\n".join(map(str, found))


SMALLER = {
    "--source 60 --test 40 --seconds 2": "--source 24 --test 8 --seconds 1 --workers 1",
    "daco select": "daco select --splits 20",
    "daco study": "daco study --no-report --workers 1 --splits 20",
    "daco embed": "daco embed --workers 1",
    "daco inject": "daco inject --per-domain 2",
    "daco sensitivity": "daco sensitivity --per-domain 2",
    "daco serve plant": "daco serve --help",
}
"""What the commands are shortened to: four machines of 34 clips, no pictures."""


def test_the_commands_work_in_the_order_of_their_page(tmp_path, monkeypatch):
    """All but blocks that need a network or the data of others."""
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "reference/commands.md").read_text(encoding="utf-8")
    for whole, smaller in SMALLER.items():
        assert whole in text
        text = text.replace(whole, smaller)
    blocks = notebook.read_blocks(text)
    assert len(blocks) >= 3
    for block, printed in zip(blocks, notebook.run_blocks(blocks), strict=True):
        assert printed or "daco " not in block.code


def page(tmp_path: Path, *blocks: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text("# Page\n\n" + "\n\n".join(blocks) + "\n", encoding="utf-8")
    return path


def python(code: str) -> str:
    return f"```python\n{code}\n```"


def text(output: str) -> str:
    return f"```text\n{output}\n```"


@pytest.mark.parametrize(
    ("blocks", "n_different"),
    [
        ([python("x = 1"), python("print(x)\nx + 1"), text("1\n2")], 0),
        ([python("print(1)"), text("2")], 1),
        ([python("1 + 1")], 1),  # output that the page hides
        ([python("x = 1"), text("1")], 1),  # output that nobody printed
        ([python("print(0.123)"), text("0.1...")], 0),
        ([python("import daco\ndaco.ScoreConfig.parse('raw')"), text("ConfigError: ...")], 0),
        (["```sh\nls /nowhere\ndaco --version\n```", text(f"daco {daco.__version__}")], 0),
        (["```sh\ndaco clips nowhere\n```", text("error: ...nowhere does not exist...")], 0),
        (["% not run: it would fail\n" + python("1 / 0")], 0),
    ],
)
def test_what_is_stated_is_compared_with_what_is_printed(blocks, n_different, tmp_path):
    assert len(notebook.differences(page(tmp_path, *blocks))) == n_different


def test_a_mistake_in_the_code_of_a_page_is_no_output(tmp_path):
    with pytest.raises(ZeroDivisionError):
        notebook.differences(page(tmp_path, python("1 / 0"), text("...")))


def test_the_public_names_are_all_described():
    listed = re.findall(
        r"`daco\.(\w+)[ `]", (DOCS / "reference" / "api" / "index.md").read_text("utf-8")
    )
    assert sorted(listed) == sorted(daco.__all__)
