"""The package of the page 'Bring your own network', installed with pip and used as stated there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
from command_line import NARROW, process
from pages import DOCS, notebook

PAGE = DOCS / "bring-your-own-network.md"
FILES = {"toml": "pyproject.toml", "python": "my_network.py"}
LONGEST = 30
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")


def blocks():
    """Kind and text of each block of the page that is not left out."""
    text = PAGE.read_text(encoding="utf-8")
    return [
        (fence["kind"], fence["body"].lstrip("\n"))
        for fence in re.finditer(notebook._FENCE, text)
        if not notebook._NOT_RUN.search(text[: fence.start()])
    ]


def install(folder, site):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target"]
    environment = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, str(site), *OFFLINE, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


def test_the_package_is_as_short_as_the_title_promises():
    first = [text for kind, text in blocks() if kind in FILES][:2]
    assert sum(len(text.splitlines()) for text in first) <= LONGEST


def test_the_page_works_as_it_states(tmp_path):
    pytest.importorskip("setuptools", reason="a package is built with setuptools")
    pytest.importorskip("pip", reason="a package is installed with pip")
    folder, site, printed = tmp_path / "my-network", tmp_path / "site", ""
    folder.mkdir()
    environment = {**NARROW, "PYTHONPATH": str(site), "NO_COLOR": "1", "TERM": "dumb"}
    ran = 0
    for kind, text in blocks():
        if kind in FILES:
            with (folder / FILES[kind]).open("a", encoding="utf-8") as file:
                file.write(text)
        elif kind == "text":
            assert notebook.agrees(text, printed), f"stated:\n{text}\nprinted:\n{printed}"
        elif kind == "sh":
            printed = ""
            for line in text.splitlines():
                if line.startswith("pip"):
                    install(folder, site)
                elif line.startswith("daco"):
                    ran += 1
                    done = process(*shlex.split(line)[1:], environment=environment, cwd=tmp_path)
                    assert "Traceback" not in done.stderr, done.stderr
                    errors = done.stderr if done.returncode else ""
                    lines = (done.stdout + errors).splitlines()
                    printed += "".join(f"{each.rstrip()}\n" for each in lines)
    assert ran >= 5
